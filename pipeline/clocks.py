"""Judges the clocks behind heartbeats, and resolves a cut to an instant and its fence.

A heartbeat has the earlier of the source's and Sluice's time, so one wrong clock delays an answer
but never falsifies it. If a heartbeat is earlier than the one before it, both clocks were fast.
Then all times since the forward step of at least that size are rejected, or the whole history if it
shows no such step.

A business day ends where the next one begins in the declared time zone, so days of 23 and 25 hours
are correct. A cut is an instant. As a position it is a fence, never a timestamp.

`Retries` decides when something that failed is tried again. The wait grows from 2 seconds to 1
minute while the circumstances stay the same. So a table that is held for days does not cost every
merge run, and continues soon after its cause may have changed. The caller must give all
circumstances that can end the failure.
"""

import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from difflib import get_close_matches
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from pipeline.errors import ConfigError
from pipeline.model import Fence


@dataclass(frozen=True, slots=True)
class ClockStep:
    """Heartbeat ``number`` of ``source`` has the time ``after``, the one before it ``before``.

    The times of the heartbeats from ``first`` (at ``since``) up to, but without, ``number`` are
    rejected.
    """

    source: str
    first: int
    number: int
    since: datetime
    before: datetime
    after: datetime

    @property
    def id(self) -> str:
        """The id that a person waives once the clocks are known to be right."""
        return f"clock:{self.source}:{self.number}"

    @property
    def size(self) -> timedelta:
        """How far the clocks went back, at least."""
        return self.before - self.after

    def fells(self, fence: Fence) -> bool:
        """Whether the time of *fence* is rejected."""
        return fence.source == self.source and self.first <= fence.number < self.number


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The ``source_time`` of a source, read between ``before`` and ``after`` of our clock."""

    before: datetime
    source_time: datetime
    after: datetime

    @property
    def earlier(self) -> datetime:
        """The earlier time of both clocks when the heartbeat began."""
        return min(self.before, self.source_time)

    @property
    def later(self) -> datetime:
        """The later time of both clocks when the heartbeat began."""
        return max(self.before, self.source_time)

    @property
    def skew(self) -> timedelta:
        """How far the source's clock is behind ours, at least; negative if it is ahead."""
        if self.source_time < min(self.before, self.after):
            return self.before - self.source_time
        return min(max(self.before, self.after) - self.source_time, timedelta())


def step_back(history: Sequence[Fence], new: Fence) -> ClockStep | None:
    """The step that *new* shows after *history*, which is in order; None if no time is rejected.

    The clocks had stepped forward by the size of this step back. The rejected times begin where the
    history has a step of that size, or at its start if it shows none.
    """
    if not history or new.at >= history[-1].at:
        return None
    last, size = history[-1], history[-1].at - new.at
    usual = min((b.at - a.at for a, b in pairwise(history[-_RECENT:])), default=timedelta())
    first = history[0]
    for earlier, later in reversed(tuple(pairwise(history))):
        if later.at - earlier.at >= size + usual:  # so the earlier one is not above the new time
            first = later
            break
    return ClockStep(new.source, first.number, new.number, first.at, last.at, new.at)


def has_passed(since: datetime, pause: timedelta, now: datetime) -> bool:
    """Whether *pause* has passed, or *since* is in the future; a clock set back delays nothing."""
    return not timedelta() <= now - since < pause


BEHIND = timedelta(seconds=2)


def is_behind(now: datetime, fences: Sequence[Fence]) -> bool:
    """Whether our clock went back: a fence has the earlier of two clocks, so none is later.

    A small difference is allowed, because each fence is at least a microsecond after the one
    before.
    """
    return bool(fences) and fences[-1].at - now > BEHIND


def redate(
    value: Any, until: datetime, now: datetime, claims: Collection[str] = (), *, claim: bool = False
) -> Any:
    """Replace with *now* each instant of the JSON *value* that is after *now* and up to *until*.

    Our clock was ahead, up to *until*, when it wrote them, and it is right *now*. An instant that a
    check waits for becomes *now*, the latest possible. A time at which something was seen is
    unknown now: such a *claim*, and all within a member of *claims*, becomes None. Only instants
    that `isoformat` wrote in UTC count.
    """
    if isinstance(value, Mapping):
        return {
            name: redate(one, until, now, claims, claim=claim or name in claims)
            for name, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [redate(one, until, now, claims, claim=claim) for one in value]
    if isinstance(value, str) and _OWN_INSTANT.fullmatch(value):
        ahead = now < datetime.fromisoformat(value) <= until
        return (None if claim else now.isoformat()) if ahead else value
    return value


def in_order(fences: Sequence[Fence]) -> tuple[Fence, ...]:
    """Those of *fences*, ascending by number, that no fence with an earlier time follows."""
    kept: list[Fence] = []
    for fence in sorted(fences, key=lambda one: one.number, reverse=True):
        if not kept or fence.at <= kept[-1].at:
            kept.append(fence)
    return tuple(reversed(kept))


_RECENT = 60  # heartbeats that show the usual interval


_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})")
_OWN_INSTANT = re.compile(r"\d{4}-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\d(\.\d{6})?\+00:00")
_LOST_PLUS = re.compile(r".*\d{2}:\d{2}:\d{2}(\.\d+)? \d{2}:\d{2}")


def parse_cut(text: str, zone: ZoneInfo, now: datetime, name: str = "cut") -> datetime:
    """Instant, in UTC, that *text* means: a date, an RFC 3339 instant with offset, or ``now``.

    *name* is that of the parameter, for errors. A date means the end of that day in *zone*;
    everything committed before it belongs to the day.

    Raises:
        ConfigError: the text has no such form, or no such day or instant exists.
    """
    if text == "now":
        return now.astimezone(UTC)
    try:
        if _DAY.fullmatch(text):
            return day_end(date.fromisoformat(text), zone)
        if _INSTANT.fullmatch(text):
            return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        message = f"no such {name} {text!r}: {error}"
        raise ConfigError(message) from error
    hint = "; send '+' as %2B in a URL" if _LOST_PLUS.fullmatch(text) else ""
    message = (
        f"bad {name} {text!r}: give a date (2026-03-29, the end of that day in {zone.key}), "
        f"an instant with its offset (2026-03-29T18:00:00+08:00), or 'now'{hint}"
    )
    raise ConfigError(message)


def day_end(day: date, zone: ZoneInfo) -> datetime:
    """First instant, in UTC, that no longer belongs to *day* in *zone*.

    A midnight that occurs twice ends the day the first time; one that is skipped ends it at the
    moment of the clock change (``fold=0`` gives both).
    """
    midnight = datetime.combine(day + timedelta(days=1), time(), tzinfo=zone)
    return midnight.astimezone(UTC)


def first_fence(fences: Sequence[Fence], instant: datetime) -> Fence | None:
    """The lowest-numbered of *fences*, ascending, at or after *instant*; None without one.

    A fence followed by a fence before the instant does not count, because its clock was fast. In a
    thinned history the result may be later than the first one written, which is still a proof.
    """
    found = None
    for fence in reversed(fences):
        if fence.at < instant:
            break
        found = fence
    return found


def no_zone(value: object) -> str:
    """Return why the text is not a time zone, with the nearest zone name.

    The nearest name of an abbreviation such as CEST, or of an offset, is another time.
    """
    names = available_timezones()
    asked = str(value)
    folded = {name.casefold(): name for name in names}
    close = get_close_matches(asked.casefold(), folded, n=1, cutoff=0.7)
    is_short = re.fullmatch(r"[A-Z]{2,5}", asked)
    fix = "write a name such as Europe/Berlin"
    if close and not is_short:
        fix = f"the nearest is {folded[close[0]]}"
    if re.fullmatch(r"(UTC|GMT)[+-]\d.*", asked, re.IGNORECASE):
        fix = "write the name of a region such as Europe/Berlin"
    return f"{asked!r} is not a time zone; {fix}"


FIRST_WAIT = timedelta(seconds=2)
LONGEST_WAIT = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class _Wait:
    since: datetime
    began: datetime
    pause: timedelta
    circumstances: Hashable


@dataclass(eq=False)
class Retries:
    """Tables that failed, and how long each waits for a retry; a clock set back ends the wait."""

    _waits: dict[str, _Wait] = field(default_factory=dict)

    def due(self, table: str, circumstances: Hashable, now: datetime) -> bool:
        """Whether to try *table*; *circumstances* are everything that can end its failure."""
        wait = self._waits.get(table)
        if wait is None or circumstances != wait.circumstances:
            return True
        return has_passed(wait.began, wait.pause, now)

    def failed(self, table: str, circumstances: Hashable, now: datetime) -> timedelta:
        """Delay the next try of *table*, longer each time under the same circumstances.

        Returns:
            How long it has failed, for any cause.
        """
        wait = self._waits.get(table)
        again = wait is not None and wait.circumstances == circumstances
        pause = min(wait.pause * 2, LONGEST_WAIT) if wait is not None and again else FIRST_WAIT
        since = now if wait is None else min(wait.since, now)
        self._waits[table] = _Wait(since, now, pause, circumstances)
        return now - since

    def succeeded(self, table: str) -> None:
        """Forget the failures of *table*."""
        self._waits.pop(table, None)
