"""Do Sluice's clock and a source's agree, and which heartbeats fall when they are set back?

A heartbeat bears the earlier of both clocks' times, so one clock that is wrong makes an answer
late, never wrong.  Where both show less than the heartbeat before bears, both were fast: since when
is told by the leap forward with which that began.  Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from pipeline.model import Fence


@dataclass(frozen=True, slots=True)
class ClockStep:
    """Heartbeat ``number`` of ``source`` bears ``after``, and the one before it bore ``before``.

    Those from ``first``, of ``since``, up to, and without, ``number`` bear times that nobody can
    believe.
    """

    source: str
    first: int
    number: int
    since: datetime
    before: datetime
    after: datetime

    @property
    def id(self) -> str:
        """What ``sluice waive`` takes once a person knows that the clocks are right."""
        return f"clock:{self.source}:{self.number}"

    @property
    def size(self) -> timedelta:
        """How far the clocks went back, at least."""
        return self.before - self.after

    def fells(self, fence: Fence) -> bool:
        """Whether the time of *fence* cannot be believed."""
        return fence.source == self.source and self.first <= fence.number < self.number


@dataclass(frozen=True, slots=True)
class ClockReading:
    """What a source ``told`` of its clock between ``before`` and ``after``, which ours showed."""

    before: datetime
    told: datetime
    after: datetime

    @property
    def earlier(self) -> datetime:
        """The earlier of both clocks, as the heartbeat began."""
        return min(self.before, self.told)

    @property
    def later(self) -> datetime:
        """The later of both."""
        return max(self.before, self.told)

    @property
    def skew(self) -> timedelta:
        """How far the source's clock is behind ours, at least; negative if it is ahead."""
        if self.told < min(self.before, self.after):
            return self.before - self.told
        return min(max(self.before, self.after) - self.told, timedelta())


def step_back(history: Sequence[Fence], new: Fence) -> ClockStep | None:
    """What *new* shows of the *history* before it, which is in order; None if nothing fell.

    The clocks leapt forward by what they went back now: where the history leaps as far, or is too
    thin to tell, the wrong times begin.
    """
    if not history or new.at >= history[-1].at:
        return None
    last, size = history[-1], history[-1].at - new.at
    usual = min((b.at - a.at for a, b in pairwise(history[-_RECENT:])), default=timedelta())
    first = history[0]
    for earlier, later in reversed(tuple(pairwise(history))):
        if later.at - earlier.at >= size + usual:  # so the earlier is not above what came now
            first = later
            break
    return ClockStep(new.source, first.number, new.number, first.at, last.at, new.at)


def over(since: datetime, pause: timedelta, now: datetime) -> bool:
    """Whether *pause* has passed, or *since* lies ahead: a clock set back keeps nobody waiting."""
    return not timedelta() <= now - since < pause


def in_order(fences: Sequence[Fence]) -> tuple[Fence, ...]:
    """Those of *fences*, ascending by number, after which none of an earlier time comes."""
    kept: list[Fence] = []
    for fence in sorted(fences, key=lambda one: one.number, reverse=True):
        if not kept or fence.at <= kept[-1].at:
            kept.append(fence)
    return tuple(reversed(kept))


_RECENT = 60  # heartbeats that tell how far apart they usually are
