"""Gives requests priority over long computations, such as a monitoring round.

The interpreter runs one thread at a time. Without priority, a request would wait for the
interpreter again and again while a round computes. Long computations yield between two items.
In sum they wait no longer than they work, so a round takes at most twice as long, however many
requests come.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

MOST = 0.1  # s: for so long at once, by what was worked before


@dataclass(eq=False)
class RightOfWay:
    """``asked`` is whether somebody is being answered now."""

    clock: Callable[[], float] = time.monotonic
    _asking: int = 0
    _credit: float = MOST
    _since: float | None = None
    _turn: threading.Condition = field(default_factory=threading.Condition)

    @property
    def asked(self) -> bool:
        """Whether who works through many things should give way soon."""
        return self._asking > 0

    @contextmanager
    def first(self) -> Iterator[None]:
        """Go before everybody that gives way."""
        with self._turn:
            self._asking += 1
        try:
            yield
        finally:
            with self._turn:
                self._asking -= 1
                if not self._asking:
                    self._turn.notify_all()

    def give(self) -> None:
        """Wait until nobody is being answered, as long as that may take."""
        if not self._asking:
            return
        with self._turn:
            began = self.clock()
            worked = MOST if self._since is None else began - self._since
            self._credit = min(self._credit + worked, MOST)
            self._turn.wait_for(lambda: not self._asking, self._credit)
            self._since = self.clock()
            self._credit = max(self._credit - (self._since - began), 0.0)
