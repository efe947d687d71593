from pipeline.landing.span import Span, shared
from pipeline.model import PartitionEnd, TopicPartition

SMALL, LARGE = TopicPartition("shop.a", 0), TopicPartition("shop.a", 1)


def spans(small: int, large: int) -> dict[TopicPartition, Span]:
    return {SMALL: Span(5, PartitionEnd(5 + small)), LARGE: Span(0, PartitionEnd(large))}


def test_what_small_partitions_leave_goes_to_large_ones() -> None:
    taken, capped = shared(spans(10, 1000), 100)

    assert capped
    assert {at: span.size for at, span in taken.items()} == {SMALL: 10, LARGE: 90}
    assert taken[SMALL].first == 5


def test_each_partition_has_a_record_of_its_own_however_small_the_cap() -> None:
    taken, capped = shared(spans(3, 3), 1)

    assert capped
    assert [span.size for span in taken.values()] == [1, 1]


def test_a_cap_that_is_just_enough_cuts_nothing() -> None:
    assert shared(spans(10, 90), 100) == (spans(10, 90), False)
