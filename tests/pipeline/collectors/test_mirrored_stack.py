"""Behind a real MirrorMaker 2, a heartbeat counts when every topic has come through, not before."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from demo.connect import Connect
from demo.debezium import mysql_connector
from demo.kafka import Kafka
from demo.ports import free_ports
from demo.processes import wait_until
from demo.servers import Servers
from pipeline.build import every_topic
from pipeline.collectors.connect.collector import ConnectCollector
from pipeline.collectors.mirrormaker import Mirrored, behind_mirror
from pipeline.model import Acknowledged, Fence, TopicPartition
from pipeline.settings import CollectorSettings, MirrorSettings, SourceSettings
from pipeline.sources.mysql.source import MySqlSource
from pipeline.sources.positions import locate_position
from pipeline.sources.source import HeartbeatTable
from pipeline.transports.kafka import KafkaTransport
from tests.mirror_maker import mirroring
from tests.patience import SOON, answered

pytestmark = pytest.mark.stack

NAME, ALIAS = "crossing", "there"
ROWS = TopicPartition(f"{ALIAS}.{NAME}.{NAME}.t", 0)


@dataclass
class Crossing:
    """A source that is collected there, and what has come here through the mirror."""

    servers: Servers
    maker: Connect
    here: KafkaTransport
    source: SourceSettings
    heart: HeartbeatTable

    def __post_init__(self) -> None:
        """Ask both ends of the way."""
        self.collector = ConnectCollector(self.source.collector.url, NAME, timeout=SOON)
        found = behind_mirror(self.source, self.collector, every_topic(self.source))
        assert isinstance(found, Mirrored)
        self.mirrored = found

    def insert(self, number: int) -> Fence:
        """Commit a row, and a heartbeat after it."""
        self.servers.mysql.execute(f"INSERT INTO {NAME}.t VALUES ({number})")
        return self.write_heartbeat()

    def write_heartbeat(self) -> Fence:
        """The last transaction counts as finished only when the next one was read."""
        return answered(lambda: self.heart.write_heartbeat(lambda: datetime.now(UTC)))

    def collected(self, fence: Fence) -> bool:
        """Whether the collector has handed it over, there."""
        self.write_heartbeat()
        return past(answered(self.collector.acknowledged), fence)

    def arrived(self, fence: Fence) -> bool:
        """Whether it is known to have come here, with all before it."""
        self.write_heartbeat()
        return past(answered(self.mirrored.acknowledged), fence)

    def rows(self) -> int:
        """Changes of the table that are here."""
        ends = self.here.ends([ROWS.topic])
        return ends[ROWS].offset if ROWS in ends else 0


def past(said: object, fence: Fence) -> bool:
    if not isinstance(said, Acknowledged):
        return False
    return locate_position(said.position) >= locate_position(fence.head.position)


@pytest.fixture
def crossing(servers: Servers, server_folder: Path) -> Iterator[Crossing]:
    home = Path(tempfile.mkdtemp(dir=server_folder, prefix="here-"))
    ports = free_ports(3)
    kafka = Kafka(home / "kafka", ports[0], ports[1])
    maker = Connect(home / "connect", ports[2], kafka.bootstrap, beside=("mirror",))
    servers.mysql.execute(f"CREATE DATABASE {NAME}", f"CREATE TABLE {NAME}.t (id INT PRIMARY KEY)")
    source = mirrored_settings(servers, maker)
    server = MySqlSource(source)
    server.prepare_heartbeat()
    try:
        kafka.start()
        maker.start()
        collect(servers)
        start_mirror(servers, maker, kafka)
        with KafkaTransport(kafka.bootstrap) as here:
            yield Crossing(servers, maker, here, source, HeartbeatTable(server))
    finally:
        server.close()
        maker.stop()
        kafka.stop()
        servers.connect.deregister(NAME)
        servers.mysql.execute(f"DROP DATABASE {NAME}")


def mirrored_settings(servers: Servers, maker: Connect) -> SourceSettings:
    return SourceSettings(
        name=NAME,
        host=servers.mysql.host,
        port=servers.mysql.port,
        user="sluice",
        password="sluice",
        collector=CollectorSettings(servers.connect.url, NAME),
        prefix=f"{ALIAS}.{NAME}",
        mirrored=MirrorSettings(servers.kafka.bootstrap, maker.url, "mirror", ALIAS),
    )


def collect(servers: Servers) -> None:
    config = mysql_connector(
        servers.mysql, servers.kafka.bootstrap, prefix=NAME, databases=[NAME, "sluice"]
    )
    servers.connect.register(NAME, config)


def start_mirror(servers: Servers, maker: Connect, kafka: Kafka) -> None:
    topics = rf"{NAME}(\..*)?"
    config = mirroring(servers.kafka.bootstrap, kafka.bootstrap, topics, ALIAS)
    wait_until(lambda: bool(upstream(servers)), SOON, "topics of the collector")
    maker.register("mirror", config)


def upstream(servers: Servers) -> list[str]:
    with KafkaTransport(servers.kafka.bootstrap) as there:
        return list(there.topics(NAME))


def test_a_heartbeat_counts_when_every_topic_has_come_through_the_mirror(
    crossing: Crossing, asked: Callable[[Callable[[], bool]], None]
) -> None:
    first = crossing.insert(1)
    asked(lambda: crossing.arrived(first))
    assert crossing.rows() == 1

    crossing.maker.pause("mirror")
    wait_until(
        lambda: crossing.maker.status("mirror")["tasks"][0]["state"] == "PAUSED", SOON, "a pause"
    )
    second = crossing.insert(2)
    asked(lambda: crossing.collected(second))
    assert [crossing.arrived(second) for _ in range(3)] == [False] * 3
    assert crossing.rows() == 1

    crossing.maker.resume("mirror")
    asked(lambda: crossing.arrived(second))
    assert crossing.rows() == 2


@pytest.fixture
def asked() -> Callable[[Callable[[], bool]], None]:
    """Wait until it is true; asked about once a second, as a landing round asks."""

    def wait(true: Callable[[], bool]) -> None:
        wait_until(true, SOON, "the answer")

    return wait
