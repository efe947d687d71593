"""A real Prometheus that scrapes one address with the config and the rules that are shipped."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import yaml

from demo import processes
from demo.ports import free_ports
from demo.web import LOCAL
from grafana.generate import SCRAPE, rules

PACE = 1  # seconds


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query gave: samples, or why it could not be answered."""

    samples: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class Prometheus:
    """One that runs at *url*."""

    url: str

    def ask(self, promql: str) -> Answer:
        try:
            answer = LOCAL.get(f"{self.url}/api/v1/query", params={"query": promql})
        except httpx.TransportError as error:
            return Answer(0, repr(error))
        if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            return Answer(0, "still starting")
        reply = answer.json()
        if reply["status"] != "success":
            return Answer(0, reply["error"])
        return Answer(len(reply["data"]["result"]))

    def labels(self, name: str) -> set[str]:
        reply = LOCAL.get(f"{self.url}/api/v1/label/{name}/values").json()
        return set(reply["data"])

    def rules(self) -> list[dict[str, Any]]:
        reply = LOCAL.get(f"{self.url}/api/v1/rules").json()
        return [rule for group in reply["data"]["groups"] for rule in group["rules"]]


@contextmanager
def scraping(address: str, home: Path) -> Iterator[Prometheus]:
    """Start one that scrapes *address* (``host:port``) every second; it ends with the block."""
    program = shutil.which("prometheus")
    assert program is not None, "apt-get install prometheus (it stands in apt.txt)"
    (port,) = free_ports(1)
    (home / "rules.yaml").write_text(yaml.safe_dump(rules("docs/runbooks")), encoding="utf-8")
    (home / "prometheus.yaml").write_text(yaml.safe_dump(_config(address)), encoding="utf-8")
    process = processes.start(
        (
            program,
            f"--config.file={home / 'prometheus.yaml'}",
            f"--storage.tsdb.path={home / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ),
        log=home / "prometheus.log",
    )
    found = Prometheus(f"http://127.0.0.1:{port}")
    try:
        processes.wait_until(
            lambda: _twice(found), timedelta(minutes=4), "two scrapes and evaluated rules"
        )
        yield found
    finally:
        process.stop()


def _config(address: str) -> dict[str, Any]:
    job = {**SCRAPE["scrape_configs"][0], "static_configs": [{"targets": [address]}]}
    paces = {"scrape_interval": f"{PACE}s", "evaluation_interval": f"{PACE}s"}
    return {**SCRAPE, "global": paces, "scrape_configs": [job]}


def _twice(found: Prometheus) -> bool:
    """Whether a rate can be worked out, what is recorded is there, and every rule was tried."""
    try:
        scraped = found.ask('count_over_time(up{job="sluice"}[5m]) >= 3').samples
        recorded = scraped and found.ask("sluice:tables:count").samples
        return bool(recorded) and all(rule["health"] != "unknown" for rule in found.rules())
    except httpx.TransportError:
        return False
