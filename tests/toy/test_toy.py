"""Another source, collector and format land, merge, are watched and gated; no product file knows.

One story on a real broker, with the service as a process and its Spark: each step stands on the
one before.  Messages hold three changes each and no position.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError

from demo.daemon import Daemon
from demo.kafka import Kafka
from demo.ports import free_ports
from demo.processes import wait_until
from pipeline.errors import UnreachableError
from tests.pipeline.transports.topics import make
from tests.toy.collector import Pump
from tests.toy.database import Database

CONFIG = Path(__file__).parent / "sluice.yaml"
TABLE = "shop.orders"
COLUMNS = {"id": "number", "name": "word"}
SOON = timedelta(minutes=3)
ENOUGH = timedelta(seconds=12)  # heartbeats come every second, rounds too

pytestmark = [pytest.mark.stack, pytest.mark.spark]


@dataclass(eq=False)
class Stand:
    """The toy's database and pump, and the service that reads what it sends."""

    home: Path
    kafka: Kafka
    database: Database = field(init=False)
    pump: Pump = field(init=False)
    service: Daemon = field(init=False)

    def __post_init__(self) -> None:
        self.database = Database(self.home / "toy.db")
        self.pump = Pump(self.database, self.kafka.bootstrap, "toy")
        (self.port,) = free_ports(1)
        environment = {
            "TOY_LAKE": str(self.home / "lake"),
            "TOY_STORE": str(self.home / "sluice.db"),
            "TOY_KAFKA": self.kafka.bootstrap,
            "TOY_DATABASE": str(self.database.path),
            "TOY_PORT": str(self.port),
        }
        self.service = Daemon("service", self.home / "service.log", environment=environment)

    def start(self) -> None:
        make(self.kafka.bootstrap, name="toy")
        self.database.create()
        self.database.define(TABLE, COLUMNS, "id")
        self.pump.start()
        run = (sys.executable, "-m", "monitor", "run", "--config", str(CONFIG))
        self.service.start((*run, "--log-format", "console"), self.answers, SOON)

    def stop(self) -> None:
        self.pump.stop()
        self.service.stop()

    def answers(self) -> bool:
        try:
            return httpx.get(f"{self._url}/livez", trust_env=False).is_success
        except httpx.HTTPError:
            return False

    def ask(self, cut: str) -> tuple[int, set[str]]:
        """The gate's status for the table, and the codes of its reasons."""
        params = {"table": TABLE, "cut": cut}
        answer = httpx.get(f"{self._url}/v1/gate", params=params, timeout=30, trust_env=False)
        tables = answer.json().get("tables", [])
        return answer.status_code, {r["code"] for one in tables for r in one["reasons"]}

    def ready(self, cut: str) -> bool:
        return wait_until(lambda: self.ask(cut)[0] == 200, SOON, f"READY for {cut}")

    def stays_shut(self, cut: str) -> None:
        """Asked again and again, for longer than a proof takes, the gate never opens."""
        wait_until(lambda: self.not_landed(cut), SOON, "NOT_READY")
        with pytest.raises(UnreachableError, match="READY too early"):
            wait_until(lambda: not self.not_landed(cut), ENOUGH, "READY too early")

    def not_landed(self, cut: str) -> bool:
        """Whether the gate is shut because the proof is open, not only because lags are long."""
        status, codes = self.ask(cut)
        return status == 404 and "not_landed" in codes

    def incidents(self) -> list[dict[str, Any]]:
        found = httpx.get(f"{self._url}/v1/incidents", timeout=30, trust_env=False).json()
        return [one for one in found if one["state"] in ("firing", "recovering")]

    def lags(self) -> set[str]:
        """Hops of the table whose lag is known."""
        lines = httpx.get(f"{self._url}/metrics", timeout=30, trust_env=False).text.splitlines()
        own = [one for one in lines if one.startswith("sluice_hop_lag_seconds{") and TABLE in one]
        return {line.partition('hop="')[2].partition('"')[0] for line in own if "NaN" not in line}

    def mirrored(self) -> dict[int, dict[str, Any]]:
        """Rows of the mirror, without what Sluice adds."""
        try:
            table = DeltaTable(str(self.home / "lake" / "mirrors" / "shop" / "orders"))
        except TableNotFoundError:
            return {}
        batches = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
        rows = pa.table(batches).to_pylist()
        return {row["id"]: {n: v for n, v in row.items() if n != "_sluice"} for row in rows}

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture(scope="module")
def stand(server_folder: Path) -> Iterator[Stand]:
    home = server_folder / "toy"
    home.mkdir()
    port, controller = free_ports(2)
    kafka = Kafka(home / "kafka", port, controller)
    kafka.start()
    made = Stand(home, kafka)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        kafka.stop()


def now() -> str:
    return datetime.now(UTC).isoformat()


def test_a_toy_lands_merges_is_watched_and_gated(stand: Stand) -> None:
    stand.database.put(TABLE, *({"id": n, "name": f"n{n}"} for n in range(1, 101)))
    stand.database.put(TABLE, {"id": 7, "name": "seven"}, {"id": 7, "name": "Seven"})
    stand.database.delete(TABLE, 100)
    cut = now()

    assert stand.ready(cut)
    assert stand.mirrored() == stand.database.rows(TABLE)
    assert len(stand.mirrored()) == 99
    wait_until(lambda: stand.lags() == {"collection", "consumer", "merge"}, SOON, "lags")
    assert stand.incidents() == []


def test_what_is_not_sent_is_not_ready(stand: Stand) -> None:
    stand.pump.stop()
    stand.database.put(TABLE, {"id": 1, "name": "waits"})
    cut = now()

    stand.stays_shut(cut)
    assert stand.mirrored()[1] == {"id": 1, "name": "n1"}

    stand.pump.start()
    assert stand.ready(cut)
    assert stand.mirrored() == stand.database.rows(TABLE)


def test_what_is_sent_and_merged_but_not_acknowledged_is_not_ready(stand: Stand) -> None:
    stand.pump.acknowledging = False
    stand.database.put(TABLE, {"id": 2, "name": "unsaid"})
    cut = now()

    there = {"id": 2, "name": "unsaid"}
    wait_until(lambda: stand.mirrored()[2] == there, SOON, "the mirrored row")
    stand.stays_shut(cut)

    stand.pump.acknowledging = True
    assert stand.ready(cut)


def test_the_toys_own_rule_takes_a_column_and_blocks_a_changed_type(stand: Stand) -> None:
    stand.database.define(TABLE, {**COLUMNS, "amount": "number"}, "id")
    stand.database.put(TABLE, {"id": 3, "name": "more", "amount": 33})
    assert stand.ready(now())
    assert stand.mirrored()[3] == {"id": 3, "name": "more", "amount": 33}
    assert stand.mirrored()[4]["amount"] is None

    stand.database.define(TABLE, {**COLUMNS, "amount": "word"}, "id")
    stand.database.put(TABLE, {"id": 4, "name": "other", "amount": "four"})
    cut = now()

    wait_until(lambda: stand.ask(cut)[0] == 409, SOON, "BLOCKED")
    assert "schema" in stand.ask(cut)[1]
    assert stand.mirrored()[4]["amount"] is None
