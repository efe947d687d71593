"""Which offsets does the next batch take?  Exactly from W on; what cannot be read is a gap."""

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.model import PartitionEnd, TopicPartition
from pipeline.report import Gap

Ends = Mapping[TopicPartition, PartitionEnd]


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets ``[first, end.offset)`` of one partition."""

    first: int
    end: PartitionEnd

    @property
    def size(self) -> int:
        """Offsets in the span; at most as many records."""
        return self.end.offset - self.first


@dataclass(frozen=True, slots=True)
class Plan:
    """What one batch reads, what W is after it, and what is lost for good.

    ``spans`` holds no empty span.  ``capped`` is true when ends were lowered to the cap.
    """

    spans: Mapping[TopicPartition, Span]
    offsets: Mapping[str, PartitionEnd]
    gaps: tuple[Gap, ...]
    capped: bool


def plan(w: Mapping[str, PartitionEnd], beginnings: Ends, ends: Ends, cap: int) -> Plan:
    """Take every partition from W to its end, shared fairly when that is over *cap* records.

    A partition that W does not know starts at its beginning.  W below the beginning, above the
    end, or under another topic id is a gap, and reading goes on at the first offset there is.
    """
    gaps: list[Gap] = []
    spans: dict[TopicPartition, Span] = {}
    for partition in sorted(ends, key=str):
        first, gap = _start(
            w.get(str(partition)), partition, beginnings[partition], ends[partition]
        )
        if gap is not None:
            gaps.append(gap)
        spans[partition] = Span(first, ends[partition])
    taken, capped = _cap(spans, cap)
    offsets = dict(w) | {str(tp): span.end for tp, span in taken.items()}
    return Plan({tp: s for tp, s in taken.items() if s.size}, offsets, tuple(gaps), capped)


def _start(
    known: PartitionEnd | None, partition: TopicPartition, begin: PartitionEnd, end: PartitionEnd
) -> tuple[int, Gap | None]:
    if known is None:
        return begin.offset, None
    if known.topic_id and end.topic_id and known.topic_id != end.topic_id:
        why = f"topic {partition.topic} was created anew (id {known.topic_id} -> {end.topic_id})"
        return begin.offset, _gap(partition, known.offset, known.offset, why)
    if known.offset < begin.offset:
        why = f"offsets {known.offset} to {begin.offset - 1} were deleted before they were landed"
        return begin.offset, _gap(partition, known.offset, begin.offset, why)
    if known.offset > end.offset:
        why = f"the log ends at {end.offset}, but was landed up to {known.offset}"
        return begin.offset, _gap(partition, end.offset, known.offset, why)
    return known.offset, None


def _gap(partition: TopicPartition, first: int, until: int, why: str) -> Gap:
    name = f"{partition.topic}:{partition.partition}:{first}"
    return Gap(name, partition.topic, partition.partition, first, until, why)


def _cap(spans: Mapping[TopicPartition, Span], cap: int) -> tuple[dict[TopicPartition, Span], bool]:
    """Give each partition an equal share of *cap*, and what others leave over."""
    left, result, capped = cap, {}, False
    waiting = sorted(spans.items(), key=lambda item: item[1].size)
    for index, (partition, span) in enumerate(waiting):
        share = max(1, left // (len(waiting) - index))
        if span.size > share:
            capped = True
            end = PartitionEnd(span.first + share, span.end.topic_id, span.end.leader_epoch)
            span = Span(span.first, end)  # noqa: PLW2901  - the span, cut to its share
        result[partition] = span
        left -= span.size
    return result, capped
