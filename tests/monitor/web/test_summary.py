"""What stands first: ten lines at most, each with what, since when, where, and what now."""

from dataclasses import replace
from datetime import timedelta

import pytest

from alerts.model import AlertKind, Cause, Incident, IncidentState, Member, Severity
from checks.model import Outcome, Reason, Ruling
from checks.readiness import ReadinessState
from monitor.board import Board, ComponentView, FirstLanding, TableView
from monitor.web.summary import MOST, Headline, find_headlines
from pipeline.lags.lag import HopLag
from pipeline.model import Hop, Missing
from tests.monitor.boards import ALL_WELL, LOST, MIXED, NOT_READY, NOW, READY, UNKNOWN, board
from tests.monitor.boards import view as a_view

AGO = timedelta(minutes=12)


def blocked(name: str, code: str = "schema") -> TableView:
    reason = Reason(code, f"{code}: take a new base")
    return replace(
        a_view(name, ReadinessState.BLOCKED, reason, seconds=(1.0, 2.0, 3.0)), since=NOW - AGO
    )


def incident(kind: AlertKind, check: str, subject: str, *tables: str) -> Incident:
    members = tuple(Member(table, check or "service") for table in (tables or (subject,)))
    return Incident(
        Cause(kind, check, subject),
        IncidentState.FIRING,
        NOW - AGO,
        NOW,
        NOW,
        Ruling(Outcome.FAIL, f"{subject}: what ails it", "down"),
        members,
        members,
        Severity.CRITICAL,
    )


def only(shown: Board) -> Headline:
    (line,) = find_headlines(shown, NOW)
    return line


def test_all_well_is_one_line() -> None:
    line = only(ALL_WELL)

    assert (line.kind, line.what) == (
        "ready",
        "shop.users is ready up to 2026-11-21 00:00:00 UTC, and now",
    )


def test_f126_the_headline_does_not_say_now_while_a_component_is_down() -> None:
    down = ComponentView("collector:shop", works=False, detail="down: connection refused")
    line = only(replace(ALL_WELL, parts=(down,)))

    assert line.kind == "unknown"
    assert "now" not in line.what
    assert "collector:shop: down: connection refused" in line.what


def test_f126_the_headline_does_not_say_now_while_a_hop_is_missing() -> None:
    (view,) = ALL_WELL.tables
    hop = HopLag(Hop.COLLECTION, Missing("no offset yet"), Missing("no offset yet"), None)
    view = replace(view, lags=replace(view.lags, hops=(hop, *view.lags.hops[1:])))
    line = only(replace(ALL_WELL, tables=(view,)))

    assert line.kind == "unknown"
    assert "hop collection of shop.users: no offset yet" in line.what


def test_a_held_table_says_since_when_at_which_hop_and_what_to_do() -> None:
    held = incident(AlertKind.BLOCKED, "hold", "shop.a")

    line = only(board(blocked("shop.a"), READY, incidents=(held,)))

    assert (line.kind, line.about, line.what) == ("blocked", "shop.a", "shop.a: what ails it")
    assert line.facts == "since 12 min, at merge"
    assert line.runbook == "docs/runbooks/blocked.md#hold"


def test_a_thousand_tables_of_one_cause_are_one_line_that_counts_them() -> None:
    names = [f"shop.t{number:03}" for number in range(1000)]
    views = [replace(UNKNOWN, table=replace(UNKNOWN.table, name=name)) for name in names]
    down = incident(AlertKind.SERVICE, "", "source:shop", "source:shop", *names)

    line = only(board(*views, incidents=(down,)))

    assert line.about == "shop.t000, shop.t001, shop.t002 and 997 more"
    assert (line.kind, line.hop) == ("unknown", "collection")


def test_a_table_without_an_incident_says_since_when_it_is_so_and_where_to_read() -> None:
    line = only(board(blocked("shop.a", "gap")))

    assert (line.what, line.facts) == ("gap: take a new base", "since 12 min, at consumer")
    assert line.runbook == "docs/runbooks/blocked.md"


def test_what_only_takes_time_says_how_much() -> None:
    line = only(board(NOT_READY))

    assert (line.kind, line.eta, line.hop) == ("not_ready", "1 min 15 s", "merge")


def test_a_loss_stands_first_though_its_table_is_ready() -> None:
    lost = incident(AlertKind.LOST, "max_id", READY.table.name)

    lines = find_headlines(board(READY, NOT_READY, incidents=(lost,)), NOW)

    assert [(line.kind, line.hop) for line in lines] == [("lost", ""), ("not_ready", "merge")]


def test_of_two_causes_of_one_table_the_graver_one_is_told() -> None:
    both = (
        incident(AlertKind.LATE, "lag", "shop.a"),
        incident(AlertKind.LOST, "range_counts", "shop.a"),
        incident(AlertKind.BLOCKED, "hold", "shop.a"),
    )

    assert only(board(blocked("shop.a"), incidents=both)).kind == "lost"


def test_there_are_never_more_than_ten_and_the_last_counts_the_rest() -> None:
    views = [blocked(f"shop.t{number:02}", f"code_{number}") for number in range(25)]

    lines = find_headlines(board(*views), NOW)

    assert len(lines) == MOST
    assert (lines[-1].what, len(lines[-1].tables)) == ("16 more causes are listed below", 16)


def test_gravest_first() -> None:
    kinds = [line.kind for line in find_headlines(MIXED, NOW)]

    assert kinds == ["lost", "unknown", "not_ready"]


def test_f51_an_empty_service_says_what_it_waits_for() -> None:
    landing = FirstLanding("shop", "nothing has landed yet: no offset", NOW - AGO)

    line = only(replace(board(), firsts=(landing,)))

    assert line.what == "source shop is read for the first time: nothing has landed yet: no offset"
    assert line.facts == "since 12 min, time until ready unknown"


def test_f51_tables_that_are_read_for_the_first_time_are_one_line_with_an_end() -> None:
    landing = FirstLanding(
        "shop", "5 of 9 rows landed", NOW - AGO, ("shop.a", "shop.b"), NOW + timedelta(minutes=3)
    )
    shown = replace(
        board(blocked("shop.a", "no_base"), blocked("shop.b", "no_base")), firsts=(landing,)
    )

    line = only(shown)

    assert (line.kind, line.tables, line.eta) == ("starting", ("shop.a", "shop.b"), "3 min")


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        pytest.param(Board(), "no monitoring round has ended yet", id="before the first look"),
        pytest.param(board(), "no table is known yet", id="no table"),
    ],
)
def test_f51_nothing_to_show_is_told_as_such(shown: Board, said: str) -> None:
    assert said in only(shown).what


def test_a_board_that_has_grown_old_says_only_that() -> None:
    (line,) = find_headlines(replace(MIXED, incidents=()), NOW + timedelta(minutes=3))

    assert (line.kind, line.runbook) == ("stale", "docs/runbooks/service.md#stalled")


def test_an_answer_without_a_reason_says_that_none_is_known() -> None:
    bare = a_view("shop.a", ReadinessState.UNKNOWN, seconds=(1.0, 2.0, 3.0))

    assert only(board(bare)).what == "unknown, reason unknown"


def test_lost_by_a_gating_probe_is_at_no_one_hop() -> None:
    failed = Reason("check_failed", "range_counts: 3 rows short", "")
    taken_back = a_view("shop.a", ReadinessState.REVOKED, failed, seconds=(1.0, 2.0, 3.0))

    assert only(board(LOST)).hop == ""
    assert only(board(taken_back)).hop == ""
