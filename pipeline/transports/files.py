"""Reads the files that a ledger lists, as one topic with one partition and an offset per row.

A row is read from its file when it lands. If the file was changed or deleted since it was taken,
one error message lands instead of its rows. None of its rows is read, and landing does not wait.
"""

import os
import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pyarrow as pa

from pipeline.errors import UnreachableError
from pipeline.files import content
from pipeline.files.content import FaultHead, RowsHead, encode_head, own_key
from pipeline.files.layout import FileStamp
from pipeline.files.ledger import Ledger, LedgerEntry, TakenFile
from pipeline.formats.format import OPTIONAL, RAW
from pipeline.model import PartitionEnd, TopicPartition
from pipeline.settings import SourceSettings
from pipeline.sources.files.source import ledger_path
from pipeline.transports.topics import LastRecord, TopicFacts
from pipeline.transports.transport import OffsetRange, RangeRead, ReadBounds, Transport

COPY = "if it was renamed, copy it under a new name: the same file is not read again"
Record = tuple[int, bytes, bytes | None]  # offset, key and value


@dataclass(eq=False)
class FilesTransport:
    """Serves the topic ``PREFIX.files`` of ``source``; the source's collector keeps the ledger."""

    source: SourceSettings
    _ledger: Ledger = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Open nothing yet."""
        self._ledger = Ledger(Path(ledger_path(self.source)))

    @property
    def topic(self) -> str:
        """Return the name of the only topic."""
        return f"{self.source.prefix}.files"

    def topics(self, pattern: str) -> Mapping[str, str]:
        """Return the topic with the ledger's id; a ledger that was created again has another id."""
        return {self.topic: self._ledger.id} if re.fullmatch(pattern, self.topic) else {}

    def ends(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        """Return the end of the ledger."""
        return self._at(topics, self._ledger.count().end)

    def beginnings(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        """Return 0: the ledger never deletes an entry."""
        return self._at(topics, 0)

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return -1: a ledger has no leader epochs."""
        return dict.fromkeys(epochs, -1)

    def hidden(self, topics: Iterable[str]) -> frozenset[str]:
        """Return nothing: a user who may read the ledger sees all of it."""
        return frozenset()

    def require_ids(self, expected: Mapping[str, str]) -> None:
        """Return if the ledger still has the expected id.

        Raises:
            UnreachableError: the ledger was created again.
        """
        if self.topic in expected and self._ledger.id != expected[self.topic]:
            raise UnreachableError(f"the ledger {self._ledger.path} was created again")

    def last_records(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, LastRecord]:
        """Return the last row of the newest file that has rows; absent without one."""
        at, entry = TopicPartition(self.topic, 0), self._ledger.last_rows()
        if at not in set(partitions) or entry is None:
            return {}
        last = entry.until - 1
        reader = FilesReader(self.source.collector.url, self.topic, (entry,))
        found = [one for some in reader.records(last, entry.until) for one in some]
        offset, key, value = found[-1]
        return {at: LastRecord(key, value, offset)}

    def settings(self, pattern: str) -> Sequence[TopicFacts]:
        """Return the topic without settings: nothing in it expires."""
        return [TopicFacts(topic) for topic in self.topics(pattern)]

    def reader(self, ranges: Sequence[OffsetRange]) -> "FilesReader":
        """Return a reader with the ledger entries of *ranges*, so that a task needs no ledger."""
        entries = [e for one in ranges for e in self._ledger.entries(one.first, one.until)]
        return FilesReader(self.source.collector.url, self.topic, tuple(entries))

    def close(self) -> None:
        """Close the ledger."""
        self._ledger.close()

    def _at(self, topics: Iterable[str], offset: int) -> dict[TopicPartition, PartitionEnd]:
        asked = self.topic in set(topics)
        return (
            {TopicPartition(self.topic, 0): PartitionEnd(offset, self._ledger.id)} if asked else {}
        )


@dataclass(frozen=True, slots=True)
class FilesReader:
    """Reads the files below ``base`` that ``entries`` of the ledger name; needs no ledger."""

    base: str
    topic: str
    entries: tuple[LedgerEntry, ...]

    def consume(
        self, ranges: Sequence[OffsetRange], *, bounds: ReadBounds, columns: Sequence[str]
    ) -> "FilesRead":
        """Return the rows of *ranges*; a file is opened only while the result is iterated."""
        return FilesRead(self, tuple(ranges), bounds, tuple(columns))

    def records(self, first: int, until: int) -> Iterator[list[Record]]:
        """Yield the records with offsets in ``[first, until)``, in order.

        Raises:
            UnreachableError: the ledger has no entry for an offset, or a file cannot be read now.
        """
        reached = first
        for entry in self.entries:
            if entry.until <= reached or entry.first >= until:
                continue
            if entry.first > reached:
                break
            high = min(entry.until, until)
            yield from self._of(entry, reached, high)
            reached = high
        if reached < until:
            raise UnreachableError(f"the ledger of {self.topic} has no entry for {reached}")

    def _of(self, entry: LedgerEntry, first: int, until: int) -> Iterator[list[Record]]:
        if not isinstance(entry.what, TakenFile):
            yield [(first, encode_head(entry.what), None)]
            return
        file, base, offset = entry.what, entry.first, first
        base_folder = Path(self.base)
        head = encode_head(_head(file, base))
        try:
            with content.open_file(base_folder / file.path, base_folder) as opened:
                stamp = _same(opened, file, FileStamp(*file.stamp))
                for some in content.read_file_rows(opened, file.kind, first - base, until - base):
                    stamp = _same(opened, file, stamp)
                    yield [(offset + n, head, row) for n, row in enumerate(some)]
                    offset += len(some)
        except (FileNotFoundError, PermissionError, ValueError) as error:
            yield [(offset, encode_head(_lost(file, offset, until, error)), None)]
        except OSError as error:
            raise UnreachableError(f"file {file.path}: {error}") from error


@dataclass(eq=False)
class FilesRead:
    """The rows of ``ranges``, in batches no larger than *bounds*."""

    reader: FilesReader
    ranges: tuple[OffsetRange, ...]
    bounds: ReadBounds
    columns: tuple[str, ...]
    _read: dict[OffsetRange, RangeRead] = field(default_factory=dict)

    @property
    def read(self) -> tuple[RangeRead, ...]:
        """Return what was read of each range; complete once iterated."""
        return tuple(self._read.get(one, RangeRead(one)) for one in self.ranges)

    def __iter__(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield the batches, range by range."""
        schema = pa.schema([*RAW, *(pa.field(name, OPTIONAL[name]) for name in self.columns)])
        for one in self.ranges:
            count = 0
            for some in self.reader.records(one.first, one.until):
                for part in _bounded(some, self.bounds):
                    count += len(part)
                    yield _batch(part, one, schema)
            if one.first < one.until:
                self._read[one] = RangeRead(one, one.first, one.until - 1, count)


def _bounded(records: list[Record], bounds: ReadBounds) -> Iterator[list[Record]]:
    """Split by rows and bytes; a record larger than the limit is a batch of its own."""
    part, size = list[Record](), 0
    for one in records:
        long = len(one[1]) + len(one[2] or b"")
        if part and (len(part) >= bounds.rows or size + long > bounds.size):
            yield part
            part, size = [], 0
        part.append(one)
        size += long
    if part:
        yield part


def _batch(records: list[Record], one: OffsetRange, schema: pa.Schema) -> pa.RecordBatch:
    offsets, keys, values = zip(*records, strict=True)
    count = len(records)
    made = {
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "topic": pa.repeat(one.topic, count),
        "partition": pa.repeat(pa.scalar(one.partition, pa.int32()), count),
        "offset": pa.array(offsets, pa.int64()),
    }
    arrays = [made.get(name, pa.nulls(count, schema.field(name).type)) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _head(file: TakenFile, first: int) -> RowsHead:
    at = file.stamp[2] // 1_000
    key = own_key(file.key)
    return RowsHead(file.shard, file.path, file.day, file.hour, first, at, key)


def _same(opened: IO[bytes], file: TakenFile, known: FileStamp) -> FileStamp:
    """Return the file's present stamp; compare all bytes if it differs from *known*.

    Raises:
        ValueError: the file was changed or replaced.
    """
    now = FileStamp.of(os.fstat(opened.fileno()))
    if now != known and content.digest_of(opened) != file.digest:
        raise ValueError("it was changed after it was taken, and before it was read")
    return now


def _lost(file: TakenFile, offset: int, until: int, error: Exception) -> FaultHead:
    why = error.strerror if isinstance(error, OSError) else str(error)
    lost = f"{why}; {until - offset} rows of it were not read"
    gone = f"; {COPY}" if isinstance(error, FileNotFoundError) else ""
    return FaultHead(file.shard, file.path, f"{lost}{gone}")


TRANSPORT: type[Transport] = FilesTransport
