"""A table whose rows have yet to come waits for its collector, and then says so."""

from datetime import timedelta
from pathlib import Path

from pipeline.apply import merge_plan
from tests.pipeline.apply.renames import SHADOW, C, Renames
from tests.pipeline.hand_lake import row


def test_a_table_that_waits_for_a_silent_collector_says_so(tmp_path: Path) -> None:
    lake = Renames(tmp_path)
    lake.begin()
    lake.lake.apply()
    lake.lake.land(*SHADOW)
    lake.swap()
    lake.sent(100)
    lake.lake.land(row(C, 111, 5, "five"))
    short = merge_plan.PATIENCE - timedelta(minutes=10, seconds=1)

    at_first = [turn.hold for turn in lake.lake.run() if turn.table == "db.t"]
    lake.lake.now += short
    soon = [turn.hold for turn in lake.lake.run() if turn.table == "db.t"]
    late = lake.apply().hold
    lake.sent(101)
    lake.lake.land(row(C, 112, 6, "six"))

    assert (at_first, soon) == ([], [])
    assert late is not None
    assert late.reason == "unacknowledged"
    assert "s: db.t was renamed or dropped at" in late.detail
    assert lake.apply().hold is None
    assert lake.lake.rows() == {1: "changed", 3: "three", 5: "five", 6: "six"}
