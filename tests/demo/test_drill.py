"""What the drill decides: which faults are named, and what simple checks would have found."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from demo.drill import mysql_source, postgres_source
from demo.drill.faults import Fault, read_payload
from demo.drill.outages import OUTAGES, OutageScore
from demo.drill.run import DrillPlan, choose_outages, drill
from demo.drill.score import (
    DrillResult,
    IncidentBook,
    RepeatedScore,
    RowRange,
    TableProgress,
    compared_rows,
    listed_ranges,
    score_kind,
    score_repeated,
)
from demo.drill.simple_checks import SimpleRecall, TableState, changed_keys, recall
from demo.drill.tables import DEMO, Column, harmed_ids
from pipeline.errors import ConfigError

ORDERS = "drill.few_00"
LOST = Fault("lost row", ORDERS, 7, at=10.0)
CHANGED = Fault("changed value", ORDERS, 10, at=10.0, column="amount")
UNCOMPARED = Fault("value of a type that is left out", "drill.few_01", 6, at=10.0, column="score")
NOTHING = SimpleRecall(0, 0, 0)


def result_of(book: IncidentBook) -> DrillResult:
    """A drill in which *book* was filled."""
    kinds = dict.fromkeys(fault.kind for fault in book.faults)
    scores = tuple(score_kind(kind, book.findings, {}, [], NOTHING) for kind in kinds)
    return DrillResult(scores, tuple(book.false_alarms), (), (), (), 30.0, 60.0, 1000, 30, 600)


def incident(*keys: str, reason: str = "2 rows are wrong", **other: Any) -> dict[str, Any]:
    """A firing incident about the table of the faults, unless *other* says so."""
    usual = {"id": "1", "kind": "lost", "check": "values", "tables": [ORDERS], "about": ORDERS}
    return {**usual, "keys": list(keys), "reason": reason, "differing": [], **other}


def differing(column: str, *keys: str) -> dict[str, Any]:
    """That these rows differ in one column, as an incident says it."""
    return {"differing": [{"columns": [column], "keys": list(keys)}]}


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        pytest.param("shop/drill.few_00:7", [RowRange(ORDERS, 7, 7)], id="one row"),
        pytest.param("shop/drill.few_00:7-9", [RowRange(ORDERS, 7, 9)], id="a run of rows"),
        pytest.param("shop/drill.few_00:-9--7", [RowRange(ORDERS, -9, -7)], id="ids below zero"),
        pytest.param("version 12", [], id="a version"),
        pytest.param("f157e3b9-eac3-11f1-bbbb-02fc00000001:3329", [], id="a transaction"),
    ],
)
def test_rows_are_read_from_the_keys_of_an_incident(key: str, expected: list[RowRange]) -> None:
    assert list(listed_ranges([key])) == expected


def test_a_row_outside_of_a_listed_range_is_not_named() -> None:
    listed = RowRange(ORDERS, 7, 9)

    assert [(ORDERS, id_) in listed for id_ in (6, 7, 9, 10)] == [False, True, True, False]
    assert ("drill.few_01", 8) not in listed


def test_a_fault_is_named_by_key_and_by_column_at_the_first_incident_that_says_so() -> None:
    book = IncidentBook([LOST, CHANGED])

    book.note(20.0, [incident("shop/drill.few_00:7")])
    book.note(30.0, [incident("shop/drill.few_00:7", "shop/drill.few_00:10")])
    after_keys = book.is_over(30.0)
    wrong = incident("shop/drill.few_00:10", **differing("amount", "shop/drill.few_00:10"))
    book.note(40.0, [wrong])
    book.note(50.0, [wrong])

    lost, changed = book.findings[LOST], book.findings[CHANGED]
    assert (lost.noticed, lost.key, lost.column) == (10.0, 10.0, None)
    assert (changed.noticed, changed.key, changed.column) == (10.0, 20.0, 30.0)
    assert (after_keys, book.is_over(50.0)) == (False, True)
    assert not book.false_alarms


def test_a_column_counts_only_in_an_incident_that_lists_the_row() -> None:
    book = IncidentBook([CHANGED])

    other = differing("amount", "shop/drill.few_00:11")
    book.note(20.0, [incident("shop/drill.few_00:10-11", **other)])

    assert (book.findings[CHANGED].key, book.findings[CHANGED].column) == (10.0, None)


@pytest.mark.parametrize(
    ("logged", "merged", "compared", "named", "late"),
    [
        pytest.param(False, 15, 40, 40, False, id="once its table was compared whole"),
        pytest.param(False, 15, 40, 41, True, id="after its table was compared whole"),
        pytest.param(False, 15, 999, 99, False, id="its table was never compared whole"),
        pytest.param(True, 15, 40, 75, False, id="a minute after the merge"),
        pytest.param(True, 15, 40, 76, True, id="more than a minute after the merge"),
        pytest.param(True, 999, 40, 101, False, id="the change was never merged"),
    ],
)
def test_a_fault_is_due_after_its_merge_or_once_its_table_was_compared(
    *, logged: bool, merged: int, compared: int, named: int, late: bool
) -> None:
    fault = replace(LOST, logged=logged)
    book = IncidentBook([fault])

    for now in range(10, 110):
        known = (now if now >= since else None for since in (merged, compared))
        book.note_tables(now, [TableProgress(ORDERS, *known)])
        book.note(now, [incident("shop/drill.few_00:7")] if now >= named else [])

    assert book.findings[fault].is_late(fault) is late


def test_a_drill_is_over_once_each_fault_is_named_or_due_or_its_table_is_blocked() -> None:
    changed, blocked = replace(CHANGED, logged=True), replace(LOST, table="drill.mirror_00")
    book = IncidentBook([LOST, changed, blocked])
    book.note(12.0, [incident(kind="blocked", check="foreign_write", about="drill.mirror_00")])

    book.note_tables(20.0, [TableProgress(ORDERS, merged=15.0, compared=5.0)])
    before = book.is_over(99.0)
    book.note_tables(30.0, [TableProgress(ORDERS, merged=25.0, compared=15.0)])

    assert (before, book.is_over(80.0), book.is_over(81.0)) == (False, False, True)


@pytest.mark.parametrize(
    "alarm",
    [
        pytest.param(incident("shop/drill.few_00:7-8"), id="a row beside a harmed one"),
        pytest.param(incident(tables=[ORDERS, "shop.users"]), id="a table that was not harmed"),
        pytest.param(incident("shop/shop.users:7"), id="a row of another table"),
    ],
)
def test_an_incident_about_what_was_not_harmed_is_a_false_alarm(alarm: dict[str, Any]) -> None:
    book = IncidentBook([LOST])

    book.note(20.0, [incident("shop/drill.few_00:7", id="true"), {**alarm, "id": "false"}])

    assert set(book.false_alarms) == {"false"}


def test_an_incident_about_the_source_names_no_row_and_is_true_where_it_was_harmed() -> None:
    setting = incident("setting", about="setting:shop:transforms@1", tables=[ORDERS, "shop.users"])
    harmed, sound = (
        IncidentBook([LOST], expected=("setting:shop:transforms",)),
        IncidentBook([LOST]),
    )

    harmed.note(20.0, [setting])
    sound.note(20.0, [setting])

    assert (set(harmed.wide), set(harmed.false_alarms)) == ({"1"}, set())
    assert (set(sound.wide), set(sound.false_alarms)) == (set(), {"1"})
    assert [book.findings[LOST].noticed for book in (harmed, sound)] == [None, None]


def test_an_incident_from_before_the_faults_is_about_something_else() -> None:
    book = IncidentBook([LOST], before=frozenset({"old"}))

    book.note(20.0, [incident("shop/drill.few_00:8", id="old")])

    assert not book.false_alarms
    assert book.findings[LOST].noticed is None


def test_the_tables_say_how_an_outage_was_reported() -> None:
    outages = (
        OutageScore(
            "dead collector", 4.6, ("collector of shop: gone",), answers=10, open=0, again=7.2
        ),
        OutageScore("lost topic", None, (), answers=60, open=2),
        OutageScore("full disk", left_out="must be superuser"),
    )

    text = DrillResult((), (), (), (), (), 30.0, 60.0, 1000, 30, 600, outages).as_markdown()

    assert "| dead collector | 5 | collector of shop: gone | 0 of 10 answers | 0 | 7 |" in text
    assert "| lost topic | - | nothing | 2 of 60 answers | 0 | - |" in text
    assert "| full disk | - | left out: must be superuser | - | - | - |" in text


def test_the_report_says_which_servers_were_used_and_what_they_count() -> None:
    own = DrillResult(
        (), (), (), (), (), 30.0, 60.0, 9, None, 600, servers=("your MySQL at db-1:3306", "Kafka")
    ).as_markdown()

    assert "* Servers: your MySQL at db-1:3306; Kafka." in own
    assert "Rows that the service read" not in own


def test_lateness_is_no_alarm_about_data() -> None:
    book = IncidentBook([LOST])

    book.note(20.0, [incident("shop/drill.few_00:8", kind="late")])

    assert (book.false_alarms, set(book.others)) == ({}, {"1"})
    assert book.findings[LOST].noticed is None


def test_a_score_counts_faults_of_its_kind_alone() -> None:
    other = Fault("changed value", "drill.few_01", 10, at=10.0, column="amount")
    book = IncidentBook([LOST, CHANGED, other])
    book.note(
        25.0, [incident("shop/drill.few_00:10", **differing("amount", "shop/drill.few_00:10"))]
    )
    report = {
        "differences": [{"shard": "shop/drill.few_00", "id": 10, "columns": ["amount"]}],
    }

    score = score_kind("changed value", book.findings, compared_rows([report]), [ORDERS], NOTHING)

    assert (score.faults, score.noticed, score.keys, score.columns) == (2, 1, 1, 1)
    assert (score.asked, score.compared, score.compared_columns) == (1, 1, 1)
    assert (score.median, score.most, score.checks) == (15.0, 15.0, ("values",))


def test_the_tables_say_what_was_not_found() -> None:
    book = IncidentBook([LOST])
    score = score_kind("lost row", book.findings, {}, [ORDERS], SimpleRecall(0, 1, 0))

    text = DrillResult(
        (score,), ("values of x: y",), ("a setting",), (), (), 30.0, 60.0, 1000, 30, 600
    ).as_markdown()

    assert "| lost row | 1 | 0 | 0 | - | -, - | - | 0 | nothing | 0 of 1 | - |" in text
    assert "| lost row | 1 | 0 | 1 | 0 |" in text
    assert "* About the whole source: a setting" in text
    assert "False alarms: 1 in 30 s without and 60 s with faults" in text


def test_a_drill_in_which_all_was_named_in_time_falls_short_of_nothing() -> None:
    book = IncidentBook([LOST, CHANGED, UNCOMPARED])
    keys = ("shop/drill.few_00:7", "shop/drill.few_00:10")
    book.note(30.0, [incident(*keys, **differing("amount", keys[1]))])

    assert result_of(book).shortfalls(left_out=UNCOMPARED.kind) == ()
    assert result_of(book).shortfalls(left_out="") == (
        f"{UNCOMPARED.kind}: 0 of 1 keys named",
        f"{UNCOMPARED.kind}: 0 of 1 columns named",
        f"{UNCOMPARED.kind}: 1 were not due when the drill ended",
    )


def test_a_drill_falls_short_by_each_thing_that_was_not_as_it_should_be() -> None:
    book = IncidentBook([LOST, replace(CHANGED, logged=True)])
    book.note_tables(19.0, [TableProgress(ORDERS, merged=12.0, compared=None)])
    wrong = incident("shop/drill.few_00:10-11", **differing("total", "shop/drill.few_00:10"))
    book.note(80.0, [wrong])
    repeated = (RepeatedScore("record sent twice", records=2, right=1),)
    outages = (
        OutageScore("dead collector", 5.0, ("collector",), answers=10, open=1),
        OutageScore("lost topic", None, (), answers=10, open=0),
    )

    result = replace(result_of(book), repeated=repeated, outages=outages)

    assert result.shortfalls(left_out="") == (
        "1 false alarms",
        "lost row: 0 of 1 keys named",
        "lost row: 1 were not due when the drill ended",
        "changed value: 0 of 1 columns named",
        "changed value: 1 named after they were due",
        "record sent twice: 1 of 2 rows are right",
        "dead collector: gate READY in 1 of 10 answers",
        "lost topic: no incident",
    )


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        pytest.param(OutageScore("x", 5.0, ("late",), 10), [], id="reported, and the gate closed"),
        pytest.param(
            OutageScore("x", 5.0, ("late",), 10, 3, closes=False),
            [],
            id="an open gate that may be, with all rows",
        ),
        pytest.param(
            OutageScore("x", 5.0, ("late",), 10, 3, untrue=1, closes=False),
            ["x: 1 READY answers without all rows"],
            id="an open gate that may be, without a row",
        ),
        pytest.param(
            OutageScore("x", 5.0, ("late",), 10, wrong=2),
            ["x: 2 rows are wrong after it"],
            id="rows that are lost after it",
        ),
        pytest.param(OutageScore("x", None, (), 10, reports=False), [], id="no incident is due"),
        pytest.param(OutageScore("x", left_out="must be superuser"), [], id="left out"),
    ],
)
def test_an_outage_falls_short_by_what_is_expected_of_it(
    score: OutageScore, expected: list[str]
) -> None:
    assert list(score.shortfalls()) == expected


def test_outages_are_chosen_by_a_part_of_their_names() -> None:
    chosen = choose_outages(["clock", "disk"])

    assert len(chosen) == 6
    assert all("clock" in one.name or "disk" in one.name for one in chosen)
    assert choose_outages([]) == OUTAGES
    with pytest.raises(ConfigError, match="no outage has 'flood' in its name; known: dead coll"):
        choose_outages(["flood"])


@pytest.mark.parametrize(
    ("outage", "text", "named"),
    [
        pytest.param("source's clock", "clock:shop: its clock is 3600 s ahead", True, id="clock"),
        pytest.param("source's clock", "drill.topic_00 is late", False, id="another incident"),
        pytest.param("dead collector", "anything", True, id="any incident will do"),
    ],
)
def test_an_incident_counts_for_an_outage_that_it_is_about(
    outage: str, text: str, *, named: bool
) -> None:
    (first, *_) = choose_outages([outage])

    assert first.is_named_by(text) is named


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(b'{"id": 7}', id="alone"),
        pytest.param(b'{"schema": {"type": "struct"}, "payload": {"id": 7}}', id="in its schema"),
    ],
)
def test_a_record_is_read_with_and_without_its_schema(message: bytes) -> None:
    assert read_payload(message) == {"id": 7}


@pytest.mark.parametrize("columns", [mysql_source.COMPARED, postgres_source.COMPARED])
def test_each_source_has_the_columns_that_faults_and_ordinary_changes_name(
    columns: tuple[Column, ...],
) -> None:
    assert {"quantity", "name", "memo"} <= {one.name for one in columns}


def test_a_foreign_commit_need_name_no_row() -> None:
    book = IncidentBook([LOST])
    book.note(90.0, [incident(kind="blocked", check="foreign_write")])

    assert result_of(book).shortfalls(left_out="") == ()


def test_a_row_that_a_repeated_record_has_changed_is_not_right() -> None:
    again = [Fault("record sent twice", "drill.repeated_00", id_, at=0) for id_ in (6, 10)]

    assert score_repeated(again, {("drill.repeated_00", 6)}) == (
        RepeatedScore("record sent twice", records=2, right=1),
    )


def test_simple_checks_name_only_what_they_can_see() -> None:
    newest = Fault("lost row", ORDERS, 13, at=0)
    deleted = Fault("deleted row in the mirror", "drill.mirror_00", 4, at=0)
    states = {
        ORDERS: TableState(source=[4, 7, 10, 13], mirror=[4, 8, 10, 12], changed={10}),
        "drill.mirror_00": TableState(source=[4, 6], mirror=[6], changed={4, 6}),
    }

    assert recall([LOST, CHANGED, newest], states) == SimpleRecall(highest=1, counted=0, keys=0)
    assert recall([deleted], states) == SimpleRecall(highest=0, counted=1, keys=1)


def test_a_topic_tells_the_keys_of_changes_that_are_no_deletes() -> None:
    records = [(1, "r"), (2, "c"), (3, "u"), (3, "d"), (4, "d"), (4, "c"), (5, "u")]

    assert changed_keys(records) == {2, 4, 5}


def test_harmed_rows_are_spread_and_never_those_of_ordinary_changes() -> None:
    ids = harmed_ids(10, rows=100)

    assert len(set(ids)) == 10
    assert {id_ % 4 for id_ in ids} == {2}
    assert min(ids) > 2
    assert max(ids) <= 200
    with pytest.raises(ValueError, match="49 rows to be harmed, not 50"):
        harmed_ids(50, rows=100)


def test_a_thousand_faults_are_spread_over_few_and_large_tables() -> None:
    rows = DrillPlan(faults=1000).rows_by_table(DEMO)

    assert sum(rows.values()) == 1000
    assert sorted(set(rows.values())) == [20, 200]


def test_fewer_faults_than_tables_harm_a_row_in_some() -> None:
    assert sorted(DrillPlan(faults=5).rows_by_table(DEMO).values()) == [0] * 5 + [1] * 5
    assert sum(DrillPlan(faults=23).rows_by_table(DEMO).values()) == 23


@pytest.mark.parametrize(
    "option", ["--faults=-5", "--faults=2001", "--tables=0", "--rate=0", "--calm=-1", "--wait=-1"]
)
def test_a_drill_that_could_not_run_is_refused_at_once(option: str, tmp_path: Path) -> None:
    refused = CliRunner().invoke(drill, [option, f"--dir={tmp_path / 'home'}"])

    assert (refused.exit_code, (tmp_path / "home").exists()) == (2, False)
    assert f"Invalid value for '{option.partition('=')[0]}'" in refused.output


def test_the_most_faults_fit_into_the_tables_of_any_number() -> None:
    for tables in (1, 10, 99):
        for count in DrillPlan(faults=2000, tables=tables).rows_by_table(DEMO).values():
            assert len(harmed_ids(count)) == count


def test_a_few_faults_need_no_large_table() -> None:
    assert DrillPlan(faults=40, tables=2).rows_by_table(DEMO) == {ORDERS: 20, "drill.few_01": 20}
