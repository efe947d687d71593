"""A real pipe: its own database and connector on shared servers, and a lane in this process."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from demo.debezium import mysql_connector
from demo.mysql import MySQL
from demo.oracle.compare import judge, mirror_path
from demo.oracle.rows import read_mirror, read_sources
from demo.processes import wait_until
from demo.servers import Servers
from demo.shop.link import Address
from pipeline.apply.merge_run import MergeRequest
from pipeline.checkpoint import active_tables
from pipeline.errors import UnreachableError
from pipeline.lane import Lane
from pipeline.model import Fence
from pipeline.reports import LandingReport, MergeReport
from pipeline.settings import CollectorSettings, PipelineSettings, Router, SourceSettings, TableRule
from pipeline.sources.mysql.source import MySqlSource
from pipeline.sources.source import HeartbeatTable
from pipeline.start import open_lane

PATIENCE = timedelta(minutes=5)


def now() -> datetime:
    return datetime.now(UTC)


@dataclass(eq=False)
class Pipe:
    """Database *name* on *mysql*, read by connector *name*, landed and applied under *home*."""

    servers: Servers
    home: Path
    name: str
    mysql: MySQL = field(init=False)
    rules: tuple[TableRule, ...] = ()
    partitions: int = 1
    connector: Mapping[str, str] = field(default_factory=dict)
    batch_rows: int = 2_000_000
    tuning: Mapping[str, Any] = field(default_factory=dict)
    landed: list[LandingReport] = field(default_factory=list)
    applied: list[MergeReport] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Create the database; nothing runs yet."""
        self.mysql = self.servers.mysql
        self.mysql.execute(f"CREATE DATABASE IF NOT EXISTS {self.name}")

    def source(self) -> SourceSettings:
        return SourceSettings(
            name=self.name,
            host=self.mysql.host,
            port=self.mysql.port,
            user="sluice",
            password="sluice",
            collector=CollectorSettings(self.servers.connect.url, self.name),
            prefix=self.name,
            follow_hosts=("127.0.0.1",),  # servers are exchanged for others at other ports
        )

    def sources(self) -> tuple[SourceSettings, ...]:
        """Those that the lane lands."""
        return (self.source(),)

    def start(self) -> None:
        """Write a first heartbeat, register the connector, open the lane."""
        server = MySqlSource(self.source())
        server.prepare_heartbeat()
        self.heart = HeartbeatTable(server)
        self.fence = self.heart.write_heartbeat(now)
        self.register()
        self.open()

    def register(self) -> None:
        self.servers.connect.register(self.name, self.config())

    def config(self) -> dict[str, str]:
        """Settings of the connector that reads the server as it is now."""
        return mysql_connector(
            self.mysql,
            self.servers.kafka.bootstrap,
            databases=[self.name, "sluice"],
            prefix=self.name,
            partitions=self.partitions,
            settings=self.connector,
        )

    def end(self) -> None:
        """Take the connector away; what it wrote stays."""
        self.servers.connect.deregister(self.name)

    def open(self) -> None:
        settings = PipelineSettings(
            lake=str(self.home),
            kafka=self.servers.kafka.bootstrap,
            sources=self.sources(),
            rules=self.rules,
            **{"merge_workers": 1, "batch_rows": self.batch_rows, **self.tuning},
        )
        self.lane: Lane = open_lane(settings, now)
        assert self.lane.session is not None
        self.session = self.lane.session

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.mysql.execute(*[s.replace("DB.", f"{self.name}.") for s in statements])

    def round(self, waived: frozenset[str] = frozenset()) -> Fence:
        """One heartbeat, one batch, one pass over the mirrors; a snapshot may lock heartbeats."""
        with contextlib.suppress(UnreachableError):
            self.fence = self.heart.write_heartbeat(now)
        self.landed.append(self.lane.land(waived))
        self.applied.extend(self.lane.apply(MergeRequest(waived)))
        return self.fence

    def catch_up(
        self, waived: frozenset[str] = frozenset(), *, within: timedelta = PATIENCE
    ) -> None:
        """Go on until all that is committed now is landed and all landed changes are applied."""
        begun, goals = now(), list[Fence]()

        def caught_up() -> bool:
            fence = self.round(waived)
            if fence.at >= begun:
                goals.append(fence)
            return bool(goals) and self.lane.checkpoint.covers(goals[0]) and not self.behind()

        wait_until(caught_up, within, f"{self.name} caught up")

    def until(self, reached: Callable[[], bool]) -> None:
        """Go on until it is so."""

        def tried() -> bool:
            self.round()
            return reached()

        wait_until(tried, PATIENCE, f"{self.name} came so far")

    def behind(self) -> list[str]:
        """Tables whose mirrors have not applied their last change, and are not held."""
        newest = {one.table: one.hold for one in self.applied}
        held = {table for table, hold in newest.items() if hold is not None}
        tables = active_tables(
            self.lane.checkpoint, Router(self.rules)
        ).items()  # others are retired
        return [
            t for t, last in tables if self.lane.runner.mirrors.applied(t) < last and t not in held
        ]

    def named(self, table: str) -> str:
        """What the mirror of DB.*table* is called."""
        return f"{self.name}.{table}"

    def rows(self, table: str) -> DataFrame:
        """The mirror of DB.*table*, with ``_sluice``."""
        path = self.lane.runner.settings.mirror(self.named(table))
        return self.session.read.format("delta").load(path)

    def mirror(self, table: str, order_by: str = "id") -> list[dict[str, Any]]:
        """Rows of the mirror of DB.*table* without ``_sluice``."""
        return [r.asDict() for r in self.rows(table).drop("_sluice").orderBy(order_by).collect()]

    def pairs(self, table: str = "t") -> dict[int, Any]:
        """id -> name of the mirror's rows."""
        return {row["id"]: row["name"] for row in self.mirror(table)}

    def source_pairs(self, table: str = "t") -> dict[int, Any]:
        """id -> name of the source's rows."""
        return dict(self.sql(f"SELECT id, name FROM DB.{table}"))

    def findings(self, table: str = "t") -> dict[str, int]:
        """What the demo's oracle finds in the mirror of DB.*table*; empty if nothing is wrong."""
        name = self.named(table)
        source = read_sources(Address(self.mysql.host, self.mysql.port), {name: [name]})[name]
        diff = judge(source, read_mirror(mirror_path(str(self.home), name), source))
        assert diff.rows > 0
        return {finding: number for finding, number in diff.counts.items() if number}
