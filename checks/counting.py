"""Count id ranges at the source now, compare them with a mirror that has come past that.

Counts that differ are no finding yet: rows may have changed since the source was read.  They only
tell where to look for suspects.
"""

from collections.abc import Iterable, Mapping, Sequence
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
from checks.world import Range, World
from pipeline.model import Shard, Table


@dataclass(frozen=True, slots=True)
class Pace:
    """How much is counted in one cycle; see the probe's settings of the same names."""

    block_rows: int
    newest: int
    rotating: int


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
        choice = _choice(table, world, shard, pace, rows=rows, cursor=cursors.get(own, 0))
        ranges[own] = tuple(sorted({*choice.ranges, *again.get(own, ())}))
        counts[own] = world.source(shard.source).count_ids(shard, _column(table), ranges[own])
        moved[own] = choice.cursor
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
    table: Table,
    world: World,
    wide: Mapping[Shard, Sequence[Mismatch]],
    *,
    leaf: int,
    halvings: int,
) -> Iterable[Suspect]:
    """Ids the two sides do not hold alike now, found by halving; both sides are read anew."""
    mirror = world.mirror(table)
    column = _column(table)
    for shard, found in wide.items():
        source = world.source(shard.source)

        def both(
            ranges: Sequence[Range], shard: Shard = shard
        ) -> tuple[Sequence[int], Sequence[int]]:
            here = world.source(shard.source).count_ids(shard, column, ranges)
            return here, mirror.count_ids(shard, column, ranges)

        for span in narrowed(found, both, leaf=leaf, most=halvings):
            most = 2 * leaf
            here = source.ids(shard, column, span, most)
            there = mirror.ids(shard, column, span, most)
            yield from ((shard, id_) for id_ in differing(here, there, most))


def _choice(
    table: Table, world: World, shard: Shard, pace: Pace, *, rows: int, cursor: int
) -> Choice:
    source = world.source(shard.source)
    low = source.min_id(shard, _column(table))
    high = source.max_id(shard, _column(table))
    if low is None or high is None:
        return Choice(((FLOOR, CEILING),), 0)  # empty: any row of the mirror is one too many
    size = width(low, high, rows, pace.block_rows)
    return choose(low, high, size, cursor=cursor, newest=pace.newest, rotating=pace.rotating)


def _column(table: Table) -> str:
    return table.id_column or ""
