"""The system of docs/systems/weibo.md: its config, a folder of logs, and the service as a process.

Only places and paces are others: what takes minutes there takes seconds here.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import pyarrow as pa
import yaml
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError

from demo.daemon import Daemon
from demo.ports import free_ports
from demo.processes import wait_until
from demo.web import LOCAL
from tests.docs.markdown import ROOT, blocks
from tests.toy.copy import FileCopy

PAGE = ROOT / "docs" / "systems" / "weibo.md"
SOON = timedelta(minutes=6)
SHANGHAI = ZoneInfo("Asia/Shanghai")
QUICK = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"


@dataclass(eq=False)
class Weibo:
    """The folder below ``home``, what was written into it, and the service.

    Hours are counted back from ``begun``, though another may begin meanwhile.
    """

    home: Path
    begun: datetime = field(default_factory=lambda: datetime.now(SHANGHAI))
    written: dict[str, Counter[str]] = field(default_factory=dict)
    service: Daemon = field(init=False)

    def __post_init__(self) -> None:
        self.base = self.home / "logs"
        self.base.mkdir()
        (self.port,) = free_ports(1)
        self.config = self._configured()
        self.service = Daemon("service", self.home / "service.log")

    def start(self) -> None:
        run = (sys.executable, "-m", "monitor", "run", "--config", str(self.config))
        self.service.start((*run, "--log-format", "console"), self.answers, SOON)

    def kill(self) -> None:
        self.service.kill()

    def stop(self) -> None:
        self.service.stop()

    def put(
        self, log: str, name: str, *rows: Mapping[str, Any], ago: int = 0, skew: int = 0
    ) -> Path:
        """A file of JSON lines in the hour *ago* hours before the beginning.

        Its own time is *skew* seconds off.
        """
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        path = self.place(log, name, ago)
        with self.beside(path) as made:
            made.write_text(text)
            if skew:
                moment = datetime.now(UTC).timestamp() + skew
                os.utime(made, (moment, moment))
        self.note(log, *rows)
        return path

    @contextmanager
    def beside(self, path: Path) -> Iterator[Path]:
        """Where a file is written that is there, whole, after the block: a collector renames it."""
        made = path.with_name(f"{path.name}.tmp")
        yield made
        made.rename(path)

    def note(self, log: str, *rows: Mapping[str, Any]) -> None:
        """Rows that were written, however."""
        self.written.setdefault(log, Counter()).update(map(_text, rows))

    def place(self, log: str, name: str, ago: int = 0) -> Path:
        hour = self.begun - timedelta(hours=ago)
        folder = self.base / log / hour.strftime("%Y_%m_%d") / hour.strftime("%H")
        folder.mkdir(parents=True, exist_ok=True)
        return folder / name

    def answers(self) -> bool:
        try:
            return LOCAL.get(f"{self._url}/livez").is_success
        except httpx.HTTPError:
            return False

    def gate(self, log: str, cut: str) -> tuple[int, dict[str, str]]:
        """The gate's status, and its reasons by their codes; 0 while nobody answers."""
        params = {"table": f"logs.{log}", "cut": cut}
        try:
            answer = LOCAL.get(f"{self._url}/v1/gate", params=params)
        except httpx.HTTPError:
            return 0, {}
        tables = answer.json().get("tables", [])
        reasons = (reason for one in tables for reason in one["reasons"])
        return answer.status_code, {one["code"]: one["text"] for one in reasons}

    def ready(self, log: str, cut: str) -> None:
        wait_until(lambda: self.gate(log, cut)[0] == 200, SOON, f"READY of {log} for {cut}")

    def blocked(self, log: str, *words: str) -> None:
        """Wait until the gate says that a quarantine with *words* in it stands in the way.

        It is READY for no instant of meanwhile.
        """

        def found() -> bool:
            status, reasons = self.gate(log, now())
            assert status != 200, f"READY without {words}"
            told = " ".join(reasons.values()) + " ".join(map(json.dumps, self.incidents()))
            return status == 409 and all(word in told for word in words)

        wait_until(found, SOON, f"BLOCKED {log} by {words}")

    def ask(self, path: str, **params: str) -> Any:
        answer = LOCAL.get(f"{self._url}{path}", params=params)
        return answer.raise_for_status().json()

    def incidents(self) -> list[dict[str, Any]]:
        found = LOCAL.get(f"{self._url}/v1/incidents").json()
        return [one for one in found if one["state"] in ("firing", "recovering")]

    def mirrored(self, log: str) -> Counter[str]:
        """Rows of a mirror without what Sluice adds, each with how often it is there."""
        rows = self.rows(log)
        return Counter(_text({n: v for n, v in row.items() if n[0] != "_"}) for row in rows)

    @property
    def copy(self) -> FileCopy:
        """What follows the clicks, and keeps all values as texts."""
        return FileCopy(str(self.home / "copy.json"))

    def copied(self) -> Counter[str]:
        rows = self.copy.rows("logs.clicks").values()
        return Counter(_text({"user": int(row["user"]), "url": row["url"]}) for row in rows)

    def rows(self, log: str) -> list[dict[str, Any]]:
        try:
            table = DeltaTable(str(self.home / "lake" / "mirrors" / "logs" / log))
        except TableNotFoundError:
            return []
        batches = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
        found: list[dict[str, Any]] = pa.table(batches).to_pylist()
        return found

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _configured(self) -> Path:
        """The page's own words, with other places and paces."""
        (text,) = blocks(PAGE, "yaml")
        told = yaml.safe_load(text)
        told |= {"lake": str(self.home / "lake"), "store": str(self.home / "sluice.db")}
        collector = told["sources"][0]["collector"]
        collector["url"] = str(self.base)
        paces = {"settle": "PT1S", "patience": "PT8S", "deep": "PT1S"}
        collector["options"] |= {"ledger": str(self.home / "logs.ledger"), **paces}
        told["readiness"]["margin"] = "PT1S"
        told["schedule"] = {"land": "PT1S", "merge": "PT1S", "watch": "PT1S", "probe": "PT2S"}
        told["pipeline"] = {
            "driver_memory": "1g",
            "spark": {"spark.driver.extraJavaOptions": QUICK},
        }
        told["http"] = {"port": self.port}
        copy = {"kind": "tests.toy.copy", "tables": "logs.clicks", "path": self.copy.path}
        told["copies"] = {"downstream": copy}
        path = self.home / "sluice.yaml"
        path.write_text(yaml.safe_dump(told))
        return path


def now() -> str:
    return datetime.now(UTC).isoformat()


def _text(row: Mapping[str, Any]) -> str:
    return json.dumps({n: v for n, v in row.items() if v is not None}, sort_keys=True, default=str)
