"""What blocks a table that all lags and positions call complete?"""

import json
from dataclasses import asdict

import pytest

from checks.blocks import blocks, undecided
from pipeline.mark import Quarantine
from pipeline.report import Gap
from tests.checks.samples import TABLE, mark
from tests.checks.test_readiness import inputs, verdict

OWN = frozenset({"shop", "shop.shop_00.orders", "shop.shop_01.orders"})
UNREAD = Quarantine(None, 3, 1, ("x:0:5@3",))


@pytest.mark.parametrize(
    ("topic", "shards", "blocked"),
    [
        pytest.param("shop.shop_01.orders", (), True, id="a topic of its own"),
        pytest.param("shop.other.t", ("shop/other.t",), False, id="another table's topic"),
        pytest.param(
            "shop.all_orders",
            ("shop/other.t", "shop/shop_01.orders"),
            True,
            id="a topic of no table, which may hold any",
        ),
        pytest.param("shop", (), True, id="the topic of its schema changes"),
    ],
)
def test_an_unread_change_of_a_topic_blocks_every_table_it_may_concern(
    topic: str, shards: tuple[str, ...], blocked: bool
) -> None:
    unread = Quarantine(UNREAD.table, UNREAD.batch, UNREAD.count, UNREAD.ids, shards)
    taken = {"landed": mark(quarantine={f"topic:{topic}": unread})}

    found = blocks(inputs(taken=taken, topics=OWN), frozenset())

    assert [reason.id for reason in found] == (["x:0:5@3"] if blocked else [])


def test_an_unread_change_is_told_with_its_table_or_else_its_topic() -> None:
    known = Quarantine(TABLE.name, 3, 1, ("t:0:1@3",))
    taken = {"landed": mark(quarantine={"shop/shop_01.orders": known, "topic:x": UNREAD})}

    texts = [reason.text for reason in blocks(inputs(taken=taken), frozenset())]

    assert texts == [
        f"{TABLE.name}: undecoded change t:0:1@3",
        "topic:x: undecoded change x:0:5@3",
    ]


@pytest.mark.parametrize(
    ("gap", "blocked"),
    [
        pytest.param(Gap("g", "t", 0, 1, 9, "x"), True, id="one that names nobody"),
        pytest.param(Gap("g", "t", 0, 1, 9, "x", tables=(TABLE.name,)), True, id="its table's"),
        pytest.param(
            Gap("g", "t", 0, 1, 9, "x", shards=("shop/shop_00.orders",)), True, id="a shard's"
        ),
        pytest.param(Gap("g", "t", 0, 1, 9, "x", tables=("o.t",)), False, id="another table's"),
        pytest.param(
            Gap("g", "t", 0, 1, 9, "x", shards=("shop/o.t",)), False, id="another shard's"
        ),
    ],
)
def test_a_gap_blocks_whom_it_may_concern(gap: Gap, *, blocked: bool) -> None:
    taken = {"landed": mark(gaps={"g": json.dumps(asdict(gap))})}

    found = blocks(inputs(taken=taken), frozenset())

    assert [reason.id for reason in found] == (["g"] if blocked else [])


@pytest.mark.parametrize(
    ("rulings", "undecided_"),
    [
        pytest.param((), True, id="never ruled"),
        pytest.param(("pass",), False, id="right"),
        pytest.param(("fail",), False, id="wrong is a ruling too"),
        pytest.param(("unknown", "pass"), False, id="known by now"),
        pytest.param(("pass", "unknown"), True, id="known before"),
    ],
)
def test_a_gating_check_without_a_ruling_is_listed(
    rulings: tuple[str, ...], *, undecided_: bool
) -> None:
    told = tuple(verdict(one, ago=9 - at) for at, one in enumerate(rulings))

    found = [
        undecided(inputs(verdicts=verdicts), frozenset({"range_counts"}))
        for verdicts in (told, told[::-1])
    ]

    assert found == [("range_counts",) if undecided_ else ()] * 2
