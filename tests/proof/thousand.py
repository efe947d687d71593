"""1,000 real tables in ten databases, changed in every cycle, and the service for them."""

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from demo.debezium import mysql_connector
from demo.oracle.compare import Diff, compare
from demo.ports import free_ports
from demo.processes import wait_until
from demo.servers import Servers
from demo.shop.link import Address
from demo.story.memory import resident
from demo.story.service import Service, whereabouts
from pipeline.errors import UnreachableError

CONFIG = Path(__file__).with_suffix(".yaml")
DATABASES = tuple(f"many_{n}" for n in range(10))
ROWS = 20
PATIENCE = timedelta(minutes=20)


@dataclass(frozen=True, slots=True)
class Cycle:
    """One change of every table: seconds to write them, and until all were READY after that."""

    changes: int
    written: float
    ready: float


@dataclass(eq=False)
class Thousand:
    """Servers, tables and service in *home*; ``log`` tells what was done when."""

    home: Path
    cycles: list[Cycle] = field(default_factory=list)
    unanswered: int = 0
    first_ready: float = field(init=False)
    _ends: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        """Name everything; nothing is started."""
        self.servers = Servers.create(self.home)
        self.service = Service(
            self.home, whereabouts(self.servers), free_ports(1)[0], config=CONFIG
        )
        self.tables = [f"{name}.t{n:02}" for name in DATABASES for n in range(100)]

    def open(self) -> None:
        """Start everything; returns when each table is READY for a moment after its snapshot."""
        self._ends.callback(self.servers.stop)
        self.servers.start()
        self._create()
        config = mysql_connector(
            self.servers.mysql,
            self.servers.kafka.bootstrap,
            databases=[*DATABASES, "sluice"],
        )
        self._ends.callback(self.service.stop)
        began = time.monotonic()
        self.service.start()
        self.servers.connect.register("shop", config)
        self.become_ready()
        self.first_ready = time.monotonic() - began

    def cycle(self) -> None:
        """Change each table in a transaction of its own, then wait until all are READY."""
        began = time.monotonic()
        number = len(self.cycles) + 1
        with self.servers.mysql.connect(autocommit=False) as link, link.cursor() as cursor:
            for table in self.tables:
                for statement in changes(table, number):
                    cursor.execute(statement)
                link.commit()
        written = time.monotonic()
        self.become_ready()
        ready = time.monotonic()
        self.cycles.append(Cycle(4 * len(self.tables), written - began, ready - written))

    def become_ready(self) -> None:
        """Wait until every table is READY for the moment of this call.

        Raises:
            UnreachableError: if it does not become so.
        """
        cut = datetime.now(UTC).isoformat()
        left = list(self.tables)

        pause = threading.Event()

        def ready() -> bool:
            left[:] = self.not_ready(left, cut)
            return not left or pause.wait(1)

        try:
            wait_until(ready, PATIENCE, "1,000 tables READY")
        except UnreachableError as error:
            raise UnreachableError(f"{error}; {len(left)} are not: {left[:5]}") from error

    def not_ready(self, tables: Sequence[str], cut: str) -> list[str]:
        """Those of *tables* that the gate does not call READY for *cut*."""
        return [
            table
            for at in range(0, len(tables), 50)
            for table in self._shut(tables[at : at + 50], cut)
        ]

    def compare(self) -> dict[str, Diff]:
        """What the oracle finds in mirrors that are not their sources."""
        address = Address(self.servers.mysql.host, self.servers.mysql.port)
        mirrors = {table: [table] for table in self.tables}
        found = compare(address, self.service.lake, mirrors=mirrors)
        assert len(found) == len(self.tables)
        return {table: diff for table, diff in found.items() if not diff.clean or not diff.rows}

    def figures(self) -> dict[str, Any]:
        """Seconds and bytes, for a person."""
        service = self.service.daemon.process
        return {
            "tables": len(self.tables),
            "seconds until all were READY first": round(self.first_ready),
            "seconds from the last write of a cycle until all were READY": [
                round(one.ready) for one in self.cycles
            ],
            "calls of the gate without an answer in 30 s": self.unanswered,
            "changes a cycle": [one.changes for one in self.cycles],
            "bytes of /metrics": len(self._get("/metrics").content),
            "bytes of the page": len(self._get("/").content),
            "bytes of the store": (self.home / "sluice.db").stat().st_size,
            "resident bytes of the service": resident(service.pid) if service else 0,
        }

    def close(self) -> None:
        """Stop everything; harmless when it is stopped."""
        self._ends.close()

    def _create(self) -> None:
        rows = ", ".join(f"({n}, 'row {n}', {n})" for n in range(1, ROWS + 1))
        for name in DATABASES:
            own = [one for one in self.tables if one.startswith(f"{name}.")]
            self.servers.mysql.execute(
                f"CREATE DATABASE {name}",
                *(
                    f"CREATE TABLE {one} (id INT PRIMARY KEY, name VARCHAR(40), touched BIGINT)"
                    for one in own
                ),
                *(f"INSERT INTO {one} VALUES {rows}" for one in own),
            )

    def _shut(self, tables: Sequence[str], cut: str) -> list[str]:
        try:
            answer = self._get("/v1/gate", {"table": tables, "cut": cut}).json()
        except httpx.TimeoutException:
            self.unanswered += 1
            return list(tables)
        ready = {one["table"] for one in answer.get("tables", ()) if one["ready"]}
        return [table for table in tables if table not in ready]

    def _get(self, path: str, params: dict[str, Any] | None = None) -> httpx.Response:
        return self.service.http.get(path, params=params)


def changes(table: str, cycle: int) -> list[str]:
    """An insert, an update, a key update and a delete of *table*, other rows in each cycle."""
    new = 1_000 * cycle
    return [
        f"INSERT INTO {table} VALUES ({new}, 'cycle {cycle}', {new})",
        f"UPDATE {table} SET name = 'hit', touched = {new} WHERE id = {cycle % ROWS + 1}",
        f"UPDATE {table} SET id = {new + 1}, touched = {new} WHERE id = {new}",
        f"DELETE FROM {table} WHERE id = {ROWS - cycle}",
    ]
