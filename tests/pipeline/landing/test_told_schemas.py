"""Columns that rows tell of themselves are landed where they are news, and never too seldom."""

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.changelog.table import CHANGES
from pipeline.checkpoint import DescribedSchema
from pipeline.landing import plan
from pipeline.landing.batch_stats import Unrepeated, after, newest, unrepeated
from pipeline.model import Op, Order
from pipeline.schema.history import History
from pipeline.sources.postgres.dialect import POSTGRES
from tests.pipeline.landing.desk import Desk
from tests.pipeline.landing.test_unbased_tables import MORE, message

Step = tuple[int, str]  # where in the log, and what is told
NAME = "s/public.t"


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


def statements(*steps: Step) -> list[dict[str, object]]:
    place = {"epoch": 1, "pos": 0, "row": 0, "source": "s", "shard": "public.t", "schema_id": 1}
    return [{**place, "log": log, "note": text} for log, text in steps]


def landed(*batches: Sequence[Step]) -> list[list[Step]]:
    """What is left of each batch, which one task reads in as many parts as it has steps."""
    known: dict[str, DescribedSchema] = {}
    left = []
    for steps in batches:
        found = list(Unrepeated(known).among(rows(step) for step in steps))
        told = [row for one in found for row in one.to_pylist()]
        left.append([(row["order"]["log"], row["after"]) for row in told])
        known = after(known, newest(statements(*left[-1])))
    return left


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
        pytest.param(
            [[(1, "a")], [(9, "a"), (5, "b"), (10, "a")]],
            [[(1, "a")], [(5, "b"), (9, "a")]],
            id="back again, told before what was between",
        ),
        pytest.param(
            [[(2, "a"), (3, "a"), (1, "a")]],
            [[(1, "a"), (3, "a")]],
            id="the first and the last, where others may tell what was between",
        ),
    ],
)
def test_columns_in_force_are_not_landed_again(
    batches: list[list[Step]], left: list[list[Step]]
) -> None:
    assert landed(*batches) == left


def test_statements_and_rows_all_stay() -> None:
    for one in (rows((1, "a"), (2, "a"), schema_id=None), rows((1, "a"), (2, "a"), op=Op.CREATE)):
        assert list(Unrepeated({}).among([one])) == [one]


def test_of_what_several_tasks_tell_only_news_is_judged() -> None:
    known = newest(statements((1, "a")))
    alter = {**statements((4, "ALTER"))[0], "schema_id": None}
    told = [*statements((5, "b"), (9, "a")), *statements((7, "b"), (8, "a"), (3, "a")), alter]

    left = unrepeated(told, known)

    assert [(row["log"], row["note"]) for row in left] == [(4, "ALTER"), (5, "b"), (8, "a")]


def test_columns_that_another_task_knows_to_have_been_others_between_are_in_force_again() -> None:
    told = [
        row
        for steps in ([(2, "a"), (10, "a")], [(5, "b")])
        for found in Unrepeated({}).among(rows(step) for step in steps)
        for row in statements(*((one["order"]["log"], one["after"]) for one in found.to_pylist()))
    ]

    left = unrepeated(told, newest(statements((1, "a"))))

    assert [(row["log"], row["note"]) for row in left] == [(5, "b"), (10, "a")]


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_in_whichever_order_tasks_tell_columns_are_in_force_from_where_they_came_back(
    order: Sequence[int],
) -> None:
    tasks: list[list[Step]] = [[(1, "a"), (10, "a")], [(3, "a"), (7, "a")], [(5, "b")]]
    told = [
        row
        for steps in (tasks[n] for n in order)
        for found in Unrepeated({}).among(rows(step) for step in steps)
        for row in statements(*((one["order"]["log"], one["after"]) for one in found.to_pylist()))
    ]

    left = unrepeated(told, {})

    assert [(row["log"], row["note"]) for row in left] == [(1, "a"), (5, "b"), (7, "a")]


def test_columns_that_come_back_in_another_task_of_the_batch_are_in_force_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "LEAST", 1)
    desk = Desk(tmp_path, names="a", dialect=POSTGRES)
    topic = desk.topics.held.setdefault("a.public.t", [message("t", 100, 1)])
    desk.land()
    for lsn, more in ((200, (MORE,)), (300, (MORE,)), (400, ()), (500, ())):
        topic.append(message("t", lsn, lsn, "false", *more))
    desk.land()

    readings = {feed.settings.name: feed.reading for feed in desk.loop.feeds}
    log = desk.log()
    log.look()
    told = log.schema_changes(-1)
    history = History(*(c for _, order, text in told for c in readings["a"].read(text, order)[1]))
    width = {
        lsn: len(found.columns)
        for lsn in (100, 200, 300, 400, 500)
        if (found := history.at("public.t", Order(1, lsn - 50, lsn, 1))) is not None
    }
    assert desk.tasks[-1] > 1
    assert width == {100: 1, 200: 2, 300: 2, 400: 1, 500: 1}
    newest_told = history.newest("public.t")
    assert newest_told is not None
    assert newest_told.order == Order(1, 350, 400, 1)
    assert desk.loop.checkpoint.schemas["a/public.t"].order == Order(1, 350, 400, 1)


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
        NAME: DescribedSchema(Order(1, 1, 0), "x"),
        "s/public.u": DescribedSchema(Order(1, 9, 0), "y"),
    }

    assert told[NAME].order == Order(1, 2, 0)
    assert after(old, told) == {**old, **told}
    assert after(told, old) == {**old, **told}
