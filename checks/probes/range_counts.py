"""Are there as many rows in each id range of each shard as the source has?

Newest ranges are counted in every cycle, older ones in turn, so a row that commits late with a
low id is found too.  Ranges that differ are halved down to ids, and an id is named only when it
is still on one side alone in a later round and nothing in motion explains it.
Cannot see: a changed value; a lost and a ghost row of one range that make up for each other in
every count; an old range until its turn comes; tables whose key is not one integer.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any, ClassVar

from checks.counting import CountedRanges, Pace, compared, count, suspects_in
from checks.fences import Fences, fences_after, passed
from checks.findings import Differences, ruled
from checks.model import NotYet, Ruling, Undecided
from checks.run import Probe
from checks.suspects import WRONG, Fate, Suspect, SuspectReading, dumps, fates, loads, look, name
from checks.world import Range, World
from pipeline.model import Table

NAME = "range_counts"
Memory = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RangeCounts:
    """Fail when ids are on one side only, or doubled.

    A block holds about *block_rows*; each cycle counts the *newest* blocks of each shard and
    *rotating* older ones.  Ranges are halved to *leaf* rows in at most *halvings* steps; at most
    *suspects* ids are asked again, at most *tries* times while they keep moving.
    """

    block_rows: int = 20_000
    newest: int = 2
    rotating: int = 4
    leaf: int = 200
    halvings: int = 64
    suspects: int = 200
    tries: int = 3
    patience: timedelta = timedelta(minutes=10)
    limit: timedelta = timedelta(seconds=30)
    every: ClassVar[timedelta] = timedelta(seconds=15)
    gating: ClassVar[bool] = True

    def measure(self, table: Table, world: World) -> Differences | NotYet | Undecided:
        """Compare what was counted before, or ask the suspects again; then count anew."""
        if table.id_column is None or table.key not in {(), (table.id_column,)}:
            return Undecided("unsupported", "the key is not one integer column")
        memory = world.recall(table, NAME)
        if memory is None:
            pace = Pace(self.block_rows, self.newest, self.rotating)
            world.remember(
                table, NAME, _memory(count(table, world, pace, cursors={}, again={}), ())
            )
            return NotYet("counted for the first time")
        counted = CountedRanges.loads(memory["counted"])
        seen = SuspectReading.loads(memory["look"], table) if memory["look"] else None
        instant = seen.ended if seen else counted.ended
        fences = passed(table, world, instant, self.patience)
        if isinstance(fences, NotYet | Undecided):
            return fences
        if seen is None:
            return self._compare(table, world, memory, counted, fences)
        return self._confirm(table, world, memory, seen, fences)

    def judge(self, reading: Differences, past: Sequence[float]) -> Ruling:
        """Rule on what was confirmed; history plays no part."""
        return ruled(reading)

    def _compare(
        self, table: Table, world: World, memory: Memory, counted: CountedRanges, fences: Fences
    ) -> Differences | NotYet:
        """Look for suspects where counts differ; what was found before stays suspect."""
        wide = compared(table, world, counted)
        fresh = suspects_in(table, world, wide, leaf=self.leaf, halvings=self.halvings)
        named = set(islice(fresh, self.suspects))
        suspects = named | set(loads(memory["found"], table))
        if not suspects:
            return self._finish(table, world, memory, Differences(fences, _told(counted)))
        rows = sum(abs(each.source - each.mirror) for found in wide.values() for each in found)
        more = rows - len(named) if len(named) >= self.suspects else 0
        seen = look(table, world, suspects)
        world.remember(table, NAME, {**memory, "look": seen.dumps(), "more": max(more, 0)})
        return NotYet(f"asking {len(suspects)} ids again")

    def _confirm(
        self, table: Table, world: World, memory: Memory, seen: SuspectReading, fences: Fences
    ) -> Differences | NotYet:
        """Rule on the suspects; look once more while one of them keeps moving."""
        became = list(zip(seen.suspects, fates(table, world, seen), strict=True))
        moving = [suspect for suspect, fate in became if fate is Fate.MOVING]
        left = [suspect for suspect, fate in became if fate is not Fate.CLEARED]
        if moving and seen.tries + 1 < self.tries:
            again = look(table, world, left, seen.tries + 1)
            world.remember(table, NAME, {**memory, "look": again.dumps()})
            return NotYet(f"{len(moving)} ids keep moving")
        found = tuple((suspect, fate) for suspect, fate in became if fate in WRONG)
        told = _told(CountedRanges.loads(memory["counted"]))
        more = memory["more"] if found else 0
        if not found:  # a PASS vouches for no more than what was counted
            ended = CountedRanges.loads(memory["counted"]).ended
            fences = fences_after(table, world, ended) or fences
        reading = Differences(fences, told, found, len(moving), more)
        return self._finish(table, world, memory, reading)

    def _finish(
        self, table: Table, world: World, memory: Memory, reading: Differences
    ) -> Differences:
        """Begin the next cycle, which counts the guilty ranges again and asks the found again."""
        counted = CountedRanges.loads(memory["counted"])
        found = [suspect for suspect, _ in reading.found]
        again = dict(_guilty(counted.ranges, found))
        pace = Pace(self.block_rows, self.newest, self.rotating)
        fresh = count(table, world, pace, cursors=counted.cursors, again=again)
        world.remember(table, NAME, _memory(fresh, found))
        return reading


def _memory(counted: CountedRanges, found: Iterable[Suspect]) -> dict[str, Any]:
    return {"counted": counted.dumps(), "look": None, "found": dumps(found), "more": 0}


def _guilty(
    ranges: Mapping[str, Sequence[Range]], found: Sequence[Suspect]
) -> Iterable[tuple[str, list[Range]]]:
    """The counted ranges that hold a found id, by shard name."""
    for own, spans in ranges.items():
        ids = [id_ for shard, id_ in found if name(shard) == own]
        yield own, [span for span in spans if any(span[0] <= id_ < span[1] for id_ in ids)]


def _told(counted: CountedRanges) -> str:
    rows = sum(sum(own) for own in counted.counts.values())
    ranges = sum(len(own) for own in counted.ranges.values())
    return f"{rows} rows in {ranges} ranges of {len(counted.ranges)} shards are on both sides"


PROBE: type[Probe[Differences]] = RangeCounts
