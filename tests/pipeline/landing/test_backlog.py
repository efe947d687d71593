"""More waits than a batch may hold: what lands first?  Covers pipeline/landing/loop.py."""

from pathlib import Path

from pipeline.model import Order
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

    assert desk.loop.mark.bases["a/db.t"] == Order(1, 7, 200)
