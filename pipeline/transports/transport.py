"""What is asked of what carries the topics?  Where they begin and end, and the records between.

A class of this kind stands as ``TRANSPORT`` in its module.  Every method raises UnreachableError
when the topics do not answer.  Offsets of a partition are whole numbers that rise.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from pipeline.model import PartitionEnd, TopicPartition
from pipeline.topics.records import LastRecord
from pipeline.topics.settings import TopicFacts
from pipeline.transports.offset_ranges import OffsetRange, RangeRead, ReadBounds


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
        """Topics whose whole name matches, with their ids; a topic created anew has another."""
        ...

    def ends(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        """Next offset of each partition; a topic that does not exist is absent."""
        ...

    def beginnings(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        """First offset still kept of each partition; equal to its end when it holds nothing."""
        ...

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Where each of these leader epochs ends in the log there is now; -1 if nobody knows."""
        ...

    def hidden(self, topics: Iterable[str]) -> frozenset[str]:
        """Those of *topics* that we may not see, whether they are there or not."""
        ...

    def require_ids(self, expected: Mapping[str, str]) -> None:
        """Return if each topic still has its id; UnreachableError if one was created anew."""
        ...

    def last_records(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, LastRecord]:
        """Newest data record of each partition, rather no tombstone; absent where there is none."""
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
