"""S5: `failOnDataLoss=false` and `earliest` make loss invisible; here it is a recorded gap."""

from pipeline.landing.plan import plan_batch
from pipeline.model import PartitionEnd, TopicPartition

TP = TopicPartition("cdc", 0)


def read_on_as_the_seed(wanted: int, first: int) -> int:
    """The offset the seed goes on at: whatever there is, and not a word."""
    return max(wanted, first)


def test_s05_offsets_that_retention_took_are_recorded_not_skipped() -> None:
    w, first, end = 100, 250, 400

    chosen = plan_batch(
        {TP: PartitionEnd(w)}, {TP: PartitionEnd(first)}, {TP: PartitionEnd(end)}, cap=1_000
    )

    assert read_on_as_the_seed(w, first) == 250
    assert [(gap.first, gap.until) for gap in chosen.gaps] == [(100, 250)]


def test_s05_forgetting_a_checkpoint_is_not_possible_for_there_is_none() -> None:
    """W is in the last commit; only a partition nobody has seen starts at its beginning."""
    ends, begins = {TP: PartitionEnd(400)}, {TP: PartitionEnd(0)}

    again = plan_batch({TP: PartitionEnd(400)}, begins, ends, cap=1_000)

    assert not again.spans
