"""What a real Kafka holds is read as it is; what it lost or began anew is never passed off."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
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
from pipeline.transports.kafka import KafkaTransport
from pipeline.transports.topics import LastRecord
from tests.patience import SOON, answered

pytestmark = pytest.mark.stack

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


def records_between(first: int, until: int) -> Rows:
    return [(f"k{n}".encode(), f"v{n}".encode()) for n in range(first, until)]


def leave_holes(bootstrap: str, topic: str) -> None:
    """One committed and one aborted transaction: offsets 2 and 4 are markers."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
    producer.init_transactions()
    for rows, end in ((records_between(0, 2), "commit"), (records_between(2, 3), "abort")):
        producer.begin_transaction()
        for key, value in rows:
            producer.send(topic, key=key, value=value, partition=0).get(180)
        getattr(producer, f"{end}_transaction")()
    producer.close()


def test_ends_tell_offset_incarnation_and_epoch(
    transport: KafkaTransport, admin: KafkaAdminClient, servers: Servers
) -> None:
    name = make(admin, next(names), partitions=2)
    send(servers.kafka.bootstrap, name, records_between(0, 5), partition=1)

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


def test_markers_of_transactions_are_holes_even_at_the_end(
    transport: KafkaTransport, topic: str, servers: Servers
) -> None:
    leave_holes(servers.kafka.bootstrap, topic)
    at = TopicPartition(topic, 0)
    wait_until(lambda: transport.ends([topic])[at].offset == 5, SOON, "both markers")

    assert transport.last_records([at]) == {at: LastRecord(b"k2", b"v2", 3)}


def test_a_last_record_is_no_tombstone_if_there_is_another_and_an_empty_partition_has_none(
    transport: KafkaTransport, admin: KafkaAdminClient, servers: Servers
) -> None:
    name = make(admin, next(names), partitions=3)
    send(servers.kafka.bootstrap, name, [*records_between(0, 2), (b"k1", None)], partition=1)
    send(servers.kafka.bootstrap, name, [(b"k1", None), (b"k2", None)], partition=2)

    found = transport.last_records(transport.ends([name]))

    assert found == {
        TopicPartition(name, 1): LastRecord(b"k1", b"v1", 1),
        TopicPartition(name, 2): LastRecord(b"k2", None, 1),
    }


def test_a_topic_created_again_is_another_topic(
    transport: KafkaTransport, topic: str, admin: KafkaAdminClient, servers: Servers
) -> None:
    send(servers.kafka.bootstrap, topic, records_between(0, 3))
    at, before = next(iter(transport.ends([topic]).items()))
    admin.delete_topics([topic])
    wait_until(lambda: not transport.ends([topic]), SOON, "the topic's end")
    assert transport.topics(topic) == {}
    make(admin, topic)
    send(servers.kafka.bootstrap, topic, records_between(10, 13))

    after = transport.ends([topic])[at]
    assert (after.offset, after.topic_id == before.topic_id) == (3, False)
    with pytest.raises(UnreachableError, match=f"topic {topic} was deleted or created again"):
        transport.require_ids({topic: before.topic_id})
    transport.require_ids({topic: after.topic_id})
    assert transport.last_records([at])[at].key == b"k12"


def test_one_topic_that_is_gone_is_enough_and_asking_does_not_bring_it_back(
    transport: KafkaTransport, topic: str, admin: KafkaAdminClient
) -> None:
    other = make(admin, next(names))
    ids = transport.topics(rf"{topic}|{other}")
    transport.require_ids(ids)
    admin.delete_topics([topic])
    wait_until(lambda: not transport.ends([topic]), SOON, "the topic's end")

    with pytest.raises(UnreachableError, match=f"topic {topic} was deleted"):
        transport.require_ids(ids)

    transport.require_ids({other: ids[other]})
    transport.require_ids({})
    assert transport.topics(topic) == {}


def test_a_leader_epoch_ends_where_the_next_one_begins(
    transport: KafkaTransport, admin: KafkaAdminClient, servers: Servers
) -> None:
    name = make(admin, next(names), partitions=2)
    send(servers.kafka.bootstrap, name, records_between(0, 5), partition=1)
    empty, full = TopicPartition(name, 0), TopicPartition(name, 1)

    assert transport.epoch_ends({empty: 0, full: 0}) == {empty: 0, full: 5}
    assert transport.epoch_ends({full: 7}) == {full: -1}, "no leader has had this epoch"
    assert transport.epoch_ends({}) == {}


def test_a_topic_that_is_gone_has_no_epochs(transport: KafkaTransport) -> None:
    with pytest.raises(UnreachableError, match="UnknownTopicOrPartition"):
        transport.epoch_ends({TopicPartition("p3.not.there", 0): 0})


def test_the_beginning_is_where_retention_stopped_not_where_the_log_began(
    transport: KafkaTransport, topic: str, admin: KafkaAdminClient, servers: Servers
) -> None:
    send(servers.kafka.bootstrap, topic, records_between(0, 9))
    admin.delete_records({Partition(topic, 0): 4})
    at, end = next(iter(transport.ends([topic]).items()))

    assert (transport.beginnings([topic])[at].offset, end.offset) == (4, 9)
    admin.delete_records({Partition(topic, 0): 9})
    assert transport.last_records([at]) == {}


def test_threads_may_share_one_transport(
    transport: KafkaTransport, admin: KafkaAdminClient, servers: Servers
) -> None:
    topics = [make(admin, next(names)) for _ in range(4)]
    for name in topics:
        send(servers.kafka.bootstrap, name, [(name.encode(), b"v")] * 50)

    def read(name: str) -> set[tuple[bytes | None, int]]:
        found = transport.last_records(transport.ends([name])).values()
        return {(record.key, record.offset) for record in found}

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(read, topics)) == [{(name.encode(), 49)} for name in topics]


def test_a_broker_that_was_killed_costs_a_round_and_no_more(tmp_path: Path) -> None:
    port, controller_port = free_ports(2)
    kafka = Kafka(tmp_path, port, controller_port)
    kafka.start()
    try:
        admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
        name = make(admin, "killed")
        admin.close()
        send(kafka.bootstrap, name, records_between(0, 3))
        at, last = TopicPartition(name, 0), LastRecord(b"k2", b"v2", 2)
        with KafkaTransport(kafka.bootstrap, timeout=timedelta(seconds=5)) as transport:
            before = answered(lambda: transport.ends([name]))[at]
            assert answered(lambda: transport.last_records([at])) == {at: last}
            kafka.kill()
            with pytest.raises(UnreachableError, match="Kafka at 127"):
                transport.ends([name])
            with pytest.raises(UnreachableError):
                transport.require_ids({name: before.topic_id})
            kafka.start()
            send(kafka.bootstrap, name, records_between(3, 5))
            transport.timeout = SOON  # its clients are new now, and each is asked once
            assert transport.last_records([at]) == {at: LastRecord(b"k4", b"v4", 4)}
            after = transport.ends([name])[at]
            assert before.leader_epoch < after.leader_epoch
            for epoch, end in ((before.leader_epoch, 3), (after.leader_epoch, 5)):
                assert transport.epoch_ends({at: epoch}) == {at: end}
            transport.require_ids({name: before.topic_id})
    finally:
        kafka.stop()
