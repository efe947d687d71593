"""A real service on small disks: each is filled, the collector stops, and alerts still arrive."""

import json
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from demo.mysql import MySQL
from demo.ports import free_ports
from demo.web import LOCAL
from tests.monitor.receiver import receiver
from tests.patience import wait_for
from tests.proof.small_disks import require_mounts

pytestmark = pytest.mark.stack

DISKS = ("store", "lake", "log")
CONFIG = """
lake: {lake}
kafka: 127.0.0.1:9
store: {store}
sources:
  - name: shop
    host: 127.0.0.1
    port: {mysql}
    user: root
    prefix: shop
    collector: {{url: "http://127.0.0.1:{connect}", connector: shop}}
http: {{port: 0}}
channels: {{hook: {{kind: webhook, url: {{env: HOOK}}}}}}
disks: {{free_share: 0.1}}
alerts:
  routes:
    - {{channels: [hook], hold: PT1S, keep: PT1S}}
schedule: {{land: PT1S, merge: PT1S, watch: PT1S, deliver: PT1S}}
"""
SIZE = "24m"
SOON = timedelta(minutes=1)  # an alert takes 3 s, and took 14 s under a load of 20
LINES = 20  # of the log that a failure shows


class Connect(BaseHTTPRequestHandler):
    """A Connect worker with one connector that runs and has stored no offset."""

    port: int

    def do_GET(self) -> None:
        answers: dict[str, Any] = {
            "/connectors/shop/status": {
                "name": "shop",
                "connector": {"state": "RUNNING"},
                "tasks": [{"id": 0, "state": "RUNNING"}],
            },
            "/connectors/shop/offsets": {"offsets": []},
            "/connectors/shop/config": {
                "database.hostname": "127.0.0.1",
                "database.port": str(self.port),
                "connector.class": "io.debezium.connector.mysql.MySqlConnector",
                "topic.prefix": "shop",
            },
        }
        body = json.dumps(answers.get(self.path, [])).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def connect(port: int, mysql: int) -> Iterator[None]:
    kind = type("Own", (Connect,), {"port": mysql})
    server = ThreadingHTTPServer(("127.0.0.1", port), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def small(home: Path) -> Iterator[None]:
    places = [home / name for name in DISKS]
    try:
        for place in places:
            place.mkdir()
            command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place)]
            subprocess.run(command, check=True, capture_output=True)
        yield
    finally:
        for place in places:
            subprocess.run(["umount", "-l", str(place)], check=False)  # noqa: S607


@contextmanager
def service(home: Path) -> Iterator[str]:
    told = home / "address"
    log = (home / "log" / "service.log").open("w")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.monitor.fake_service", home / "s.yaml", told],
        stderr=log,
        stdout=log,
    )
    try:
        wait_for(lambda: (told.exists() and told.read_text()) or process.poll() is not None)
        assert process.poll() is None, (home / "log" / "service.log").read_text()
        yield told.read_text()
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=40)
        process.kill()
        log.close()


def describe(address: str, home: Path) -> str:
    """What the service says of itself, its disks, and the end of its log."""
    answers = []
    for path in ("/v1/service", "/readyz", "/v1/incidents"):
        try:
            answers.append(f"{path}: {LOCAL.get(address + path).text}")
        except httpx.HTTPError as error:
            answers.append(f"{path}: {error!r}")
    disks = [f"{name}: {shutil.disk_usage(home / name)}" for name in DISKS]
    lines = (home / "log" / "service.log").read_text().splitlines()[-LINES:]
    return "\n".join((*answers, *disks, *lines))


def fill_disk(place: Path) -> Path:
    """Leave no free byte."""
    filler = place / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (2**16, 2**12):
            with suppress(OSError):
                while True:
                    file.write(b"x" * size)
    return filler


def test_f120_with_each_disk_full_one_alert_comes_and_resolves_once_there_is_room(
    tmp_path: Path, start_mysql: Callable[[int], MySQL], monkeypatch: pytest.MonkeyPatch
) -> None:
    require_mounts(tmp_path)
    mysql, (port,) = start_mysql(97), free_ports(1)

    with receiver(*[201] * 500) as (hook, heard), small(tmp_path):
        monkeypatch.setenv("HOOK", hook)
        text = CONFIG.format(
            lake=tmp_path / "lake" / "lake",
            store=tmp_path / "store" / "s.db",
            mysql=mysql.port,
            connect=port,
        )
        (tmp_path / "lake" / "lake").mkdir()
        (tmp_path / "s.yaml").write_text(text)

        def events(about: str) -> list[str]:
            posts = [post["messages"] for _, post in list(heard.heard)]
            return [m["event"] for one in posts for m in one if m["about"] == about]

        def works(part: str) -> bool:
            parts = LOCAL.get(address + "/v1/service").json()["parts"]
            return any(p["name"] == part and p["works"] for p in parts)

        def drill(name: str) -> None:
            """Fill the disk, stop the collector, see one alert; free it, see it resolve."""
            before = len(events("collector:shop"))
            with connect(port, mysql.port):
                wait_for(lambda: works("collector:shop"), what="collector works")
                wait_for(lambda: works("source:shop"), what="source works")
                filler = fill_disk(tmp_path / name)
            wait_for(
                lambda: len(events("collector:shop")) == before + 1,
                within=SOON,
                what=f"{name}: alert",
            )
            wait_for(
                lambda: events(f"disk:{name}") == ["fired"],
                within=SOON,
                what=f"{name}: disk alert",
            )
            if name == "store":
                answer = LOCAL.get(address + "/readyz")
                assert (answer.status_code, "disk" in answer.text) == (503, True)
            filler.unlink()
            with connect(port, mysql.port):
                wait_for(
                    lambda: len(events("collector:shop")) == before + 2,
                    within=2 * SOON,
                    what=f"{name}: resolved",
                )
                wait_for(
                    lambda: events(f"disk:{name}") == ["fired", "cleared"],
                    within=2 * SOON,
                    what=f"{name}: room",
                )

        with service(tmp_path) as address:
            for name in DISKS:
                try:
                    drill(name)
                except AssertionError as error:
                    sent = [(m["about"], m["event"]) for _, p in heard.heard for m in p["messages"]]
                    error.add_note(f"sent: {sent}\n{describe(address, tmp_path)}")
                    raise
            assert events("collector:shop") == ["fired", "cleared"] * 3
            wait_for(lambda: LOCAL.get(address + "/readyz").status_code == 200, what="readyz")
            listed = LOCAL.get(address + "/v1/incidents?state=resolved").json()
            assert [one["about"] for one in listed].count("collector:shop") == 3
