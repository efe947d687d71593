"""F33: whatever happens to all tables at once, a person is told one thing."""

import pytest

from alerts.model import AlertKind, Cause, IncidentState
from checks.model import Outcome, Ruling, Verdict
from pipeline.checkpoint import SETTING, Gap, OpenSnapshot, Quarantine
from pipeline.model import Acknowledged, Missing, Order, Shard
from pipeline.reports import Hold
from pipeline.settings import Router, TableRule
from pipeline.sources.mysql.position import binlog_position
from tests.monitor.rig import ORDERS, SHARDS, USERS, Rig

PROBES = ("range_counts", "max_id", "offset_keys", "completeness")
MINUTES = 4


def find_open_causes(rig: Rig) -> list[tuple[str, str]]:
    """What every open incident is about, fired or not."""
    return sorted((o.cause.kind.value, o.cause.subject) for o in rig.store.incidents.open())


def minutes(rig: Rig, count: int, code: str = "", cause: str = "") -> None:
    """Watch for *count* minutes; with a *code* each probe says each time that it does not know."""
    for _ in range(count):
        position = rig.collector.position
        rig.second(58)
        rig.write_heartbeat()
        rig.collector.position = position  # the source is well; what comes of it is not
        rig.cycle.watch()
        if code:
            unknown = Ruling(Outcome.UNKNOWN, "why", code)
            asked = ((table, probe) for table in SHARDS.values() for probe in PROBES)
            rig.recorder.tell([Verdict(*one, unknown, rig.now, cause=cause) for one in asked])


def hold_table(rig: Rig, table: str, reason: str = "schema") -> None:
    found = Hold(f"{reason}:{table}", table, reason, f"{reason}: what now")
    rig.hold(found)


def first_snapshot(rig: Rig, rows: int) -> None:
    """A batch with rows of the first snapshot, of which no end is in sight."""
    rig.land(changes=False)
    snaps = {Shard.parse(name): OpenSnapshot(Order(1, 1, 0), 0, rows) for name in SHARDS}
    rig.set_checkpoint(bases={}, snaps=snaps)
    rig.collector.position = Acknowledged(binlog_position(1, 1), snapshot=True)


def test_f33_a_held_table_is_one_incident_however_long_it_lasts(rig: Rig) -> None:
    rig.round(2)
    hold_table(rig, USERS)
    for _ in range(MINUTES):
        rig.write_heartbeat()
        rig.land()
        rig.apply(ORDERS)
        rig.cycle.watch()
        unknown = Ruling(Outcome.UNKNOWN, "why", "not_reached")
        rig.recorder.tell([Verdict(USERS, probe, unknown, rig.now) for probe in PROBES])
        rig.second(60)

    assert find_open_causes(rig) == [("blocked", USERS)]


def test_f33_a_silent_source_is_one_incident_that_lists_its_tables(rig: Rig) -> None:
    rig.round(2)
    rig.facts.broken["source:shop"] = "down: connection refused"
    rig.collector.silent = True
    minutes(rig, MINUTES, "unreachable", "source:shop")

    (incident,) = rig.store.incidents.open()
    assert incident.cause.subject == "source:shop"
    assert set(incident.tables) >= {ORDERS, USERS}
    assert "connection refused" in incident.ruling.reason


def test_f33_what_the_way_holds_up_is_one_incident_about_its_source(rig: Rig) -> None:
    rig.round(2)
    minutes(rig, MINUTES)

    assert find_open_causes(rig) == [("late", "source:shop")]
    assert "hop is collection" in rig.store.incidents.open()[0].ruling.reason


def test_f33_merging_that_is_behind_is_one_incident_that_lists_its_tables(rig: Rig) -> None:
    rig.round(2)
    for _ in range(8):
        rig.write_heartbeat()
        rig.land()
        rig.cycle.watch()
        rig.second(60)

    (incident,) = rig.store.incidents.open()
    assert (incident.cause.kind, incident.cause.subject) == ("late", "merging")
    assert set(incident.tables) >= {ORDERS, USERS}
    assert "hop is merge" in incident.ruling.reason


def test_f33_an_offset_that_nobody_tells_is_one_incident_about_its_source(rig: Rig) -> None:
    rig.round(2)
    rig.collector.position = Missing("no offset yet")
    minutes(rig, MINUTES)

    assert find_open_causes(rig) == [("unknown", "source:shop")]


@pytest.mark.parametrize(
    ("holds", "subject"),
    [
        pytest.param(
            [Hold("disorder:shop:t:0:5@1", "source:shop", "disorder", "stands below")],
            "source:shop",
            id="one source",
        ),
        pytest.param(
            [Hold("mark_lost:main", f"source:{n}", "mark_lost", "restore") for n in ("shop", "hr")],
            "mark_lost:main",
            id="the whole lane",
        ),
    ],
)
def test_f33_a_hold_of_a_whole_source_is_one_incident(
    rig: Rig, holds: list[Hold], subject: str
) -> None:
    rig.round(2)
    rig.hold_source(*holds)
    minutes(rig, MINUTES)

    blocked = [about for kind, about in find_open_causes(rig) if kind == "blocked"]
    assert blocked == [subject]


@pytest.mark.parametrize("held", [False, True], ids=["before merging", "and merging holds them"])
def test_f33_a_lost_statement_is_one_incident_that_lists_its_tables(
    rig: Rig, *, held: bool
) -> None:
    rig.round(2)
    gap = Gap("shop:0:5@1", "shop", 0, 5, 5, "gone", shards=tuple(SHARDS), batch=1)
    rig.set_checkpoint(gaps={gap.id: gap})
    if held:
        hold_table(rig, USERS, "gap")
        hold_table(rig, ORDERS, "gap")
    minutes(rig, MINUTES)

    assert find_open_causes(rig) == [("blocked", gap.id)]
    (incident,) = rig.store.incidents.open()
    assert incident.tables == (ORDERS, USERS)


def test_a_harmful_setting_is_not_over_because_the_change_log_does_not_answer(rig: Rig) -> None:
    rig.round(2)
    at, why = "setting:shop:smt", "transforms drop rows"
    gap = Gap(f"{at}@0123abcd", at, 0, 1, 1, why, shards=tuple(SHARDS), batch=1)
    assert gap.doubt == SETTING
    rig.set_checkpoint(gaps={gap.id: gap})
    minutes(rig, MINUTES)
    before = _blocked(rig)
    rig.lake.silent = True
    minutes(rig, MINUTES)

    assert len(before) == 1
    assert before <= _blocked(rig)


def _blocked(rig: Rig) -> set[Cause]:
    open_ = rig.store.incidents.open()
    return {one.cause for one in open_ if one.cause.kind is AlertKind.BLOCKED}


@pytest.mark.parametrize("held", [False, True], ids=["told by the mark", "and held by merging"])
def test_a_gap_is_not_over_because_the_change_log_does_not_answer(rig: Rig, *, held: bool) -> None:
    rig.round(2)
    gap = Gap("shop:0:5@1", "shop", 0, 5, 5, "gone", shards=tuple(SHARDS), batch=1)
    rig.set_checkpoint(gaps={gap.id: gap})
    minutes(rig, MINUTES)
    if held:
        hold_table(rig, USERS, "gap")
        hold_table(rig, ORDERS, "gap")

    rig.lake.silent = True
    minutes(rig, MINUTES)

    gaps = [one for one in rig.store.incidents.open() if one.cause.subject != "lake"]
    assert [(one.cause.subject, one.tables) for one in gaps] == [(gap.id, (ORDERS, USERS))]


def test_f33_an_unread_statement_holds_no_table_that_has_a_new_base(rig: Rig) -> None:
    rig.round(2)
    one = Quarantine(None, 1, 1, ("shop:0:5@1",), ("shop/shop.orders",))
    rig.set_checkpoint(quarantine={"topic:shop": one})
    minutes(rig, MINUTES)

    blocked = [one for one in rig.store.incidents.open() if one.cause.kind is AlertKind.BLOCKED]
    assert [(one.cause.subject, one.tables) for one in blocked] == [("topic:shop", (ORDERS,))]


def test_f33_a_lake_that_no_mirror_can_be_reached_in_is_one_incident(rig: Rig) -> None:
    rig.round(2)
    hold_table(rig, USERS, "unreachable")
    hold_table(rig, ORDERS, "unreachable")
    rig.round()

    assert find_open_causes(rig) == [("blocked", "lake")]


def test_f33_before_the_first_landing_one_line_says_what_is_waited_for(rig: Rig) -> None:
    rig.roster.router = Router((TableRule(shards=r"shop\.(orders)", table=r"shop.\1"),))
    rig.collector.position = Acknowledged(binlog_position(1, 1), snapshot=True)
    minutes(rig, MINUTES)

    assert find_open_causes(rig) == []
    assert [one.description for one in rig.current.board.firsts] == [
        "nothing has landed yet: the collector is reading its first snapshot"
    ]


def test_f33_the_first_landing_opens_nothing_while_it_moves(rig: Rig) -> None:
    asks = (r"shop\.(orders)", r"hr\.(people)")
    rig.roster.router = Router(tuple(TableRule(shards=one, table=r"x.\1") for one in asks))
    for minute in range(MINUTES):
        rig.write_heartbeat()
        first_snapshot(rig, rows=minute)
        minutes(rig, 1, "unprovable")

    assert find_open_causes(rig) == []
    (line,) = rig.current.board.firsts
    assert line.description.startswith("6 rows of 2 tables landed")
    rig.round(2)
    assert find_open_causes(rig) == [("unknown", r"rule:hr\.(people)")]
    assert rig.current.board.firsts == ()


def test_f33_a_first_landing_that_stands_still_is_one_incident_of_its_source(rig: Rig) -> None:
    rig.write_heartbeat()
    first_snapshot(rig, rows=5)
    minutes(rig, 17)

    assert find_open_causes(rig) == [("blocked", "source:shop")]
    (incident,) = rig.store.incidents.open()
    assert incident.tables == (ORDERS, USERS, "source:shop")


def test_f33_a_first_landing_that_a_part_holds_up_is_the_part_s(rig: Rig) -> None:
    rig.write_heartbeat()
    first_snapshot(rig, rows=5)
    rig.collector.silent = True
    minutes(rig, 17)

    assert find_open_causes(rig) == [("service", "collector:shop")]


def test_f33_a_table_that_gets_no_base_though_nothing_reads_it_is_blocked(rig: Rig) -> None:
    rig.round()
    rig.set_checkpoint(bases={Shard("shop", "shop.users"): Order(1, 1, 0)})
    minutes(rig, 1)

    assert find_open_causes(rig) == [("blocked", ORDERS)]


def test_f33_the_end_of_a_common_cause_ends_its_incident(rig: Rig) -> None:
    rig.round(2)
    rig.facts.broken["source:shop"] = "down"
    rig.collector.silent = True
    minutes(rig, 5, "unreachable", "source:shop")
    rig.facts.broken.clear()
    rig.collector.silent = False
    rig.round(2)

    assert [one.state for one in rig.store.incidents.open()] == []
    assert {one.state for one in rig.store.incidents.list(list(IncidentState))} == {
        IncidentState.RESOLVED
    }
