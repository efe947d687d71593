"""Which topics does a table that is there, with a base, need?  Covers is_needed of bases.py."""

from dataclasses import replace

import pytest

from pipeline.landing.bases import is_needed
from pipeline.mark import Existence, Mark
from pipeline.model import Order

NAME, ORDER = "s/db.t", Order(1, 1, 1)
THERE = Mark("main", 1, shards={NAME: "db.t"}, bases={NAME: ORDER})
GONE = {NAME: Existence(ORDER, there=False)}
OTHERS = replace(THERE, shards={NAME: "db.t", "s/db.u": None}, bases={NAME: ORDER, "s/db.u": ORDER})


@pytest.mark.parametrize(
    ("mark", "topic", "needed"),
    [
        pytest.param(THERE, "shop.db.t", True, id="its own"),
        pytest.param(THERE, "one.two.db.t", True, id="below a prefix with a dot"),
        pytest.param(THERE, "shop.db.u", False, id="another's"),
        pytest.param(THERE, "db.t", False, id="no prefix"),
        pytest.param(THERE, "shop", False, id="schema changes"),
        pytest.param(replace(THERE, bases={}), "shop.db.t", False, id="no base is lost"),
        pytest.param(replace(THERE, existing=GONE), "shop.db.t", False, id="dropped"),
        pytest.param(OTHERS, "shop.db.t", True, id="one of several"),
        pytest.param(OTHERS, "shop.db.u", False, id="ignored"),
    ],
)
def test_a_topic_is_needed_by_a_table_that_is_there(
    mark: Mark, topic: str, *, needed: bool
) -> None:
    assert is_needed(mark, topic) is needed
