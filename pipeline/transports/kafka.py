"""Which topics does Kafka hold, how far does each partition reach, and what is in between?

One admin client lists, one consumer without a group reads; both are built on first use and thrown
away at the first error, so a broker that was killed costs one round.  Nothing is ever committed.
All is read_uncommitted, on purpose: behind an open transaction the last *stable* offset can lie
below a record the collector has already acknowledged, and such an end would prove nothing.  What
a collector's aborted transaction leaves behind is a true change, sent again later: redelivered.
"""

import base64
import re
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Self

from kafka import KafkaAdminClient, KafkaConsumer
from kafka import TopicPartition as Partition
from kafka.admin import OffsetSpec
from kafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)

from pipeline.errors import UnreachableError, class_and_text
from pipeline.model import PartitionEnd, TopicPartition
from pipeline.settings import KafkaSecurity
from pipeline.topics.records import LastRecord, drain, newest
from pipeline.topics.settings import TopicFacts, topic_facts
from pipeline.transports.consume import KafkaReader
from pipeline.transports.leader_epochs import ends_of_epochs
from pipeline.transports.offset_ranges import OffsetRange
from pipeline.transports.security import for_kafka_python, for_librdkafka
from pipeline.transports.transport import Transport


@dataclass(eq=False)
class KafkaTransport:
    """A cluster's topics, ends and records; connects on first use, one call at a time.

    *timeout* bounds each request, so a call that lists may take a few of it.
    """

    bootstrap: str
    security: KafkaSecurity = field(default_factory=KafkaSecurity)
    timeout: timedelta = timedelta(seconds=10)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _admin: Any = field(default=None, repr=False)
    _consumer: Any = field(default=None, repr=False)

    @property
    def cluster(self) -> Mapping[str, Any]:
        """How kafka-python's clients reach it."""
        return for_kafka_python(self.bootstrap, self.security)

    def topics(self, pattern: str) -> Mapping[str, str]:
        """Topics whose whole name matches *pattern*, by name, with their ids (Kafka's base64)."""
        with self._session():
            found = _alive(self._lister().describe_topics())
        names = sorted(name for name in found if re.fullmatch(pattern, name))
        return {name: _id(found[name]) for name in names if not found[name]["is_internal"]}

    def ends(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        """Next offset of each partition; a topic that does not exist is absent."""
        return self._list(topics, OffsetSpec.LATEST)

    def beginnings(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        """First offset still kept of each partition; equal to its end when it holds nothing."""
        return self._list(topics, OffsetSpec.EARLIEST)

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Where each leader epoch ends in the log there is now; -1 where no leader knows it."""
        if not epochs:
            return {}
        asked = {Partition(at.topic, at.partition): epoch for at, epoch in epochs.items()}
        with self._session():
            found = ends_of_epochs(self._lister(), asked)
        return {TopicPartition(*at): end for at, end in found.items()}

    def last_records(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LastRecord]:
        """Newest data record of each partition; one that holds none is absent."""
        asked = {Partition(at.topic, at.partition): at for at in partitions}
        topics = {at.topic for at in asked}
        first, end = self.beginnings(topics), self.ends(topics)
        known = first.keys() & end.keys()
        spans = {p: (first[at].offset, end[at].offset) for p, at in asked.items() if at in known}
        with self._session():
            reader = self._reader()
            found = newest(lambda steps: drain(reader, steps, self.timeout), spans)
        return {TopicPartition(*at): record for at, record in found.items()}

    def settings(self, pattern: str) -> tuple[TopicFacts, ...]:
        """Topics whose whole name matches *pattern*, with copies and settings."""
        return topic_facts(self.cluster, pattern, self.timeout)

    def reader(self, ranges: Sequence[OffsetRange]) -> KafkaReader:
        """What landing tasks read with, whatever the ranges."""
        return KafkaReader(for_librdkafka(self.bootstrap, self.security))

    def hidden(self, topics: Iterable[str]) -> frozenset[str]:
        """Those of *topics* that we may not see: a listing leaves them out without a word."""
        if not (asked := sorted(set(topics))):
            return frozenset()
        with self._session():
            told = self._lister().describe_topics(asked)
        refused = TopicAuthorizationFailedError.errno
        return frozenset(one["name"] for one in told if one["error_code"] == refused)

    def require_ids(self, expected: Mapping[str, str]) -> None:
        """Return if each topic still has its id.

        Raises:
            UnreachableError: one was deleted or created again.
        """
        with self._session():
            self._check_ids(expected)

    def close(self) -> None:
        """Drop both connections; the next call would build them anew."""
        clients, self._admin, self._consumer = (self._admin, self._consumer), None, None
        for client in clients:
            if client is not None:
                client.close()

    def __enter__(self) -> Self:
        """Return itself: nothing is opened before it is needed."""
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
                allow_auto_create_topics=False,  # or reading a deleted topic would bring it back
                auto_offset_reset="none",  # an offset that is gone is an error, never a jump
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
                    msg += "; a login that the brokers refuse looks so, too: see kafka_security"
                raise UnreachableError(msg) from error


TRANSPORT: type[Transport] = KafkaTransport


def _alive(topics: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Topics by name; one that does not exist is left out, any other error is raised."""
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
    """The topic's id as Kafka's own tools print it; empty before Kafka 2.8."""
    raw = uuid.UUID(str(topic["topic_id"] or uuid.UUID(int=0)))
    return base64.urlsafe_b64encode(raw.bytes).decode().rstrip("=") if raw.int else ""


def _ms(span: timedelta) -> int:
    return max(1, span // timedelta(milliseconds=1))
