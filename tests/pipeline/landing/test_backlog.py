"""More waits than a batch may hold: what lands first?"""

from dataclasses import replace
from pathlib import Path

from pipeline.model import Order
from pipeline.settings import Router, TableRule
from tests.pipeline.landing.desk import Desk


def test_a_table_made_and_filled_during_an_outage_is_born_though_its_rows_fill_a_batch(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path, most=4)
    for pos in range(100, 160, 10):
        desk.topics.say("a", pos, "CREATE VIEW w AS SELECT 1")
    desk.topics.alter("a", 200, "name", kind="CREATE")
    for key in range(9):
        desk.topics.put("a", 210 + key, "new", key=key)

    while desk.loop.land(frozenset()).batch is not None:
        pass

    assert desk.loop.checkpoint.bases["a/db.t"] == Order(1, 7, 200)


def test_a_first_snapshot_lands_in_large_batches_until_a_table_of_tier_0_is_live(
    tmp_path: Path,
) -> None:
    desk, rule = Desk(tmp_path), TableRule(shards=r"db\.t", table="db.t", tier=0)
    desk.loop.settings = replace(desk.settings, rules=(rule,), urgent_rows=3)
    desk.loop.router = Router((rule,))
    desk.topics.snapshot("a", 100, 9)

    snapshot = desk.land()
    desk.topics.snapshot("b", 100, 9)
    other = desk.land()
    for pos in range(200, 209):
        desk.topics.put("a", pos, "live")
    first, second = desk.land(), desk.land()

    assert (snapshot.rows, snapshot.capped, other.rows) == (9, False, 9)
    assert (first.rows, first.capped) == (9, False)  # it shows that the snapshot has ended
    assert "a/db.t" in desk.loop.checkpoint.bases
    assert second.batch is None
    for pos in range(210, 219):
        desk.topics.put("a", pos, "live")
    assert [(one.rows, one.capped) for one in (desk.land(), desk.land())] == [(3, True), (3, True)]


def test_a_table_of_tier_0_without_a_snapshot_is_live_from_its_first_row(tmp_path: Path) -> None:
    desk, rule = Desk(tmp_path), TableRule(shards=r"db\.t", table="db.t", tier=0)
    desk.loop.settings = replace(desk.settings, rules=(rule,), urgent_rows=3)
    desk.loop.router = Router((rule,))
    desk.topics.put("a", 100, "live")
    desk.land()
    for pos in range(200, 209):
        desk.topics.put("a", pos, "live")

    assert desk.land().rows == 3
