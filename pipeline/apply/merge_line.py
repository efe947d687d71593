"""Who merges tables of which tier?  A line of passes, and one mirror's upkeep between two of them.

Mirrors of a line, and what is known of them, belong to whoever has its turn: a pass, or the upkeep
of one mirror.  Lines share nothing that waits, so a long pass in one delays no pass in another.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from pipeline.apply.landed_state import LandedState
from pipeline.apply.passes import Passes

Serves = Callable[[int], bool]


def every_tier(_: int) -> bool:
    """All tables are of this line."""
    return True


def urgent(tier: int) -> bool:
    """Tier 0."""
    return tier == 0


def patient(tier: int) -> bool:
    """All others."""
    return not urgent(tier)


@dataclass(eq=False)
class MergeLine:
    """``passes`` over the mirrors of tables whose tier it ``serves``, in Spark's pool ``name``."""

    name: str
    passes: Passes
    serves: Serves = every_tier
    _mirrors: threading.Lock = field(default_factory=threading.Lock)
    _next: threading.Lock = field(default_factory=threading.Lock)
    _own: tuple[LandedState, LandedState] | None = None

    @contextmanager
    def turn(self, within: timedelta | None = None) -> Iterator[bool]:
        """Have the mirrors to oneself; who waits comes next, whoever had them last.

        False where they were not to be had *within* that time.
        """
        seconds = -1 if within is None else within.total_seconds()
        with self._next:
            mine = self._mirrors.acquire(timeout=seconds)
        try:
            yield mine
        finally:
            if mine:
                self._mirrors.release()

    def own(self, landed: LandedState) -> LandedState:
        """What of *landed* concerns the tables of this line; worked out once for each batch."""
        if self.serves is every_tier:
            return landed
        if self._own is None or self._own[0] is not landed:
            self._own = landed, landed.served(self.serves)
        return self._own[1]
