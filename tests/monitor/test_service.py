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
from pipeline.delta.local import Folder
from tests.patience import SOON, wait_for

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

    def __init__(self, folder: Path, config: str = "s.yaml", *, wait: bool = True) -> None:
        self.folder = folder
        self.log = folder / f"log-{config}"
        self.told = told = folder / f"address-{config}"
        told.unlink(missing_ok=True)
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.monitor.fake_service", folder / config, told],
                stderr=log,
                stdout=log,
            )
        if wait:
            self.wait()

    @property
    def address(self) -> str:
        """Where it answers; empty if it was refused."""
        return self.told.read_text() if self.told.exists() else ""

    def wait(self) -> None:
        """Until it serves, or is refused."""
        wait_for(lambda: self.address or self.process.poll() is not None)

    def get(self, path: str) -> tuple[int, Any]:
        """Ask it."""
        answer = LOCAL.get(self.address + path)
        return answer.status_code, answer.json()

    def end(self, how: signal.Signals) -> int:
        """Its exit status after the signal *how*."""
        self.process.send_signal(how)
        return self.process.wait(timeout=SOON.total_seconds())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lake").mkdir()
    text = CONFIG.format(lake=tmp_path / "lake", store=tmp_path / "s.db")
    (tmp_path / "s.yaml").write_text(text, encoding="utf-8")
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Service]]:
    lives: list[Service] = []

    def begin(config: str = "s.yaml", *, wait: bool = True) -> Service:
        lives.append(Service(folder, config, wait=wait))
        return lives[-1]

    yield begin
    for life in lives:
        life.process.kill()
        life.process.wait()


def _landed(folder: Path) -> int:
    return len(list((folder / "lake").glob("batch-*")))


def test_it_lives_without_its_servers_says_so_and_stops_in_time(
    folder: Path, start: Callable[[], Service]
) -> None:
    service = start()
    wait_for(lambda: service.get("/readyz")[0] == 200)
    wait_for(lambda: _landed(folder) > 0)
    wait_for(lambda: len(_down(service)) == 2)

    gate, answer = service.get("/v1/gate?table=shop.users")
    begun = time.monotonic()
    status = service.end(signal.SIGTERM)

    assert (gate, answer["state"]) == (404, "unknown")
    assert status == 0
    assert time.monotonic() - begun < 60, "a server may take minutes to answer"
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


def with_store(folder: Path, name: str) -> str:
    """The config of a service with another store, on the same lane of the same lake."""
    text = (folder / "s.yaml").read_text()
    (folder / f"{name}.yaml").write_text(text.replace("s.db", f"{name}.db"))
    return f"{name}.yaml"


def test_f166_a_second_service_with_another_store_on_the_same_lane_is_refused_until_it_is_free(
    folder: Path, start: Callable[..., Service]
) -> None:
    first, other = start(), with_store(folder, "other")

    second = start(other)
    assert second.process.wait(timeout=240) != 0
    refused = second.log.read_text()
    first.end(signal.SIGKILL)
    third = start(other)
    assert third.end(signal.SIGTERM) == 0
    fourth = start()

    assert f"process {first.process.pid}, store {folder / 's.db'}, since " in refused
    assert "lease_waits" not in third.log.read_text()
    assert fourth.get("/livez")[0] == 200


def test_f166_of_two_services_that_start_at_once_on_one_lane_one_is_refused(
    folder: Path, start: Callable[..., Service]
) -> None:
    both = [start(with_store(folder, name), wait=False) for name in ("one", "two")]
    for one in both:
        one.wait()

    refused = [one for one in both if not one.address]
    served = next(one for one in both if one.address)

    assert [one.process.wait(timeout=240) != 0 for one in refused] == [True]
    assert f"process {served.process.pid}, " in refused[0].log.read_text()


def test_f166_a_service_whose_lane_was_taken_while_it_slept_stops(
    folder: Path, start: Callable[..., Service]
) -> None:
    service = start()
    store = Folder(str(folder / "lake" / "changes"))
    newest = max(int(name.partition(".")[0]) for name in store.after("_lease/main", ""))
    taken = b'{"id": "other", "host": "otherhost", "pid": 7, "store": "/s", "since": "now"}'

    store.put_new(f"_lease/main/{newest + 50:020}.json", taken)

    assert service.process.wait(timeout=60) == 1
    assert "host otherhost, process 7" in service.log.read_text()


def test_after_kill_9_it_goes_on_and_no_tick_is_unaccounted_for(
    folder: Path, start: Callable[[], Service]
) -> None:
    first = start()
    wait_for(lambda: _landed(folder) >= 2)
    first.end(signal.SIGKILL)
    landed = _landed(folder)

    second = start()
    wait_for(lambda: _landed(folder) > landed)
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
    wait_for(lambda: _landed(folder) > 0)
    wait_for(lambda: '"landed"' in service.log.read_text())
    service.end(signal.SIGTERM)

    text = service.log.read_text().splitlines()
    lines = [json.loads(line) for line in text if line.startswith("{")]
    landed = next(line for line in lines if line["event"] == "landed")
    assert landed["job"] == "land"
    assert len(landed["run"]) == 8
