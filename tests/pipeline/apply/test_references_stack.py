"""A foreign key that MySQL itself keeps is never found broken; one that its log breaks is."""

from collections.abc import Callable
from functools import partial

import pytest

from pipeline.invariants.referenced import ForeignKey, Referenced
from pipeline.reports import Hold
from pipeline.settings import InvariantRule
from tests.pipeline.backfill.live_backfills import writing
from tests.pipeline.live import Pipe

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.long]
NAME = "referred"
BATCHES = 40  # with changes of either table
RULE = InvariantRule(
    f"{NAME}.t",
    (("referenced", Referenced((ForeignKey(("parent",), f"{NAME}.parent", ("id",)),))),),
)
TABLES = (
    "CREATE TABLE DB.parent (id INT PRIMARY KEY, name VARCHAR(80))",
    "CREATE TABLE DB.t (id INT PRIMARY KEY, name VARCHAR(80), parent INT,"
    " FOREIGN KEY (parent) REFERENCES DB.parent (id))",
)


def test_rows_wait_for_their_parents_and_only_those_without_one_are_held(
    pipe: Callable[..., Pipe],
) -> None:
    p = pipe(NAME, partitions=3, tuning={"invariants": (RULE,), "batch_rows": 60})
    p.sql(*TABLES, "INSERT INTO DB.parent VALUES (-1, 'first')")
    p.sql("INSERT INTO DB.t VALUES (0, 'first', -1)")
    p.start()
    p.catch_up()

    with writing(partial(write_parent_and_child, p), pause=0.02):
        until = p.lane.checkpoint.batch + BATCHES
        p.until(lambda: p.lane.checkpoint.batch >= until)
    p.catch_up()

    told = {turn.hold.reason for turn in p.applied if turn.hold is not None}
    assert told <= {"awaited"}  # which a row may be for more than a minute on a slow machine
    assert len(p.pairs()) > 10
    for table in ("t", "parent"):
        assert p.pairs(table) == p.source_pairs(table)

    p.sql("SET sql_log_bin = 0", "INSERT INTO DB.parent VALUES (-2, 'unseen')")
    p.sql("INSERT INTO DB.t VALUES (-7, 'orphan', -2)")
    p.until(lambda: bool(holds(p)))
    (hold,) = holds(p)
    assert hold.reason == "invalid"
    assert f'parent refers to no row of {NAME}.parent (id) in 1 row, key ["{NAME}"' in hold.detail
    assert -7 not in p.pairs()
    p.sql("UPDATE DB.parent SET name = 'seen' WHERE id = -2")
    p.catch_up()
    assert p.pairs() == p.source_pairs()


def write_parent_and_child(p: Pipe, number: int) -> None:
    """A parent and its child; then an older child goes, and its parent after it."""
    key, old = number % 97, (number + 40) % 97
    p.sql(
        f"INSERT IGNORE INTO DB.parent VALUES ({key}, '{number}')",
        f"INSERT INTO DB.t VALUES ({number}, 'x', {key})",
        f"DELETE FROM DB.t WHERE parent = {old}",
        f"DELETE FROM DB.parent WHERE id = {old}",
    )


def holds(p: Pipe) -> set[Hold]:
    """Of the newest turns."""
    return {turn.hold for turn in p.applied[-3:] if turn.hold is not None}
