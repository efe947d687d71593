"""Compares row counts of id ranges at source and mirror, and confirms the ids that differ.

The source is read first. The comparison waits until the mirror holds everything below the first
heartbeat after that reading. Then each row of the reading is in the mirror or was changed
since, so a delay is never reported as a loss.

Different counts are not yet a finding, because rows may have changed after the source was read.
They only yield suspects, which are read at the source again. Once the mirror has passed that
reading, two things explain a difference. Either a change of the key landed after the reading,
or the source now answers differently. A suspect without explanation is missing, extra or
doubled.

The mirror holds numbers, but a key in the change log may use the encoding of its collector. An
example is the base64 of a BIGINT UNSIGNED. A search for digits would miss such a key and report
a changing row as lost.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

import pyarrow as pa

from checks.mirror_state import MIRROR, MirrorState, follow_mirror
from checks.model import (
    MOST_NAMED,
    NotYet,
    Outcome,
    RowColumns,
    Ruling,
    Undecided,
    Verified,
)
from checks.named_rows import describe_count
from checks.ranges import (
    FLOOR,
    UNSIGNED_CEILING,
    Choice,
    Mismatch,
    block_width,
    choose_blocks,
    differing_ids,
    divide_range,
    find_mismatches,
    id_runs,
    narrow_mismatches,
)
from checks.world import LogKey, MirrorSide, Range, TableQueries, World
from pipeline.errors import ProofError, TooManyRowsError
from pipeline.formats.json_text import canonical_key, parse_key
from pipeline.model import Fence, Shard, Table
from pipeline.schema.model import TableSchema


def keys_in_log(table: Table, world: World, shard: Shard, id_: int) -> tuple[str, ...]:
    """Return every spelling of the row's key in the change log; only digits without a schema.

    The key of the table must be its ``id_column``.
    """
    schema = world.schema(shard)
    column = schema.column(str(table.id_column)) if schema else None
    texts = (str(id_),) if column is None else column.dialect.spellings(column, id_)
    unique = table.unique_across_shards
    return tuple(canonical_key([text], shard.source, shard.name, unique=unique) for text in texts)


def keys_in_mirror(table: Table, world: World, keys: Sequence[LogKey]) -> list[LogKey]:
    """Return *keys* with their integers as digits; a key without integers is unchanged."""
    schemas = {shard: world.schema(shard) for shard in {key.shard for key in keys}}
    return [replace(key, key=_in_digits(table, key, schemas[key.shard])) for key in keys]


def _in_digits(table: Table, key: LogKey, schema: TableSchema | None) -> str:
    parts = parse_key(key.key)
    before, texts = parts[: len(parts) - len(table.key)], parts[len(parts) - len(table.key) :]
    if schema is None or len(texts) != len(table.key):
        return key.key
    digits = [
        text if table.restates(name) else _digits(schema, name, text)
        for name, text in zip(table.key, texts, strict=True)
    ]
    return canonical_key([*before, *digits], "", "", unique=True)


def _digits(schema: TableSchema, name: str, text: str | None) -> str | None:
    column = schema.column(name)
    if column is None or not column.dialect.whole(column):
        return text
    value = column.dialect.values(column, pa.array([text], pa.string()))[0].as_py()
    return text if value is None else str(int(value))


A = TypeVar("A")
Fences = tuple[Fence, ...]
Suspect = tuple[Shard, int]


class SuspectState(StrEnum):
    """Result for a suspect; the last four are findings."""

    CLEARED = "cleared"
    MOVING = "moving"
    MISSING = "missing"
    EXTRA = "extra"
    DOUBLED = "doubled"
    DIFFERENT = "different"


WRONG = (
    SuspectState.MISSING,
    SuspectState.EXTRA,
    SuspectState.DOUBLED,
    SuspectState.DIFFERENT,
)


def find_wrong(
    became: Iterable[tuple[Suspect, SuspectState]],
) -> tuple[tuple[Suspect, SuspectState], ...]:
    """Return the suspects of *became* whose state is a finding."""
    return tuple((suspect, state) for suspect, state in became if state in WRONG)


@dataclass(frozen=True, slots=True)
class SuspectReading:
    """One reading of the suspects at the source: ``before`` has the number of rows of each id.

    ``landed`` is the newest batch known before the reading, ``ended`` the instant it ended.
    """

    suspects: tuple[Suspect, ...]
    before: tuple[int, ...]
    landed: int
    ended: datetime
    tries: int

    def dumps(self) -> dict[str, Any]:
        """Return JSON values for the memory of a check."""
        return {
            "suspects": dump_suspects(self.suspects),
            "before": list(self.before),
            "landed": self.landed,
            "ended": self.ended.isoformat(),
            "tries": self.tries,
        }

    @classmethod
    def loads(cls, raw: Mapping[str, Any], table: Table) -> "SuspectReading":
        """Read back what :meth:`dumps` wrote; shards that no longer exist are left out."""
        before = dict(zip(map(tuple, raw["suspects"]), map(int, raw["before"]), strict=True))
        kept = load_suspects(raw["suspects"], table)
        counts = tuple(before[shard_name(shard), id_] for shard, id_ in kept)
        ended = load_instant(raw["ended"])
        return cls(kept, counts, int(raw["landed"]), ended, int(raw["tries"]))


def dump_suspects(suspects: Iterable[Suspect]) -> list[list[str | int]]:
    """Return *suspects* as JSON values."""
    return [[shard_name(shard), id_] for shard, id_ in suspects]


def load_suspects(raw: Iterable[Sequence[Any]], table: Table) -> tuple[Suspect, ...]:
    """Read back what :func:`dump_suspects` wrote; shards that no longer exist are left out."""
    shards = {shard_name(shard): shard for shard in table.shards}
    return tuple((shards[own], id_) for own, id_ in raw if own in shards)


def shard_name(shard: Shard) -> str:
    """Return the shard as messages and memories spell it: ``source/database.table``."""
    return str(shard)


def read_suspects(
    table: Table, world: World, suspects: Iterable[Suspect], tries: int = 0
) -> SuspectReading:
    """Read the suspects at their source."""
    ordered = tuple(sorted(set(suspects)))
    landed = world.landed_batch()
    found = _at_source(table, world, ordered)
    before = tuple(found[suspect] for suspect in ordered)
    return SuspectReading(ordered, before, landed, world.clock(), tries)


def judge_suspects(table: Table, world: World, seen: SuspectReading) -> tuple[SuspectState, ...]:
    """Judge each suspect, in the order of *seen*; the mirror must be newer than *seen*."""
    before = dict(zip(seen.suspects, seen.before, strict=True))
    there = _count_ids(table, seen.suspects, lambda _: world.mirror(table))
    differ = [suspect for suspect in seen.suspects if before[suspect] != there[suspect]]
    if not differ:
        return (SuspectState.CLEARED,) * len(seen.suspects)
    touched = touched_suspects(table, world, differ, seen.landed)
    after = _at_source(table, world, differ)
    became = {
        one: judge_suspect(before[one], there[one], after[one], touched=one in touched)
        for one in differ
    }
    return tuple(became.get(suspect, SuspectState.CLEARED) for suspect in seen.suspects)


def judge_suspect(before: int, there: int, after: int, *, touched: bool) -> SuspectState:
    """Judge one id from its numbers of rows.

    *before*: at the source. *there*: in a mirror that has passed that reading. *after*: at the
    source again. *touched*: a change of the id has landed since the first reading.
    """
    if there == before:
        return SuspectState.CLEARED
    if touched or after != before:
        return SuspectState.MOVING
    if there < before:
        return SuspectState.MISSING
    return SuspectState.DOUBLED if before else SuspectState.EXTRA


def touched_suspects(
    table: Table, world: World, suspects: Sequence[Suspect], after: int
) -> frozenset[Suspect]:
    """Return the suspects with a change in a batch above *after*, under any spelling of the key."""
    asked = [(one, key) for one in suspects for key in keys_in_log(table, world, *one)]
    found = world.log().touched(table, [(shard, key) for (shard, _), key in asked], after)
    return frozenset(one for (one, _), yes in zip(asked, found, strict=True) if yes)


def _at_source(table: Table, world: World, suspects: Sequence[Suspect]) -> dict[Suspect, int]:
    return _count_ids(table, suspects, lambda shard: world.source(shard.source))


def _count_ids(
    table: Table, suspects: Sequence[Suspect], side: Callable[[Shard], TableQueries | MirrorSide]
) -> dict[Suspect, int]:
    """Count the rows of each id on one side; one snapshot per shard."""
    column = str(table.id_column)  # every probe that asks for ids requires one
    return ask_suspects(suspects, lambda shard, spans: side(shard).count_ids(shard, column, spans))


def ask_suspects(
    suspects: Iterable[Suspect], ask: Callable[[Shard, list[Range]], Sequence[A]]
) -> dict[Suspect, A]:
    """Return the answer for each suspect; *ask* is called once per shard, with one-id ranges."""
    answers: dict[Suspect, A] = {}
    for shard, ids in _by_shard(suspects).items():
        found = ask(shard, [(id_, id_ + 1) for id_ in ids])
        answers |= {(shard, id_): one for id_, one in zip(ids, found, strict=True)}
    return answers


def _by_shard(suspects: Iterable[Suspect]) -> dict[Shard, list[int]]:
    grouped: dict[Shard, list[int]] = {}
    for shard, id_ in suspects:
        grouped.setdefault(shard, []).append(id_)
    return grouped


MOST_OPEN = 1000  # differing ranges remembered per shard; above that, neighbours are joined
AGAIN = 64  # open ranges of a shard counted in one cycle
BREADTH = 16  # ranges halved at once: about 500 statements per shard, however much is lost
NARROWER = 16  # a rejected or failed count is retried with blocks narrower by this factor


@dataclass(frozen=True, slots=True)
class Pace:
    """How much is counted in one cycle; see the probe's settings of the same names.

    ``failed`` counts the earlier attempts, which may have failed because their blocks were too
    wide.
    """

    block_rows: int
    newest: int
    rotating: int
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Ids to read again; ``whole`` is False if ranges differ in more rows than ``ids`` names."""

    ids: frozenset[Suspect]
    whole: bool


@dataclass(frozen=True, slots=True)
class CountedRanges:
    """Rows per range at the source, by shard name; one snapshot per shard."""

    ended: datetime
    ranges: Mapping[str, tuple[Range, ...]]
    counts: Mapping[str, tuple[int, ...]]
    cursors: Mapping[str, int]

    def dumps(self) -> dict[str, Any]:
        """Return JSON values for the memory of a check."""
        return {
            "ended": self.ended.isoformat(),
            "ranges": dump_ranges(self.ranges),
            "counts": {shard: list(own) for shard, own in self.counts.items()},
            "cursors": dict(self.cursors),
        }

    @classmethod
    def loads(cls, raw: Mapping[str, Any]) -> "CountedRanges":
        """Read back what :meth:`dumps` wrote."""
        return cls(
            datetime.fromisoformat(raw["ended"]),
            load_ranges(raw["ranges"]),
            {shard: tuple(own) for shard, own in raw["counts"].items()},
            raw["cursors"],
        )


MISREAD = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors raised by reading a memory with an unexpected structure."""
BEGUN_AGAIN: Mapping[str, Any] = {}


def load_memory(
    table: Table,
    world: World,
    check: str,
    read: Callable[[], A],
    instead: Mapping[str, Any] = BEGUN_AGAIN,
) -> A:
    """Return the result of *read*, which parses the memory of *check*.

    Only for a check that keeps no finding between two rounds.

    Raises:
        ProofError: the memory has an unexpected structure.  *instead* replaces it, so that the
            next round starts again.
    """
    try:
        return read()
    except MISREAD as error:
        world.remember(table, check, instead)
        what = f"the stored memory of check {check} for {table.name} has another shape"
        raise ProofError(f"{what}, so the check begins again; wait for its next rounds") from error


def read_other(
    table: Table, world: World, check: str, read: Callable[[Mapping[str, Any]], A]
) -> A | None:
    """Return the result of *read* for the memory of another *check*.

    None if that check does not run on *table*, or if its memory is unreadable, which that check
    itself reports.
    """
    if not world.runs(table, check):
        return None
    try:
        return read(world.recall(table, check) or {})
    except (ProofError, *MISREAD):
        return None


def load_instant(raw: str) -> datetime:
    """Parse an instant in ISO format.

    Raises:
        ValueError: it is malformed or has no UTC offset.
    """
    at = datetime.fromisoformat(raw)
    if at.tzinfo is None:
        raise ValueError("the instant has no offset")
    return at


PROOF = "proof"
"""Key of the `RowProof` in the memory of a check."""
CLAIMS = (PROOF, "spans", "looked", "through", "begun", "held")
"""Keys in the memories of checks whose instants say when rows were last seen equal."""


@dataclass(frozen=True, slots=True)
class RowProof:
    """Proof by a check that compares all rows: both sides of a table have the same rows.

    Each row was compared at ``oldest`` or later. Each row changed before ``through`` was compared
    after its change.
    ``looked`` is the end of the last look at both sides. It read the change log up to ``batch``,
    and the mirror, then in the state ``mirror``, has passed it.
    The proof is valid from ``ruled``, when the check ruled, ``until`` the check must have a newer
    one.
    By shard name: ``schemas`` has the order from which the compared columns are valid, ``bases``
    the base of the mirror, and ``ranges`` the id ranges that were compared after ``began``.
    """

    ruled: datetime
    until: datetime
    oldest: datetime
    through: datetime
    began: datetime
    looked: datetime
    batch: int
    schemas: Mapping[str, tuple[int, ...]]
    bases: Mapping[str, tuple[int, ...]]
    ranges: Mapping[str, tuple[Range, ...]]
    mirror: MirrorState

    def dumps(self) -> dict[str, Any]:
        """Return JSON values for the memory of a check."""
        times = (self.ruled, self.until, self.oldest, self.through, self.began, self.looked)
        shards = {"schemas": dump_parts(self.schemas), "bases": dump_parts(self.bases)}
        times_and_mirror = {
            "times": [at.isoformat() for at in times],
            MIRROR: self.mirror.dumps(),
        }
        shards["ranges"] = dump_ranges(self.ranges)
        return {**times_and_mirror, "batch": self.batch, **shards}

    @classmethod
    def loads(cls, raw: Mapping[str, Any]) -> "RowProof":
        """Read back what :meth:`dumps` wrote.

        Raises:
            ValueError: an earlier version of Sluice wrote it, without its mirror.
        """
        mirror = MirrorState.loads(raw.get(MIRROR))
        if mirror is None:
            raise ValueError("the proof names no mirror")
        schemas, bases = (
            {own: tuple(parts) for own, parts in raw[name].items()} for name in ("schemas", "bases")
        )
        ruled, until, oldest, through, began, looked = map(load_instant, raw["times"])
        batch, ranges = int(raw["batch"]), load_ranges(raw["ranges"])
        times = (ruled, until, oldest, through, began, looked)
        return cls(*times, batch, schemas, bases, ranges, mirror)

    def fences(self, table: Table, world: World) -> Fences | None:
        """Return the fences up to which the proof holds for *table* now; None if it does not hold.

        It no longer holds if shards, columns or bases have changed, if the mirror was set back,
        recreated or changed by another writer, or if a shard was emptied or loaded by changes that
        name no rows.
        """
        names = {shard_name(shard): shard for shard in table.shards}
        mirror, found = world.mirror(table), fences_after(table, world, self.looked)
        if self.schemas.keys() != names.keys():
            return None
        if found is None or mirror.batch < self.batch or not world.reached(table, found):
            return None
        if self.schemas != schema_orders(table, world) or self.bases != base_orders(table, world):
            return None
        if follow_mirror(table, world, self.mirror)[1]:
            return None
        emptied = world.log().emptied_shards(table, self.batch, mirror.batch)
        return None if emptied & {*table.shards} else found

    def __str__(self) -> str:
        """Render as a part of a sentence."""
        oldest, through = (f"{at:%Y-%m-%d %H:%M:%S}" for at in (self.oldest, self.through))
        return (
            f"each row was compared since {oldest}, and each one changed until {through} UTC"
            " after that"
        )


def find_proof(table: Table, world: World, check: str) -> RowProof | None:
    """Return the proof of *table* that *check* stored when it last ruled.

    None if it stored none, because that was no PASS, if the proof has expired, or if the check no
    longer runs.
    """

    def read(memory: Mapping[str, Any]) -> RowProof | None:
        return RowProof.loads(memory[PROOF]) if memory.get(PROOF) else None

    proof = read_other(table, world, check, read)
    return proof if proof and world.now <= proof.until else None


def dump_ranges(ranges: Mapping[str, Sequence[Range]]) -> dict[str, Any]:
    """Return *ranges*, by shard name, as JSON values."""
    return {own: [[*one] for one in many] for own, many in ranges.items()}


def load_ranges(raw: Mapping[str, Sequence[Sequence[int]]]) -> dict[str, tuple[Range, ...]]:
    """Read back what :func:`dump_ranges` wrote."""
    return {own: tuple((int(low), int(high)) for low, high in many) for own, many in raw.items()}


HANDED = "handed"
"""Key of the `HandedRanges` in the memory of a check."""


@dataclass(frozen=True, slots=True)
class HandedRanges:
    """Ranges, by shard name, that a check has left since ``at`` to another one that compares rows.

    Their counts differ, and too many of their rows change to read each one by its id.
    """

    at: datetime
    ranges: Mapping[str, tuple[Range, ...]]

    def dumps(self) -> dict[str, Any]:
        """Return JSON values for the memory of a check."""
        return {"at": self.at.isoformat(), "ranges": dump_ranges(self.ranges)}

    @classmethod
    def loads(cls, raw: Mapping[str, Any]) -> "HandedRanges":
        """Read back what :meth:`dumps` wrote."""
        return cls(load_instant(raw["at"]), load_ranges(raw["ranges"]))

    def left_by(self, proof: RowProof) -> "HandedRanges":
        """Return the ranges that *proof* has not compared since; all if its look began before."""
        if proof.began <= self.at:
            return self
        left = {
            own: tuple(one for one in many if not _holds(proof.ranges.get(own, ()), one))
            for own, many in self.ranges.items()
        }
        return replace(self, ranges={own: many for own, many in left.items() if many})


def find_handed(table: Table, world: World, check: str) -> Mapping[str, tuple[Range, ...]]:
    """Return the ranges, by shard name, that *check* has left to another check."""

    def read(memory: Mapping[str, Any]) -> Mapping[str, tuple[Range, ...]]:
        return HandedRanges.loads(memory[HANDED]).ranges if memory.get(HANDED) else {}

    return read_other(table, world, check, read) or {}


def schema_orders(table: Table, world: World) -> dict[str, tuple[int, ...]]:
    """Return, by shard name, the order from which the shard's newest schema is valid."""
    schemas = {shard: world.schema(shard) for shard in table.shards}
    return {shard_name(own): tuple(one.valid_from.parts) for own, one in schemas.items() if one}


def base_orders(table: Table, world: World) -> dict[str, tuple[int, ...]]:
    """Return, by shard name, the order and the first batch of the base in the mirror."""
    return {own: (*one.order.parts, one.since) for own, one in world.bases(table).items()}


def dump_parts(orders: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    """Return *orders* as JSON values."""
    return {own: [*parts] for own, parts in orders.items()}


@dataclass(frozen=True, slots=True)
class OpenRange:
    """A range that differed by ``rows`` when it was last counted, and was not seen equal since."""

    span: Range
    rows: int


OpenRanges = Mapping[str, tuple[OpenRange, ...]]
"""Open ranges by shard name, in the order in which they are counted next."""


def dump_open_ranges(ranges: OpenRanges) -> dict[str, list[list[int]]]:
    """Return open ranges as JSON values."""
    return {own: [[*one.span, one.rows] for one in many] for own, many in ranges.items() if many}


def load_open_ranges(raw: Mapping[str, Any], table: Table) -> dict[str, tuple[OpenRange, ...]]:
    """Read back what :func:`dump_open_ranges` wrote; shards that no longer exist are left out."""
    shards = {shard_name(shard) for shard in table.shards}
    return {
        own: tuple(OpenRange((low, high), rows) for low, high, rows in many)
        for own, many in raw.items()
        if own in shards
    }


def rows_in(ranges: OpenRanges) -> int:
    """Return the number of rows by which *ranges* differed."""
    return sum(one.rows for many in ranges.values() for one in many)


def uncounted_ranges(
    ranges: OpenRanges, counted: CountedRanges
) -> dict[str, tuple[OpenRange, ...]]:
    """Return those of *ranges* that this cycle did not count in full.

    A range that was due and too large to be counted is returned as its two halves.
    """
    left: dict[str, tuple[OpenRange, ...]] = {}
    for own, many in ranges.items():
        spans = counted.ranges.get(own, ())
        due = {one.span for one in many[:AGAIN]} if own in counted.ranges else set()
        kept: list[OpenRange] = []
        for one in many:
            if _holds(spans, one.span):
                continue
            kept += _halve_range(one) if one.span in due and len(many) < MOST_OPEN else [one]
        left[own] = tuple(kept)
    return left


def differing_ranges(
    wide: Mapping[Shard, Sequence[Mismatch]], left: OpenRanges
) -> dict[str, tuple[OpenRange, ...]]:
    """Return the open ranges after a cycle: first those not counted, then those that differ."""
    found = {shard_name(shard): many for shard, many in wide.items()}
    return {
        own: _coarser(
            (
                *left.get(own, ()),
                *(OpenRange(e.span, max(abs(e.source - e.mirror), 1)) for e in found.get(own, ())),
            )
        )
        for own in {*left, *found}
    }


def _holds(spans: Sequence[Range], span: Range) -> bool:
    low = span[0]
    for first, until in sorted(spans):
        if first <= low < until:
            low = until
    return low >= span[1]


def _halve_range(one: OpenRange) -> list[OpenRange]:
    if one.span[1] - one.span[0] <= 1:
        return [one]
    return [OpenRange(half, max(one.rows // 2, 1)) for half in divide_range(one.span, 2)]


def _coarser(ranges: tuple[OpenRange, ...]) -> tuple[OpenRange, ...]:
    """Return *ranges* with neighbours joined until there are at most `MOST_OPEN`; none is lost."""
    while len(ranges) > MOST_OPEN:
        ordered = sorted(ranges, key=lambda one: one.span)
        pairs = [ordered[at : at + 2] for at in range(0, len(ordered), 2)]
        ranges = tuple(
            OpenRange(
                (many[0].span[0], max(one.span[1] for one in many)), sum(one.rows for one in many)
            )
            for many in pairs
        )
    return ranges


def count_ranges(
    table: Table,
    world: World,
    pace: Pace,
    *,
    cursors: Mapping[str, int],
    again: Mapping[str, Sequence[Range]],
) -> CountedRanges:
    """Count this cycle's ranges of every shard, and also the ranges *again*, by shard name."""
    rows = world.mirror(table).rows() // len(table.shards)
    ranges: dict[str, tuple[Range, ...]] = {}
    counts: dict[str, tuple[int, ...]] = {}
    moved: dict[str, int] = {}
    for shard in table.shards:
        own = shard_name(shard)
        asked = _Asked(world.source(shard.source), shard, _column(table))
        more = () if pace.failed else again.get(own, ())
        choice, counts[own] = _counted_ranges(
            asked, pace, rows=rows, cursor=cursors.get(own, 0), more=more
        )
        ranges[own], moved[own] = choice.ranges, choice.cursor
    return CountedRanges(world.clock(), ranges, counts, moved)


def compare_ranges(
    table: Table, world: World, counted: CountedRanges
) -> dict[Shard, tuple[Mismatch, ...]]:
    """Return the ranges whose counts differ, by shard; shards that no longer exist are left out."""
    mirror = world.mirror(table)
    wide: dict[Shard, tuple[Mismatch, ...]] = {}
    for shard in table.shards:
        ranges = counted.ranges.get(shard_name(shard), ())
        if not ranges:
            continue
        there = mirror.count_ids(shard, _column(table), ranges)
        found = find_mismatches(ranges, counted.counts[shard_name(shard)], there)
        if found:
            wide[shard] = found
    return wide


def find_suspects(
    table: Table, world: World, wide: Mapping[Shard, Sequence[Mismatch]], *, leaf: int, most: int
) -> Suspicion:
    """Find the ids that differ now, by halving the ranges; both sides are read again."""
    mirror, column = world.mirror(table), _column(table)
    ids: list[Suspect] = []
    whole = True
    for shard, found in wide.items():
        source = world.source(shard.source)

        def both(
            ranges: Sequence[Range], shard: Shard = shard, source: TableQueries = source
        ) -> tuple[Sequence[int], Sequence[int]]:
            here = source.count_ids(shard, column, ranges)
            return here, mirror.count_ids(shard, column, ranges)

        narrow = narrow_mismatches(found, both, leaf=leaf, breadth=BREADTH)
        whole = whole and narrow.whole
        for span in narrow.spans:
            if len(ids) >= most:
                return Suspicion(frozenset(ids[:most]), whole=False)
            limit = max(2 * leaf, most)
            try:
                here = source.ids(shard, column, span, limit)
            except TooManyRowsError:  # limits.rows is below this limit
                whole = False
                continue
            there = mirror.ids(shard, column, span, limit)
            whole = whole and max(len(here), len(there)) < limit
            ids += [(shard, id_) for id_ in differing_ids(here, there, limit)]
    return Suspicion(frozenset(ids[:most]), whole and len(ids) <= most)


@dataclass(frozen=True, slots=True)
class _Asked:
    """One shard's ids at its source."""

    source: TableQueries
    shard: Shard
    column: str

    def counts(self, ranges: Sequence[Range]) -> tuple[int, ...]:
        return self.source.count_ids(self.shard, self.column, ranges)


def _counted_ranges(
    asked: _Asked, pace: Pace, *, rows: int, cursor: int, more: Sequence[Range]
) -> tuple[Choice, tuple[int, ...]]:
    """Count the widest blocks that the pace allows, and *more*.

    If the source rejects that as too many rows, narrower blocks are counted, without *more*. The
    rows of a block can only be estimated. The mirror may lack rows, and ids may be dense in one
    block.
    """
    low = asked.source.min_id(asked.shard, asked.column)
    high = asked.source.max_id(asked.shard, asked.column)
    if low is None or high is None:  # the source is empty, so any row of the mirror is extra
        choice = Choice(tuple(sorted({(FLOOR, UNSIGNED_CEILING), *more})), 0)
        return choice, asked.counts(choice.ranges)
    dense = block_width(0, 0, 1, pace.block_rows)
    size = max(block_width(low, high, rows, pace.block_rows) // NARROWER**pace.failed, dense)
    while True:
        chosen = choose_blocks(
            low, high, size, cursor=cursor, newest=pace.newest, rotating=pace.rotating
        )
        choice = Choice(tuple(sorted({*chosen.ranges, *more})), chosen.cursor)
        try:
            return choice, asked.counts(choice.ranges)
        except TooManyRowsError:
            if size == dense and not more:
                raise
        size, more = max(size // NARROWER, dense), ()


def _column(table: Table) -> str:
    return table.id_column or ""


_CODES = {
    SuspectState.MISSING: "missing_rows",
    SuspectState.EXTRA: "extra_rows",
    SuspectState.DOUBLED: "doubled_rows",
    SuspectState.DIFFERENT: "different_rows",
}
_WORDS = {
    SuspectState.MISSING: "missing",
    SuspectState.EXTRA: "extra",
    SuspectState.DOUBLED: "doubled",
    SuspectState.DIFFERENT: "different",
}
_SIDE = " in the mirror"
MOST_COLUMNS = 20
"""Columns that the reason of a ruling names, and those that it names for some rows."""


@dataclass(frozen=True, slots=True)
class Differences:
    """The findings of one comparison cycle.

    ``looked`` describes what was compared. ``moving`` counts suspects that kept changing.
    ``more`` counts the rows by which ranges differ and that no id names.
    ``ended`` is the end of the cycle. Reads after it, for the next cycle, have no time limit.
    ``names`` has the names of suspects whose ids are digests of keys.
    ``columns`` has, per row, the columns that differ, if values were compared. A row whose columns
    are not known is absent.
    ``behind`` says why less was compared than the settings promise; empty if all was.
    ``verified`` is what was compared so far, if values were compared.
    ``suspicious``: the check must look again at once.
    ``cause`` is the part that causes an UNKNOWN, if other tables share it.
    """

    as_of: tuple[Fence, ...]
    looked: str
    found: tuple[tuple[Suspect, SuspectState], ...] = ()
    moving: int = 0
    more: int = 0
    ended: datetime | None = None
    columns: Mapping[Suspect, tuple[str, ...]] = field(default_factory=dict)
    behind: str = ""
    verified: Verified | None = None
    names: Mapping[Suspect, str] = field(default_factory=dict)
    suspicious: bool = False
    cause: str = ""

    @property
    def value(self) -> float:
        """Number of rows found to be wrong."""
        return float(len(self.found) + self.more)


def rule_differences(reading: Differences) -> Ruling:
    """Return FAIL if a row is confirmed to differ.

    Else UNKNOWN if rows kept changing, differ without being named, or were not compared in time.
    Else PASS.
    """
    if reading.found:
        keys = tuple(_keys(reading))
        states = [state for state in _CODES if any(state is each for _, each in reading.found)]
        described = "; ".join(_describe_suspects(reading, state) for state in states)
        more = f"; about {reading.more} more rows differ" if reading.more else ""
        more += _describe_columns(reading.columns.values())
        unnamed = reading.more + len(keys[MOST_NAMED:])
        code, columns = _CODES[states[0]], tuple(_group_by_columns(reading))
        return Ruling(Outcome.FAIL, f"{described}{more}", code, keys[:MOST_NAMED], unnamed, columns)
    if reading.moving:
        why = f"ids that changed each time they were looked at: {reading.moving}"
        return Ruling(Outcome.UNKNOWN, why, "in_motion")
    if reading.more:
        why = f"about {reading.more} more rows differed than could be asked for; counted again"
        return Ruling(Outcome.UNKNOWN, why, "not_all_asked")
    if reading.behind:
        return Ruling(Outcome.UNKNOWN, reading.behind, "behind")
    return Ruling(Outcome.PASS, reading.looked)


def _describe_columns(columns: Iterable[Sequence[str]]) -> str:
    """Return the end of a sentence: the first columns in which rows differ."""
    names = [*dict.fromkeys(name for own in columns for name in own)]
    others = f" and {len(names) - MOST_COLUMNS} more columns" if names[MOST_COLUMNS:] else ""
    return f"; they differ in {', '.join(names[:MOST_COLUMNS])}{others}" if names else ""


def _group_by_columns(reading: Differences) -> Iterator[RowColumns]:
    grouped = dict[tuple[tuple[str, ...], int], list[Suspect]]()
    for suspect, columns in reading.columns.items():
        if columns:
            shown = columns[:MOST_COLUMNS]
            grouped.setdefault((shown, len(columns) - len(shown)), []).append(suspect)
    for (shown, more), own in grouped.items():
        yield RowColumns(shown, tuple(_spell_rows(own, reading.names)), more)


def names_doubled_rows(ruling: Ruling) -> bool:
    """Whether a FAIL names rows that the mirror has twice, alone or among others.

    The code of a ruling names only the gravest difference; its reason counts each kind.
    """
    doubled = SuspectState.DOUBLED
    return ruling.code == _CODES[doubled] or f"{_WORDS[doubled]}{_SIDE}" in ruling.reason


def _describe_suspects(reading: Differences, state: SuspectState) -> str:
    own = [suspect for suspect, each in reading.found if each is state]
    spelled = list(_spell_rows(own, reading.names))
    shown, rest = ", ".join(spelled[:3]), ", ..." if len(spelled) > 3 else ""
    return f"{describe_count(len(own))} {_WORDS[state]}{_SIDE}: {shown}{rest}"


def _keys(reading: Differences) -> Iterator[str]:
    for state in _CODES:
        own = [suspect for suspect, each in reading.found if each is state]
        yield from _spell_rows(own, reading.names)


def _spell_rows(suspects: Sequence[Suspect], names: Mapping[Suspect, str]) -> Iterator[str]:
    """Yield ids by shard, consecutive ids as ``first-last``: ``shop/shop_00.orders:17-29``.

    Suspects that are in *names* are yielded first, by their names.
    """
    yield from (names[one] for one in sorted(suspects) if one in names)
    suspects = [one for one in suspects if one not in names]
    for shard in sorted({shard for shard, _ in suspects}):
        for first, last in id_runs(sorted(id_ for own, id_ in suspects if own == shard)):
            yield f"{shard_name(shard)}:{first}" + (f"-{last}" if last > first else "")


def fences_after(
    table: Table, world: World, instant: datetime, sources: Collection[str] = ()
) -> Fences | None:
    """Return each source's first fence at or after *instant*; None while one is not written.

    Uses only *sources* if given, else all sources of the table.
    """
    found = [world.fence_after(source, instant) for source in sources or table.sources]
    known = tuple(fence for fence in found if fence is not None)
    return known if len(known) == len(found) else None


def await_fences(
    table: Table,
    world: World,
    instant: datetime,
    patience: timedelta,
    sources: Collection[str] = (),
) -> Fences | NotYet | Undecided:
    """Return the fences after *instant* once the mirror has reached them all.

    Uses only *sources* if given, else all sources of the table.
    Waiting longer than *patience* is UNKNOWN(not_reached), and never a loss.
    """
    fences = fences_after(table, world, instant, sources)
    if fences is not None and world.reached(table, fences):
        return fences
    waited = world.now - instant
    missing = "no heartbeat since" if fences is None else "the mirror has not reached"
    why = f"{missing} {instant:%Y-%m-%d %H:%M:%S %Z}"
    if waited > patience:
        return Undecided("not_reached", f"{why}, waited {waited.total_seconds():.0f} s")
    return NotYet(why)
