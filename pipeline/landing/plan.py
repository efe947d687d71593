"""Plans which offsets the next batch reads, from W on, and finds lost offsets as gaps.

Absent offsets inside a partition are no gap, because retention and compaction leave them. A
record that was deleted before it landed shows as W below the first offset of its partition.

The module also shares the cap of a batch among partitions, and divides the batch into tasks.
Afterwards it checks that the tasks read only what they were given.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from pipeline.checkpoint import Gap
from pipeline.errors import UnreachableError
from pipeline.model import PartitionEnd, TopicPartition
from pipeline.transports.transport import OffsetRange, RangeRead


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets ``[first, end.offset)`` of one partition.

    ``epoch`` is the leader epoch of the record before ``first``, to seek with; -1 if unknown.
    """

    first: int
    end: PartitionEnd
    epoch: int = -1

    @property
    def size(self) -> int:
        """Return the number of offsets in the span; it holds at most as many records."""
        return self.end.offset - self.first


def share_cap(
    spans: Mapping[TopicPartition, Span],
    cap: int,
    ahead: Container[str] = (),
    in_turn: Container[str] = (),
) -> tuple[dict[TopicPartition, Span], bool]:
    """Give each partition an equal share of *cap* and of what is left; return whether it cut one.

    Topics *ahead* are taken whole, as far as *cap* goes. Nothing is taken from a partition of
    topics *in_turn* before those with a lower number are read to their ends.
    """
    left, result, capped = cap, {}, False
    waiting = sorted(spans.items(), key=lambda one: (one[0].topic not in ahead, one[1].size))
    for index, (partition, span) in enumerate(waiting):
        share = left if partition.topic in ahead else left // (len(waiting) - index)
        taken = replace(span.end, offset=min(span.end.offset, span.first + max(1, share)))
        result[partition] = replace(span, end=taken)
        capped = capped or taken != span.end
        left -= result[partition].size
    cut, in_order = set[str](), [at for at in result if capped and at.topic in in_turn]
    for at in sorted(in_order, key=lambda at: (at.topic, at.partition)):
        if at.topic in cut:
            end = replace(spans[at].end, offset=spans[at].first)
            result[at] = replace(spans[at], end=end)
        elif result[at] != spans[at]:
            cut.add(at.topic)
    return result, capped


Ends = Mapping[TopicPartition, PartitionEnd]


@dataclass(frozen=True, slots=True)
class Plan:
    """The spans that one batch reads, W after the batch, and what is lost for good.

    ``spans`` holds no empty span. ``capped`` is True if ends were lowered to the cap. ``gone`` are
    all deleted partitions, with their W. ``doubts`` are partitions deleted now that had landed to
    their last listed end. They become gaps if a table that exists after the batch is sent into
    them; a statement in the batch may describe that table. ``renewed`` are partitions that start
    again, so their earlier offsets mean nothing. ``trimmed`` are topics that are read for the first
    time and whose beginning was deleted.
    """

    spans: Mapping[TopicPartition, Span]
    offsets: Ends
    gaps: tuple[Gap, ...]
    capped: bool
    gone: Ends = field(default_factory=dict)
    doubts: tuple[Gap, ...] = ()
    renewed: frozenset[TopicPartition] = frozenset()
    trimmed: frozenset[str] = frozenset()

    @property
    def disturbed(self) -> frozenset[str]:
        """Return each ``topic:partition`` whose landed offsets may now have other or no records."""
        lost = (TopicPartition(gap.topic, gap.partition) for gap in self.gaps)
        return frozenset(map(str, (*self.renewed, *lost)))

    def landed(self, epochs: Mapping[TopicPartition, int]) -> "Plan":
        """Return the plan after the read; *epochs* are the leader epochs of the last records read.

        W keeps its epoch where nothing was read. The epoch in the listing may belong to no record,
        and would not show a truncation just below W.
        """
        read = {at: replace(self.offsets[at], leader_epoch=e) for at, e in epochs.items()}
        return replace(self, offsets={**self.offsets, **read})

    def without(
        self,
        held: Callable[[str], bool],
        w: Ends,
        gone: Ends,
    ) -> "Plan":
        """Return the plan without the *held* topics, for which *w* and *gone* stay as they were.

        Their gaps are left out, too. Otherwise each batch would open them again, after the base
        that closes them.
        """
        return replace(
            self,
            spans={at: span for at, span in self.spans.items() if not held(at.topic)},
            offsets=_joined(self.offsets, w, held),
            gaps=tuple(gap for gap in self.gaps if not held(gap.topic)),
            gone=_joined(self.gone, gone, held),
            doubts=tuple(gap for gap in self.doubts if not held(gap.topic)),
            renewed=frozenset(at for at in self.renewed if not held(at.topic)),
        )

    def cut(self, at: Mapping[TopicPartition, int], w: Ends) -> "Plan":
        """Return the plan that reads partitions up to the offsets of *at*; *w* is W before."""
        spans, offsets = dict(self.spans), dict(self.offsets)
        for tp, until in at.items():
            spans[tp] = replace(spans[tp], end=replace(spans[tp].end, offset=until))
            offsets[tp] = _end_after(spans[tp], w.get(tp))
        return replace(self, spans={tp: s for tp, s in spans.items() if s.size}, offsets=offsets)


@dataclass(frozen=True, slots=True)
class PlanContext:
    """Other facts that the planning of a batch needs.

    ``gone``        partitions that were deleted before -> their W.
    ``last``        the end of each partition in the listing before; empty after a start.
    ``epoch_ends``  where the leader epoch of W ends in the log now, as Kafka reports it
                    (OffsetsForLeaderEpoch); absent if unknown.
    ``claimed``     whether a topic of that name would be listed if it existed: a topic
                    that is no longer read is not gone.
    ``ahead``       topics of schema changes, which a batch that cannot hold all reads first: a
                    table whose rows land before its CREATE may have existed before.
    ``in_turn``     topics of heartbeats: their partitions are read in the order of their numbers,
                    so an added partition comes last.  Cannot detect: a partition that holds newer
                    heartbeats than one of a higher number.
    ``hidden``      topics that may still exist, but that Sluice may not see any more.
    ``needed``      whether a table that exists before the batch is sent into a topic: records
                    that came after the last listing and were deleted with the topic are a gap.
    """

    gone: Ends = field(default_factory=dict)
    last: Ends = field(default_factory=dict)
    epoch_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    claimed: Callable[[str], bool] = lambda _: True
    ahead: frozenset[str] = frozenset()
    in_turn: frozenset[str] = frozenset()
    hidden: frozenset[str] = frozenset()
    needed: Callable[[str], bool] = lambda _: False


@dataclass(frozen=True, slots=True)
class _Start:
    """The first offset to read in a partition; ``gap`` and the flags say why it is not W."""

    first: int
    gap: Gap | None = None
    epoch: int = -1
    renewed: bool = False
    trimmed: bool = False


def plan_batch(
    w: Ends,
    beginnings: Ends,
    ends: Ends,
    cap: int,
    *,
    known: PlanContext | None = None,
) -> Plan:
    """Take every partition from W to its end, shared fairly if that is over *cap* records.

    A partition that W does not know starts at its beginning. It is a gap if W is below the
    beginning, above the end, under another topic id, or across a truncation. A deleted partition
    with unlanded records is a gap, too. Reading continues at the first unlanded offset.
    """
    known = known or PlanContext()
    before = {**_returned(ends, known), **w}
    moving = _moving(before, ends, known)
    starts = _starts(moving, before, beginnings, ends, known)
    spans = {tp: Span(start.first, ends[tp], start.epoch) for tp, start in starts.items()}
    if sum(span.size for tp, span in spans.items() if tp.topic in known.ahead) > cap:
        moving = [tp for tp in moving if tp.topic in known.ahead]
        starts = {tp: starts[tp] for tp in moving}
        spans = {tp: spans[tp] for tp in moving}
    taken, capped = share_cap(spans, cap, known.ahead, known.in_turn)
    gone, lost, doubts = _find_gone(w.keys() - ends.keys(), w, known, capped=capped)
    offsets = {tp: end for tp, end in before.items() if tp not in gone} if gone else before
    for tp in moving:
        offsets[tp] = _end_after(taken[tp], before.get(tp))
    return Plan(
        spans={tp: span for tp, span in taken.items() if span.size},
        offsets=offsets,
        gaps=(*(start.gap for start in starts.values() if start.gap), *lost),
        capped=capped,
        gone={tp: end for tp, end in known.gone.items() if tp not in offsets} | gone,
        doubts=doubts,
        renewed=frozenset(tp for tp, start in starts.items() if start.renewed),
        trimmed=frozenset(tp.topic for tp, start in starts.items() if start.trimmed),
    )


def _starts(
    moving: Sequence[TopicPartition], w: Ends, beginnings: Ends, ends: Ends, known: PlanContext
) -> dict[TopicPartition, _Start]:
    fresh = set(moving) - w.keys()
    read = {tp.topic for tp in (*w, *known.gone)} if fresh else set[str]()
    return {
        tp: _start(w[tp], tp, beginnings[tp], ends[tp], known)
        if tp in w
        else _first(tp, beginnings[tp], renewed=tp in known.gone, read=tp.topic in read)
        for tp in sorted(moving)
    }


def _moving(w: Ends, ends: Ends, known: PlanContext) -> list[TopicPartition]:
    """Return the partitions to look at: all but the unchanged ones, in a quiet round thousands.

    An unchanged partition has W at its end, the same topic id, and the same leader epoch.
    """
    found = []
    for tp, end in ends.items():
        stood = w.get(tp)
        if (
            stood is None
            or stood.offset != end.offset
            or stood.topic_id != end.topic_id
            or tp in known.epoch_ends
        ):
            found.append(tp)
    return found


def _returned(ends: Ends, known: PlanContext) -> dict[TopicPartition, PartitionEnd]:
    """Return W of partitions that were gone and exist again with the same topic id."""
    there = ((tp, end) for tp, end in known.gone.items() if tp in ends)
    return {tp: end for tp, end in there if not _renewed(end, ends[tp])}


def _renewed(known: PartitionEnd, end: PartitionEnd) -> bool:
    return bool(known.topic_id and end.topic_id) and known.topic_id != end.topic_id


def _start(
    w: PartitionEnd,
    partition: TopicPartition,
    begin: PartitionEnd,
    end: PartitionEnd,
    known: PlanContext,
) -> _Start:
    if _renewed(w, end):
        why = f"topic {partition.topic} was recreated (id {w.topic_id} -> {end.topic_id})"
        until = _last_end(w, partition, known) or w.offset
        return _Start(begin.offset, _gap(partition, w.offset, until, why), renewed=True)
    epoch_end = known.epoch_ends.get(partition, -1)
    if 0 <= epoch_end < w.offset and w.leader_epoch >= 0:
        why = f"a new leader cut the log off at {epoch_end}, but it was landed up to {w.offset}"
        until = max(w.offset, begin.offset)
        return _Start(max(epoch_end, begin.offset), _gap(partition, epoch_end, until, why))
    if w.offset < begin.offset:
        why = f"offsets {w.offset} to {begin.offset - 1} were deleted before they were landed"
        return _Start(begin.offset, _gap(partition, w.offset, begin.offset, why))
    if w.offset > end.offset:
        why = f"the log ends at {end.offset}, but was landed up to {w.offset}"
        return _Start(begin.offset, _gap(partition, end.offset, w.offset, why))
    return _Start(w.offset, epoch=w.leader_epoch)


def _first(partition: TopicPartition, begin: PartitionEnd, *, renewed: bool, read: bool) -> _Start:
    """Return where to begin in a partition that was never read.

    If its topic is read already, deleted records are a gap. A new topic misses nothing yet: no
    table has a base in it, and what is left gives none a base (``trimmed``).
    """
    if begin.offset and read:
        why = f"offsets 0 to {begin.offset - 1} were deleted before they were landed"
        return _Start(begin.offset, _gap(partition, 0, begin.offset, why), renewed=renewed)
    return _Start(begin.offset, renewed=renewed, trimmed=begin.offset > 0)


_HIDDEN = (
    "Kafka does not let Sluice's user see it any more: give back DESCRIBE and READ; it is read on "
    "from there, and the gap may then be waived"
)


def _find_gone(
    absent: Iterable[TopicPartition], w: Ends, known: PlanContext, *, capped: bool
) -> tuple[dict[TopicPartition, PartitionEnd], tuple[Gap, ...], tuple[Gap, ...]]:
    """Return partitions that are gone now, with a gap of each that may have held unlanded records.

    Others get a doubt, in a batch that holds all statements: until then they are not gone.
    """
    gone: dict[TopicPartition, PartitionEnd] = {}
    gaps: list[Gap] = []
    doubts: list[Gap] = []
    for partition in sorted(absent):
        if not known.claimed(partition.topic):
            continue
        landed, until = w[partition].offset, _last_end(w[partition], partition, known)
        lost = _gap(partition, landed, until or landed, _why(partition, landed, until, known))
        whole = until == landed and partition.topic not in known.hidden
        if not whole or known.needed(partition.topic):
            gaps.append(lost)
        elif capped:
            continue
        else:
            doubts.append(lost)
        gone[partition] = w[partition]
    return gone, tuple(gaps), tuple(doubts)


def _why(at: TopicPartition, landed: int, until: int | None, known: PlanContext) -> str:
    if at.topic in known.hidden:
        return _HIDDEN
    if until == landed:
        return f"{at} is gone; it is unknown what came after its listed end, {until}"
    held = "what it held beyond is unknown" if until is None else f"it went on to {until}"
    return f"{at} is gone, landed up to {landed}; {held}"


def _joined(
    now: Ends, before: Ends, held: Callable[[str], bool]
) -> dict[TopicPartition, PartitionEnd]:
    """Return *now*, with the entries of *before* for topics that are *held*."""
    free = {at: end for at, end in now.items() if not held(at.topic)}
    return free | {at: end for at, end in before.items() if held(at.topic)}


def _last_end(w: PartitionEnd, partition: TopicPartition, known: PlanContext) -> int | None:
    """Return the last known end of the partition of *w*; None if it is unknown."""
    last = known.last.get(partition)
    return None if last is None or _renewed(w, last) else max(w.offset, last.offset)


def _gap(partition: TopicPartition, first: int, until: int, why: str) -> Gap:
    name = f"{partition.topic}:{partition.partition}:{first}"
    return Gap(name, partition.topic, partition.partition, first, until, why)


def _end_after(span: Span, before: PartitionEnd | None) -> PartitionEnd:
    """Return W after a span; the read sets its leader epoch (:meth:`Plan.landed`)."""
    after = PartitionEnd(span.end.offset, span.end.topic_id, span.epoch)
    return before if before == after else after


LEAST = 50_000  # records that are worth a task of their own


def split_tasks(
    spans: Mapping[TopicPartition, Span], most: int
) -> tuple[tuple[OffsetRange, ...], ...]:
    """Return ranges for at most *most* tasks of about equal size; no task without a span.

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


def single_reader_sources(
    tasks: Iterable[Iterable[OffsetRange]], source_of: Mapping[str, str]
) -> frozenset[str]:
    """Return the sources that one task reads alone, so that it knows all earlier rows."""
    found = Counter(name for one in tasks for name in {source_of[r.topic] for r in one})
    return frozenset(name for name, count in found.items() if count == 1)


def epochs_read(reported: Iterable[RangeRead]) -> dict[TopicPartition, int]:
    """Return the leader epoch of the last record read of each partition with any.

    Raises:
        UnreachableError: a range holds offsets it was not asked for, or a partition's leader
            epochs fall: the records are not one stretch of one log, so none of them may land.
    """
    found: dict[TopicPartition, int] = {}
    for at, parts in _by_partition(reported):
        before = -1
        for part in parts:
            _check_within(part)
            for epoch in part.leader_epochs:
                if epoch < before:
                    msg = f"{part.asked}: leader epoch {epoch} after {before}; read again"
                    raise UnreachableError(msg)
                before = epoch
        if any(part.count for part in parts):
            found[at] = before
    return found


def _check_within(part: RangeRead) -> None:
    if part.first is None or part.last is None:
        return
    asked = part.asked
    if not asked.first <= part.first <= part.last < asked.until:
        msg = f"{asked}: read offsets {part.first} to {part.last}, which are not in it; read again"
        raise UnreachableError(msg)


def _by_partition(
    reported: Iterable[RangeRead],
) -> Iterator[tuple[TopicPartition, Sequence[RangeRead]]]:
    ordered = sorted(
        reported, key=lambda one: (one.asked.topic, one.asked.partition, one.asked.first)
    )
    for (topic, partition), parts in groupby(
        ordered, key=lambda one: (one.asked.topic, one.asked.partition)
    ):
        yield TopicPartition(topic, partition), tuple(parts)


def _range(at: TopicPartition, span: Span) -> OffsetRange:
    return OffsetRange(at.topic, at.partition, span.first, span.end.offset, span.epoch)
