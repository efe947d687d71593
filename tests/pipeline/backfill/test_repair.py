"""Rows that are named, or meet a condition, are read again: what went is deleted, others stay."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest

from pipeline.apply.mirror import MirrorSide
from pipeline.backfill import runner
from pipeline.backfill.dry_run import MirrorIds
from pipeline.backfill.task import ReadLimits
from pipeline.backfill_state import (
    BackfillRequest,
    BackfillState,
    RowSelection,
    SelectedKey,
    SelectedRange,
)
from pipeline.checkpoint import Checkpoint
from pipeline.errors import ConfigError
from pipeline.model import Op, Order, Origin, Shard, Table
from pipeline.sources.condition import Comparison
from pipeline.sources.row_reader import ROWS, ReadFence, RowsAsked, RowsRead
from tests.pipeline.backfill.test_bootstrap import NAME, Beside, Rows, harness_with_row

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass(eq=False)
class SomeRows(Rows):
    """As ``HeldRows``, without those that are ``gone``; a condition is one on their ids."""

    gone: frozenset[int] = frozenset()

    def read(self, fence: ReadFence, asked: RowsAsked) -> RowsRead:
        if asked.keys:
            self.reads.append(asked)
            wanted = {int(json.loads(key)[0]) for key in asked.keys}
            numbers = [n for n in range(self.count) if n in wanted - self.gone]
            return RowsRead(rows_read(numbers), None, ended=True)
        read = super().read(fence, asked)
        found = [json.loads(text)["id"] for text in read.rows["after"].to_pylist()]
        found = [n for n in found if n < self.count and n not in self.gone and _meets(n, asked)]
        return replace(read, rows=rows_read(found))


def _meets(number: int, asked: RowsAsked) -> bool:
    where = asked.where
    return where is None or (isinstance(where, Comparison) and number >= cast(int, where.value))


def rows_read(numbers: Sequence[int]) -> pa.RecordBatch:
    rows = {
        "key_values": [f'["{n}"]' for n in numbers],
        "after": [json.dumps({"id": n, "name": "again"}) for n in numbers],
    }
    return pa.RecordBatch.from_pydict(rows, ROWS)


@dataclass(eq=False)
class HeldIds:
    """A mirror that holds some ids, merged through a batch."""

    held: Sequence[int] = ()
    batch: int = 1_000
    asked: list[tuple[int, int]] = field(default_factory=list)

    def ids(self, shard: Shard, column: str, span: tuple[int, int], limit: int) -> tuple[int, ...]:
        self.asked.append(span)
        return tuple(n for n in self.held if span[0] <= n < span[1])[:limit]


def keys(*ids: int, shard: str = "") -> tuple[SelectedKey, ...]:
    return tuple(SelectedKey(f'["{one}"]', shard) for one in ids)


def repair(rows: RowSelection) -> BackfillRequest:
    return BackfillRequest("x", "db.t", Origin.REPAIR, rows)


def make(path: Path, wish: BackfillRequest, mirror: HeldIds | None = None) -> Beside:
    rows = SomeRows(50, gone=frozenset({5, 12, 30}))
    held = cast(MirrorSide, mirror or HeldIds())
    return Beside(harness_with_row(path), rows, wishes=(wish,), mirror=held)


def landed_ids(beside: Beside, op: Op) -> list[int]:
    return sorted(int(json.loads(row["key"])[-1]) for row in beside.harness.landed(op))


def until_done(beside: Beside) -> BackfillState:
    state = beside.until_done()
    assert not state.refused, state.why
    return state


def test_rows_that_are_named_are_read_and_those_that_are_gone_are_deleted(tmp_path: Path) -> None:
    beside = make(tmp_path, repair(RowSelection(keys=keys(3, 5, 7, 99))))

    state = until_done(beside)

    assert (landed_ids(beside, Op.READ), landed_ids(beside, Op.DELETE)) == ([3, 7], [5, 99])
    assert state.rows == 4
    rows = [*beside.harness.landed(Op.READ), *beside.harness.landed(Op.DELETE)]
    order = beside.harness.checkpoint.backfills[Shard.parse(NAME)].order.parts
    assert {tuple(row["order"].values()) for row in rows} == {order}
    assert {row["origin"] for row in rows} == {Origin.REPAIR}
    (gone, _) = sorted(beside.harness.landed(Op.DELETE), key=lambda row: str(row["key"]))
    assert (json.loads(gone["before"]), gone["after"]) == ({"id": "5"}, None)


def test_of_ranges_what_the_mirror_has_and_the_source_has_not_is_deleted(tmp_path: Path) -> None:
    mirror = HeldIds([0, 3, 4, 5, 11, 12, 13, 30, 60, 61])
    wished = RowSelection(ranges=(SelectedRange(4, 12), SelectedRange(58, 60)), keys=keys(30))
    beside = make(tmp_path, repair(wished), mirror)

    until_done(beside)

    assert landed_ids(beside, Op.READ) == [4, 6, 7, 8, 9, 10, 11]
    assert landed_ids(beside, Op.DELETE) == [5, 12, 30, 60]
    assert Shard.parse(NAME) not in beside.harness.checkpoint.bases


@pytest.mark.parametrize(
    ("seconds", "batches"),
    [pytest.param(3600.0, 1, id="at once"), pytest.param(-1.0, 5, id="as far as the time goes")],
)
def test_many_short_ranges_are_read_in_few_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, batches: int
) -> None:
    monkeypatch.setattr(runner, "SOME", seconds)
    ranges = tuple(SelectedRange(n, n) for n in range(10, 50, 2))
    beside = make(tmp_path, repair(RowSelection(ranges=ranges)), HeldIds(range(10, 50)))

    until_done(beside)

    rows = [*beside.harness.landed(Op.READ), *beside.harness.landed(Op.DELETE)]
    assert len(rows) == len(ranges) == 4 * runner.AT_ONCE + 4
    assert len({row["batch"] for row in rows}) == batches


@pytest.mark.parametrize("every", [2, 3, 5])
def test_after_kills_nothing_is_missing_or_landed_twice(tmp_path: Path, every: int) -> None:
    wished = RowSelection(ranges=(SelectedRange(0, 20),), keys=keys(*range(21, 60)))
    beside = make(tmp_path, repair(wished), HeldIds(range(100)))

    for number in range(60):
        if beside.round().done is not None:
            break
        if number % every == 1:
            beside.start()

    gone = {5, 12, 30}
    assert landed_ids(beside, Op.READ) == [n for n in range(50) if n not in gone]
    assert landed_ids(beside, Op.DELETE) == [5, 12, 30, *range(50, 60)]


def test_a_mirror_that_is_behind_is_waited_for(tmp_path: Path) -> None:
    """What is still on its way into it would be missed there, and stay for ever."""
    mirror = HeldIds([5], batch=-1)
    beside = make(tmp_path, repair(RowSelection(ranges=(SelectedRange(4, 6),))), mirror)
    for _ in range(8):
        state = beside.round()

    assert "its mirror is merged through batch -1, and must reach 0" in state.why
    assert mirror.asked == []
    mirror.batch = beside.harness.checkpoint.batch
    until_done(beside)
    assert (landed_ids(beside, Op.DELETE), mirror.asked) == ([5], [(4, 7)])


def test_what_begins_anew_asks_the_mirror_anew(tmp_path: Path) -> None:
    mirror = HeldIds([5])
    beside = make(tmp_path, repair(RowSelection(ranges=(SelectedRange(0, 40),))), mirror)
    while not mirror.asked:
        beside.round()
    mirror.held = [5, 30]
    beside.rows.end += 20
    beside.harness.topics.alter("a", beside.rows.end, "name", "note")

    until_done(beside)

    assert 30 in landed_ids(beside, Op.DELETE)


def test_what_is_allowed_is_of_all_shards_together() -> None:
    ids, checkpoint = (
        MirrorIds(lambda _: cast(MirrorSide, HeldIds(range(3)))),
        Checkpoint("main", 5),
    )
    wish = repair(RowSelection(ranges=(SelectedRange(0, 9),), most=5))
    first, second = Shard("a", "db.t"), Shard("b", "db.t")
    table = Table("db.t", (first, second), ("id",))
    fences = Order(1, 1, 10), Order(1, 1, 20)
    for fence in fences:  # the second time it begins anew, which counts once
        assert ids.of(wish, first, table, (0, 9), checkpoint, fence=fence) == (0, 1, 2)

    with pytest.raises(ConfigError, match=r"at least 6 rows of db\.t, more than --most 5"):
        ids.of(wish, second, table, (0, 9), checkpoint, fence=fences[1])


def test_a_shard_of_which_nothing_is_wished_for_is_left_alone(tmp_path: Path) -> None:
    wished = RowSelection(keys=keys(3, shard="b/db.t") + keys(7, shard=NAME))
    beside = make(tmp_path, repair(wished))

    until_done(beside)

    assert landed_ids(beside, Op.READ) == [7]


@pytest.mark.parametrize(
    ("wished", "held", "why"),
    [
        pytest.param(
            RowSelection(ranges=(SelectedRange(0, 40),), most=20),
            range(0),
            "rows of db.t, more than --most 20",
            id="at the source",
        ),
        pytest.param(
            RowSelection(ranges=(SelectedRange(0, 40),), most=20),
            range(41),
            "the request selects at least 21 rows of db.t, more than --most 20; select fewer",
            id="in the mirror",
        ),
    ],
)
def test_more_rows_than_were_allowed_are_refused_with_the_way_out(
    tmp_path: Path, wished: RowSelection, held: Sequence[int], why: str
) -> None:
    beside = make(tmp_path, repair(wished), HeldIds(held))

    for _ in range(20):
        state = beside.round()
        if state.refused:
            break

    assert state.refused
    assert why in state.why


def test_ranges_of_a_key_that_is_not_one_integer_are_refused(tmp_path: Path) -> None:
    beside = make(tmp_path, repair(RowSelection(ranges=(SelectedRange(0, 4),))))
    beside.rows.end += 20
    beside.harness.topics.alter("a", beside.rows.end, "name", key=("name",))

    for _ in range(8):
        state = beside.round()
        if state.refused:
            break

    assert state.why.endswith("so it has no ranges; name the keys (--keys)")


def test_a_replay_reads_what_meets_its_condition_and_shows_the_time_it_was_given(
    tmp_path: Path,
) -> None:
    wish = BackfillRequest("x", "db.t", Origin.REPLAY, RowSelection(where="id >= 40"), NOON)
    beside = make(tmp_path, wish)

    until_done(beside)

    rows = beside.harness.landed(Op.READ)
    assert landed_ids(beside, Op.READ) == list(range(40, 50))
    assert landed_ids(beside, Op.DELETE) == []
    assert {(row["origin"], row["at"]) for row in rows} == {(Origin.REPLAY, NOON)}


def test_a_base_that_was_read_again_stays_one_after_a_repair(tmp_path: Path) -> None:
    """Else live changes below it would be taken for such as a snapshot may have overtaken."""
    beside = make(tmp_path, BackfillRequest("x", "db.t"))
    until_done(beside)
    base = beside.harness.checkpoint.bases[Shard.parse(NAME)]
    beside.wishes = (replace(repair(RowSelection(keys=keys(3))), id="y"),)

    until_done(beside)

    again_read = beside.harness.checkpoint.backfills[Shard.parse(NAME)]
    assert (again_read.id, again_read.base, beside.harness.checkpoint.bases[Shard.parse(NAME)]) == (
        "y",
        base,
        base,
    )
    assert again_read.order > base


def test_rows_are_asked_for_in_parts(tmp_path: Path) -> None:
    beside = make(tmp_path, repair(RowSelection(keys=keys(*range(40)))))
    beside.again.limits = ReadLimits(rows=9, select=4)

    until_done(beside)

    assert {len(one.keys) for one in beside.rows.reads} == {4}
