"""What does a batch read of one partition, and how do partitions share what it may hold?  Pure."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace

from pipeline.model import PartitionEnd, TopicPartition


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets ``[first, end.offset)`` of one partition.

    ``epoch`` is the leader epoch of the record before ``first``, to seek with; -1: not known.
    """

    first: int
    end: PartitionEnd
    epoch: int = -1

    @property
    def size(self) -> int:
        """Offsets in the span; at most as many records."""
        return self.end.offset - self.first


def shared(
    spans: Mapping[TopicPartition, Span],
    cap: int,
    ahead: Container[str] = (),
    in_turn: Container[str] = (),
) -> tuple[dict[TopicPartition, Span], bool]:
    """Give each partition an equal share of *cap*, and what others leave over; was anything cut?

    Topics *ahead* are taken whole, as far as *cap* goes.  Of topics *in_turn* nothing is taken of
    a partition before those of a lower number are read to their ends.
    """
    left, result, capped = cap, {}, False
    waiting = sorted(spans.items(), key=lambda one: (one[0].topic not in ahead, one[1].size))
    for index, (partition, span) in enumerate(waiting):
        share = left if partition.topic in ahead else left // (len(waiting) - index)
        taken = replace(span.end, offset=min(span.end.offset, span.first + max(1, share)))
        result[partition] = replace(span, end=taken)
        capped = capped or taken != span.end
        left -= result[partition].size
    cut, turns = set[str](), [at for at in result if capped and at.topic in in_turn]
    for at in sorted(turns, key=lambda at: (at.topic, at.partition)):
        if at.topic in cut:
            end = replace(spans[at].end, offset=spans[at].first)
            result[at] = replace(spans[at], end=end)
        elif result[at] != spans[at]:
            cut.add(at.topic)
    return result, capped
