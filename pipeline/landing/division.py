"""How is a batch divided into tasks, and have they read what they were told?  Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from pipeline.errors import UnreachableError
from pipeline.landing.span import Span
from pipeline.model import TopicPartition
from pipeline.transports.transport import OffsetRange, RangeRead

LEAST = 50_000  # records that are worth a task of their own


def divided(spans: Mapping[TopicPartition, Span], most: int) -> tuple[tuple[OffsetRange, ...], ...]:
    """Ranges for at most *most* tasks of about equal size; none for no span.

    A partition's records stay together unless they are more than one task's share.
    """
    total = sum(span.size for span in spans.values())
    count = max(1, min(most, total // LEAST))
    share = -(-total // count)
    tasks: list[list[OffsetRange]] = [[]]
    room = share
    for one in (_range(at, spans[at]) for at in sorted(spans, key=str)):
        first = one.first
        while first < one.until:
            if room <= 0:
                tasks.append([])
                room = share
            until = min(one.until, first + room)
            epoch = one.leader_epoch if first == one.first else -1
            tasks[-1].append(OffsetRange(one.topic, one.partition, first, until, epoch))
            room -= until - first
            first = until
    return tuple(tuple(ranges) for ranges in tasks if ranges)


def read_alone(
    tasks: Iterable[Iterable[OffsetRange]], source_of: Mapping[str, str]
) -> frozenset[str]:
    """Sources of which one task reads all that is read; others know not what came before theirs."""
    found = Counter(name for one in tasks for name in {source_of[r.topic] for r in one})
    return frozenset(name for name, count in found.items() if count == 1)


def epochs_read(told: Iterable[RangeRead]) -> dict[TopicPartition, int]:
    """Leader epoch of the last record read of each partition of which any was.

    Raises:
        UnreachableError: a range holds offsets it was not asked for, or a partition's leader
            epochs fall: what was read is no stretch of one log, and nothing of it may be landed.
    """
    found: dict[TopicPartition, int] = {}
    for at, parts in _by_partition(told):
        before = -1
        for part in parts:
            _within(part)
            for epoch in part.leader_epochs:
                if epoch < before:
                    msg = f"{part.asked}: leader epoch {epoch} after {before}; read again"
                    raise UnreachableError(msg)
                before = epoch
        if any(part.count for part in parts):
            found[at] = before
    return found


def _within(part: RangeRead) -> None:
    if part.first is None or part.last is None:
        return
    asked = part.asked
    if not asked.first <= part.first <= part.last < asked.until:
        msg = f"{asked}: read offsets {part.first} to {part.last}, which are not in it; read again"
        raise UnreachableError(msg)


def _by_partition(
    told: Iterable[RangeRead],
) -> Iterator[tuple[TopicPartition, Sequence[RangeRead]]]:
    ordered = sorted(told, key=lambda one: (one.asked.topic, one.asked.partition, one.asked.first))
    for (topic, partition), parts in groupby(
        ordered, key=lambda one: (one.asked.topic, one.asked.partition)
    ):
        yield TopicPartition(topic, partition), tuple(parts)


def _range(at: TopicPartition, span: Span) -> OffsetRange:
    return OffsetRange(at.topic, at.partition, span.first, span.end.offset, span.epoch)
