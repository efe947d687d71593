"""Count id ranges at the source now, compare them with a mirror that has come past that.

Counts that differ are no finding yet: rows may have changed since the source was read.  They only
tell where to look for suspects.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from checks.ranges import (
    CEILING,
    FLOOR,
    Choice,
    Mismatch,
    choose,
    differing,
    mismatches,
    narrowed,
    width,
)
from checks.suspects import Suspect, name
from checks.world import Range, SourceSide, World
from pipeline.errors import TooManyRowsError
from pipeline.model import Shard, Table

MOST_OPEN = 1000  # ranges of a shard remembered as differing; neighbours become one above that
AGAIN = 64  # of them counted in one cycle
BREADTH = 16  # ranges halved at once: some 500 statements a shard, however much is lost
NARROWER = 16  # a count that was refused, or failed, is tried with blocks this much narrower


@dataclass(frozen=True, slots=True)
class Pace:
    """How much is counted in one cycle; see the probe's settings of the same names.

    ``failed`` counts the attempts before, which may have failed for the width of their blocks.
    """

    block_rows: int
    newest: int
    rotating: int
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Ids to be asked again; ``whole`` unless ranges differ in more rows than were named."""

    ids: frozenset[Suspect]
    whole: bool


@dataclass(frozen=True, slots=True)
class CountedRanges:
    """Rows per range at the source, by shard name; all of one shard in one snapshot."""

    ended: datetime
    ranges: Mapping[str, tuple[Range, ...]]
    counts: Mapping[str, tuple[int, ...]]
    cursors: Mapping[str, int]

    def dumps(self) -> dict[str, Any]:
        """As JSON values, for a check's memory."""
        return {
            "ended": self.ended.isoformat(),
            "ranges": {shard: [list(span) for span in own] for shard, own in self.ranges.items()},
            "counts": {shard: list(own) for shard, own in self.counts.items()},
            "cursors": dict(self.cursors),
        }

    @classmethod
    def loads(cls, raw: Mapping[str, Any]) -> "CountedRanges":
        """Read back what :meth:`dumps` wrote."""
        return cls(
            datetime.fromisoformat(raw["ended"]),
            {shard: tuple((a, b) for a, b in own) for shard, own in raw["ranges"].items()},
            {shard: tuple(own) for shard, own in raw["counts"].items()},
            raw["cursors"],
        )


@dataclass(frozen=True, slots=True)
class OpenRange:
    """A range that differed by *rows* when it was last counted, and was not seen equal since."""

    span: Range
    rows: int


OpenRanges = Mapping[str, tuple[OpenRange, ...]]
"""By shard name, the one that is counted next first."""


def dumps_open(ranges: OpenRanges) -> dict[str, list[list[int]]]:
    """Open ranges as JSON values."""
    return {own: [[*one.span, one.rows] for one in many] for own, many in ranges.items() if many}


def loads_open(raw: Mapping[str, Any], table: Table) -> dict[str, tuple[OpenRange, ...]]:
    """Read back what :func:`dumps_open` wrote; shards that no longer exist are left out."""
    shards = {name(shard) for shard in table.shards}
    return {
        own: tuple(OpenRange((low, high), rows) for low, high, rows in many)
        for own, many in raw.items()
        if own in shards
    }


def rows_in(ranges: OpenRanges) -> int:
    """Rows by which *ranges* differed."""
    return sum(one.rows for many in ranges.values() for one in many)


def uncounted(ranges: OpenRanges, counted: CountedRanges) -> dict[str, tuple[OpenRange, ...]]:
    """Those of *ranges* that this cycle did not count whole.

    A range that was due and was too large to be counted comes back as its two halves.
    """
    left: dict[str, tuple[OpenRange, ...]] = {}
    for own, many in ranges.items():
        spans = counted.ranges.get(own, ())
        due = {one.span for one in many[:AGAIN]} if own in counted.ranges else set()
        kept: list[OpenRange] = []
        for one in many:
            if _holds(spans, one.span):
                continue
            kept += _halved(one) if one.span in due and len(many) < MOST_OPEN else [one]
        left[own] = tuple(kept)
    return left


def differing_ranges(
    wide: Mapping[Shard, Sequence[Mismatch]], left: OpenRanges
) -> dict[str, tuple[OpenRange, ...]]:
    """What is open after a cycle: what it did not count, and then what it found to differ."""
    found = {name(shard): many for shard, many in wide.items()}
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
    """Whether *spans* together hold all of *span*."""
    low = span[0]
    for first, until in sorted(spans):
        if first <= low < until:
            low = until
    return low >= span[1]


def _halved(one: OpenRange) -> list[OpenRange]:
    low, high = one.span
    if high - low <= 1:
        return [one]
    middle, rows = (low + high) // 2, max(one.rows // 2, 1)
    return [OpenRange((low, middle), rows), OpenRange((middle, high), rows)]


def _coarser(ranges: tuple[OpenRange, ...]) -> tuple[OpenRange, ...]:
    """The same ranges, neighbours as one where they are too many: none is forgotten."""
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


def count(
    table: Table,
    world: World,
    pace: Pace,
    *,
    cursors: Mapping[str, int],
    again: Mapping[str, Sequence[Range]],
) -> CountedRanges:
    """Count this cycle's ranges of every shard, and those of *again* (by shard name) too."""
    rows = world.mirror(table).rows() // len(table.shards)
    ranges: dict[str, tuple[Range, ...]] = {}
    counts: dict[str, tuple[int, ...]] = {}
    moved: dict[str, int] = {}
    for shard in table.shards:
        own = name(shard)
        asked = _Asked(world.source(shard.source), shard, _column(table))
        more = () if pace.failed else again.get(own, ())
        choice, counts[own] = _counted(
            asked, pace, rows=rows, cursor=cursors.get(own, 0), more=more
        )
        ranges[own], moved[own] = choice.ranges, choice.cursor
    return CountedRanges(world.clock(), ranges, counts, moved)


def compared(
    table: Table, world: World, counted: CountedRanges
) -> dict[Shard, tuple[Mismatch, ...]]:
    """Ranges whose counts differ, of each shard that has one and is still there."""
    mirror = world.mirror(table)
    wide: dict[Shard, tuple[Mismatch, ...]] = {}
    for shard in table.shards:
        ranges = counted.ranges.get(name(shard), ())
        if not ranges:
            continue
        there = mirror.count_ids(shard, _column(table), ranges)
        found = mismatches(ranges, counted.counts[name(shard)], there)
        if found:
            wide[shard] = found
    return wide


def suspects_in(
    table: Table, world: World, wide: Mapping[Shard, Sequence[Mismatch]], *, leaf: int, most: int
) -> Suspicion:
    """Ids the two sides do not hold alike now, found by halving; both sides are read anew."""
    mirror, column = world.mirror(table), _column(table)
    ids: list[Suspect] = []
    whole = True
    for shard, found in wide.items():
        source = world.source(shard.source)

        def both(
            ranges: Sequence[Range], shard: Shard = shard, source: SourceSide = source
        ) -> tuple[Sequence[int], Sequence[int]]:
            here = source.count_ids(shard, column, ranges)
            return here, mirror.count_ids(shard, column, ranges)

        narrow = narrowed(found, both, leaf=leaf, breadth=BREADTH)
        whole = whole and narrow.whole
        for span in narrow.spans:
            if len(ids) >= most:
                return Suspicion(frozenset(ids[:most]), whole=False)
            limit = max(2 * leaf, most)
            here = source.ids(shard, column, span, limit)
            there = mirror.ids(shard, column, span, limit)
            whole = whole and max(len(here), len(there)) < limit
            ids += [(shard, id_) for id_ in differing(here, there, limit)]
    return Suspicion(frozenset(ids[:most]), whole and len(ids) <= most)


@dataclass(frozen=True, slots=True)
class _Asked:
    """One shard's ids at its source."""

    source: SourceSide
    shard: Shard
    column: str

    def counts(self, ranges: Sequence[Range]) -> tuple[int, ...]:
        return self.source.count_ids(self.shard, self.column, ranges)


def _counted(
    asked: _Asked, pace: Pace, *, rows: int, cursor: int, more: Sequence[Range]
) -> tuple[Choice, tuple[int, ...]]:
    """Count blocks as wide as they may be, and *more*; narrower ones alone if that is too much.

    How many rows a block holds is a guess from the mirror, which may have lost them, or from a
    mean: ids may lie far apart but for one dense block.
    """
    low = asked.source.min_id(asked.shard, asked.column)
    high = asked.source.max_id(asked.shard, asked.column)
    if low is None or high is None:  # empty: any row of the mirror is one too many
        choice = Choice(tuple(sorted({(FLOOR, CEILING), *more})), 0)
        return choice, asked.counts(choice.ranges)
    dense = width(0, 0, 1, pace.block_rows)
    size = max(width(low, high, rows, pace.block_rows) // NARROWER**pace.failed, dense)
    while True:
        chosen = choose(low, high, size, cursor=cursor, newest=pace.newest, rotating=pace.rotating)
        choice = Choice(tuple(sorted({*chosen.ranges, *more})), chosen.cursor)
        try:
            return choice, asked.counts(choice.ranges)
        except TooManyRowsError:
            if size == dense and not more:
                raise
        size, more = max(size // NARROWER, dense), ()


def _column(table: Table) -> str:
    return table.id_column or ""
