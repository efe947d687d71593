"""The system of docs/systems/uber.md on real servers, by the config that stands there.

Only addresses, memory and paces are others.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pyarrow as pa
import yaml
from confluent_kafka import Producer
from deltalake import DeltaTable, QueryBuilder

from demo.daemon import Daemon
from demo.kafka import Kafka
from demo.mysql import MySQL
from demo.ports import free_ports
from demo.processes import wait_until
from demo.registry import Registry
from demo.story.service import Service, read_config
from pipeline.errors import UnreachableError
from tests.docs.markdown import ROOT, blocks
from tests.pipeline.formats.avro_writer import Schema
from tests.pipeline.transports.topics import make
from tests.proof.rides_sender import COLUMNS, ODD

PAGE = ROOT / "docs" / "systems" / "uber.md"
TABLES = ("rides.trips", "rides.drivers")
SOON = timedelta(minutes=6)
SCHEMA = (
    "CREATE DATABASE rides",
    "CREATE TABLE rides.trips (id BIGINT PRIMARY KEY, rider VARCHAR(80), fare DOUBLE,"
    " note VARCHAR(80), photo VARBINARY(16))",
    "CREATE TABLE rides.drivers (id BIGINT PRIMARY KEY, name VARCHAR(80), trips BIGINT)",
    "CREATE DATABASE IF NOT EXISTS sluice",
    "CREATE TABLE IF NOT EXISTS sluice.heartbeat (source VARCHAR(64) NOT NULL PRIMARY KEY,"
    " n BIGINT NOT NULL, at DATETIME(6) NOT NULL)",
)


@dataclass(eq=False)
class Rides:
    """MySQL, Kafka, a registry, the sender and the service, all processes, in *home*.

    ``added`` are columns by table that the sender tells of, too, from its next start on.
    """

    home: Path
    chance: Random = field(default_factory=lambda: Random(1))
    added: dict[str, Mapping[str, Schema]] = field(default_factory=dict)
    _ends: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        """Name everything; nothing is started."""
        ports = free_ports(5)
        self.mysql = MySQL(self.home / "mysql", ports[0])
        self.kafka = Kafka(self.home / "kafka", ports[1], ports[2])
        self.registry = Registry(self.home / "registry", ports[3])
        self.sender = Daemon("sender", self.home / "sender.log")
        told = {
            "DEMO_KAFKA": self.kafka.bootstrap,
            "DEMO_MYSQL_PORT": str(self.mysql.port),
            "DEMO_MYSQL_PASSWORD": "sluice",
            "DEMO_REGISTRY": self.registry.url,
        }
        self.service = Service(self.home, told, ports[4], config=written(self.home))

    def open(self) -> None:
        """Start all of it; what is in the tables by then is in no event."""
        for server in (self.mysql, self.kafka, self.registry):
            self._ends.callback(server.stop)
            server.start()
        self.mysql.execute(*SCHEMA)
        self.change(30)
        for table in COLUMNS:
            make(self.kafka.bootstrap, name=f"dbevents.{table}", partitions=2)
        file, place, *_ = self.mysql.execute("SHOW MASTER STATUS")[0]
        self.state.write_text(json.dumps([file, place]), encoding="utf-8")
        self._ends.callback(self.sender.kill)
        self.send()
        self._ends.callback(self.service.stop)
        self.service.start()

    def close(self) -> None:
        self._ends.close()

    @property
    def state(self) -> Path:
        """What the sender has noted of how far it is."""
        return self.home / "sender.json"

    def send(self) -> None:
        """Start the sender where it was."""
        mysql = {"host": "127.0.0.1", "port": self.mysql.port, "user": "root", "passwd": ""}
        told = {"mysql": mysql, "kafka": self.kafka.bootstrap, "registry": self.registry.url}
        words = json.dumps(
            {**told, "state": str(self.state), "prefix": "dbevents", "added": self.added}
        )
        command = (sys.executable, "-m", "tests.proof.rides_sender", words)
        self.sender.start(command, lambda: self.sender.running, SOON)

    @contextmanager
    def sent_again(self) -> Iterator[None]:
        """What is sent inside the block is sent twice: the sender goes back to where it was."""
        noted = self.state.read_text(encoding="utf-8")
        yield
        self.sender.kill()
        self.state.write_text(noted, encoding="utf-8")
        self.send()

    def change(self, transactions: int) -> None:
        """Rows that come, change in some columns, go, and come again; some are rolled back."""
        with self.mysql.connect(autocommit=False) as connection, connection.cursor() as cursor:
            for _ in range(transactions):
                for _ in range(self.chance.randint(1, 4)):
                    cursor.execute(*self._statement())
                if self.chance.random() < 0.1:
                    connection.rollback()
                else:
                    connection.commit()

    def odd(self, id_: int) -> None:
        """A row that its sender cannot conform."""
        self.mysql.execute(f"REPLACE INTO rides.trips VALUES ({id_}, 'r', 1.5, '{ODD}', NULL)")

    def rubbish(self) -> None:
        """A message that belongs to no row."""
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap})
        producer.produce("dbevents.rides.drivers", b"no avro at all", partition=0)
        producer.flush()

    def _statement(self) -> tuple[str, tuple[Any, ...]]:
        id_, pick = self.chance.randint(1, 60), self.chance.random()
        if pick < 0.2:
            return "DELETE FROM rides.trips WHERE id = %s", (id_,)
        if pick < 0.5:
            row = (id_, f"rider {pick:.3f}", pick, None, bytes([id_, 0]))
            names = "(id, rider, fare, note, photo)"
            return f"REPLACE INTO rides.trips {names} VALUES (%s, %s, %s, %s, %s)", row
        if pick < 0.7:
            return "UPDATE rides.trips SET fare = fare + 1 WHERE id = %s", (id_,)
        if pick < 0.85:
            return "UPDATE rides.trips SET note = %s, rider = NULL WHERE id = %s", (f"n{pick}", id_)
        insert = "INSERT INTO rides.drivers VALUES (%s, %s, 1)"
        return f"{insert} ON DUPLICATE KEY UPDATE trips = trips + 1", (id_, f"driver {id_}")

    def ask(self, cut: str, *tables: str) -> tuple[int, list[dict[str, Any]]]:
        """The gate's status, and its reasons; 0 while nobody answers."""
        params = {"table": tables or TABLES, "cut": cut}
        try:
            answer = self.service.http.get("/v1/gate", params=params)
        except httpx.HTTPError:
            return 0, []
        told = answer.json().get("tables", [])
        return answer.status_code, [reason for one in told for reason in one["reasons"]]

    def ready(self, *tables: str) -> str:
        """Wait until the gate opens as of now: then each mirror is its source, as nobody writes.

        What it says beside its yes.
        """
        cut = self.opened(*tables)
        for table in tables or TABLES:
            assert self.mirror(table) == self.source(table), f"READY was false: {table}"
        return " ".join(reason["text"] for reason in self.ask(cut, *tables)[1])

    def opened(self, *tables: str) -> str:
        """Wait until the gate opens as of now; this now.  Others may write."""
        cut = now()
        try:
            wait_until(lambda: self.ask(cut, *tables)[0] == 200, SOON, f"READY for {cut}")
        except UnreachableError as error:
            raise AssertionError(f"{error}: {self.ask(cut, *tables)}") from error
        return cut

    def lags(self, table: str) -> dict[str, float | None]:
        """Seconds of each hop; None where it is not known."""
        (own,) = [one for one in self.service.tables() if one["table"] == table]
        return {hop["hop"]: hop["lag_seconds"] for hop in own["hops"]}

    def until(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(condition, SOON, what)

    def mirror(self, table: str, version: int | None = None) -> dict[int, dict[str, Any]]:
        """Rows of *version* by id, of the newest without it; what is beside them is left out."""
        lake = str(Path(self.service.lake) / "mirrors" / table.replace(".", "/"))
        found = QueryBuilder().register("t", DeltaTable(lake, version=version))
        batches, names = found.execute("SELECT * FROM t"), self._columns(table)
        rows = pa.table(batches.read_all()).to_pylist()
        assert len({row["id"] for row in rows}) == len(rows), "two rows of one key"
        return {row["id"]: {name: row[name] for name in names} for row in rows}

    def source(self, table: str) -> dict[int, dict[str, Any]]:
        """The same at the source."""
        names = self._columns(table)
        rows = self.mysql.execute(f"SELECT {', '.join(names)} FROM {table}")
        return {row[0]: dict(zip(names, row, strict=True)) for row in rows}

    def _columns(self, table: str) -> tuple[str, ...]:
        return (*COLUMNS[table], *self.added.get(table, ()))

    def verb(self, *words: str, given: str | None = None) -> str:
        """What a verb of the command line says."""
        command = [sys.executable, "-m", "monitor", *words, "--server", self.service.url]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def quarantined(self) -> Sequence[dict[str, Any]]:
        """What is open of the error table."""
        found: Sequence[dict[str, Any]] = json.loads(self.verb("quarantine", "list", "--json"))[
            "changes"
        ]
        return found

    def books(self) -> dict[str, dict[str, Any]]:
        """What was read of each table, and where it is."""
        return {
            table: json.loads(self.verb("quarantine", "list", table, "--json"))["tables"][0]
            for table in TABLES
        }


def written(home: Path) -> Path:
    """The page's config as a file in *home*: its own words, with addresses and the demo's paces."""
    (text,) = blocks(PAGE, "yaml")
    told, demo = yaml.safe_load(text), read_config()
    for name in ("lake", "kafka", "store", "readiness", "schedule", "http", "pipeline"):
        told[name] = demo[name]
    told["probes"] |= {"max_id": {"every": "PT3S"}, "range_counts": {"every": "PT3S"}}
    (source,) = told["sources"]
    port, password = {"env": "DEMO_MYSQL_PORT"}, {"env": "DEMO_MYSQL_PASSWORD"}
    source |= {"host": "127.0.0.1", "port": port, "password": password}
    source["format_options"]["registry"]["url"] = {"env": "DEMO_REGISTRY"}
    path = home / "sluice.yaml"
    path.write_text(yaml.safe_dump(told), encoding="utf-8")
    return path


def now() -> str:
    return datetime.now(UTC).isoformat()
