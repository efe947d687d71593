"""A real service in a real process: it starts without its servers, and stops in time."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.web import LOCAL
from monitor.store.store import ServiceStore

pytestmark = pytest.mark.stack  # processes of several seconds

CONFIG = """
lake: {lake}
kafka: 127.0.0.1:9
store: {store}
sources:
  - name: shop
    host: 127.0.0.1
    port: 9
    user: sluice
    prefix: shop
    collector: {{url: "http://127.0.0.1:9", connector: shop}}
http: {{port: 0}}
schedule: {{land: PT1S, merge: PT1S, watch: PT1S}}
"""


class Service:
    """One life of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        told = folder / "address"
        told.unlink(missing_ok=True)
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.monitor.fake_service", folder / "s.yaml", told],
                stderr=log,
                stdout=log,
            )
        _wait_for(lambda: (told.exists() and told.read_text()) or self.process.poll() is not None)
        self.address = told.read_text() if told.exists() else ""

    def get(self, path: str) -> tuple[int, Any]:
        """Ask it."""
        answer = LOCAL.get(self.address + path)
        return answer.status_code, answer.json()

    def end(self, how: signal.Signals) -> int:
        """Its exit status after the signal *how*."""
        self.process.send_signal(how)
        return self.process.wait(timeout=40)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lake").mkdir()
    text = CONFIG.format(lake=tmp_path / "lake", store=tmp_path / "s.db")
    (tmp_path / "s.yaml").write_text(text, encoding="utf-8")
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[[], Service]]:
    lives: list[Service] = []

    def begin() -> Service:
        lives.append(Service(folder))
        return lives[-1]

    yield begin
    for life in lives:
        life.process.kill()
        life.process.wait()


def _wait_for(condition: Callable[[], object], within: float = 240.0) -> None:
    until = time.monotonic() + within
    while not condition():
        assert time.monotonic() < until, "the condition did not come true in time"
        time.sleep(0.02)


def _landed(folder: Path) -> int:
    return len(list((folder / "lake").glob("batch-*")))


def test_it_lives_without_its_servers_says_so_and_stops_in_time(
    folder: Path, start: Callable[[], Service]
) -> None:
    service = start()
    _wait_for(lambda: service.get("/readyz")[0] == 200)
    _wait_for(lambda: _landed(folder) > 0)
    _wait_for(lambda: len(_down(service)) == 2)

    gate, answer = service.get("/v1/gate?table=shop.users")
    begun = time.monotonic()
    status = service.end(signal.SIGTERM)

    assert (gate, answer["state"]) == (404, "unknown")
    assert status == 0
    assert time.monotonic() - begun < 20
    assert (folder / "lake" / "closed").exists()
    assert "Traceback" not in service.log.read_text()


def _down(service: Service) -> list[str]:
    parts = service.get("/v1/service")[1]["parts"]
    return [part["name"] for part in parts if not part["works"] and ":shop" in part["name"]]


def test_a_second_service_on_the_same_store_is_refused(start: Callable[[], Service]) -> None:
    start()

    second = start()

    assert second.process.wait(timeout=240) != 0
    assert "ConfigError" in second.log.read_text()


def test_after_kill_9_it_goes_on_and_no_tick_is_unaccounted_for(
    folder: Path, start: Callable[[], Service]
) -> None:
    first = start()
    _wait_for(lambda: _landed(folder) >= 2)
    first.end(signal.SIGKILL)
    landed = _landed(folder)

    second = start()
    _wait_for(lambda: _landed(folder) > landed)
    assert second.end(signal.SIGTERM) == 0

    store = ServiceStore.open(folder / "s.db")
    ticks = store.ticks.list(job="land", limit=10_000)
    store.close()
    seconds = sorted(int(tick.planned.timestamp()) + n for tick in ticks for n in range(tick.many))
    assert seconds == list(range(seconds[0], seconds[-1] + 1))
    assert {tick.result for tick in ticks} - {"done", "failed", "missed", "late"} == set()


def test_a_taken_port_is_one_clear_line(folder: Path, start: Callable[[], Service]) -> None:
    port = start().address.rpartition(":")[2]
    text = (folder / "s.yaml").read_text().replace("port: 0", f"port: {port}")
    (folder / "s.yaml").write_text(text.replace("s.db", "other.db"))

    second = start()

    assert second.process.wait(timeout=240) != 0
    assert f"http: cannot listen on 127.0.0.1:{port}" in second.log.read_text()


def test_its_log_is_json_with_the_run_on_every_line_of_a_job(
    folder: Path, start: Callable[[], Service]
) -> None:
    service = start()
    _wait_for(lambda: _landed(folder) > 0)
    _wait_for(lambda: '"landed"' in service.log.read_text())
    service.end(signal.SIGTERM)

    text = service.log.read_text().splitlines()
    lines = [json.loads(line) for line in text if line.startswith("{")]
    landed = next(line for line in lines if line["event"] == "landed")
    assert landed["job"] == "land"
    assert len(landed["run"]) == 8
