"""Rows of a shard that is dropped leave the mirror that others are folded into; covers catalog."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.checkpoint import Existence
from pipeline.model import Order
from pipeline.reports import Gap, dump_gap
from pipeline.settings import TableRule
from tests.pipeline.apply.renames import NEW, SHADOW, C, Renames, S, new
from tests.pipeline.hand_lake import row

FOLDED = (TableRule(r"db\..*", "db.t"),)


@pytest.fixture
def two(tmp_path: Path) -> Renames:
    """Both shards of one table, with a row each."""
    told = Renames(tmp_path, FOLDED, shards=("db.t", NEW))
    told.begin()
    told.lake.land(*({**one, "table": "db.t"} for one in SHADOW))
    told.apply()
    return told


OF_BOTH = [(1, "changed"), (1, "old"), (2, "goes"), (3, "three")]


def pairs(told: Renames) -> list[tuple[int, str]]:
    return sorted((r["id"], r["name"]) for r in told.lake.mirror())


@pytest.mark.parametrize(
    ("text", "left"),
    [
        pytest.param("DROP TABLE _t_new", [(1, "old"), (2, "goes")], id="one of two"),
        pytest.param("DROP TABLE t", [(1, "changed"), (3, "three")], id="the other"),
        pytest.param("RENAME TABLE db._t_new TO x.y", [(1, "old"), (2, "goes")], id="moved away"),
        pytest.param("DROP TABLE t, _t_new", OF_BOTH, id="a table without a shard keeps them"),
    ],
)
def test_f26_rows_of_a_dropped_shard_leave_those_of_the_others(
    two: Renames, text: str, left: list[tuple[int, str]]
) -> None:
    before = pairs(two)
    two.tell(100, text)

    turn = two.apply()

    assert before == OF_BOTH
    assert (turn.hold, turn.account.residual) == (None, 0)
    assert pairs(two) == left


def test_f26_a_mirror_whose_shards_went_with_their_database_is_left_as_it_was(two: Renames) -> None:
    two.tell(100, "DROP DATABASE db")
    gone = Existence(Order(1, 1, 100), there=False)
    two.lake.checkpoint = replace(two.lake.checkpoint, existing={"s/db.t": gone, f"s/{NEW}": gone})

    turns = two.lake.run()

    assert turns == ()
    assert pairs(two) == OF_BOTH


def test_f26_rows_of_a_dropped_shard_that_are_still_on_their_way_are_waited_for(
    two: Renames,
) -> None:
    two.sent(100)
    two.tell(100, "DROP TABLE _t_new")
    waiting = two.lake.run()
    two.sent(101)
    two.lake.land(new(C, 99, 9, "late", table="db.t"), row(C, 110, 5, "five"))

    two.apply()

    assert waiting == ()
    assert pairs(two) == [(1, "old"), (2, "goes"), (5, "five")]


def test_f26_what_was_lost_of_a_shard_holds_its_table_no_more_once_it_is_dropped(
    two: Renames,
) -> None:
    gap = Gap("g", f"s.{NEW}", 0, 5, 8, "deleted", shards=(f"s/{NEW}",))
    two.lake.checkpoint = replace(two.lake.checkpoint, gaps={gap.id: dump_gap(gap)})
    two.lake.land(row(C, 90, 5, "five"))
    held = two.apply().hold
    two.tell(100, "DROP TABLE _t_new")
    gone = {f"s/{NEW}": Existence(Order(1, 1, 100), there=False)}
    two.lake.checkpoint = replace(two.lake.checkpoint, existing=gone)

    turn = two.apply()

    assert held is not None
    assert held.reason == "gap"
    assert turn.hold is None
    assert pairs(two) == [(1, "old"), (2, "goes"), (5, "five")]


def test_f26_a_dropped_shard_that_is_made_again_begins_empty(two: Renames) -> None:
    two.tell(100, "DROP TABLE _t_new")
    two.tell(120, "CREATE TABLE _t_new LIKE t", "_t_new")
    rows = (new(S, 120, None), new(C, 130, 7, "seven"))
    two.lake.checkpoint = replace(two.lake.checkpoint, bases={f"s/{NEW}": Order(1, 1, 120)})
    two.lake.land(*({**one, "table": "db.t"} for one in rows))

    turn = two.apply()

    assert turn.hold is None
    assert pairs(two) == [(1, "old"), (2, "goes"), (7, "seven")]


def test_a_swap_with_a_shadow_of_the_same_table_leaves_one_of_each_row(two: Renames) -> None:
    """The shadow's own rows go with its name, those of the original with the old one's."""
    two.lake.checkpoint = replace(
        two.lake.checkpoint, shards={**two.lake.checkpoint.shards, "s/db._t_old": "db.t"}
    )
    two.swap()
    two.tell(105, "DROP TABLE _t_old")
    two.lake.land(row(C, 110, 5, "five"))

    turn = two.apply()

    assert (turn.hold, turn.account.residual) == (None, 0)
    assert pairs(two) == [(1, "changed"), (3, "three"), (5, "five")]
