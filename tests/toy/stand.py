"""The toy's database, its pump, and a service that reads what it sends and is asked over HTTP."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from demo.ports import free_ports
from demo.processes import wait_until
from demo.web import LOCAL
from pipeline.errors import UnreachableError
from tests.toy.collector import Pump, to_lines
from tests.toy.database import Database

CONFIG = Path(__file__).parent / "sluice.yaml"
KAFKA = "kafka: {env: TOY_KAFKA}\n"
LINES = "transport: examples.json_lines\ntransport_options: {folder: {env: TOY_LINES}}\n"
TABLE = "shop.orders"
COLUMNS = {"id": "number", "name": "word"}
SOON = timedelta(minutes=6)
ENOUGH = timedelta(seconds=12)  # heartbeats come every second, rounds too


@dataclass(eq=False)
class Stand:
    """The toy's database and pump, and the service that reads what it sends.

    ``environment`` is what *config* takes from there beside the places in ``home``.
    """

    home: Path
    send: Callable[[Sequence[str]], bool]
    environment: Mapping[str, str]
    config: Path = CONFIG
    database: Database = field(init=False)
    pump: Pump = field(init=False)
    service: Daemon = field(init=False)

    def __post_init__(self) -> None:
        self.database = Database(self.home / "toy.db")
        self.pump = Pump(self.database, self.send)
        (self.port,) = free_ports(1)
        environment = {
            "TOY_LAKE": str(self.home / "lake"),
            "TOY_STORE": str(self.home / "sluice.db"),
            "TOY_DATABASE": str(self.database.path),
            "TOY_PORT": str(self.port),
            **self.environment,
        }
        self.service = Daemon("service", self.home / "service.log", environment=environment)

    def start(self) -> None:
        self.database.create()
        self.database.define(TABLE, COLUMNS, "id")
        self.resume()

    def resume(self) -> None:
        """Go on with the database that is there."""
        self.pump.start()
        self.revive()

    def kill(self) -> None:
        """`kill -9` of the service, and with it of its Spark process; the pump goes on."""
        self.service.kill()

    def revive(self) -> None:
        run = (sys.executable, "-m", "monitor", "run", "--config", str(self.config))
        self.service.start((*run, "--log-format", "console"), self.answers, SOON)

    def stop(self) -> None:
        self.pump.stop()
        self.service.stop()

    def answers(self) -> bool:
        try:
            return LOCAL.get(f"{self._url}/livez").is_success
        except httpx.HTTPError:
            return False

    def waive(self, id_: str) -> bool:
        """Whether the service took a waiver of *id_*."""
        waiver = {"id": id_, "reason": "a test", "who": "me"}
        return LOCAL.post(f"{self._url}/v1/waivers", json=waiver).is_success

    def ask(self, cut: str, **more: str) -> tuple[int, set[str]]:
        """The gate's status for the table, and the codes of its reasons; 0 while nobody answers."""
        params = {"table": TABLE, "cut": cut, **more}
        try:
            answer = LOCAL.get(f"{self._url}/v1/gate", params=params)
        except httpx.HTTPError:
            return 0, set()
        tables = answer.json().get("tables", [])
        return answer.status_code, {r["code"] for one in tables for r in one["reasons"]}

    def gaps(self, cut: str) -> set[str]:
        """Ids of gaps for which the gate is shut, and that may be waived."""
        answer = LOCAL.get(f"{self._url}/v1/gate", params={"table": TABLE, "cut": cut}).json()
        reasons = [one for each in answer.get("tables", []) for one in each["reasons"]]
        found = {one["id"] for one in reasons if one["code"] == "gap"}
        return {one for one in found if not one.startswith("gap:")}

    def ready(self, cut: str, **more: str) -> bool:
        return wait_until(lambda: self.ask(cut, **more)[0] == 200, SOON, f"READY for {cut}")

    def stays_shut(self, cut: str) -> None:
        """Asked again and again, for longer than a proof takes, the gate never opens.

        What it says is that the proof is open, though a busy machine may know less for a while.
        """
        wait_until(lambda: self.not_landed(cut), SOON, "NOT_READY")
        with pytest.raises(UnreachableError, match="READY too early"):
            wait_until(lambda: self.ask(cut)[0] == httpx.codes.OK, ENOUGH, "READY too early")
        wait_until(lambda: self.not_landed(cut), SOON, "NOT_READY")

    def not_landed(self, cut: str) -> bool:
        """Whether the gate is shut because the proof is open, not only because lags are long."""
        status, codes = self.ask(cut)
        return status == 404 and "not_landed" in codes

    def incidents(self) -> list[dict[str, Any]]:
        found = LOCAL.get(f"{self._url}/v1/incidents").json()
        return [one for one in found if one["state"] in ("firing", "recovering")]

    def ledger(self) -> list[dict[str, Any]]:
        """The minutes of the table's hop from the change log into the mirror."""
        found: list[dict[str, Any]] = self.ledger_hops()["merge"]["minutes"]
        return found

    def ledger_hops(self) -> dict[str, dict[str, Any]]:
        """The ledger of the table, by hop."""
        found = LOCAL.get(f"{self._url}/v1/tables/{TABLE}/ledger").json()["hops"]
        return {one["hop"]: one for one in found}

    def residual(self) -> float:
        """The metric of that hop; NaN while it is absent."""
        lines = LOCAL.get(f"{self._url}/metrics").text.splitlines()
        name = f'sluice_ledger_residual_rows{{table="{TABLE}",hop="merge"}}'
        own = [one for one in lines if one.startswith(name)]
        return float(own[0].rpartition(" ")[2]) if own else float("nan")

    def pause(self) -> None:
        asked = {"tables": [TABLE], "reason": "a test", "who": "me"}
        assert LOCAL.post(f"{self._url}/v1/pauses", json=asked).is_success

    def unpause(self) -> None:
        asked = {"tables": [TABLE], "who": "me"}
        assert LOCAL.post(f"{self._url}/v1/pauses/ended", json=asked).is_success

    def passed(self) -> set[str]:
        """Checks of the table whose newest verdict is that it passed."""
        asked = {"table": TABLE, "limit": "500"}
        answer = LOCAL.get(f"{self._url}/v1/verdicts", params=asked)
        newest = {one["check"]: one["outcome"] for one in reversed(answer.json())}
        return {check for check, outcome in newest.items() if outcome == "pass"}

    def lags(self) -> set[str]:
        """Hops of the table whose lag is known."""
        lines = LOCAL.get(f"{self._url}/metrics").text.splitlines()
        own = [one for one in lines if one.startswith("sluice_hop_lag_seconds{") and TABLE in one]
        return {line.partition('hop="')[2].partition('"')[0] for line in own if "NaN" not in line}

    def mirrored(self) -> dict[int, dict[str, Any]]:
        """Rows of the mirror, without what Sluice adds."""
        return mirrored(self.home)

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def mirrored(home: Path) -> dict[int, dict[str, Any]]:
    """Rows of the mirror in *home*, without what Sluice adds; {} before there is one."""
    try:
        table = DeltaTable(str(home / "lake" / "mirrors" / "shop" / "orders"))
    except TableNotFoundError:
        return {}
    batches = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    rows = pa.table(batches).to_pylist()
    return {row["id"]: {n: v for n, v in row.items() if n != "_sluice"} for row in rows}


@contextmanager
def without_kafka(
    home: Path, replaced: Mapping[str, str], *, begun: bool = False
) -> Iterator[Stand]:
    """The toy's messages go through the transport of examples/; its config with *replaced*, too.

    What is *begun* goes on with the database, lake and store that *home* has.
    """
    home.mkdir(exist_ok=begun)
    text = CONFIG.read_text("utf-8")
    for old, new in {KAFKA: LINES, **replaced}.items():
        assert old in text
        text = text.replace(old, new)
    config = home / "sluice.yaml"
    config.write_text(text)
    made = Stand(home, to_lines(home / "toy.jsonl"), {"TOY_LINES": str(home)}, config)
    try:
        made.resume() if begun else made.start()
        yield made
    finally:
        made.stop()


def now() -> str:
    return datetime.now(UTC).isoformat()
