"""What becomes of a question that waits at the gate?  It is asked anew, once for all who ask it.

Each turn, a second, one thread goes through all that wait and finds those whose answer may be yes
by now: a few at once, behind questions that are new.  The others are asked in turn all the same,
as something else may have closed them.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

import structlog
from anyio import CapacityLimiter, to_thread

from monitor.right_of_way import RightOfWay
from pipeline.errors import UnreachableError

AGAIN = 1.0  # s from turn to turn
SEEN = 1.0  # s after which whoever waits is looked for again
GRACE = 1.0  # s that one whose time is over waits for its last answer
MOST = 200  # asked a turn: with a millisecond of work each, a fifth of the time
FEWEST, TURNS = 20, 30  # asked a turn whatever they hope for, so that all are in so many
MOST_WAITING = 1_000  # requests; each keeps a connection that health checks need, too
AT_ONCE = 4  # one whose mirror does not answer must not keep the others from theirs
Q = TypeVar("Q", bound=Hashable)
A = TypeVar("A")
log = structlog.get_logger(__name__)


async def stays() -> bool:
    """Nobody is known to have gone."""
    return False


class RoomFullError(UnreachableError):
    """Too many wait already; the same question without a wait is answered."""


@dataclass(eq=False)
class WaitingRoom(Generic[Q, A]):
    """``ask`` answers a question, in a thread; to be used from one event loop.

    ``hopeful`` are those of many questions that are worth asking; ``closing`` is whether nobody
    may wait any longer.  At most ``most`` requests wait at once.
    """

    ask: Callable[[Q], A]
    way: RightOfWay
    hopeful: Callable[[Sequence[Q]], Sequence[Q]] = tuple
    closing: Callable[[], bool] = lambda: False
    most: int = MOST_WAITING
    _waiters: int = 0
    _waiting: dict[Q, asyncio.Future[A]] = field(default_factory=dict)  # who waits longest is first
    _asked: dict[Q, asyncio.Task[A]] = field(default_factory=dict)
    _turns: asyncio.Task[None] | None = None
    _limit: CapacityLimiter | None = None

    async def next(
        self,
        question: Q,
        within: float | None = None,
        gone: Callable[[], Awaitable[bool]] = stays,
    ) -> A | None:
        """The next answer to *question*, which all get who wait for it; in *within* seconds.

        None if there is none by then, nor shortly after it was asked for the last time; and for one
        who has *gone*, whose place is free.

        Raises:
            RoomFullError: ``most`` wait already.
        """
        if self._waiters >= self.most:
            raise RoomFullError(
                f"{self._waiters} requests wait at the gate already; ask again later"
            )
        self._waiters += 1
        try:
            return await self._next(question, within, gone)
        finally:
            self._waiters -= 1

    async def _next(
        self, question: Q, within: float | None, gone: Callable[[], Awaitable[bool]]
    ) -> A | None:
        if question not in self._waiting:
            self._waiting[question] = asyncio.get_running_loop().create_future()
        answer = self._waiting[question]
        if self._turns is None or self._turns.done():
            self._turns = asyncio.create_task(self._turn_by_turn())
        clock = asyncio.get_running_loop().time
        until = math.inf if within is None else clock() + within
        while not answer.done() and (left := until - clock()) > 0:
            await asyncio.wait({answer}, timeout=min(left, SEEN))
            if not answer.done() and await gone():
                return None
        if not answer.done():
            self._begin(question)
            await asyncio.wait({answer}, timeout=GRACE)
        return answer.result() if answer.done() else None

    async def _turn_by_turn(self) -> None:
        while self._waiting:
            await asyncio.sleep(AGAIN)
            for question in await self._due():
                self._begin(question)

    async def _due(self) -> Sequence[Q]:
        waiting = [question for question in self._waiting if question not in self._asked]
        if self.closing():
            return waiting
        anyway = waiting[: max(FEWEST, len(self._waiting) // TURNS)]
        rest = waiting[len(anyway) :]
        hopeful = await to_thread.run_sync(self._hopeful, rest) if rest else ()
        return [*anyway, *hopeful[: max(0, MOST - len(self._asked))]]

    def _hopeful(self, questions: Sequence[Q]) -> Sequence[Q]:
        self.way.give()
        try:
            return self.hopeful(questions)
        except Exception:  # the boundary of one turn: whoever waits is asked all the same
            log.exception("hope_unknown", waiting=len(questions))
            return ()

    def _begin(self, question: Q) -> None:
        if question in self._waiting and question not in self._asked:
            task = self._asked[question] = asyncio.create_task(self._answer(question))
            task.add_done_callback(partial(self._tell, question))

    async def _answer(self, question: Q) -> A:
        if self._limit is None:
            self._limit = CapacityLimiter(AT_ONCE)
        return await to_thread.run_sync(partial(self._ask, question), limiter=self._limit)

    def _tell(self, question: Q, asked: asyncio.Task[A]) -> None:
        """Pass on the answer, or what is wrong with the question, to those who wait for it."""
        del self._asked[question]
        answer = self._waiting.pop(question)
        if asked.cancelled():
            answer.cancel()
        elif error := asked.exception():
            answer.set_exception(error)
            answer.exception()  # there may be nobody left to hear it
        else:
            answer.set_result(asked.result())

    def _ask(self, question: Q) -> A:
        self.way.give()
        return self.ask(question)
