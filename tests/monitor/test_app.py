"""The parts as the service wires them: what is asked of one must reach the other."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from alerts.channel import Channel
from checks.model import Outcome, Ruling, Verdict
from monitor import app as wiring
from monitor.app import App
from monitor.config.file import parse
from monitor.store.store import Store
from tests.alerts.outboxes import ScriptedChannel
from tests.monitor.rig import NOON, USERS

TEXT = """
lake: lake
kafka: 127.0.0.1:9
sources:
  - name: shop
    host: 127.0.0.1
    port: 9
    user: sluice
    prefix: shop
    collector: {url: "http://127.0.0.1:9", connector: shop}
"""
Start = Callable[..., App]


class Clock:
    """The service's clock, moved by hand."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        """Now."""
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(wiring, "clock", clock)
    return clock


@pytest.fixture
def start(time: Clock, tmp_path: Path) -> Iterator[Start]:
    made: list[App] = []

    def build(**channels: Channel) -> App:
        config = parse(TEXT, tmp_path / "sluice.yaml").model_copy(update={"channels": channels})
        made.append(App(config, Store.open(tmp_path / "s.db", service=True)))
        return made[-1]

    yield build
    for app in made:
        app.close()


def lose(app: App, time: Clock) -> None:
    """A check sees a loss, and what is told about it is delivered."""
    ruling = Ruling(Outcome.FAIL, "2 rows short")
    app.teller.tell([Verdict(USERS, "range_counts", ruling, time.now)])
    app.delivery.deliver_due(time.now)


def test_a_loss_that_lasts_is_told_again_after_four_hours(start: Start, time: Clock) -> None:
    channel = ScriptedChannel()
    app = start(log=channel)

    for _ in range(9):
        lose(app, time)
        time.now += timedelta(hours=1)

    assert channel.got == [(USERS,)] * 3


def test_a_receiver_that_forgets_is_reminded_of_what_still_fires(start: Start, time: Clock) -> None:
    channel = ScriptedChannel(refresh=timedelta(minutes=1))
    app = start(log=channel)

    lose(app, time)
    channel.got.clear()
    time.now += timedelta(minutes=2)
    app.delivery.deliver_due(time.now)

    assert channel.got == [(USERS,)]
