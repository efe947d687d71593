"""Has more time passed since the cut than a change needs to get here?  The sum rule, by clocks.

One missing, frozen or negative lag makes the sum unknown; it is never taken for 0.  Pure.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from checks.model import Reason
from pipeline.lags.lag import Lags
from pipeline.model import Missing, Stage


@dataclass(frozen=True, slots=True)
class Sum:
    """``holds`` is None when a lag is missing; ``eta`` assumes that the lags stay as they are."""

    holds: bool | None
    reasons: tuple[Reason, ...] = ()
    eta: datetime | None = None


def add_up(stage: Stage, cut: datetime, lags: Lags, margin: timedelta) -> Sum:
    """Whether the time since *cut* is above the lags' sum up to *stage* and *margin*."""
    total = lags.total(stage)
    if isinstance(total, Missing):
        return Sum(None, (Reason("lag_unknown", total.why),))
    passed = lags.at - cut
    eta = max(lags.at, cut + total + margin)
    if passed > total + margin:
        return Sum(True, (), eta)
    if passed < timedelta():
        return Sum(False, (Reason("late", f"the cut is {-passed} ahead"),), eta)
    text = f"{_seconds(passed)} since the cut, lags sum to {_seconds(total)}"
    return Sum(False, (Reason("late", f"{text}, margin {_seconds(margin)}"),), eta)


def _seconds(length: timedelta) -> str:
    return f"{length.total_seconds():.1f} s"
