"""Epochs by offset: as steps, they say what the starts say one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.checkpoint import Epoch, EpochStart
from pipeline.landing.epochs import (
    EpochBounds,
    find_epoch_bounds,
    find_needed_starts,
    newest_starts,
)
from pipeline.model import PartitionEnd, TopicPartition
from pipeline.sources.mysql.position import binlog_position

TP, OTHER = TopicPartition("s.db.t", 0), TopicPartition("s.db.t", 1)
STARTS = st.dictionaries(st.integers(2, 6), st.integers(0, 12))


def epoch_starts(starts: dict[int, int]) -> dict[EpochStart, int]:
    return {EpochStart("s", number, TP): start for number, start in starts.items()}


def rule(newest: int, starts: dict[int, int], offset: int) -> int:
    """From the newest epoch down: what stands before a start belongs to an epoch before it."""
    chosen = newest
    for number in range(newest, 1, -1):
        if offset < starts.get(number, 0):
            chosen = number - 1
    return chosen


@given(st.integers(1, 6), STARTS)
def test_each_offset_has_the_epoch_that_the_starts_give_it(
    newest: int, starts: dict[int, int]
) -> None:
    found = find_epoch_bounds(
        "s", [TP], {"s": Epoch(newest, "uuid", binlog_position(1, 1))}, epoch_starts(starts)
    )[TP]

    expected = [rule(newest, starts, offset) for offset in range(14)]
    assert [found.at(offset) for offset in range(14)] == expected
    assert found.epochs(np.arange(14)).tolist() == expected
    firsts = [first for first, _ in found.steps]
    assert firsts == sorted(set(firsts)), "no step is of no offset"


@given(st.integers(1, 6), STARTS, st.integers(0, 13))
def test_f38_starts_that_w_has_passed_are_dropped_and_no_row_to_come_changes_its_epoch(
    newest: int, starts: dict[int, int], w: int
) -> None:
    left = find_needed_starts(epoch_starts(starts), {TP: PartitionEnd(w)})

    known = {"s": Epoch(newest, "uuid", binlog_position(1, 1))}
    offsets = np.arange(w, 16)
    before, after = (
        find_epoch_bounds("s", [TP], known, some)[TP] for some in (epoch_starts(starts), left)
    )
    assert before.epochs(offsets).tolist() == after.epochs(offsets).tolist()
    assert all(start > w for start in left.values())


def test_a_source_never_reached_is_in_its_first_epoch() -> None:
    assert find_epoch_bounds("s", [TP], {}, {}) == {TP: EpochBounds(((0, 1),))}


def test_a_partition_that_began_anew_knows_nothing_of_starts_before() -> None:
    known, starts = {"s": Epoch(2, "uuid", binlog_position(1, 1))}, epoch_starts({2: 50})

    assert find_epoch_bounds("s", [TP], known, starts)[TP].steps == ((0, 1), (50, 2))
    assert find_epoch_bounds("s", [TP], known, starts, renewed={TP})[TP].steps == ((0, 2),)
    assert find_needed_starts(starts, {TP: PartitionEnd(3)}, renewed={TP}) == {}


@pytest.mark.parametrize(
    ("w", "kept", "left"),
    [
        pytest.param({TP: PartitionEnd(49)}, set(), True, id="one offset of the old to come"),
        pytest.param({TP: PartitionEnd(50)}, set(), False, id="all of the old is landed"),
        pytest.param({}, set(), True, id="nothing of it is landed"),
        pytest.param({TP: PartitionEnd(50)}, {("s", 2)}, True, id="asked to be kept"),
        pytest.param({TP: PartitionEnd(50)}, {("s", 3)}, False, id="another epoch's is kept"),
    ],
)
def test_how_long_a_start_is_kept(
    w: dict[TopicPartition, PartitionEnd], kept: set[tuple[str, int]], left: bool
) -> None:
    assert bool(find_needed_starts(epoch_starts({2: 50}), w, kept=kept)) is left


def test_the_newest_epochs_starts_by_partition() -> None:
    others = {EpochStart("s", 2, OTHER): 7, EpochStart("b", 3, TopicPartition("b.t", 0)): 1}
    starts = epoch_starts({2: 5, 3: 9}) | others
    known = {
        "s": Epoch(3, "uuid", binlog_position(1, 1)),
        "b": Epoch(4, "uuid", binlog_position(1, 1)),
    }

    assert newest_starts(known, starts) == {TP: 9}
