"""What does a heartbeat that came through prove of all that was committed before it?

Where the log ends is noted first, then the highest heartbeat number n that is committed.  The next
one above n may be logged by then, and not be seen yet; the one after that cannot be, for it waits
for that row.  So once two above n have come out of the topics, what stood in the log before that
end was sent before the second.  Not once n + 2 has: after a restore, or a fail-over to a server
that lacks some, numbers leap.  There some above n may also be of the log before: so where a server
is new, nothing is waited for until its own number has risen; those of the log before are below it.

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


@dataclass(frozen=True, slots=True)
class _Awaited:
    """An end, of which two heartbeats above ``above`` are waited for, and ``more`` times again.

    ``above`` is None until the next end is noted; ``first`` is the one that came of the two.
    """

    end: NotedEnd
    above: int | None
    more: int
    first: int | None = None

    def after(self, number: int, first: int | None) -> "_Awaited":
        """Waiting for two above *number*, which is committed; *first* of them came before."""
        return self if self.above is not None else replace(self, above=number, first=first)

    def anew(self, more: int) -> "_Awaited":
        """For two above what is committed by the next look."""
        return _Awaited(self.end, None, more)

    def seeing(self, number: int) -> "_Awaited | None":
        """With one more that came; None once it is proven."""
        if self.above is None or number <= (self.above if self.first is None else self.first):
            return self
        if self.first is None:
            return replace(self, first=number)
        return self.anew(self.more - 1) if self.more else None


@dataclass(eq=False)
class HeartbeatEvidence:
    """What is known of one source: ends that wait, and the newest one that is proven."""

    promise: SendingPromise
    highest: int = -1
    _last: int | None = None
    _waiting: deque[_Awaited] = field(default_factory=deque)
    _proven: NotedEnd | None = None
    _begun: NotedEnd | None = None
    _newest: NotedEnd | None = None

    def learn(self, end: NotedEnd, came: Sequence[int]) -> None:
        """Take in an *end*, and the numbers that *came* since the last one, looked for after it."""
        if self._is_of_another_log(end):
            self._waiting.clear()
            self._proven, self._begun = None, end
        self._newest = end
        if len(self._waiting) < MOST:
            more = 1 if self.promise is SendingPromise.BATCHES else 0
            self._waiting.append(_Awaited(end, None, more))
        if self._begun is not None and end.number > self._begun.number:
            first = self.highest if self.highest > end.number else None
            self._waiting = deque(w.after(end.number, first) for w in self._waiting)
        if came:
            if not self._is_onward(came):
                self._wait_anew()
            self._last, self.highest = came[-1], max(*came, self.highest)
            self._judge(came)

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

    def _is_of_another_log(self, end: NotedEnd) -> bool:
        """Of another server, or of one that was restored: nothing of it is known."""
        before = self._newest
        if before is None or end.head.identity != before.head.identity:
            return True
        return end.number < before.number

    def _is_onward(self, came: Sequence[int]) -> bool:
        """Whether each is the one after the one before: else some may have been taken twice."""
        before = came[0] - 1 if self._last is None else self._last
        return all(one + 1 == after for one, after in pairwise((before, *came)))

    def _wait_anew(self) -> None:
        """By batches, for the second heartbeat: the first batch may have been taken again."""
        if self.promise is SendingPromise.BATCHES:
            self._waiting = deque(w if w.more else w.anew(0) for w in self._waiting)

    def _judge(self, came: Sequence[int]) -> None:
        left = deque[_Awaited]()
        for one in self._waiting:
            awaited: _Awaited | None = one
            for number in came:
                awaited = awaited and awaited.seeing(number)
            if awaited is None:
                self._proven = one.end
            else:
                left.append(awaited)
        self._waiting = left
