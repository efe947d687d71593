import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from alerts.channels.alertmanager import Alertmanager
from alerts.model import Event, Message, Severity
from demo.ports import free_ports
from demo.web import LOCAL
from pipeline.errors import UnreachableError
from tests.alerts.channels.receiver import Receiver
from tests.alerts.kit import at, message

CONFIG = """
route: {receiver: nobody, group_wait: 1s, group_by: [alertname, table]}
receivers: [{name: nobody}]
"""


def now() -> datetime:
    return datetime.now(UTC)


def current(number: int, event: Event = Event.FIRED) -> Message:
    """A message of this minute, as a real Alertmanager compares with its own clock."""
    ended = now() if event is Event.CLEARED else None
    return replace(message(number, event), opened=now() - timedelta(minutes=5), ended=ended)


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Debian's own, on a free port."""
    binary = shutil.which("prometheus-alertmanager")
    assert binary is not None, "apt-get install prometheus-alertmanager (it stands in apt.txt)"
    folder = tmp_path_factory.mktemp("alertmanager")
    (folder / "config.yml").write_text(CONFIG)
    (port,) = free_ports(1)
    process = start(binary, folder, port)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: LOCAL.get(f"{url}/-/ready").status_code == 200, process)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=60)


def start(binary: str, folder: Path, port: int) -> subprocess.Popen[bytes]:
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [
                binary,
                f"--config.file={folder / 'config.yml'}",
                f"--storage.path={folder}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--cluster.listen-address=",
            ],
            stdout=log,
            stderr=log,
        )


def wait_for(ready, process: subprocess.Popen[bytes]) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + 240
    while True:
        try:
            if ready():
                return
        except httpx.TransportError:
            pass
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)


def active(url: str) -> dict[str, dict[str, object]]:
    found = LOCAL.get(f"{url}/api/v2/alerts", params={"active": "true"}).json()
    return {alert["labels"]["table"]: alert for alert in found}


@pytest.mark.stack
def test_a_real_alertmanager_takes_an_alert_with_its_words_and_links(alertmanager: str) -> None:
    channel = Alertmanager(alertmanager, page="http://sluice.example.org/")

    channel.send([current(1)], now())

    alert = active(alertmanager)["shop.t1"]
    assert alert["labels"] == {
        "alertname": "SluiceLost",
        "severity": "critical",
        "kind": "lost",
        "check": "range_counts",
        "table": "shop.t1",
        "owner": "data-platform",
    }
    annotations = alert["annotations"]
    assert isinstance(annotations, dict)
    assert annotations["summary"].startswith("LOST shop.t1 range_counts")
    assert annotations["runbook_url"] == "docs/runbooks/lost.md#range_counts"
    assert alert["generatorURL"] == "http://sluice.example.org/"


@pytest.mark.stack
def test_a_repetition_is_the_same_alert_and_an_end_resolves_it(alertmanager: str) -> None:
    channel = Alertmanager(alertmanager)

    channel.send([current(2)], now())
    channel.send([current(2, Event.REPEATED), current(3)], now())
    both = active(alertmanager)
    channel.send([current(2, Event.CLEARED)], now())
    after = active(alertmanager)

    assert {"shop.t2", "shop.t3"} <= both.keys()
    assert "shop.t2" not in after
    assert "shop.t3" in after


@pytest.mark.stack
def test_a_digest_in_which_trouble_came_and_went_leaves_nothing_firing(alertmanager: str) -> None:
    Alertmanager(alertmanager).send([current(4), current(4, Event.CLEARED)], now())

    assert "shop.t4" not in active(alertmanager)


def test_an_alert_lasts_until_it_ends_or_is_not_heard_of_for_long(receiver: Receiver) -> None:
    channel = Alertmanager(receiver.url, lasts=timedelta(hours=5), authorization="Bearer x")

    channel.send([message(1), message(2, Event.CLEARED)], at(60))

    (got,) = receiver.got
    first, second = json.loads(got.body)
    assert got.path.endswith("/api/v2/alerts")
    assert got.headers["Authorization"] == "Bearer x"
    assert (first["startsAt"], first["endsAt"]) == ("2026-03-01T00:00:00Z", "2026-03-01T06:00:00Z")
    assert second["endsAt"] == "2026-03-01T00:01:00Z"
    assert "generatorURL" not in first


def test_f30_what_an_alert_was_called_before_is_ended(receiver: Receiver) -> None:
    graver = replace(message(), before=((Severity.WARNING, "a"), (Severity.CRITICAL, "a, b")))

    Alertmanager(receiver.url).send([graver], at(60))

    alerts = json.loads(receiver.got[0].body)
    told = {
        (one["labels"]["severity"], one["labels"]["owner"]): one["endsAt"] > "2026-03-01T01:00:00Z"
        for one in alerts
    }
    assert told == {
        ("warning", "a"): False,
        ("critical", "a, b"): False,
        ("critical", "data-platform"): True,
    }
    same = ("alertname", "kind", "check", "table")
    assert len({tuple(one["labels"][name] for name in same) for one in alerts}) == 1


def test_an_alertmanager_that_starts_up_can_be_tried_again(receiver: Receiver) -> None:
    receiver.answers = [(503, {}, "")]

    with pytest.raises(UnreachableError):
        Alertmanager(receiver.url).send([message()], at(0))
