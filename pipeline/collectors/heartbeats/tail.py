"""Which heartbeat came out of the topics last?  Read from their ends back until there is one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.collectors.stream import CollectedStream
from pipeline.formats.heartbeat import number_of
from pipeline.model import TopicPartition
from pipeline.registry import decoded
from pipeline.topics.naming import spelled
from pipeline.transports.offset_ranges import OffsetRange, ReadBounds

FIRST, WIDER, MOST = 64, 8, 200_000  # records looked at in one partition, from its end
PATIENCE = timedelta(seconds=2)
Spans = Mapping[TopicPartition, tuple[int, int]]


@dataclass(eq=False)
class HeartbeatTail:
    """The newest heartbeat of one stream; the partition that has it is known again."""

    stream: CollectedStream
    partitions: int = 0
    _where: frozenset[TopicPartition] = field(default_factory=frozenset)

    def newest(self) -> int | None:
        """The number of the last one in its partition; None if there is none near the end.

        Counts the partitions that hold anything, too.

        Raises:
            UnreachableError: topics, or the registry, do not answer.
        """
        spans = self._spans()
        self.partitions = len(spans)
        known = {at: span for at, span in spans.items() if at in self._where}
        found = self._found(known) or self._found(spans)
        self._where = frozenset(found)
        return max(found.values(), default=None)

    def _spans(self) -> dict[TopicPartition, tuple[int, int]]:
        """Where the partitions begin and end; of those that hold anything."""
        transport = self.stream.transport
        topics = self.stream.named()
        firsts, ends = transport.beginnings(topics), transport.ends(topics)
        spans = {at: (firsts[at].offset, end.offset) for at, end in ends.items() if at in firsts}
        return {at: span for at, span in spans.items() if span[0] < span[1]}

    def _found(self, spans: Spans) -> dict[TopicPartition, int]:
        """In the first step back that has any; each partition's last."""
        step, until = FIRST, {at: end for at, (_, end) in spans.items()}
        while until:
            ranges = [
                OffsetRange(at.topic, at.partition, max(spans[at][0], end - step), end)
                for at, end in until.items()
            ]
            if found := self._read(ranges):
                return found
            lowest = {TopicPartition(one.topic, one.partition): one.first for one in ranges}
            until = {
                at: first
                for at, first in lowest.items()
                if spans[at][0] < first and spans[at][1] - first < MOST
            }
            step *= WIDER
        return {}

    def _read(self, ranges: list[OffsetRange]) -> dict[TopicPartition, int]:
        own, found = self.stream, dict[TopicPartition, int]()
        reader = own.transport.reader(ranges)
        bounds = ReadBounds(patience=PATIENCE)
        for raw in reader.consume(ranges, bounds=bounds, columns=own.format.columns):
            few = raw.filter(_likely(raw, own.source.heartbeat))
            found |= dict(self._beats(few)) if len(few) else {}
        return found

    def _beats(self, raw: pa.RecordBatch) -> Iterator[tuple[TopicPartition, int]]:
        heartbeat, name = self.stream.source.heartbeat, self.stream.source.name
        changes = decoded(self.stream.format, self.stream.registry, raw)
        for change in changes.select(["message", "shard", "after"]).to_pylist():
            if change["shard"] != heartbeat or change["after"] is None:
                continue
            number = number_of(change["after"], name)
            if number is not None:
                row = change["message"]
                topic, partition = raw["topic"][row].as_py(), raw["partition"][row].as_py()
                yield TopicPartition(topic, partition), number


def _likely(raw: pa.RecordBatch, heartbeat: str) -> pa.BooleanArray:
    """Messages that name the heartbeat's table: no other is looked into."""
    relation = heartbeat.rpartition(".")[2]
    values = pc.fill_null(pc.match_substring(raw["value"], relation), False)
    return pc.or_(values, pc.match_substring(raw["topic"], spelled(relation)))
