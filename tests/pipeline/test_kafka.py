"""What a real Kafka holds is read as it is; what it lost or began anew is never passed off."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka import TopicPartition as Partition

from demo.kafka import Kafka
from demo.ports import free_ports
from demo.processes import wait_until
from demo.servers import Servers
from pipeline.errors import UnreachableError
from pipeline.model import PartitionEnd, TopicPartition
from pipeline.topics.records import RECORDS, LastRecord
from pipeline.transports.kafka import KafkaTransport

pytestmark = pytest.mark.stack

SOON = timedelta(seconds=20)
names = (f"p3.kafka.t{n}" for n in count())

Rows = Sequence[tuple[bytes | None, bytes | None]]


@pytest.fixture
def transport(servers: Servers) -> Iterator[KafkaTransport]:
    with KafkaTransport(servers.kafka.bootstrap) as made:
        yield made


@pytest.fixture
def admin(servers: Servers) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=servers.kafka.bootstrap)
    yield client
    client.close()


@pytest.fixture
def topic(admin: KafkaAdminClient) -> str:
    return make(admin, next(names))


def make(admin: KafkaAdminClient, name: str, partitions: int = 1) -> str:
    admin.create_topics({name: {"num_partitions": partitions, "replication_factor": 1}})
    admin.wait_for_topics([name])
    return name


def send(bootstrap: str, topic: str, rows: Rows, partition: int = 0) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for key, value in rows:
        producer.send(
            topic, key=key, value=value, partition=partition, timestamp_ms=1_700_000_000_123
        )
    producer.flush()
    producer.close()


def some(first: int, until: int) -> Rows:
    return [(f"k{n}".encode(), f"v{n}".encode()) for n in range(first, until)]


def leave_holes(bootstrap: str, topic: str) -> None:
    """One committed and one aborted transaction: offsets 2 and 4 are markers."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
    producer.init_transactions()
    for rows, end in ((some(0, 2), "commit"), (some(2, 3), "abort")):
        producer.begin_transaction()
        for key, value in rows:
            producer.send(topic, key=key, value=value, partition=0).get(20)
        getattr(producer, f"{end}_transaction")()
    producer.close()


def test_ends_tell_offset_incarnation_and_epoch(
    transport: KafkaTransport, admin: KafkaAdminClient, servers: Servers
) -> None:
    name = make(admin, next(names), partitions=2)
    send(servers.kafka.bootstrap, name, some(0, 5), partition=1)

    ids = transport.topics(r"p3\.kafka\.t\d+")
    ends = transport.ends([name, "p3.not.there"])

    assert ends == {
        TopicPartition(name, 0): PartitionEnd(0, ids[name], 0),
        TopicPartition(name, 1): PartitionEnd(5, ids[name], 0),
    }
    assert transport.beginnings([name])[TopicPartition(name, 1)].offset == 0
    assert len(ids[name]) == len("QJppKkcfTxedxPrPbg9jRw")


def test_a_pattern_fits_whole_names_and_no_internal_topic(
    transport: KafkaTransport, topic: str
) -> None:
    assert list(transport.topics(topic)) == [topic]
    assert transport.topics(topic[:-1]) == {}
    assert "__consumer_offsets" not in transport.topics(".*")


def test_a_span_is_half_open_and_keeps_nulls_and_times(
    transport: KafkaTransport, topic: str, servers: Servers
) -> None:
    send(servers.kafka.bootstrap, topic, [*some(0, 3), (b"k3", None), (None, b"v4"), *some(5, 9)])
    at, end = next(iter(transport.ends([topic]).items()))

    found = transport.read({at: (2, PartitionEnd(5, end.topic_id))}, within=SOON)

    assert found.schema == RECORDS
    assert found["offset"].to_pylist() == [2, 3, 4]
    assert found["key"].to_pylist() == [b"k2", b"k3", None]
    assert found["value"].to_pylist() == [b"v2", None, b"v4"]
    assert found["timestamp"].to_pylist()[0] == datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)


def test_markers_of_transactions_are_holes_even_at_the_end(
    transport: KafkaTransport, topic: str, servers: Servers
) -> None:
    leave_holes(servers.kafka.bootstrap, topic)
    at = TopicPartition(topic, 0)
    wait_until(lambda: transport.ends([topic])[at].offset == 5, SOON, "both markers")
    end = transport.ends([topic])[at]

    assert transport.read({at: (0, end)}, within=SOON)["offset"].to_pylist() == [0, 1, 3]
    assert transport.read({at: (4, end)}, within=SOON).num_rows == 0
    assert transport.last_records([at]) == {at: LastRecord(b"k2", b"v2", 3)}


def test_a_last_record_may_be_a_tombstone_and_an_empty_partition_has_none(
    transport: KafkaTransport, admin: KafkaAdminClient, servers: Servers
) -> None:
    name = make(admin, next(names), partitions=2)
    send(servers.kafka.bootstrap, name, [*some(0, 2), (b"k1", None)], partition=1)

    found = transport.last_records(transport.ends([name]))

    assert found == {TopicPartition(name, 1): LastRecord(b"k1", None, 2)}


def test_small_batches_come_in_far_less_than_200_ms(
    transport: KafkaTransport, topic: str, servers: Servers
) -> None:
    at = TopicPartition(topic, 0)
    took = []
    for round_ in range(6):
        rows = [(b"k", b"x" * 1_000)] * 100
        send(servers.kafka.bootstrap, topic, rows)
        end = transport.ends([topic])[at]
        began = time.monotonic()
        assert transport.read({at: (round_ * 100, end)}, within=SOON).num_rows == 100
        took.append(time.monotonic() - began)

    assert min(took[1:]) < 0.1


def test_a_topic_created_again_is_another_topic(
    transport: KafkaTransport, topic: str, admin: KafkaAdminClient, servers: Servers
) -> None:
    send(servers.kafka.bootstrap, topic, some(0, 3))
    at, before = next(iter(transport.ends([topic]).items()))
    admin.delete_topics([topic])
    wait_until(lambda: not transport.ends([topic]), SOON, "the topic's end")
    assert transport.topics(topic) == {}
    make(admin, topic)
    send(servers.kafka.bootstrap, topic, some(10, 13))

    after = transport.ends([topic])[at]
    assert (after.offset, after.topic_id == before.topic_id) == (3, False)
    with pytest.raises(UnreachableError, match="deleted or created again"):
        transport.read({at: (0, before)}, within=SOON)
    assert transport.read({at: (0, after)}, within=SOON)["key"].to_pylist()[0] == b"k10"


def test_reading_a_deleted_topic_fails_and_does_not_bring_it_back(
    transport: KafkaTransport, topic: str, admin: KafkaAdminClient, servers: Servers
) -> None:
    send(servers.kafka.bootstrap, topic, some(0, 3))
    spans = {at: (0, end) for at, end in transport.ends([topic]).items()}
    admin.delete_topics([topic])
    wait_until(lambda: not transport.ends([topic]), SOON, "the topic's end")

    with pytest.raises(UnreachableError):
        transport.read(spans, within=timedelta(seconds=2))

    assert transport.topics(topic) == {}


def test_an_offset_that_retention_took_is_an_error_and_never_a_jump(
    transport: KafkaTransport, topic: str, admin: KafkaAdminClient, servers: Servers
) -> None:
    send(servers.kafka.bootstrap, topic, some(0, 9))
    admin.delete_records({Partition(topic, 0): 4})
    at, end = next(iter(transport.ends([topic]).items()))

    assert transport.beginnings([topic])[at].offset == 4
    with pytest.raises(UnreachableError, match="OffsetOutOfRange"):
        transport.read({at: (2, end)}, within=SOON)
    assert transport.read({at: (4, end)}, within=SOON).num_rows == 5


def test_threads_may_share_one_transport(
    transport: KafkaTransport, admin: KafkaAdminClient, servers: Servers
) -> None:
    topics = [make(admin, next(names)) for _ in range(4)]
    for name in topics:
        send(servers.kafka.bootstrap, name, [(name.encode(), b"v")] * 50)

    def read(name: str) -> set[bytes]:
        spans = {at: (0, end) for at, end in transport.ends([name]).items()}
        return set(transport.read(spans, within=SOON)["key"].to_pylist())

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(read, topics)) == [{name.encode()} for name in topics]


def test_a_broker_that_was_killed_costs_a_round_and_no_more(tmp_path: Path) -> None:
    port, controller_port = free_ports(2)
    kafka = Kafka(tmp_path, port, controller_port)
    kafka.start()
    try:
        admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
        name = make(admin, "killed")
        admin.close()
        send(kafka.bootstrap, name, some(0, 3))
        with KafkaTransport(kafka.bootstrap, timedelta(seconds=5)) as transport:
            spans = {at: (0, end) for at, end in transport.ends([name]).items()}
            assert transport.read(spans, within=SOON).num_rows == 3
            kafka.kill()
            with pytest.raises(UnreachableError):
                transport.read(spans, within=timedelta(seconds=2))
            with pytest.raises(UnreachableError, match="Kafka at 127"):
                transport.ends([name])
            kafka.start()
            assert transport.read(spans, within=SOON).num_rows == 3
    finally:
        kafka.stop()
