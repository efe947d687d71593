"""Which tables does somebody want to be complete now?  Those wait for no merge cycle."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pipeline.clocks import over

REMEMBERED = timedelta(minutes=2)  # a job that polls asks again before that


@dataclass(eq=False)
class WantedTables:
    """Asked for from any thread, forgotten once met, or after a while unless asked for again."""

    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    _wishes: dict[str, tuple[datetime, datetime]] = field(default_factory=dict)  # asked, cut
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def want(self, tables: Iterable[str], cut: datetime) -> None:
        """Somebody waits until *tables* are complete up to *cut*."""
        now = self.clock()
        with self._turn:
            left = {n: one for n, one in self._wishes.items() if not over(one[0], REMEMBERED, now)}
            for name in tables:
                _, latest = left.get(name, (now, cut))
                left[name] = (now, max(latest, cut))
            self._wishes = left

    def meet(self, tables: Iterable[str], cut: datetime) -> None:
        """*tables* are complete up to *cut*: nobody who asked for that waits any more."""
        if not self._wishes:
            return
        met = set(tables)
        with self._turn:
            self._wishes = {
                name: (asked, latest)
                for name, (asked, latest) in self._wishes.items()
                if name not in met or latest > cut
            }

    def __call__(self) -> frozenset[str]:
        """Those that somebody waits for."""
        now, wishes = self.clock(), self._wishes
        return frozenset(n for n, (asked, _) in wishes.items() if not over(asked, REMEMBERED, now))
