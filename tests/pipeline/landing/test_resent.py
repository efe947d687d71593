from dataclasses import replace

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipeline.changelog.table import SCHEMA
from pipeline.landing.epochs import Epochs
from pipeline.landing.resent import reordered, resending
from pipeline.mark import Epoch, Mark

EPOCH = Epoch(2, "new", 1, 1, heartbeat=40)
Said = tuple[str | None, str, int, int]  # transaction, name, epoch, pos


@pytest.mark.parametrize(
    ("epoch", "landed", "expected"),
    [
        pytest.param(EPOCH, 40, {"s"}, id="nothing newer has landed since the fail-over"),
        pytest.param(EPOCH, 41, set(), id="a heartbeat of its own has landed"),
        pytest.param(replace(EPOCH, number=1, heartbeat=-1), -1, set(), id="the first epoch"),
    ],
)
def test_how_long_old_transactions_may_still_come(
    epoch: Epoch, landed: int, expected: set[str]
) -> None:
    mark = Mark("main", 3, heartbeats={"s": landed})

    assert resending(mark, Epochs({"s": epoch}, {})) == expected


def frame(spark: SparkSession, *said: Said) -> DataFrame:
    values = []
    for tx, name, epoch, pos in said:
        given = {
            "source": "s",
            "op": "u",
            "key": '["1"]',
            "after": name,
            "order": (epoch, 1, pos, 0),
            "tx": None if tx is None else (tx, 1),
        }
        values.append(tuple(given.get(column) for column in SCHEMA))
    ddl = ", ".join(f"`{name}` {kind}" for name, kind in SCHEMA.items())
    return spark.createDataFrame(values, ddl)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("landed", "sent", "orders"),
    [
        pytest.param([("g:1", "a", 1, 90)], [("g:1", "a", 2, 5)], [(1, 90)], id="sent again"),
        pytest.param([("g:1", "a", 1, 90)], [("g:2", "a", 2, 5)], [(2, 5)], id="said anew later"),
        pytest.param([("g:1", "a", 1, 90)], [("g:1", "b", 2, 5)], [(2, 5)], id="another change"),
        pytest.param([("g:1", "a", 1, 90)], [(None, "a", 2, 5)], [(2, 5)], id="no transaction"),
        pytest.param(
            [("g:1", "a", 1, 90)],
            [("g:1", "a", 2, 5), ("g:1", "b", 2, 6), ("g:1", "a", 2, 7)],
            [(1, 90), (2, 6), (2, 7)],
            id="said twice in one transaction, landed once",
        ),
    ],
)
def test_a_change_sent_again_by_a_new_server_keeps_its_place(
    spark: SparkSession, landed: list[Said], sent: list[Said], orders: list[tuple[int, int]]
) -> None:
    found = reordered(frame(spark, *sent), frame(spark, *landed), {"s"})

    assert sorted((r["order"]["epoch"], r["order"]["pos"]) for r in found.collect()) == orders
