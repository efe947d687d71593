"""May this slice reach its mirror?  Not if it breaks an invariant, unless a person let it through.

A slice is the batches that a mirror has not applied yet, folded: a later change that puts the rows
right makes the whole of it valid again.  What a person lets through is a range of batches that
begins where the mirror stands, and that is the end of it: once they are applied it begins there no
more.  A mirror that is made anew begins with the same numbers, and is another.  Pure.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from hashlib import sha256

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.apply.decide import Found, RowVerdict, Verdicts, leaves, stands
from pipeline.apply.floors import Floors, below
from pipeline.apply.partial_rows import Peek
from pipeline.apply.provenance import Integers, Mask, Owned, owned, plain, rank
from pipeline.errors import HeldError
from pipeline.invariants.invariant import Breach, IntendedRows, Invariant, LandedDay
from pipeline.model import Op, Order, Shard, Table
from pipeline.schema.decode import typed
from pipeline.schema.model import Column

FIRST_KEYS = 5
_RANGE = re.compile(r"([0-9]{1,18})-([0-9]{1,18})@([0-9a-f]{8})")


@dataclass(frozen=True, slots=True, eq=False)
class Occurrences:
    """Rows of a mirror that hold one of the values sought: ``of`` which, file, position, owner."""

    of: Integers
    file: npt.NDArray[np.int32]
    position: Integers
    owned: Owned


Search = Callable[[pa.Table], Occurrences]
"""Values, a row each, each once and none null -> all rows of the mirror that hold one of them."""


@dataclass(frozen=True, slots=True)
class Demands:
    """What is demanded, by name, of the batches after ``after`` of a mirror of ``there`` rows.

    ``mirror`` tells it in a waiver's name from another that is made in its folder.
    Those up to ``let`` a person lets through, whatever they break.  ``floors`` are those the mirror
    remembers: a TRUNCATE that is not above its shard's takes nothing, it was applied before.
    ``landed`` tells of a day what was applied before; None where nobody can.
    """

    invariants: tuple[tuple[str, Invariant], ...]
    mirror: str
    after: int
    there: int
    let: int | None = None
    floors: Floors = field(default_factory=dict)
    landed: Callable[[str, date], LandedDay] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class DecidedSlice:
    """What a slice comes to: ``changes`` all of it, ``folded`` its newest of each key.

    ``rows``, ``found`` and ``verdicts`` go with those, in their order.  ``search`` tells where
    values stand in the mirror, ``raised`` are the floors below which its rows go.  ``elsewhere``
    tells whether values, of rows that are owned, stand in another table.  ``peek`` reads the
    mirror.
    """

    table: Table
    columns: tuple[Column, ...]
    changes: pa.Table
    folded: pa.Table
    rows: pa.Table
    found: Found
    verdicts: Verdicts
    raised: Floors
    search: Search | None
    elsewhere: Callable[[str, pa.Table, Owned], pa.BooleanArray]
    peek: Peek | None = None


def short_name(id_: str) -> str:
    """A mirror's id, of whatever form, as a waiver's name has it."""
    return sha256(id_.encode()).hexdigest()[:8]


def let_through(table: str, mirror: str, after: int, waived: Iterable[str]) -> int | None:
    """The batch up to which a person lets a mirror's next slice through; None: nobody does."""
    name = f"invalid:{table}:"
    spans = (_RANGE.fullmatch(one.removeprefix(name)) for one in waived if one.startswith(name))
    own = (span for span in spans if span and span[3] == mirror)
    return max((int(span[2]) for span in own if int(span[1]) == after + 1), default=None)


def require_valid(demands: Demands, made: DecidedSlice) -> None:
    """Ask every invariant.

    Raises:
        HeldError: ``invalid``, with all that are broken and the first keys; ``awaited``, where all
            of these may heal by what is on its way; ``invariant``, one of them cannot be asked.
    """
    went = pc.equal(plain(made.folded["op"]), str(Op.DELETE)).to_numpy()
    new = stands(made.verdicts) & ~went  # of rows that stay though archived nothing is demanded
    intended = _intended(demands, made, new)
    broken = [
        (name, breach)
        for name, invariant in demands.invariants
        for breach in invariant.breaches(intended)
    ]
    sure = [one for one in broken if one[1].sure]
    broken = sure or broken
    if not broken:
        return
    last = max(_last(breach, made, new) for _, breach in broken)
    last = max(last, demands.after + 1)  # rows that came from another table's are older
    if demands.let is not None and last <= demands.let:
        return
    keys = plain(made.folded["key"]).filter(pa.array(new))
    span = f"{demands.after + 1}-{last}"
    told = "; ".join(_told(name, breach, keys) for name, breach in broken)
    waiver = f"invalid:{made.table.name}:{span}@{demands.mirror}"
    advice = (
        "the mirror stays as it was; put the rows right at the source, and the table goes on by "
        f"itself, or let batches {span} through: waive {waiver}"
    )
    if sure:
        detail = f"batches {span} break what is demanded: {told}; {advice}"
        raise HeldError("invalid", detail, waiver)
    detail = f"batches {span} wait for what is demanded of them: {told}; {advice}"
    raise HeldError("awaited", detail, waiver)


def _intended(demands: Demands, made: DecidedSlice, new: Mask) -> IntendedRows:
    return IntendedRows(
        table=made.table.name,
        key=made.table.key,
        rows=made.rows.filter(pa.array(new)),
        there=demands.there,
        changed=int((leaves(made.verdicts) & (made.verdicts != RowVerdict.ARCHIVE)).sum()),
        emptied=_emptied(made.changes, demands.floors),
        standing=partial(_standing, made),
        before=partial(_before, made, new),
        elsewhere=partial(_elsewhere, made, new),
        deleted=partial(_deleted, made),
        landed=demands.landed or _unknown_day,
    )


def _unknown_day(column: str, day: date) -> LandedDay:
    none = pa.schema([(column, pa.timestamp("us")), ("at", pa.timestamp("us", "UTC"))])
    return LandedDay(None, none.empty_table())


def _deleted(made: DecidedSlice, names: Sequence[str]) -> pa.Table:
    """What the rows that are deleted held: as their deletes say, else as the mirror has it."""
    at = np.flatnonzero(made.verdicts == RowVerdict.DELETE)
    rows = made.rows.take(pa.array(at)).select(list(names))
    if made.peek is not None and len(at) and any(column.null_count for column in rows.columns):
        found = Found(made.found.file[at], made.found.position[at], made.found.owned.take(at))
        there = made.peek(found, list(names))
        for number, name in enumerate(names):
            column = pc.coalesce(rows[name], there[name].cast(rows.schema.field(name).type))
            rows = rows.set_column(number, name, column)
    return rows.append_column("at", made.folded.take(pa.array(at))["at"])


def _emptied(changes: pa.Table, floors: Floors) -> bool:
    """Whether a TRUNCATE takes rows that stood until now; one sent again does not."""
    marks = changes.filter(pc.equal(plain(changes["op"]), Op.TRUNCATE))
    return any(
        (known := floors.get(Shard(row["source"], row["shard"]))) is None
        or Order(**row["order"]) > known
        for row in marks.select(["source", "shard", "order"]).to_pylist()  # a few rows
    )


def _last(breach: Breach, made: DecidedSlice, new: Mask) -> int:
    """The newest batch that has a part in it."""
    rows = made.changes if breach.rows is None else made.folded.filter(pa.array(new))
    if breach.rows is not None:
        rows = rows.filter(pa.array(breach.rows))
    return int(pc.max(rows["batch"]).as_py())


def _told(name: str, breach: Breach, keys: pa.ChunkedArray) -> str:
    if breach.rows is None:
        return f"{name}: {breach.what}"
    first = keys.filter(pa.array(breach.rows)).slice(0, FIRST_KEYS).to_pylist()
    number = int(breach.rows.sum())
    rows = "1 row, key" if number == 1 else f"{number} rows, first keys"
    return f"{name}: {breach.what} in {rows} {', '.join(first)}"


def _elsewhere(made: DecidedSlice, new: Mask, name: str, values: pa.Table) -> pa.BooleanArray:
    return made.elsewhere(name, values, owned(made.folded.filter(pa.array(new))))


def _standing(made: DecidedSlice, values: pa.Table) -> Mask:
    """Which *values* stand in a row of the mirror that neither goes nor is replaced."""
    if made.search is None:
        detail = f"{made.table.name} is a mirror that cannot be searched for values, as Spark's are"
        advice = "take that invariant out of `invariants` and restart the service"
        raise HeldError("invariant", f"{detail}; {advice}, or rebuild the mirror")
    there, own = sought(made.search, values), made.found
    gone = leaves(made.verdicts)
    places = set(zip(own.file[gone].tolist(), own.position[gone].tolist(), strict=True))
    at = zip(there.file.tolist(), there.position.tolist(), strict=True)
    stays = ~np.fromiter((place in places for place in at), np.bool_, len(there.of))
    stays &= ~below(there.owned, made.raised) & ~there.owned.archived
    found = np.zeros(len(values), np.bool_)
    found[there.of[stays]] = True
    return found


def sought(search: Search, values: pa.Table) -> Occurrences:
    """Ask *search*; who demands it is told why it cannot be asked."""
    try:
        return search(values)
    except HeldError as error:
        if error.reason != "key_kind":
            raise
        kinds = ", ".join(f"{field.name} ({field.type})" for field in values.schema)
        detail = f"a mirror cannot be searched for values of {kinds}, which are not matched exactly"
        advice = "take that invariant out of `invariants` and restart the service"
        raise HeldError("invariant", f"{detail}; {advice}") from error


def _before(made: DecidedSlice, new: Mask, names: Sequence[str]) -> pa.Table:
    """What the first change of each row says that it was; nulls where it does not say."""
    rows = made.changes.filter(
        pc.and_(
            made.changes["before"].is_valid(),
            pc.is_in(plain(made.changes["op"]), value_set=pa.array([Op.UPDATE, Op.DELETE])),
        )
    )
    keys = plain(made.folded["key"]).filter(pa.array(new)).combine_chunks()
    at = pc.index_in(plain(rows["key"]), value_set=keys).combine_chunks()
    rows, at = rows.filter(at.is_valid()), at.drop_null().to_numpy().astype(np.int64)
    newest_first = np.lexsort(rank(rows)[::-1])[::-1]
    place = np.full(len(keys), -1, np.int64)
    place[at[newest_first]] = newest_first  # the oldest is written last, and stays
    texts = plain(rows["before"]).combine_chunks().take(pa.array(place, mask=place < 0))
    return typed(texts, made.columns).rows.select(names)
