"""Compares rows and sums of the last days on both sides, by a date column.

The source is added up first, then a mirror that is newer; a change that landed between
the two and touches a day explains it.  A row that was created before midnight and committed after
it belongs to its day on both sides, whichever clock is asked.  A day that differs is added up again
before it counts.
Cannot see: days before those; rows without a date; fields that are not named, and in those two
faults that make up for each other; today, until it is over.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from checks.counting import Fences, await_fences
from checks.days import (
    DayDifference,
    DayQuestion,
    DayTallies,
    days_before,
    find_differences,
    narrow_difference,
    require_zone,
    sum_days,
)
from checks.model import (
    MOST_KEYS,
    Days,
    FailKind,
    NotYet,
    OneOrMore,
    Outcome,
    Ruling,
    Span,
    Undecided,
)
from checks.run import Probe
from checks.world import World
from pipeline.errors import ProofError, UnreachableError
from pipeline.model import Fence, Table

NAME = "day_counts"
NARROWED = 3  # differences that are followed down to a second


@dataclass(frozen=True, slots=True)
class DayReading:
    """What adding up came to; ``moving`` are days that kept changing.

    ``places`` says of the first differences where in their day they are, as far as that is known.
    """

    as_of: tuple[Fence, ...]
    rows: int
    days: int
    found: tuple[DayDifference, ...] = ()
    places: tuple[str, ...] = ()
    moving: tuple[DayDifference, ...] = ()

    @property
    def value(self) -> float:
        """Days that differ, of each shard and column."""
        return float(len(self.found))


@dataclass(frozen=True, slots=True)
class DayCounts:
    """Fail when a day has other rows, or other sums of *fields*, in the mirror than at the source.

    Days are the last *days* that are over in *zone* (by default the pipeline's), by each of
    *columns*, dates or times; of times without a zone as the wall of *wall* shows them (by default
    *zone*'s).  Of *fields* numbers are added up, and digests of texts.  Without *columns* it asks
    nothing.  A day is added up at most *tries* times while it changes.
    """

    columns: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    days: Days = 7
    zone: str = ""
    wall: str = ""
    tries: OneOrMore = 3
    patience: Span = timedelta(minutes=30)
    """How long it waits for the mirror to reach the position; after that it is UNKNOWN."""
    limit: Span = timedelta(minutes=2)
    every: ClassVar[timedelta] = timedelta(minutes=5)
    gating: ClassVar[bool] = False
    kind: ClassVar[FailKind] = FailKind.LOST

    def __post_init__(self) -> None:
        """Refuse zones that do not exist.

        Raises:
            ConfigError: names the setting.
        """
        require_zone("zone", self.zone)
        require_zone("wall", self.wall)

    def measure(self, table: Table, world: World) -> DayReading | NotYet | Undecided:
        """Compare the earlier sums, then add the days up again."""
        if not self.columns:
            return NotYet("no columns are named in probes.day_counts.columns")
        if written := [n for n in (*self.columns, *self.fields) if table.restates(n)]:
            return Undecided("unsupported", f"column {written[0]} is written by a standard")
        memory = world.recall(table, NAME)
        if memory is None or memory.get("asked") != self._asked(world):
            self._begin(table, world, {})
            return NotYet("the source was summed for the first time; the next round compares")
        seen = DayTallies.loads(memory["seen"])
        fences = await_fences(table, world, seen.ended, self.patience)
        if isinstance(fences, NotYet | Undecided):
            return fences
        found = find_differences(table, world, self._question(world), seen)
        return self._ruled(table, world, memory, seen, found, fences=fences)

    def judge(self, reading: DayReading, past: Sequence[float]) -> Ruling:
        """Rule on what differed twice; history plays no part."""
        if reading.found:
            keys = tuple(one.key for one in reading.found[:MOST_KEYS])
            code = "days_differ" if _is_counted(reading.found) else "sums_differ"
            reason = "; ".join(_describe_days(one) for one in reading.found[:3])
            places = f" ({'; '.join(reading.places)})" if reading.places else ""
            more = len(reading.found) - 3
            rest = f"; and {more} more" if more > 0 else ""
            return Ruling(Outcome.FAIL, f"{reason}{places}{rest}", code, keys)
        if reading.moving:
            one = reading.moving[0]
            why = f"{len(reading.moving)} days changed each time they were added up: {one.key}"
            return Ruling(Outcome.UNKNOWN, why, "in_motion")
        reason = f"{reading.rows} rows of {reading.days} days are on both sides"
        return Ruling(Outcome.PASS, reason)

    def _ruled(
        self,
        table: Table,
        world: World,
        memory: Mapping[str, Any],
        seen: DayTallies,
        found: tuple[DayDifference, ...],
        *,
        fences: Fences,
    ) -> DayReading | NotYet:
        """A day must differ twice, unexplained; one that moves is tried again some times."""
        wrong = {one.key: one for one in found if not one.explained}
        before, tries = set(memory.get("suspects", ())), int(memory.get("tries", 0)) + 1
        twice = tuple(one for key, one in wrong.items() if key in before)
        moving = tuple(one for one in found if one not in twice)
        if moving and tries < self.tries:
            self._begin(table, world, {"suspects": sorted(wrong), "tries": tries})
            return NotYet(f"adding {len(found)} days up again")
        places = tuple(self._places(table, world, twice))
        reading = DayReading(fences, seen.rows, len(seen.days), twice, places, moving)
        with suppress(UnreachableError, ProofError):  # the next round tries again, and says why
            self._begin(table, world, {"suspects": sorted(wrong), "tries": 0})
        return reading

    def _places(self, table: Table, world: World, found: Sequence[DayDifference]) -> list[str]:
        places = []
        with suppress(UnreachableError, ProofError):
            for one in found[:NARROWED]:
                span = narrow_difference(table, world, self._question(world), one)
                places += [f"{one.key} at {span[0]:%H:%M:%S}"] if span is not None else []
        return places

    def _begin(self, table: Table, world: World, memory: Mapping[str, Any]) -> None:
        """Add the source up, and keep it for the next round."""
        question = self._question(world)
        seen = sum_days(table, world, question, days_before(world.now, self.days, question.zone))
        kept = {**memory, "seen": seen.dumps(), "asked": self._asked(world)}
        world.remember(table, NAME, kept)

    def _asked(self, world: World) -> list[Any]:
        """What identifies its question in the memory of the check."""
        one = self._question(world)
        return [[*one.columns], [*one.fields], one.zone.key, one.wall.key]

    def _question(self, world: World) -> DayQuestion:
        zone = ZoneInfo(self.zone) if self.zone else world.zone
        wall = ZoneInfo(self.wall) if self.wall else zone
        return DayQuestion(self.columns, self.fields, zone, wall)


def _is_counted(found: Sequence[DayDifference]) -> bool:
    return any(one.source != one.mirror for one in found)


def _describe_days(one: DayDifference) -> str:
    if one.source == one.mirror:
        return f"{one.key}: {one.source} rows on both sides, {', '.join(one.fields)} differ"
    return f"{one.key}: {one.source} rows at the source, {one.mirror} in the mirror"


PROBE: type[Probe[DayReading]] = DayCounts
