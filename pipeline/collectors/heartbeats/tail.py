"""Which heartbeats have come out of the topics since the last look?

The first look reads from their ends back until there is one; later ones read on where that ended,
so that none is passed over.  Rows of a snapshot, or of a replay, are no heartbeats: they tell how
far the server was when they were read, and nothing of the log that is on its way.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.collectors.stream import CollectedStream
from pipeline.formats.heartbeat import number_of
from pipeline.model import Origin, TopicPartition
from pipeline.registry import decoded
from pipeline.topics.naming import spelled
from pipeline.transports.offset_ranges import OffsetRange, ReadBounds

FIRST, WIDER, MOST = 64, 8, 200_000  # records looked at in one partition, from its end
QUIET = 30  # looks without a heartbeat, after which they are looked for in other partitions
PATIENCE = timedelta(seconds=2)
COLUMNS = ("message", "shard", "after", "snapshot", "origin")
Spans = Mapping[TopicPartition, tuple[int, int]]
Numbers = Mapping[TopicPartition, Sequence[int]]


@dataclass(eq=False)
class HeartbeatTail:
    """The heartbeats of one stream; ``_read_to`` is how far partitions are read that have any."""

    stream: CollectedStream
    _read_to: dict[TopicPartition, int] = field(default_factory=dict)
    _highest: int = -1
    _quiet: int = 0

    def partitions(self) -> int:
        """How many hold anything, or have held: a table that rests has its partition all the same.

        Raises:
            UnreachableError: topics do not answer.
        """
        ends = self.stream.transport.ends(self.stream.named())
        return sum(end.offset > 0 for end in ends.values())

    def came(self) -> tuple[int, ...]:
        """Numbers that came out since the last look, as they stand; none may be near the end.

        Those of several partitions are told in their own order: nobody knows another.

        Raises:
            UnreachableError: topics, or the registry, do not answer.
        """
        spans = self._spans()
        known = {
            at: (self._read_to[at], end) for at, (_, end) in spans.items() if self._on(at, spans)
        }
        found = self._read(_ranges({at: span for at, span in known.items() if span[0] < span[1]}))
        self._quiet = 0 if found else self._quiet + 1
        if not known:
            found = self._found(spans)
        elif self._quiet >= QUIET:
            found, self._quiet = self._moved(spans, known), 0
        read = {**known, **{at: spans[at] for at in found}}
        self._read_to = {at: end for at, (_, end) in read.items()}
        numbers = tuple(chain.from_iterable(found.values()))
        self._highest = max((self._highest, *numbers))
        return numbers if len(found) < 2 else tuple(sorted(numbers))

    def _on(self, at: TopicPartition, spans: Spans) -> bool:
        """Whether it is read on where the last look ended."""
        first, end = spans[at]
        return first <= self._read_to.get(at, -1) <= end <= self._read_to[at] + MOST

    def _moved(self, spans: Spans, known: Spans) -> Numbers:
        """Newer ones in partitions that had none: topics may have got more of them."""
        others = self._found({at: span for at, span in spans.items() if at not in known})
        return {at: told for at, told in others.items() if max(told) > self._highest}

    def _spans(self) -> dict[TopicPartition, tuple[int, int]]:
        """Where the partitions begin and end."""
        transport = self.stream.transport
        topics = self.stream.named()
        firsts, ends = transport.beginnings(topics), transport.ends(topics)
        return {at: (firsts[at].offset, end.offset) for at, end in ends.items() if at in firsts}

    def _found(self, spans: Spans) -> Numbers:
        """In the first step back that has any."""
        step, until = FIRST, {at: end for at, (first, end) in spans.items() if first < end}
        while until:
            steps = {at: (max(spans[at][0], end - step), end) for at, end in until.items()}
            if found := self._read(_ranges(steps)):
                return found
            until = {
                at: first
                for at, (first, _) in steps.items()
                if spans[at][0] < first and spans[at][1] - first < MOST
            }
            step *= WIDER
        return {}

    def _read(self, ranges: list[OffsetRange]) -> Numbers:
        own, found = self.stream, dict[TopicPartition, list[int]]()
        if not ranges:
            return found
        reader = own.transport.reader(ranges)
        bounds = ReadBounds(patience=PATIENCE)
        for raw in reader.consume(ranges, bounds=bounds, columns=own.format.columns):
            few = raw.filter(_likely(raw, own.source.heartbeat))
            for at, number in self._beats(few) if len(few) else ():
                found.setdefault(at, []).append(number)
        return found

    def _beats(self, raw: pa.RecordBatch) -> Iterator[tuple[TopicPartition, int]]:
        heartbeat, name = self.stream.source.heartbeat, self.stream.source.name
        changes = decoded(self.stream.format, self.stream.registry, raw)
        for change in changes.select(COLUMNS).to_pylist():
            if change["shard"] != heartbeat or change["after"] is None:
                continue
            live = change["snapshot"] is None and change["origin"] == Origin.LIVE
            number = number_of(change["after"], name) if live else None
            if number is not None:
                row = change["message"]
                topic, partition = raw["topic"][row].as_py(), raw["partition"][row].as_py()
                yield TopicPartition(topic, partition), number


def _ranges(spans: Spans) -> list[OffsetRange]:
    return [OffsetRange(at.topic, at.partition, *span) for at, span in spans.items()]


def _likely(raw: pa.RecordBatch, heartbeat: str) -> pa.BooleanArray:
    """Messages that name the heartbeat's table: no other is looked into."""
    relation = heartbeat.rpartition(".")[2]
    values = pc.fill_null(pc.match_substring(raw["value"], relation), False)
    return pc.or_(values, pc.match_substring(raw["topic"], spelled(relation)))
