from datetime import UTC, datetime

import pytest

from pipeline.landing.plan import plan
from pipeline.model import PartitionEnd, TopicPartition

NOW = datetime(2026, 1, 2, tzinfo=UTC)
A, B = TopicPartition("shop.a", 0), TopicPartition("shop.a", 1)


def end(offset: int, topic_id: str = "id") -> PartitionEnd:
    return PartitionEnd(offset, topic_id)


def test_a_batch_starts_exactly_where_the_last_ended() -> None:
    chosen = plan({"shop.a:0": end(5)}, {A: end(0)}, {A: end(9)}, cap=100)

    assert chosen.spans[A].first == 5
    assert chosen.spans[A].end.offset == 9
    assert chosen.offsets["shop.a:0"].offset == 9
    assert not chosen.gaps
    assert not chosen.capped


def test_a_partition_seen_for_the_first_time_starts_at_its_beginning() -> None:
    chosen = plan({}, {A: end(3)}, {A: end(9)}, cap=100)

    assert chosen.spans[A].first == 3
    assert not chosen.gaps


def test_nothing_new_reads_nothing_and_keeps_w() -> None:
    chosen = plan({"shop.a:0": end(9)}, {A: end(0)}, {A: end(9)}, cap=100)

    assert not chosen.spans
    assert chosen.offsets["shop.a:0"].offset == 9


@pytest.mark.parametrize(
    ("w", "begin", "until", "lost", "word"),
    [
        pytest.param(end(2), end(4), end(9), (2, 4), "deleted", id="retention overtook W"),
        pytest.param(end(9), end(0), end(4), (4, 9), "ends at 4", id="the log is shorter than W"),
        pytest.param(end(3, "old"), end(0), end(9), (3, 3), "anew", id="the topic was re-created"),
    ],
)
def test_offsets_that_cannot_be_read_are_a_gap_with_its_range(
    w: PartitionEnd, begin: PartitionEnd, until: PartitionEnd, lost: tuple[int, int], word: str
) -> None:
    chosen = plan({"shop.a:0": w}, {A: begin}, {A: until}, cap=100)

    (gap,) = chosen.gaps
    assert (gap.first, gap.until) == lost
    assert word in gap.why
    assert gap.id == f"shop.a:0:{lost[0]}"


def test_a_re_created_topic_that_has_grown_past_w_is_still_a_gap() -> None:
    """Offsets alone look fine here; only the topic's id tells."""
    chosen = plan({"shop.a:0": end(3, "old")}, {A: end(0)}, {A: end(99)}, cap=1000)

    assert len(chosen.gaps) == 1
    assert chosen.spans[A].first == 0


def test_a_cap_is_shared_and_what_small_partitions_leave_goes_to_large_ones() -> None:
    chosen = plan({}, {A: end(0), B: end(0)}, {A: end(10), B: end(1000)}, cap=100)

    assert chosen.capped
    assert chosen.spans[A].size == 10
    assert chosen.spans[B].size == 90
    assert chosen.offsets["shop.a:1"].offset == 90
