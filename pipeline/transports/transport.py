"""Defines the transport protocol: where topics begin and end, and the records in between.

A transport module exports its class as `TRANSPORT`. Every method raises UnreachableError when
the topics do not answer. Offsets of a partition are integers that increase, and some may be
absent.

`OffsetRange`, `Cursor` and `RangeRead` describe one read: the offsets that a task must read,
how far it has come, and what it read in the end. Ranges are half-open, `[first, until)`.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.model import PartitionEnd, TopicPartition
from pipeline.transports.topics import LastRecord, TopicFacts

USUAL = 2**10  # bytes of a record, as long as nobody knows better


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``[first, until)`` of one partition.

    ``leader_epoch`` is that of the last record read before ``first``; -1 if unknown.
    ``size`` is about how many bytes its records have uncompressed; 0 if unknown.
    """

    topic: str
    partition: int
    first: int
    until: int
    leader_epoch: int = -1
    size: int = 0

    @property
    def expected(self) -> int:
        """Bytes to count with."""
        return self.size or (self.until - self.first) * USUAL

    def __str__(self) -> str:
        """Render for messages."""
        return f"{self.topic}:{self.partition} [{self.first}, {self.until})"


@dataclass(frozen=True, slots=True)
class RangeRead:
    """What was read of a range: ``first`` and ``last`` offset, None where it held no record.

    ``count`` is how many records the client returned; the ledger compares it with what landed.

    ``leader_epochs`` holds each epoch that differs from the record's before it, in log order; they
    rise in any true log.
    """

    asked: OffsetRange
    first: int | None = None
    last: int | None = None
    count: int = 0
    leader_epochs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadBounds:
    """How much is held at once, and how long nothing may come.

    A batch ends at ``rows`` or ``size`` bytes.  Ranges are assigned together up to ``assigned``
    bytes uncompressed: one fetch may unpack all of what is assigned, with any other settings.
    """

    rows: int = 10_000
    size: int = 32 * 2**20
    assigned: int = 256 * 2**20
    patience: timedelta = timedelta(seconds=30)


@dataclass(slots=True)
class Cursor:
    """How far one range has been read; ``end`` is where its partition was last seen to end."""

    range: OffsetRange
    next: int
    first: int | None = None
    count: int = 0
    epochs: list[int] = field(default_factory=list)
    end: int | None = None
    done: bool = False

    @property
    def result(self) -> RangeRead:
        """What was read so far."""
        last = self.next - 1 if self.count else None
        return RangeRead(self.range, self.first, last, self.count, tuple(self.epochs))

    def advance(self, offsets: npt.NDArray[np.int64], epochs: npt.NDArray[np.int64]) -> int:
        """Take a run of rising offsets (not empty); how many of them lie in the range."""
        kept = int(np.searchsorted(offsets, self.range.until))
        self.done = self.done or int(offsets[-1]) >= self.range.until - 1
        if kept:
            self.first = int(offsets[0]) if self.first is None else self.first
            self.next = int(offsets[kept - 1]) + 1
            self.count += kept
            changes = np.flatnonzero(np.diff(epochs[:kept])) + 1
            for epoch in (int(epochs[0]), *(int(epochs[at]) for at in changes)):
                if self.epochs[-1:] != [epoch]:
                    self.epochs.append(epoch)
        return kept

    def reach(self, end: int) -> None:
        """Learn where the partition ends now: an answer only from ``until`` on."""
        self.end = end
        self.done = self.done or end >= self.range.until


def split_ranges(cursors: Sequence[Cursor], most: int) -> Iterator[list[Cursor]]:
    """Cut the ranges that may hold anything into groups of *most* bytes, or of one range.

    A partition stands once in a group, so that nothing of one range is taken for another's.
    """
    group: list[Cursor] = []
    size, places = 0, set[tuple[str, int]]()
    for cursor in cursors:
        one = cursor.range
        if one.first >= one.until:
            continue
        place = (one.topic, one.partition)
        if group and (size + one.expected > most or place in places):
            yield group
            group, size, places = [], 0, set()
        group.append(cursor)
        places.add(place)
        size += one.expected
    if group:
        yield group


class RecordStream(Protocol):
    """The records of some ranges of offsets; iterate it once, then ask what was ``read``."""

    @property
    def read(self) -> tuple[RangeRead, ...]:
        """What was read of each range, in the order they were given; whole once iterated."""
        ...

    def __iter__(self) -> Generator[pa.RecordBatch, None, None]:
        """Batches of `RAW`, then of the columns asked for; offsets of a partition rise."""
        ...


class RecordReader(Protocol):
    """Reads where a landing task runs; sent there pickled, without a client."""

    def consume(
        self, ranges: Sequence[OffsetRange], *, bounds: ReadBounds, columns: Sequence[str]
    ) -> RecordStream:
        """Every record in *ranges* and no other; *columns* names some of `OPTIONAL`.

        A range that cannot be read to its end is an UnreachableError while it is iterated.
        """
        ...


class Transport(Protocol):
    """The topics below all sources' prefixes; its settings are the fields of the class."""

    def topics(self, pattern: str) -> Mapping[str, str]:
        """Topics whose whole name matches, with their ids; a recreated topic has another."""
        ...

    def ends(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        """Next offset of each partition; a topic that does not exist is absent."""
        ...

    def beginnings(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        """First offset still kept of each partition; equal to its end when it holds nothing."""
        ...

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Where each of these leader epochs ends in the log there is now; -1 if unknown."""
        ...

    def hidden(self, topics: Iterable[str]) -> frozenset[str]:
        """Those of *topics* that we may not see, whether they are there or not."""
        ...

    def require_ids(self, expected: Mapping[str, str]) -> None:
        """Return if each topic still has its id; UnreachableError if one was recreated."""
        ...

    def last_records(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, LastRecord]:
        """Newest data record of each partition, rather no tombstone; absent without one."""
        ...

    def settings(self, pattern: str) -> Sequence[TopicFacts]:
        """Topics whose whole name matches, with copies and settings in Kafka's words."""
        ...

    def reader(self, ranges: Sequence[OffsetRange]) -> RecordReader:
        """What landing tasks read *ranges* with, which may be none yet."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...
