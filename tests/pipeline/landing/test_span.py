from pipeline.landing.plan import Span, shared
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


def test_what_goes_ahead_is_taken_whole_and_the_others_share_what_is_left() -> None:
    schema = TopicPartition("shop", 0)
    given = {**spans(10, 1000), schema: Span(3, PartitionEnd(83))}

    taken, capped = shared(given, 100, {"shop"})

    assert capped
    assert {at: span.size for at, span in taken.items()} == {schema: 80, SMALL: 10, LARGE: 10}


def test_what_goes_ahead_is_cut_by_the_cap_and_leaves_each_of_the_others_a_record() -> None:
    taken, capped = shared(
        spans(10, 1000) | {TopicPartition("b", 0): Span(0, PartitionEnd(9))}, 5, {"b"}
    )

    assert capped
    assert [span.size for span in taken.values()] == [5, 1, 1]


def test_partitions_in_turn_wait_until_those_before_them_are_read_to_their_ends() -> None:
    given = {TopicPartition("h", n): Span(5, PartitionEnd(14 - n)) for n in range(3)}
    other = {LARGE: Span(0, PartitionEnd(4))}

    taken, capped = shared(given | other, 10, in_turn={"h"})
    rest = {at: Span(span.end.offset, given[at].end) for at, span in taken.items() if at in given}
    after, _ = shared(rest, 20, in_turn={"h"})

    assert capped
    assert [taken[at].size for at in (*given, LARGE)] == [3, 0, 0, 2]
    assert [after[at].size for at in given] == [6, 7, 0]


def test_partitions_in_turn_are_read_at_once_where_all_fits() -> None:
    given = {TopicPartition("h", n): Span(5, PartitionEnd(8)) for n in range(3)}

    assert shared(given, 9, in_turn={"h"}) == (given, False)
