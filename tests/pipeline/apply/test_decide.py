from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline.apply.decide import (
    AppliedBefore,
    Found,
    RowVerdict,
    base_floors,
    decide_rows,
    find_doubtful,
    find_outlived,
    highest_orders,
    withdraw_inserts,
)
from pipeline.apply.fold import fold_changes
from pipeline.apply.row_metadata import RowOrigins, rank_order
from pipeline.checkpoint import Checkpoint
from pipeline.errors import HeldError
from pipeline.image import Image
from pipeline.model import Op, Order, Origin, Shard, Table, TopicPartition
from tests.pipeline.tables.delta.turns import CHANGES, FAR, A, B, change, order, table, unique

C, U, D, R = Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ
INSERT, UPDATE, DELETE, NOOP, AGAIN, MOVE, ARCHIVE = RowVerdict
Row = dict[str, Any]
THIRD = Shard(A.source, "db_9.t")


def stands(
    pos: int | None, of: Shard = A, origin: Origin = Origin.LIVE, *, archived: bool = False
) -> Found:
    """One row of the mirror at *pos*; an adopted one without."""
    adopted = pos is None
    place = Order(-(2**63), 0, 0) if pos is None else order(pos)
    source, shard = (
        pa.array([None if adopted else name], pa.string()) for name in (of.source, of.name)
    )
    went = np.array([archived])
    owner = RowOrigins(source, shard, rank_order(place, origin), np.array([adopted]), went)
    return Found(np.zeros(1, np.int32), np.zeros(1, np.int64), owner)


def nothing() -> Found:
    found = stands(1)
    found.file[:] = -1
    return found


def verdict(
    *rows: Row,
    found: Found,
    floors: Mapping[Shard, Order] | None = None,
    raised: Mapping[Shard, Order] | None = None,
) -> RowVerdict:
    folded = fold_changes(table(*map(unique, rows)))
    floors = highest_orders(floors or {}, raised or {})
    (one,) = decide_rows(folded, found, floors, raised or {}).tolist()
    return RowVerdict(one)


@pytest.mark.parametrize(
    ("row", "found", "expected"),
    [
        pytest.param(change(C, 5, 1), nothing(), INSERT, id="an upsert of nothing inserts"),
        pytest.param(change(D, 5, 1), nothing(), NOOP, id="a delete of nothing"),
        pytest.param(change(U, 5, 1), stands(4), UPDATE, id="newer"),
        pytest.param(change(D, 5, 1), stands(4), DELETE, id="newer delete"),
        pytest.param(change(U, 5, 1), stands(6), NOOP, id="older"),
        pytest.param(change(D, 5, 1), stands(6), NOOP, id="older delete"),
        pytest.param(
            change(U, 9, 1, order={"epoch": 1, "log": 0, "pos": 9, "row": 9}),
            stands(4),
            NOOP,
            id="of an older log file, further on",
        ),
        pytest.param(change(U, 5, 1), stands(5), AGAIN, id="the same again"),
        pytest.param(change(D, 5, 1), stands(5), AGAIN, id="a delete at the row's own place"),
        pytest.param(
            change(U, 5, 1), stands(5, origin=Origin.SNAPSHOT), UPDATE, id="live beats a snapshot"
        ),
        pytest.param(
            change(R, 5, 1, origin=Origin.REPAIR), stands(5), AGAIN, id="repair does not beat live"
        ),
        pytest.param(
            change(D, 5, 1), stands(5, origin=Origin.SNAPSHOT), DELETE, id="a live delete, too"
        ),
        pytest.param(
            change(D, 5, 1), stands(5, B, Origin.SNAPSHOT), AGAIN, id="but of its own shard only"
        ),
        pytest.param(change(U, 1, 1), stands(None), UPDATE, id="an adopted row is older than any"),
        pytest.param(change(D, 1, 1), stands(None), DELETE, id="and anybody's to delete"),
        pytest.param(change(D, 9, 1), stands(4, B), NOOP, id="a delete of another shard's row"),
        pytest.param(change(U, 9, 1), stands(4, B), UPDATE, id="an upsert over another shard's"),
        pytest.param(change(D, 9, 1), stands(4, FAR), NOOP, id="a delete from another source"),
        pytest.param(
            change(D, 4, 1), stands(4, FAR), NOOP, id="nor is it said again at the same number"
        ),
        pytest.param(change(D, 1, 1), nothing(), NOOP, id="nor of what stands nowhere"),
        pytest.param(
            change(C, 2, 1),
            stands(4, FAR, archived=True),
            MOVE,
            id="of whatever source it was: that has it no more",
        ),
        pytest.param(
            change(D, 9, 1), stands(4, FAR, archived=True), NOOP, id="nor does another's delete"
        ),
        pytest.param(
            change(D, 9, 1), stands(4, archived=True), NOOP, id="no delete takes an archived row"
        ),
        pytest.param(
            change(D, 4, 1), stands(4, archived=True), AGAIN, id="its own delete comes again"
        ),
        pytest.param(
            change(C, 9, 1), stands(4, archived=True), UPDATE, id="what comes again takes its place"
        ),
        pytest.param(
            change(U, 3, 1), stands(4, archived=True), NOOP, id="what is from before does not"
        ),
    ],
)
def test_a_change_acts_only_if_it_is_newer(row: Row, found: Found, expected: RowVerdict) -> None:
    assert verdict(row, found=found) is expected


@pytest.mark.parametrize(
    ("rows", "found", "expected"),
    [
        pytest.param([change(C, 9, 1), change(D, 8, 1, of=B)], stands(4, B), MOVE, id="moved"),
        pytest.param(
            [change(C, 3, 1), change(D, 8, 1, of=B)], stands(4, B), MOVE, id="from before"
        ),
        pytest.param([change(C, 9, 1), change(D, 3, 1, of=B)], stands(4, B), UPDATE, id="old news"),
        pytest.param(
            [change(D, 9, 1), change(D, 8, 1, of=B)], stands(4, B), DELETE, id="both gone"
        ),
        pytest.param(
            [change(C, 1, 1), change(D, 8, 1, of=FAR)], stands(4, FAR), MOVE, id="across sources"
        ),
        pytest.param(
            [change(C, 3, 1), change(D, 8, 1, of=FAR)], stands(4), NOOP, id="its namesake's delete"
        ),
        pytest.param(
            [change(C, 3, 1), change(D, 8, 1, of=THIRD)], stands(4, B), NOOP, id="a third one's"
        ),
        pytest.param(
            [change(C, 3, 1), change(D, 8, 1, of=B)], stands(None), MOVE, id="of an adopted row"
        ),
    ],
)
def test_a_shards_delete_is_heard_beside_another_shards_change(
    rows: list[Row], found: Found, expected: RowVerdict
) -> None:
    assert verdict(*rows, found=found) is expected


def test_verdicts_are_places_in_a_row_of_their_counts() -> None:
    assert sorted(RowVerdict) == list(range(len(RowVerdict)))


def test_f12_an_upsert_over_another_sources_row_holds_the_table() -> None:
    with pytest.raises(HeldError, match="crosses_sources"):
        verdict(change(U, 9, 1), found=stands(4, FAR))


@pytest.mark.parametrize(
    ("rows", "found", "floors", "raised", "expected"),
    [
        pytest.param([change(C, 5, 1)], nothing(), {A: order(6)}, {}, NOOP, id="below the floor"),
        pytest.param([change(C, 6, 1)], nothing(), {A: order(6)}, {}, INSERT, id="at the floor"),
        pytest.param([change(C, 5, 1)], nothing(), {B: order(6)}, {}, INSERT, id="another's floor"),
        pytest.param(
            [change(U, 9, 1)], stands(4), {}, {A: order(6)}, INSERT, id="the row goes by the floor"
        ),
        pytest.param(
            [change(D, 9, 1)], stands(4), {}, {A: order(6)}, NOOP, id="nothing left to delete"
        ),
        pytest.param(
            [change(C, 5, 1), change(D, 9, 1, of=B)],
            stands(4, B),
            {A: order(6)},
            {},
            DELETE,
            id="below the floor, in a place that was left",
        ),
        pytest.param(
            [change(C, 5, 1)],
            stands(4, FAR, archived=True),
            {A: order(6)},
            {},
            NOOP,
            id="below the floor, where another's archived row stands",
        ),
    ],
)
def test_nothing_is_inserted_below_a_floor(
    rows: list[Row],
    found: Found,
    floors: dict[Shard, Order],
    raised: dict[Shard, Order],
    expected: RowVerdict,
) -> None:
    assert verdict(*rows, found=found, floors=floors, raised=raised) is expected


HIGH = {TopicPartition("s.db.a", 0): order(10), TopicPartition("s.db.a", 1): order(20)}


@pytest.mark.parametrize(
    ("row", "known", "expected"),
    [
        pytest.param(change(C, 11, 1), AppliedBefore(HIGH), False, id="above its partition's high"),
        pytest.param(change(C, 10, 1), AppliedBefore(HIGH), True, id="not above it"),
        pytest.param(
            change(C, 11, 1, partition=1), AppliedBefore(HIGH), True, id="another partition"
        ),
        pytest.param(
            change(C, 99, 1, partition=9), AppliedBefore(HIGH), True, id="one nobody has met"
        ),
        pytest.param(change(R, 99, 1), AppliedBefore(HIGH), True, id="not live"),
        pytest.param(
            change(C, 15, 1), AppliedBefore(HIGH, grown=True), True, id="partitions were added"
        ),
        pytest.param(
            change(C, 21, 1), AppliedBefore(HIGH, grown=True), False, id="but above them all"
        ),
        pytest.param(change(C, 99, 1), AppliedBefore(None), True, id="nothing is known"),
        pytest.param(change(R, 99, 1), AppliedBefore({}), True, id="not live, and no live applied"),
        pytest.param(change(C, 99, 1), AppliedBefore({}), True, id="no partition is known"),
        pytest.param(
            change(C, 99, 1), AppliedBefore({}, grown=True), True, id="none, and some were added"
        ),
        pytest.param(
            change(C, 99, 1, partition=9),
            AppliedBefore(HIGH, grown=True),
            True,
            id="one nobody has met, and some were added",
        ),
    ],
)
def test_an_insert_is_doubted_if_a_forgotten_delete_may_be_newer(
    row: Row, known: AppliedBefore, expected: bool
) -> None:
    folded = fold_changes(table(row))

    assert find_doubtful(folded, np.array([INSERT], np.int8), known).tolist() == [expected]
    assert find_doubtful(folded, np.array([MOVE], np.int8), known).tolist() == [expected]
    assert find_doubtful(folded, np.array([UPDATE], np.int8), known).tolist() == [False]


def test_an_insert_is_measured_by_its_own_topics_partition_alone() -> None:
    folded = fold_changes(table(change(C, 15, 1), change(C, 15, 1, of=B)))
    known = AppliedBefore(
        {TopicPartition("s.db.a", 0): order(10), TopicPartition("s.db.b", 0): order(20)}
    )

    doubts = find_doubtful(folded, np.array([INSERT, INSERT], np.int8), known)

    assert folded.rows["shard"].to_pylist() == ["db.a", "db.b"]
    assert doubts.tolist() == [False, True]


@pytest.mark.parametrize(
    ("deletes", "expected"),
    [
        pytest.param([], False, id="none"),
        pytest.param([change(D, 4, 1), change(D, 2, 1)], False, id="older"),
        pytest.param([change(D, 4, 1), change(D, 6, 1)], True, id="newer"),
        pytest.param([change(D, 5, 1)], True, id="at its own place"),
        pytest.param([change(D, 5, 1, origin=0)], False, id="at its place, and not live"),
        pytest.param([change(D, 6, 2)], False, id="of another key"),
        pytest.param([change(D, 6, 1, of=B)], False, id="of another shard"),
        pytest.param([change(D, 6, 1, of=FAR)], False, id="of its namesake in another source"),
    ],
)
def test_a_delete_outlives_what_is_not_above_it(deletes: list[Row], expected: bool) -> None:
    folded = fold_changes(table(unique(change(C, 5, 1))))

    gone = find_outlived(folded, pa.Table.from_pylist([unique(row) for row in deletes], CHANGES))

    assert gone.tolist() == [expected]


def test_a_move_that_is_withdrawn_still_deletes_but_no_archived_row() -> None:
    verdicts = np.array([INSERT, MOVE, MOVE, UPDATE, MOVE], np.int8)
    archived = np.array([False, False, False, False, True])

    taken_back = withdraw_inserts(verdicts, np.array([True, True, False, False, True]), archived)

    assert taken_back.tolist() == [NOOP, DELETE, MOVE, UPDATE, NOOP]
    assert verdicts.tolist() == [INSERT, MOVE, MOVE, UPDATE, MOVE]


def test_a_base_is_a_floor_and_of_an_image_only_one_from_before_its_cut() -> None:
    based = Checkpoint("main", 9, bases={A: order(10), B: order(30)})
    of = Table("t", (A, B, THIRD), ("id",))
    cut = datetime(2026, 3, 1, tzinfo=UTC)
    image = Image(cut, 1, 9, (), {A.source: order(20)}, cut, cut)

    assert base_floors(of, based, None) == {A: order(10), B: order(30)}
    assert base_floors(of, based, image) == {A: order(10)}
