"""Which tables does somebody want to be complete now?  Those wait for no merge cycle."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pipeline.clocks import over

REMEMBERED = timedelta(minutes=2)  # a job that polls asks again before that


@dataclass(eq=False)
class WantedTables:
    """Asked for from any thread, forgotten after a while unless they are asked for again."""

    clock: Callable[[], datetime]
    _asked: dict[str, datetime] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def want(self, tables: Iterable[str]) -> None:
        """Somebody waits for *tables*."""
        now = self.clock()
        with self._turn:
            asked = {**self._asked, **dict.fromkeys(tables, now)}
            self._asked = {n: at for n, at in asked.items() if not over(at, REMEMBERED, now)}

    def __call__(self) -> frozenset[str]:
        """Those that somebody waits for."""
        now, asked = self.clock(), self._asked
        return frozenset(name for name, at in asked.items() if not over(at, REMEMBERED, now))
