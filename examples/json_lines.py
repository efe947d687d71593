"""A transport: each file of a folder is a topic of one partition, each line in it a message.

A line is ``{"key": ..., "value": ...}``, texts or null; its number is its offset, and lines are
only ever added.  One that does not end yet is not there yet.
"""

import json
import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa

from pipeline.errors import UnreachableError
from pipeline.formats.format import OPTIONAL, RAW
from pipeline.model import PartitionEnd, TopicPartition
from pipeline.transports.topics import LastRecord, TopicFacts
from pipeline.transports.transport import OffsetRange, RangeRead, ReadBounds, Transport


@dataclass(frozen=True, slots=True)
class JsonLines:
    """``folder`` holds the files, ``TOPIC.jsonl``; it is also what tasks read with."""

    folder: str

    def topics(self, pattern: str) -> Mapping[str, str]:
        """A file that was deleted and written again has another number on its disk."""
        try:
            paths = sorted(Path(self.folder).glob("*.jsonl"))
            return {p.stem: str(p.stat().st_ino) for p in paths if re.fullmatch(pattern, p.stem)}
        except OSError as error:
            raise UnreachableError(f"topics in {self.folder}: {error}") from error

    def ends(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        """How many lines there are."""
        asked, ids = set(topics), self.topics(".*")
        return {
            TopicPartition(topic, 0): PartitionEnd(sum(1 for _ in self.lines(topic)), id_)
            for topic, id_ in ids.items()
            if topic in asked
        }

    def beginnings(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        """Nothing is ever taken away."""
        return {at: PartitionEnd(0, end.topic_id) for at, end in self.ends(topics).items()}

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """There is no leader."""
        return dict.fromkeys(epochs, -1)

    def hidden(self, topics: Iterable[str]) -> frozenset[str]:
        """Who may read the folder sees all."""
        return frozenset()

    def require_ids(self, expected: Mapping[str, str]) -> None:
        """Compare."""
        found = self.topics(".*")
        if lost := [topic for topic, id_ in expected.items() if found.get(topic) != id_]:
            raise UnreachableError(f"topic {lost[0]} was deleted or created again")

    def last_records(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, LastRecord]:
        """The last line of each."""
        found = {at: list(enumerate(self.lines(at.topic)))[-1:] for at in partitions}
        return {
            at: LastRecord(_bytes(line["key"]), _bytes(line["value"]), number)
            for at, last in found.items()
            for number, line in last
        }

    def settings(self, pattern: str) -> Sequence[TopicFacts]:
        """None are reported: one copy, retained forever."""
        return [TopicFacts(topic) for topic in self.topics(pattern)]

    def reader(self, ranges: Sequence[OffsetRange]) -> "JsonLines":
        """It holds a path and nothing else, so it can go where a task runs."""
        return self

    def consume(
        self, ranges: Sequence[OffsetRange], *, bounds: ReadBounds, columns: Sequence[str]
    ) -> "LinesRead":
        """Nothing is opened before it is iterated."""
        return LinesRead(self, tuple(ranges), bounds.rows, tuple(columns))

    def close(self) -> None:
        """Nothing is open."""

    def lines(self, topic: str) -> Generator[Mapping[str, str | None], None, None]:
        """Whole lines of a topic, in order."""
        try:
            with (Path(self.folder) / f"{topic}.jsonl").open("rb") as file:
                yield from (json.loads(line) for line in file if line.endswith(b"\n"))
        except OSError as error:
            raise UnreachableError(f"topic {topic}: {error}") from error


@dataclass(eq=False)
class LinesRead:
    """Ranges of lines, as batches of at most ``rows``."""

    where: JsonLines
    ranges: tuple[OffsetRange, ...]
    rows: int
    columns: tuple[str, ...]

    @property
    def read(self) -> tuple[RangeRead, ...]:
        """All of each: lines have no holes."""
        return tuple(
            RangeRead(r, r.first, r.until - 1, r.until - r.first)
            if r.first < r.until
            else RangeRead(r)
            for r in self.ranges
        )

    def __iter__(self) -> Generator[pa.RecordBatch, None, None]:
        """Lines that are gone are an error: fewer than asked for must never look like all."""
        schema = pa.schema([*RAW, *(pa.field(name, OPTIONAL[name]) for name in self.columns)])
        for one in self.ranges:
            lines = islice(self.where.lines(one.topic), one.first, one.until)
            offset = one.first
            while chunk := list(islice(lines, self.rows)):
                rows = [
                    {
                        "key": _bytes(line["key"]),
                        "value": _bytes(line["value"]),
                        "topic": one.topic,
                        "partition": one.partition,
                        "offset": offset + number,
                    }
                    for number, line in enumerate(chunk)
                ]
                offset += len(rows)
                yield pa.RecordBatch.from_pylist(rows, schema)
            if offset < one.until:
                raise UnreachableError(f"{one}: its topic ends at {offset}")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


TRANSPORT: type[Transport] = JsonLines
