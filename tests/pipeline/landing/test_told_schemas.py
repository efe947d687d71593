"""Columns that rows tell of themselves are landed where they are news, and never too seldom."""

from collections.abc import Sequence

import pyarrow as pa
import pytest

from pipeline.changelog.table import CHANGES
from pipeline.landing.told_schemas import after, newest, unrepeated
from pipeline.mark import ToldSchema
from pipeline.model import Op, Order

Step = tuple[int, str]  # where in the log, and what is told


def rows(*steps: Step, op: Op = Op.DDL, schema_id: int | None = 1) -> pa.RecordBatch:
    told = [
        {
            "source": "s",
            "shard": "public.t",
            "op": str(op),
            "order": {"epoch": 1, "log": log, "pos": 0, "row": 0},
            "after": text,
            "schema_id": schema_id,
        }
        for log, text in steps
    ]
    return pa.RecordBatch.from_pylist(told, CHANGES)


def landed(*batches: Sequence[Step]) -> list[list[Step]]:
    """What is left of each batch."""
    known: dict[str, ToldSchema] = {}
    left = [unrepeated(rows(*steps), known).to_pylist() for steps in batches]
    return [[(row["order"]["log"], row["after"]) for row in one] for one in left]


@pytest.mark.parametrize(
    ("batches", "left"),
    [
        pytest.param([[(1, "a")], [(2, "a")]], [[(1, "a")], []], id="said again"),
        pytest.param([[(1, "a"), (2, "b")], [(3, "b")]], [[(1, "a"), (2, "b")], []], id="new"),
        pytest.param([[(1, "a"), (2, "b"), (3, "a")]], [[(1, "a"), (2, "b"), (3, "a")]], id="back"),
        pytest.param(
            [[(1, "a"), (9, "b")], [(5, "a"), (9, "b")]],
            [[(1, "a"), (9, "b")], [(5, "a")]],
            id="a partition that is behind",
        ),
        pytest.param([[(9, "b")], [(5, "b")]], [[(9, "b")], [(5, "b")]], id="older and alike"),
    ],
)
def test_columns_in_force_are_not_landed_again(
    batches: list[list[Step]], left: list[list[Step]]
) -> None:
    assert landed(*batches) == left


def test_statements_and_rows_all_stay() -> None:
    for one in (rows((1, "a"), (2, "a"), schema_id=None), rows((1, "a"), (2, "a"), op=Op.CREATE)):
        assert unrepeated(one, {}) is one


def test_the_mark_keeps_the_newest() -> None:
    place = {"epoch": 1, "pos": 0, "row": 0, "source": "s", "shard": "public.t"}
    told = newest(
        [
            {**place, "log": 2, "note": "b", "schema_id": 1},
            {**place, "log": 1, "note": "a", "schema_id": 1},
            {**place, "log": 3, "note": "ALTER ..", "schema_id": None},
        ]
    )
    old = {
        "s/public.t": ToldSchema(Order(1, 1, 0), "x"),
        "s/public.u": ToldSchema(Order(1, 9, 0), "y"),
    }

    assert told["s/public.t"].order == Order(1, 2, 0)
    assert after(old, told) == {**old, **told}
    assert after(told, old) == {**old, **told}
