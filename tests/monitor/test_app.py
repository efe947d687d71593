"""The parts as the service wires them: what is asked of one must reach the other."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import NoReturn

import pytest

from alerts.channel import Channel
from alerts.model import IncidentState
from alerts.outbox import RefusedError
from checks.model import Outcome, Ruling, Verdict
from monitor import app as wiring
from monitor.app import App
from monitor.board import NextStep
from monitor.config.file import parse_config
from monitor.observe.sampler import Sampling
from monitor.schedule import Running
from monitor.store.alerts import Waiver
from monitor.store.store import ServiceStore
from pipeline.checkpoint import Checkpoint
from pipeline.copies.copy import CopiedVersion
from pipeline.errors import UnreachableError
from pipeline.lags.samples import Sample
from pipeline.model import Hop, Missing, Shard
from pipeline.reports import LandingReport
from pipeline.transports.kafka import KafkaTransport
from tests.alerts.outboxes import ScriptedChannel
from tests.monitor.rig import NOON, ORDERS, SHARDS, USERS
from tests.monitor.test_auto_repair import RepairHarness

ALERTS = """
alerts: {routes: [{tables: 'collector:*', channels: []}, {channels: [slack]}]}
channels: {slack: {kind: log}}
"""
TEXT = """
lake: lake
kafka: 127.0.0.1:9
disks: {free_bytes: 0}  # A disk of this machine that is nearly full is no alert of these tests.
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
        return self.now


@pytest.fixture
def time() -> Clock:
    return Clock()


@pytest.fixture
def start(time: Clock, tmp_path: Path) -> Iterator[Start]:
    made: list[App] = []

    def build(more: str = "", **channels: Channel) -> App:
        config = parse_config(TEXT + ALERTS + more, tmp_path / "sluice.yaml").model_copy(
            update={"channels": channels}
        )
        store = ServiceStore.open(tmp_path / "s.db", service=True)
        made.append(App(config, store, clock=time))
        return made[-1]

    yield build
    for app in made:
        app.close()


def lose(app: App, time: Clock) -> None:
    """A check sees a loss, and what is told about it is delivered."""
    ruling = Ruling(Outcome.FAIL, "2 rows short")
    app.observers.recorder.tell([Verdict(USERS, "range_counts", ruling, time.now)])
    app.delivery.deliver_due(time.now)


def test_a_loss_that_lasts_is_told_again_after_four_hours(start: Start, time: Clock) -> None:
    channel = ScriptedChannel()
    app = start(slack=channel)

    for _ in range(9):
        lose(app, time)
        time.now += timedelta(hours=1)

    assert channel.got == [(USERS,)] * 3


def test_what_a_rule_repairs_is_requested_by_the_job_that_reads_rows_again(
    start: Start, time: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = start("repair: [{tables: 'shop.*', how: auto, after: 1s}]\n")
    monkeypatch.setattr(app.driver.requests, "run_backfills", lambda: None)  # no Spark process
    harness = RepairHarness(app.store)
    incident = harness.find("users", "shop/shop.users:17-29")
    time.now = harness.now + timedelta(minutes=1)
    app.current.board = replace(harness.board, at=time.now)

    decided = app.cycle.repairs(app.current.board)
    app.current.board = replace(app.current.board, repairs=decided)
    app.driver.run_backfills()

    assert [one.step for one in decided] == [NextStep.REPAIR]
    (made,) = app.store.backfills.open()
    assert (made.table, made.who, made.wish.incident) == (USERS, "sluice", incident)


def test_a_receiver_that_forgets_is_reminded_of_what_still_fires(start: Start, time: Clock) -> None:
    channel = ScriptedChannel(refresh=timedelta(minutes=1))
    app = start(slack=channel)

    lose(app, time)
    channel.got.clear()
    time.now += timedelta(minutes=2)
    app.delivery.deliver_due(time.now)

    assert channel.got == [(USERS,)]


def watched(app: App, time: Clock, minutes: int) -> None:
    """So many minutes of watching and delivering."""
    for _ in range(minutes):
        time.now += timedelta(minutes=1)
        app.cycle.watch()
        app.delivery.deliver_due(time.now)


def firing(app: App) -> list[str]:
    """What open incidents about ways to people say."""
    return [
        one.ruling.reason
        for one in app.store.incidents.open()
        if one.state is IncidentState.FIRING and one.cause.subject.startswith("channel:")
    ]


def test_a_channel_that_is_down_is_told_through_another_until_it_takes_alerts_again(
    start: Start, time: Clock
) -> None:
    slack, log = ScriptedChannel(lambda _: UnreachableError("no route to host")), ScriptedChannel()
    app = start(slack=slack, log=log)

    lose(app, time)
    watched(app, time, 5)
    (during,), (view, *_) = firing(app), app.current.board.channels[::-1]
    slack.script = lambda _: None
    watched(app, time, 15)

    assert during.startswith("channel:slack: deliveries that failed in a row: ")
    assert during.endswith("the last: no route to host")
    assert (view.name, view.waiting, view.dead) == ("slack", 1, 0)
    assert log.got == [("channel:slack",)] * 2
    assert slack.got == [(USERS,)]
    assert firing(app) == []


def test_letters_that_were_given_up_are_told_through_another_until_they_are_waived(
    start: Start, time: Clock
) -> None:
    slack, log = ScriptedChannel(lambda _: RefusedError("slack: 403")), ScriptedChannel()
    app = start(slack=slack, log=log)

    lose(app, time)
    watched(app, time, 60)
    (during,) = firing(app)
    app.store.waivers.add(Waiver(during.rpartition(" ")[2], "called the owner", "me", time.now))
    watched(app, time, 5)

    assert during == (
        "channel:slack: dead-lettered notifications: 1, the last: slack: 403; "
        "read them, then waive dead_letters:slack:1"
    )
    assert log.got == [("channel:slack",)] * 2
    assert firing(app) == []


def parts(app: App, time: Clock) -> dict[str, str]:
    """What ails each part, after one look."""
    watched(app, time, 1)
    return {part.name: part.detail for part in app.current.board.parts}


def test_landing_or_merging_that_fails_is_told_of_the_spark_process_and_not_as_jobs(
    start: Start, time: Clock
) -> None:
    app = start()

    for job in app.schedule.jobs:
        if job.name in ("land", "merge"):
            app.schedule.tick(job)

    told = parts(app, time)
    assert app.schedule.problems.keys() == {"land", "merge"}
    assert told["worker"] == "the spark process is starting again"
    assert not {"job:land", "job:merge"} & told.keys()


def test_the_spark_process_ails_when_a_merge_alone_is_overdue(start: Start, time: Clock) -> None:
    app = start()
    app.schedule.running["merge"] = Running(time.now, time.now, monotonic() - 31 * 60)

    assert parts(app, time)["worker"].startswith("overdue, running since 2026-03-29T12:00")


def test_brokers_that_do_not_answer_are_an_incident_with_their_address(
    start: Start, time: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object, __: str) -> NoReturn:
        raise UnreachableError("Kafka at 127.0.0.1:9: connection refused")

    app = start()
    monkeypatch.setattr(KafkaTransport, "topics", refuse)

    app.observers.retention.ask()
    watched(app, time, 3)

    found = {one.cause.subject: one.ruling.reason for one in app.store.incidents.open()}
    assert found["kafka"] == "kafka: Kafka at 127.0.0.1:9: connection refused"


def test_working_channels_are_on_the_board_and_alarm_nobody(start: Start, time: Clock) -> None:
    app = start(slack=ScriptedChannel(), log=ScriptedChannel())

    lose(app, time)
    watched(app, time, 60)

    parts = {part.name: part.works for part in app.current.board.parts}
    assert (parts["channel:slack"], parts["channel:log"]) == (True, True)
    assert firing(app) == []


def test_what_has_grown_old_is_freed_also_where_the_store_forgets_nothing(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, looked = start(), list[str]()

    def broken(*_: object) -> None:
        raise UnreachableError("store: the disk is full")

    monkeypatch.setattr(app.store, "prune", broken)
    monkeypatch.setattr(wiring, "collect_garbage", lambda: looked.append("through"))

    with pytest.raises(UnreachableError):
        app.prune()

    assert looked == ["through"]


@pytest.mark.parametrize("known", [True, False])
def test_the_ledger_waits_for_no_merge_of_a_table_that_left_the_config(
    start: Start, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """Nor for one of a batch that is newer than the checkpoint, or while none is known."""
    app = start("tables: [{shards: 'shop.users', ignore: true}]\n")
    minutes = {USERS: {"7": {"c": 1}}, ORDERS: {"8": {"c": 1}}}
    for batch in (3, 4):
        app.store.ledger.add_landing(
            LandingReport("main", batch, 2, NOON, timedelta(), minutes=minutes)
        )
    shards = {Shard.parse(name): table for name, table in SHARDS.items()}
    checkpoint = Sample(Checkpoint("main", 3, shards=shards), NOON, timedelta())
    look = Sampling(NOON, {}, checkpoint if known else Missing("no lake"), {})
    monkeypatch.setattr(app.observers.watcher, "look", lambda *_: look)

    app.prune()

    ledger = app.store.ledger
    users, orders = (ledger.entries(one, 0, 100)[Hop.MERGE] for one in (USERS, ORDERS))
    assert [(one.unknown, one.in_flight) for one in users] == [(known, {"c": 2 - known})]
    assert [(one.unknown, one.in_flight) for one in orders] == [(False, {"c": 2})]


def test_what_a_copy_lacks_goes_with_its_store_to_another_name(start: Start) -> None:
    app = start(copies(cache="localhost"))
    lost = CopiedVersion(4, NOON, {"7": {"u": 1}}, {})
    app.store.ledger.copies.add_copied("cache", USERS, [CopiedVersion(3), lost], NOON)
    app.close()

    app = start(copies(cache="redis-2", serving="127.0.0.1"))

    ledger = app.store.ledger
    assert ledger.copies.copy_reach("serving")[USERS].last == 4
    ledger.copies.add_copied("cache", USERS, [CopiedVersion(4)], NOON)
    assert ledger.residuals() == {(USERS, "copy:serving"): 1}


def copies(**hosts: str) -> str:
    """The config's copies, by name."""
    sections = "".join(
        f"  {name}: {{kind: redis, tables: ['*'], host: {host}, prefix: x}}\n"
        for name, host in hosts.items()
    )
    return f"copies:\n{sections}"


@pytest.mark.parametrize("tier", [0, 1])
def test_tier_0_is_merged_by_a_job_of_its_own_where_there_is_one(tmp_path: Path, tier: int) -> None:
    config = parse_config(
        f"{TEXT}tables: [{{shards: 'a.b', tier: {tier}}}]", tmp_path / "sluice.yaml"
    )
    app = App(config, ServiceStore.open(tmp_path / "s.db", service=True))

    names = {job.name for job in app.schedule.jobs}

    assert {"land", "merge"} <= names
    assert ("merge_urgent" in names) == (tier == 0)
    app.close()
