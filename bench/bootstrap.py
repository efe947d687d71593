"""Measures a new base of a MySQL table against a bare copy of it.

    python -m bench.bootstrap --rows 1000000 --rounds 3
    python -m bench.bootstrap --rows 10000000 --rounds 0 --changes 500

There are two contenders, both beside a running collector. One is Spark's own JDBC source into a
fresh Delta table, by as many parts along the key. The other is `sluice bootstrap`: fences, rows
into the change log, landed with W, until the base is complete, and until the mirror has it. Each
round reads its own table, equal to the others. With ``--changes``, one more table is read while so
many of its rows change each second. Then it is compared with its mirror, row by row. The JDBC
driver is the one in Debezium's archive.
"""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.kit.cpu import spent
from bench.kit.orders import DATABASE, Orders
from bench.kit.rounds import Contender, compete, report, under_load
from bench.kit.spark import fresh, require_equal, total
from demo import unpack
from demo.beside import beside
from demo.debezium import mysql_connector
from demo.processes import wait_until
from demo.servers import Servers
from pipeline.apply.merge_run import MergeRequest
from pipeline.backfill_state import BackfillRequest
from pipeline.errors import UnreachableError
from pipeline.lane import Lane
from pipeline.settings import CollectorSettings, PipelineSettings, SourceSettings
from pipeline.sources.mysql.source import MySqlSource
from pipeline.sources.source import HeartbeatTable
from pipeline.spark import jars
from pipeline.start import open_lane

WANTED = 0.8
NAME = "again"
PARTS = 4
FETCHED = 10_000  # rows of a fetch of JDBC; fetching all at once would keep the table in memory
PATIENCE = timedelta(hours=2)
PAUSE = 0.2  # seconds between two rounds of landing, and between two merge runs


@dataclass(eq=False)
class Race:
    """One source, its lane, and the folder of the copies."""

    servers: Servers
    orders: Orders
    folder: Path
    lane: Lane
    heart: HeartbeatTable
    done: dict[str, str] = field(default_factory=dict)
    based: list[float] = field(default_factory=list)
    cpu: dict[str, list[float]] = field(default_factory=dict)

    @property
    def session(self) -> SparkSession:
        """Return the lane's session, so that both contenders have the same settings."""
        if self.lane.session is None:
            raise AssertionError("the lane has no session")
        return self.lane.session

    def table(self, number: int) -> str:
        """Return the table of a round."""
        return f"t{number}"

    @contextmanager
    def counted(self, name: str) -> Iterator[None]:
        """Record the CPU that the block takes, without that of the servers."""
        own = [one.daemon.process for one in (self.servers.mysql, self.servers.kafka)]
        own.append(self.servers.connect.daemon.process)
        servers = [one.pid for one in own if one is not None]
        before = spent(servers)
        yield
        self.cpu.setdefault(name, []).append(spent(servers) - before)

    def copy(self, number: int) -> None:
        """Copy the table by Spark alone."""
        with self.counted("jdbc"):
            self._copy(number)

    def _copy(self, number: int) -> None:
        self.done["jdbc"] = fresh(self.folder, "jdbc")
        self._source(self.table(number)).write.format("delta").save(self.done["jdbc"])

    def bootstrap(self, number: int) -> None:
        """Give the table a base, and merge it into the mirror."""
        name = f"{DATABASE}.{self.table(number)}"
        begun, wish = time.monotonic(), BackfillRequest(f"{name} again", name)
        with self.counted("sluice"), self.serving():
            wait_until(lambda: self._is_done(wish), PATIENCE, f"{name} has a base")
            self.based.append(time.monotonic() - begun)
            last = self.lane.checkpoint.batch
            wait_until(lambda: self._applied(name) >= last, PATIENCE, f"{name} has it")
        self.done["sluice"] = self.lane.runner.settings.mirror(name)

    def check(self, number: int) -> None:
        """Compare the results of both contenders, then drop them."""
        found = {name: total(_plain(self._delta(path))) for name, path in self.done.items()}
        require_equal(found)
        if found["sluice"][0] != self.orders.rows:
            raise AssertionError(f"{found['sluice'][0]} of {self.orders.rows} rows are there")
        shutil.rmtree(self.done["jdbc"])

    def beside(self, number: int, changes: int) -> None:
        """Give the table a base while it changes; return how long it took, and the differences."""
        table, begun = self.table(number), time.monotonic()
        with self.orders.changing(table, changes):
            self.bootstrap(number)
            seconds = time.monotonic() - begun
        written = self.orders.written
        self._catch_up(f"{DATABASE}.{table}")
        sides = {"source": self._source(table), "mirror": self._delta(self.done["sluice"])}
        require_equal({name: total(_plain(rows)) for name, rows in sides.items()})
        told = f"{self.orders.rows} rows beside {written / seconds:.0f} changes a second"
        pace = f"base after {self.based[-1]:.0f} s, mirror after {seconds:.0f} s"
        click.echo(f"{told}: {pace}; {under_load()}")
        click.echo(f"  {self.orders.rows / seconds:.0f} rows a second; mirror equals source")

    def _catch_up(self, name: str) -> None:
        """Wait until everything that is committed now is in the mirror."""
        goal = self.heart.write_heartbeat(_now)
        with self.serving():
            wait_until(lambda: self.lane.checkpoint.covers(goal), PATIENCE, "all has landed")
            last = self.lane.checkpoint.tables[name]
            wait_until(lambda: self._applied(name) >= last, PATIENCE, "all is applied")

    def _applied(self, name: str) -> int:
        return self.lane.runner.mirrors.applied(name)

    def _is_done(self, wish: BackfillRequest) -> bool:
        (state,) = self.lane.run_backfills((wish,))
        if state.refused:
            raise AssertionError(state.why)
        return state.done is not None

    def serving(self) -> AbstractContextManager[None]:
        """Land and merge in parallel, as in the service."""
        turns = (self._land, lambda: self.lane.apply(MergeRequest()))
        return beside(*(partial(_again, one) for one in turns))

    def _land(self) -> None:
        with suppress(UnreachableError):
            self.heart.write_heartbeat(_now)
        self.lane.land(frozenset())

    def _delta(self, path: str) -> DataFrame:
        return self.session.read.format("delta").load(path)

    def _source(self, table: str) -> DataFrame:
        mysql = self.servers.mysql
        options = {
            "url": f"jdbc:mysql://{mysql.host}:{mysql.port}/{DATABASE}?useCursorFetch=true",
            "driver": "com.mysql.cj.jdbc.Driver",
            "user": "root",
            "dbtable": table,
            "fetchsize": str(FETCHED),
            "preferTimestampNTZ": "true",
            "partitionColumn": "id",
            "lowerBound": "1",
            "upperBound": str(self.orders.rows),
            "numPartitions": str(PARTS),
        }
        return self.session.read.format("jdbc").options(**options).load()


def _plain(rows: DataFrame) -> DataFrame:
    """Return the table's columns in one order, without the mirror's own."""
    names = sorted(name for name in rows.columns if name != "_sluice")
    return rows.select(*(F.col(name).cast("string").alias(name) for name in names))


def _again(turn: Callable[[], object], ended: threading.Event) -> None:
    while not ended.is_set():
        turn()
        ended.wait(PAUSE)


def _now() -> datetime:
    return datetime.now(UTC)


@click.command()
@click.option("--rows", default=1_000_000, help="Of each table.")
@click.option("--rounds", default=3, help="Rounds; both contenders run once in each.")
@click.option("--changes", default=0, help="A second, beside one more new base.")
@click.option("--dir", "folder", default=Path("build/bench/bootstrap"), type=Path)
def main(rows: int, rounds: int, changes: int, folder: Path) -> None:
    """Measure a new base against a bare copy."""
    folder = folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    tables = rounds + 1 if rounds else 0
    with Servers.create(folder / "servers") as servers:
        orders = Orders(servers.mysql, rows)
        orders.create()
        for number in range(tables + bool(changes)):
            orders.fill(f"t{number}")
        race = opened(servers, orders, folder)
        try:
            if rounds:
                measure(race, rounds)
            if changes:
                race.beside(tables, changes)
        finally:
            race.lane.close()
    shutil.rmtree(folder, ignore_errors=True)


def measure(race: Race, rounds: int) -> None:
    """Time both contenders, after a first round that warms them up."""
    title = f"a new base of {race.orders.rows} rows"
    contenders = [Contender("jdbc", race.copy), Contender("sluice", race.bootstrap)]
    times = compete(contenders, rounds + 1, race.check)
    kept = {name: seconds[1:] for name, seconds in times.items()}
    report(title, {**kept, "sluice, its base": race.based[1:]}, "jdbc", WANTED)
    report("the same in CPU", {name: seconds[1:] for name, seconds in race.cpu.items()}, "jdbc")


def opened(servers: Servers, orders: Orders, folder: Path) -> Race:
    """Start the collector without a snapshot, and a lane that knows the tables."""
    source = SourceSettings(
        name=NAME,
        host=servers.mysql.host,
        port=servers.mysql.port,
        user="sluice",
        password="sluice",  # noqa: S106 - of a throw-away server
        collector=CollectorSettings(servers.connect.url, NAME),
        prefix=NAME,
    )
    server = MySqlSource(source)
    server.prepare_heartbeat()
    heart = HeartbeatTable(server)
    heart.write_heartbeat(_now)
    config = mysql_connector(
        servers.mysql,
        servers.kafka.bootstrap,
        databases=[DATABASE, "sluice"],
        prefix=NAME,
        settings={"snapshot.mode": "no_data"},
    )
    servers.connect.register(NAME, config)
    (driver,) = unpack.UNPACKED.glob("debezium-connector-mysql-*/*/mysql-connector-j-*.jar")
    paths = ",".join(map(str, (*jars.spark_jars(), driver)))
    settings = PipelineSettings(
        str(folder / "lake"),
        servers.kafka.bootstrap,
        (source,),
        driver_memory="2g",
        spark={"spark.jars": paths},
    )
    race = Race(servers, orders, folder, open_lane(settings, _now), heart)
    with race.serving():
        wait_until(lambda: bool(race.lane.checkpoint.existing), PATIENCE, "the tables are known")
    return race


if __name__ == "__main__":
    main()
