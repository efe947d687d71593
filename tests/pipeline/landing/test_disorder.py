"""Rows that go back: sent again, or out of order?  Landed for real, from topics kept in memory."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pipeline.changelog import table as changelog
from pipeline.landing.feed import Feed
from pipeline.landing.loop import Landing
from pipeline.landing.reading import Reader
from pipeline.mark import Mark
from pipeline.messages.format import find
from pipeline.model import Acknowledged, Head, PartitionEnd, TopicPartition
from pipeline.report import Landed
from pipeline.route import Router
from pipeline.settings import CollectorSettings, PipelineSettings, SourceSettings
from pipeline.tables.delta import DeltaLake
from pipeline.topics.records import RECORDS

NOW = datetime(2026, 1, 2, tzinfo=UTC)
GIB4 = 2**32
pytestmark = pytest.mark.spark


@dataclass(eq=False)
class Topics:
    """A broker in memory: one partition a topic, whole records."""

    held: dict[str, list[tuple[bytes, bytes]]] = field(default_factory=dict)

    def put(self, source: str, pos: int, name: str) -> None:
        """One insert as Debezium writes it, of row ``pos % 100``, at *pos* of binlog 7."""
        place = {"db": "db", "table": "t", "file": "binlog.000007", "pos": pos, "row": 0}
        row = {"id": pos % 100, "name": name}
        value = {"before": None, "after": row, "source": place, "op": "c", "ts_ms": 1}
        record = (json.dumps({"id": row["id"]}).encode(), json.dumps(value).encode())
        self.held.setdefault(f"{source}.db.t", []).append(record)

    def topics(self, pattern: str) -> Mapping[str, str]:
        source = pattern.partition("\\")[0].removeprefix("(?:")
        return {topic: topic for topic in self.held if topic.startswith(source)}

    def ends(self, topics: Sequence[str]) -> Mapping[TopicPartition, PartitionEnd]:
        return {TopicPartition(t, 0): PartitionEnd(len(self.held[t]), t, 0) for t in topics}

    def beginnings(self, topics: Sequence[str]) -> Mapping[TopicPartition, PartitionEnd]:
        return {TopicPartition(t, 0): PartitionEnd(0, t, 0) for t in topics}

    def read(
        self, spans: Mapping[TopicPartition, tuple[int, PartitionEnd]], *, within: timedelta
    ) -> pa.Table:
        assert within
        rows = [
            (*self.held[tp.topic][offset], tp.topic, 0, offset, NOW)
            for tp, (first, end) in spans.items()
            for offset in range(first, end.offset)
        ]
        names = RECORDS.names
        return pa.Table.from_pylist([dict(zip(names, r, strict=True)) for r in rows], RECORDS)


@dataclass(eq=False)
class Server:
    """A server at the end of binlog *log*, and its collector, which has sent everything."""

    log: int = 7

    def head(self) -> Head:
        return Head("server", self.log, 10 * GIB4)

    def acknowledged(self) -> Acknowledged:
        return Acknowledged(self.log, 10 * GIB4)

    def address(self) -> tuple[str, int]:
        return "127.0.0.1", 1


@dataclass(eq=False)
class Desk:
    """A landing loop over two sources, ``a`` and ``b``."""

    session: SparkSession
    home: Path
    topics: Topics = field(default_factory=Topics)
    server: Server = field(default_factory=Server)
    most: int = 1_000

    def __post_init__(self) -> None:
        """Begin with an empty lake."""
        collector = CollectorSettings("", "")
        sources = tuple(
            SourceSettings(n, "127.0.0.1", 1, "", collector=collector, prefix=n) for n in "ab"
        )
        settings = PipelineSettings(str(self.home), "", sources, batch_rows=self.most)
        changelog.create(self.session, settings.changes)
        server = self.server
        feeds = tuple(Feed(s, server, find(s.format), lambda _: server) for s in sources)
        reader = Reader(self.session, self.topics, feeds, Router(), "", 20_000)
        read_back = DeltaLake(settings).mark
        self.changes = settings.changes
        self.loop = Landing(
            self.session, settings, feeds, reader, lambda: NOW, read_back, Mark("main", -1)
        )

    def land(self, *waived: str) -> Landed:
        return self.loop.land(frozenset(waived))

    def rows(self, source: str) -> list[tuple[int, int, int]]:
        """Epoch, position and offset of each landed change of *source*, by offset."""
        log = self.session.read.format("delta").load(self.changes)
        found = log.where((log.source == source) & (log.op == "c")).orderBy("offset")
        return [(r["order"]["epoch"], r["order"]["pos"], r["offset"]) for r in found.collect()]


@pytest.fixture
def desk(spark: SparkSession, tmp_path: Path) -> Desk:
    made = Desk(spark, tmp_path)
    for source in "ab":
        made.topics.put(source, GIB4 - 300, "first")
        made.topics.put(source, GIB4 - 200, "second")
    made.land()
    return made


def test_what_is_sent_again_is_landed_again_and_moves_nothing(desk: Desk) -> None:
    for pos, name in ((GIB4 - 300, "first"), (GIB4 - 200, "second"), (GIB4 - 100, "third")):
        desk.topics.put("a", pos, name)

    landed = desk.land()

    assert landed.holds == ()
    positions = [pos for _, pos, _ in desk.rows("a")]
    assert positions == [GIB4 - d for d in (300, 200, 300, 200, 100)]
    assert desk.loop.mark.epochs["a"].number == 1


@pytest.mark.parametrize(
    ("pos", "name"),
    [
        pytest.param(GIB4 - 250, "new", id="a change between two that are landed"),
        pytest.param(GIB4 - 300, "other", id="another change at a place that is landed"),
        pytest.param(100, "new", id="a transaction of over 4 GiB, whose positions begin anew"),
    ],
)
def test_what_goes_back_and_repeats_nothing_holds_its_source_and_no_other(
    desk: Desk, pos: int, name: str
) -> None:
    desk.topics.put("a", pos, name)
    desk.topics.put("b", GIB4 - 100, "third")

    first, again = desk.land(), desk.land()

    (hold,) = first.holds
    assert (hold.id, hold.subject, hold.reason) == ("disorder:a:a.db.t:0:2", "source:a", "disorder")
    assert again.holds == first.holds
    assert [offset for _, _, offset in desk.rows("a")] == [0, 1]
    assert [offset for _, _, offset in desk.rows("b")] == [0, 1, 2]
    assert desk.loop.mark.offsets["a.db.t:0"].offset == 2, "W stays"


def test_a_person_may_say_that_it_is_a_new_log(desk: Desk) -> None:
    desk.topics.put("a", 100, "new")
    (hold,) = desk.land().holds

    landed = desk.land(hold.id)

    assert landed.holds == ()
    assert desk.rows("a") == [(1, GIB4 - 300, 0), (1, GIB4 - 200, 1), (2, 100, 2)]


def test_what_was_acknowledged_of_a_log_that_was_reset_proves_nothing_of_the_new_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its position is far above all of the new log, and the ends it waits for are passed later."""
    desk = Desk(spark, tmp_path, most=2)
    for pos in range(100, 800, 100):
        desk.topics.put("a", pos, "x")
    desk.land()

    desk.server.log = 1
    said = []
    for _ in range(3):
        desk.land()
        said.append(desk.loop.mark.acknowledged.get("a"))

    assert desk.loop.mark.epochs["a"].number == 2
    assert [one and one.log for one in said] == [None, None, 1]
