"""What is wrong is told once, in words that name a part once."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from alerts.causes import find_cause
from alerts.model import AlertKind
from alerts.outbox import ChannelHealth
from alerts.round import AlertSettings
from checks import blocks
from checks.model import Outcome, Verdict
from monitor.board import ChannelView
from monitor.observe import probing, system_checks
from monitor.observe.service_state import ServiceState
from monitor.observe.system_checks import (
    IMAGE,
    Component,
    SlidingWindow,
    StalledRound,
    given_up_id,
    of_part,
    view_channels,
)
from monitor.store.alerts import StoredOutbox
from monitor.store.store import ServiceStore
from monitor.web.metrics import IMAGE_METRICS
from monitor.web.status_page import status_page
from pipeline.image import LateChanges
from pipeline.model import Order, SnapshotAgain
from pipeline.settings import Router, TableRule
from tests.alerts.kit import at, message
from tests.monitor.rig import NOON, ORDERS, USERS, Rig
from tests.monitor.store.kit import Full
from tests.monitor.test_gate_images import add_image

AGAIN = SnapshotAgain(Order(1, 900, 900), NOON, 7, 2, asked=False)


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        pytest.param(
            "source:shop: down: no route", "source:shop: down: no route", id="one that names itself"
        ),
        pytest.param("no route", "source:shop: no route", id="one that does not"),
        pytest.param(
            "source:other: no route", "source:shop: source:other: no route", id="another's name"
        ),
    ],
)
def test_a_part_that_is_down_is_named_once(problem: str, told: str) -> None:
    verdict = of_part(Component("source:shop", "service", problem), NOON)

    assert (verdict.ruling.reason, verdict.cause) == (told, "source:shop")


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(Component("kafka", "service", "Kafka at k:9: refused"), id="themselves"),
        pytest.param(Component("collector:shop", "service", "500: timed out"), id="a collector"),
        pytest.param(Component("worker", "worker", "Kafka at k:9: timed out"), id="landing"),
    ],
)
def test_what_fails_because_the_brokers_do_has_them_as_its_cause(part: Component) -> None:
    brokers = Component("kafka", "service", "Kafka at k:9: refused")

    verdict = of_part(part, NOON, (brokers, part))

    assert (verdict.ruling.reason, verdict.cause) == ("kafka: Kafka at k:9: refused", "kafka")


@pytest.mark.parametrize("problem", ["Connection refused", "FAILED: Access denied for user 'c'"])
def test_what_else_ails_a_collector_is_not_blamed_on_the_brokers(problem: str) -> None:
    brokers = Component("kafka", "service", "Kafka at k:9: refused")
    part = Component("collector:shop", "service", problem)

    verdict = of_part(part, NOON, (brokers, part))

    assert verdict.ruling.reason == f"collector:shop: {problem}"
    assert verdict.cause == "collector:shop"


def test_a_disk_that_is_full_is_not_blamed_on_the_brokers() -> None:
    brokers = Component("kafka", "service", "Kafka at k:9: refused")

    assert of_part(Component("worker", "worker", "disk full"), NOON, (brokers,)).cause == "worker"


def test_every_part_that_is_blamed_is_known_by_its_name_to_who_names_tables() -> None:
    """Whatever is called so must be no table, or their incidents would be one."""
    router = Router((TableRule(r"x\.(.*)", r"\1"),))
    blamed = [
        *_parts(),
        system_checks.MERGING,
        blocks.LAKE,
        system_checks.source_of("shop"),
        system_checks.rule_of("a.b"),
    ]
    blamed += [system_checks.retention_of("shop"), probing.JOB, system_checks.SUBJECT]

    assert [name for name in blamed if router.table(f"x.{name}") == name] == []


def _parts() -> list[str]:
    """The parts of a service with one of each kind."""
    heart = SimpleNamespace(settings=SimpleNamespace(name="shop"), problem="")
    turns = SimpleNamespace(
        jobs=[SimpleNamespace(name="watch")], problems={}, overdue=dict[str, datetime]
    )
    state = ServiceState(
        store=cast(Any, SimpleNamespace(database=SimpleNamespace(problem=""))),
        heartbeats=cast(Any, [heart]),
        requests=cast(Any, SimpleNamespace(problem="")),
        supervisor=cast(Any, None),
        schedule=lambda: cast(Any, turns),
        ways=(),
        doubts=lambda _, __: "",
    )
    look = cast(Any, SimpleNamespace(sources=["shop"], troubles={}))
    found = state.parts(look, [cast(Any, SimpleNamespace(name="log", problem=""))], NOON)
    assert len(found) == 8
    return [part.name for part in found]


@pytest.mark.parametrize(
    ("again", "outcome"),
    [
        pytest.param(None, Outcome.PASS, id="it never did"),
        pytest.param(AGAIN, Outcome.FAIL, id="just now"),
        pytest.param(replace(AGAIN, at=NOON - timedelta(hours=23)), Outcome.FAIL, id="today"),
        pytest.param(replace(AGAIN, at=NOON - timedelta(days=1)), Outcome.PASS, id="long ago"),
        pytest.param(replace(AGAIN, asked=True), Outcome.PASS, id="to heal what was lost"),
    ],
)
def test_a_collector_that_began_anew_is_told_for_a_day(
    again: SnapshotAgain | None, outcome: Outcome
) -> None:
    verdict = system_checks.of_snapshots("shop", again, NOON)

    assert (verdict.table, verdict.check) == ("snapshots:shop", "snapshot_again")
    assert verdict.ruling.outcome is outcome
    assert ("the collector of shop took a new snapshot" in verdict.ruling.reason) == (
        outcome is Outcome.FAIL
    )


def teller(rig: Rig) -> StalledRound:
    def steady() -> float:
        return rig.now.timestamp()

    return StalledRound(AlertSettings(), rig.current, rig.store, steady)


def minutes(rig: Rig, stalled: StalledRound, count: int) -> None:
    """Nobody watches; every ten seconds the postman comes by."""
    for _ in range(count * 6):
        rig.second(10)
        stalled.tell(rig.now)


def queued_subjects(rig: Rig) -> list[str]:
    return [letter.message.subject for letter in rig.store.outbox.waiting("log", 100)]


def test_f37_a_watch_that_hangs_is_told_though_it_holds_its_lock(rig: Rig) -> None:
    stalled = teller(rig)
    rig.round()
    with rig.recorder.deciding:
        minutes(rig, stalled, 4)

    (subject,) = queued_subjects(rig)
    assert subject.startswith("SERVICE job:watch stalled: no monitoring round has ended for ")
    (letter,) = rig.store.outbox.waiting("log", 100)
    assert letter.message.runbook == "docs/runbooks/service.md#stalled"


def test_f37_a_watch_that_never_ended_its_first_round_is_told_too(rig: Rig) -> None:
    minutes(rig, teller(rig), 4)

    assert len(queued_subjects(rig)) == 1


def test_f37_that_it_turns_again_is_told(rig: Rig) -> None:
    stalled = teller(rig)
    minutes(rig, stalled, 4)
    for _ in range(3):
        rig.cycle.watch()
        minutes(rig, stalled, 1)

    assert [subject.partition(":")[0] for subject in queued_subjects(rig)] == [
        "SERVICE job",
        "resolved",
    ]


def test_f37_a_watch_that_is_slow_for_a_minute_is_told_to_nobody(rig: Rig) -> None:
    stalled = teller(rig)
    for _ in range(5):
        rig.cycle.watch()
        rig.second(100)
        stalled.tell(rig.now)
        rig.cycle.watch()
        stalled.tell(rig.now)

    assert queued_subjects(rig) == []


HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("step", "seconds", "stalled"),
    [
        pytest.param(HOUR, 10, False, id="ahead, and nothing stalls"),
        pytest.param(-HOUR, 10, False, id="back, and nothing stalls"),
        pytest.param(-HOUR, 240, True, id="back, and the round hangs"),
    ],
)
def test_a_clock_that_steps_neither_makes_a_stall_nor_hides_one(
    rig: Rig, step: timedelta, seconds: int, *, stalled: bool
) -> None:
    round_ = teller(rig)
    rig.round()
    round_.tell(rig.now)

    for _ in range(0, seconds, 10):
        rig.second(10)
        round_.tell(rig.now + step)

    opened = [one.cause.check for one in rig.store.incidents.open()]
    assert opened == ["stalled"] * stalled


def test_f121_a_stalled_round_is_a_stored_incident_that_the_next_run_clears(rig: Rig) -> None:
    minutes(rig, teller(rig), 4)
    (incident,) = rig.store.incidents.open()
    assert (incident.cause.subject, incident.cause.check) == ("job:watch", "stalled")
    assert rig.client.post(
        f"/v1/incidents/{incident.id}/acknowledgement",
        json={"who": "ann"},
        headers={"host": "sluice"},
    ).is_success

    rig.restart()
    restarted = teller(rig)
    for _ in range(3):
        rig.cycle.watch()
        minutes(rig, restarted, 1)

    assert rig.store.incidents.open() == ()
    (over,) = rig.store.incidents.list()
    assert over.state == "resolved"
    assert over.acknowledged
    assert [one.partition(":")[0] for one in queued_subjects(rig)] == ["SERVICE job", "resolved"]


def test_f121_a_stall_is_sent_from_memory_while_the_store_is_full(rig: Rig) -> None:
    stalled, disk = teller(rig), Full(rig.store.database)
    minutes(rig, stalled, 60)
    assert rig.store.outbox.waiting("log", 100)[0].message.about == "job:watch"
    disk.free()
    for _ in range(3):
        rig.cycle.watch()
        minutes(rig, stalled, 1)

    assert rig.store.incidents.open() == ()
    assert [one.partition(":")[0] for one in queued_subjects(rig)] == ["SERVICE job", "resolved"]


NOBODY: frozenset[str] = frozenset()


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[StoredOutbox]:
    store = ServiceStore.open(tmp_path / "s.db")
    yield store.outbox
    store.close()


def bury(outbox: StoredOutbox, *numbers: int) -> None:
    outbox.put([("slack", message(number)) for number in numbers], at(0))
    outbox.dead_letter(outbox.waiting("slack", 100), "400: too long", at(0))


def problem(outbox: StoredOutbox, minute: float = 0, waived: frozenset[str] = NOBODY) -> str:
    (view,) = view_channels(outbox, ["slack"], waived, at(minute))
    return view.problem


def test_a_channel_that_nothing_was_ever_sent_through_is_well(outbox: StoredOutbox) -> None:
    assert view_channels(outbox, ["log"], NOBODY, at(0)) == (ChannelView("log"),)


@pytest.mark.parametrize(
    ("minute", "ails"),
    [pytest.param(5, False, id="for a while"), pytest.param(5.1, True, id="for too long")],
)
def test_a_letter_that_waits_though_nothing_failed(
    outbox: StoredOutbox, minute: float, ails: bool
) -> None:
    outbox.put([("slack", message(1))], at(0))

    assert problem(outbox, minute) == (
        "a notification is queued since 2026-03-01T00:00:00+00:00" * ails
    )


def test_failures_name_the_last_reason_and_end_with_a_delivery(outbox: StoredOutbox) -> None:
    outbox.put([("slack", message(1))], at(0))
    outbox.set_health("slack", ChannelHealth(3, at(1), "slack answered 503"))
    during = problem(outbox, 10)

    outbox.delivered(outbox.waiting("slack", 1), ChannelHealth(), at(10))

    assert during == "deliveries that failed in a row: 3, the last: slack answered 503"
    assert problem(outbox, 10) == ""


def test_a_waiver_covers_what_was_given_up_before_it_and_nothing_after(
    outbox: StoredOutbox,
) -> None:
    bury(outbox, 1, 2)
    waived = frozenset({given_up_id("slack", 2), given_up_id("slack_2", 9), "shop.users:0:9"})
    before, after = problem(outbox), problem(outbox, waived=waived)
    bury(outbox, 3)

    assert before.startswith("dead-lettered notifications: 2, the last: 400: too long; ")
    assert after == ""
    assert problem(outbox, waived=waived).startswith("dead-lettered notifications: 1, ")


def test_letters_given_up_are_forgotten_with_the_letters(outbox: StoredOutbox) -> None:
    bury(outbox, 1)
    outbox.prune(at(0) + timedelta(days=31))

    assert problem(outbox) == ""


def test_a_channel_that_is_configured_no_more_is_shown_while_it_lacks_letters(
    outbox: StoredOutbox,
) -> None:
    bury(outbox, 1)

    names = [view.name for view in view_channels(outbox, ["log"], NOBODY, at(0))]

    assert names == ["log", "slack"]


YESTERDAY, BEFORE = "2026-03-28", "2026-03-27"


def look(rig: Rig) -> Verdict:
    """What is ruled of the image of users in the next round."""
    rig.second(2)
    rig.write_heartbeat()
    rig.cycle.watch()
    views = {view.table.name: view for view in rig.current.board.tables}
    assert all(one.check != IMAGE for one in views[ORDERS].verdicts)
    (found,) = (one for one in views[USERS].verdicts if one.check == IMAGE)
    return found


def gauges(rig: Rig) -> dict[str, float]:
    """Metric -> its one value, where it has one."""
    found = ((one.name, list(one.rows(rig.current.board, rig.now))) for one in IMAGE_METRICS)
    return {name: value for name, rows in found for _, value in rows}


def _made(rig: Rig) -> None:
    add_image(rig, YESTERDAY)


def _older(rig: Rig) -> None:
    add_image(rig, BEFORE)


def _ran(rig: Rig) -> None:
    rig.cycle.started = rig.now - timedelta(days=1)


def _based_later(rig: Rig) -> None:
    _ran(rig)
    bases = dict.fromkeys(rig.newest.bases, Order(1, 1, 10**9))
    rig.set_checkpoint(bases=bases)


def _not_due(rig: Rig) -> None:
    _ran(rig)
    rig.cycle.image_due = lambda table: timedelta(hours=20) if table == USERS else None


def _late(rig: Rig) -> None:
    image = replace(add_image(rig, YESTERDAY), late=(LateChanges(9, 3),))
    rig.set_images(image)


@pytest.mark.parametrize(
    ("given", "outcome", "says"),
    [
        pytest.param(_made, Outcome.PASS, "is there", id="it is there"),
        pytest.param(_ran, Outcome.FAIL, "no image of the cut", id="the service ran over midnight"),
        pytest.param(_older, Outcome.FAIL, "no image of the cut", id="others were made before"),
        pytest.param(_late, Outcome.FAIL, "3 changes from before", id="it lacks changes"),
        pytest.param(_not_due, Outcome.UNKNOWN, "not due", id="it may take longer"),
        pytest.param(_based_later, Outcome.UNKNOWN, "was possible", id="a table of today"),
        pytest.param(lambda _: None, Outcome.UNKNOWN, "was possible", id="a service of today"),
    ],
)
def test_what_is_said_of_the_image_of_yesterday(
    published: Rig, given: Callable[[Rig], None], outcome: Outcome, says: str
) -> None:
    given(published)

    found = look(published)

    assert (found.ruling.outcome, says in found.ruling.reason) == (outcome, True), found
    blamed = find_cause(found)
    assert (blamed is not None) is (outcome is Outcome.FAIL)
    assert blamed is None or blamed.kind is AlertKind.LATE
    assert gauges(published)["sluice_image_missing"] == float(outcome is Outcome.FAIL)


def test_the_newest_image_is_told_with_its_age_and_rows(published: Rig) -> None:
    image = replace(add_image(published, YESTERDAY), rows=12_345, day=YESTERDAY)
    published.set_images(image)

    look(published)

    numbers, page = gauges(published), status_page(published.current.board, published.now)
    assert numbers["sluice_image_cut_timestamp_seconds"] == image.cut.timestamp()
    assert numbers["sluice_image_rows"] == 12_345
    assert f"newest image: {YESTERDAY}, 12,345 rows" in page
    assert page.count('<span class="soft">image</span>') == 1, "of no table without images"


def test_an_image_that_lacks_changes_is_not_the_newest_that_can_be_read(published: Rig) -> None:
    _late(published)

    look(published)

    assert set(gauges(published)) == {"sluice_image_missing"}
    assert "no image is readable" in status_page(published.current.board, published.now)


def test_the_incident_ends_where_images_are_made_no_more(published: Rig) -> None:
    _older(published)
    for _ in range(200):
        look(published)
        published.second(4)
    (fired,) = [one for one in published.store.incidents.list(limit=10) if one.cause.check == IMAGE]

    published.cycle.image_due = lambda _: None
    published.write_heartbeat()
    published.cycle.watch()

    (after,) = [one for one in published.store.incidents.list(limit=10) if one.id == fired.id]
    assert after.state.value == "resolved"


NOON = datetime(2026, 3, 29, 12, 0, tzinfo=UTC)
MISSED = ("watch", "missed")


def test_f54_what_was_missed_in_an_earlier_life_is_not_told() -> None:
    lately = SlidingWindow()

    assert lately.counted({MISSED: 142}, NOON) == {}
    assert lately.counted({MISSED: 142}, NOON + timedelta(minutes=1)) == {}


def test_f54_what_goes_wrong_is_told_for_as_long_as_it_is_news() -> None:
    lately = SlidingWindow(timedelta(minutes=3))
    told = [
        lately.counted({MISSED: 142 + (minute >= 1)}, NOON + timedelta(minutes=minute)).get(MISSED)
        for minute in range(6)
    ]

    assert told == [None, 1, 1, 1, None, None]


def test_a_window_is_kept_in_a_few_rows_however_often_it_is_asked() -> None:
    lately = SlidingWindow(timedelta(minutes=3))
    for second in range(600):
        lately.counted({MISSED: second}, NOON + timedelta(seconds=second))

    assert len(lately._kept) <= 4
