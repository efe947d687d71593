"""Which records lie in these ranges of offsets?  Exactly those, as Arrow batches of bounded size.

librdkafka reads what a landing task was told to.  It says nothing when nothing comes, whatever the
cause, and jumps where it may; so a range counts as read only by what was seen of it: a record at
or beyond its last offset, or the partition's end at or beyond ``until``.  An end *before* that is
no answer (the log has shrunk, or a follower leads): it is waited out, and then an error.  Offsets
may be missing inside a range, even at its end: compaction, and markers of transactions.

All is read_uncommitted, as the listing is: behind an open transaction nothing would ever come.
"""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, Message
from confluent_kafka import KafkaError as ConfluentError
from confluent_kafka import TopicPartition as ConfluentPartition

from pipeline.errors import ConfigError, UnreachableError
from pipeline.transports.gathering import Gathering
from pipeline.transports.offset_ranges import (
    Cursor,
    OffsetRange,
    RangeRead,
    ReadBounds,
    assignments,
)

MOST = 500  # messages asked for at once: a list of more costs more each
WAIT = timedelta(milliseconds=50)  # a range that ends in a hole has no record to wake up for
HANDED = 8 * 2**20  # bytes asked for at once, by the mean of what has come
REASONS = 3  # the newest that an error tells; a broker that is down is complained of for ever
OURS: Mapping[str, str | int | bool] = {
    "group.id": "sluice",  # obligatory; no group is ever joined
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # an offset that is gone is an error, never a jump
    "isolation.level": "read_uncommitted",
    "enable.partition.eof": True,
    "check.crcs": True,  # off by default, and a flipped byte lands
    "allow.auto.create.topics": False,
    "max.partition.fetch.bytes": 2**20,
    "fetch.max.bytes": 8 * 2**20,
    "queued.max.messages.kbytes": 8 * 2**10,
    "fetch.queue.backoff.ms": 5,
    "fetch.wait.max.ms": 20,
    "log_level": 2,  # what it would print comes through error_cb, too
}


@dataclass(eq=False)
class Consumption:
    """The records of some ranges; iterate it once, then ask what was ``read``.

    Columns of a batch: `RAW`, then those of ``OPTIONAL`` that were asked for.  Offsets of a
    partition rise; partitions come in any order, and mixed.

    Raises (while iterated):
        UnreachableError: not all ranges could be read; the message names one, and the reason.
        ConfigError: the client refuses a setting.
    """

    settings: Mapping[str, str] = field(repr=False)
    ranges: tuple[OffsetRange, ...]
    bounds: ReadBounds = field(default_factory=ReadBounds)
    columns: tuple[str, ...] = ()
    _cursors: list[Cursor] = field(default_factory=list, repr=False)

    @property
    def read(self) -> tuple[RangeRead, ...]:
        """What was read of each range, in the order they were given; whole once iterated."""
        return tuple(cursor.told for cursor in self._cursors)

    def __iter__(self) -> Generator[pa.RecordBatch, None, None]:
        """Read them all, a new client for each assignment: a kept one hands over old errors."""
        self._cursors = [Cursor(one, one.first) for one in self.ranges]
        kept = Gathering(self.ranges, self.columns)
        numbers = {id(cursor): number for number, cursor in enumerate(self._cursors)}
        for group in assignments(self._cursors, self.bounds.assigned):
            own = [numbers[id(cursor)] for cursor in group]
            with _Assigned(self.settings, group, own, self.bounds.patience) as assigned:
                while assigned.open:
                    assigned.take(kept)
                    if len(kept) >= self.bounds.rows or kept.size >= self.bounds.size:
                        yield kept.emptied()
        if kept:
            yield kept.emptied()


@dataclass(frozen=True, slots=True)
class KafkaReader:
    """``settings`` are librdkafka's."""

    settings: Mapping[str, str] = field(repr=False)

    def consume(
        self, ranges: Sequence[OffsetRange], *, bounds: ReadBounds, columns: Sequence[str]
    ) -> Consumption:
        """Every record in *ranges*; nothing is dialled before it is iterated."""
        return consume(self.settings, ranges, bounds=bounds, columns=columns)


def consume(
    settings: Mapping[str, str],
    ranges: Sequence[OffsetRange],
    *,
    bounds: ReadBounds | None = None,
    columns: Iterable[str] = (),
) -> Consumption:
    """Every record in *ranges*; *settings* are librdkafka's, *columns* names some of `OPTIONAL`.

    Raises:
        ConfigError: a setting that is ours to decide, or that this build of the client lacks.
    """
    refuse(settings)
    return Consumption(settings, tuple(ranges), bounds or ReadBounds(), tuple(columns))


def refuse(settings: Mapping[str, str]) -> None:
    """Return if a task can read with these settings.

    Raises:
        ConfigError: naming the setting.
    """
    mechanism = settings.get("sasl.mechanisms", settings.get("sasl.mechanism", ""))
    if mechanism.upper() == "GSSAPI":
        raise ConfigError(
            "kafka: sasl.mechanism GSSAPI (Kerberos) is not in confluent-kafka's wheel;"
            " use SCRAM, PLAIN, OAUTHBEARER or a client certificate"
        )
    if taken := sorted(settings.keys() & OURS.keys()):
        raise ConfigError(f"kafka: {', '.join(taken)}: decided by Sluice, remove it")


class _Assigned:
    """One client that reads one assignment; it lives and dies in the process that uses it."""

    def __init__(
        self,
        settings: Mapping[str, str],
        group: Sequence[Cursor],
        numbers: Sequence[int],
        patience: timedelta,
    ) -> None:
        """*numbers* are those of *group*'s ranges among all."""
        self._left = {(c.range.topic, c.range.partition): c for c in group}
        self._cursors, self._numbers = list(group), np.array(numbers, np.int64)
        self._codes = {place: code for code, place in enumerate(self._left)}
        one_topic = len({cursor.range.topic for cursor in group}) == 1
        self._of_number = {n: code for (_, n), code in self._codes.items()} if one_topic else None
        self._patience = patience
        self._said: dict[str, None] = {}  # an ordered set
        self._records, self._bytes = 0, 0
        self._client = _client(settings, self._hear)
        self._moved = time.monotonic()

    def __enter__(self) -> "_Assigned":
        try:
            with _translated():
                self._aim()
        except BaseException:
            self._client.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    @property
    def open(self) -> bool:
        """Whether any of its ranges is not read."""
        return bool(self._left)

    def take(self, gathering: Gathering) -> None:
        """Add records that have come within `WAIT`; at most as many as are asked for at once.

        Raises:
            UnreachableError: a partition's error, or nothing has come for too long.
        """
        with _translated():
            came = self._client.consume(self._asked(), WAIT.total_seconds())
        messages = [message for message in came if message.error() is None]
        if len(messages) < len(came):
            self._judge(message for message in came if message.error() is not None)
        kept = self._keep(messages, gathering) if messages else 0
        self._settle(moved=kept > 0)

    def _aim(self) -> None:
        """Assign, then seek: only a seek has the leader's epoch compared with the log's."""
        ranges = [cursor.range for cursor in self._cursors]
        self._client.assign([ConfluentPartition(r.topic, r.partition, r.first) for r in ranges])
        for one in ranges:
            if one.leader_epoch >= 0:
                self._client.seek(
                    ConfluentPartition(
                        one.topic, one.partition, one.first, leader_epoch=one.leader_epoch
                    )
                )

    def _asked(self) -> int:
        """No more messages than are missing (it would wait for them), nor than fit in memory."""
        missing = sum(c.range.until - c.next for c in self._left.values())
        mean = self._bytes // self._records if self._records else self._guess()
        return max(1, min(MOST, missing, HANDED // max(1, mean)))

    def _guess(self) -> int:
        return max(c.range.expected // (c.range.until - c.range.first) for c in self._cursors)

    def _hear(self, error: ConfluentError) -> None:
        self._said.setdefault(error.str())
        if len(self._said) > REASONS:
            del self._said[next(iter(self._said))]

    def _judge(self, messages: Iterable[Message]) -> None:
        for message in messages:
            error, place = message.error(), (message.topic() or "", _number(message.partition()))
            if error is None:
                continue
            if error.code() == ConfluentError._PARTITION_EOF:
                if place in self._left:
                    self._left[place].reach(_number(message.offset()))
            elif place[0]:
                raise UnreachableError(f"{place[0]}:{place[1]}: {error.str()}")
            else:
                self._hear(error)  # such as a missing right on the group, beside good records

    def _keep(self, messages: Sequence[Message], gathering: Gathering) -> int:
        """Keep those that lie in their ranges; how many."""
        offsets = np.array([m.offset() for m in messages], np.int64)
        epochs = _leader_epochs(messages)
        codes = self._places(messages)
        turns = (np.flatnonzero(np.diff(codes)) + 1).tolist()
        keep = np.zeros(len(messages), dtype=bool)
        for low, high in zip([0, *turns], [*turns, len(messages)], strict=True):
            cursor, run = self._cursors[codes[low]], offsets[low:high]
            if run[0] < cursor.next or (np.diff(run) <= 0).any():
                raise UnreachableError(f"{cursor.range}: offsets went back to {run.min()}")
            keep[low : low + cursor.advance(run, epochs[low:high])] = True
        if not keep.all():
            messages = [messages[index] for index in np.flatnonzero(keep).tolist()]
            offsets, codes = offsets[keep], codes[keep]
        if messages:
            self._records += len(messages)
            self._bytes += gathering.add(messages, offsets, self._numbers[codes])
        return len(messages)

    def _places(self, messages: Sequence[Message]) -> npt.NDArray[np.int64]:
        """Which cursor each message belongs to; a topic's name is a new text in each message."""
        if self._of_number is None:
            codes: Mapping[Any, int] = self._codes
            return np.array([codes[m.topic(), m.partition()] for m in messages], np.int64)
        told = [_number(m.partition()) for m in messages]
        few = {number: self._of_number[number] for number in set(told)}
        if len(few) == 1:
            return np.full(len(told), next(iter(few.values())), np.int64)
        return np.array([few[number] for number in told], np.int64)

    def _settle(self, *, moved: bool) -> None:
        """Pause what is done, or it would be fetched on; count the time in which nothing came."""
        done = [place for place, cursor in self._left.items() if cursor.done]
        for place in done:
            del self._left[place]
        if moved or done:
            self._moved = time.monotonic()
        elif time.monotonic() - self._moved > self._patience.total_seconds():
            raise UnreachableError(self._complaint())
        if self._left and done:
            with _translated():
                self._client.pause([ConfluentPartition(*place) for place in done])

    def _complaint(self) -> str:
        one = next(iter(self._left.values()))
        end = "" if one.end is None else f", its log ends at {one.end}"
        reason = "; ".join(self._said) or "the brokers said nothing"
        return (
            f"{len(self._left)} ranges not read, nothing came for {self._patience}: {one.range}"
            f" is one, read up to {one.next}{end}; {reason}"
        )


def _client(settings: Mapping[str, str], hear: Callable[[ConfluentError], None]) -> Consumer:
    try:
        return Consumer({**settings, **OURS, "error_cb": hear})
    except KafkaException as error:
        raise ConfigError(f"kafka: {error.args[0].str()}") from error


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise UnreachableError(f"Kafka: {error.args[0].str()}") from error


def _leader_epochs(messages: Sequence[Message]) -> npt.NDArray[np.int64]:
    """Each record's; -1 from a broker before Kafka 2.1."""
    told = [m.leader_epoch() for m in messages]
    if None not in (few := set(told)) and len(few) == 1:
        return np.full(len(told), told[0], np.int64)
    return np.array([-1 if epoch is None else epoch for epoch in told], np.int64)


def _number(value: int | None) -> int:
    return -1 if value is None else value
