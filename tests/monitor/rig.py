"""The service's parts over a real store, with a source, a collector and a lake that obey.

Time stands still but for :meth:`Rig.second`; nothing here starts a thread.
"""

import asyncio
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo

import httpx
from fastapi import FastAPI

from alerts.model import Incident
from alerts.round import AlertSettings
from alerts.routing import Route
from checks.certificate import Certificate
from checks.model import Outcome, Ruling, Verdict, Verified
from checks.ordering import SourceOrdering
from checks.readiness import ReadinessPolicy
from monitor.board import (
    BackfillView,
    BudgetView,
    ChannelView,
    CurrentBoard,
    DiskView,
    JobView,
    TableView,
)
from monitor.config.plans import CheckPlan
from monitor.cycle import Cycle
from monitor.gate import Gate
from monitor.observe.assessor import Assessor
from monitor.observe.clocks import Clocks
from monitor.observe.foreign_writes import ForeignWrites, UnloggedChanges
from monitor.observe.heartbeats import FenceBook
from monitor.observe.recorder import VerdictRecorder
from monitor.observe.retention import RetentionWatch
from monitor.observe.sampler import Sampler, Sampling, Watcher
from monitor.observe.service_state import ServiceState, backfill_views
from monitor.observe.source_inventory import SourceInventory
from monitor.observe.system_checks import Component
from monitor.observe.table_states import TableStates
from monitor.observe.tables import TableRegistry
from monitor.observe.verdicts import LatestVerdicts, ResidualProofs
from monitor.store.holds import HoldRegistry
from monitor.store.store import ServiceStore
from monitor.web import api
from monitor.web.deps import Access, ApiParts
from pipeline.apply.mirror import Commit
from pipeline.checkpoint import Checkpoint, Epoch
from pipeline.clocks import ClockReading
from pipeline.collectors.collector import Collector, CollectorState
from pipeline.errors import ProofError, UnreachableError
from pipeline.image import Image
from pipeline.lags.samples import MirrorPosition
from pipeline.model import (
    Account,
    Acknowledged,
    Fence,
    Head,
    Missing,
    Order,
    Ordering,
    PartitionEnd,
    Shard,
    TopicPartition,
)
from pipeline.reports import Hold, LandingReport, MergeReport, SparkWork
from pipeline.schema.model import Column
from pipeline.settings import CollectorSettings, SourceSettings, TableRule
from pipeline.sources.mysql.facts import Cascade, ServerFacts, ShardFacts, describe_source
from pipeline.sources.mysql.position import binlog_position
from pipeline.sources.mysql.types import MySqlColumn
from pipeline.sources.source import LogBacklog, SourceArrivals, SourceDescription
from pipeline.tables.lake import Lake
from pipeline.transports.topics import TopicFacts
from pipeline.transports.transport import Transport
from tests.builders.values import by_shard
from tests.monitor.store.blank import blank_store

NOON = datetime(2026, 3, 29, 12, 0, tzinfo=UTC)
USERS, ORDERS = "shop.users", "shop.orders"
SHARDS = {"shop/shop.users": USERS, "shop/shop.orders": ORDERS}
SOURCE = SourceSettings("shop", "h", 3306, "u", CollectorSettings("http://c", "shop"), "shop")
GATING = frozenset({"range_counts"})


@dataclass
class FakeCollector:
    """Says what it was told to say."""

    position: Acknowledged | Missing = field(default_factory=lambda: Missing("no offset yet"))
    trouble: CollectorState = field(default_factory=lambda: CollectorState("running"))
    silent: bool = False

    def acknowledged(self) -> Acknowledged | Missing:
        if self.silent:
            raise UnreachableError("connector shop: connection refused")
        return self.position

    def state(self) -> CollectorState:
        if self.silent:
            raise UnreachableError("connector shop: connection refused")
        return self.trouble


@dataclass
class FakeLake:
    """A mark, mirrors at versions, and their commits; a log may be cleaned below ``oldest``."""

    newest: Checkpoint | None = None
    mirrors: dict[str, MirrorPosition] = field(default_factory=dict)
    commits: dict[str, list[Commit]] = field(default_factory=dict)
    silent: bool = False
    oldest: dict[str, int] = field(default_factory=dict)
    entries_read: int = 0

    def checkpoint(self) -> Checkpoint | None:
        if self.silent:
            raise UnreachableError("lake: no route to host")
        return self.newest

    def applied(self, table: str) -> MirrorPosition | None:
        if self.silent:
            raise UnreachableError("lake: no route to host")
        return self.mirrors.get(table)

    def history(self, table: str, since: int | None, until: int) -> Sequence[Commit]:
        after, oldest = until - 100 if since is None else since, self.oldest.get(table, 0)
        if since is not None and since + 1 < oldest:
            raise ProofError(f"version {oldest - 1} of mirror {table} is no longer in its log")
        kept = [one for one in self.commits.get(table, []) if oldest <= one.version]
        found = [one for one in kept if after < one.version <= until]
        self.entries_read += len(found)
        return found


@dataclass
class FakeDictionary:
    """Every table has the key ``id``; ``there`` are its tables, told unless it is ``silent``.

    ``types`` are the types of columns by their names.
    """

    there: list[str] = field(default_factory=list)
    silent: bool = False
    types: dict[str, str] = field(default_factory=lambda: {"id": "BIGINT"})

    def shards(self, pattern: str) -> tuple[Shard, ...]:
        if self.silent:
            raise UnreachableError("source:shop: slow: took more than 5 s")
        return tuple(Shard("shop", name) for name in self.there if re.fullmatch(pattern, name))

    def key_columns(self, shard: Shard) -> tuple[str, ...]:
        return ("id",)

    def columns(self, shard: Shard) -> Sequence[Column]:
        if self.silent:
            raise UnreachableError("source:shop: slow: took more than 5 s")
        return [MySqlColumn(name, kind) for name, kind in self.types.items()]


@dataclass
class FakeSchema:
    """A MySQL 8 with the tables of the rig; ``cascades`` are those of a shard, by its name."""

    cascades: dict[str, Cascade] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    grants: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    silent: bool = False
    asked: int = 0
    backlog: LogBacklog | None = None

    def describe(self, settings: SourceSettings, shards: Collection[str]) -> SourceDescription:
        self.asked += 1
        if self.silent:
            raise UnreachableError(f"source:{settings.name}: loaded: 65 threads run, 64 may")
        names = [name.partition("/")[2] for name in SHARDS]
        shown = [name for name in names if name in shards and name not in self.hidden]
        server = ServerFacts((8, 0), mariadb=False, grants=self.grants, variables=self.variables)
        own = [self._shard(settings.name, name) for name in shown]
        return replace(describe_source(server, own, shards), backlog=self.backlog)

    def _shard(self, source: str, name: str) -> ShardFacts:
        cascades = (self.cascades[name],) if name in self.cascades else ()
        return ShardFacts(Shard(source, name), cascades=cascades, rows=7)


@dataclass
class FakeKafka:
    """One topic with a retention, and its end."""

    retention: timedelta = timedelta(days=7)
    end: int = 0
    silent: bool = False

    def topics(self, pattern: str) -> Mapping[str, str]:
        if self.silent:
            raise UnreachableError("Kafka at k: timed out")
        return {"shop.shop.users": ""}

    def settings(self, pattern: str) -> Sequence[TopicFacts]:
        kept = {"retention.ms": str(self.retention // timedelta(milliseconds=1))}
        return (TopicFacts("shop.shop.users", settings=kept),)

    def ends(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        return {TopicPartition(topic, 0): PartitionEnd(self.end) for topic in topics}


@dataclass
class FakeFacts:
    """Parts that work, unless told otherwise."""

    store: ServiceStore
    broken: dict[str, str] = field(default_factory=dict)

    def parts(
        self, look: Sampling, channels: Sequence[ChannelView], now: datetime
    ) -> Sequence[Component]:
        down = {f"collector:{name}": trouble.description for name, trouble in look.troubles.items()}
        names = (("source:shop", "service"), ("collector:shop", "service"), ("worker", "worker"))
        return [Component(n, check, {**down, **self.broken}.get(n, "")) for n, check in names]

    def jobs(self, now: datetime) -> tuple[JobView, ...]:
        return (JobView("watch", {"done": 1}, now),)

    def channels(self, now: datetime) -> tuple[ChannelView, ...]:
        return (ChannelView("log"),)

    def incidents(self) -> tuple[Incident, ...]:
        return self.store.incidents.open()

    def changes(self) -> Mapping[tuple[str, str], int]:
        return {}

    def ledger(self) -> Mapping[tuple[str, str], int | None]:
        return self.store.ledger.residuals()

    def backfills(self, now: datetime) -> tuple[BackfillView, ...]:
        return backfill_views(self.store.backfills, lambda _: {}, now)

    def store_bytes(self) -> int | None:
        return self.store.database.size()

    def certificates(self) -> int | None:
        return self.store.certificates.stored

    def unreadable(self) -> int:
        return self.store.database.unreadable

    def disks(self) -> tuple[DiskView, ...]:
        return ()

    def restarts(self) -> int:
        return 0

    def spending(self) -> Mapping[str, BudgetView]:
        return {}

    def spark(self) -> Mapping[str, SparkWork]:
        return {}


def codes_of(answer: Mapping[str, Any]) -> list[str]:
    """Codes of the reasons that the gate gives for the first table."""
    return [reason["code"] for reason in answer["tables"][0]["reasons"]]


class Client:
    """Asks the application over HTTP, without a socket."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    def get(self, path: str, **rest: Any) -> httpx.Response:
        return asyncio.run(self._send("GET", path, **rest))

    def post(self, path: str, **rest: Any) -> httpx.Response:
        return asyncio.run(self._send("POST", path, **rest))

    def delete(self, path: str, **rest: Any) -> httpx.Response:
        return asyncio.run(self._send("DELETE", path, **rest))

    def ask(self, method: str, path: str, **rest: Any) -> httpx.Response:
        return asyncio.run(self._send(method, path, **rest))

    async def _send(self, method: str, path: str, **rest: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://sluice") as client:
            return await client.request(method, path, **rest)


class Rig:
    """A service without threads: beat, land, apply, watch, ask."""

    def __init__(self, folder: Path, now: datetime = NOON) -> None:
        self.now, self.apart = now, timedelta()
        self.store = ServiceStore.open(blank_store(folder / "rig.db"), service=True)
        self.store.waivers.clock = self.clock
        self.collector, self.lake = FakeCollector(), FakeLake()
        self.rulings, self.current = LatestVerdicts(), CurrentBoard()
        self.hold_registry, self.kafka = HoldRegistry(self.store.holds), FakeKafka()
        self.facts, self.schema = FakeFacts(self.store), FakeSchema()
        self.dictionary, self.rules = FakeDictionary(), tuple[TableRule, ...]()
        self.whole, self.arrivals = frozenset[str](), dict[str, SourceArrivals]()
        self.token, self.beyond = "", False
        self.entries = 0
        self.restart()

    def restart(self) -> None:
        """Build the parts anew: they know what the store remembers."""
        self._build()
        vars(self).pop("client", None)

    @cached_property
    def client(self) -> Client:
        """Asks this service; a restart makes another."""
        return Client(self.api())

    def _build(self) -> None:
        self._wind()
        age, beat = timedelta(seconds=30), timedelta(seconds=10)
        lake, waivers = cast("Lake", self.lake), self.store.waivers
        sampler = Sampler(
            {"shop": cast("Collector", self.collector)},
            lake,
            self.fences,
            self.clock,
            age,
            beat,
            ForeignWrites(lake, waivers.waived, waivers.end_of_commits, waivers.known),
        )
        self.roster = TableRegistry(lambda: {"shop": self.dictionary}, self.rules, self.clock)
        self.census = SourceInventory(
            {"shop": lambda: SOURCE},
            self.roster.tables,
            self.roster.existing,
            self.schema.describe,
            self.clock,
            self.store.memory,
        )
        self.retention = RetentionWatch(
            (SOURCE,), lambda _: cast(Transport, self.kafka), self.census.answer, self.clock
        )
        self.watcher = Watcher(sampler, self.roster, self.clock)
        api_parts = AlertSettings((Route(hold=timedelta(0), keep=timedelta(0)),))
        self.recorder = VerdictRecorder(
            api_parts,
            self.store,
            self.rulings,
            GATING,
            self.whole,
            self.clock,
            deciding=self.clocks.deciding,
        )
        self.assessor = self._assessor()
        zone = ZoneInfo("Europe/Berlin")
        self.gate = Gate(self.watcher, self.roster, self.assessor, self.recorder, zone, self.clock)
        self.cycle = self._cycle(zone)

    def _wind(self) -> None:
        """Clocks and heartbeats, as a service remembers them."""
        memory, waived = self.store.memory, self.store.waivers.waived
        self.clocks = Clocks(timedelta(seconds=2), memory, self.store.certificates, waived)
        self.clocks.load(["shop"])
        self.fences = FenceBook(self.store.fences, self.clocks.stepped)
        self.fences.load(["shop"], self.now - timedelta(days=40), self.clocks.step)

    def _cycle(self, zone: ZoneInfo) -> Cycle:
        return Cycle(
            self.watcher,
            self.roster,
            self.assessor,
            self.recorder,
            cast(ServiceState, self.facts),
            self.retention.retentions,
            self.current,
            (CheckPlan("range_counts", timedelta(seconds=30), "*", object()),),
            lambda tier: timedelta(seconds=60),
            zone,
            self.clock,
            self.now,
            states=TableStates(self.store.table_states.add, self.store.table_states.newest),
            prove=lambda: ResidualProofs(self.store.ledger, self.store.backfills).look,
        )

    def _assessor(self) -> Assessor:
        return Assessor(
            ReadinessPolicy(gating=GATING),
            (SOURCE,),
            self.store.certificates,
            self.rulings,
            self.hold_registry,
            self.store.waivers.waived,
            self.store.accounts.residuals,
            UnloggedChanges(self.census.unproven, self.store.memory, self.clock).unproven,
            self.roster.unlisted,
            self.clocks.reasons,
            self.clock,
            {SOURCE.name: SourceOrdering(Ordering.LOG)},
            self.store.pauses.standing,
            self.store.ledger.losses,
            self.store.ledger.copy_losses,
            self.roster.gains_shard,
        )

    def api(self) -> FastAPI:
        """The HTTP application over these parts."""
        return api.build_application(self.api_parts())

    def api_parts(self) -> ApiParts:
        access = Access(frozenset({"sluice"}), self.token, self.beyond)
        known = (self.gate, self.current, self.store, self.clock, lambda: False, access)
        return ApiParts(*known, arrivals=self.arrivals)

    def clock(self) -> datetime:
        return self.now

    def second(self, count: float = 1) -> None:
        """Let time pass; nobody does anything."""
        self.now += timedelta(seconds=count)

    def set_clock(self, by: float) -> None:
        """Somebody puts Sluice's clock forward, or back; the source's goes on as it was."""
        self.now += timedelta(seconds=by)
        self.apart += timedelta(seconds=by)

    def write_heartbeat(self) -> Fence:
        """One second later, one heartbeat, and the collector has it."""
        self.second()
        known, told = self.fences.of("shop"), self.now - self.apart
        number, read = known[-1].number + 1 if known else 1, ClockReading(self.now, told, self.now)
        fence = Fence("shop", number, read.earlier, Head("A", binlog_position(1, number * 100)))
        self.clocks.compared("shop", read.skew, fence.at)
        self.fences.add(fence, read.later)
        self.collector.position = Acknowledged(binlog_position(1, number * 100 + 1))
        return fence

    def land(self, *, changes: bool = True) -> None:
        """One batch that holds all heartbeats so far, and a change of every table."""
        newest = self.fences.of("shop")[-1].number
        batch = self.lake.newest.batch + 1 if self.lake.newest else 0
        before = self.lake.newest.tables if self.lake.newest else {}
        self.lake.newest = Checkpoint(
            lane="main",
            batch=batch,
            offsets={TopicPartition("shop.shop.users", 0): PartitionEnd(batch * 10)},
            acknowledged={"shop": Acknowledged(binlog_position(1, newest * 100))},
            heartbeats={"shop": newest},
            tables=dict.fromkeys(SHARDS.values(), batch) if changes else before,
            epochs={"shop": Epoch(1, "A", binlog_position(1, 0))},
            shards=by_shard(SHARDS),
            bases=dict.fromkeys(by_shard(SHARDS), Order(1, 1, 0)),
        )

    def apply(self, *tables: str) -> None:
        """Merge what is landed into *tables*, all by default."""
        for table in tables or SHARDS.values():
            before = self.lake.mirrors.get(table, MirrorPosition(-1, -1, f"{table}-1"))
            note = {"sluice": {"after": before.version}}
            entry = self._commit(table, before.version + 1, "MERGE", note)
            batch = self.lake.newest.batch if self.lake.newest else -1
            merged = MirrorPosition(before.version + 1, batch, before.mirror, entry=entry)
            self.lake.mirrors[table] = merged

    def intrude(self, table: str) -> None:
        """Somebody else deletes a row of the mirror."""
        version = self.lake.mirrors[table].version + 1
        entry = self._commit(table, version, "DELETE", None)
        self.lake.mirrors[table] = replace(self.lake.mirrors[table], version=version, entry=entry)

    def restore(self, table: str, to: int) -> None:
        """Take the mirror back to version *to*."""
        version = self.lake.mirrors[table].version + 1
        entry = self._commit(table, version, "RESTORE", None, {"version": str(to)})
        self.lake.mirrors[table] = replace(self.lake.mirrors[table], version=version, entry=entry)

    def put_back(self, table: str) -> None:
        """The files of the mirror are replaced by those from before its newest commit."""
        there, gone = self.lake.mirrors[table], self.lake.commits[table].pop()
        kept, batch = self.lake.commits[table][-1], there.batch - (gone.after is not None)
        older = replace(there, version=kept.version, batch=batch, entry=kept.entry)
        self.lake.mirrors[table] = older

    def rebuild(self, table: str) -> None:
        """The mirror is moved away, and a new one grows in its place."""
        self.lake.commits[table] = []
        self.lake.mirrors[table] = MirrorPosition(-1, -1, self.lake.mirrors[table].mirror + "1")
        self.apply(table)

    def flow(self) -> None:
        """One heartbeat, landed and merged into every table."""
        self.write_heartbeat()
        self.land()
        self.apply()

    def compare_rows(self) -> Verdict:
        """`values` ends a lap over the mirror as it is now; all rows are equal."""
        mirror = self.lake.mirrors[USERS]
        compared = Verified(
            self.now,
            self.now - timedelta(days=3),
            self.newest.batch,
            shards=(f"shop/{USERS}",),
            looked=self.newest.batch,
            mirror=mirror.mirror,
            version=mirror.version,
        )
        equal = Ruling(Outcome.PASS, "all are equal")
        passed = Verdict(USERS, "values", equal, self.now, verified=compared)
        self.recorder.tell([passed])
        return passed

    def round(self, count: int = 1) -> None:
        """Each time a second of a healthy pipeline, and a monitoring round."""
        for _ in range(count):
            self.flow()
            self.second()
            self.cycle.watch()
            self.census.ask()
            self.retention.ask()

    def watch(self, seconds: float = 1) -> None:
        """A monitoring round after so many seconds in which nothing happens."""
        self.second(seconds)
        self.cycle.watch()

    def hold(self, hold: Hold) -> None:
        """A merge run ends with this hold of its table."""
        report = MergeReport(hold.subject, 1, 1, Account(), self.now, timedelta(), hold)
        self.hold_registry.applied([report], self.now)

    def hold_source(self, *holds: Hold) -> None:
        """Landing reports these holds."""
        report = LandingReport("main", None, 0, self.now, timedelta(), holds=holds)
        self.hold_registry.landed(report, self.now)

    @property
    def newest(self) -> Checkpoint:
        """The newest landing checkpoint, which exists."""
        assert self.lake.newest is not None
        return self.lake.newest

    def set_checkpoint(self, **fields: Any) -> None:
        """Let the newest landing checkpoint have these *fields*."""
        self.lake.newest = replace(self.newest, **fields)

    def set_images(self, *images: Image) -> None:
        """Let the mirror of users have these images."""
        self.lake.mirrors[USERS] = replace(self.lake.mirrors[USERS], images=images)

    def certificate(self, name: str) -> Certificate:
        """The certificate as stored, which exists."""
        found = self.store.certificates.get(name)
        assert found is not None
        return found

    def view(self, table: str) -> TableView:
        """The table as the board shows it, which it does."""
        found = self.current.board.table(table)
        assert found is not None
        return found

    def rule(self, table: str, outcome: Outcome, check: str = "range_counts") -> None:
        """A probe speaks, as of the newest heartbeat."""
        self.say(table, Ruling(outcome, f"{check} says {outcome}", "", ("[1, 2)",)), check)

    def say(self, table: str, ruling: Ruling, check: str = "range_counts") -> None:
        """A probe says this, as of the newest heartbeat; kept as the service keeps it."""
        fences = (self.fences.of("shop")[-1],)
        told = [Verdict(table, check, ruling, self.now, fences)]
        self.recorder.tell(told, kept=self.recorder.changed(told))

    def reload(self) -> None:
        """Restart the service: what it ruled is read from the store."""
        self.rulings = LatestVerdicts()
        self.rulings.load(self.store.verdicts)
        self.restart()

    def ask(self, *tables: str, **params: str) -> tuple[int, dict[str, Any]]:
        answer = self.client.get("/v1/gate", params={"table": list(tables) or [USERS], **params})
        return answer.status_code, answer.json()

    def close(self) -> None:
        self.store.close()

    def _commit(
        self,
        table: str,
        version: int,
        operation: str,
        note: object,
        parameters: Mapping[str, Any] | None = None,
    ) -> str:
        """Add a commit to the mirror's log; return the digest of its entry."""
        self.entries += 1
        entry = f"entry {self.entries}"
        made = Commit(version, operation, self.now, True, note, parameters or {}, entry=entry)
        self.lake.commits.setdefault(table, []).append(made)
        return entry
