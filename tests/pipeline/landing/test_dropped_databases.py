"""No table is told to go with its database; covers pipeline/landing/bases.py."""

from pathlib import Path

import pytest

from pipeline.living import living_tables
from pipeline.mark import Existence
from pipeline.model import Op, Order
from pipeline.route import Router
from tests.pipeline.landing.desk import Desk
from tests.pipeline.test_lane import Beside


@pytest.fixture
def beside(tmp_path: Path) -> Beside:
    """db.t has rows, in the mirror too."""
    made = Beside(Desk(tmp_path))
    made.desk.topics.alter("a", 10, "name", kind="CREATE")
    made.land(0, 2)
    made.apply()
    return made


def test_a_table_is_retired_with_its_database_and_keeps_its_mirror(beside: Beside) -> None:
    beside.desk.topics.say("a", 500, "DROP DATABASE `db`")

    beside.lane.land(frozenset())
    beside.apply()

    assert living_tables(beside.lane.mark, Router()) == {}
    assert beside.rows() == {0: "a", 1: "a"}


def test_a_database_in_other_letters_is_another_one(beside: Beside) -> None:
    beside.desk.topics.say("a", 500, "DROP DATABASE DB")

    beside.lane.land(frozenset())

    assert living_tables(beside.lane.mark, Router()).keys() == {"db.t"}


@pytest.mark.parametrize("together", [False, True], ids=["a batch each", "one batch"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_table_made_after_its_database_was_dropped_is_born_with_columns_of_its_own(
    beside: Beside, together: bool, restarted: bool
) -> None:
    lane, topics = beside.lane, beside.desk.topics
    topics.say("a", 500, "DROP DATABASE db")
    if not together:
        lane.land(frozenset())
    topics.alter("a", 600, "name", "note", kind="CREATE")
    topics.put("a", 700, "new", key=7)
    lane.land(frozenset())
    if restarted:
        beside = Beside(Desk(beside.desk.home, topics))
        beside.looks = 60

    for _ in range(3):
        beside.apply()

    mark = beside.lane.mark
    assert mark.existing["a/db.t"] == Existence(Order(1, 7, 600), there=True)
    assert mark.bases["a/db.t"] == Order(1, 7, 600)
    assert [turn.hold for turn in beside.turns if turn.hold] == []
    assert beside.rows() == {7: "new"}
    assert len(beside.desk.landed(Op.SETTLE)) == 2
