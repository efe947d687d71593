"""Of what nobody can ask, what has arrived is read in its topics."""

import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pyarrow as pa
import pytest

from pipeline.collectors.collector import CollectedStream
from pipeline.collectors.heartbeats import MOST_READ as MOST
from pipeline.collectors.heartbeats import QUIET, HeartbeatCollector, SendingPromise
from pipeline.errors import ConfigError, ProofError
from pipeline.finding import NOTE, REFUSE
from pipeline.formats.canal_json import CanalJson
from pipeline.formats.format import RAW, Format
from pipeline.formats.maxwell_json import MaxwellJson
from pipeline.model import Acknowledged, Head, Missing, PartitionEnd, ShardId, TopicPartition
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.sources.mysql.position import binlog_position
from pipeline.sources.source import Source
from pipeline.transports.transport import OffsetRange, ReadBounds, Transport
from tests.pipeline.formats.canal_writer import CanalTable

SOURCE = SourceSettings(
    "shop", "db", 3307, "u", CollectorSettings(), "dc1.canal", topics="dc1.canal"
)
TYPES = {"source": "varchar(64)", "n": "bigint", "at": "datetime(6)"}
BEATS = CanalTable("sluice", "heartbeat", TYPES, ("source",))
USERS = CanalTable("shop", "users", {"id": "int"}, ("id",))
ROW = USERS.insert({"id": "1"})


def heartbeat_row(number: int, source: str = "shop") -> bytes:
    return BEATS.insert({"source": source, "n": str(number), "at": "2026-01-01 00:00:00"})


@dataclass
class Cluster:
    """Partitions of one topic in memory; ``read`` counts what was read of them."""

    held: list[list[bytes]] = field(default_factory=lambda: [[]])
    firsts: dict[int, int] = field(default_factory=dict)
    read: int = 0

    def topics(self, pattern: str) -> Mapping[str, str]:
        return {"canal": "one", "other": "two"}

    def ends(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        assert list(topics) == ["canal"]
        return {at: PartitionEnd(len(self.held[at.partition])) for at in self._partitions()}

    def beginnings(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        return {at: PartitionEnd(self.firsts.get(at.partition, 0)) for at in self._partitions()}

    def reader(self, ranges: Sequence[OffsetRange]) -> "Cluster":
        return self

    def consume(
        self, ranges: Sequence[OffsetRange], *, bounds: ReadBounds, columns: Sequence[str]
    ) -> Generator[pa.RecordBatch, None, None]:
        for one in ranges:
            values = self.held[one.partition][one.first : one.until]
            self.read += len(values)
            rows = [
                {
                    "value": v,
                    "topic": one.topic,
                    "partition": one.partition,
                    "offset": one.first + n,
                }
                for n, v in enumerate(values)
            ]
            yield pa.RecordBatch.from_pylist(rows, RAW)

    def close(self) -> None: ...

    def _partitions(self) -> list[TopicPartition]:
        return [TopicPartition("canal", number) for number in range(len(self.held))]


@dataclass
class Server:
    """A source that beats when it is told to."""

    pos: int = 100
    number: int = -1
    bare: bool = False

    def head(self) -> Head:
        return Head("A", binlog_position(7, self.pos))

    def newest_heartbeat(self) -> int:
        if self.bare:
            raise ProofError("source:shop: there is no table sluice.heartbeat")
        return self.number

    def close(self) -> None: ...


@dataclass
class Site:
    """A source, what carries its log, and its cluster."""

    server: Server = field(default_factory=Server)
    cluster: Cluster = field(default_factory=Cluster)

    form: Format = field(default_factory=lambda: CanalJson("UTC"))

    def collector(
        self, promise: SendingPromise = SendingPromise.ORDERED, **options: Any
    ) -> HeartbeatCollector:
        server, cluster = cast(Source, self.server), cast(Transport, self.cluster)
        form = self.form
        stream = CollectedStream(SOURCE, server, form, None, cluster, "dc1\\.canal", "dc1.")
        return HeartbeatCollector(stream, promise, **options)

    def beats(self, *, send: bool = True, partition: int = 0) -> None:
        """One heartbeat, which comes through at once if it is sent."""
        self.server.pos += 100
        self.server.number += 1
        if send:
            self.cluster.held[partition].append(heartbeat_row(self.server.number))


@pytest.fixture
def site() -> Site:
    return Site()


def test_what_is_committed_counts_once_a_later_heartbeat_came_through(site: Site) -> None:
    collector = site.collector()
    collector.acknowledged()  # its number is to rise
    site.beats()
    first = collector.acknowledged()
    site.beats()
    site.beats()

    found = collector.acknowledged()

    assert isinstance(first, Missing)
    assert found == Acknowledged(binlog_position(7, 200))


def test_a_source_without_heartbeats_is_known_by_name(site: Site) -> None:
    site.server.bare = True

    found = site.collector().acknowledged()

    assert found == Missing("source:shop: there is no table sluice.heartbeat")


def test_what_does_not_come_through_is_not_acknowledged(site: Site) -> None:
    collector = site.collector()
    collector.acknowledged()  # its number is to rise
    for sent in (True, True, True, False, False, False):
        site.beats(send=sent)
        found = collector.acknowledged()

    assert found == Acknowledged(binlog_position(7, 200))


def test_a_heartbeat_is_found_behind_many_rows_and_no_more_is_read_than_that(site: Site) -> None:
    collector = site.collector()
    site.cluster.held[0] = [ROW] * 5_000
    for _ in range(4):
        site.beats()
        site.cluster.held[0] += [ROW] * 300
        found = collector.acknowledged()

    assert isinstance(found, Acknowledged)
    assert site.cluster.read < 3_000


def test_one_that_is_too_far_back_is_not_looked_for(site: Site) -> None:
    site.beats()
    site.cluster.held[0] += [ROW] * (8 * MOST)

    assert isinstance(site.collector().acknowledged(), Missing)
    assert site.cluster.read < 8 * MOST


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(heartbeat_row(9, source="bank"), id="another source's, in the same table"),
        pytest.param(b'{"heartbeat"', id="no message at all"),
        pytest.param(USERS.insert({"id": "heartbeat"}), id="a row that only speaks of one"),
        pytest.param(BEATS.delete({"source": "shop", "n": "9"}), id="one that went"),
    ],
)
def test_what_is_no_heartbeat_of_its_own_proves_nothing(site: Site, message: bytes) -> None:
    site.cluster.held[0] = [message]

    assert isinstance(site.collector().acknowledged(), Missing)


@pytest.mark.parametrize(
    "firsts",
    [
        pytest.param({}, id="both hold something"),
        pytest.param({1: 1}, id="one lost all that it held: its table rests, and goes on there"),
    ],
)
def test_in_order_means_one_partition(site: Site, firsts: dict[int, int]) -> None:
    site.cluster.held, site.cluster.firsts = [[], [ROW]], firsts
    collector = site.collector()
    for _ in range(4):
        site.beats()
        found = collector.acknowledged()

    assert isinstance(found, Missing)
    assert "2 partitions" in found.why


def test_by_batches_what_is_taken_again_between_two_looks_is_seen(site: Site) -> None:
    """Partition 1 hangs, and a row of it; heartbeats of now come out of partition 0."""
    site.cluster.held = [[], []]
    collector = site.collector(SendingPromise.BATCHES)
    site.server.pos += 50  # a row, for partition 1, and all that follows is of its batch
    found = []
    for sent in (range(1), range(1, 8), range(0), range(16)):
        for _ in range(4):
            site.beats(send=False)
        site.cluster.held[0] += [heartbeat_row(number) for number in sent]
        found.append(collector.acknowledged())

    assert [type(one) for one in found] == [Missing] * 4


def test_heartbeats_that_go_another_way_now_are_found_again(site: Site) -> None:
    """Topics may get partitions, and keys another one; its old one rests, or is full of rows."""
    site.cluster.held = [[], [ROW] * 500, []]
    collector = site.collector(SendingPromise.BATCHES)
    for _ in range(6):
        site.beats()
        collector.acknowledged()
    for number in range(QUIET + 6):
        site.beats(partition=1)
        site.cluster.held[1] += [ROW] * 100
        found = collector.acknowledged()
        assert number < QUIET or site.cluster.read < 10_000

    assert isinstance(found, Acknowledged)
    assert reached(found) > 2_000


def test_a_row_that_a_bootstrap_reads_is_no_heartbeat(site: Site) -> None:
    """It tells how far the server is; the log that is on its way may be hours behind."""
    site.form = MaxwellJson(positions=False)
    site.server.number, site.server.pos = 900, 90_000
    collector = site.collector()
    for number in range(3):
        row = {"source": "shop", "n": 901 + number, "at": "2026-01-01 00:00:00"}
        told = {
            "database": "sluice",
            "table": "heartbeat",
            "type": "bootstrap-insert",
            "data": row,
            "primary_key_columns": ["source"],
        }
        site.cluster.held[0].append(json.dumps(told).encode())
        site.server.number += 1
        found = collector.acknowledged()

    assert isinstance(found, Missing)


def reached(found: Acknowledged) -> int:
    return int(found.position.words.rpartition("/")[2])


def test_by_batches_it_may_be_several(site: Site) -> None:
    site.cluster.held = [[], [ROW], []]
    collector = site.collector(SendingPromise.BATCHES)
    for _ in range(8):
        site.beats(partition=2)
        found = collector.acknowledged()

    assert isinstance(found, Acknowledged)


def test_the_doctor_is_told_what_is_believed_and_what_makes_it_worthless(site: Site) -> None:
    told = site.collector().examine(SOURCE, None).findings
    site.cluster.held = [[ROW], [ROW]]
    scattered = site.collector().examine(SOURCE, None).findings

    assert [one.severity for one in told] == [NOTE]
    assert "acks=all" in told[0].what
    assert [one.severity for one in scattered] == [NOTE, REFUSE]


def test_who_is_silent_is_told_by_how_far_it_is(site: Site) -> None:
    collector = site.collector()
    assert collector.state().running
    site.beats()
    for _ in range(100):
        site.beats(send=False)
    collector.acknowledged()

    assert (
        collector.state().description
        == "silent: heartbeat 100 is committed, and 0 came through last"
    )


def test_it_sends_what_the_config_says(site: Site) -> None:
    captures = site.collector(tables=r"shop\..*").captures()

    assert captures(ShardId("shop", "users"))
    assert not captures(ShardId("bank", "accounts"))
    assert captures.text != replace(captures, text=site.collector().captures().text).text


def test_a_pattern_that_is_none_is_refused(site: Site) -> None:
    with pytest.raises(ConfigError, match=r"options\.tables: '\(' is no regular expression"):
        site.collector(tables="(")


def test_nobody_is_registered_and_the_promise_is_named(site: Site) -> None:
    collector = site.collector()

    assert collector.address() == ("db", 3307)
    assert "one partition" in collector.rests_on
    assert json.dumps(collector.rests_on)
    collector.close()
