"""Runs the service as any user does: as a command, and by its HTTP API."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import yaml
from prometheus_client.parser import text_string_to_metric_families

from demo.daemon import Daemon
from demo.s3 import BUCKET, S3
from demo.servers import Servers
from pipeline.errors import UnreachableError

CONFIG = Path(__file__).resolve().parent.parent / "sluice.yaml"
START = timedelta(minutes=4)
Json = dict[str, Any]


def read_config(path: Path = CONFIG) -> Json:
    """Return a config with absolute paths of suites, to be written to another folder."""
    read: Json = yaml.safe_load(path.read_text(encoding="utf-8"))
    suites = read.get("probes", {}).get("expectations", {}).get("suites", {})
    suites |= {table: str(path.parent / suite) for table, suite in suites.items()}
    return read


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """An answer of the gate: an HTTP status, and the reasons."""

    status: int
    reasons: tuple[str, ...]

    @property
    def open(self) -> bool:
        """Tell whether a job may go on."""
        return self.status == httpx.codes.OK


@dataclass(eq=False)
class Service:
    """`sluice run` on ``config``, by default the demo's; its state is read over HTTP only.

    ``servers`` are their addresses, as environment variables of the config. ``program`` is the
    module that is started. The lake is in ``s3`` if set, else in a folder. ``spark_port`` is the
    port of Spark's UI; 0: no UI.
    """

    home: Path
    servers: Mapping[str, str]
    port: int
    program: str = "monitor"
    config: Path = CONFIG
    s3: S3 | None = None
    spark_port: int = 0
    daemon: Daemon = field(init=False)
    http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        """Define the process; nothing is started."""
        environment = {
            **self.servers,
            "DEMO_LAKE": self.lake,
            "DEMO_STORE": str(self.home / "sluice.db"),
            "DEMO_HTTP_PORT": str(self.port),
            **self._spark,
            **(self.s3.environment if self.s3 else {}),
        }
        self.daemon = Daemon("service", self.home / "service.log", environment=environment)
        self.http = httpx.Client(base_url=self.url, timeout=60, trust_env=False)

    @property
    def url(self) -> str:
        """Return the root of the API, which is the status page."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def _spark(self) -> Mapping[str, str]:
        """Return the settings of Spark's UI, which would otherwise listen on every address."""
        pages = bool(self.spark_port)
        told = {
            "DEMO_SPARK_PAGES": f"'{str(pages).lower()}'",
            "DEMO_SPARK_PORT": f"'{self.spark_port}'",
        }
        return {**told, "SPARK_LOCAL_IP": "127.0.0.1"} if pages else told

    @property
    def spark_url(self) -> str:
        """Return the address of Spark's UI."""
        return f"http://127.0.0.1:{self.spark_port}"

    @property
    def lake(self) -> str:
        """Return the place of change log and mirrors."""
        return f"s3a://{BUCKET}/lake" if self.s3 else str(self.home / "lake")

    def start(self) -> None:
        """Start it; returns when the API answers."""
        command = (
            *(sys.executable, "-m", self.program, "run", "--config", str(self.config)),
            *("--log-format", "console"),
        )
        self.daemon.start(command, self._answers, START)

    def stop(self) -> None:
        """Stop it as an operator would."""
        self.daemon.stop()
        self.http.close()

    def tables(self) -> list[Json]:
        """Return the answer of `/v1/tables`."""
        found: list[Json] = self._get("/v1/tables").json()
        return found

    def incidents(self, *states: str) -> list[Json]:
        """Incidents in any of *states*, newest first; open ones if none is named."""
        found: list[Json] = self._get("/v1/incidents", {"state": states, "limit": 1000}).json()
        return found

    def incident(self, id_: str) -> Json:
        """Return one incident with all its stored keys, and the columns in which rows differ."""
        found: Json = self._get(f"/v1/incidents/{id_}").json()
        return found

    def gate(self, tables: Sequence[str], cut: str = "now") -> GateAnswer:
        """Ask whether *tables* are complete up to *cut*."""
        answer = self._get("/v1/gate", {"table": tables, "cut": cut})
        return GateAnswer(answer.status_code, tuple(_reasons(answer.json())))

    def merged(self) -> Mapping[str, int]:
        """Return how many changes merges have read so far, by table."""
        families = text_string_to_metric_families(self._get("/metrics").text)
        samples = [s for family in families for s in family.samples]
        return {
            s.labels["table"]: int(s.value)
            for s in samples
            if s.name == "sluice_changes_total" and s.labels["term"] == "read"
        }

    def _answers(self) -> bool:
        try:
            return self.http.get("/livez", timeout=20).is_success
        except httpx.HTTPError:
            return False

    def _get(self, path: str, params: Mapping[str, Any] | None = None) -> httpx.Response:
        try:
            answer = self.http.get(path, params=params)
        except httpx.HTTPError as error:
            msg = (
                f"the service does not answer at {self.url}{path}: {error!r}; see {self.daemon.log}"
            )
            raise UnreachableError(msg) from error
        if answer.status_code == httpx.codes.BAD_REQUEST or answer.is_server_error:
            msg = f"{self.url}{path} answers {answer.status_code}: {answer.text[:500]}"
            raise UnreachableError(msg)
        return answer


def whereabouts(servers: Servers) -> dict[str, str]:
    """Return the addresses of *servers* as environment variables of the demo's config."""
    return {
        "DEMO_KAFKA": servers.kafka.bootstrap,
        "DEMO_CONNECT": servers.connect.url,
        "DEMO_MYSQL_PORT": str(servers.mysql.port),
        "DEMO_MYSQL_PASSWORD": "sluice",
    }


def _reasons(answer: Json) -> Iterator[str]:
    """Yield why the gate is not open, table by table."""
    if "why" in answer:
        yield answer["why"]
    for table in answer["tables"]:
        for reason in table["reasons"]:
            if not table["ready"]:
                yield f"{table['table']} {table['state']}: {reason['text']}"
