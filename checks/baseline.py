"""Finds numbers out of the ordinary, by a robust range from their own past: median and MAD.

Outliers of the past do not widen the band, and a band is never narrower than chance: counts that
come one by one scatter by the root of their number.  Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import sqrt
from statistics import median

WEEKS = 4
HOUR, DAY, WEEK = timedelta(hours=1), timedelta(days=1), timedelta(weeks=1)
FOUR_WEEKS = WEEKS * WEEK
NORMAL = 1.4826  # MAD of a normal distribution times this is its standard deviation


@dataclass(frozen=True, slots=True)
class UsualRange:
    """What is ordinary: ``low`` to ``high``, both included, around ``middle``."""

    low: float
    middle: float
    high: float


def usual_range_of(past: Sequence[float], *, width: float, slack: float) -> UsualRange:
    """The band of *width* deviations, at least *slack* of the median wide to each side.

    *past* must not be empty.
    """
    middle = median(past)
    spread = NORMAL * median(abs(each - middle) for each in past)
    reach = max(width * max(spread, sqrt(max(middle, 1.0))), slack * middle)
    return UsualRange(max(middle - reach, 0.0), middle, middle + reach)


@dataclass(frozen=True, slots=True)
class CountedInterval:
    """Changes counted in the interval that began at ``start``, local time."""

    start: datetime
    count: float


@dataclass(frozen=True, slots=True)
class Past:
    """Counts to compare with, oldest first; ``weekday`` says that all are of one weekday."""

    counts: tuple[float, ...]
    weekday: bool = False


def comparable_counts(history: Sequence[CountedInterval], start: datetime) -> Past:
    """Counts before *start* at its hour; of its weekday once four weeks hold four of them.

    *history* is ascending.
    """
    own = [each for each in history if each.start < start and each.start.hour == start.hour]
    same = [each.count for each in own if each.start.weekday() == start.weekday()]
    if own and start - own[0].start >= FOUR_WEEKS and len(same) >= WEEKS:
        return Past(tuple(same), weekday=True)
    return Past(tuple(each.count for each in own))


def most_comparable(interval: timedelta, weeks: int) -> int:
    """How many counts *weeks* of intervals have for one hour of the day, at most."""
    if interval > DAY:
        return weeks * WEEK // interval
    return weeks * (WEEK // DAY) * max(HOUR // interval, 1)


def usual_range(past: Past, *, width: float, slack: float) -> UsualRange:
    """The band of *past*, which must not be empty.

    While weekdays are mixed, any number seen before is ordinary, and what chance makes of it: else
    each first Saturday would be a fault, and each second one that is a little lower.
    """
    found = usual_range_of(past.counts, width=width, slack=slack)
    if past.weekday:
        return found
    least, most = min(past.counts), max(past.counts)
    low = min(found.low, max(least - width * sqrt(max(least, 1.0)), 0.0))
    return UsualRange(low, found.middle, max(found.high, most + width * sqrt(max(most, 1.0))))


def expected_changes(history: Sequence[CountedInterval], needed: int) -> float:
    """Changes that were to be expected since the last one: of each quiet interval the usual ones.

    A slow table may have an empty interval by chance; a long run of them adds up.
    """
    if not any(each.count for each in history):
        return 0.0  # always idle: the usual case among thousands of tables
    total = 0.0
    hours: dict[int, list[CountedInterval]] = {}
    for each in history:
        hours.setdefault(each.start.hour, []).append(each)
    for each in reversed(history):
        past = comparable_counts(hours[each.start.hour], each.start)
        if each.count or not has_enough_history(past, needed):
            break
        total += median(past.counts) if past.weekday else min(past.counts)
    return total


@dataclass(frozen=True, slots=True)
class SilentPeriod:
    """Intervals without a change: those since the last one, and the most of any time before.

    ``active`` counts the days on which there were changes.
    """

    now: int = 0
    before: int = 0
    active: int = 0


def silent_period(history: Sequence[CountedInterval]) -> SilentPeriod:
    """How long *history*, ascending, has been quiet, and was before; what was not seen is left out.

    A table with few changes has an empty interval most of the time, so that no interval is out of
    the ordinary when it stops: only the length of its silence is.
    """
    before, now, days = 0, 0, set()
    for each in history:
        if each.count:
            days.add(each.start.date())
            before, now = max(before, now), 0
        else:
            now += 1
    return SilentPeriod(now, before if days else 0, len(days))


def trim_history(
    history: Sequence[CountedInterval], span: timedelta, more: int
) -> tuple[tuple[CountedInterval, ...], int]:
    """What is kept of *history*, ascending, whose newest interval is new: a *span* of it.

    A table that has stopped keeps what it was before its last change: else its silence would be its
    usual one day.  Of that a *span* is kept, and the rest counted, with the *more* that were so
    before.
    """
    newest = history[-1]
    last = next((each for each in reversed(history) if each.count), newest)
    kept = tuple(each for each in history if each.start >= last.start - span)
    if newest.start - last.start > span:
        return kept[:-1], more + 1
    return kept, 0


def has_enough_history(past: Past, needed: int) -> bool:
    """Whether *past* is a history: *needed* counts, or four weeks of one weekday."""
    return past.weekday or len(past.counts) >= needed
