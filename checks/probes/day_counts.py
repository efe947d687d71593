"""Compares rows and sums of the last days on both sides, by a date column.

The source is summed first, then a newer mirror.  A change that landed between the two and concerns
a day explains its difference.  A row created before midnight and committed after it belongs to the
same day on both sides.  A differing day is summed again before it counts.  It is compared until it
is equal, also when later days have ended: that these are equal proves nothing about it.

If no column is configured, one is chosen whose name and index say that it holds the creation time
of rows.  If the choice is wrong, days keep changing, and those changes explain the differences. So
a wrong choice costs a query, and never reports a lost row.  A chosen column is counted rarely, and
only from the budget that other checks leave.  If it cannot decide, there is no verdict.

Cannot detect: earlier days; rows without a date; fields that are not configured, and two faults in
the same sum that cancel out; today, until it has ended.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import pyarrow as pa

from checks.counting import Fences, await_fences, load_instant, load_memory
from checks.days import (
    DayDifference,
    DayQuestion,
    DayTallies,
    choose_date_column,
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
from pipeline.clocks import has_passed
from pipeline.errors import ProofError, SlowError, UnreachableError
from pipeline.model import Fence, Missing, Table
from pipeline.schema.model import arrow_type

NAME = "day_counts"
NARROWED = 3  # most differences that are narrowed down to a second
MOST_OPEN = 100  # days that differed last and are compared again; the newest, if there are more
CHOSEN_DAYS = 3
"""Days that are counted by a chosen column; one if the budget does not allow three now."""
CHOSEN_PAUSE, CHOSEN_REFUSED = timedelta(hours=6), timedelta(days=1)
"""Time between two counts by a chosen column, and after a count that could not be decided."""
CHOSEN_ROWS = 100
"""Most rows of a table that are counted by a chosen column per second, on average."""


@dataclass(frozen=True, slots=True)
class DayReading:
    """The result of one comparison; ``moving`` are days that kept changing.

    ``places`` names the second of the first differences, if it is known.
    ``busiest`` is the number of rows of the day with the most.  ``chosen`` is the chosen column;
    empty if the config names one.
    """

    as_of: tuple[Fence, ...]
    rows: int
    days: int
    found: tuple[DayDifference, ...] = ()
    places: tuple[str, ...] = ()
    moving: tuple[DayDifference, ...] = ()
    busiest: int = 0
    chosen: str = ""

    @property
    def value(self) -> float:
        """Number of days that differ, counted per shard and column."""
        return float(len(self.found))


@dataclass(frozen=True, slots=True)
class DayCounts:
    """Fail when rows of a day, or their sums of *fields*, differ between mirror and source.

    Compares the last *days* days that have ended in *zone* (by default the pipeline's), by each of
    *columns*, which are dates or times.  Times without a zone are local times of *wall* (by default
    *zone*).  Numbers in *fields* are summed, and so are the digests of texts.  A day is summed at
    most *tries* times while it changes.
    """

    columns: tuple[str, ...] = ()
    """Columns of dates or times whose days are counted.

    If empty, the rows of a few days are counted by a chosen column, if there is a suitable one.
    """
    fields: tuple[str, ...] = ()
    days: Days = 7
    zone: str = ""
    wall: str = ""
    tries: OneOrMore = 3
    patience: Span = timedelta(minutes=30)
    """How long it waits for the mirror to reach the position; after that it is UNKNOWN."""
    limit: Span = timedelta(minutes=2)
    choose_column: bool = True
    """Whether a column is chosen by its name and index if `columns` is empty."""
    every: ClassVar[timedelta] = timedelta(minutes=5)
    gating: ClassVar[bool] = False
    kind: ClassVar[FailKind] = FailKind.LOST

    def __post_init__(self) -> None:
        """Reject zones that do not exist.

        Raises:
            ConfigError: a zone does not exist; the message names the setting.
        """
        require_zone("zone", self.zone)
        require_zone("wall", self.wall)

    def doubts(self) -> Iterator[str]:
        """Yield each setting without effect as ``key: why``."""
        if self.fields and not self.columns:
            yield "fields: are added up only by named dates; name these under columns"

    def measure(self, table: Table, world: World) -> DayReading | NotYet | Undecided:
        """Compare the earlier sums with the mirror, then sum the days at the source again."""
        if not self.columns:
            return self._measure_chosen(table, world)
        if written := [n for n in (*self.columns, *self.fields) if table.restates(n)]:
            return Undecided("unsupported", f"column {written[0]} is written by a standard")
        return self._rounds(world, self.columns, self.fields, self.days).compare(table, world)

    def _measure_chosen(self, table: Table, world: World) -> DayReading | NotYet:
        """Count the days of a chosen column, if there is one and a count is due."""
        if not self.choose_column:
            return NotYet("no columns are named in probes.day_counts.columns", rests=True)
        column = _choose(table, world)
        if isinstance(column, Missing):
            why = f"no date column is chosen: {column.why}; name one in probes.day_counts.columns"
            return NotYet(why, rests=True)
        rounds = self._rounds(world, (column,), (), min(self.days, CHOSEN_DAYS))
        memory = rounds.recall(table, world)
        found: DayReading | NotYet | None = None
        if memory.seen is not None:
            rounds = replace(rounds, days=memory.window)
        else:
            found = _postpone(table, world, column, memory)
            if found is None:
                days = _fitting_days(table, world, rounds.days, memory.busiest)
                rounds = replace(rounds, days=days)
        if found is None:
            found = self._count_chosen(table, world, rounds, memory)
        if isinstance(found, NotYet):
            return replace(found, why=f"column {column}, chosen by its name and index: {found.why}")
        return replace(found, chosen=column)

    def _count_chosen(
        self, table: Table, world: World, rounds: "DayRounds", memory: "DayMemory"
    ) -> DayReading | NotYet:
        """Compare by a chosen column; if that cannot decide, there is no verdict."""
        try:
            found = rounds.compare(table, world)
        except (ProofError, SlowError) as error:
            rounds.rest(table, world, CHOSEN_REFUSED, memory.busiest, memory.open)
            return NotYet(str(error), rests=True)
        if isinstance(found, NotYet):
            return found
        if isinstance(found, Undecided):
            return NotYet(found.why)
        usual = self.every if found.found else CHOSEN_PAUSE
        pause = max(usual, timedelta(seconds=found.rows / CHOSEN_ROWS))
        rounds.rest(table, world, pause, found.busiest, _days_of((*found.found, *found.moving)))
        if found.moving and not found.found:
            return NotYet(_describe_moving(found), rests=True)
        return found

    def judge(self, reading: DayReading, past: Sequence[float]) -> Ruling:
        """Rule on days that differed twice; *past* is not used."""
        if reading.found:
            keys = tuple(one.key for one in reading.found[:MOST_KEYS])
            code = "days_differ" if _is_counted(reading.found) else "sums_differ"
            reason = "; ".join(_describe_days(one) for one in reading.found[:3])
            places = f" ({'; '.join(reading.places)})" if reading.places else ""
            more = len(reading.found) - 3
            rest = f"; and {more} more" if more > 0 else ""
            unnamed = len(reading.found[MOST_KEYS:])
            return Ruling(Outcome.FAIL, f"{reason}{places}{rest}", code, keys, unnamed)
        if reading.moving:
            return Ruling(Outcome.UNKNOWN, _describe_moving(reading), "in_motion")
        days = "1 day" if reading.days == 1 else f"{reading.days} days"
        by = f" of {reading.chosen}, chosen by its name and index," if reading.chosen else ""
        return Ruling(Outcome.PASS, f"{reading.rows} rows of {days}{by} are on both sides")

    def _rounds(
        self, world: World, columns: tuple[str, ...], fields: tuple[str, ...], days: int
    ) -> "DayRounds":
        zone = ZoneInfo(self.zone) if self.zone else world.zone
        wall = ZoneInfo(self.wall) if self.wall else zone
        question = DayQuestion(columns, fields, zone, wall)
        return DayRounds(question, days, self.tries, self.patience, goes_on=bool(self.columns))


@dataclass(frozen=True, slots=True)
class DayMemory:
    """What earlier rounds have ``seen`` at the source; ``suspects`` are keys of days that differed.

    ``window`` is the number of the last days among those of ``seen``, and ``open`` are all days
    that differed, ascending.  A chosen column rests from ``rested`` for ``pause``; ``busiest`` is
    the number of rows of its day with the most.
    """

    seen: DayTallies | None = None
    window: int = 0
    suspects: frozenset[str] = frozenset()
    open: tuple[date, ...] = ()
    tries: int = 0
    rested: datetime | None = None
    pause: timedelta = timedelta()
    busiest: int | None = None

    @classmethod
    def loads(cls, raw: Mapping[str, Any], question: DayQuestion) -> "DayMemory":
        """Read the memory of earlier rounds with that *question*.

        Raises:
            ArithmeticError, AttributeError, LookupError, TypeError, ValueError: it has an
                unexpected structure.
        """
        seen = DayTallies.loads(raw["seen"]) if "seen" in raw else None
        if seen is not None and not seen.answers(question):
            raise ValueError("the tallies are of another question")
        rested = load_instant(raw["rested"]) if "rested" in raw else None
        busiest = None if raw.get("busiest") is None else int(raw["busiest"])
        suspects, tries = frozenset(map(str, raw.get("suspects", ()))), int(raw.get("tries", 0))
        pause = timedelta(seconds=raw["pause"]) if rested else timedelta()
        window = int(raw.get("window", len(seen.days) if seen else 0))
        opened = tuple(map(date.fromisoformat, raw.get("open", ())))
        return cls(seen, window, suspects, opened, tries, rested, pause, busiest)


@dataclass(frozen=True, slots=True)
class DayRounds:
    """Rounds with one question: one round sums the source, and a later one the mirror.

    ``goes_on``: after comparing, a round also sums the source for the next one.
    """

    question: DayQuestion
    days: int
    tries: int
    patience: timedelta
    goes_on: bool

    def recall(self, table: Table, world: World) -> DayMemory:
        """Return the memory of an earlier round with the same question.

        Without one, it has only the days that differed by another question or change log.
        """
        raw = world.recall(table, NAME)
        if not raw or raw.get("asked") != self._asked:
            lasting = world.recall(table, NAME, lasting=True) or {}
            raw = {key: lasting[key] for key in ("open",) if key in lasting}
        return load_memory(table, world, NAME, lambda: DayMemory.loads(raw, self.question))

    def rest(
        self,
        table: Table,
        world: World,
        pause: timedelta,
        busiest: int | None,
        opened: Collection[date],
    ) -> None:
        """Query nothing for *pause*, and drop the earlier sums."""
        rested = {"rested": world.now.isoformat(), "pause": pause.total_seconds()}
        kept = {"asked": self._asked, **rested, "busiest": busiest, "open": _dump_days(opened)}
        world.remember(table, NAME, kept)

    def compare(self, table: Table, world: World) -> DayReading | NotYet | Undecided:
        """Compare the earlier sums with the mirror; without any, sum the source."""
        memory = self.recall(table, world)
        if memory.seen is None:
            self._begin(table, world, {}, memory.open)
            return NotYet("the source was summed for the first time; the next round compares")
        fences = await_fences(table, world, memory.seen.ended, self.patience)
        if isinstance(fences, NotYet | Undecided):
            return fences
        found = find_differences(table, world, self.question, memory.seen)
        return self._ruled(table, world, memory, memory.seen, found, fences=fences)

    def _ruled(
        self,
        table: Table,
        world: World,
        memory: DayMemory,
        seen: DayTallies,
        found: tuple[DayDifference, ...],
        *,
        fences: Fences,
    ) -> DayReading | NotYet:
        """Rule on differences: a day counts if it differs twice without explanation.

        Other differing days are summed again, up to ``tries`` times.
        """
        wrong, opened = {one.key: one for one in found if not one.explained}, _days_of(found)
        tries = memory.tries + 1
        twice = tuple(one for key, one in wrong.items() if key in memory.suspects)
        moving = tuple(one for one in found if one not in twice)
        if moving and tries < self.tries:
            self._begin(table, world, {"suspects": sorted(wrong), "tries": tries}, opened)
            return NotYet(f"adding {len(found)} days up again")
        places = tuple(self._places(table, world, twice))
        reading = DayReading(
            fences, seen.rows, len(seen.days), twice, places, moving, busiest=seen.busiest
        )
        if self.goes_on:
            with suppress(UnreachableError, ProofError):  # the next round tries again, and says why
                self._begin(table, world, {"suspects": sorted(wrong), "tries": 0}, opened)
        return reading

    def _places(self, table: Table, world: World, found: Sequence[DayDifference]) -> list[str]:
        places = []
        with suppress(UnreachableError, ProofError):
            for one in found[:NARROWED]:
                span = narrow_difference(table, world, self.question, one)
                places += [f"{one.key} at {span[0]:%H:%M:%S}"] if span is not None else []
        return places

    def _begin(
        self, table: Table, world: World, memory: Mapping[str, Any], opened: Collection[date]
    ) -> None:
        """Sum the source on the last and the *opened* days, and store that for the next round."""
        days = {*days_before(world.now, self.days, self.question.zone), *opened}
        seen = sum_days(table, world, self.question, sorted(days))
        asked = {"asked": self._asked, "window": self.days, "open": _dump_days(opened)}
        world.remember(table, NAME, {**memory, "seen": seen.dumps(), **asked})

    @property
    def _asked(self) -> list[Any]:
        """The identity of the question in the memory of the check."""
        one = self.question
        return [[*one.columns], [*one.fields], one.zone.key, one.wall.key]


def _choose(table: Table, world: World) -> str | Missing:
    """Choose the date column of *table*, of those that no standard rewrites in the mirror."""
    found = []
    for shard in table.shards:
        own = world.dated(shard)
        if isinstance(own, Missing):
            return Missing(f"source {shard.source} has not described {shard.name}: {own.why}")
        found.append([name for name in own if not table.restates(name)])
    return choose_date_column(found)


def _why_not(table: Table, world: World, column: str) -> str:
    """Why the column may have other values in the mirror than at the source; else empty."""
    for shard in table.shards:
        schema = world.schema(shard)
        landed = schema.column(column) if schema is not None else None
        if landed is None:
            return f"no schema of {shard.name} that has landed has it"
        kind = arrow_type(landed)
        if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
            return f"the mirror has it as {kind}"
        try:
            alters = world.collected(shard.source).alters
        except UnreachableError as error:
            return str(error)
        if alters is not None and (by := alters(f"{shard.name}.{column}")):
            return f"the collector alters it ({by})"
    return ""


def _postpone(table: Table, world: World, column: str, memory: DayMemory) -> NotYet | None:
    """Why the days of a chosen *column* are not counted now; None if they are."""
    rested, pause = memory.rested, memory.pause
    if rested is not None and not has_passed(rested, pause, world.now):
        until = (rested + pause).isoformat(timespec="seconds")
        return NotYet(f"its days are counted again after {until}", rests=True)
    if why := _why_not(table, world, column):
        return NotYet(why, rests=True)
    allowed = [world.allowance(name) for name in table.sources]
    if any(one.pressed or one.rows == 0 for one in allowed):
        return NotYet("other checks use the budget of the source")
    return None


def _fitting_days(table: Table, world: World, most: int, busiest: int | None) -> int:
    """Return how many days the budget allows now: *most* or 1; 1 if their size is not known."""
    allowed = [world.allowance(name).rows for name in table.sources]
    left = min((one for one in allowed if one is not None), default=None)
    fits = busiest is not None and (left is None or busiest * most <= left)
    return most if fits else 1


def _days_of(found: Sequence[DayDifference]) -> tuple[date, ...]:
    return tuple(sorted({one.day for one in found})[-MOST_OPEN:])


def _dump_days(days: Collection[date]) -> list[str]:
    return [day.isoformat() for day in sorted(days)]


def _is_counted(found: Sequence[DayDifference]) -> bool:
    return any(one.source != one.mirror for one in found)


def _describe_days(one: DayDifference) -> str:
    if one.source == one.mirror:
        return f"{one.key}: {one.source} rows on both sides, {', '.join(one.fields)} differ"
    return f"{one.key}: {one.source} rows at the source, {one.mirror} in the mirror"


def _describe_moving(reading: DayReading) -> str:
    one = reading.moving[0]
    return f"days that changed each time they were added up: {len(reading.moving)}, of {one.key}"


PROBE: type[Probe[DayReading]] = DayCounts
