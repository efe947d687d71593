"""What does a heartbeat that came through prove of all that was committed before it?

Where the log ends is noted first, then the highest heartbeat number n that is committed.  Number
n + 1 may be logged by then, and not be seen yet; n + 2 cannot be, for it waits for that row.  So
once n + 2 comes out of the topics, what stood in the log before that end was sent before it.

Whether what was sent before has *arrived* is a promise of the producer, which nobody can see:

ORDERED: all goes through one partition, in the order of the log.  Then it has arrived.
BATCHES: through several, a batch at a time: it is taken whole from the log before any of it is
sent, and all of it is acknowledged before the next is taken.  Then a heartbeat says nothing of its
own batch.  But one that was committed after it had come out stands in a later batch, and that is
sent only once all of the first has arrived: two heartbeats are waited for, the second written after
the first was seen.  A batch that failed is taken again, though, and holds more by then: where
numbers between the two do not rise one by one, the second is waited for anew.

A number that falls is a log that is sent again, and until it is made up for nothing is said: an
older row may stand where a newer one was.  Pure.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise

from pipeline.model import Acknowledged, Head, Missing

MOST = 600  # ends that wait: beyond that fewer are noted, and none is forgotten


class SendingPromise(StrEnum):
    """What the producer promises of the order in which messages arrive."""

    ORDERED = "ordered"
    BATCHES = "batches"

    @property
    def words(self) -> str:
        """For people, as part of a sentence."""
        return _WORDS[self]


_WORDS = {
    SendingPromise.ORDERED: "it sends all through one partition, in order, and stops at what it"
    " cannot send (acks=all)",
    SendingPromise.BATCHES: "it sends batch after batch, each acknowledged as a whole (acks=all)"
    " before the next is taken from the log",
}


@dataclass(frozen=True, slots=True)
class NotedEnd:
    """Where a log ended, and the highest heartbeat that was committed once that was noted."""

    head: Head
    number: int

    @property
    def after(self) -> int:
        """The lowest number that is surely in the log above it."""
        return self.number + 2


@dataclass(frozen=True, slots=True)
class _Awaited:
    """An end, the number that is waited for, and how often another one is to be, after that."""

    end: NotedEnd
    number: int | None
    more: int


@dataclass(eq=False)
class HeartbeatEvidence:
    """What is known of one source: ends that wait, and the newest one that is proven."""

    promise: SendingPromise
    highest: int = -1
    _last: int | None = None
    _waiting: deque[_Awaited] = field(default_factory=deque)
    _proven: NotedEnd | None = None
    _identity: str = ""

    def learn(self, end: NotedEnd, came: Sequence[int]) -> None:
        """Take in an *end*, and the numbers that *came* since the last one, looked for after it."""
        if end.head.identity != self._identity:  # another log: nothing of this one is known
            self._waiting.clear()
            self._proven, self._identity = None, end.head.identity
        ready = (replace(w, number=end.after) if w.number is None else w for w in self._waiting)
        self._waiting = deque(ready)
        if len(self._waiting) < MOST:
            more = 1 if self.promise is SendingPromise.BATCHES else 0
            self._waiting.append(_Awaited(end, end.after, more))
        if came:
            if not self._is_onward(came):
                self._wait_anew()
            self._last, self.highest = came[-1], max(*came, self.highest)
            self._judge(came[-1])

    def acknowledged(self, source: str) -> Acknowledged | Missing:
        """Up to where all of *source*'s log has arrived."""
        if self._last is None:
            return Missing(f"no heartbeat of source {source} has come through its topics yet")
        if self._last < self.highest:
            fell = f"heartbeat {self._last} came through behind {self.highest}"
            return Missing(f"{fell}: the log of source {source} is being sent again")
        if self._proven is None:
            return Missing(f"no heartbeat has come through yet that source {source} wrote since")
        return Acknowledged(self._proven.head.position)

    def _is_onward(self, came: Sequence[int]) -> bool:
        """Whether each is the one after the one before: else some may have been taken twice."""
        before = came[0] - 1 if self._last is None else self._last
        return all(one + 1 == after for one, after in pairwise((before, *came)))

    def _wait_anew(self) -> None:
        """By batches, for the second heartbeat: the first batch may have been taken again."""
        if self.promise is SendingPromise.BATCHES:
            kept = (w if w.more else replace(w, number=None) for w in self._waiting)
            self._waiting = deque(kept)

    def _judge(self, seen: int) -> None:
        left = deque[_Awaited]()
        for one in self._waiting:
            if one.number is None or one.number > seen:
                left.append(one)
            elif one.more:
                left.append(replace(one, number=None, more=one.more - 1))
            else:
                self._proven = one.end
        self._waiting = left
