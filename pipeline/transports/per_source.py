"""Combines several transports into one, so that a source may have its own.

Each topic is requested only from the transport whose pattern matches its name. A topic that
another transport holds under such a name is ignored. Without a `usual` transport, topics that
match no pattern do not exist.
"""

import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import pyarrow as pa

from pipeline.model import PartitionEnd, TopicPartition
from pipeline.transports.topics import LastRecord, TopicFacts
from pipeline.transports.transport import (
    OffsetRange,
    RangeRead,
    ReadBounds,
    RecordReader,
    RecordStream,
    Transport,
)

T = TypeVar("T")
K = TypeVar("K", str, TopicPartition)


@dataclass(frozen=True, slots=True)
class OwnTopics:
    """The topics whose whole name matches ``pattern``, and the transport that carries them."""

    pattern: str
    transport: Transport

    def holds(self, topic: str) -> bool:
        """Return whether the name of *topic* matches."""
        return re.fullmatch(self.pattern, topic) is not None


@dataclass(frozen=True, slots=True)
class TransportsBySource:
    """Asks each transport for its own topics: those of ``own`` first, then ``usual`` for the rest.

    Without ``usual`` there are no other topics.
    """

    own: tuple[OwnTopics, ...]
    usual: Transport | None = None

    def topics(self, pattern: str) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for number, transport in enumerate(self._all):
            listed = transport.topics(pattern)
            found |= {name: id_ for name, id_ in listed.items() if self._of(name) == number}
        return found

    def ends(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        return self._joined(topics, lambda one, its: one.ends(its))

    def beginnings(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        return self._joined(topics, lambda one, its: one.beginnings(its))

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        return self._joined(
            epochs, lambda one, its: one.epoch_ends({at: epochs[at] for at in its}), _topic
        )

    def hidden(self, topics: Iterable[str]) -> frozenset[str]:
        return frozenset().union(*(one.hidden(its) for one, its in self._shares(topics)))

    def require_ids(self, expected: Mapping[str, str]) -> None:
        for one, its in self._shares(expected):
            one.require_ids({topic: expected[topic] for topic in its})

    def last_records(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, LastRecord]:
        return self._joined(partitions, lambda one, its: one.last_records(its), _topic)

    def settings(self, pattern: str) -> Sequence[TopicFacts]:
        return [
            facts
            for number, transport in enumerate(self._all)
            for facts in transport.settings(pattern)
            if self._of(facts.name) == number
        ]

    def reader(self, ranges: Sequence[OffsetRange]) -> "ReadersBySource":
        """Combine the readers of the transports that hold *ranges*."""
        shares = self._shares(ranges, lambda one: one.topic)
        return ReadersBySource(
            tuple((frozenset(r.topic for r in its), one.reader(its)) for one, its in shares)
        )

    def close(self) -> None:
        """Close all transports."""
        for one in self._all:
            one.close()

    @property
    def _all(self) -> tuple[Transport, ...]:
        usual = () if self.usual is None else (self.usual,)
        return (*(one.transport for one in self.own), *usual)

    def _of(self, topic: str) -> int:
        """Return the index of the transport that holds *topic*."""
        return next((n for n, one in enumerate(self.own) if one.holds(topic)), len(self.own))

    def _shares(
        self, asked: Iterable[T], topic: Callable[[T], str] = str
    ) -> list[tuple[Transport, list[T]]]:
        """Split *asked* by transport; transports without a part are absent."""
        every, found = self._all, dict[int, list[T]]()
        for one in asked:
            found.setdefault(self._of(topic(one)), []).append(one)
        return [(every[n], its) for n, its in sorted(found.items()) if n < len(every)]

    def _joined(
        self,
        asked: Iterable[K],
        ask: Callable[[Transport, list[K]], Mapping[TopicPartition, T]],
        topic: Callable[[K], str] = str,
    ) -> dict[TopicPartition, T]:
        shares = self._shares(asked, topic)
        return dict(chain.from_iterable(ask(one, its).items() for one, its in shares))


def _topic(at: TopicPartition) -> str:
    return at.topic


@dataclass(frozen=True, slots=True)
class ReadersBySource:
    """Combines readers; ``parts`` holds each with the topics that it reads."""

    parts: tuple[tuple[frozenset[str], RecordReader], ...]

    def consume(
        self, ranges: Sequence[OffsetRange], *, bounds: ReadBounds, columns: Sequence[str]
    ) -> "ReadBySource":
        """Read with one reader after the other."""
        streams = []
        for topics, reader in self.parts:
            own = [one for one in ranges if one.topic in topics]
            streams.append(reader.consume(own, bounds=bounds, columns=columns))
        return ReadBySource(tuple(ranges), tuple(streams))


@dataclass(eq=False, slots=True)
class ReadBySource:
    """The records of several readers, in the requested order."""

    ranges: tuple[OffsetRange, ...]
    streams: tuple[RecordStream, ...]

    @property
    def read(self) -> tuple[RangeRead, ...]:
        by_range = {one.asked: one for stream in self.streams for one in stream.read}
        return tuple(by_range[one] for one in self.ranges)

    def __iter__(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield all batches of the first reader, then of the next."""
        for stream in self.streams:
            yield from stream
