"""Wires the service over a lake, collectors and sources that answer at once.

The store is a real file. Nothing here starts a thread, a JVM or a server; time is moved by hand.
"""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from monitor.app import App
from monitor.config.file import parse_config
from monitor.service import REMEMBERED
from monitor.store.store import ServiceStore
from pipeline.apply.mirror import Commit
from pipeline.checkpoint import Checkpoint, Epoch
from pipeline.collectors.collector import CollectorState
from pipeline.lags.samples import MirrorPosition
from pipeline.model import (
    Acknowledged,
    CaptureScope,
    Fence,
    Head,
    Order,
    PartitionEnd,
    Shard,
    SourcePartition,
    TopicPartition,
)
from pipeline.schema.model import Column
from pipeline.sources.mysql.facts import ServerFacts, ShardFacts, describe_source
from pipeline.sources.mysql.position import binlog_position
from pipeline.sources.mysql.types import MySqlColumn
from pipeline.sources.source import SourceDescription
from pipeline.transports.topics import TopicFacts

BEGIN = datetime(2026, 3, 29, 12, 0, tzinfo=UTC)
SOURCES = ("east", "north", "west")
PARTITIONS = 2  # of each topic
SETTLING = 3  # rounds after which a service is at rest
BORN = Order(1, 1, 4)
_SOURCE = """
  - name: {name}
    host: 127.0.0.1
    port: 9
    user: sluice
    prefix: {name}
    collector: {{url: "http://127.0.0.1:9", connector: {name}}}
"""


@dataclass(eq=False)
class Clock:
    """The service's clock: it is stopped, unless it is set to follow real time."""

    now: datetime = BEGIN
    since: float | None = None

    def __call__(self) -> datetime:
        """Return the current instant, which is different in each call."""
        self.now += timedelta(microseconds=1)
        if self.since is None:
            return self.now
        return self.now + timedelta(seconds=time.monotonic() - self.since)

    def flows(self) -> None:
        """Follow real time from now on."""
        self.since = time.monotonic()

    def stands(self) -> None:
        """Stop again."""
        self.now, self.since = self(), None


@dataclass(eq=False)
class Beats:
    """Heartbeats of all sources, and collectors that have handed over each of them."""

    number: int = 0

    @property
    def handed_over(self) -> Acknowledged:
        """Return what every collector reports."""
        return Acknowledged(binlog_position(1, self.number * 100 + 1))

    def next(self, at: datetime) -> tuple[Fence, ...]:
        """Return the next heartbeat of each source."""
        self.number += 1
        head = Head("A", binlog_position(1, self.number * 100))
        return tuple(Fence(name, self.number, at, head) for name in SOURCES)


@dataclass(frozen=True, slots=True)
class FakeCollector:
    """A running collector that has handed over everything."""

    beats: Beats

    def acknowledged(self) -> Acknowledged:
        """Return that everything was handed over."""
        return self.beats.handed_over

    def captures(self) -> CaptureScope:
        """Return every table."""
        return CaptureScope(lambda shard: True, ".+", said_by="this bench")

    def state(self) -> CollectorState:
        """Return that it runs."""
        return CollectorState("running")

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class FakeSource:
    """A source that knows its tables by name."""

    name: str
    there: tuple[str, ...]

    def shards(self, pattern: str) -> tuple[Shard, ...]:
        """Return tables whose whole name matches."""
        return tuple(Shard(self.name, one) for one in self.there if re.fullmatch(pattern, one))

    def key_columns(self, shard: Shard) -> tuple[str, ...]:
        """Return one column."""
        return ("id",)

    def columns(self, shard: Shard) -> Sequence[Column]:
        """Return an integer column."""
        return [MySqlColumn("id", "BIGINT")]


@dataclass(eq=False)
class FakeKafka:
    """Topics of *PARTITIONS* partitions each, which end at the checkpoint."""

    lake: "FakeLake"

    def topics(self, pattern: str) -> dict[str, str]:
        """Return topics whose whole name matches, without ids."""
        return {one.name: "" for one in self.settings(pattern)}

    def settings(self, pattern: str) -> tuple[TopicFacts, ...]:
        """Return a retention of a week."""
        topics = {at.topic for at in self.lake.newest.offsets}
        kept = {"retention.ms": str(timedelta(days=7) // timedelta(milliseconds=1))}
        found = sorted(topic for topic in topics if re.fullmatch(pattern, topic))
        return tuple(TopicFacts(topic, settings=kept) for topic in found)

    def ends(self, topics: Sequence[str]) -> dict[TopicPartition, PartitionEnd]:
        """Return the ends as landed."""
        own = set(topics)
        return {at: end for at, end in self.lake.newest.offsets.items() if at.topic in own}


@dataclass(eq=False)
class FakeLake:
    """A checkpoint that grows by its own texts, and mirrors at versions; *asked* counts reads."""

    tables: Sequence[str]
    beats: Beats
    newest: Checkpoint = field(init=False)
    mirrors: dict[str, MirrorPosition] = field(default_factory=dict)
    asked: int = 0
    text: str = ""

    def __post_init__(self) -> None:
        """Give every table a base, landed and applied in batch 0."""
        shards = {Shard(source_of(n), name): name for n, name in enumerate(self.tables)}
        ends = {
            TopicPartition(f"{shard.source}.{name}", partition): PartitionEnd(1)
            for shard, name in shards.items()
            for partition in range(PARTITIONS)
        }
        self.newest = Checkpoint(
            "main",
            0,
            offsets=ends,
            acknowledged=dict.fromkeys(SOURCES, self.beats.handed_over),
            heartbeats=dict.fromkeys(SOURCES, 0),
            tables=dict.fromkeys(self.tables, 0),
            epochs={name: Epoch(1, "A", binlog_position(1, 0)) for name in SOURCES},
            high={SourcePartition(at.topic.partition(".")[0], at): BORN for at in ends},
            shards=shards,
            bases=dict.fromkeys(shards, BORN),
            complete=dict.fromkeys(shards, 0),
            full=0,
        )
        self.mirrors = {name: MirrorPosition(0, 0, f"{name}-1") for name in self.tables}

    def checkpoint(self) -> Checkpoint:
        """Read on from the previous checkpoint, as the change log's reader does."""
        if self.text:
            self.newest, self.text = self.newest.advanced(self.text), ""
        return self.newest

    def applied(self, table: str) -> MirrorPosition | None:
        """Return the mirror's position."""
        self.asked += 1
        return self.mirrors.get(table)

    def history(self, table: str, since: int | None, until: int) -> Sequence[Commit]:
        """Return commits, all of Sluice."""
        first = 0 if since is None else since + 1
        return [
            Commit(
                version, "MERGE", BEGIN, data_changing=True, note={"sluice": {"after": version - 1}}
            )
            for version in range(first, until + 1)
        ]

    def land(self, changed: Sequence[str] = (), *, partitions: int = PARTITIONS) -> str:
        """Land and apply a batch that changes *partitions* of *changed* tables; return its text."""
        before = self.checkpoint()
        batch, place = before.batch + 1, self.beats.number
        own = {name: shard.source for shard, name in before.shards.items() if name}
        touched = [
            SourcePartition(own[name], TopicPartition(f"{own[name]}.{name}", partition))
            for name in changed
            for partition in range(partitions)
        ]
        moved = {one.at: PartitionEnd(batch + 1) for one in touched}
        high = {one: Order(1, 1, place * 100) for one in touched}
        after = replace(
            before,
            batch=batch,
            offsets={**before.offsets, **moved},
            high={**before.high, **high},
            tables={**before.tables, **dict.fromkeys(changed, batch)},
            acknowledged=dict.fromkeys(SOURCES, self.beats.handed_over),
            heartbeats=dict.fromkeys(SOURCES, place),
        )
        self.text = after.changes_since(before)
        for name in changed:
            old = self.mirrors[name]
            self.mirrors[name] = replace(old, version=old.version + 1, batch=batch)
        return self.text


@dataclass(eq=False)
class Service:
    """A service of *size* tables in *folder*, which can run several times, one after the other."""

    folder: Path
    size: int
    clock: Clock = field(default_factory=Clock)
    beats: Beats = field(default_factory=Beats)
    app: App = field(init=False)

    def __post_init__(self) -> None:
        """Create the lake; start no run yet."""
        self.tables = tuple(f"shop.orders_{number:05}" for number in range(self.size))
        self.lake = FakeLake(self.tables, self.beats)
        text = f"lake: lake\nkafka: 127.0.0.1:9\nsources:{''.join(map(_source, SOURCES))}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config = parse_config(text, self.folder / "sluice.yaml")

    @contextmanager
    def life(self) -> Iterator[App]:
        """Run the service: its parts as `sluice run` wires them, with the memory from the store."""
        store = ServiceStore.open(self.folder / "s.db", service=True)
        self.app = App(self.config, store, clock=self.clock)
        try:
            self._fake()
            self._remember()
            yield self.app
        finally:
            self.app.close()

    def write_heartbeat(self, seconds: float = 1) -> None:
        """Let time pass, and write every heartbeat; none lands yet."""
        if self.clock.since is None:
            self.clock.now += timedelta(seconds=seconds)
        for fence in self.beats.next(self.clock()):
            self.app.observers.fences.add(fence)

    def round(self, changed: Sequence[str] = ()) -> None:
        """Simulate five seconds of a healthy pipeline, without the monitoring round."""
        for _ in range(1 if self.clock.since else 5):
            self.write_heartbeat()
        self.lake.land(changed)

    def settle(self) -> None:
        """Run rounds until yesterday is certified, and everything on the board is known.

        Raises:
            RuntimeError: no retention is known, so a round would be measured without it.
        """
        for _ in range(SETTLING):
            self.round()
            self.app.cycle.watch()
            self.app.observers.census.ask()
            self.app.observers.retention.ask()
        if not self.app.current.board.headroom:
            raise RuntimeError("the board has no retention; make the fake clients complete")

    def changing(self, share: float) -> Sequence[str]:
        """Return some of the tables, at least one."""
        return self.tables[: max(1, int(self.size * share))]

    def _fake(self) -> None:
        app: Any = self.app.observers  # plain objects replace its clients
        there = {name: self._of(name) for name in SOURCES}
        app.collectors.update({name: FakeCollector(self.beats) for name in SOURCES})
        app.watcher.sampler.lake = app.watcher.sampler.foreign.lake = self.lake
        app.roster.sources = lambda: {name: FakeSource(name, own) for name, own in there.items()}
        app.retention.transport = lambda _: FakeKafka(self.lake)
        app.census.describe = _described

    def _of(self, source: str) -> tuple[str, ...]:
        return tuple(one for n, one in enumerate(self.tables) if source_of(n) == source)

    def _remember(self) -> None:
        self.app.observers.fences.load(self.app.observers.collectors, self.clock() - REMEMBERED)
        self.app.observers.rulings.load(self.app.store.verdicts)
        self.app.observers.hold_registry.load()


def source_of(number: int) -> str:
    """Return the source of the table with that number."""
    return SOURCES[number % len(SOURCES)]


def _source(name: str) -> str:
    return _SOURCE.format(name=name).rstrip("\n")


def _described(settings: Any, shards: Sequence[str]) -> SourceDescription:
    server = ServerFacts((8, 0), mariadb=False, grants=(), variables={})
    return describe_source(
        server, [ShardFacts(Shard(settings.name, one)) for one in shards], shards
    )
