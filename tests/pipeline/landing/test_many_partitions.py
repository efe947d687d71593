"""A source with thousands of partitions is left out of a batch at the cost of each, once."""

import pytest

from pipeline.landing.loop import _without
from pipeline.landing.plan import plan
from pipeline.mark import Mark
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

    left = _without(chosen, Mark("main", 0, offsets=w), lambda topic: topic.startswith("s."))

    assert dict(left.spans) == {}
    assert dict(left.offsets) == w
    assert len(named) <= 3 * MANY
