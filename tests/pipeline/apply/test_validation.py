"""A slice that breaks an invariant is held before it reaches the mirror, and loses nothing."""

import json
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from checks.blocks import is_waivable
from examples.parquet_versions import ParquetVersions
from pipeline.apply.invariants import waived_until
from pipeline.image import DueCut
from pipeline.invariants.changed_at_most import ChangedAtMost
from pipeline.invariants.column_loss import ColumnLoss
from pipeline.invariants.not_null import NotNull
from pipeline.invariants.range import Range, ValueBounds
from pipeline.invariants.unique import Unique
from pipeline.model import Op
from pipeline.reports import Hold
from pipeline.settings import InvariantRule, PublishRule
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.tables.delta.table_format import DeltaMirrors
from tests.builders.lake import ID, NAME, LocalLake, hold_of, row
from tests.pipeline.apply.test_images import CUT, set_cut

N = Column("n", "INT")
C, U, D, R, T = Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ, Op.TRUNCATE
NAMED = (("not_null", NotNull(("name",))),)


def demanding(home: Path, *named: tuple[str, Any], tables: str = "db.t", **more: Any) -> LocalLake:
    return LocalLake(home, invariants=(InvariantRule(tables, named or NAMED),), **more)


def span(hold: Hold) -> str:
    """Its name without the mirror's."""
    return hold.id.rpartition("@")[0]


def test_a_slice_that_breaks_an_invariant_leaves_the_mirror_as_it_was(tmp_path: Path) -> None:
    lake = demanding(tmp_path)
    lake.play([row(C, 10, 1, "a"), row(C, 11, 2, "b")])
    lake.land(row(U, 20, 1, None), row(C, 21, 3, "c"), row(D, 22, 2, "b"))

    turn = lake.apply()

    hold = hold_of(turn)
    assert (hold.reason, span(hold), turn.batch) == ("invalid", "invalid:db.t:1-1", 0)
    assert 'not_null: name is NULL in 1 row, key ["s","db.t","1"]' in hold.detail
    assert is_waivable(hold.id)
    assert lake.rows() == {1: "a", 2: "b"}


def test_a_held_slice_blocks_no_other_table(tmp_path: Path) -> None:
    lake = demanding(tmp_path, others=("db.u",))
    other = {"table": "db.u", "shard": "db.u", "topic": "s.db.u"}
    lake.land(row(C, 10, 1, None), row(C, 10, 1, None) | other)

    turns = {turn.table: turn.hold for turn in lake.run()}

    assert held_by(turns) == {"db.t": "invalid", "db.u": None}
    assert lake.rows("db.u") == {1: None}


def held_by(turns: dict[str, Hold | None]) -> dict[str, str | None]:
    return {table: hold.reason if hold else None for table, hold in turns.items()}


def test_a_later_change_that_puts_the_row_right_makes_the_whole_slice_valid(tmp_path: Path) -> None:
    lake = demanding(tmp_path)
    lake.land(row(C, 10, 1, None), row(C, 11, 2, "b"))
    hold_of(lake.apply())

    lake.land(row(U, 20, 1, "right"))
    turn = lake.apply()

    assert turn.hold is None
    assert (turn.account.read, turn.account.residual) == (3, 0)
    assert lake.rows() == {1: "right", 2: "b"}


def test_the_question_stays_the_same_while_only_good_rows_come(tmp_path: Path) -> None:
    lake = demanding(tmp_path)
    lake.land(row(C, 10, 1, None))
    first = hold_of(lake.apply())
    lake.land(row(C, 20, 2, "b"))

    assert hold_of(lake.apply()) == first


def test_what_is_let_through_is_let_through_once(tmp_path: Path) -> None:
    lake = demanding(tmp_path)
    lake.land(row(C, 10, 1, None))
    hold = hold_of(lake.apply())
    lake.land(row(C, 20, 2, None))
    assert span(hold_of(lake.apply())) == "invalid:db.t:0-1"

    turn = lake.apply([hold.id])

    assert span(hold_of(turn)) == "invalid:db.t:1-1"
    assert lake.rows() == {1: None}
    assert lake.apply([hold.id, hold_of(turn).id]).hold is None
    assert lake.rows() == {1: None, 2: None}
    lake.land(row(U, 30, 1, None))
    assert span(hold_of(lake.apply([hold.id, hold_of(turn).id]))) == "invalid:db.t:2-2"


def test_a_mirror_that_is_made_anew_asks_anew(tmp_path: Path) -> None:
    lake = demanding(tmp_path)
    lake.land(row(C, 10, 1, None))
    hold = hold_of(lake.apply())
    assert lake.apply([hold.id]).hold is None

    shutil.rmtree(lake.settings.mirror("db.t"))
    lake.reopen()
    again = hold_of(lake.apply([hold.id]))

    assert span(again) == span(hold)
    assert again.id != hold.id
    assert lake.apply([hold.id, again.id]).hold is None
    assert lake.rows() == {1: None}


def test_a_restart_asks_the_same_question_and_keeps_its_answer(tmp_path: Path) -> None:
    lake = demanding(tmp_path)
    lake.land(row(C, 10, 1, None))
    hold = hold_of(lake.apply())

    lake.reopen()
    assert hold_of(lake.apply()) == hold

    lake.reopen()
    assert lake.apply([hold.id]).hold is None
    assert lake.rows() == {1: None}


def test_all_that_is_broken_is_told_at_once(tmp_path: Path) -> None:
    lake = demanding(
        tmp_path, ("not_null", NotNull(("name",))), ("range", Range({"id": ValueBounds(most=9)}))
    )
    lake.land(*(row(C, pos, pos, None) for pos in range(5, 25)))

    detail = hold_of(lake.apply()).detail

    keys = ", ".join(f'["s","db.t","{key}"]' for key in range(5, 10))
    assert f"not_null: name is NULL in 20 rows, first keys {keys}; range: id is out" in detail
    assert '"24"' not in detail


@pytest.mark.parametrize(
    ("name", "invariant", "words"),
    [
        pytest.param(
            "not_null",
            NotNull(("nam",)),
            "an invariant names 'nam', and the columns of db.t are id, name",
            id="no such column",
        ),
        pytest.param(
            "range",
            Range({"name": ValueBounds(0)}),
            "column name is of type string, which does not compare with 0",
            id="a bound of another type",
        ),
    ],
)
def test_what_cannot_be_asked_holds_the_table_and_says_why(
    tmp_path: Path, name: str, invariant: Any, words: str
) -> None:
    lake = demanding(tmp_path, (name, invariant))
    lake.land(row(C, 10, 1, "a"))

    hold = hold_of(lake.apply())

    assert hold.reason == "invariant"
    assert words in hold.detail


@pytest.mark.parametrize(
    ("slice_", "valid"),
    [
        pytest.param([row(C, 20, 3, "a")], False, id="another row of the mirror has it"),
        pytest.param([row(C, 20, 3, "x"), row(C, 21, 4, "x")], False, id="two rows of the slice"),
        pytest.param([row(C, 20, 3, None), row(C, 21, 4, None)], True, id="NULL is like no other"),
        pytest.param([row(U, 20, 1, "a")], True, id="the row's own"),
        pytest.param([row(D, 20, 1, "a"), row(C, 21, 3, "a")], True, id="the other went"),
        pytest.param([row(U, 20, 1, "b"), row(U, 21, 2, "a")], True, id="two rows swap"),
        pytest.param([row(Op.TRUNCATE, 20, None), row(C, 21, 3, "a")], True, id="all went before"),
    ],
)
@pytest.mark.parametrize(
    "table_format",
    [
        pytest.param(DeltaMirrors(None), id="delta"),
        pytest.param(ParquetVersions(None, "snappy"), id="a format of one's own"),
    ],
)
def test_unique(
    tmp_path: Path, table_format: Any, slice_: list[dict[str, Any]], *, valid: bool
) -> None:
    lake = demanding(tmp_path, ("unique", Unique((("name",),))), table_format=table_format)
    lake.land(row(C, 10, 1, "a"), row(C, 11, 2, "b"), row(C, 12, 9, None))
    assert lake.apply().hold is None
    lake.land(*slice_)

    assert (lake.apply().hold is None) is valid


@pytest.mark.parametrize(
    ("slice_", "valid"),
    [
        pytest.param([row(U, 20, key, "x") for key in range(2)], True, id="a fifth changes"),
        pytest.param([row(U, 20, key, "x") for key in range(3)], False, id="more changes"),
        pytest.param([row(D, 20, key) for key in range(3)], False, id="more goes"),
        pytest.param([row(C, 20, 10 + key, "x") for key in range(9)], True, id="it grows"),
        pytest.param([row(Op.TRUNCATE, 20, None)], False, id="all goes"),
    ],
)
def test_changed_at_most(tmp_path: Path, slice_: list[dict[str, Any]], *, valid: bool) -> None:
    lake = demanding(tmp_path, ("changed_at_most", ChangedAtMost(0.2, rows=1)))
    lake.play([row(C, 10, key, "a") for key in range(10)])
    lake.land(*slice_)

    assert (lake.apply().hold is None) is valid


def test_a_set_of_columns_is_unique_as_a_whole(tmp_path: Path) -> None:
    lake = demanding(tmp_path, ("unique", Unique((("name", "n"),))), columns=(ID, NAME, N))

    def told(pos: int, name: str, n: int | None) -> dict[str, Any]:
        return row(C, pos, pos) | {"after": json.dumps({"id": pos, "name": name, "n": n})}

    lake.play([told(10, "a", 1), told(11, "a", 2), told(12, "b", 1), told(13, "a", None)])
    lake.land(told(20, "b", 2), told(21, "a", None))
    assert lake.apply().hold is None

    lake.land(told(30, "a", 2))
    assert 'name, n not unique in 1 row, key ["s","db.t","30"]' in hold_of(lake.apply()).detail


def test_what_is_not_matched_exactly_cannot_be_unique(tmp_path: Path) -> None:
    columns = (ID, Column("n", "DOUBLE"))
    lake = demanding(tmp_path, ("unique", Unique((("n",),))), columns=columns)
    lake.land(row(C, 10, 1) | {"after": '{"id": 1, "n": 1.5}'})

    hold = hold_of(lake.apply())

    assert hold.reason == "invariant"
    assert "n (double), which are not matched exactly" in hold.detail


def test_an_image_is_asked_by_itself_and_let_through_by_itself(tmp_path: Path) -> None:
    """What stands below the cut belongs to it, whatever repairs it later."""
    lake = demanding(tmp_path, publish=(PublishRule("db.*", hold_back=timedelta(hours=1)),))
    lake.cuts = (DueCut(CUT),)
    lake.play([row(C, 10, 1, "a")])
    lake.now = CUT
    set_cut(lake, 50)
    lake.prove(50)
    lake.land(row(U, 20, 1, None), row(U, 60, 1, "right"))

    hold = hold_of(lake.apply())
    assert span(hold) == "invalid:db.t:1-1"
    assert lake.images() == ()
    lake.land(row(C, 30, 2, "of the day, too"))

    assert lake.apply([hold.id]).hold is None
    (image,) = lake.images()
    assert lake.rows(version=image.version) == {1: None, 2: "of the day, too"}
    assert lake.rows() == {1: "right", 2: "of the day, too"}


def test_a_truncate_that_an_image_has_seen_takes_nothing_again(tmp_path: Path) -> None:
    few = (("changed_at_most", ChangedAtMost(0.2)),)
    lake = demanding(tmp_path, *few, publish=(PublishRule("db.*"),))
    lake.cuts = (DueCut(CUT),)
    lake.play([row(C, 10, 1, "a")], [row(D, 11, 1, "a")])
    lake.now = CUT
    set_cut(lake, 50)
    lake.prove(50)
    lake.land(row(T, 20, None), row(C, 21, 5, "x"))

    turns = lake.run()

    assert [turn.hold for turn in turns] == [None, None]
    assert len(lake.images()) == 1
    assert lake.rows() == {5: "x"}


def test_a_truncate_that_is_sent_again_takes_nothing(tmp_path: Path) -> None:
    lake = demanding(tmp_path, ("changed_at_most", ChangedAtMost(0.2)))
    lake.play([row(C, 10, 1, "a")], [row(D, 11, 1, "a")])
    lake.play([row(T, 20, None)], [row(C, 30, 2, "b")])
    lake.land(row(T, 20, None), row(C, 30, 2, "b"))
    assert lake.apply().hold is None

    lake.land(row(T, 40, None))
    assert "a TRUNCATE takes the rows" in hold_of(lake.apply()).detail


def update(pos: int, key: int, before: str | None, after: str | None) -> dict[str, Any]:
    return row(U, pos, key, after, before=f'{{"id": {key}, "name": {json_text(before)}}}')


def json_text(value: str | None) -> str:
    return "null" if value is None else f'"{value}"'


@pytest.mark.parametrize(
    ("slice_", "valid"),
    [
        pytest.param([update(20, k, "a", None) for k in range(10)], False, id="all turn NULL"),
        pytest.param([update(20, k, "a", "") for k in range(10)], False, id="all turn empty"),
        pytest.param(
            [update(20 + pos, k, *pair) for k in range(10) for pos, pair in enumerate(
                [("a", None), (None, None)])],
            False, id="and change once more",
        ),
        pytest.param([update(20, k, None, None) for k in range(10)], True, id="none was there"),
        pytest.param([update(20, k, "a", None) for k in range(4)], True, id="too few to tell"),
        pytest.param([row(U, 20, k, None) for k in range(10)], True, id="nobody tells of before"),
        pytest.param(
            [update(20, k, "a", None if k < 8 else "b") for k in range(10)],
            True, id="not nearly all"
        ),
    ],
)  # fmt: skip
def test_column_loss(tmp_path: Path, slice_: list[dict[str, Any]], *, valid: bool) -> None:
    lake = demanding(tmp_path, ("column_loss", ColumnLoss(rows=5)))
    lake.play([row(C, 10, key, "a") for key in range(10)])
    lake.land(*slice_)

    assert (lake.apply().hold is None) is valid


def test_good_rows_that_come_later_do_not_end_the_hold_of_a_column_loss(tmp_path: Path) -> None:
    lake = demanding(tmp_path, ("column_loss", ColumnLoss(rows=5)))
    lake.play([row(C, 10, key, "a") for key in range(30)])
    lake.land(*(update(20, key, "a", None) for key in range(10)))
    first = hold_of(lake.apply())

    for batch in range(2):
        keys = range(10 + 10 * batch, 20 + 10 * batch)
        lake.land(*(update(30 + batch, key, "a", "b") for key in keys))
        assert hold_of(lake.apply()) == first

    lake.land(*(update(40, key, None, "a") for key in range(10)))
    assert lake.apply().hold is None
    assert {lake.rows()[key] for key in range(10)} == {"a"}


@pytest.mark.parametrize(
    ("kind", "bounds", "inside", "outside"),
    [
        pytest.param(("INT",), ValueBounds(0, 9), "0", "-1", id="whole numbers"),
        pytest.param(("INT",), ValueBounds(0.5), "1", "0", id="a fraction bounds whole numbers"),
        pytest.param(("DECIMAL", 9, 2), ValueBounds(most=1.5), '"1.50"', '"1.51"', id="decimals"),
        pytest.param(("DOUBLE",), ValueBounds(0), "0.0", "-0.1", id="floats"),
        pytest.param(("DATE",), ValueBounds("2020-01-01"), "18262", "18261", id="dates"),
        pytest.param(("DATETIME", 3), ValueBounds("2020-01-01T00:00:00"), "1577836800000",
                     "1577836799999", id="times"),
    ],
)  # fmt: skip
def test_range(
    tmp_path: Path, kind: tuple[Any, ...], bounds: ValueBounds, inside: str, outside: str
) -> None:
    columns = (Column("id", "BIGINT"), Column("n", *kind))
    lake = demanding(tmp_path, ("range", Range({"n": bounds})), columns=columns)

    def told(pos: int, value: str) -> dict[str, Any]:
        return row(C, pos, pos) | {"after": f'{{"id": {pos}, "n": {value}}}'}

    lake.land(told(10, inside), told(11, "null"))
    assert lake.apply().hold is None

    lake.land(told(20, inside), told(21, outside))
    assert 'n is out of its range in 1 row, key ["s","db.t","21"]' in hold_of(lake.apply()).detail


@pytest.mark.parametrize(
    ("id_", "expected"),
    [
        pytest.param("invalid:db.t:5-9@0000000a", 9, id="what comes next"),
        pytest.param("invalid:db.t:4-9@0000000a", None, id="what was before"),
        pytest.param("invalid:db.t:6-9@0000000a", None, id="what comes later"),
        pytest.param("invalid:db.t2:5-9@0000000a", None, id="another table's"),
        pytest.param("invalid:db.t:5-9@0000000b", None, id="another mirror's"),
        pytest.param("invalid:db.t:5-9", None, id="no mirror's"),
        pytest.param("invalid:db.t:5-9-10@0000000a", None, id="no range"),
    ],
)
def test_whom_a_waiver_lets_through(id_: str, expected: int | None) -> None:
    assert waived_until("db.t", "0000000a", 4, frozenset({id_, "gap:x"})) == expected
