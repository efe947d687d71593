"""What a task reads while leaders change, and after a log was cut: all of it, or an error."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from demo.processes import wait_until
from pipeline.transports.kafka import consume_ranges
from pipeline.transports.transport import OffsetRange, ReadBounds
from tests.patience import SOON
from tests.pipeline.transports.brokers import Node, cluster
from tests.pipeline.transports.topics import read, refused, some

pytestmark = pytest.mark.stack

Cluster = Mapping[int, Node]
HASTY = ReadBounds(patience=timedelta(seconds=5))


@pytest.fixture(scope="module")
def nodes(server_folder: Path) -> Iterator[Cluster]:
    made = {node.id: node for node in cluster(server_folder / "cluster")}
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(Node.start, made.values()))
    yield made
    for node in made.values():
        node.kill()


def bootstrap(nodes: Cluster) -> str:
    return f"{nodes[2].bootstrap},{nodes[3].bootstrap}"


def partition(nodes: Cluster, topic: str) -> Any:
    """Its leader and who is in sync, as the brokers that are up tell it now."""
    up = ",".join(nodes[n].bootstrap for n in (2, 3) if nodes[n].daemon.running)
    admin = AdminClient({"bootstrap.servers": up, "log_level": 0})
    try:
        found = admin.list_topics(topic, 10).topics[topic].partitions
    except KafkaException:  # the one that was asked has only just come, or is about to go
        return None
    return found[0] if found else None


def make(nodes: Cluster, topic: str) -> None:
    """A topic on both brokers that goes on with whoever is left."""
    admin = AdminClient({"bootstrap.servers": bootstrap(nodes), "log_level": 0})
    config = {"unclean.leader.election.enable": "true"}
    made = admin.create_topics([NewTopic(topic, 1, replica_assignment=[[2, 3]], config=config)])
    made[topic].result(SOON.total_seconds())
    settle(nodes, topic, leader=2, synced={2, 3})


def settle(nodes: Cluster, topic: str, *, leader: int, synced: set[int]) -> None:
    def is_so() -> bool:
        found = partition(nodes, topic)
        return found is not None and (found.leader, set(found.isrs)) == (leader, synced)

    wait_until(is_so, SOON, f"leader {leader} of {topic}")


def send(nodes: Cluster, topic: str, first: int, until: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap(nodes), "acks": "all", "log_level": 0})
    for key, value in some(first, until):
        producer.produce(topic, value, key, 0)
    assert producer.flush(SOON.total_seconds()) == 0


def test_rules_8_and_9_an_election_while_it_is_read_costs_nothing_and_is_told(
    nodes: Cluster,
) -> None:
    make(nodes, "elected")
    settings = {"bootstrap.servers": bootstrap(nodes)}
    send(nodes, "elected", 0, 3_000)
    one_by_one = ReadBounds(rows=1)

    reading = consume_ranges(settings, [OffsetRange("elected", 0, 0, 6_000)], bounds=one_by_one)
    batches = iter(reading)
    found = next(batches)["value"].to_pylist()
    nodes[2].kill()
    settle(nodes, "elected", leader=3, synced={3})
    send(nodes, "elected", 3_000, 6_000)
    for batch in batches:
        found += batch["value"].to_pylist()
    nodes[2].start()

    assert found == [value for _, value in some(0, 6_000)]
    first, second = reading.read[0].leader_epochs
    assert first < second
    settle(nodes, "elected", leader=3, synced={2, 3})
    rest = [OffsetRange("elected", 0, 2_900, 6_000, first)]
    assert (
        len(read(consume_ranges(settings, rest))) == 3_100
    )  # an older epoch than the leader's is fine


def test_rule_7_a_log_that_was_cut_and_grew_again_is_refused_and_never_skipped(
    nodes: Cluster,
) -> None:
    make(nodes, "cut")
    settings = {"bootstrap.servers": bootstrap(nodes)}
    send(nodes, "cut", 0, 10)
    nodes[3].kill()
    settle(nodes, "cut", leader=2, synced={2})
    send(nodes, "cut", 10, 20)
    (landed,) = _landed(settings, OffsetRange("cut", 0, 0, 20))
    nodes[2].kill()
    nodes[3].start()  # it has only ten, and leads all the same
    settle(nodes, "cut", leader=3, synced={3})
    send(nodes, "cut", 100, 120)

    unaware = read(consume_ranges(settings, [OffsetRange("cut", 0, 20, 30)]))
    aware = consume_ranges(settings, [OffsetRange("cut", 0, 20, 30, landed)], bounds=HASTY)
    # of the broker that is down something is said, however slow the other is
    refused(lambda: list(aware), r"cut:0: .*truncat", meanwhile="nothing came")

    assert unaware["value"].to_pylist()[0] == b"v110"  # ten were skipped without a word
    nodes[2].start()


def _landed(settings: Mapping[str, str], one: OffsetRange) -> tuple[int, ...]:
    reading = consume_ranges(settings, [one])
    assert len(read(reading)) == one.until
    return reading.read[0].leader_epochs[-1:]
