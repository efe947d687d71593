"""Compares the number of changes with what is usual for the table at this hour.

A table that was migrated away stops changing and still has equal counts; only this probe detects
it.  Intervals begin at the same times of each local day, so a nightly job stays in one interval.
An interval ends only while the mirror is close behind the source. So a delay does not look like
silence, and catching up does not look like a burst.
Cannot detect: wrong changes at the usual rate; anything before there is enough history.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from checks.baseline import (
    WEEKS,
    CountedInterval,
    Past,
    SilentPeriod,
    comparable_counts,
    expected_changes,
    has_enough_history,
    most_comparable,
    silent_period,
    trim_history,
    usual_range,
)
from checks.counting import Fences, await_fences, load_instant, load_memory
from checks.days import DAY, next_part, require_zone
from checks.model import FailKind, NotYet, OneOrMore, Outcome, Ruling, Share, Span, Undecided
from checks.run import Probe
from checks.world import World
from pipeline.errors import ConfigError
from pipeline.model import Fence, Table

NAME = "volatility"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CLOSE = 10  # the mirror must be within 1/10 of an interval
SHORTEST, LONGEST = 0.5, 2  # in intervals; a shorter or longer one is left out


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of one interval, and of the comparable intervals before it, oldest first.

    ``awaited`` is the number of changes expected since the last one; 0 unless the table is silent.
    ``silence`` is the present and the longest earlier silence.  ``forgotten``: nothing has changed
    since the history was lost.
    """

    as_of: tuple[Fence, ...]
    count: float
    past: Past
    awaited: float
    silence: SilentPeriod = field(default_factory=SilentPeriod)
    forgotten: bool = False

    @property
    def value(self) -> float:
        """Changes per interval."""
        return self.count


FORGOTTEN: Mapping[str, Any] = {"forgotten": True}
"""The memory that replaces an unreadable one."""


@dataclass(frozen=True, slots=True)
class History:
    """Counted intervals, ascending, followed by ``more`` silent ones.

    The next interval began when ``batch`` was the newest.  ``forgotten``: nothing has changed since
    an earlier history was lost.
    """

    batch: int = -1
    counts: tuple[CountedInterval, ...] = ()
    more: int = 0
    forgotten: bool = False

    @classmethod
    def loads(cls, raw: Mapping[str, Any], zone: ZoneInfo) -> "History":
        """Read back what `dump_memory` wrote; an empty memory is an empty history.

        Raises:
            ArithmeticError, AttributeError, LookupError, TypeError, ValueError: it has an
                unexpected structure.
        """
        forgotten = bool(raw.get("forgotten"))
        if not raw or raw == FORGOTTEN:
            return cls(forgotten=forgotten)
        counts = tuple(_load_interval(one, zone) for one in raw["counts"])
        more = int(raw.get("more", 0))
        return cls(int(raw["batch"]), counts, more, forgotten)


@dataclass(frozen=True, slots=True)
class Volatility:
    """Fail when the number of changes is unusually low or high, or when changes stop.

    Intervals of the same hour of the day are compared, in *zone* (by default the pipeline's time
    zone); once there are four weeks of history, also of the same weekday.  The history covers the
    last *weeks* weeks.  The usual range is *width* deviations, at least *slack* (a share) of the
    median; it needs *needed* comparable intervals.  Changes have also stopped after a silence of
    *quiet* times the longest one before, and of at least a day, if there were changes on *needed*
    days.  So the check also detects that a rarely changing table stops.  It fails until the table
    changes again, because the history ends with the last change.
    """

    interval: timedelta = timedelta(hours=1)
    """Length of an interval whose changes are counted."""
    quiet: Share = 2.0
    width: Share = 6.0
    slack: Share = 0.5
    needed: OneOrMore = 7
    zone: str = ""
    weeks: OneOrMore = 12
    patience: Span = timedelta(minutes=30)
    """How long it waits for the mirror to reach the position; after that it is UNKNOWN."""
    limit: Span = timedelta(seconds=10)
    every: ClassVar[timedelta] = timedelta(minutes=1)
    gating: ClassVar[bool] = False
    kind: ClassVar[FailKind] = FailKind.SUSPECT

    def __post_init__(self) -> None:
        """Reject an unknown zone, and an interval that is not above zero.

        Raises:
            ConfigError: a setting is invalid; the message names it.
        """
        if self.interval <= timedelta():
            msg = "interval: must be longer than 0s; write it as 30s, 5m or 1h"
            raise ConfigError(msg)
        require_zone("zone", self.zone)

    def doubts(self) -> Iterator[str]:
        """Yield each setting that makes a finding impossible as ``key: why``."""
        if self.slack >= 1:
            fix = "write a share below 1, such as 0.5 for 50 %"
            yield f"slack: with {self.slack:g}, no number of changes is too few; {fix}"
        most = most_comparable(self.interval, self.weeks)
        if most < self.needed and (self.weeks < WEEKS or most < WEEKS):
            there = f"with weeks {self.weeks} there are at most {most} comparable intervals"
            yield f"needed: {there}, never {self.needed}; raise weeks, or lower needed"

    def measure(self, table: Table, world: World) -> Changes | NotYet | Undecided:
        """Close the interval when it has ended and the mirror is close; else return NotYet."""
        memory, zone = world.recall(table, NAME), self._zone(world)
        since = load_memory(table, world, NAME, lambda: _load_since(memory), FORGOTTEN)
        due = next_part(since, self.interval, zone) if since else world.now
        if world.now < due:
            return NotYet(f"the interval ends at {due:%H:%M:%S %Z}")
        near = await_fences(table, world, world.now - self.interval / CLOSE, self.patience)
        if isinstance(near, NotYet | Undecided):
            late = world.now - due > self.patience
            return Undecided("not_reached", near.why) if late else NotYet(near.why)
        batch = world.landed_batch()
        kept = memory or world.recall(table, NAME, lasting=True) or {}
        history = load_memory(table, world, NAME, lambda: History.loads(kept, zone), FORGOTTEN)
        if since is None:  # counts from an earlier change log are valid, its batch numbers are not
            _remember(table, world, batch, history)
            return NotYet("the first interval begins")
        return self._close(table, world, history, since, batch=batch, near=near)

    def judge(self, reading: Changes, past: Sequence[float]) -> Ruling:
        """Compare with the usual range of the comparable intervals in *reading*."""
        if self._is_silent(reading.silence):
            days = (reading.silence.now * self.interval) / DAY
            longest = (reading.silence.before * self.interval) / DAY
            why = f"no change for {days:.1f} days, and never before for more than {longest:.1f}"
            return Ruling(Outcome.FAIL, why, "stopped")
        if why := self._why_no_history(reading):
            return Ruling(Outcome.UNKNOWN, why, "no_history")
        band = usual_range(reading.past, width=self.width, slack=self.slack)
        reason = f"{reading.count:.0f} changes, usual {band.low:.0f} to {band.high:.0f}"
        if reading.awaited >= self.width**2:
            why = f"no change where about {reading.awaited:.0f} were to be expected"
            return Ruling(Outcome.FAIL, why, "stopped")
        if reading.count < band.low:
            return Ruling(Outcome.FAIL, reason, "too_few")
        if reading.count > band.high:
            return Ruling(Outcome.FAIL, reason, "too_many")
        return Ruling(Outcome.PASS, reason)

    def _is_silent(self, period: SilentPeriod) -> bool:
        """Whether the silence is so much longer than before that the table was moved away."""
        long = period.now * self.interval >= DAY and period.now > self.quiet * period.before
        return long and period.active >= self.needed

    def _why_no_history(self, reading: Changes) -> str:
        if reading.forgotten:
            return "its history could not be read, and nothing has changed since"
        if not has_enough_history(reading.past, self.needed):
            return f"{len(reading.past.counts)} of {self.needed} comparable intervals so far"
        return ""

    def _zone(self, world: World) -> ZoneInfo:
        return ZoneInfo(self.zone) if self.zone else world.zone

    def _close(
        self,
        table: Table,
        world: World,
        known: History,
        since: datetime,
        *,
        batch: int,
        near: Fences,
    ) -> Changes | NotYet:
        zone, length = self._zone(world), world.now - since
        if not SHORTEST * self.interval <= length <= LONGEST * self.interval:
            _remember(table, world, batch, known)
            return NotYet("the interval has no exact ends; it is left out")
        counted = world.log().change_counts(table, known.batch, batch)
        own = CountedInterval(since.astimezone(zone), counted * (self.interval / length))
        kept, more = trim_history((*known.counts, own), timedelta(weeks=self.weeks), known.more)
        forgotten = known.forgotten and not counted
        _remember(table, world, batch, replace(known, counts=kept, more=more, forgotten=forgotten))
        past, quiet = comparable_counts(kept, own.start), silent_period(kept)
        quiet = replace(quiet, now=quiet.now + more)
        awaited = expected_changes(kept, self.needed)
        return Changes(near, own.count, past, awaited, quiet, forgotten)


def dump_memory(
    now: datetime,
    batch: int,
    history: Sequence[CountedInterval],
    more: int = 0,
    *,
    forgotten: bool = False,
) -> Mapping[str, Any]:
    """Return the memory at *now*, when *batch* is the newest; short, because tables are many.

    *more* silent intervals came after *history*.  *forgotten*: nothing has changed since an earlier
    history was lost.
    """
    counts = [[int(each.start.timestamp()), round(each.count, 2)] for each in history]
    memory = {"since": now.isoformat(), "batch": batch, "counts": counts, "more": more}
    return {**memory, **FORGOTTEN} if forgotten else memory


def _remember(table: Table, world: World, batch: int, known: History) -> None:
    memory = dump_memory(world.now, batch, known.counts, known.more, forgotten=known.forgotten)
    world.remember(table, NAME, memory)


def _load_since(memory: Mapping[str, Any] | None) -> datetime | None:
    return load_instant(memory["since"]) if memory and memory != FORGOTTEN else None


def _load_interval(raw: Sequence[float], zone: ZoneInfo) -> CountedInterval:
    start, count = raw
    if not 0 <= count < inf:
        raise ValueError("no number of changes")
    return CountedInterval((EPOCH + timedelta(seconds=start)).astimezone(zone), float(count))


PROBE: type[Probe[Changes]] = Volatility
