"""Rows and statements go through partitions of their own: which lands first is chance."""

from pathlib import Path

import pytest

from pipeline.model import Op, Order
from pipeline.sources.mysql.types import MySqlColumn as Column
from tests.pipeline.hand_lake import ID, NAME, HandLake, row

C = Op.CREATE


@pytest.fixture
def lake(tmp_path: Path) -> HandLake:
    return HandLake(tmp_path)


def test_a_row_that_lands_before_its_schema_waits_for_it_and_holds_the_table_after_a_while(
    lake: HandLake,
) -> None:
    lake.play([row(C, 10, 1, "a")])
    more = '{"id":2,"name":"b","extra":5}'
    lake.land({**row(C, 20, 2, "b"), "after": more})
    assert list(lake.run()) == []
    held = lake.apply()
    lake.alter(ID, NAME, Column("extra", "INT"), at=Order(1, 1, 15))

    freed = lake.apply()

    assert held.hold is not None
    assert held.hold.reason == "unknown_field"
    assert freed.hold is None
    assert {r["id"]: r["extra"] for r in lake.mirror()} == {1: None, 2: 5}


def test_a_row_whose_schema_lands_with_the_next_batch_holds_nothing(lake: HandLake) -> None:
    lake.play([row(C, 10, 1, "a")])
    lake.land({**row(C, 20, 2, "b"), "after": '{"id":2,"name":"b","extra":5}'})
    early = list(lake.run())
    lake.alter(ID, NAME, Column("extra", "INT"), at=Order(1, 1, 15))

    turn = lake.apply()

    assert (early, turn.hold, turn.account.read) == ([], None, 1)
    assert {r["id"]: r["extra"] for r in lake.mirror()} == {1: None, 2: 5}
