"""A tracer over a lake without Kafka and Spark, and a source that says what it is told."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar

import pyarrow as pa

from monitor.clients import LakeClient
from monitor.quarantine import ErrorTable, SourceFormat
from monitor.tracing import PATIENCE, Trace, Tracer, TraceRequest
from pipeline.apply.catalog import Catalog
from pipeline.errors import UnreachableError
from pipeline.formats.debezium_json import DebeziumJson
from pipeline.model import CaptureScope, Head, Shard
from pipeline.schema.history import SchemaReader
from pipeline.schema.model import Notation, TableDescription
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.sources.mysql.position import binlog_position
from pipeline.sources.row_reader import ROWS, KeyTexts, ReadFence, RowsAsked, RowsRead
from pipeline.standards.table_standards import NO_STANDARDS, Standards
from pipeline.tables.delta.table_format import DeltaMirrors
from pipeline.tables.lake import Lake
from pipeline.transports.topics import KeyedTopics
from tests.builders.harness import Topics
from tests.builders.lake import LocalLake

SOURCE = SourceSettings("s", "h", 1, "u", CollectorSettings("http://c", "s"), "s")


def nothing(number: int) -> None:
    """Happens at a heartbeat."""


@dataclass(eq=False)
class FakeRows:
    """Rows by shard and key; ``on_beat`` is called with the number of each fence.

    Keys are equal that ``fold`` makes equal, as in a collation.
    """

    rows: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    silent: bool = False
    on_beat: Callable[[int], object] = nothing
    on_read: Callable[[], object] = lambda: None
    fold: Callable[[str], str] = str
    notations: ClassVar[frozenset[Notation]] = frozenset(Notation)
    beats: int = 0
    closed: int = 0

    def put(self, key: str, row: Mapping[str, Any], shard: str = "db.t") -> None:
        self.rows[shard, json.dumps([key])] = row

    def shards(self) -> tuple[Shard, ...]:
        raise AssertionError("a trace asks for no shards")

    def describe(self, shard: Shard) -> TableDescription | None:
        raise AssertionError("a trace asks for no columns")

    def fence(self, at_least: int, at: datetime) -> ReadFence:
        if self.silent:
            raise UnreachableError("source:s: connection refused")
        self.beats = max(at_least, self.beats + 1)
        self.on_beat(self.beats)
        place = binlog_position(1, 1_000)
        return ReadFence(Head("A", place), self.beats, place)

    def bounds(self, shard: Shard, key: Sequence[str], pieces: int) -> tuple[KeyTexts, ...]:
        raise AssertionError("a trace asks for no bounds")

    def read(self, fence: ReadFence, asked: RowsAsked) -> RowsRead:
        key = asked.keys[0] if asked.keys else json.dumps(list(asked.until or ()))
        there = {
            own: json.dumps(row)
            for (shard, own), row in self.rows.items()
            if shard == asked.shard.name and self.fold(own) == self.fold(key)
        }
        keys, texts = pa.array([*there], pa.string()), pa.array([*there.values()], pa.string())
        found = pa.RecordBatch.from_arrays([keys, texts], schema=ROWS)
        self.on_read()
        return RowsRead(found, None, ended=True)

    def keys_of(self, shard: Shard, key: Sequence[str], ids: Sequence[int]) -> tuple[str, ...]:
        raise AssertionError("a trace asks for no ids")

    def close(self) -> None:
        self.closed += 1


@dataclass(eq=False)
class TracedLake:
    """``lake`` with the rows of a source, its topics and a tracer."""

    lake: LocalLake
    source: FakeRows = field(default_factory=FakeRows)
    topics: Topics = field(default_factory=Topics)
    standards: Standards = NO_STANDARDS
    schemas: Callable[[], Catalog] | None = None
    captures: Callable[[], CaptureScope] = lambda: CaptureScope(lambda _: True)

    patience: timedelta = PATIENCE

    def client(self) -> LakeClient:
        """What the tracer reads."""
        origin = KeyedTopics("s", r"s\..*", DebeziumJson(), standards=self.standards)
        found = Lake(self.lake.settings, DeltaMirrors(None))
        readings: Mapping[str, SchemaReader] = {}
        topics = ({"s": origin}, readings)
        return LakeClient(found, lambda: self.topics, *topics, self.lake.rules, self.standards)

    def scope(self) -> CaptureScope:
        """What the collector says now."""
        return self.captures()

    def tracer(self) -> Tracer:
        """A tracer that knows nothing yet."""
        client = self.client()
        formats = {"s": SourceFormat(DebeziumJson(), None)}
        errors = ErrorTable(client.lake, formats, lambda: self.topics)
        schemas = self.schemas or (lambda: self.lake.catalog)
        return Tracer(
            *(client, schemas, {"s": lambda: SOURCE}, lambda _: self.source, errors),
            *(lambda: self.lake.now, {"s": self.scope}),
            patience=self.patience,
        )

    def trace(self, key: str, wait: float = 0.0, **more: Any) -> Trace:
        """Trace a row of ``db.t``."""
        table = self.lake.catalog.table("db.t", self.lake.checkpoint.shards)
        return self.tracer().trace(TraceRequest(table, key, wait=timedelta(seconds=wait), **more))
