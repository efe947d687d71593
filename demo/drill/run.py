"""`python -m demo drill`: put faults into a running pipeline, and report what found them.

It has its own servers, source, topics and lake in one folder, and stops them at its end. On servers
of the user it creates a database, a connector and topics, and removes them at its end. Its exit
status is 1 if the results fall short of the aim: see `DrillResult.shortfalls`.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import yaml

from demo import machine, unpack
from demo.beside import beside
from demo.clocks import LIBRARY, ServerClock, find_library, set_service_clock
from demo.connect import RemoteConnect
from demo.disks import end_mounts, mount_trouble, small_disks
from demo.drill.external import (
    NOTES,
    Cleanup,
    ExternalServers,
    RemoteKafka,
    ServerAddresses,
    read_addresses,
)
from demo.drill.external_databases import open_database
from demo.drill.faults import (
    DROPPED_KIND,
    HARMLESS_KINDS,
    LARGE_KINDS,
    MIRROR_KINDS,
    ROW_KINDS,
    UNCOMPARED_KIND,
    ChangedValue,
    Fault,
    FaultKind,
    Site,
    read_payload,
)
from demo.drill.mysql_source import MySQLSource
from demo.drill.outages import NOT_OURS, OUTAGES, ROOM, Outage, OutageScore
from demo.drill.postgres_source import PostgresSource
from demo.drill.score import (
    ALARMS,
    DrillResult,
    IncidentBook,
    Json,
    Row,
    TableProgress,
    compared_rows,
    score_kind,
    score_repeated,
)
from demo.drill.simple_checks import TableState, changed_keys, recall
from demo.drill.tables import (
    TEMPLATE,
    DrillServers,
    DrillSource,
    Names,
    OrdinaryChanges,
    harmed_ids,
)
from demo.ports import free_ports
from demo.processes import wait_until
from demo.run import hold_folder, unwind_on_signals
from demo.servers import PostgresServers, Servers
from demo.shop.workload import Ledger, Shop, Workload
from demo.story.screen import Screen
from demo.story.service import Service, read_config, whereabouts
from demo.story.stage import clear_home
from pipeline.errors import ConfigError, UnreachableError
from pipeline.spark import jars

HOME = jars.ROOT / "build" / "drill"
LOCK = "drill.lock"
"""File that locks the folder of a drill, and shows that a drill created it."""
STATES = ("pending", "firing", "recovering", "resolved")
"""States of counted incidents. A pending one counts: it is listed and closes the gate."""
PATIENCE = timedelta(minutes=10)
POSTGRES = "15"
FEW, LARGE_TABLES = 20, len(LARGE_KINDS)
OF_OTHERS = 12
ANSWERS = 20
PEM = click.Path(exists=True, dir_okay=False, resolve_path=True)
COMPARE = timedelta(minutes=3)


@dataclass(frozen=True, slots=True)
class DrillPlan:
    """How many rows are harmed in all, and how long to wait; ``rate`` is that of the shop.

    Faults are spread over ``tables`` small tables, at most 20 in each, so that an incident can list
    all of them. Above that number, a fifth of the faults is in small tables, and the others are in
    large ones. ``external`` are servers of the user; None: the drill starts its own.
    """

    faults: int = 1000
    calm: timedelta = timedelta(seconds=30)
    wait: timedelta = timedelta(minutes=15)
    rate: float = 100
    short_paces: bool = False
    outages: tuple[Outage, ...] = OUTAGES
    tables: int = 10
    outage: timedelta = timedelta(minutes=5)
    source: str = "mysql"
    compares: bool = True
    external: ServerAddresses | None = None

    def rows_by_table(self, names: Names) -> dict[str, int]:
        """Return table -> how many rows the kinds that share a table harm."""
        few, large = names.tables("few", self.tables), names.tables("large", LARGE_TABLES)
        if self.faults <= FEW * self.tables:
            each, more = divmod(self.faults, self.tables)
            return {name: each + (number < more) for number, name in enumerate(few)}
        spread = min(self.faults // 5, FEW * self.tables)
        return {
            **dict.fromkeys(few, spread // self.tables),
            **dict.fromkeys(large, (self.faults - spread) // LARGE_TABLES),
        }


def choose_outages(names: Sequence[str]) -> tuple[Outage, ...]:
    """Return the outages whose name contains one of *names*; all if there are none.

    Raises:
        ConfigError: no outage matches a name.
    """
    for name in names:
        if not any(name in one.name for one in OUTAGES):
            known = ", ".join(one.name for one in OUTAGES)
            msg = f"no outage has {name!r} in its name; known: {known}"
            raise ConfigError(msg)
    return tuple(o for o in OUTAGES if not names or any(name in o.name for name in names))


@dataclass(frozen=True, slots=True)
class CutChange:
    """A change of a row that was committed before the cut: its ``quantity`` only increases."""

    cut: str
    quantity: int


@dataclass(frozen=True, slots=True)
class GateTry:
    """An answer of the gate, and whether the mirror had the change before the cut."""

    ready: bool
    whole: bool


@dataclass(eq=False)
class Drill:
    """One drill in *home*; ``ends`` stops what was started, last first."""

    home: Path
    plan: DrillPlan
    screen: Screen
    ends: ExitStack
    servers: DrillServers = field(init=False)
    source: DrillSource = field(init=False)
    service: Service = field(init=False)
    workload: Workload | None = field(init=False)
    site: Site = field(init=False)
    _began: float = field(default_factory=time.monotonic)
    _known: dict[str, tuple[tuple[str | int, ...], Json]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Create all objects; remove what an earlier drill left in *home*.

        Raises:
            ConfigError: *home* has files that no drill created, or a drill runs there.
        """
        self.ends.enter_context(hold_folder(self.home, "drill", LOCK))
        end_mounts(self.home)
        clear_home(self.home)
        shutil.rmtree(self.home / "store", ignore_errors=True)
        set_service_clock(self.home, 0)
        ledger = Ledger(self.home / "ledger.jsonl")
        where, shop = self._create_servers(), self.source.shop
        self.workload = Workload(shop, ledger, rate=self.plan.rate) if shop else None
        (port,), program = free_ports(1), "demo.wrong_clock"
        self.service = Service(self.home, where, port, program, config=self._config())
        self.site = self._site()

    def _create_servers(self) -> Mapping[str, str]:
        """Define servers and source; return the addresses, as environment of the demo's config."""
        if self.plan.external is not None:
            return self._take_servers(self.plan.external)
        if self.plan.source == "postgres":
            servers = PostgresServers.create(self.home, POSTGRES)
            self.servers, self.source = servers, PostgresSource(servers.postgres)
            return {
                "DEMO_KAFKA": servers.kafka.bootstrap,
                "DEMO_CONNECT": servers.connect.url,
                "DEMO_MYSQL_PASSWORD": "sluice",
            }
        started = Servers.create(self.home)
        self.servers, self.source = started, MySQLSource(started.mysql)
        return whereabouts(started)

    def _take_servers(self, at: ServerAddresses) -> Mapping[str, str]:
        """Use the user's servers, and return their addresses; remove lake and store at the end."""
        database = open_database(at)
        kafka, connect = RemoteKafka(at.kafka), RemoteConnect(at.connect)
        cleanup = Cleanup(self.home / NOTES, self.screen.say)
        self.servers = ExternalServers(at, database, kafka, connect, cleanup)
        self.source = database.source()
        for name in ("lake", "store"):
            self.ends.callback(shutil.rmtree, self.home / name, ignore_errors=True)
        return {
            "DEMO_KAFKA": at.kafka,
            "DEMO_CONNECT": at.connect,
            "DEMO_MYSQL_PORT": str(at.port),
            "DEMO_MYSQL_PASSWORD": at.password,
        }

    @property
    def now(self) -> float:
        """Return the seconds since the drill began."""
        return time.monotonic() - self._began

    def run(self) -> DrillResult:
        """Start everything, wait calmly, harm, watch, compare, and sum up.

        Raises:
            UnreachableError: a server or the service has ended, or no table becomes ready.
        """
        self._open()
        writer = OrdinaryChanges(self.source, self._moving, self.plan.rate)
        with beside(writer.run):
            first = IncidentBook(())
            read_at_first, began = self.source.rows_read(), self.now
            self._watch(first, self.plan.calm)
            read_calm, calm = self.source.rows_read(), self.now - began
            self.screen.say(f"calm: {len(first.false_alarms)} false alarms")
            outages = tuple(map(self._fail, self.plan.outages))
            read_before, began = self.source.rows_read(), self.now
            repeated = self._repeat() if self.plan.faults else []
            before = frozenset(one["id"] for one in self.service.incidents(*STATES))
            faults = self._harm() if self.plan.faults else []
            book = IncidentBook(faults, self.source.wide, before)
            self._watch(book, self.plan.wait if faults else timedelta())
            read, watched = self.source.rows_read(), self.now - began
            changes = writer.changes + (self.workload.tally["changes"] if self.workload else 0)
            asked = self._asked() if faults and self.plan.compares else ()
            compared = compared_rows(map(self._compare, asked))
        if self.workload:
            self.workload.stop()
        states = self._states({fault.table for fault in book.faults})
        kinds = dict.fromkeys(fault.kind for fault in book.faults)
        return DrillResult(
            scores=tuple(
                score_kind(
                    kind,
                    book.findings,
                    compared,
                    asked,
                    recall([one for one in book.faults if one.kind == kind], states),
                )
                for kind in kinds
            ),
            false_alarms=_described(first.false_alarms | book.false_alarms),
            wide_incidents=_described(book.wide),
            repeated=score_repeated(repeated, self._wrong_rows({one.table for one in repeated})),
            other_incidents=_described(first.others | book.others),
            calm_seconds=calm,
            watched_seconds=watched,
            changes=changes,
            rows_read_calm=_difference(read_at_first, read_calm),
            rows_read_watched=_difference(read_before, read),
            outages=outages,
            servers=self._describe_servers(),
        )

    def _describe_servers(self) -> tuple[str, ...]:
        if isinstance(self.servers, ExternalServers):
            return self.servers.describe()
        database = {"mysql": "MySQL", "postgres": f"Postgres {POSTGRES}"}[self.plan.source]
        return (f"{database}, Kafka and Connect that the drill started on this machine",)

    @property
    def _names(self) -> Names:
        return self.source.names

    @property
    def _rows_by_table(self) -> dict[str, int]:
        return self.plan.rows_by_table(self._names)

    @property
    def _moving(self) -> tuple[str, ...]:
        """Return the tables with ordinary changes."""
        return (*self._rows_by_table, self._names.table("uncompared"))

    @property
    def _resting(self) -> tuple[str, ...]:
        """Return the tables without ordinary changes: only the drill changes them."""
        mirrors, repeated = len(MIRROR_KINDS), len(HARMLESS_KINDS)
        return (
            *self._names.tables("mirror", mirrors),
            *self._names.tables("repeated", repeated),
            self._names.table("dropped"),
            self._names.marker,
            self._names.lost,
        )

    def _site(self) -> Site:
        """Return the targets of faults, with the clock of the source and the disks if possible."""
        if not self.plan.outages:
            return Site(self.servers, self.source, self.home, self.service.lake)
        clock, trouble = None, mount_trouble(self.home)
        clock_trouble = f"{LIBRARY} is not installed (package libfaketime)"
        if self.plan.external is not None:
            clock_trouble = NOT_OURS
        elif (library := find_library()) is not None:
            place = Path(self.ends.enter_context(TemporaryDirectory(prefix="sluice-clock-")))
            place.chmod(0o755)  # Postgres runs as another user
            clock = ServerClock(place / "clock", library)
            clock.set_wrong(0)
            self.source.set_environment(clock.environment)
        if not trouble:
            self.ends.enter_context(small_disks(self.home, ROOM))
        where = (self.home, self.service.lake)
        return Site(self.servers, self.source, *where, clock, clock_trouble, trouble)

    def _open(self) -> None:
        """Start servers, shop and service; returns when all tables are ready and were compared."""
        self.ends.callback(self.servers.stop)
        if self.plan.external is None:
            unpack.prepare(self.screen.say)
        self.servers.start(self.screen.say)
        self.source.prepare()
        if self.source.shop:
            Shop(self.source.shop).create()
        self.source.create_tables((*self._moving, *self._resting))
        if self.workload:
            self.workload.fill(400)
        seen = self.plan.external.kafka_seen if self.plan.external else ""
        config = self.source.connector(seen or self.servers.kafka.bootstrap)
        self.servers.connect.register(self._names.prefix, config)
        self.ends.callback(self.service.stop)
        self.service.start()
        self.screen.say(f"status page: {self.service.url}/", "bold green")
        if self.workload:
            self.workload.start()
            self.ends.callback(self.workload.stop)
        wait_until(self._all_compared, PATIENCE, "first comparison of every table")
        self._await_ready()
        self.screen.say(f"{len(self._moving + self._resting)} tables are ready and compared")

    def _await_ready(self) -> None:
        """Return when all tables are ready for now."""
        tables, cut = [*self._moving, *self._resting], datetime.now(UTC).isoformat()
        wait_until(lambda: self.service.gate(tables, cut).open, PATIENCE, "open gate")

    def _all_compared(self) -> bool:
        time.sleep(1)
        try:
            tables = self.service.tables()
        except UnreachableError:
            if self.service.daemon.running:  # on a busy machine a connection may be dropped
                return False
            raise
        known = {one["table"]: one["compared_since"] for one in tables}
        return all(known.get(name) for name in (*self._moving, *self._resting))

    def _fail(self, outage: Outage) -> OutageScore:
        """Let *outage* last until an incident explains it, and the gate was asked often enough.

        An outage without an expected incident lasts until the gate was open.
        """
        score = OutageScore(outage.name, closes=outage.closes, reports=outage.reports)
        if trouble := outage.trouble(self.site):
            self.screen.say(f"{outage.name}: left out: {trouble}", "yellow")
            return replace(score, left_out=trouble)
        known = {one["id"] for one in self.service.incidents(*STATES)}
        found, seconds = dict[str, Json](), None
        answers = list[GateTry]()
        with outage.failing(self.site):
            began = self.now
            first = self._change(outage)
            while self.now - began < self.plan.outage.total_seconds():
                new = [one for one in self._incidents() if one["id"] not in known]
                found |= {one["id"]: one for one in new}
                if seconds is None and any(outage.is_named_by(_words(one)) for one in new):
                    seconds = self.now - began
                answers += map(self._try_gate, (first, self._change(outage)))
                seen = seconds is not None if outage.reports else any(one.ready for one in answers)
                if len(answers) >= ANSWERS and seen:
                    break
                time.sleep(1)
        self.screen.say(f"{outage.name}: {', '.join(_described(found)) or 'no incident'}")
        ended, again, wrong = self.now, None, 0
        if outage.heals:
            self._await_ready()
            again, wrong = self.now - ended, len(self._wrong_rows([self._names.lost]))
            self.screen.say(f"  all tables are ready again after {again:.0f} s")
        return replace(
            score,
            seconds=seconds,
            incidents=_described(found),
            answers=len(answers),
            open=sum(one.ready for one in answers),
            untrue=sum(one.ready and not one.whole for one in answers),
            again=again,
            wrong=wrong,
        )

    def _change(self, outage: Outage) -> CutChange:
        """Change a row in a session of *outage*, and then take the time for a cut."""
        table = self._names.lost
        add = f"UPDATE {table} SET quantity = quantity + 1 WHERE id = {TEMPLATE}"
        ask = f"SELECT quantity FROM {table} WHERE id = {TEMPLATE}"
        ((quantity,),) = self.source.execute(*outage.session(self.site), add, ask)
        return CutChange(datetime.now(UTC).isoformat(), int(quantity))

    def _try_gate(self, change: CutChange) -> GateTry:
        """Ask for the cut of *change*; if it is READY, check whether the mirror has the change."""
        try:
            ready = self.service.gate([self._names.lost], change.cut).open
        except UnreachableError:
            ready = False
        if not ready:
            return GateTry(ready=False, whole=True)
        newest = dict(self.site.mirrored_rows(self._names.lost))[TEMPLATE]
        return GateTry(ready=True, whole=newest >= change.quantity)

    def _incidents(self) -> list[Json]:
        """Return the listed incidents; none if the service cannot list them."""
        try:
            return list(self.service.incidents(*STATES))
        except UnreachableError:
            return []

    def _harm(self) -> list[Fault]:
        """Make all faults, table by table; return them."""
        found = list[Fault]()
        of_large = dict(zip(self._names.tables("large", LARGE_TABLES), LARGE_KINDS, strict=True))
        for table, count in self._rows_by_table.items():
            ids, kinds = harmed_ids(count), of_large.get(table, ROW_KINDS)
            for number, kind in enumerate(kinds):
                found += self._inject(kind, table, ids[number :: len(kinds)])
        uncompared, dropped = self._names.table("uncompared"), self._names.table("dropped")
        found += self._inject(UNCOMPARED_KIND, uncompared, harmed_ids(FEW))
        mirrors = self._names.tables("mirror", len(MIRROR_KINDS))
        for table, kind in zip(mirrors, MIRROR_KINDS, strict=True):
            found += self._inject(kind, table, harmed_ids(OF_OTHERS))
        found += self._inject(DROPPED_KIND, dropped, harmed_ids(OF_OTHERS))
        self.screen.say(f"{len(found)} rows harmed", "red")
        return found

    def _repeat(self) -> list[Fault]:
        """Make the faults that must change no mirror; return them."""
        tables = self._names.tables("repeated", len(HARMLESS_KINDS))
        return [
            fault
            for table, kind in zip(tables, HARMLESS_KINDS, strict=True)
            for fault in self._inject(kind, table, harmed_ids(OF_OTHERS))
        ]

    def _inject(self, kind: FaultKind, table: str, ids: Sequence[int]) -> Iterator[Fault]:
        if not ids:
            return
        harmed = kind.harm(self.site, table, ids)
        at = self.now
        for id_, column in harmed.items():
            logged = isinstance(kind, ChangedValue) and kind.follows
            yield Fault(kind.name, table, id_, at, column, logged)

    def _watch(self, book: IncidentBook, within: timedelta) -> None:
        """Ask for incidents each second, until all faults are due or the time is over.

        The progress of the tables is read first, so no incident is older than it.
        """
        until = time.monotonic() + within.total_seconds()
        never, said = threading.Event(), 0.0
        while time.monotonic() < until and not (book.faults and book.is_over(self.now)):
            now = self.now
            book.note_tables(now, map(self._progress, self.service.tables()))
            book.note(now, map(self._whole, self.service.incidents(*STATES)))
            if self.workload and not self.workload.running:
                self.workload.stop()  # raises the error with which a writer failed
            if book.faults and self.now - said > 10:
                said = self.now
                keys = sum(one.key is not None for one in book.findings.values())
                noticed = sum(one.noticed is not None for one in book.findings.values())
                self.screen.say(f"  {noticed} rows in reported tables, {keys} named by key")
            never.wait(1)

    def _progress(self, table: Json) -> TableProgress:
        """Return the progress of *table*, in seconds after the drill began."""
        merged = table["watermarks"]["mirror"]
        return TableProgress(table["table"], *map(self._seconds, (merged, table["compared_since"])))

    def _seconds(self, instant: str | None) -> float | None:
        if instant is None:
            return None
        return self.now - (datetime.now(UTC) - datetime.fromisoformat(instant)).total_seconds()

    def _whole(self, listed: Json) -> Json:
        """Return the incident with all keys and columns; cached until its listed keys change."""
        if listed["kind"] not in ALARMS:
            return listed
        said = (listed["reason"], listed["more_keys"], *listed["keys"])
        known = self._known.get(listed["id"])
        if known is None or known[0] != said:
            known = self._known[listed["id"]] = (said, self.service.incident(listed["id"]))
        return known[1]

    def _asked(self) -> tuple[str, ...]:
        """Return the tables for `sluice compare`: only a few, because each takes long.

        They are one with the most faults, and those with a foreign commit, whose incident names no
        row.
        """
        rows, mirrors = self._rows_by_table, self._names.tables("mirror", len(MIRROR_KINDS))
        return (max(rows, key=rows.__getitem__), *mirrors)

    def _compare(self, table: str) -> Json:
        """Return the report of `sluice compare` about *table*; without rows if it takes too long.

        It waits for the mirror, and the mirror of a table with a gap may be held.

        Raises:
            UnreachableError: it ends without a report.
        """
        began = self.now
        command = [sys.executable, "-m", "monitor", "compare", table, "--json"]
        try:
            ran = subprocess.run(
                [*command, "--config", str(self.service.config)],
                env={**os.environ, **self.service.daemon.environment},
                capture_output=True,
                text=True,
                timeout=COMPARE.total_seconds(),
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            self.screen.say(
                f"  sluice compare {table}: no report in {late.timeout:.0f} s", "yellow"
            )
            return {"differences": ()}
        try:
            report: Json = json.loads(ran.stdout)
        except ValueError as error:
            msg = f"sluice compare {table} printed no JSON: {ran.stderr[-500:]}"
            raise UnreachableError(msg) from error
        took, rows = self.now - began, len(report["differences"])
        self.screen.say(f"  sluice compare {table}: {rows} rows named in {took:.0f} s")
        return report

    def _wrong_rows(self, tables: Iterable[str]) -> set[Row]:
        """Return rows of *tables*, which must be at rest, that differ between source and mirror."""
        return {
            (table, id_)
            for table in tables
            for id_, _ in self.site.source_rows(table) ^ self.site.mirrored_rows(table)
        }

    def _states(self, tables: set[str]) -> Mapping[str, TableState]:
        """Return the input of the simple checks, for each table."""
        keys = self._changed_keys(tables)
        return {
            table: TableState(
                [id_ for id_, _ in self.site.source_rows(table)],
                self.site.mirrored_ids(table),
                keys[table],
            )
            for table in tables
        }

    def _changed_keys(self, tables: set[str]) -> dict[str, set[int]]:
        """Return the keys of the changes in the topics of *tables*."""
        return {
            table: changed_keys(
                (read_payload(message.key)["id"], read_payload(message.value)["op"])
                for message in self.site.records(table)
                if message.value is not None
            )
            for table in tables
        }

    def _config(self) -> Path:
        """Return the demo's config, without its short intervals unless these are wanted."""
        config = read_config()
        config["tables"] = [one for one in config["tables"] if "visits" not in one["shards"]]
        config["pipeline"].pop("small_batch_rows")
        if not self.plan.short_paces:
            config["schedule"] = {}
            config["probes"] = {"values": {"newest": 1, "rotating": 2}}
        if self.plan.external is not None:  # there is no shop
            config["tables"] = []
            config.pop("alerts")
            config["probes"].pop("expectations", None)
        source = {**config["sources"][0], **self.source.settings}
        config["sources"][0] = {name: value for name, value in source.items() if value is not None}
        path = self.home / "sluice.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        return path


def _words(incident: Json) -> str:
    """Return all texts of an incident."""
    return " ".join((incident["about"], incident["check"] or "", incident["reason"]))


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def _described(incidents: Mapping[str, Json]) -> tuple[str, ...]:
    found = dict.fromkeys(
        f"{one['check'] or one['kind']} of {one['about']}: {one['reason']}"
        for one in incidents.values()
    )
    return tuple(found)


def _number(
    name: str, bounds: click.IntRange | click.FloatRange, default: float, text: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(name, type=bounds, default=default, show_default=True, help=text)


@click.command("drill")
@click.option("--dir", "home", type=click.Path(path_type=Path), default=HOME, show_default=True)
@click.option(
    *("--source", "kind"),
    type=click.Choice(["mysql", "postgres"]),
    default="mysql",
    show_default=True,
    help="The database whose tables are harmed.",
)
@_number("--faults", click.IntRange(0, 2000), 1000, "Rows harmed at the source.")
@_number("--tables", click.IntRange(1, 99), 10, "Small tables.")
@_number("--calm", click.FloatRange(min=0), 30.0, "Seconds before the first fault.")
@_number("--wait", click.FloatRange(min=0), 900.0, "Seconds to wait at most.")
@_number("--rate", click.FloatRange(min=0, min_open=True), 100.0, "Row changes a second.")
@click.option("--outages/--no-outages", default=True, help="Let parts of the pipeline fail first.")
@click.option("--outage", "chosen", multiple=True, help="Only outages with this in their name.")
@click.option("--short-paces", is_flag=True, help="Run the checks every few seconds.")
@click.option("--compare/--no-compare", default=True, help="Run sluice compare at the end.")
@click.option("--mysql", metavar="HOST:PORT", help="Your own MySQL; else one is started.")
@click.option("--postgres", metavar="HOST:PORT", help="Your own Postgres, likewise.")
@click.option("--user", help="The drill's user there.")
@click.option("--password-env", metavar="VARIABLE", help="Where that user's password is.")
@click.option("--kafka", metavar="HOST:PORT", help="Your own Kafka; commas between brokers.")
@click.option("--connect", metavar="URL", help="Your own Kafka Connect; or DRILL_CONNECT.")
@click.option("--name", help="Of what is made on your servers; by default a random one.")
@click.option("--connector-password", help="In the connector's config, such as a ${file:...}.")
@click.option("--database-seen", metavar="HOST:PORT", help="The database's address for Connect.")
@click.option("--kafka-seen", metavar="HOST:PORT", help="Kafka's address for Connect.")
@click.option("--tls/--no-tls", default=None, help="Whether the database must speak TLS.")
@click.option("--ca", type=PEM, help="PEM file of the database's authority.")
def drill(
    *,
    home: Path,
    kind: str,
    faults: int,
    tables: int,
    calm: float,
    wait: float,
    rate: float,
    outages: bool,
    chosen: tuple[str, ...],
    short_paces: bool,
    compare: bool,
    **own: Any,
) -> None:
    """Harm rows of a running pipeline, and write what found them, and how soon."""
    external = read_addresses(own, os.environ)
    machine.require(home, servers=external is None)
    home = home.resolve()
    plan = DrillPlan(
        faults,
        timedelta(seconds=calm),
        timedelta(seconds=wait),
        rate,
        short_paces,
        choose_outages(chosen) if outages else (),
        tables,
        source=external.kind if external else kind,
        compares=compare,
        external=external,
    )
    unwind_on_signals()
    with ExitStack() as ends, Screen() as screen:
        ends.callback(screen.say, "stopped; nothing is left running")
        result = Drill(home, plan, screen, ends).run()
        for name, text in (
            ("drill.json", json.dumps(result.as_json(), indent=2) + "\n"),
            ("drill.md", result.as_markdown()),
        ):
            (home / name).write_text(text, encoding="utf-8")
        screen.say(f"results: {home / 'drill.md'}, {home / 'drill.json'}")
        click.echo(result.as_markdown())
        for line in result.false_alarms:
            screen.say(f"false alarm: {line}", "red")
        short = result.shortfalls(left_out=UNCOMPARED_KIND.name)
        for line in short:
            screen.say(f"short of the aim: {line}", "red")
    sys.exit(1 if short else 0)
