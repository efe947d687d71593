"""Holds a slice that breaks an invariant, unless its batches are waived.

A slice is the folded batches that a mirror has not applied. A later change that corrects the rows
makes the whole slice valid again. A waiver names a range of batches that begins at the mirror's
next batch, so it ends when they are applied. It also names the mirror: a rebuilt mirror begins with
the same batch numbers and is not covered.

References to another table are true, false, or null where that is not known yet. The other table's
rows are those of its mirror and its landed changes that are not merged, so the merge order does not
matter. A value is known to be absent only when everything has landed that the source committed
before the referring row. A later parent would be one that the source's own constraint did not see.
A parent that was deleted after the row arrived counts as present. A TRUNCATE or a new base of the
other table counts only when its mirror has it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from hashlib import sha256
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.apply.decide import (
    Floors,
    Found,
    RowVerdict,
    Verdicts,
    is_below,
    removes_row,
    writes_row,
)
from pipeline.apply.fold import ROW_OPS
from pipeline.apply.partial_rows import ReadValues
from pipeline.apply.row_metadata import (
    Adoption,
    Integers,
    Mask,
    RowOrigins,
    flat_column,
    is_above,
    rank_rows,
    row_origins,
)
from pipeline.changelog.scan import Part, scan_files
from pipeline.delta.store import open_store
from pipeline.errors import HeldError
from pipeline.invariants.invariant import Breach, IntendedRows, Invariant, LandedDay, number_values
from pipeline.model import Op, Order, Shard, Table
from pipeline.schema.decode import type_rows
from pipeline.schema.model import Column, arrow_type

FIRST_KEYS = 5
_RANGE = re.compile(r"([0-9]{1,18})-([0-9]{1,18})@([0-9a-f]{8})")


@dataclass(frozen=True, slots=True, eq=False)
class Occurrences:
    """Rows of a mirror with a sought value: ``of`` (the value's index), file, position, owner."""

    of: Integers
    file: npt.NDArray[np.int32]
    position: Integers
    owned: RowOrigins


Search = Callable[[pa.Table], Occurrences]
"""Distinct non-null values, one per row -> all rows of the mirror that hold one of them."""


@dataclass(frozen=True, slots=True)
class Demands:
    """The invariants, by name, of the batches after ``after`` of a mirror with ``there`` rows.

    ``mirror`` is its short id, which distinguishes it from a later mirror in the same folder.
    Batches up to ``let`` are waived. ``floors`` are those the mirror remembers: a TRUNCATE that is
    not above its shard's floor was applied before and removes nothing. ``landed`` returns what was
    applied before on a day.
    """

    invariants: tuple[tuple[str, Invariant], ...]
    mirror: str
    after: int
    there: int
    let: int | None = None
    floors: Floors = field(default_factory=dict)
    landed: Callable[[str, date], LandedDay] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PlannedSlice:
    """The plan of a slice: ``changes`` are all of them, ``folded`` the newest of each key.

    ``rows``, ``found`` and ``verdicts`` are in the order of ``folded``. ``search`` finds values in
    the mirror. Mirror rows below the ``raised`` floors are removed. ``elsewhere`` decides whether
    values of rows, with their owners, exist in another table. ``peek`` reads the mirror.
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
    elsewhere: Callable[[str, pa.Table, RowOrigins], pa.BooleanArray]
    peek: ReadValues | None = None


def short_name(id_: str) -> str:
    """A digest of a mirror's id, as waiver ids contain it."""
    return sha256(id_.encode()).hexdigest()[:8]


def waived_until(table: str, mirror: str, after: int, waived: Iterable[str]) -> int | None:
    """The batch up to which a mirror's next slice is waived; None without a waiver."""
    name = f"invalid:{table}:"
    spans = (_RANGE.fullmatch(one.removeprefix(name)) for one in waived if one.startswith(name))
    own = (span for span in spans if span and span[3] == mirror)
    return max((int(span[2]) for span in own if int(span[1]) == after + 1), default=None)


def require_valid(demands: Demands, made: PlannedSlice) -> None:
    """Check every invariant.

    Raises:
        HeldError: ``invalid``, with all broken invariants and the first keys; ``awaited``, if rows
            that have not landed may fix all of them; ``invariant``, one cannot be checked.
    """
    went = pc.equal(flat_column(made.folded["op"]), str(Op.DELETE)).to_numpy()
    new = writes_row(made.verdicts) & ~went  # archived rows are not checked
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
    last = max(last, demands.after + 1)  # rows that came from another table are older
    if demands.let is not None and last <= demands.let:
        return
    keys = flat_column(made.folded["key"]).filter(pa.array(new))
    span = f"{demands.after + 1}-{last}"
    breaches = "; ".join(_describe_breach(name, breach, keys) for name, breach in broken)
    waiver = f"invalid:{made.table.name}:{span}@{demands.mirror}"
    advice = (
        "the mirror is unchanged; correct the rows at the source, and the table continues "
        f"automatically, or accept batches {span}: waive {waiver}"
    )
    if sure:
        detail = f"batches {span} break an invariant: {breaches}; {advice}"
        raise HeldError("invalid", detail, waiver)
    detail = f"batches {span} wait for rows that an invariant needs: {breaches}; {advice}"
    raise HeldError("awaited", detail, waiver)


def _intended(demands: Demands, made: PlannedSlice, new: Mask) -> IntendedRows:
    return IntendedRows(
        table=made.table.name,
        key=made.table.key,
        rows=made.rows.filter(pa.array(new)),
        batches=flat_column(made.folded["batch"]).to_numpy()[new],
        there=demands.there,
        changed=int((removes_row(made.verdicts) & (made.verdicts != RowVerdict.ARCHIVE)).sum()),
        emptied=_emptied(made.changes, demands.floors),
        standing=partial(_standing, made),
        before=partial(_rows_before, made, new),
        elsewhere=partial(_elsewhere, made, new),
        deleted=partial(_deleted, made),
        landed=demands.landed or _unknown_day,
    )


def _unknown_day(column: str, day: date) -> LandedDay:
    none = pa.schema([(column, pa.timestamp("us")), ("at", pa.timestamp("us", "UTC"))])
    return LandedDay(None, none.empty_table())


def _deleted(made: PlannedSlice, names: Sequence[str]) -> pa.Table:
    """The values of the deleted rows, from their deletes, else from the mirror."""
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
    """Whether a TRUNCATE removes existing rows; a redelivered one does not."""
    truncates = changes.filter(pc.equal(flat_column(changes["op"]), Op.TRUNCATE))
    return any(
        (known := floors.get(Shard(row["source"], row["shard"]))) is None
        or Order(**row["order"]) > known
        for row in truncates.select(["source", "shard", "order"]).to_pylist()  # a few rows
    )


def _last(breach: Breach, made: PlannedSlice, new: Mask) -> int:
    """The newest batch that contributes to the breach; all batches if it names no row."""
    rows = made.changes
    if breach.rows is not None and breach.rows.any():
        rows = made.folded.filter(pa.array(new)).filter(pa.array(breach.rows))
    return int(pc.max(rows["batch"]).as_py())


def _describe_breach(name: str, breach: Breach, keys: pa.ChunkedArray) -> str:
    if breach.rows is None or not breach.rows.any():
        return f"{name}: {breach.what}"
    first = keys.filter(pa.array(breach.rows)).slice(0, FIRST_KEYS).to_pylist()
    number = int(breach.rows.sum())
    rows = "1 row, key" if number == 1 else f"{number} rows, first keys"
    return f"{name}: {breach.what} in {rows} {', '.join(first)}"


def _elsewhere(made: PlannedSlice, new: Mask, name: str, values: pa.Table) -> pa.BooleanArray:
    return made.elsewhere(name, values, row_origins(made.folded.filter(pa.array(new))))


def _standing(made: PlannedSlice, values: pa.Table) -> Mask:
    """Return which *values* are in a row of the mirror that is neither deleted nor replaced."""
    if made.search is None:
        detail = f"{made.table.name} is a mirror that cannot be searched for values, as Spark's are"
        advice = "take that invariant out of `invariants` and restart the service"
        raise HeldError("invariant", f"{detail}; {advice}, or rebuild the mirror")
    there, own = search_values(made.search, values), made.found
    gone = removes_row(made.verdicts)
    places = set(zip(own.file[gone].tolist(), own.position[gone].tolist(), strict=True))
    at = zip(there.file.tolist(), there.position.tolist(), strict=True)
    stays = ~np.fromiter((place in places for place in at), np.bool_, len(there.of))
    stays &= ~is_below(there.owned, made.raised) & ~there.owned.archived
    found = np.zeros(len(values), np.bool_)
    found[there.of[stays]] = True
    return found


def search_values(search: Search, values: pa.Table) -> Occurrences:
    """Call *search*; values it cannot search raise a hold that names the reason."""
    try:
        return search(values)
    except HeldError as error:
        if error.reason != "key_kind":
            raise
        kinds = ", ".join(f"{field.name} ({field.type})" for field in values.schema)
        detail = f"a mirror cannot be searched for values of {kinds}, which are not matched exactly"
        advice = "take that invariant out of `invariants` and restart the service"
        raise HeldError("invariant", f"{detail}; {advice}") from error


def _rows_before(made: PlannedSlice, new: Mask, names: Sequence[str]) -> pa.Table:
    """The values of each row before its first change; nulls where the change does not hold them."""
    rows = made.changes.filter(
        pc.and_(
            made.changes["before"].is_valid(),
            pc.is_in(flat_column(made.changes["op"]), value_set=pa.array([Op.UPDATE, Op.DELETE])),
        )
    )
    keys = flat_column(made.folded["key"]).filter(pa.array(new)).combine_chunks()
    at = pc.index_in(flat_column(rows["key"]), value_set=keys).combine_chunks()
    rows, at = rows.filter(at.is_valid()), at.drop_null().to_numpy().astype(np.int64)
    newest_first = np.lexsort(rank_rows(rows)[::-1])[::-1]
    place = np.full(len(keys), -1, np.int64)
    place[at[newest_first]] = newest_first  # the oldest is written last, and wins
    texts = flat_column(rows["before"]).combine_chunks().take(pa.array(place, mask=place < 0))
    return type_rows(texts, made.columns).rows.select(names)


S = TypeVar("S")  # a mirror at one version, in its format's type

Searches = Callable[[Any, Adoption], Search]
"""(mirror at one version, adoption of its rows) -> search for values in it."""

_READ = ("table", "batch", "source", "before", "after", "order", "origin")


@dataclass(frozen=True, slots=True)
class ReferredTable(Generic[S]):
    """Another table that an invariant refers to; its mirror has applied batch ``applied``.

    ``files`` are all that remain of the change log at ``changes``. ``reached``: source -> (epoch,
    log, pos) below which everything has landed. ``whole`` is false where rows of the table may be
    missing; then no value is known to be absent. ``snapshot`` is None without a mirror.
    """

    table: Table
    columns: tuple[Column, ...]
    snapshot: S | None
    applied: int
    changes: str
    files: tuple[Part, ...]
    reached: Mapping[str, tuple[int, int, int]]
    whole: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Movements:
    """Changes of the sought values in the change log; ``came`` is false where the value went.

    ``rank`` has one line each for epoch, log, pos, row and origin.
    """

    values: pa.Table
    came: Mask
    source: pa.Array
    rank: Integers


def references_exist(
    others: Sequence[ReferredTable[Any]],
    searches: Searches | None,
    name: str,
    values: pa.Table,
    owners: RowOrigins,
) -> pa.BooleanArray:
    """Whether table *name* has each row of *values*, owned by *owners*; null where unknown.

    Raises:
        HeldError: ``invariant``, it cannot be checked; or a file cannot be read.
    """
    other = next((one for one in others if one.table.name == name), None)
    if searches is None or other is None:
        detail = f"a mirror that Spark writes is not compared with another table ({name})"
        advice = "take that invariant out of `invariants` and restart the service"
        raise HeldError("invariant", f"{detail}; {advice}")
    if other.snapshot is None or not other.columns:
        nobody_knows = pa.nulls(len(values), pa.bool_())
        return pc.if_else(_all_there(values), nobody_knows, True)
    there = _all_there(values)
    wanted = _fitting(other, values.filter(there))
    rows = np.flatnonzero(there.to_numpy(zero_copy_only=False))
    found = _found(other, searches, wanted, owners.take(rows))
    return pc.replace_with_mask(pa.array([True] * len(values), pa.bool_()), there, found)


def _all_there(values: pa.Table) -> pa.BooleanArray:
    found = pa.array([True] * len(values), pa.bool_())
    for column in values.columns:
        found = pc.and_(found, column.is_valid().combine_chunks())
    return found


def _fitting(other: ReferredTable[Any], values: pa.Table) -> pa.Table:
    """Cast the values to the types of the columns that they refer to."""
    made = {}
    for name in values.column_names:
        column = next((one for one in other.columns if one.name == name), None)
        if column is None:
            known = ", ".join(one.name for one in other.columns)
            detail = (
                f"an invariant names {name!r}, and the columns of {other.table.name} are {known}"
            )
            raise HeldError("invariant", f"{detail}; {_CORRECT}")
        kind, own = arrow_type(column), values[name].type
        alike = own.equals(kind) or (pa.types.is_integer(own) and pa.types.is_integer(kind))
        try:
            made[name] = values[name].cast(kind if alike else own)
        except pa.ArrowInvalid:
            alike = False
        if not alike:
            detail = f"values of type {own} are not all of {kind}, as {other.table.name}.{name} is"
            raise HeldError("invariant", f"{detail}; {_CORRECT}")
    return pa.table(made)


_CORRECT = "correct it under `invariants` and restart the service"


def _found(
    other: ReferredTable[Any], searches: Searches, wanted: pa.Table, owners: RowOrigins
) -> pa.BooleanArray:
    if not len(wanted):
        return pa.array([], pa.bool_())
    fresh = [part for part in other.files if part.high > other.applied]
    movements = _find_movements(other, fresh, wanted, ROW_OPS, after=other.applied)
    came, went = _newest(wanted, movements)
    held = _in_mirror(other, searches, wanted)
    absent = ~came & ~held
    unknown = held & went & ~came  # the merge of the other table decides
    if absent.any():
        rows = np.flatnonzero(absent)
        some, whose = wanted.take(pa.array(rows)), owners.take(rows)
        absent[rows[_was_there(other, some, whose)]] = False
        unknown |= absent & ~_is_known(other, owners)
    return pa.array(~absent, pa.bool_(), mask=unknown)


def _is_known(other: ReferredTable[Any], owners: RowOrigins) -> Mask:
    """Which rows are below the landed position, so that all their parents have landed."""
    sources = {shard.source for shard in other.table.shards}
    if not other.whole or len(sources) != 1:
        return np.zeros(len(owners.source), np.bool_)
    (source,) = sources
    place = other.reached.get(source, (-1, -1, -1))
    own: Mask = pc.fill_null(pc.equal(owners.source, source), False).to_numpy(zero_copy_only=False)
    return own & is_above(np.array(place, np.int64)[:, None], owners.rank[:3])


def _in_mirror(other: ReferredTable[Any], searches: Searches, wanted: pa.Table) -> Mask:
    numbers = number_values(wanted)
    _, first = np.unique(numbers, return_index=True)
    search = searches(other.snapshot, Adoption.of(other.table))
    there = np.zeros(len(first), np.bool_)
    there[search_values(search, wanted.take(pa.array(first))).of] = True
    found: Mask = there[numbers]
    return found


def _was_there(other: ReferredTable[Any], wanted: pa.Table, owners: RowOrigins) -> Mask:
    """Which values were removed after their row was committed, by the log of the same source."""
    movements = _find_movements(other, other.files, wanted, (Op.UPDATE, Op.DELETE), after=-1)
    numbers = number_values(pa.concat_tables([wanted, movements.values]))
    known: dict[tuple[str, int], list[int]] = {}
    for at in np.flatnonzero(~movements.came).tolist():
        value = (movements.source[at].as_py(), int(numbers[len(wanted) + at]))
        known.setdefault(value, []).append(at)
    found = np.zeros(len(wanted), np.bool_)
    for row in range(len(wanted)):
        went = known.get((owners.source[row].as_py(), int(numbers[row])), [])
        found[row] = is_above(movements.rank[:, went], owners.rank[:, [row]]).any()
    return found


def _newest(wanted: pa.Table, movements: _Movements) -> tuple[Mask, Mask]:
    """For which values the newest change in a source adds them, and for which it removes them."""
    numbers = number_values(pa.concat_tables([wanted, movements.values]))
    own, theirs = numbers[: len(wanted)], numbers[len(wanted) :]
    sources = movements.source.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    placed = np.lexsort((movements.came, *movements.rank[::-1], sources, theirs))
    last = np.ones(len(placed), np.bool_)
    last[:-1] = np.diff(theirs[placed]).astype(np.bool_) | np.diff(sources[placed]).astype(np.bool_)
    newest = placed[last]
    states = np.zeros((2, int(numbers.max(initial=-1)) + 1), np.bool_)
    states[movements.came[newest].astype(np.int64), theirs[newest]] = True
    return states[1][own], states[0][own]


def _find_movements(
    other: ReferredTable[Any],
    files: Sequence[Part],
    wanted: pa.Table,
    ops: Sequence[Op],
    *,
    after: int,
) -> _Movements:
    """Changes after batch *after* that added or removed a *wanted* value, or may have."""
    parts = [one for part in files for one in _of_file(other, part, wanted, ops, after)]
    ranks = np.concatenate([np.zeros((5, 0), np.int64), *(part.rank for part in parts)], axis=1)
    return _Movements(
        pa.concat_tables([wanted.slice(0, 0), *(part.values for part in parts)]),
        np.concatenate([np.zeros(0, np.bool_), *(part.came for part in parts)]),
        pa.concat_arrays([pa.array([], pa.string()), *(part.source for part in parts)]),
        ranks,
    )


def _of_file(
    other: ReferredTable[Any], part: Part, wanted: pa.Table, ops: Sequence[Op], after: int
) -> Iterator[_Movements]:
    names, table = wanted.column_names, other.table.name
    among = ("table", (table,))
    rows = scan_files(open_store(other.changes), (part,), among=among, ops=ops, columns=_READ)
    rows = rows.filter(pc.greater(rows["batch"], after))
    columns = [one for name in names for one in other.columns if one.name == name]
    for text, came in (("before", False), ("after", True)):
        values = type_rows(flat_column(rows[text]), columns).rows
        near = _all_there(values)
        for name in names:
            near = pc.and_(near, pc.is_in(values[name], value_set=wanted[name]).combine_chunks())
        own = rows.filter(near)
        source = flat_column(own["source"]).combine_chunks()
        yield _Movements(values.filter(near), np.full(len(own), came), source, rank_rows(own))
