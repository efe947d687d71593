"""Is a number out of the ordinary?  A robust band from its own past: median and MAD.

Outliers of the past do not widen the band, and a band is never narrower than chance: counts that
come one by one scatter by the root of their number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import sqrt
from statistics import median

FOUR_WEEKS = timedelta(weeks=4)
NORMAL = 1.4826  # MAD of a normal distribution times this is its standard deviation


@dataclass(frozen=True, slots=True)
class Band:
    """What is ordinary: ``low`` to ``high``, both included, around ``middle``."""

    low: float
    middle: float
    high: float


def band(past: Sequence[float], *, width: float, slack: float) -> Band:
    """The band of *width* deviations, at least *slack* of the median wide to each side.

    *past* must not be empty.
    """
    middle = median(past)
    spread = NORMAL * median(abs(each - middle) for each in past)
    reach = max(width * max(spread, sqrt(max(middle, 1.0))), slack * middle)
    return Band(max(middle - reach, 0.0), middle, middle + reach)


@dataclass(frozen=True, slots=True)
class Interval:
    """Changes counted in the interval that began at ``start``, local time."""

    start: datetime
    count: float


def comparable(history: Sequence[Interval], start: datetime) -> tuple[float, ...]:
    """Counts before *start* at its hour of the day; of its weekday, given four weeks of history.

    *history* is ascending.  Weekdays need history: with less, every day is compared alike.
    """
    own = [each for each in history if each.start < start and each.start.hour == start.hour]
    if own and start - own[0].start >= FOUR_WEEKS:
        own = [each for each in own if each.start.weekday() == start.weekday()]
    return tuple(each.count for each in own)


def awaited(history: Sequence[Interval], needed: int) -> float:
    """Changes that were to be expected since the last one, by the median of each quiet interval.

    A slow table may have an empty interval by chance; a long run of them adds up.
    """
    total = 0.0
    for each in reversed(history):
        past = comparable(history, each.start)
        if each.count or len(past) < needed:
            break
        total += median(past)
    return total
