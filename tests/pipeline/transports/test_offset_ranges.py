import numpy as np
import pytest

from pipeline.transports.transport import Cursor, OffsetRange, RangeRead, split_ranges


def cursor(first: int, until: int, *, partition: int = 0, size: int = 0) -> Cursor:
    return Cursor(OffsetRange("t", partition, first, until, size=size), first)


def advance(one: Cursor, offsets: list[int], epochs: list[int] | None = None) -> int:
    return one.advance(np.array(offsets), np.array(epochs or [0] * len(offsets)))


@pytest.mark.parametrize(
    ("came", "kept", "done"),
    [
        pytest.param([[5, 6], [7, 8, 9]], 5, True, id="its last offset is there"),
        pytest.param([[5, 6, 9]], 3, True, id="holes inside are no matter"),
        pytest.param([[5, 6], [12]], 2, True, id="a record beyond says that there is no more"),
        pytest.param([[5, 6, 8, 10, 11]], 3, True, id="what lies beyond is not in the range"),
        pytest.param([[5, 6, 7, 8]], 4, False, id="one short is not done"),
    ],
)
def test_rule_1_a_range_is_done_by_a_record_at_or_beyond_its_last_offset(
    came: list[list[int]], kept: int, done: bool
) -> None:
    one = cursor(5, 10)

    assert sum(advance(one, offsets) for offsets in came) == kept
    assert one.done is done


@pytest.mark.parametrize(
    ("end", "done"),
    [
        pytest.param(9, False, id="a log that has shrunk is no answer"),
        pytest.param(10, True, id="holes up to the end"),
        pytest.param(11, True, id="an end beyond"),
    ],
)
def test_rule_1_a_range_is_done_by_the_partitions_end_only_from_until_on(
    end: int, done: bool
) -> None:
    one = cursor(5, 10)

    one.reach(end)

    assert one.done is done


def test_rule_9_a_range_tells_first_last_count_and_each_change_of_epoch() -> None:
    one = cursor(5, 100)
    assert one.told == RangeRead(one.range)

    advance(one, [7, 8, 9], [1, 1, 3])
    advance(one, [10, 12], [3, 4])
    advance(one, [99, 100, 101], [2, 9, 9])

    assert one.told == RangeRead(one.range, 7, 99, 6, (1, 3, 4, 2))


def test_rule_8_a_range_without_a_record_tells_no_epoch() -> None:
    one = cursor(5, 10)

    advance(one, [10], [7])

    assert one.done
    assert one.told == RangeRead(one.range)


def test_rule_16_ranges_are_assigned_together_up_to_a_number_of_bytes() -> None:
    sizes = [40, 40, 40, 500, 20, 20, 20, 20, 20]
    cursors = [cursor(0, 5, partition=n, size=size) for n, size in enumerate(sizes)]

    groups = list(split_ranges(cursors, 100))

    assert [[c.range.size for c in group] for group in groups] == [
        [40, 40],
        [40],
        [500],
        [20, 20, 20, 20, 20],
    ]


def test_a_range_of_unknown_size_counts_by_its_offsets() -> None:
    few, many = cursor(0, 5), cursor(0, 5_000_000, partition=1)

    assert len(list(split_ranges([few, few, many], 2**20))) == 3
    assert many.range.expected > 2**30


def test_a_partition_stands_once_in_an_assignment_and_empty_ranges_in_none() -> None:
    parts = [cursor(0, 5), cursor(5, 5, partition=1), cursor(5, 9), cursor(0, 3, partition=1)]

    groups = list(split_ranges(parts, 2**30))

    assert [[str(c.range) for c in group] for group in groups] == [
        ["t:0 [0, 5)"],
        ["t:0 [5, 9)", "t:1 [0, 3)"],
    ]
