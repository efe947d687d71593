"""S9: only one shard is probed; a loss in the others is unseen."""

import pytest

from checks.model import Outcome
from checks.probes.range_counts import RangeCounts
from pipeline.model import Op, Shard
from tests.checks.world_fake import ONE, TABLE, TWO, FakeWorld, in_step


def their_rule(world: FakeWorld) -> bool:
    """The seed's: count the first shard on both sides."""
    whole = [(0, 1000)]
    source = world.source("shop").count_ids(ONE, "id", whole)
    return world.mirror(TABLE).count_ids(ONE, "id", whole) < source


@pytest.mark.parametrize("shard", [ONE, TWO])
def test_s09_a_loss_in_any_shard_is_found(shard: Shard) -> None:
    world = FakeWorld()
    world.commit(*[(Op.CREATE, each, id_) for each in (ONE, TWO) for id_ in range(1, 30)])
    world.catch_up()
    del world.copy[shard][7]

    rulings = in_step("range_counts", RangeCounts(), world, 6)

    assert their_rule(world) is (shard is ONE)
    assert rulings[-1].outcome is Outcome.FAIL
    assert rulings[-1].keys == (f"shop/{shard.name}:7",)
