"""S6: an alarm only when the lake has less than the source; ghosts and doubles hide a loss."""

from checks.model import Outcome
from checks.probes.range_counts import RangeCounts
from pipeline.model import Op
from tests.checks.world_fake import ONE, TABLE, TWO, FakeWorld, in_step


def their_rule(source: int, lake: int) -> bool:
    """The seed's alarm."""
    return lake < source


def test_s06_a_ghost_and_a_double_hide_no_loss() -> None:
    world = FakeWorld()
    world.commit(*[(Op.CREATE, shard, id_) for shard in (ONE, TWO) for id_ in range(1, 9)])
    world.catch_up()
    del world.copy[ONE][3]
    world.copy[ONE][99] = 1
    world.copy[TWO][5] = 2

    rulings = in_step("range_counts", RangeCounts(block_rows=4, rotating=9), world, 6)

    source = sum(len(rows) for rows in world.rows.values())
    assert not their_rule(source, world.mirror(TABLE).rows())
    assert rulings[-1].outcome is Outcome.FAIL
    assert set(rulings[-1].keys) == {
        "shop/shop_00.orders:3",
        "shop/shop_00.orders:99",
        "shop/shop_01.orders:5",
    }
