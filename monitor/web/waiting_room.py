"""What becomes of a question that waits at the gate?  It is asked anew, once for all who ask it.

Every second, or less often where so many wait that they would take more than a part of the time;
a few at once, behind questions that are new.
"""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from anyio import CapacityLimiter, to_thread

from monitor.right_of_way import RightOfWay

AGAIN = 1.0  # s from an answer to the next
EACH = 0.005  # s for each that waits: with a millisecond of work each, a fifth of the time
AT_ONCE = 8  # one whose mirror does not answer must not keep the others from theirs
Q = TypeVar("Q", bound=Hashable)
A = TypeVar("A")


@dataclass(eq=False)
class WaitingRoom(Generic[Q, A]):
    """``ask`` answers a question, in a thread; to be used from one event loop."""

    ask: Callable[[Q], A]
    way: RightOfWay
    _turns: dict[Q, asyncio.Task[A]] = field(default_factory=dict)
    _limit: CapacityLimiter | None = None

    async def next(self, question: Q) -> A:
        """The next answer to *question*, which all get who wait for it."""
        turn = self._turns.get(question)
        if turn is None:
            turn = self._turns[question] = asyncio.create_task(self._turn(question))
        return await asyncio.shield(turn)

    async def _turn(self, question: Q) -> A:
        try:
            await asyncio.sleep(max(AGAIN, EACH * len(self._turns)))
            if self._limit is None:
                self._limit = CapacityLimiter(AT_ONCE)
            return await to_thread.run_sync(partial(self._ask, question), limiter=self._limit)
        finally:
            del self._turns[question]

    def _ask(self, question: Q) -> A:
        self.way.give()
        return self.ask(question)
