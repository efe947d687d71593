"""A snapshot of two servers is a gap of its table until a base stands above it."""

from dataclasses import replace

import pytest

from checks.blocks import is_waivable
from pipeline.checkpoint import Checkpoint, OpenSnapshot
from pipeline.landing.bases import detect_split_snapshots
from pipeline.landing.batch_stats import BatchStats, SnapshotRows
from pipeline.model import Order
from pipeline.reports import load_gap
from tests.builders import batch_context
from tests.pipeline.landing.test_next_mark import step

OLD, NEW = Order(1, 900, 5), Order(2, 900, 5)  # of the log's 900th file
SHARD = "s/db.t"
BEFORE = Checkpoint("main", 3, shards={SHARD: "db.t"}, snaps={SHARD: OpenSnapshot(OLD, 3, rows=2)})
ROWS = SnapshotRows(NEW, 3, ended=True)


def torn(before: Checkpoint = BEFORE, rows: SnapshotRows = ROWS) -> Checkpoint:
    return detect_split_snapshots(
        replace(before, batch=4), batch_context(before, stats=BatchStats(snapshots={SHARD: rows}))
    )


def test_it_is_told_with_the_place_that_a_base_must_be_above() -> None:
    (gap,) = map(load_gap, torn().gaps.values())

    assert (gap.shards, gap.above, gap.batch) == ((SHARD,), NEW, 4)
    assert gap.why.endswith("above 900:5")
    assert is_waivable(gap.id)


@pytest.mark.parametrize(
    ("before", "rows"),
    [
        pytest.param(replace(BEFORE, snaps={}), ROWS, id="all of it in one epoch"),
        pytest.param(BEFORE, replace(ROWS, order=Order(1, 900, 5)), id="it goes on"),
        pytest.param(BEFORE, replace(ROWS, order=Order(2, 901, 5)), id="another one"),
        pytest.param(replace(BEFORE, shards={SHARD: None}), ROWS, id="of no table"),
    ],
)
def test_others_are_no_gap(before: Checkpoint, rows: SnapshotRows) -> None:
    assert torn(before, rows).gaps == {}


@pytest.mark.parametrize(
    ("order", "open_"),
    [
        pytest.param(Order(2, 3, 7), True, id="the new server's log is young"),
        pytest.param(Order(2, 901, 7), False, id="above it"),
    ],
)
def test_only_a_base_above_it_closes_the_gap(order: Order, *, open_: bool) -> None:
    """Rows of the old server stand above what the new one has written, and would win."""
    read = BatchStats(snapshots={SHARD: SnapshotRows(order, 3, ended=True)})
    above = BatchStats(high={"s/s.db.t:0": replace(order, pos=order.pos + 1)})

    made = step(step(torn(), read), above)

    assert bool(made.gaps) is open_
