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

USUAL = 2**10  # assumed bytes of a record if its size is unknown


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``[first, until)`` of one partition.

    ``leader_epoch`` is that of the last record read before ``first``; -1 if unknown. ``size`` is
    the approximate uncompressed size of its records in bytes; 0 if unknown.
    """

    topic: str
    partition: int
    first: int
    until: int
    leader_epoch: int = -1
    size: int = 0

    @property
    def expected(self) -> int:
        """Return the expected bytes."""
        return self.size or (self.until - self.first) * USUAL

    def __str__(self) -> str:
        """Render for messages."""
        return f"{self.topic}:{self.partition} [{self.first}, {self.until})"


@dataclass(frozen=True, slots=True)
class RangeRead:
    """The result of reading a range: ``first`` and ``last`` offset, None if it held no record.

    ``count`` is how many records the client returned; `pipeline.landing.topic_counts` compares it
    with what landed.

    ``leader_epochs`` holds, in log order, each epoch that differs from that of the record before.
    They rise in any true log.
    """

    asked: OffsetRange
    first: int | None = None
    last: int | None = None
    count: int = 0
    leader_epochs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadBounds:
    """Limits of the memory of a read, and how long a silence is accepted.

    A batch ends at ``rows`` or ``size`` bytes. Ranges are assigned together up to ``assigned``
    uncompressed bytes. One fetch may unpack all that is assigned, with any other settings.
    """

    rows: int = 10_000
    size: int = 32 * 2**20
    assigned: int = 256 * 2**20
    patience: timedelta = timedelta(seconds=30)


@dataclass(slots=True)
class Cursor:
    """The progress in one range; ``end`` is the last seen end of its partition."""

    range: OffsetRange
    next: int
    first: int | None = None
    count: int = 0
    epochs: list[int] = field(default_factory=list)
    end: int | None = None
    done: bool = False

    @property
    def result(self) -> RangeRead:
        """Return what was read so far."""
        last = self.next - 1 if self.count else None
        return RangeRead(self.range, self.first, last, self.count, tuple(self.epochs))

    def advance(self, offsets: npt.NDArray[np.int64], epochs: npt.NDArray[np.int64]) -> int:
        """Note a run of rising offsets (not empty); return how many of them lie in the range."""
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
        """Note the partition's end; the range is read only if *end* is at ``until`` or later."""
        self.end = end
        self.done = self.done or end >= self.range.until


def split_ranges(cursors: Sequence[Cursor], most: int) -> Iterator[list[Cursor]]:
    """Yield groups of the ranges that are not empty, of at most *most* bytes or of one range.

    A partition occurs once in a group, so that records of one range are not taken for another's.
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
    """The records of some ranges of offsets; iterate it once, then get what was ``read``."""

    @property
    def read(self) -> tuple[RangeRead, ...]:
        """Return what was read of each range, in the given order; complete once iterated."""
        ...

    def __iter__(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield batches of `RAW`, then of the requested columns; offsets of a partition rise."""
        ...


class RecordReader(Protocol):
    """Reads records where a landing task runs; it is sent there pickled, without a client."""

    def consume(
        self, ranges: Sequence[OffsetRange], *, bounds: ReadBounds, columns: Sequence[str]
    ) -> RecordStream:
        """Return every record in *ranges* and no other; *columns* names some of `OPTIONAL`.

        Raises (while iterated):
            UnreachableError: a range cannot be read to its end.
        """
        ...


class Transport(Protocol):
    """The topics of all sources; the fields of the class are its settings."""

    def topics(self, pattern: str) -> Mapping[str, str]:
        """Return topics whose whole name matches, with ids; a recreated topic has another id."""
        ...

    def ends(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        """Return the next offset of each partition; a topic that does not exist is absent."""
        ...

    def beginnings(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        """Return the first offset of each partition that still exists; the end if it is empty."""
        ...

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return where each of these leader epochs ends in the log now; -1 if unknown."""
        ...

    def hidden(self, topics: Iterable[str]) -> frozenset[str]:
        """Return those of *topics* that this user may not see, whether they exist or not."""
        ...

    def require_ids(self, expected: Mapping[str, str]) -> None:
        """Return if each topic still has its id; UnreachableError if one was recreated."""
        ...

    def last_records(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, LastRecord]:
        """Return the newest data record of each partition; a tombstone only if it has no other."""
        ...

    def settings(self, pattern: str) -> Sequence[TopicFacts]:
        """Return topics whose whole name matches, with replica counts and Kafka's settings."""
        ...

    def reader(self, ranges: Sequence[OffsetRange]) -> RecordReader:
        """Return what landing tasks read *ranges* with; *ranges* may be empty."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...
