"""Lists Kafka topics and offsets, and reads exact offset ranges as bounded Arrow batches.

Two clients share the work. kafka-python lists topics and offsets and reads last records.
librdkafka (confluent-kafka) reads ranges where a landing task runs. The kafka-python clients
are built on first use and dropped at the first error, so a killed broker costs one round.
Nothing is ever committed, and no consumer group is joined.

Everything is read_uncommitted, on purpose. Behind an open transaction the last stable offset
can be below a record that the collector has already acknowledged. Such an end would prove
nothing, and a task would receive no records. Records of an aborted transaction are true
changes, which the collector redelivers later.

librdkafka reports nothing when no records arrive, for any cause, and may skip offsets. So a
range counts as read only after one of two events. Either a record at or beyond its last offset
was seen, or a partition end at or beyond `until`. A lower end is no answer: the partition has
shrunk, or a follower leads. Reading waits for a higher one, and raises UnreachableError if none
comes in time. Offsets may be absent inside a range, even at its end, because of compaction and
transaction markers.

Ends of leader epochs come from OffsetsForLeaderEpoch (KIP-101): the first offset of the next
epoch, or the partition end for the newest. An end below what was read under that epoch shows
that a new leader, elected out of sync, truncated the partition. Offsets alone cannot show this
once the partition has grown again. kafka-python has this request, but no public method for it.
"""

import base64
import re
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, Message
from confluent_kafka import KafkaError as ConfluentError
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaAdminClient, KafkaConsumer
from kafka import TopicPartition as Partition
from kafka.admin import OffsetSpec
from kafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    NoError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.protocol.consumer.offsets import OffsetForLeaderEpochRequest

from pipeline.errors import ConfigError, UnreachableError, class_and_text
from pipeline.formats.format import OPTIONAL, RAW
from pipeline.model import PartitionEnd, TopicPartition
from pipeline.settings import KafkaSecurity
from pipeline.transports.security import for_kafka_python, for_librdkafka
from pipeline.transports.topics import (
    LastRecord,
    TopicFacts,
    read_last_records,
    read_spans,
    topic_facts,
)
from pipeline.transports.transport import (
    Cursor,
    OffsetRange,
    RangeRead,
    ReadBounds,
    Transport,
    split_ranges,
)

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class Gathering:
    """Records of *ranges*, in the order of arrival; ``size`` is the bytes of keys and values.

    ``columns`` names the columns of ``OPTIONAL`` that are kept, too.
    """

    ranges: Sequence[OffsetRange]
    columns: Sequence[str] = ()
    size: int = 0
    _keys: list[bytes | None] = field(default_factory=list, repr=False)
    _values: list[bytes | None] = field(default_factory=list, repr=False)
    _others: dict[str, list[Any]] = field(default_factory=dict, repr=False)
    _offsets: list[Ints] = field(default_factory=list, repr=False)
    _numbers: list[Ints] = field(default_factory=list, repr=False)

    def __len__(self) -> int:
        """Return the number of kept records."""
        return len(self._values)

    def add(self, messages: Sequence[Message], offsets: Ints, numbers: Ints) -> int:
        """Keep *messages*, return their bytes; *numbers* are the indexes of their ``ranges``."""
        keys, values = [m.key() for m in messages], [m.value() for m in messages]
        size = sum(map(len, filter(None, keys))) + sum(map(len, filter(None, values)))
        self._keys += keys
        self._values += values
        for name in self.columns:
            self._others.setdefault(name, []).extend(_READ[name](messages))
        self._offsets.append(offsets)
        self._numbers.append(numbers)
        self.size += size
        return size

    def emptied(self) -> pa.RecordBatch:
        """Return all records (at least one) as a batch of ``RAW`` and ``columns``; keep none."""
        numbers = np.concatenate(self._numbers)
        topics = pa.array([one.topic for one in self.ranges], pa.string())
        partitions = np.array([one.partition for one in self.ranges], np.int32)
        arrays = [
            pa.array(self._keys, pa.binary()),
            pa.array(self._values, pa.binary()),
            topics.take(pa.array(numbers)),
            pa.array(partitions[numbers]),
            pa.array(np.concatenate(self._offsets)),
            *(pa.array(self._others[name], OPTIONAL[name]) for name in self.columns),
        ]
        fields = [*RAW, *(pa.field(name, OPTIONAL[name]) for name in self.columns)]
        for kept in (self._keys, self._values, self._others, self._offsets, self._numbers):
            kept.clear()
        self.size = 0
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _times(messages: Sequence[Message]) -> list[int | None]:
    """Return microseconds; None where a record has no time (kind 0)."""
    return [at * 1_000 if kind else None for kind, at in (m.timestamp() for m in messages)]


def _headers(messages: Sequence[Message]) -> list[Any]:
    headers: list[Any] = [m.headers() for m in messages]
    return [h and [{"name": name, "value": value} for name, value in h] for h in headers]


_READ: Mapping[str, Callable[[Sequence[Message]], list[Any]]] = {
    "timestamp": _times,
    "headers": _headers,
}


MOST = 500  # most messages requested at once: a longer list costs more per message
WAIT = timedelta(milliseconds=50)  # if the last offsets of a range are absent, no record comes
HANDED = 8 * 2**20  # bytes requested at once, by the mean record size so far
REASONS = 3  # newest reasons in an error; librdkafka repeats that a broker is down without end
OURS: Mapping[str, str | int | bool] = {
    "group.id": "sluice",  # obligatory; no group is ever joined
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # an offset that no longer exists is an error, never a jump
    "isolation.level": "read_uncommitted",
    "enable.partition.eof": True,
    "check.crcs": True,  # off by default, and then a flipped byte lands
    "allow.auto.create.topics": False,
    "max.partition.fetch.bytes": 2**20,
    "fetch.max.bytes": 8 * 2**20,
    "queued.max.messages.kbytes": 8 * 2**10,
    "fetch.queue.backoff.ms": 5,
    "fetch.wait.max.ms": 20,
    "log_level": 2,  # error_cb gets what it would print, too
}


@dataclass(eq=False)
class Consumption:
    """The records of some ranges; iterate it once, then get what was ``read``.

    A batch has the columns of `RAW`, then the requested ones of ``OPTIONAL``. Offsets rise within a
    partition; partitions come mixed, in any order.

    Raises (while iterated):
        UnreachableError: not all ranges could be read; the message names one, and the reason.
        ConfigError: the client rejects a setting.
    """

    settings: Mapping[str, str] = field(repr=False)
    ranges: tuple[OffsetRange, ...]
    bounds: ReadBounds = field(default_factory=ReadBounds)
    columns: tuple[str, ...] = ()
    _cursors: list[Cursor] = field(default_factory=list, repr=False)

    @property
    def read(self) -> tuple[RangeRead, ...]:
        """Return what was read of each range, in the given order; complete once iterated."""
        return tuple(cursor.result for cursor in self._cursors)

    def __iter__(self) -> Generator[pa.RecordBatch, None, None]:
        """Read all ranges, with a new client per assignment: a reused one returns old errors."""
        self._cursors = [Cursor(one, one.first) for one in self.ranges]
        kept = Gathering(self.ranges, self.columns)
        numbers = {id(cursor): number for number, cursor in enumerate(self._cursors)}
        for group in split_ranges(self._cursors, self.bounds.assigned):
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
    """Opens a `Consumption` with librdkafka's ``settings``, where a landing task runs."""

    settings: Mapping[str, str] = field(repr=False)

    def consume(
        self, ranges: Sequence[OffsetRange], *, bounds: ReadBounds, columns: Sequence[str]
    ) -> Consumption:
        """Return every record in *ranges*; it connects only when the result is iterated."""
        return consume_ranges(self.settings, ranges, bounds=bounds, columns=columns)


def consume_ranges(
    settings: Mapping[str, str],
    ranges: Sequence[OffsetRange],
    *,
    bounds: ReadBounds | None = None,
    columns: Iterable[str] = (),
) -> Consumption:
    """Return every record in *ranges*; *settings* are librdkafka's, *columns* are of `OPTIONAL`.

    Raises:
        ConfigError: a setting that only Sluice may set, or that this client does not have.
    """
    require_readable(settings)
    return Consumption(settings, tuple(ranges), bounds or ReadBounds(), tuple(columns))


def require_readable(settings: Mapping[str, str]) -> None:
    """Return if a task can read with these settings.

    Raises:
        ConfigError: names the setting that does not work.
    """
    mechanism = settings.get("sasl.mechanisms", settings.get("sasl.mechanism", ""))
    if mechanism.upper() == "GSSAPI":
        raise ConfigError(
            "kafka: sasl.mechanism GSSAPI (Kerberos) is not in confluent-kafka's wheel;"
            " use SCRAM, PLAIN, OAUTHBEARER or a client certificate"
        )
    if taken := sorted(settings.keys() & OURS.keys()):
        raise ConfigError(f"kafka: {', '.join(taken)}: is set by Sluice; remove it")


class _Assigned:
    """One client that reads one assignment, opened and closed in the process that uses it."""

    def __init__(
        self,
        settings: Mapping[str, str],
        group: Sequence[Cursor],
        numbers: Sequence[int],
        patience: timedelta,
    ) -> None:
        """*numbers* are the indexes of the *group*'s ranges among all ranges."""
        self._left = {(c.range.topic, c.range.partition): c for c in group}
        self._cursors, self._numbers = list(group), np.array(numbers, np.int64)
        self._codes = {place: code for code, place in enumerate(self._left)}
        one_topic = len({cursor.range.topic for cursor in group}) == 1
        self._of_number = {n: code for (_, n), code in self._codes.items()} if one_topic else None
        self._patience = patience
        self._said: dict[str, None] = {}  # an ordered set
        self._records, self._bytes = 0, 0
        self._client = open_consumer(settings, self._hear)
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
        """Return whether a range is not read to its end yet."""
        return bool(self._left)

    def take(self, gathering: Gathering) -> None:
        """Add the records that arrive within `WAIT`, at most as many as are requested at once.

        Raises:
            UnreachableError: a partition has an error, or nothing has arrived for too long.
        """
        with _translated():
            came = self._client.consume(self._asked(), WAIT.total_seconds())
        messages = [message for message in came if message.error() is None]
        if len(messages) < len(came):
            self._judge(message for message in came if message.error() is not None)
        kept = self._keep(messages, gathering) if messages else 0
        self._settle(moved=kept > 0)

    def _aim(self) -> None:
        """Assign, then seek: only a seek compares the leader epoch with that of the log."""
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
        """Return how many messages to request: no more than are missing, or than fit in memory.

        The client would wait for messages that are not missing.
        """
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
                self._hear(error)  # such as a missing right on the group

    def _keep(self, messages: Sequence[Message], gathering: Gathering) -> int:
        """Keep the messages that lie in their ranges, and return their number."""
        offsets = np.array([m.offset() for m in messages], np.int64)
        epochs = _leader_epochs(messages)
        codes = self._places(messages)
        boundaries = (np.flatnonzero(np.diff(codes)) + 1).tolist()
        keep = np.zeros(len(messages), dtype=bool)
        for low, high in zip([0, *boundaries], [*boundaries, len(messages)], strict=True):
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
        """Return the cursor index of each message; a topic name is a new string in each message."""
        if self._of_number is None:
            codes: Mapping[Any, int] = self._codes
            return np.array([codes[m.topic(), m.partition()] for m in messages], np.int64)
        numbers = [_number(m.partition()) for m in messages]
        few = {number: self._of_number[number] for number in set(numbers)}
        if len(few) == 1:
            return np.full(len(numbers), next(iter(few.values())), np.int64)
        return np.array([few[number] for number in numbers], np.int64)

    def _settle(self, *, moved: bool) -> None:
        """Pause finished partitions, else they are fetched; raise after a long silence."""
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
            f"{len(self._left)} ranges not read, no data for {self._patience}: for example"
            f" {one.range}, read up to {one.next}{end}; {reason}"
        )


def open_consumer(settings: Mapping[str, str], hear: Callable[[ConfluentError], None]) -> Consumer:
    """Open a consumer that passes its errors to *hear*.

    Raises:
        ConfigError: librdkafka rejects a setting.
    """
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
    """Return the leader epoch of each record; -1 from a broker before Kafka 2.1."""
    epochs = [m.leader_epoch() for m in messages]
    if None not in (few := set(epochs)) and len(few) == 1:
        return np.full(len(epochs), epochs[0], np.int64)
    return np.array([-1 if epoch is None else epoch for epoch in epochs], np.int64)


def _number(value: int | None) -> int:
    return -1 if value is None else value


_NOBODY = -1  # replica id of a consumer


def ends_of_epochs(
    admin: KafkaAdminClient, epochs: Mapping[Partition, int]
) -> dict[Partition, int]:
    """Return where the given leader epoch of each partition ends; -1 if no leader knows it.

    Raises:
        KafkaError: the answer for a partition is an error.
    """
    found: dict[Partition, int] = admin._manager.run(_ask, admin, epochs)
    return found


async def _ask(admin: Any, epochs: Mapping[Partition, int]) -> dict[Partition, int]:
    leaders = await admin._async_get_leader_for_partitions(set(epochs))
    found: dict[Partition, int] = {}
    for leader, partitions in leaders.items():
        asked = {partition: epochs[partition] for partition in partitions}
        response = await admin._manager.send(_request(asked), node_id=leader)
        found |= _answers(response)
    return found


def _request(epochs: Mapping[Partition, int]) -> Any:
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    parts = defaultdict(list)
    for at, epoch in epochs.items():
        parts[at.topic].append(
            topic.OffsetForLeaderPartition(
                partition=at.partition, current_leader_epoch=-1, leader_epoch=epoch
            )
        )
    topics = [topic(topic=name, partitions=listed) for name, listed in parts.items()]
    return OffsetForLeaderEpochRequest(replica_id=_NOBODY, topics=topics)


def _answers(response: Any) -> dict[Partition, int]:
    found = {}
    for topic in response.topics:
        for partition in topic.partitions:
            error = for_code(partition.error_code)
            if error is not NoError:
                msg = f"{topic.topic}:{partition.partition}: end of a leader epoch is unknown"
                raise error(msg)
            found[Partition(topic.topic, partition.partition)] = int(partition.end_offset)
    return found


@dataclass(eq=False)
class KafkaTransport:
    """Topics, ends and records of a cluster; connects on first use, one call at a time.

    ``timeout``: time limit of each request; a call that lists may take a few times as long.
    """

    bootstrap: str
    security: KafkaSecurity = field(default_factory=KafkaSecurity)
    timeout: timedelta = timedelta(seconds=10)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _admin: Any = field(default=None, repr=False)
    _consumer: Any = field(default=None, repr=False)

    @property
    def cluster(self) -> Mapping[str, Any]:
        """Return the connection arguments of kafka-python's clients."""
        return for_kafka_python(self.bootstrap, self.security)

    def topics(self, pattern: str) -> Mapping[str, str]:
        """Return topics whose whole name matches *pattern*, with their ids (Kafka's base64)."""
        with self._session():
            found = _alive(self._lister().describe_topics())
        names = sorted(name for name in found if re.fullmatch(pattern, name))
        return {name: _id(found[name]) for name in names if not found[name]["is_internal"]}

    def ends(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        """Return the next offset of each partition; a topic that does not exist is absent."""
        return self._list(topics, OffsetSpec.LATEST)

    def beginnings(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        """Return the first offset of each partition that still exists; the end if it is empty."""
        return self._list(topics, OffsetSpec.EARLIEST)

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return where each leader epoch ends in the log now; -1 if no leader knows it."""
        if not epochs:
            return {}
        asked = {Partition(at.topic, at.partition): epoch for at, epoch in epochs.items()}
        with self._session():
            found = ends_of_epochs(self._lister(), asked)
        return {TopicPartition(*at): end for at, end in found.items()}

    def last_records(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LastRecord]:
        """Return the newest data record of each partition; absent if a partition has no record."""
        asked = {Partition(at.topic, at.partition): at for at in partitions}
        topics = {at.topic for at in asked}
        first, end = self.beginnings(topics), self.ends(topics)
        known = first.keys() & end.keys()
        spans = {p: (first[at].offset, end[at].offset) for p, at in asked.items() if at in known}
        with self._session():
            reader = self._reader()
            found = read_last_records(lambda steps: read_spans(reader, steps, self.timeout), spans)
        return {TopicPartition(*at): record for at, record in found.items()}

    def settings(self, pattern: str) -> tuple[TopicFacts, ...]:
        """Return topics whose whole name matches *pattern*, with replica counts and settings."""
        return topic_facts(self.cluster, pattern, self.timeout)

    def reader(self, ranges: Sequence[OffsetRange]) -> KafkaReader:
        """Return the reader of landing tasks; it reads any ranges."""
        return KafkaReader(for_librdkafka(self.bootstrap, self.security))

    def hidden(self, topics: Iterable[str]) -> frozenset[str]:
        """Return those of *topics* that this user may not see; listings omit them silently."""
        if not (asked := sorted(set(topics))):
            return frozenset()
        with self._session():
            descriptions = self._lister().describe_topics(asked)
        refused = TopicAuthorizationFailedError.errno
        return frozenset(one["name"] for one in descriptions if one["error_code"] == refused)

    def require_ids(self, expected: Mapping[str, str]) -> None:
        """Return if each topic still has its id.

        Raises:
            UnreachableError: one was deleted or created again.
        """
        with self._session():
            self._check_ids(expected)

    def close(self) -> None:
        """Close both connections; the next call opens new ones."""
        clients, self._admin, self._consumer = (self._admin, self._consumer), None, None
        for client in clients:
            if client is not None:
                client.close()

    def __enter__(self) -> Self:
        """Return itself; nothing is opened yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _list(self, topics: Iterable[str], spec: Any) -> Mapping[TopicPartition, PartitionEnd]:
        with self._session():
            admin = self._lister()
            found = _alive(admin.describe_topics(sorted(set(topics))))
            asked = {Partition(n, p): spec for n, t in found.items() for p in _partitions(t)}
            listed = admin.list_partition_offsets(asked, timeout_ms=_ms(self.timeout))
        return {
            TopicPartition(*at): PartitionEnd(
                to.offset, _id(found[at.topic]), -1 if to.leader_epoch is None else to.leader_epoch
            )
            for at, to in sorted(listed.items())
        }

    def _check_ids(self, expected: Mapping[str, str]) -> None:
        found = _alive(self._lister().describe_topics(sorted(expected)))
        for topic, wanted in expected.items():
            if topic not in found or _id(found[topic]) != wanted:
                msg = f"topic {topic} was deleted or created again while it was read"
                raise UnreachableError(msg)

    def _lister(self) -> Any:
        if self._admin is None:
            self._admin = KafkaAdminClient(**self._client_settings())
        return self._admin

    def _reader(self) -> Any:
        if self._consumer is None:
            self._consumer = KafkaConsumer(
                **self._client_settings(),
                group_id=None,
                enable_auto_commit=False,
                allow_auto_create_topics=False,  # else a read would create a deleted topic
                auto_offset_reset="none",  # a deleted offset is an error, never a jump
                isolation_level="read_uncommitted",
                fetch_max_wait_ms=20,  # a fetch that waits blocks the next call's first fetch
                fetch_max_bytes=16 * 2**20,
                max_poll_records=5_000,
            )
        return self._consumer

    def _client_settings(self) -> dict[str, Any]:
        return {
            **self.cluster,
            "client_id": "sluice",
            "request_timeout_ms": _ms(self.timeout),
            "bootstrap_timeout_ms": _ms(self.timeout),
            "reconnect_backoff_max_ms": 1_000,
        }

    @contextmanager
    def _session(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except (UnreachableError, KafkaError, OSError) as error:
                self.close()
                if isinstance(error, UnreachableError):
                    raise
                msg = f"Kafka at {self.bootstrap}: {class_and_text(error)}"
                if isinstance(error, KafkaTimeoutError) and self.security != KafkaSecurity():
                    msg += "; a rejected login looks the same: see kafka_security"
                raise UnreachableError(msg) from error


TRANSPORT: type[Transport] = KafkaTransport


def _alive(topics: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return topics by name without those that do not exist; raise any other error."""
    found = {}
    for topic in topics:
        if topic["error_code"] == UnknownTopicOrPartitionError.errno:
            continue
        if topic["error_code"]:
            raise for_code(topic["error_code"])(topic["name"])
        found[topic["name"]] = topic
    return found


def _partitions(topic: Mapping[str, Any]) -> list[int]:
    leaderless = [p["partition_index"] for p in topic["partitions"] if p["leader_id"] < 0]
    if leaderless:
        msg = f"partitions {leaderless} of {topic['name']} have no leader; a broker is down"
        raise UnreachableError(msg)
    return [p["partition_index"] for p in topic["partitions"]]


def _id(topic: Mapping[str, Any]) -> str:
    """Return the topic's id as Kafka's own tools print it; empty before Kafka 2.8."""
    raw = uuid.UUID(str(topic["topic_id"] or uuid.UUID(int=0)))
    return base64.urlsafe_b64encode(raw.bytes).decode().rstrip("=") if raw.int else ""


def _ms(span: timedelta) -> int:
    return max(1, span // timedelta(milliseconds=1))
