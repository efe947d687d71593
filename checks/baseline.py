"""Finds unusual numbers, by a robust range around the median of past numbers, with MAD as width.

Past outliers do not widen the range. The range is never narrower than random scatter: the standard
deviation of independent events is the square root of their number.  Pure.
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
    """The usual values: ``low`` to ``high``, both included, around ``middle``."""

    low: float
    middle: float
    high: float


def usual_range_of(past: Sequence[float], *, width: float, slack: float) -> UsualRange:
    """Return the range of *width* standard deviations around the median of *past*.

    It reaches at least *slack* times the median to each side.  *past* must not be empty.
    """
    middle = median(past)
    spread = NORMAL * median(abs(each - middle) for each in past)
    reach = max(width * max(spread, sqrt(max(middle, 1.0))), slack * middle)
    return UsualRange(max(middle - reach, 0.0), middle, middle + reach)


@dataclass(frozen=True, slots=True)
class CountedInterval:
    """Number of changes in the interval that began at ``start``, local time."""

    start: datetime
    count: float


@dataclass(frozen=True, slots=True)
class Past:
    """Counts to compare with, oldest first; ``weekday``: all are of the same weekday."""

    counts: tuple[float, ...]
    weekday: bool = False


def comparable_counts(history: Sequence[CountedInterval], start: datetime) -> Past:
    """Return the counts before *start* at the same hour of the day.

    Once the history covers four weeks with four counts of the same weekday, returns only those.
    *history* is ascending.
    """
    own = [each for each in history if each.start < start and each.start.hour == start.hour]
    same = [each.count for each in own if each.start.weekday() == start.weekday()]
    if own and start - own[0].start >= FOUR_WEEKS and len(same) >= WEEKS:
        return Past(tuple(same), weekday=True)
    return Past(tuple(each.count for each in own))


def most_comparable(interval: timedelta, weeks: int) -> int:
    """Return the most counts that *weeks* of intervals can have for one hour of the day."""
    if interval > DAY:
        return weeks * WEEK // interval
    return weeks * (WEEK // DAY) * max(HOUR // interval, 1)


def usual_range(past: Past, *, width: float, slack: float) -> UsualRange:
    """Return the usual range of *past*, which must not be empty.

    While weekdays are mixed, the range includes every number seen before, with its random scatter.
    Otherwise the first Saturday would be a fault, and so would a slightly lower second one.
    """
    found = usual_range_of(past.counts, width=width, slack=slack)
    if past.weekday:
        return found
    least, most = min(past.counts), max(past.counts)
    low = min(found.low, max(least - width * sqrt(max(least, 1.0)), 0.0))
    return UsualRange(low, found.middle, max(found.high, most + width * sqrt(max(most, 1.0))))


def expected_changes(history: Sequence[CountedInterval], needed: int) -> float:
    """Return how many changes were expected since the last one: the usual number per interval.

    The usual number is the median for one weekday, else the minimum. A slow table may have an empty
    interval by chance, but over a long silence the sum grows.
    """
    if not any(each.count for each in history):
        return 0.0  # always idle, the most frequent case with thousands of tables
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
    """Intervals without a change: ``now`` since the last change, ``before`` in the longest run.

    ``active`` counts the days with changes.
    """

    now: int = 0
    before: int = 0
    active: int = 0


def silent_period(history: Sequence[CountedInterval]) -> SilentPeriod:
    """Return for how many intervals *history*, ascending, is quiet, and was before.

    Intervals that are not in *history* do not count. For a table with few changes most intervals
    are empty. When it stops, no single interval is unusual, only the length of the silence.
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
    """Drop old intervals of *history*, ascending, after one interval was added.

    Keeps a *span* before the last change, so a silent table keeps the history of its active time.
    Otherwise its silence would become usual one day. Once the silence is longer than *span*, the
    newest interval is not kept but counted. Returns the kept intervals, and how many were only
    counted: *more* plus this one, or 0.
    """
    newest = history[-1]
    last = next((each for each in reversed(history) if each.count), newest)
    kept = tuple(each for each in history if each.start >= last.start - span)
    if newest.start - last.start > span:
        return kept[:-1], more + 1
    return kept, 0


def has_enough_history(past: Past, needed: int) -> bool:
    """Whether *past* is long enough: *needed* counts, or four weeks of one weekday."""
    return past.weekday or len(past.counts) >= needed
