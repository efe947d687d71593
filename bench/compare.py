"""Measures `sluice compare` on a table that changes, beside two other tools.

    python -m bench.compare --rows 1000000
    python -m bench.compare --rows 10000000 --rounds 1 --checks 0 --busy 0s

A real MySQL holds the table. Its mirror is Delta, and is written and merged by the product's own
code; only Kafka and the collector are left out. A process changes rows in MySQL, and lands and
merges the same changes. CPU is that of the server and of the verb alone, each by its process. What
the changes cost the server is measured before and taken off.

* reladiff cannot read Delta: it compares the table with a copy in the same server, at rest.
* pt-table-checksum reads one side only, and compares with nothing.
* Checks run at their own pace beside the changes. The server counts the rows that it examines for
  them (`performance_schema`). Their number by day is compared with 1.2 rows for each change, plus a
  seventh of the table.
* The load of point queries runs alone and beside a comparison, in turn.
"""

import json
import multiprocessing
import random
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, cast

import click
import pyarrow as pa
import pyarrow.csv as pa_csv
import pymysql

from bench.kit.cpu import TICKS
from bench.kit.lake import Lake, here
from bench.kit.rounds import under_load
from bench.kit.table import BORN, NARROW, SOURCE, WIDE, Workload
from checks.compare.coverage import MARGIN
from checks.model import Verdict
from checks.probes.max_id import MaxId
from checks.probes.range_counts import RangeCounts
from checks.probes.values import Values
from checks.run import Check, Probe, run_probe
from demo.mysql import MySQL
from demo.ports import free_ports
from monitor.comparing import CompareRequest, compare_table, open_worlds
from monitor.config.file import load_config
from monitor.config.plans import CheckPlan
from monitor.observe.probing import ProbeWorld
from pipeline.build import open_format
from pipeline.changelog.table import CHANGES
from pipeline.checkpoint import Checkpoint, Epoch
from pipeline.model import Acknowledged, Op, Origin, ShardId
from pipeline.row_digest import EPOCH
from pipeline.schema.model import ColumnDescription, TableDescription
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.sources.budget import SourceBudget
from pipeline.sources.mysql.source import MySqlSource
from pipeline.sources.source import HeartbeatTable

COLUMNS = (*NARROW, *(one for one in WIDE if one.name in ("points", "due", "note")))
TYPES = {"DECIMAL": "DECIMAL(12,2)", "DATETIME": "DATETIME(6)", "VARCHAR": "VARCHAR(64)"}
SCALE = 10_000_000
TICK = timedelta(seconds=1)
MOST_SECONDS = 300  # of one run of a tool; a tool that asks for a password would wait for ever
QUERIES = 300  # point queries a second
PROBED = 12.0  # seconds of one measurement of them
PROBES: dict[str, Probe[Any]] = {
    "values": Values(),
    "range_counts": RangeCounts(),
    "max_id": MaxId(),
}
ROUND = 5.0  # seconds between two rounds of the probes, as in the service
LONGEST_LAP = 600.0  # longest time until all rows were compared once, in seconds
EXAMINED = (
    "SELECT SUM(SUM_ROWS_EXAMINED) FROM"
    " performance_schema.events_statements_summary_by_user_by_event_name"
    " WHERE USER = 'sluice' AND EVENT_NAME = 'statement/sql/select'"
)
CHANGED = (
    "SELECT SUM(COUNT_STAR) FROM performance_schema.events_statements_summary_by_user_by_event_name"
    " WHERE USER = 'root' AND EVENT_NAME IN ('statement/sql/replace', 'statement/sql/delete')"
)
BY_STATEMENT = (
    "SELECT DIGEST_TEXT, SUM_ROWS_EXAMINED FROM"
    " performance_schema.events_statements_summary_by_digest WHERE DIGEST_TEXT LIKE 'SELECT%'"
)
KINDS = (
    ("ORDER BY `id` LIMIT", "newest rows and suspects"),
    ("IN (", "rows by key"),
    ("SUM (", "sums of ranges"),
    ("COUNT (", "counts of ranges"),
)
"""The purpose of a statement, by a part of its digest; the first match counts."""
DAILY = timedelta(days=1)
DAY = DAILY.total_seconds()
KEPT = timedelta(seconds=20)  # between two runs of maintenance
CONFIG = """
lake: {lake}
kafka: 127.0.0.1:1
sources:
  - name: {source}
    host: 127.0.0.1
    port: {port}
    user: sluice
    password: {{file: {password}}}
    prefix: {source}
    follow_collector: false
    collector: {{kind: bench.kit.collector, url: none, connector: none}}
    options: {{limits: {{call: 60s, statement: 30s, busy: {busy}}}}}
"""


def _now() -> datetime:
    return datetime.now(UTC)


def workload(rows: int, changes: int) -> Workload:
    """Return the table, whose changes are spread over all its rows."""
    return Workload(COLUMNS, rows=rows, changed=changes, window=rows)


def settings(port: int) -> SourceSettings:
    """Return the source as the config names it."""
    collector = CollectorSettings("http://127.0.0.1:1", "none")
    return SourceSettings(
        name=SOURCE,
        host="127.0.0.1",
        port=port,
        user="sluice",
        password="sluice",  # noqa: S106 - of a throw-away server
        collector=collector,
        prefix=SOURCE,
        follow_collector=False,
    )


def describe(work: Workload, source: SourceSettings) -> pa.RecordBatch:
    """Return the description of the table's columns, as a row of ``CHANGES``."""
    columns = tuple(
        ColumnDescription(
            one.name,
            one.kind,
            one.digits or one.width or None,
            one.fraction or None,
            False,
            None,
            n,
        )
        for n, one in enumerate(work.columns, start=1)
    )
    told = TableDescription(ShardId.read(work.shard), "create", columns, ("id",))
    row = {
        "lane": "main",
        "batch": 0,
        "source": SOURCE,
        "shard": work.shard,
        "table": work.shard,
        "op": str(Op.DDL),
        "after": open_format(source).columns_payload(told),
        "order": {"epoch": BORN.epoch, "log": BORN.log, "pos": BORN.pos, "row": BORN.row},
        "origin": int(Origin.SNAPSHOT),
        "topic": work.topic,
        "partition": 0,
        "offset": 0,
        "received": _now(),
        "dt": _now().date(),
    }
    return pa.RecordBatch.from_pylist([row], schema=CHANGES)


@dataclass(eq=False)
class Feed:
    """Changes rows in MySQL, and lands and merges the same ones; ``round_`` is the last round."""

    home: Path
    port: int
    work: Workload
    checkpoint: Checkpoint
    round_: int = 0

    def open(self) -> None:
        """Open lake and server."""
        self.lake = Lake(self.home, [self.work], here, self.checkpoint)
        self.server = MySqlSource(settings(self.port))
        self.server.prepare_heartbeat()
        self.heart = HeartbeatTable(self.server)
        self.link = pymysql.connect(host="127.0.0.1", port=self.port, user="root")
        names = ", ".join(self.work.names)
        marks = ", ".join(["%s"] * len(self.work.names))
        self.put = f"REPLACE INTO {self.work.shard} ({names}) VALUES ({marks})"
        self.drop = f"DELETE FROM {self.work.shard} WHERE id = %s"

    def run_round(self) -> None:
        """Run one round: commit, write a heartbeat, land, merge."""
        self.round_ += 1
        changes = self.work.changes(self.round_)
        self._commit(changes.to_pylist())
        fence = self.heart.write_heartbeat(_now)
        head = fence.head
        self.lake.land(
            changes,
            heartbeats={SOURCE: fence.number},
            acknowledged={SOURCE: Acknowledged(head.position)},
            epochs={SOURCE: Epoch(1, head.identity, head.position)},
        )
        self.lake.apply()

    def _commit(self, changes: Sequence[Mapping[str, Any]]) -> None:
        """Commit all changes in order, in transactions of fifty."""
        with self.link.cursor() as cursor:
            for number, one in enumerate(changes, start=1):
                id_, values = parse_row(self.work, one)
                if values is None:
                    cursor.execute(self.drop, (id_,))
                else:
                    cursor.execute(self.put, values)
                if number % 50 == 0:
                    self.link.commit()
        self.link.commit()


def parse_row(work: Workload, change: Mapping[str, Any]) -> tuple[int, list[Any] | None]:
    """Return the id in a row of ``CHANGES``, and its values after the change; None if deleted."""
    text = change["after"] or change["before"]
    row, found = json.loads(text), list[Any]()
    for one in work.columns:
        value = row[one.name]
        if one.kind == "DATETIME":
            value = EPOCH + timedelta(microseconds=value)
        elif one.kind == "DATE":
            value = EPOCH.date() + timedelta(days=value)
        found.append(value)
    return int(row["id"]), found if change["after"] else None


def _feed(feed: Feed, ended: Event, begun: Event) -> None:
    feed.open()
    kept = time.monotonic()
    while not ended.is_set():
        since = time.monotonic()
        feed.run_round()
        begun.set()
        if time.monotonic() - kept > KEPT.total_seconds():
            feed.lake.upkeep()
            kept = time.monotonic()
        ended.wait(max(TICK.total_seconds() - (time.monotonic() - since), 0))


@dataclass(eq=False)
class Ground:
    """The server, the table, its mirror, and the config of `sluice compare`."""

    folder: Path
    mysql: MySQL
    work: Workload
    busy: str = "500ms"
    checkpoint: Checkpoint = field(init=False)

    @property
    def config(self) -> Path:
        """Return the path of the config of `sluice compare`."""
        return self.folder / "sluice.yaml"

    @property
    def lake(self) -> Path:
        """Return the folder of the change log and the mirror."""
        return self.folder / "lake"

    def prepare(self) -> None:
        """Fill the table and its mirror with the same rows."""
        work, began = self.work, time.monotonic()
        types = (f"{one.name} {TYPES.get(one.kind, one.kind)} NOT NULL" for one in work.columns)
        table = f"CREATE TABLE {work.shard} ({', '.join(types)}, PRIMARY KEY (id))"
        self.mysql.execute("CREATE DATABASE shop", table)
        path = self.folder / "rows.csv"
        for rows in work.image(500_000):
            plain = rows.select(work.names)
            pa_csv.write_csv(plain, path, pa_csv.WriteOptions(include_header=False))
            with self.mysql.connect(local_infile=True) as link, link.cursor() as cursor:
                cursor.execute("SET sql_log_bin = 0")
                cursor.execute(
                    f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE {work.shard}"
                    " FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '\"'"
                )
        path.unlink()
        lake = Lake(self.lake, [work], here)
        lake.fill(describe(work, settings(self.mysql.port)))
        self.checkpoint = lake.checkpoint
        password = self.folder / "password"
        password.write_text("sluice", encoding="utf-8")
        password.chmod(0o600)
        known = {"lake": self.lake, "port": self.mysql.port, "password": password}
        text = CONFIG.format(source=SOURCE, busy=self.busy, **known)
        self.config.write_text(text, encoding="utf-8")
        click.echo(f"  {work.rows:,} rows on both sides after {time.monotonic() - began:.0f} s")

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Change, land and merge rows during the block, in a separate process."""
        own = multiprocessing.get_context("spawn")
        ended, begun = own.Event(), own.Event()
        feed = Feed(self.lake, self.mysql.port, self.work, self.checkpoint)
        process = own.Process(target=_feed, args=(feed, ended, begun))
        process.start()
        try:
            if not begun.wait(120):
                raise AssertionError("no round of changes has ended")
            yield
        finally:
            ended.set()
            process.join()

    def server_seconds(self) -> float:
        """Return the CPU seconds of the server's process so far."""
        process = self.mysql.daemon.process
        if process is None:
            raise AssertionError("the server does not run")
        told = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
        return sum(map(int, told.split()[11:13])) / TICKS


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one run: on the clock, of the server, of the tool; ``output`` is what it wrote."""

    wall: float
    server: float
    own: float
    output: str = ""

    def scaled(self, factor: float) -> "Cost":
        """Return the cost of *factor* times as many rows."""
        return replace(
            self, wall=self.wall * factor, server=self.server * factor, own=self.own * factor
        )

    def __str__(self) -> str:
        """Render as one line."""
        both = self.server + self.own
        return (
            f"{self.wall:6.1f} s wall, {both:6.1f} s of CPU"
            f" (server {self.server:.1f}, tool {self.own:.1f})"
        )


def measure(ground: Ground, command: Sequence[str], idle: float = 0.0) -> Cost:
    """Run *command*; *idle* is the server's CPU seconds per second without it."""
    before, server, began = (
        resource.getrusage(resource.RUSAGE_CHILDREN),
        ground.server_seconds(),
        time.monotonic(),
    )
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=MOST_SECONDS
    )
    wall = time.monotonic() - began
    spent = ground.server_seconds() - server - idle * wall
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall, spent, own, done.stdout + done.stderr)


def verb(ground: Ground, *options: str) -> tuple[str, ...]:
    """Return the command line of `sluice compare`."""
    words = (sys.executable, "-m", "monitor", "compare", ground.work.shard)
    return (*words, "--config", str(ground.config), "--json", *options)


def idle_rate(ground: Ground, seconds: float = 5.0) -> float:
    """Return the server's CPU seconds per second while rows change and nothing compares."""
    before = ground.server_seconds()
    time.sleep(seconds)
    return (ground.server_seconds() - before) / seconds


def _query(port: int, table: str, rows: int, ended: Event, told: Any) -> None:
    """Query single rows at an even pace until *ended*; then put all response times into *told*."""
    chance, spent = random.Random(7), list[float]()
    with pymysql.connect(host="127.0.0.1", port=port, user="root") as link:
        cursor, begun = link.cursor(), time.monotonic()
        while not ended.is_set():
            due = begun + len(spent) / QUERIES
            if (early := due - time.monotonic()) > 0:
                time.sleep(early)
            since = time.monotonic()
            cursor.execute(f"SELECT * FROM {table} WHERE id = %s", (chance.randrange(rows),))
            cursor.fetchall()
            spent.append(time.monotonic() - since)
    told.put(spent)


@contextmanager
def queried(ground: Ground, answers: list[float]) -> Iterator[None]:
    """Run point queries in a separate process; *answers* gets the seconds of each."""
    own = multiprocessing.get_context("spawn")
    ended, told = own.Event(), own.Queue()
    asked = (ground.mysql.port, ground.work.shard, ground.work.rows, ended, told)
    process = own.Process(target=_query, args=asked)
    process.start()
    time.sleep(1.0)
    try:
        yield
    finally:
        ended.set()
        answers += told.get(timeout=60)
        process.join()


def quantile(answers: Sequence[float], share: float) -> float:
    """Return the value that *share* of *answers* do not exceed."""
    ordered = sorted(answers)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def point_queries(ground: Ground, rounds: int, nice: int) -> None:
    """Print the p99 of point queries, in turn alone and beside the verb with that niceness."""
    command = ("nice", "-n", str(nice), *verb(ground))
    ratios = list[float]()
    for _ in range(rounds):
        alone, beside = list[float](), list[float]()
        with queried(ground, alone):
            time.sleep(PROBED)
        with queried(ground, beside):
            since = time.monotonic()
            while time.monotonic() - since < PROBED:
                measure(ground, command)
        first, last = quantile(alone, 0.99), quantile(beside, 0.99)
        ratios.append(last / first)
        click.echo(
            f"  point queries: p99 {first * 1000:.2f} ms alone, {last * 1000:.2f} ms beside;"
            f" p50 {quantile(alone, 0.5) * 1000:.2f} and {quantile(beside, 0.5) * 1000:.2f} ms"
        )
    low, high = min(ratios), max(ratios)
    middle = statistics.median(ratios)
    click.echo(f"  p99 ratio {middle:.2f} ({low:.2f} to {high:.2f}); wanted: at most 1.10")


def count_rows(ground: Ground, asked: str) -> int:
    """Return how many rows the server has examined for queries of checks so far, or has changed."""
    with ground.mysql.connect() as link, link.cursor() as cursor:
        cursor.execute(asked)
        ((rows,),) = cursor.fetchall()
        return int(rows or 0)


def examined_by_kind(ground: Ground) -> dict[str, int]:
    """Return the rows that the server has examined so far, by purpose; some are the bench's own."""
    found = dict[str, int]()
    with ground.mysql.connect() as link, link.cursor() as cursor:
        cursor.execute(BY_STATEMENT)
        for text, rows in cursor.fetchall():
            own = ground.work.shard.partition(".")[2] in text
            kind = next((name for part, name in KINDS if own and part in text), "all else")
            found[kind] = found.get(kind, 0) + int(rows)
    return found


def examine_source(ground: Ground, seconds: float) -> None:
    """Run the checks at their pace; print how many rows the server has examined, by day.

    The first lap of `values` is counted separately, because it happens once.
    """
    table = ground.work.shard
    plans = [CheckPlan(name, probe.every, "*", probe) for name, probe in PROBES.items()]
    with open_worlds(load_config(ground.config), table) as worlds:
        ran, lap, since, begun = dict[str, float](), 0.0, 0.0, time.monotonic()
        before, first, changed = count_rows(ground, EXAMINED), 0, 0
        spent, kinds = dict[str, int](), dict[str, int]()
        while not since or time.monotonic() - since < seconds:
            world, now = cast("ProbeWorld", worlds.open()), time.monotonic()
            world.plans = plans
            for name, probe in PROBES.items():
                if now - ran.get(name, 0.0) < probe.every.total_seconds():
                    continue
                world.begin(name)
                found = run_probe(Check(name, probe, worlds.table), world)
                if not isinstance(found, Verdict):
                    continue
                ran[name] = now
                if name == "values" and not since and found.verified and found.verified.oldest:
                    since, first = time.monotonic(), count_rows(ground, EXAMINED)
                    changed = count_rows(ground, CHANGED)
                    lap, spent = since - begun, _rows_by_check(worlds.servers.budgets)
                    kinds = examined_by_kind(ground)
            if not since and time.monotonic() - begun > LONGEST_LAP:
                raise AssertionError(f"no lap has ended: {found}")
            time.sleep(max(now + ROUND - time.monotonic(), 0))
        passed, read = time.monotonic() - since, count_rows(ground, EXAMINED) - first
        changed = count_rows(ground, CHANGED) - changed
        last = _rows_by_check(worlds.servers.budgets)
        asked = examined_by_kind(ground)
    by_day = DAY / passed
    allowed = 1.2 * changed * by_day + ground.work.rows / 7
    click.echo(f"  first lap: {lap:.0f} s, the server examined {first - before:,} rows")
    click.echo(
        f"  rows examined a day: {read * by_day:,.0f}; wanted: at most {allowed:,.0f}"
        f" (1.2 x changed + 1/7 of the table); ratio {read * by_day / allowed:.2f}"
    )
    values = Values()
    older = max(
        values.share * changed * by_day, ground.work.rows / (values.within / DAILY * MARGIN)
    )
    click.echo(
        f"  as `values` is set: {changed * by_day:,.0f} changed rows and {older:,.0f} older ones;"
        f" a lap takes {ground.work.rows / older * 24:.1f} hours"
    )
    click.echo(f"    as checks count them: {_by_day(last, spent, by_day)}")
    click.echo(f"    by statement: {_by_day(asked, kinds, by_day)}")


def _by_day(rows: Mapping[str, int], before: Mapping[str, int], by_day: float) -> str:
    """Return how much *rows* have grown since *before*, by day."""
    shares = {name: (many - before.get(name, 0)) * by_day for name, many in rows.items()}
    return ", ".join(f"{name} {share:,.0f}" for name, share in sorted(shares.items()))


def _rows_by_check(budgets: Mapping[str, SourceBudget]) -> dict[str, int]:
    return {name: one.rows for name, one in budgets[SOURCE].spent.items()}


def judge_ranges(ground: Ground, verdicts: int) -> None:
    """Compare with small ranges until there are enough verdicts; all must be equal."""
    config = load_config(ground.config)
    ranges = wrong = left = 0
    began = time.monotonic()
    while ranges < verdicts:
        request = CompareRequest(ground.work.shard, block_rows=max(ground.work.rows // 2_000, 50))
        found = compare_table(config, request, lambda _: None)
        ranges += found.result.ranges
        wrong += len(found.result.differences)
        left += found.result.undecided_ranges
    click.echo(
        f"  {ranges:,} range verdicts while rows change: {wrong} false differences,"
        f" {left / ranges:.2%} inconclusive; {time.monotonic() - began:.0f} s"
    )


@click.command()
@click.option("--rows", default=1_000_000, help="Rows of the table.")
@click.option("--changes", default=500, help="Changes a second meanwhile.")
@click.option("--rounds", default=3, help="Runs of each tool.")
@click.option("--checks", default=10_000, help="Range verdicts that are judged.")
@click.option("--watch", default=120.0, help="Seconds of the checks' own pace; 0: none.")
@click.option("--others/--no-others", default=True, help="Measure the other tools, too.")
@click.option("--queries/--no-queries", default=True, help="Measure point queries, too.")
@click.option("--nice", default=0, help="Niceness of the verb beside point queries.")
@click.option("--busy", default="500ms", help="limits.busy of the source; 0s: no limit.")
@click.option("--dir", "folder", default=Path("build/bench/compare"), type=Path)
def main(
    *,
    rows: int,
    changes: int,
    rounds: int,
    checks: int,
    watch: float,
    others: bool,
    queries: bool,
    nice: int,
    busy: str,
    folder: Path,
) -> None:
    """Measure one comparison of a whole table."""
    folder = folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (port,) = free_ports(1)
    mysql = MySQL(
        folder / "mysql", port, options={"local-infile": "ON", "innodb-buffer-pool-size": "2G"}
    )
    mysql.start()
    try:
        ground = Ground(folder, mysql, workload(rows, changes), busy)
        ground.prepare()
        with ground.changing():
            if watch:
                examine_source(ground, watch)
            if rounds:
                compare_ours(ground, rounds)
            if checks:
                judge_ranges(ground, checks)
            if queries:
                point_queries(ground, rounds, nice)
        if others:
            compare_others(ground, rounds)
    finally:
        mysql.stop()
    shutil.rmtree(folder, ignore_errors=True)


def compare_ours(ground: Ground, rounds: int) -> None:
    """Run `sluice compare` while rows change."""
    start = measure(ground, verb(ground, "--range", "0:1"))
    idle = idle_rate(ground)
    click.echo(f"  start of the verb: {start}; the changes cost the server {idle:.2f} s a second")
    for _ in range(rounds):
        cost = measure(ground, verb(ground), idle)
        found = json.loads(cost.output)
        ranges = found["ranges"]
        net = replace(cost, wall=cost.wall - start.wall, own=cost.own - start.own)
        click.echo(f"  sluice compare   {cost}; {found['outcome']}, {ranges}, {under_load()}")
        click.echo(f"    10,000,000 rows {net.scaled(SCALE / found['rows'])}")


def compare_others(ground: Ground, rounds: int) -> None:
    """Run the other tools on unchanging rows."""
    work, port = ground.work, ground.mysql.port
    scale = SCALE / work.rows
    tool = Path("build/reladiff/bin/reladiff").resolve()
    if tool.exists():
        copy = f"CREATE TABLE {work.shard}_copy LIKE {work.shard}"
        fill = f"INSERT INTO {work.shard}_copy SELECT * FROM {work.shard}"
        ground.mysql.execute("SET sql_log_bin = 0", copy, fill)
        database, table = work.shard.split(".")
        uri = f"mysql://sluice:sluice@127.0.0.1:{port}/{database}"
        names = [word for name in work.names if name != "id" for word in ("-c", name)]
        words = (str(tool), uri, table, uri, f"{table}_copy", "-a", "hashdiff", "-k", "id", *names)
        for _ in range(rounds):
            cost = measure(ground, words)
            click.echo(f"  reladiff, two tables  {cost}\n    10,000,000 rows {cost.scaled(scale)}")
            if cost.output.strip():
                click.echo(f"    it says: {cost.output.strip()[:300]}")
        ground.mysql.execute(f"DROP TABLE {work.shard}_copy")
    else:
        click.echo("  reladiff is not there: python -m venv build/reladiff, and install it there")
    checksum = shutil.which("pt-table-checksum")
    if checksum is None:
        click.echo("  pt-table-checksum is not there: install percona-toolkit")
        return
    dsn = f"h=127.0.0.1,P={port},u=root"
    words = (checksum, dsn, "--tables", work.shard, "--no-check-replication-filters")
    more = ("--no-check-binlog-format", "--replicate", "percona.checksums", "--quiet")
    for _ in range(rounds):
        cost = measure(ground, (*words, *more, "--recursion-method", "none"))
        click.echo(f"  pt-table-checksum     {cost}\n    10,000,000 rows {cost.scaled(scale)}")
        if cost.output.strip():
            click.echo(f"    it says: {cost.output.strip()[:300]}")


if __name__ == "__main__":
    main()
