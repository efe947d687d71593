"""What does a batch read of one partition, and how do partitions share what it may hold?  Pure."""

from collections.abc import Mapping
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
    spans: Mapping[TopicPartition, Span], cap: int
) -> tuple[dict[TopicPartition, Span], bool]:
    """Give each partition an equal share of *cap*, and what others leave over; was anything cut?"""
    left, result, capped = cap, {}, False
    waiting = sorted(spans.items(), key=lambda item: item[1].size)
    for index, (partition, span) in enumerate(waiting):
        share = max(1, left // (len(waiting) - index))
        if span.size > share:
            capped = True
            end = replace(span.end, offset=span.first + share)
            span = replace(span, end=end)  # noqa: PLW2901  - the span, cut to its share
        result[partition] = span
        left -= span.size
    return result, capped
