"""A mirror that somebody paused has no turn, and lacks nothing once it goes on."""

from pathlib import Path

import pytest

from pipeline.model import Op, Order
from tests.pipeline.hand_lake import ID, HandLake, row

C, U = Op.CREATE, Op.UPDATE


@pytest.fixture
def lake(tmp_path: Path) -> HandLake:
    return HandLake(tmp_path)


def test_a_paused_mirror_stands_still_and_takes_up_all_that_landed_when_it_goes_on(
    lake: HandLake,
) -> None:
    lake.play([row(C, 10, 1, "a")])
    lake.land(row(U, 20, 1, "b"))

    assert lake.run(paused={"db.t"}) == ()
    lake.land(row(C, 30, 2, "c"))
    assert lake.run(paused={"db.t"}) == ()
    assert lake.rows() == {1: "a"}

    assert lake.apply().account.read == 2
    assert lake.rows() == {1: "b", 2: "c"}


def test_a_held_mirror_that_is_paused_is_not_called_free(lake: HandLake) -> None:
    lake.play([row(C, 10, 1, "a")])
    lake.alter(ID, at=Order(1, 1, 15))
    lake.land(row(U, 20, 1, "b"))
    held = lake.apply()
    assert held.hold is not None

    turns = [*lake.run(paused={"db.t"}), *lake.run(paused={"db.t"})]

    assert [turn for turn in turns if turn.hold is None] == []
