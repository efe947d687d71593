"""Images hold what went to an archive, though the purge came too late for them."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.apply.image_export import ImageWriter
from pipeline.apply.landed_state import LandedState
from pipeline.apply.mirrors import Mirrors
from pipeline.archive import ArchiveMarker, ArchiveRule, ArchiveWindow, rules_of
from pipeline.delta.reader import open_table
from pipeline.model import Op
from pipeline.settings import PublishRule
from pipeline.tables.delta.table_format import DeltaMirrors
from pipeline.tables.lake import Lake
from tests.pipeline.hand_lake import NOW, HandLake, row

C, U, D = Op.CREATE, Op.UPDATE, Op.DELETE
CUT, HOUR = NOW + timedelta(minutes=25), timedelta(hours=1)
WINDOW = ArchiveWindow(NOW - HOUR, NOW + HOUR, "name", "2026")
TX = {"id": "7"}


def imaged(folder: Path, rule: ArchiveRule, *early: dict[str, Any]) -> HandLake:
    """An image of rows 1 and 2, which are old, and of 3; *early* rows landed before it."""
    made = HandLake(folder, publish=(PublishRule("db.*", how="clone"),), archive=(rule,))
    rows = [row(C, 10, 1, "2025"), row(C, 11, 2, "2025"), row(C, 12, 3, "2026")]
    made.play(rows, *([early] if early else []))
    made.end_day(CUT, 50, "2026-01-01")
    made.now = CUT
    made.land(row(U, 60, 3, "2027"))
    made.run()
    return made


def image(lake: HandLake) -> dict[int, Any]:
    """Its rows, once it is written, with what they are."""
    rules = rules_of("db.t", lake.archive)
    mirrors = Mirrors(lake.settings, DeltaMirrors(None))
    ImageWriter(lake.settings, mirrors, lambda: lake.now, lambda _: rules).run(
        LandedState(lake.checkpoint, lake.catalog)
    )
    found = Lake(lake.settings, DeltaMirrors(None)).applied("db.t")
    assert found is not None
    (one,) = found.images
    assert one.left_out == ()
    table = open_table(one.path)
    assert table is not None
    return {
        row["id"]: (row["name"], row["_sluice"]["op"]) for row in table.select("SELECT * FROM t")
    }


@pytest.mark.parametrize("late", [False, True], ids=["in time", "too late"])
def test_an_image_holds_what_the_source_and_the_archive_have(tmp_path: Path, late: bool) -> None:
    purge = [row(D, 40, 1, "2025"), row(D, 41, 3, "2026", at=NOW - 2 * HOUR)]
    lake = imaged(tmp_path, ArchiveRule("db.t", (WINDOW,)), *(() if late else purge))
    if late:
        lake.land(*purge)
        assert lake.apply().hold is None

    assert image(lake) == {1: ("2025", "d"), 2: ("2025", "c")}


def test_a_marker_counts_for_a_late_purge_too(tmp_path: Path) -> None:
    lake = imaged(tmp_path, ArchiveRule("db.t", (), (ArchiveMarker("db.runs"),)))
    runs = {"table": "db.runs", "shard": "db.runs", "topic": "s.runs"}
    lake.land(row(D, 40, 1, "2025", tx=TX), row(C, 41, 1, "x", tx=TX) | runs)
    lake.prove(70)
    assert lake.apply().hold is None

    assert image(lake)[1] == ("2025", "d")


def test_a_row_that_took_another_key_is_in_a_correction_once(tmp_path: Path) -> None:
    """Its delete was taken for the archive's when the image was made; its create came too late."""
    lake = imaged(tmp_path, ArchiveRule("db.t", (WINDOW,)), row(D, 40, 1, "2025"))
    lake.land(row(C, 40, 9, "2025"))
    assert lake.apply().hold is None

    assert image(lake) == {2: ("2025", "c"), 3: ("2026", "c"), 9: ("2025", "c")}
