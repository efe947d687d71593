"""A landing loop over topics kept in memory: its batches are really written and committed."""

import json
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.scan import find_parts, scan_files
from pipeline.checkpoint import Checkpoint, Gap
from pipeline.collectors.collector import Collector
from pipeline.delta.store import open_store
from pipeline.errors import UnreachableError
from pipeline.formats.debezium_avro import DebeziumAvro
from pipeline.formats.debezium_json import DebeziumJson
from pipeline.formats.format import RAW, Format
from pipeline.formats.schema_registry import SchemaRegistry
from pipeline.landing.listing import LandingSource
from pipeline.landing.loop import Landing
from pipeline.landing.task import LandingTask, TaskResult, run_task
from pipeline.model import Acknowledged, CaptureScope, Head, Op, PartitionEnd, Shard, TopicPartition
from pipeline.reports import LandingReport
from pipeline.schema.model import Dialect
from pipeline.settings import CollectorSettings, PipelineSettings, SourceSettings, StandardRule
from pipeline.sources.mysql.dialect import MYSQL
from pipeline.sources.mysql.position import binlog_position
from pipeline.sources.mysql.types import MySqlColumn
from pipeline.sources.source import Source
from pipeline.start import build_router
from pipeline.transports.topics import LastRecord, TopicFacts
from pipeline.transports.transport import OffsetRange, RangeRead, ReadBounds, RecordReader
from tests.pipeline.schema_messages import described, message

NOW = datetime(2026, 1, 2, tzinfo=UTC)
GIB4 = 2**32


def place(
    table: str, pos: int, *, log: int = 7, database: str = "db", **more: object
) -> dict[str, Any]:
    """The source block of a MySQL event as Debezium writes it."""
    at = {"file": f"binlog.{log:06d}", "pos": pos, "row": 0}
    return {"db": database, "table": table, **at, **more}


def record(key: object, value: object) -> tuple[bytes, bytes]:
    """A JSON message of a row with that id."""
    return json.dumps({"id": key}).encode(), json.dumps(value).encode()


@dataclass(eq=False)
class Topics:
    """A broker in memory: one partition a topic, whole records, one leader epoch.

    ``deleted``: how many records at the beginning of a topic are gone.  ``forbidden`` topics are
    there for others only. ``holes`` are offsets that a consumer never returns: compacted records
    and markers of a producer's transactions.
    """

    held: dict[str, list[tuple[bytes, bytes]]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    deleted: dict[str, int] = field(default_factory=dict)
    forbidden: frozenset[str] = frozenset()
    holes: frozenset[tuple[str, int]] = frozenset()

    def put(
        self,
        source: str,
        pos: int,
        name: str,
        *,
        log: int = 7,
        tx: str | None = None,
        key: int | None = None,
    ) -> None:
        """One insert as Debezium writes it, at *pos* of the binlog; of row ``pos % 100``."""
        row = {"id": pos % 100 if key is None else key, "name": name}
        self.insert(source, ("db", "t"), row, (log, pos), tx)

    def snapshot(self, source: str, pos: int, count: int) -> None:
        """Rows of ``db.t`` of a snapshot of all tables; it reads the newest heartbeat, if any."""
        if beats := self.held.get(f"{source}.sluice.heartbeat"):
            newest = json.loads(beats[-1][1])["after"]["n"]
            self.write_heartbeat(source, newest, pos=pos, read=True)
        for key in range(count):
            told = "last_in_data_collection" if key == count - 1 else "true"
            value = {"after": {"id": key}, "source": place("t", pos, snapshot=told), "op": "r"}
            self.held.setdefault(f"{source}.db.t", []).append(record(key, value))

    def write_heartbeat(
        self, source: str, number: int, *, pos: int, log: int = 7, read: bool = False
    ) -> None:
        """A heartbeat of Sluice's, as the log has it or as a snapshot *read* it."""
        row = {"id": source, "source": source, "n": number}
        self.insert(source, ("sluice", "heartbeat"), row, (log, pos), read=read)

    def alter(
        self,
        source: str,
        pos: int,
        *columns: str,
        kind: str = "ALTER",
        log: int = 7,
        key: Sequence[str] = ("id",),
    ) -> None:
        """A statement after which ``db.t`` has the texts *columns* beside its id."""
        told = ", ".join(["id BIGINT!", *(f"{name} VARCHAR:80" for name in columns)])
        text = f"{kind} TABLE t"
        value = message(text, described(text, "t", told, key=key), source=place("t", pos, log=log))
        self.held.setdefault(source, []).append((b"{}", value.encode()))

    def say(self, source: str, pos: int, text: str) -> None:
        """A statement of which no table is told."""
        value = {"source": place("", pos), "databaseName": "db", "ddl": text, "tableChanges": []}
        self.held.setdefault(source, []).append((b"{}", json.dumps(value).encode()))

    def insert(
        self,
        source: str,
        shard: tuple[str, str],
        row: Mapping[str, Any],
        at: tuple[int, int],
        tx: str | None = None,
        *,
        read: bool = False,
    ) -> None:
        """A change of *row* of *shard* (database and table) *at* a log and position."""
        (database, table), (log, pos) = shard, at
        more = {"snapshot": "true"} if read else {}
        at_ = place(table, pos, log=log, database=database, **more)
        op = "r" if read else "c"
        value: dict[str, Any] = {"before": None, "after": row, "source": at_, "op": op}
        if tx is not None:
            value["transaction"] = {"id": tx, "total_order": 1, "data_collection_order": 1}
        one = record(row["id"], value)
        self.held.setdefault(f"{source}.{database}.{table}", []).append(one)

    def create_anew(self, topic: str) -> None:
        """Delete *topic*, and create it again, empty."""
        self.ids[topic] = self.ids.get(topic, topic) + "'"
        self.held[topic] = []

    def delete(self, topic: str) -> None:
        """Delete *topic*; whoever writes to it again makes another one."""
        self.ids[topic] = self.ids.get(topic, topic) + "'"
        self.held.pop(topic, None)

    def topics(self, pattern: str) -> Mapping[str, str]:
        return {topic: self.ids.get(topic, topic) for topic in self.held.keys() - self.forbidden}

    def ends(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        return {
            TopicPartition(t, 0): PartitionEnd(len(self.held[t]), self.ids.get(t, t), 0)
            for t in topics
        }

    def beginnings(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        return {
            TopicPartition(t, 0): PartitionEnd(self.deleted.get(t, 0), self.ids.get(t, t), 0)
            for t in topics
        }

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        return {at: len(self.held[at.topic]) for at in epochs}

    def hidden(self, topics: Iterable[str]) -> frozenset[str]:
        return self.forbidden & frozenset(topics)

    def require_ids(self, expected: Mapping[str, str]) -> None:
        for topic, id_ in expected.items():
            if self.ids.get(topic, topic) != id_:
                raise UnreachableError(f"topic {topic} was deleted or created again")

    def last_records(self, partitions: object) -> Mapping[TopicPartition, LastRecord]:
        raise AssertionError("landing asks for no last records")

    def settings(self, pattern: str) -> tuple[TopicFacts, ...]:
        raise AssertionError("landing asks for no settings")

    def close(self) -> None: ...

    def reader(self, ranges: Sequence[OffsetRange]) -> RecordReader:
        return self

    def consume(
        self, ranges: Sequence[OffsetRange], *, bounds: ReadBounds, columns: Sequence[str]
    ) -> "Recalled":
        return Recalled(self, tuple(ranges))

    def batch(self, one: OffsetRange) -> pa.RecordBatch:
        rows = [
            (*self.held[one.topic][offset], one.topic, one.partition, offset)
            for offset in range(one.first, one.until)
            if (one.topic, offset) not in self.holes
        ]
        return pa.RecordBatch.from_pylist(
            [dict(zip(RAW.names, row, strict=True)) for row in rows], RAW
        )


@dataclass(eq=False)
class GrownTopics(Topics):
    """A broker whose *topic* gains a second partition with the first of its ``newer`` records."""

    topic: str = "a.db.t"
    newer: list[tuple[bytes, bytes]] = field(default_factory=list)

    @property
    def second(self) -> TopicPartition:
        return TopicPartition(self.topic, 1)

    def ends(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        end = PartitionEnd(len(self.newer), self.topic, 0)
        return {**super().ends(topics), **({self.second: end} if self.newer else {})}

    def beginnings(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        begin = PartitionEnd(0, self.topic, 0)
        return {**super().beginnings(topics), **({self.second: begin} if self.newer else {})}

    def batch(self, one: OffsetRange) -> pa.RecordBatch:
        if one.partition == 0:
            return super().batch(one)
        rows = [(*self.newer[at], one.topic, 1, at) for at in range(one.first, one.until)]
        return pa.RecordBatch.from_pylist(
            [dict(zip(RAW.names, row, strict=True)) for row in rows], RAW
        )


@dataclass(eq=False)
class Recalled:
    """Ranges of these topics, each a batch."""

    topics: Topics
    ranges: tuple[OffsetRange, ...]

    @property
    def read(self) -> tuple[RangeRead, ...]:
        return tuple(
            RangeRead(r, r.first, r.until - 1, r.until - r.first - self._holes(r), (0,))
            for r in self.ranges
        )

    def _holes(self, one: OffsetRange) -> int:
        inside = range(one.first, one.until)
        return sum(topic == one.topic and at in inside for topic, at in self.topics.holes)

    def __iter__(self) -> Generator[pa.RecordBatch, None, None]:
        yield from map(self.topics.batch, self.ranges)


@dataclass(eq=False)
class Server:
    """A server at ``end`` of binlog ``log``, and its collector, which has sent everything."""

    log: int = 7
    end: int = 10 * GIB4
    identity: str = "server"
    executed: str = ""
    left_out: frozenset[str] = frozenset()
    silent: bool = False
    published: CaptureScope | None = None
    readable: bool = True
    alters: Callable[[str], str] | None = None

    def head(self) -> Head:
        return Head(self.identity, binlog_position(self.log, self.end, self.executed))

    def sends(self) -> CaptureScope | None:
        return self.published

    def acknowledged(self) -> Acknowledged:
        return Acknowledged(binlog_position(self.log, self.end, self.executed))

    def address(self) -> tuple[str, int]:
        return "127.0.0.1", 1

    def captures(self) -> CaptureScope:
        if self.silent:
            raise UnreachableError("the connector does not answer")
        text = f"{sorted(self.left_out)} {self.readable}"
        return CaptureScope(
            lambda shard: str(shard) not in self.left_out,
            text,
            known=self.readable,
            alters=self.alters,
        )

    def columns(self, shard: Shard) -> tuple[MySqlColumn, ...]:
        return tuple(MySqlColumn(name, "TEXT") for name in ("id", "name"))


def load_gaps(checkpoint: Checkpoint) -> list[Gap]:
    return list(checkpoint.gaps.values())


def nothing() -> None:
    """Happens while most batches are read."""


@dataclass(eq=False)
class LandingHarness:
    """A landing loop over two sources, ``a`` and ``b``.

    Those with one of ``registries`` write Avro.  ``meanwhile`` happens once, after the next
    batch's records are read and before its commit.  ``ticks`` are the seconds by which looks at a
    collector are apart. ``whole``: no test damages a step of landing.
    """

    home: Path
    topics: Topics = field(default_factory=Topics)
    server: Server = field(default_factory=Server)
    most: int = 1_000
    meanwhile: Callable[[], object] = nothing
    names: Sequence[str] = "ab"
    registries: Mapping[str, SchemaRegistry] = field(default_factory=dict)
    dialect: Dialect = MYSQL
    standards: tuple[StandardRule, ...] = ()
    tasks: list[int] = field(default_factory=list)
    now: datetime = NOW
    ticks: Callable[[], float] = time.monotonic
    whole: bool = True

    def __post_init__(self) -> None:
        """Go on from what the lake says."""
        collector = CollectorSettings("", "")
        sources = tuple(
            SourceSettings(n, "127.0.0.1", 1, "", collector=collector, prefix=n) for n in self.names
        )
        self.settings = PipelineSettings(
            str(self.home), "", sources, batch_rows=self.most, standards=self.standards
        )
        log = self.log()
        self.loop = Landing(
            settings=self.settings,
            feeds=tuple(
                LandingSource(
                    one,
                    cast(Collector, self.server),
                    self.format(one.name),
                    lambda _: cast(Source, self.server),
                    self.dialect,
                    registry=self.registries.get(one.name),
                    clock=self.ticks,
                )
                for one in sources
            ),
            router=build_router(self.settings),
            transport=self.topics,
            log=log,
            work=self.work,
            clock=lambda: self.now,
            checkpoint=log.checkpoint() or Checkpoint("main", -1),
        )

    def format(self, name: str) -> Format:
        its = self.registries.get(name)
        return DebeziumJson() if its is None else DebeziumAvro(its.settings)

    @property
    def checkpoint(self) -> Checkpoint:
        return self.loop.checkpoint

    def gaps(self) -> list[Gap]:
        """All open gaps."""
        return load_gaps(self.checkpoint)

    def short(self) -> list[tuple[str, ...]]:
        """The shards of each open gap."""
        return [gap.shards for gap in self.gaps()]

    def log(self) -> ChangeLog:
        """Another look at the change log."""
        return ChangeLog(open_store(self.settings.changes), "main")

    def land(self, *waived: str) -> LandingReport:
        """One round, in which nothing of a topic is lost or comes twice if it is ``whole``."""
        found = self.loop.land(frozenset(waived))
        if self.whole:
            assert [one for one in found.topics.values() if one.went_in != one.came_out] == []
        return found

    def land_unknown(self) -> None:
        """Land a heartbeat whose commit fails: the loop does not know whether it was written."""
        log, put = self.loop.log, self.loop.log.put

        def fail(*_: object) -> None:
            raise UnreachableError("the store does not answer")

        self.topics.write_heartbeat("a", 1, pos=self.server.end)
        log.put = fail  # type: ignore[assignment, method-assign]
        try:
            self.land()
        except UnreachableError:
            return
        finally:
            log.put = put  # type: ignore[method-assign]
        raise AssertionError("there was nothing to land")

    def work(self, tasks: Sequence[LandingTask]) -> list[TaskResult]:
        self.tasks.append(len(tasks))
        done = [run_task(task) for task in tasks]
        meanwhile, self.meanwhile = self.meanwhile, nothing
        meanwhile()
        return done

    def landed(self, *ops: Op, more: Sequence[str] = ()) -> list[dict[str, Any]]:
        """All rows of the change log of these ops (creates, if none is named), by offset."""
        log = self.log()
        if log.look() is None:
            return []
        names = ("batch", "source", "offset", "order", "tx", "after")
        columns = (*names, "before", "key", "origin", "at", *more)
        files = find_parts(log.snapshot, -1, 2**62)
        words = ops or (Op.CREATE,)
        rows = scan_files(log.store, files, among=("lane", ("main",)), ops=words, columns=columns)
        found: list[dict[str, Any]] = rows.to_pylist()
        return sorted(found, key=lambda row: (row["source"] or "", row["offset"] or 0))

    def rows(self, source: str) -> list[tuple[int, int, int]]:
        """Epoch, position and offset of each landed change of *source*, by offset."""
        own = [row for row in self.landed() if row["source"] == source]
        return [(row["order"]["epoch"], row["order"]["pos"], row["offset"]) for row in own]

    def batches(self) -> list[int]:
        """Batches that have a mark."""
        return sorted(row["batch"] for row in self.landed(Op.MARK))
