"""A watching round tells what is wrong once, by its cause, and shows it on the board."""

from collections.abc import Callable

import pytest

from alerts.model import AlertKind, IncidentState
from checks.model import Outcome, Ruling, Verdict
from checks.readiness import ReadinessState
from monitor.observe.verdicts import LatestVerdicts
from pipeline.apply.foreign_commits import waiver_id
from pipeline.collectors.collector import CollectorState
from pipeline.model import Shard, Stage
from pipeline.reports import Hold
from pipeline.settings import Router, TableRule
from tests.monitor.rig import ORDERS, USERS, Rig


def _open(rig: Rig) -> list[tuple[str, str, tuple[str, ...]]]:
    """Kind, what it is about, tables; of those that fire."""
    return [
        (one.cause.kind.value, one.cause.subject, one.tables)
        for one in rig.store.incidents.open()
        if one.state is IncidentState.FIRING and one.cause.kind is not AlertKind.UNKNOWN
    ]


def test_a_healthy_round_opens_nothing_and_certifies_yesterday(rig: Rig) -> None:
    rig.round(2)

    view = rig.view(USERS)
    assert view.day[Stage.MIRROR].state is ReadinessState.READY
    assert rig.store.certificates.newest(USERS, Stage.MIRROR, rig.current.board.cut) is not None
    assert _open(rig) == []


def _stop_collector(rig: Rig) -> None:
    rig.collector.trouble = CollectorState("failed", "cannot read the binlog")


def _garble_collector(rig: Rig) -> None:
    rig.collector.trouble = CollectorState("failed", "\ud800 broke")


def _silence_collector(rig: Rig) -> None:
    rig.collector.silent = True


def _break_source(rig: Rig) -> None:
    rig.facts.broken["source:shop"] = "down: connection refused"


def _break_spark(rig: Rig) -> None:
    rig.facts.broken["worker"] = "spark process missed its deadline"


@pytest.mark.parametrize(
    ("harm", "cause"),
    [
        pytest.param(_stop_collector, "collector:shop", id="a collector that failed"),
        pytest.param(_garble_collector, "collector:shop", id="a trace that is no Unicode"),
        pytest.param(_silence_collector, "collector:shop", id="a collector that is gone"),
        pytest.param(_break_source, "source:shop", id="a source that is down"),
        pytest.param(_break_spark, "worker", id="Spark that cannot be kept up"),
    ],
)
def test_what_stops_every_table_is_one_incident_and_ends_as_one(
    rig: Rig, harm: Callable[[Rig], None], cause: str
) -> None:
    rig.round()
    harm(rig)
    for _ in range(3):
        rig.watch(100)

    down = _open(rig)
    rig.collector.trouble, rig.collector.silent = CollectorState("running"), False
    rig.facts.broken.clear()
    rig.round(2)

    assert down == [("service", cause, (*sorted((cause, ORDERS, USERS), key=str),))]
    assert _open(rig) == []


def test_a_table_whose_merge_alone_is_late_is_named_alone(rig: Rig) -> None:
    rig.round()
    rig.second(10)
    rig.write_heartbeat()
    rig.land()
    rig.apply(ORDERS)
    for _ in range(100):
        rig.write_heartbeat()
        rig.land(changes=False)
        rig.apply(ORDERS)
    rig.watch()

    assert _open(rig) == [("late", "merging", (USERS,))]


def test_a_foreign_write_is_an_incident_until_it_is_taken_back(rig: Rig) -> None:
    rig.round(2)
    rig.intrude(USERS)
    rig.watch()
    during = _open(rig)
    rig.restore(USERS, to=1)
    rig.round()

    assert during == [("blocked", USERS, (USERS,))]
    assert _open(rig) == []


def test_a_foreign_write_that_the_spark_process_has_found_too_is_told_once(rig: Rig) -> None:
    rig.round(2)
    rig.intrude(USERS)
    found = Hold(waiver_id(USERS, 2), USERS, "foreign_write", "version 2 is not Sluice's")
    rig.hold(found)
    rig.watch()

    (incident,) = (one for one in rig.store.incidents.open() if one.cause.check == "foreign_write")
    assert incident.ruling.reason == "version 2 is not Sluice's"
    assert incident.ruling.keys == (waiver_id(USERS, 2),)
    status, answer = rig.ask(USERS, cut="now")
    told = [each["id"] for each in answer["tables"][0]["reasons"]]
    assert (status, told.count(waiver_id(USERS, 2))) == (409, 1)


def test_a_table_that_is_gone_takes_its_incidents_with_it(rig: Rig) -> None:
    rig.round(2)
    rig.intrude(USERS)
    rig.watch()

    rig.set_checkpoint(batch=rig.newest.batch + 1, shards={Shard("shop", "shop.orders"): ORDERS})
    rig.watch()
    rig.watch()

    assert [view.table.name for view in rig.current.board.tables] == [ORDERS]
    assert _open(rig) == []


def test_a_quiet_round_fills_no_history(rig: Rig) -> None:
    rig.round(2)
    before = len(rig.store.verdicts.list(limit=1000))

    rig.cycle.watch()

    assert len(rig.store.verdicts.list(limit=1000)) == before


@pytest.mark.parametrize(
    ("check", "code"),
    [
        pytest.param("max_id", "unsupported", id="not for this table"),
        pytest.param("volatility", "no_history", id="not before time has passed"),
    ],
)
def test_what_nobody_can_help_knowing_is_shown_and_alarms_nobody(
    rig: Rig, check: str, code: str
) -> None:
    rig.round()

    for _ in range(40):
        rig.second(60)
        rig.recorder.tell([Verdict(USERS, check, Ruling(Outcome.UNKNOWN, "why", code), rig.now)])
    rig.round()

    view = rig.current.board.table(USERS)
    assert [one.cause.check for one in rig.store.incidents.open()].count(check) == 0
    assert view is not None
    assert [one.ruling.code for one in view.verdicts if one.check == check] == [code]


def test_a_restart_knows_the_fail_behind_an_unknown(rig: Rig) -> None:
    rig.round()
    for outcome in (Outcome.PASS, Outcome.FAIL, Outcome.UNKNOWN):
        rig.second()
        rig.rule(USERS, outcome)

    later = LatestVerdicts()
    later.load(rig.store.verdicts)

    outcomes = {one.ruling.outcome for one in later.of(USERS) if one.check == "range_counts"}
    passed = later.last_pass(USERS, "range_counts")
    assert outcomes == {Outcome.UNKNOWN, Outcome.FAIL}
    assert passed is not None


def test_f06_a_rule_for_which_nothing_is_collected_is_unknown_by_name(rig: Rig) -> None:
    rig.roster.router = Router((TableRule(shards=r"shop\.(ordres)", table=r"shop.\1"),))
    rig.round()

    told = rig.rulings.newest(r"rule:shop\.(ordres)", "collected")

    assert told is not None
    assert (told.ruling.outcome, told.ruling.code) == (Outcome.UNKNOWN, "not_collected")
    rig.roster.router = Router((TableRule(shards=r"shop\.(orders)", table=r"shop.\1"),))
    rig.second(61)
    rig.round()
    assert rig.rulings.newest(r"rule:shop\.(orders)", "collected") == Verdict(
        r"rule:shop\.(orders)",
        "collected",
        Ruling(Outcome.PASS, "a table that it names is collected"),
        rig.now,
    )
