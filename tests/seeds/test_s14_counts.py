"""S14: partitioned by one clock and checked by another, rows of midnight count on two days."""

from collections import Counter
from datetime import datetime, timedelta

from checks.model import Outcome
from checks.probes.day_counts import DayCounts
from pipeline.model import Op
from tests.checks.world_fake import ONE, START, TWO, FakeWorld, in_step

MIDNIGHT = START.replace(tzinfo=None)
SECOND, DAY = timedelta(seconds=1), timedelta(days=1)
CREATED = [MIDNIGHT - SECOND * ago for ago in (3600, 60, 1)]
EXECUTED = [at + SECOND * 2 for at in CREATED]  # the last one after midnight
BY = DayCounts(columns=("created", "executed"), days=2)


def counted_world() -> FakeWorld:
    """Three rows of yesterday, the last of which was committed today; it is tomorrow noon."""
    made = FakeWorld()
    for shard in (ONE, TWO):
        made.alter(shard, created="datetime", executed="datetime")
    for number, times in enumerate(zip(CREATED, EXECUTED, strict=True), 1):
        made.values[number] = dict(zip(("created", "executed"), times, strict=True))
        made.commit((Op.CREATE, ONE, number))
    made.tick(DAY + DAY / 2)
    made.catch_up()
    return made


def their_days(times: list[datetime]) -> Counter[object]:
    """Rows of each day: in the lake by `executeTime`, at the source by `createTime`."""
    return Counter(at.date() for at in times)


def test_s14_a_row_of_midnight_is_of_its_day_on_both_sides() -> None:
    assert their_days(EXECUTED) != their_days(CREATED), "the seed misses a row, and merges again"

    (*_, ruling) = in_step("day_counts", BY, counted_world(), 3)

    assert ruling.outcome is Outcome.PASS
    assert ruling.reason == "3 rows of 2 days are on both sides"


def test_s14_a_row_of_midnight_that_is_lost_is_missed_on_both_of_its_days() -> None:
    made = counted_world()
    del made.copy[ONE][3]

    (*_, ruling) = in_step("day_counts", BY, made, 4)

    assert ruling.outcome is Outcome.FAIL
    assert ruling.keys == (
        "shop/shop_00.orders:created=2026-03-01",
        "shop/shop_00.orders:executed=2026-03-02",
    )
