"""Computes a lower bound of the time until retention deletes unread data.

Topics and binary logs are kept for a time; an unread record is at most as old as the last instant
up to which all is known to be read. Limits of size and compaction may delete earlier, which is not
foreseen. The exception is a log that is kept for its collector by size alone: it is judged by how
fast it grows. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from pipeline.checkpoint import Checkpoint
from pipeline.model import Acknowledged, Fence, Missing, PartitionEnd, TopicPartition
from pipeline.sources.positions import has_reached
from pipeline.sources.source import LogBacklog

FOR_EVER = timedelta(days=100 * 365)  # a longer retention counts as endless
ENOUGH = timedelta(hours=6)

Limit = timedelta | None | Missing
"""How long something is kept; None without a limit, Missing if unknown."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The retention of a topic or of a source log, by ``kind`` and ``name``.

    ``through`` is an instant up to which all of it was read; None if none is known. ``backlog`` is
    the measurement in bytes that it is computed from, if any.
    """

    kind: str
    name: str
    kept: Limit
    through: datetime | None
    backlog: LogBacklog | None = None

    def left(self, now: datetime) -> timedelta | None:
        """The least time until unread data is deleted; None without a limit, or if unknown."""
        if not isinstance(self.kept, timedelta) or self.through is None:
            return None
        return max(self.kept - (now - self.through), timedelta())

    @property
    def unknown(self) -> bool:
        """Whether unread data may be deleted at an unknown time."""
        return isinstance(self.kept, Missing) or (self.kept is not None and self.through is None)

    def tight(self, now: datetime) -> bool:
        """Whether an operator must act: under six hours left, or half of a shorter retention."""
        left, needed = self.left(now), self.needed
        return left is not None and needed is not None and left < needed

    @property
    def needed(self) -> timedelta | None:
        """The remaining time below which an operator must act; None without a time limit."""
        return min(ENOUGH, self.kept / 2) if isinstance(self.kept, timedelta) else None


def topic_kept(settings: Mapping[str, str]) -> timedelta | None:
    """How long a topic keeps a record by its settings; None if no time limits it."""
    if "delete" not in settings.get("cleanup.policy", "delete"):
        return None
    return _limit(int(settings.get("retention.ms", -1)))


def log_kept(limit: Limit) -> Limit:
    """Return the retention that a source reported; None for one that is practically endless."""
    return None if isinstance(limit, timedelta) and limit >= FOR_EVER else limit


@dataclass(frozen=True, slots=True)
class BacklogSample:
    """A source's report of its backlog at an instant."""

    at: datetime
    backlog: LogBacklog


def of_backlog(samples: Sequence[BacklogSample]) -> Retention:
    """The retention of a log by its size, at the fastest growth between two *samples*.

    *samples* are ascending, and there is at least one.
    """
    last = samples[-1]
    one = last.backlog
    if one.left is None:
        why = Missing(f"nothing limits what is kept for {one.name}, so the server's disk may fill")
        return Retention("backlog", one.name, why, None, one)
    if one.left == 0:
        moment = timedelta(seconds=1)
        return Retention("backlog", one.name, moment, last.at - moment, one)
    rate = _fastest(samples)
    if rate is None:
        why = Missing(f"how fast the log of {one.name} grows is not known yet")
        return Retention("backlog", one.name, why, None, one)
    lasts = (one.held + one.left) / rate if rate else float("inf")
    if lasts >= FOR_EVER.total_seconds():
        return Retention("backlog", one.name, None, last.at, one)
    through = last.at - timedelta(seconds=one.held / rate)
    return Retention("backlog", one.name, timedelta(seconds=lasts), through, one)


def _fastest(samples: Sequence[BacklogSample]) -> float | None:
    """The highest growth in bytes per second; None if no two samples show it."""
    rates = [
        (after.backlog.written - before.backlog.written) / (after.at - before.at).total_seconds()
        for before, after in pairwise(samples)
        if after.at > before.at and after.backlog.written >= before.backlog.written
    ]
    return max(rates, default=None)


def has_landed(checkpoint: Checkpoint, at: TopicPartition, end: PartitionEnd) -> bool:
    """Whether W has reached *end*, in the same incarnation of the topic."""
    w = checkpoint.offsets.get(at, PartitionEnd(0))
    if w.topic_id and end.topic_id and w.topic_id != end.topic_id:
        return end.offset == 0
    return w.offset >= end.offset


def collected_through(
    fences: Sequence[Fence], said: Iterable[Acknowledged], identity: str, alive: datetime
) -> datetime | None:
    """An instant up to which a collector no longer needs the log; None if none is known.

    *fences* ascend; *said* are positions it has acknowledged on the server of that *identity*. None
    also if it has collected all fences and none is from *alive* or later, because no change is
    known to wait.
    """
    acknowledged = tuple(said)
    for fence in reversed(fences):
        own = fence.head.identity == identity
        if own and any(has_reached(one.position, fence.head.position) for one in acknowledged):
            quiet = fence is fences[-1] and fence.at < alive
            return None if quiet else fence.at
    return None


def _limit(milliseconds: int) -> timedelta | None:
    if milliseconds < 0 or milliseconds >= FOR_EVER // timedelta(milliseconds=1):
        return None
    return timedelta(milliseconds=milliseconds)
