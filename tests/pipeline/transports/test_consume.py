"""The rules of a landing task's reading, each on a real broker; more brokers in test_elections."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient
from kafka import TopicPartition as Partition

from demo.ports import free_ports
from demo.processes import wait_until
from demo.servers import Servers
from pipeline.errors import UnreachableError
from pipeline.formats.format import RAW
from pipeline.transports import kafka as consuming
from pipeline.transports.kafka import Consumption, consume_ranges
from pipeline.transports.transport import OffsetRange, RangeRead, ReadBounds
from tests.patience import SOON
from tests.pipeline.transports.topics import make, offsets, read, refused, send, some

pytestmark = pytest.mark.stack

HASTY = ReadBounds(patience=timedelta(seconds=2))


@pytest.fixture(scope="module")
def kafka(servers: Servers) -> str:
    return servers.kafka.bootstrap


@pytest.fixture
def settings(kafka: str) -> Mapping[str, str]:
    return {"bootstrap.servers": kafka}


@pytest.fixture
def admin(kafka: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=kafka)
    yield client
    client.close()


def transaction(kafka: str, topic: str, first: int, until: int) -> Producer:
    """An open transaction with these records sent."""
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": topic})
    producer.init_transactions(SOON.total_seconds())
    producer.begin_transaction()
    for key, value in some(first, until):
        producer.produce(topic, value, key, 0)
    producer.flush(SOON.total_seconds())
    return producer


def clients() -> set[str]:
    """Threads of librdkafka's in this process, by their numbers."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended meanwhile
            if (task / "comm").read_text().startswith("rdk:"):
                found.add(task.name)
    return found


class Unwaiting:
    """A client that fails where it sits out a wait: only then it hands out less than was asked."""

    def __init__(self, client: Any) -> None:
        self.open_consumer = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self.open_consumer, name)

    def consume(self, most: int, wait: float) -> list[Any]:
        came: list[Any] = self.open_consumer.consume(most, wait)
        assert len(came) == most, f"{most} messages were asked for, {len(came)} came in {wait} s"
        return came


def clients_that_never_wait(monkeypatch: pytest.MonkeyPatch) -> list[Unwaiting]:
    """Those that are made from now on; each would wait so long that it is not for the records."""
    made, client = list[Unwaiting](), consuming.open_consumer

    def one_more(*how: Any) -> Any:
        made.append(Unwaiting(client(*how)))
        return made[-1]

    monkeypatch.setattr(consuming, "WAIT", SOON)
    monkeypatch.setattr(consuming, "open_consumer", one_more)
    return made


def wait_for_end(before: set[str]) -> None:
    """A thread may be listed for a moment after it was waited for."""
    wait_until(lambda: clients() <= before, timedelta(seconds=10), "end of a consumer")


def test_a_range_is_half_open_and_keeps_nulls(kafka: str, settings: Mapping[str, str]) -> None:
    topic = make(kafka)
    send(kafka, topic, [*some(0, 3), (b"k3", None), (None, b"v4"), (b"", b""), *some(6, 9)])

    found = read(consume_ranges(settings, [OffsetRange(topic, 0, 2, 6)]))

    assert found.schema == RAW
    assert found.to_pydict() == {
        "key": [b"k2", b"k3", None, b""],
        "value": [b"v2", None, b"v4", b""],
        "topic": [topic] * 4,
        "partition": [0] * 4,
        "offset": [2, 3, 4, 5],
    }


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_range_may_begin_and_end_inside_of_a_compressed_batch(
    codec: str, kafka: str, settings: Mapping[str, str]
) -> None:
    topic = make(kafka)
    send(kafka, topic, some(0, 500), compression_type=codec, linger_ms=200)

    found = read(consume_ranges(settings, [OffsetRange(topic, 0, 123, 321)]))

    assert found["value"].to_pylist() == [f"v{n}".encode() for n in range(123, 321)]


def test_many_ranges_of_one_assignment_are_read_at_once(
    kafka: str, settings: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = [make(kafka, partitions=50) for _ in range(4)]
    ranges = [OffsetRange(t, p, 1, 3 + p % 2, 0) for t in topics for p in range(50)]
    for topic in topics:
        producer = Producer({"bootstrap.servers": kafka})
        for partition in range(50):
            for key, value in some(0, 5):
                producer.produce(topic, value, key, partition)
        assert producer.flush(SOON.total_seconds()) == 0

    made = clients_that_never_wait(monkeypatch)
    reading = consume_ranges(settings, ranges)
    found = read(reading)

    assert offsets(found) == {(r.topic, r.partition): list(range(r.first, r.until)) for r in ranges}
    assert [one.count for one in reading.read] == [r.until - r.first for r in ranges]
    assert len(made) == 1


def test_rule_1_markers_are_holes_inside_and_at_the_end(
    kafka: str, settings: Mapping[str, str]
) -> None:
    topic = make(kafka)
    transaction(kafka, topic, 0, 2).commit_transaction(SOON.total_seconds())
    transaction(kafka, topic, 2, 3).abort_transaction(SOON.total_seconds())

    reading = consume_ranges(settings, [OffsetRange(topic, 0, 0, 5)])
    only_a_marker = consume_ranges(settings, [OffsetRange(topic, 0, 2, 3)])

    assert read(reading)["offset"].to_pylist() == [0, 1, 3]
    assert [(one.first, one.last, one.count) for one in reading.read] == [(0, 3, 3)]
    assert list(only_a_marker) == []
    assert [(one.first, one.last, one.count) for one in only_a_marker.read] == [(None, None, 0)]


def test_rule_2_an_end_below_until_is_waited_out_and_then_an_error(
    kafka: str, settings: Mapping[str, str]
) -> None:
    topic = make(kafka)
    send(kafka, topic, some(0, 5))
    reading = consume_ranges(settings, [OffsetRange(topic, 0, 0, 8)], bounds=HASTY)

    refused(lambda: list(reading), r"\[0, 8\).* read up to 5, its log ends at 5")


def test_rule_2_records_that_come_after_such_an_end_are_read(
    kafka: str, settings: Mapping[str, str]
) -> None:
    topic = make(kafka)
    send(kafka, topic, some(0, 5))
    one_by_one = ReadBounds(rows=1)

    reading = iter(consume_ranges(settings, [OffsetRange(topic, 0, 0, 8)], bounds=one_by_one))
    found = next(reading)["offset"].to_pylist()
    send(kafka, topic, some(5, 9))
    for batch in reading:
        found += batch["offset"].to_pylist()

    assert found == list(range(8))


def test_rule_3_brokers_that_are_gone_are_an_error_with_its_reason() -> None:
    (port,) = free_ports(1)
    settings = {"bootstrap.servers": f"127.0.0.1:{port}"}

    reading = consume_ranges(settings, [OffsetRange("t", 0, 0, 8)], bounds=HASTY)
    refused(lambda: list(reading), r"1 ranges not read.*Connection refused")


def test_rule_3_a_topic_that_is_gone_is_an_error_that_names_it(
    settings: Mapping[str, str],
) -> None:
    reading = consume_ranges(settings, [OffsetRange("p1.not.there", 0, 0, 8)], bounds=HASTY)
    refused(lambda: list(reading), r"p1\.not\.there")


def test_rule_4_a_range_never_waits_for_more_than_it_misses(
    kafka: str, settings: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make(kafka, partitions=3)
    for partition in range(3):
        send(kafka, topic, some(0, 3), partition=partition)
    ranges = [OffsetRange(topic, partition, 0, 3, 0) for partition in range(3)]

    made = clients_that_never_wait(monkeypatch)
    found = read(consume_ranges(settings, ranges, bounds=ReadBounds(assigned=1)))

    assert (len(found), len(made)) == (9, 3)


def test_rule_5_what_an_open_transaction_has_sent_is_read(
    kafka: str, settings: Mapping[str, str]
) -> None:
    topic = make(kafka)
    producer = transaction(kafka, topic, 0, 3)

    found = read(consume_ranges(settings, [OffsetRange(topic, 0, 0, 3)]))
    producer.abort_transaction(SOON.total_seconds())

    assert found["offset"].to_pylist() == [0, 1, 2]


def test_rules_8_and_9_a_range_tells_what_was_read_of_it(
    kafka: str, settings: Mapping[str, str], admin: KafkaAdminClient
) -> None:
    topic = make(kafka, partitions=3)
    send(kafka, topic, some(0, 50), partition=0)
    send(kafka, topic, some(0, 9), partition=1)
    admin.delete_records({Partition(topic, 1): 4})
    ranges = [
        OffsetRange(topic, 0, 10, 30),
        OffsetRange(topic, 1, 4, 9),
        OffsetRange(topic, 2, 0, 0),
    ]

    reading = consume_ranges(settings, ranges)
    list(reading)

    assert reading.read == (
        RangeRead(ranges[0], 10, 29, 20, (0,)),
        RangeRead(ranges[1], 4, 8, 5, (0,)),
        RangeRead(ranges[2]),
    )


def test_rule_10_an_offset_that_retention_took_is_an_error_and_never_a_jump(
    kafka: str, settings: Mapping[str, str], admin: KafkaAdminClient
) -> None:
    topic = make(kafka)
    send(kafka, topic, some(0, 9))
    admin.delete_records({Partition(topic, 0): 4})

    reading = consume_ranges(settings, [OffsetRange(topic, 0, 2, 9, 0)], bounds=HASTY)
    refused(lambda: list(reading), rf"{topic}:0: .*[Oo]ffset out of range")


@pytest.mark.parametrize("until", [pytest.param(9, id="read"), pytest.param(12, id="failed")])
def test_rule_11_a_consumer_ends_with_its_reading(
    until: int, kafka: str, settings: Mapping[str, str]
) -> None:
    topic = make(kafka)
    send(kafka, topic, some(0, 9))
    before = clients()

    bounds = ReadBounds() if until == 9 else HASTY
    reading = consume_ranges(settings, [OffsetRange(topic, 0, 0, until)], bounds=bounds)
    try:
        list(reading)
    except UnreachableError:
        assert until == 12

    wait_for_end(before)


def test_rule_11_a_consumer_ends_when_nobody_reads_on(
    kafka: str, settings: Mapping[str, str]
) -> None:
    topic = make(kafka)
    send(kafka, topic, some(0, 9))
    before = clients()
    reading = iter(
        consume_ranges(settings, [OffsetRange(topic, 0, 0, 9)], bounds=ReadBounds(rows=1))
    )

    next(reading)
    assert clients() - before
    reading.close()

    wait_for_end(before)


def test_rule_13_nothing_is_committed_and_no_group_is_joined(
    kafka: str, settings: Mapping[str, str], admin: KafkaAdminClient
) -> None:
    topic = make(kafka)
    send(kafka, topic, some(0, 9))

    read(consume_ranges(settings, [OffsetRange(topic, 0, 0, 9)]))

    groups = {group["group_id"] for group in admin.list_groups()}
    assert "sluice" not in groups


def test_rule_14_a_flipped_byte_is_an_error_and_never_lands(
    kafka: str, settings: Mapping[str, str], servers: Servers
) -> None:
    topic = make(kafka)
    send(kafka, topic, [(b"k", b"the balance is 100")] * 3)
    segment = servers.kafka.home / "data" / f"{topic}-0" / f"{0:020}.log"
    ranges = [OffsetRange(topic, 0, 0, 3)]
    assert len(read(consume_ranges(settings, ranges))) == 3

    found = segment.read_bytes()
    with segment.open("r+b") as file:
        file.seek(found.index(b"the balance is 100") + 15)
        file.write(b"9")

    refused(lambda: list(consume_ranges(settings, ranges, bounds=HASTY)), "failed CRC32C check")


def test_rule_15_large_records_come_in_small_batches(
    kafka: str, settings: Mapping[str, str]
) -> None:
    topic = make(kafka, max_message_bytes=str(16 * 2**20))
    large = os.urandom(6 * 2**20)
    send(kafka, topic, [(b"k", large)] * 8, message_max_bytes=16 * 2**20)
    bounds = ReadBounds(size=8 * 2**20)

    batches = list(
        consume_ranges(settings, [OffsetRange(topic, 0, 0, 8, size=8 * len(large))], bounds=bounds)
    )

    assert [len(batch) for batch in batches] == [2, 2, 2, 2]
    assert {value.as_py() for batch in batches for value in batch["value"]} == {large}


def test_batches_end_at_their_number_of_rows(kafka: str, settings: Mapping[str, str]) -> None:
    topic = make(kafka)
    send(kafka, topic, some(0, 9_000))

    batches = list(
        consume_ranges(settings, [OffsetRange(topic, 0, 0, 9_000)], bounds=ReadBounds(rows=3_000))
    )

    assert max(len(batch) for batch in batches) < 5_000
    assert sum(len(batch) for batch in batches) == 9_000


def test_rule_19_times_and_headers_come_only_if_they_are_asked_for(
    kafka: str, settings: Mapping[str, str]
) -> None:
    topic = make(kafka)
    send(kafka, topic, some(0, 1), headers=[("a", b"1"), ("a", b"2")])
    send(kafka, topic, some(1, 2))
    ranges = [OffsetRange(topic, 0, 0, 2)]

    plain = read(consume_ranges(settings, ranges))
    asked: Consumption = consume_ranges(settings, ranges, columns=["headers", "timestamp"])
    found = read(asked)

    assert plain.schema == RAW
    assert found["timestamp"].to_pylist() == [datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)] * 2
    assert found["headers"].to_pylist() == [
        [{"name": "a", "value": b"1"}, {"name": "a", "value": b"2"}],
        None,
    ]
