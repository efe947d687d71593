"""What is known right now, at most so old?  Shared by the watching round and every gate decision.

Samples are taken once for all who ask at the same time.  Their own age budgets decide whether an
answer may rest on them; this only keeps a thousand questions from becoming a thousand samplings.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol

from monitor.observe.roster import Roster
from monitor.observe.sampler import Sampler, Sampling
from pipeline.lags.steps import LandedBatch, extended, step
from pipeline.mark import Mark
from pipeline.model import Missing


class MarkStore(Protocol):
    """Where marks are kept for later questions."""

    def add(self, mark: Mark, at: datetime) -> object:
        """Keep one; a known batch stays as it was."""
        ...


@dataclass(eq=False)
class Watcher:
    """The newest look, taken again when it is older than who asks can bear."""

    sampler: Sampler
    roster: Roster
    marks: MarkStore
    clock: Callable[[], datetime]
    _look: Sampling = field(default_factory=Sampling.nothing)
    _steps: tuple[LandedBatch, ...] = ()
    _batch: int = -1
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def look(self, patience: timedelta) -> Sampling:
        """A look that began at most *patience* ago; it is taken now if there is none."""
        with self._turn:
            if self.clock() - self._look.at > patience:
                self._look = self._take()
            if {table.name for table in self.roster.tables()} - self._look.mirrors.keys():
                self._look = self._take()  # tables that the look before has brought
            return self._look

    def _take(self) -> Sampling:
        look = self.sampler.look(self.roster.tables())
        if isinstance(look.mark, Missing):
            return replace(look, steps=self._steps)
        mark = look.mark.value
        fences = {name: one.known() for name, one in look.sources.items()}
        self._steps = extended(self._steps, step(mark, fences))
        if mark.batch != self._batch:
            self.marks.add(mark, look.mark.at)
            self._batch = mark.batch
        self.roster.update(mark)
        return replace(look, steps=self._steps)
