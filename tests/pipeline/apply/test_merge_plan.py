"""Which mirrors merge in a run, how much of what is pending, and what they wait for."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.apply import merge_plan, merge_run
from pipeline.model import Op, Order, Shard
from pipeline.schema.history import SchemaChange
from pipeline.schema.model import TableSchema
from pipeline.settings import TableRule
from pipeline.sources.mysql.types import MySqlColumn as Column
from tests.builders.lake import ID, NAME, LocalLake, row
from tests.pipeline.apply.holds import assert_held
from tests.pipeline.apply.renames import SHADOW, Renames

C, R, S = Op.CREATE, Op.READ, Op.SETTLE
OTHERS = ("db.u", "db.v", "db.w")


def each(pos: int, *tables: str) -> list[dict[str, Any]]:
    return [
        row(C, pos, pos, "x") | {"table": name, "shard": name, "topic": f"s.{name}"}
        for name in tables
    ]


def schema_change(kind: str, pos: int) -> tuple[str, SchemaChange]:
    """db.t was dropped, or made anew with other columns."""
    order = Order(1, 1, pos)
    schema = TableSchema("db.t", order, (ID, NAME), ("id",)) if kind == "create" else None
    return "s", SchemaChange(kind, "db.t", order, schema, "")


@pytest.mark.parametrize(
    ("limit", "most"),
    [
        pytest.param("MOST_MIRRORS", 2, id="more mirrors than a pass takes"),
        pytest.param("PASS_ROWS", 1, id="more rows than a pass reads"),
    ],
)
def test_tables_that_always_have_something_to_apply_keep_no_other_from_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    monkeypatch.setattr(merge_run, limit, most)
    lake = LocalLake(tmp_path, others=OTHERS)
    had: set[str] = set()

    for pos in range(10, 22):
        lake.land(*each(pos, "db.t", *OTHERS))
        had |= {turn.table for turn in lake.run() if turn.hold is None}

    assert had == {"db.t", *OTHERS}


def test_a_low_tier_has_a_turn_in_each_pass_however_much_waits_of_higher_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_run, "PASS_ROWS", 1)
    rules = (TableRule("db.[tu]", tier=1), TableRule("db.[vw]", tier=5))
    lake = LocalLake(tmp_path, others=OTHERS, rules=rules)
    turned: list[list[str]] = []

    for pos in range(10, 14):
        lake.land(*each(pos, "db.t", *OTHERS))
        turned.append([turn.table for turn in lake.run() if turn.hold is None])

    assert turned == [["db.t", "db.v"], ["db.u", "db.w"]] * 2


def test_a_turn_that_does_not_come_to_a_new_base_reads_nothing_from_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those changes may have columns that are there no longer, and would hold it for ever."""
    lake = LocalLake(tmp_path, columns=(ID, Column("gone", "VARCHAR", 80)))
    for pos in range(10, 20):
        lake.land({**row(C, pos, pos), "after": f'{{"id": {pos}, "gone": "x"}}'})
    lake.land(row(R, 50, 1, "read"), row(S, 50, None))
    lake.catalog.learn([schema_change("drop", 40), schema_change("create", 40)])
    lake.checkpoint = replace(lake.checkpoint, bases={Shard("s", "db.t"): Order(1, 1, 50)})
    monkeypatch.setattr(merge_plan, "MOST_ROWS", 4)

    turns = [turn for _ in range(8) for turn in lake.run()]

    assert [turn.hold for turn in turns if turn.hold] == []
    assert lake.rows() == {1: "read"}


def test_a_table_that_nobody_foresaw_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = LocalLake(tmp_path, others=("db.u",))
    lake.land(*each(10, "db.t", "db.u"))
    known = lake.catalog.schema

    def breaks(table: Any) -> Any:
        if table.name == "db.t":
            raise ValueError("a column nobody has seen")
        return known(table)

    monkeypatch.setattr(lake.catalog, "schema", breaks)

    turns = {turn.table: turn.hold for turn in lake.run()}

    assert turns["db.u"] is None
    assert turns["db.t"] is not None
    assert (turns["db.t"].reason, turns["db.t"].detail) == (
        "failed",
        "ValueError: a column nobody has seen",
    )


def test_a_table_with_an_impossible_name_stops_no_other(tmp_path: Path) -> None:
    endless = f"db.{'x' * 300}"  # more than a folder's name may have
    lake = LocalLake(tmp_path, others=("db.u", endless))
    lake.land(*each(10, "db.u", endless))

    turns = {turn.table: turn.hold for turn in lake.run()}

    assert turns["db.u"] is None
    hold = turns[endless]
    assert hold is not None
    assert "is longer than this file system allows" in hold.detail


MOMENT = Column("name", "DATETIME")
LATE, LATER = -12219292800000, -12218428800000  # 1582-10-15, sent for 1582-10-05, too; 1582-10-25


def moment(op: Op, pos: int, at: int, **more: Any) -> dict[str, Any]:
    return row(op, pos, 1, **more) | {"after": json.dumps({"id": 1, "name": at})}


@pytest.mark.parametrize(
    ("changes", "held"),
    [
        pytest.param([moment(R, 10, LATE)], True, id="a snapshot's"),
        pytest.param([moment(R, 10, LATE - 1000)], False, id="the last second before"),
        pytest.param([moment(R, 10, LATER - 1000)], True, id="the last second"),
        pytest.param([moment(R, 10, LATER)], False, id="the first second after"),
        pytest.param([moment(C, 10, LATE)], False, id="the log's"),
        pytest.param([moment(R, 10, LATE), moment(C, 11, LATE)], False, id="then the log's"),
        pytest.param(
            [moment(R, 10, LATE, topic=None, partition=None, offset=None)],
            False,
            id="read by Sluice itself",
        ),
    ],
)
def test_f116_a_moment_that_a_snapshot_may_have_shifted_holds_the_table(
    tmp_path: Path, changes: list[dict[str, Any]], held: bool
) -> None:
    lake = LocalLake(tmp_path, columns=(ID, MOMENT))

    lake.land(*changes)

    (turn,) = lake.run()
    assert (turn.hold is not None) is held
    if turn.hold is not None:
        assert turn.hold.reason == "misread"
        assert "name of 1 rows is unverifiable" in turn.hold.detail
        assert "sluice bootstrap db.t" in turn.hold.detail


def test_a_table_that_waits_for_a_silent_collector_says_so(tmp_path: Path) -> None:
    lake = Renames(tmp_path)
    lake.begin()
    lake.lake.apply()
    lake.lake.land(*SHADOW)
    lake.swap()
    lake.sent(100)
    lake.lake.land(row(C, 111, 5, "five"))
    short = merge_plan.PATIENCE - timedelta(minutes=10, seconds=1)

    at_first = [turn.hold for turn in lake.lake.run() if turn.table == "db.t"]
    lake.lake.now += short
    soon = [turn.hold for turn in lake.lake.run() if turn.table == "db.t"]
    late = lake.apply().hold
    lake.sent(101)
    lake.lake.land(row(C, 112, 6, "six"))

    assert (at_first, soon) == ([], [])
    assert_held(late, "unacknowledged", "s: db.t was renamed or dropped at")
    assert lake.apply().hold is None
    assert lake.lake.rows() == {1: "changed", 3: "three", 5: "five", 6: "six"}


def test_a_row_that_lands_before_its_schema_waits_for_it_and_holds_the_table_after_a_while(
    lake: LocalLake,
) -> None:
    lake.play([row(C, 10, 1, "a")])
    more = '{"id":2,"name":"b","extra":5}'
    lake.land({**row(C, 20, 2, "b"), "after": more})
    assert list(lake.run()) == []
    held = lake.apply()
    lake.alter(ID, NAME, Column("extra", "INT"), at=Order(1, 1, 15))

    freed = lake.apply()

    assert_held(held.hold, "unknown_field")
    assert freed.hold is None
    assert {r["id"]: r["extra"] for r in lake.mirror()} == {1: None, 2: 5}


def test_a_row_whose_schema_lands_with_the_next_batch_holds_nothing(lake: LocalLake) -> None:
    lake.play([row(C, 10, 1, "a")])
    lake.land({**row(C, 20, 2, "b"), "after": '{"id":2,"name":"b","extra":5}'})
    early = list(lake.run())
    lake.alter(ID, NAME, Column("extra", "INT"), at=Order(1, 1, 15))

    turn = lake.apply()

    assert (early, turn.hold, turn.account.read) == ([], None, 1)
    assert {r["id"]: r["extra"] for r in lake.mirror()} == {1: None, 2: 5}
