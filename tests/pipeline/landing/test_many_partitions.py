"""A source with thousands of partitions is left out of a batch at the cost of each, once."""

from typing import Any

import pytest

from pipeline.landing.plan import PlanContext, _start, plan
from pipeline.model import PartitionEnd, TopicPartition

MANY = 200


def test_a_held_source_is_left_out_and_each_partition_named_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = {TopicPartition(f"s.db.t{number}", 0): PartitionEnd(9, "x") for number in range(MANY)}
    first = {at: PartitionEnd(0, "x") for at in ends}
    w = {str(at): PartitionEnd(5, "x") for at in ends}
    chosen = plan(w, first, ends, 1_000_000)
    named: list[TopicPartition] = []
    told = TopicPartition.__str__

    def counted(at: TopicPartition) -> str:
        named.append(at)
        return told(at)

    monkeypatch.setattr(TopicPartition, "__str__", counted)

    left = chosen.without(lambda topic: topic.startswith("s."), w, {})

    assert dict(left.spans) == {}
    assert dict(left.offsets) == w
    assert len(named) <= 3 * MANY


def test_partitions_that_rest_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = {TopicPartition(f"s.db.t{n}", 0): PartitionEnd(9, "x", 3) for n in range(MANY)}
    first = {at: PartitionEnd(0, "x") for at in ends}
    w = {str(at): PartitionEnd(9, "x", 3) for at in ends}
    w["s.db.t7:0"] = PartitionEnd(5, "x", 3)
    looked: list[str] = []

    def counted(known: Any, at: TopicPartition, *more: Any) -> Any:
        looked.append(str(at))
        return _start(known, at, *more)

    monkeypatch.setattr("pipeline.landing.plan._start", counted)

    chosen = plan(w, first, ends, 1_000)

    assert looked == [str(at) for at in chosen.spans] == ["s.db.t7:0"]
    assert chosen.offsets == {**w, "s.db.t7:0": PartitionEnd(9, "x", 3)}


@pytest.mark.parametrize(
    ("stood", "end", "epoch_end", "gaps"),
    [
        pytest.param(PartitionEnd(9, "x", 3), PartitionEnd(9, "y", 3), -1, 1, id="another topic"),
        pytest.param(PartitionEnd(9, "x", 3), PartitionEnd(9, "x", 4), 5, 1, id="cut, grown again"),
        pytest.param(PartitionEnd(9, "x", 3), PartitionEnd(9, "x", 4), 9, 0, id="a new leader"),
        pytest.param(PartitionEnd(9, "", 3), PartitionEnd(9, "x", 3), -1, 0, id="an id by now"),
        pytest.param(PartitionEnd(9, "x", 3), PartitionEnd(8, "x", 3), -1, 1, id="it has shrunk"),
    ],
)
def test_one_that_stands_at_its_end_and_is_not_the_same_is_no_resting_one(
    stood: PartitionEnd, end: PartitionEnd, epoch_end: int, gaps: int
) -> None:
    at = TopicPartition("s.db.t", 0)
    known = PlanContext(epoch_ends={at: epoch_end} if epoch_end >= 0 else {}, last={at: stood})

    chosen = plan({str(at): stood}, {at: PartitionEnd(0, "x")}, {at: end}, 100, known=known)

    assert len(chosen.gaps) == gaps
    assert chosen.offsets[str(at)].topic_id == end.topic_id
