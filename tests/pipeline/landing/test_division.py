import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import UnreachableError
from pipeline.landing.plan import LEAST, Span, epochs_read, single_reader_sources, split_tasks
from pipeline.model import PartitionEnd, TopicPartition
from pipeline.transports.transport import OffsetRange, RangeRead


def spans(*sizes: int) -> dict[TopicPartition, Span]:
    return {
        TopicPartition("t", number): Span(7, PartitionEnd(7 + size), epoch=3)
        for number, size in enumerate(sizes)
        if size
    }


@given(st.lists(st.integers(0, 4 * LEAST), max_size=6), st.integers(1, 8))
def test_every_offset_is_in_exactly_one_task(sizes: list[int], most: int) -> None:
    wanted = spans(*sizes)

    tasks = split_tasks(wanted, most)

    found = dict.fromkeys(wanted, 7)
    for one in (one for task in tasks for one in task):
        at = TopicPartition(one.topic, one.partition)
        assert one.first == found[at] < one.until
        found[at] = one.until
    assert found == {at: span.end.offset for at, span in wanted.items()}
    assert len(tasks) <= most


def test_tasks_are_of_about_one_size() -> None:
    tasks = split_tasks(spans(LEAST * 6, LEAST, LEAST), 4)

    assert [sum(one.until - one.first for one in task) for task in tasks] == [2 * LEAST] * 4


def test_a_source_that_two_tasks_read_is_read_alone_by_none() -> None:
    parts = [[OffsetRange("a", 0, 0, 5), OffsetRange("b", 0, 0, 5)], [OffsetRange("a", 0, 5, 9)]]

    assert single_reader_sources(parts, {"a": "shop", "b": "till"}) == {"till"}


def test_a_small_batch_is_one_task() -> None:
    assert len(split_tasks(spans(10, 10, 10), 8)) == 1


def test_only_the_first_range_of_a_partition_is_sought_with_the_epoch_of_what_was_read() -> None:
    (first,), (second,) = split_tasks(spans(2 * LEAST), 2)

    assert (first.leader_epoch, second.leader_epoch) == (3, -1)


def read(first: int, until: int, told: tuple[int, int] | None, *epochs: int) -> RangeRead:
    asked = OffsetRange("t", 0, first, until)
    if told is None:
        return RangeRead(asked)
    return RangeRead(asked, told[0], told[1], 1, epochs)


def test_the_epoch_of_the_last_record_is_kept_and_an_empty_range_changes_nothing() -> None:
    told = [read(10, 20, (10, 19), 5, 6), read(0, 10, (0, 9), 4, 5), read(20, 30, None)]

    assert epochs_read(told) == {TopicPartition("t", 0): 6}
    assert epochs_read([read(0, 10, None)]) == {}


@pytest.mark.parametrize(
    "told",
    [
        pytest.param([read(0, 10, (0, 10), 1)], id="an offset beyond the range"),
        pytest.param([read(5, 10, (4, 9), 1)], id="an offset before the range"),
        pytest.param([read(0, 10, (0, 9), 2, 1)], id="epochs fall within a range"),
        pytest.param([read(0, 9, (0, 8), 2), read(9, 10, (9, 9), 1)], id="from range to range"),
    ],
)
def test_what_is_no_stretch_of_one_log_is_refused(told: list[RangeRead]) -> None:
    with pytest.raises(UnreachableError, match="t:0"):
        epochs_read(told)
