"""S7: ranges are counted once, at the moving edge; a low id that commits late is never counted."""

from dataclasses import dataclass

from checks.model import NotYet, Outcome
from checks.probes.range_counts import RangeCounts
from checks.run import Check, run_probe
from pipeline.model import Op
from tests.checks.world_fake import ONE, TABLE, FakeWorld


@dataclass
class TheirMonitor:
    """The seed's: count [edge, newest] on both sides, then move the edge up."""

    edge: int = 0

    def alarms(self, world: FakeWorld) -> bool:
        newest = max(world.rows[ONE])
        span = [(self.edge, newest + 1)]
        self.edge = newest + 1
        source = world.source("shop").count_ids(ONE, "id", span)
        return world.mirror(TABLE).count_ids(ONE, "id", span) < source


def test_s07_a_low_id_that_commits_late_and_is_lost_is_found() -> None:
    world = FakeWorld()
    world.commit(*[(Op.CREATE, ONE, id_) for id_ in range(1, 200) if id_ != 20])
    world.catch_up()
    probe = RangeCounts(block_rows=8, newest=1, rotating=2)
    check = Check("range_counts", probe, TABLE)
    theirs, alarmed, found = TheirMonitor(), False, []

    for step in range(60):
        if step == 2:
            world.rows[ONE].add(20)  # begun first, committed now, and its event is lost
        world.commit((Op.CREATE, ONE, 200 + step))
        world.catch_up()
        alarmed = alarmed or theirs.alarms(world)
        answer = run_probe(check, world)
        if not isinstance(answer, NotYet) and answer.ruling.outcome is Outcome.FAIL:
            found.append(answer.ruling.keys)

    assert not alarmed
    assert found
    assert set(found) == {("shop/shop_00.orders:20",)}
