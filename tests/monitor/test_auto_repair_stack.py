"""`repair: auto` by a real service: what no log says is found, read again, and proven right.

MySQL, Kafka, Debezium and Spark are real, and the service is a process that is killed between a
request and its repair. Each table meets another fate, all at the same time.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
import yaml

from demo.debezium import mysql_connector
from demo.oracle.compare import compare
from demo.ports import free_ports
from demo.processes import wait_until
from demo.servers import Servers
from demo.shop.link import Address
from demo.story.service import Service, whereabouts
from pipeline.errors import UnreachableError

pytestmark = [pytest.mark.stack, pytest.mark.spark]
NAME, SOON = "repaired", timedelta(minutes=4)
TABLES = ("orders", "again", "daily", "large", "asked", "paused")
MANY = range(1001, 1061, 2)  # lost rows, none beside another: each is a key of its own
CHANGED, DELETED = (20, 30, 31), (40, 41, 42, 43, 44, 45)
QUICK = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
RULES = [
    {"tables": "repaired.asked", "how": "ask"},
    {"tables": "repaired.large", "how": "auto", "after": "PT1S", "rows": 5},
    {"tables": "repaired.daily", "how": "auto", "after": "PT1S", "rows": 5, "rows_a_day": 6},
    {"tables": "repaired.again", "how": "auto", "after": "PT1S", "tries": 1},
    {"tables": "repaired.paused", "how": "auto", "after": "PT30S"},
    {"tables": "repaired.orders", "how": "auto", "after": "PT5S"},
    {"tables": "repaired.*", "how": "auto", "after": "PT1S"},
]
LEFT = {
    "again": "ask: 1 automatic repair has not helped for long; the limit is 1 (repair.tries)",
    "daily": "ask: 4 rows were repaired within 24 hours, and 4 more are above the limit of 6",
    "large": "ask: 6 rows are above the limit of 5 (repair.rows)",
    "asked": "ask: the rule for repaired.asked says ask; run: sluice repair repaired.asked --inc",
    "paused": "ask: the table is paused",
}
HARM = {
    "again": "UPDATE {} SET name = UUID() WHERE id = 7",
    "daily": "UPDATE {} SET name = UUID() WHERE id BETWEEN 10 AND 13",
    "large": "DELETE FROM {} WHERE id BETWEEN 10 AND 15",
    "asked": "INSERT INTO {} VALUES (500, 'lost')",
    "paused": "INSERT INTO {} VALUES (500, 'lost')",
}
"""What happens without a word in the log; to the first two again, once they are repaired."""
Json = dict[str, Any]
T = TypeVar("T")


@dataclass(eq=False)
class Repairing:
    """Tables of a hundred rows, and a service with a rule for each."""

    home: Path
    servers: Servers
    whole: set[str] = field(default_factory=lambda: {"again", "daily"})

    def start(self) -> None:
        mysql, connect = self.servers.mysql, self.servers.connect
        rows = ", ".join(f"({n}, 'old')" for n in range(1, 101))
        mysql.execute(f"CREATE DATABASE {NAME}")
        for one in TABLES:
            mysql.execute(
                f"CREATE TABLE {NAME}.{one} (id BIGINT PRIMARY KEY, name VARCHAR(40))",
                f"INSERT INTO {NAME}.{one} VALUES {rows}",
            )
        wanted = mysql_connector(
            mysql, self.servers.kafka.bootstrap, databases=[NAME, "sluice"], prefix=NAME
        )
        connect.register(NAME, wanted)
        path = self.home / "sluice.yaml"
        path.write_text(yaml.safe_dump(self._config()), encoding="utf-8")
        (port,) = free_ports(1)
        self.service = Service(self.home, whereabouts(self.servers), port, config=path)
        self.service.start()
        cut = datetime.now(UTC).isoformat()
        tables = [f"{NAME}.{one}" for one in TABLES]
        self.wait(lambda: self.service.gate(tables, cut).open, "READY")

    def stop(self) -> None:
        self.service.stop()
        self.servers.connect.deregister(NAME)
        self.servers.mysql.execute(f"DROP DATABASE IF EXISTS {NAME}")

    def harm(self, table: str, *statements: str) -> None:
        """Change rows of *table* without a word in the log."""
        said = [one.format(f"{NAME}.{table}") for one in statements]
        self.servers.mysql.execute("SET sql_log_bin = 0", *said)

    def change(self, table: str, *statements: str) -> None:
        """Change rows of *table* as anybody does."""
        self.servers.mysql.execute(*[one.format(f"{NAME}.{table}") for one in statements])

    def wait(self, reached: Callable[[], T], what: str) -> T:
        """Return what is *reached* in the end; a service that does not answer is asked again."""

        def asked() -> T | None:
            with suppress(UnreachableError, httpx.HTTPError):
                return reached()
            return None

        try:
            found = wait_until(asked, SOON, what)
        except UnreachableError as error:
            raise UnreachableError(f"{error}; open: {self.service.incidents()}") from error
        assert found is not None
        return found

    def kill(self) -> None:
        """Kill the service and start it again."""
        self.service.daemon.kill()
        self.service.start()

    def repairs(self, table: str) -> list[Json]:
        """Repairs of *table*, newest first."""
        found = self.service.http.get("/v1/rereads").json()
        return [one for one in found if one["table"] == f"{NAME}.{table}"]

    def incident(self, table: str, *states: str) -> Json | None:
        """The newest loss of *table*."""
        found = self.service.incidents(*states)
        own = (one for one in found if one["kind"] == "lost" and f"{NAME}.{table}" in one["tables"])
        return next(own, None)

    def resolved(self, table: str) -> bool:
        """Whether no loss of *table* is open, and the checks that found one have passed since."""
        made = self.repairs(table)
        proven = bool(made) and all(one["done"] and not one["unchecked"] for one in made)
        return proven and self.incident(table) is None

    def harm_again(self) -> bool:
        """Change rows of orders until they are repaired, and harm what was repaired."""
        if any(one["ended"] is None for one in self.repairs("orders")):
            self.change("orders", "UPDATE {} SET name = UUID() WHERE id IN (31, 1003)")
        for table in [one for one in self.whole if self.resolved(one)]:
            self.whole.discard(table)
            self.harm(table, HARM[table])
        return not self.whole and self.resolved("orders")

    def said(self, table: str) -> str:
        """What follows for the open loss of *table*."""
        one = self.incident(table)
        return "" if one is None else "; ".join(f"{r['next']}: {r['why']}" for r in one["repairs"])

    def await_saying(self, table: str, why: str) -> None:
        """Return once *why* follows for the open loss of *table*."""
        self.wait(lambda: why in self.said(table), f"{table}: {why}")

    def findings(self, table: str) -> str:
        """What the demo's oracle, which reads both sides its own way, says of *table*."""
        mysql, name = self.servers.mysql, f"{NAME}.{table}"
        address = Address(mysql.host, mysql.port)
        return str(compare(address, self.service.lake, mirrors={name: [name]})[name])

    def _config(self) -> Json:
        source = {"name": NAME, "host": "127.0.0.1", "port": {"env": "DEMO_MYSQL_PORT"}}
        source |= {"user": "sluice", "password": {"env": "DEMO_MYSQL_PASSWORD"}, "prefix": NAME}
        source |= {"collector": {"url": {"env": "DEMO_CONNECT"}, "connector": NAME}}
        checks = {"range_counts": {"every": "PT2S"}, "values": {"every": "PT2S", "rotating": 5}}
        return {
            "lake": {"env": "DEMO_LAKE"},
            "store": {"env": "DEMO_STORE"},
            "kafka": {"env": "DEMO_KAFKA"},
            "sources": [source],
            "readiness": {"margin": "PT1S"},
            "schedule": dict.fromkeys(("land", "merge", "watch", "probe"), "PT1S"),
            "probes": checks,
            "repair": RULES,
            "alerts": {"routes": [{"tables": "*", "hold": "PT0S", "keep": "PT1S"}]},
            "disks": {"free_bytes": 1 << 30},
            "pipeline": {
                "driver_memory": "1g",
                "spark": {"spark.driver.extraJavaOptions": QUICK},
            },
            "http": {"port": {"env": "DEMO_HTTP_PORT"}},
        }


@pytest.fixture
def repairing(server_folder: Path, servers: Servers) -> Iterator[Repairing]:
    home = server_folder / NAME
    home.mkdir()
    made = Repairing(home, servers)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_wrong_rows_are_repaired_within_limits_also_after_a_kill_and_proven_right(
    repairing: Repairing,
) -> None:
    for table, statement in HARM.items():
        repairing.harm(table, statement)
    repairing.harm(
        "orders",
        "INSERT INTO {} VALUES " + ", ".join(f"({n}, 'lost')" for n in MANY),
        f"UPDATE {{}} SET name = 'new' WHERE id IN {CHANGED}",
        f"DELETE FROM {{}} WHERE id IN {DELETED}",
    )

    repairing.wait(lambda: repairing.incident("paused"), "incident")
    pause = {"tables": [f"{NAME}.paused"], "reason": "a copy is made", "who": "ann"}
    assert repairing.service.http.post("/v1/pauses", json=pause).status_code == 201
    (asked, *_) = repairing.wait(lambda: repairing.repairs("orders"), "repair")
    repairing.change("orders", "UPDATE {} SET name = 'later' WHERE id IN (20, 1001)")
    repairing.change("orders", "DELETE FROM {} WHERE id = 30", "INSERT INTO {} VALUES (40, 'back')")
    repairing.kill()
    repairing.wait(repairing.harm_again, "proof")
    for table, why in LEFT.items():
        repairing.await_saying(table, why)

    assert asked["ended"] is None, "the service was killed before the rows were repaired"
    assert repairing.findings("orders").endswith("all equal")
    made = {one["id"]: one for one in repairing.repairs("orders")}
    ended = repairing.incident("orders", "resolved")
    assert ended is not None
    assert asked["id"] in made
    assert {(one["who"], one["incident"]) for one in made.values()} == {("sluice", ended["id"])}
    why = r"repair: auto; \d+ rows that .+ found wrong are read again"
    assert re.fullmatch(why, asked["reason"])
    assert len(asked["keys"]) + len(asked["ranges"]) > 20
    for one in made.values():
        assert one["at"] < one["ended"]
        assert all(proof["passed"] and proof["at"] > one["ended"] for proof in one["proofs"])
    numbers = {table: len(repairing.repairs(table)) for table in LEFT}
    assert numbers == {"again": 1, "daily": 1, "large": 0, "asked": 0, "paused": 0}
    page = repairing.service.http.get("/").text
    assert page.count("<b>ask</b>") >= len(LEFT)
