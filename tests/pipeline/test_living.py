"""What is dropped or ignored is retired, and comes back."""

import pytest

from pipeline.checkpoint import Checkpoint, Existence, active_shards, active_tables
from pipeline.model import Order
from pipeline.settings import Router, TableRule

SHARDS = {"s/a.t": "t", "s/b.t": "t", "s/db.u": "u", "s/db.v": None}
MARK = Checkpoint("main", 9, shards=SHARDS, tables={"t": 3, "u": 5, "v": 7, "w": 8})


@pytest.mark.parametrize(
    ("told", "shards", "tables"),
    [
        pytest.param({}, {"s/a.t", "s/b.t", "s/db.u"}, {"t": 3, "u": 5}, id="nothing was dropped"),
        pytest.param({"s/a.t": False}, {"s/b.t", "s/db.u"}, {"t": 3, "u": 5}, id="one of two"),
        pytest.param({"s/a.t": False, "s/b.t": False}, {"s/db.u"}, {"u": 5}, id="every shard"),
        pytest.param(
            {"s/db.u": True}, {"s/a.t", "s/b.t", "s/db.u"}, {"t": 3, "u": 5}, id="created again"
        ),
    ],
)
def test_f26_shards_that_are_there(
    told: dict[str, bool], shards: set[str], tables: dict[str, int]
) -> None:
    existing = {name: Existence(Order(1, 1, 1), there) for name, there in told.items()}
    checkpoint = Checkpoint("main", 9, shards=SHARDS, tables=MARK.tables, existing=existing)

    assert active_shards(checkpoint, Router()).keys() == shards
    assert active_tables(checkpoint, Router()) == tables


def test_f26_a_rule_that_ignores_a_table_retires_it_before_anything_lands() -> None:
    rule = TableRule(shards=r"[ab]\.t", table="t", ignore=True)

    assert active_tables(MARK, Router((rule,))) == {"u": 5}
