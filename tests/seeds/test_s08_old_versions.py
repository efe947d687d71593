"""S8: VACUUM after an hour with the guard off; long readers and time travel break."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from pipeline.apply.image_export import ImageWriter
from pipeline.apply.landed_state import LandedState
from pipeline.apply.table_format import Mirrors
from pipeline.errors import UnreachableError
from pipeline.image import Image
from pipeline.model import Op
from pipeline.settings import PublishRule
from pipeline.tables.delta.table_format import DeltaMirrors
from pipeline.tables.lake import Lake
from tests.builders.lake import LocalLake, row
from tests.pipeline.apply.keeping import DAY, Keeping, aged, mirror, read

KEEP = timedelta(days=40)
YESTERDAY, IMAGED = {1: "day", 2: "day"}, "2026-01-01"


@pytest.fixture
def lake(tmp_path: Path) -> LocalLake:
    return image_of_yesterday(tmp_path, "pin")


def image_of_yesterday(folder: Path, how: Any) -> LocalLake:
    """An image of which every row has changed since, as of twenty days ago."""
    now = datetime.now(UTC) - timedelta(hours=6)
    made = LocalLake(folder, now=now, publish=(PublishRule("db.*", how=how, keep=KEEP),))
    made.play([row(Op.CREATE, 10, 1, "day"), row(Op.CREATE, 11, 2, "day")])
    made.end_day(made.now + timedelta(minutes=1), 50, IMAGED)
    made.land(row(Op.UPDATE, 60, 1, "night"), row(Op.UPDATE, 61, 2, "night"))
    made.run()
    made.play([row(Op.UPDATE, 70, 1, "now"), row(Op.UPDATE, 71, 2, "now")])
    Keeping(made).run()
    aged(mirror(made), 20 * DAY)
    return made


def test_s08_their_vacuum_takes_what_a_long_reader_still_needs(lake: LocalLake) -> None:
    theirs = DeltaTable(mirror(lake))

    theirs.vacuum(1, dry_run=False, enforce_retention_duration=False)

    with pytest.raises(UnreachableError):
        read(mirror(lake), lake.image().version)


def test_s08_an_image_is_kept_for_as_long_as_it_was_promised(lake: LocalLake) -> None:
    """Longer than versions are: nobody's setting for those shortens what an image was given."""
    version = lake.image().version
    keeping = Keeping(lake)
    keeping.now = datetime.now(UTC)

    keeping.run()

    assert lake.settings.upkeep.keep_versions < 20 * DAY
    assert read(mirror(lake), version) == YESTERDAY


def test_s08_once_it_is_kept_no_longer_its_files_go(lake: LocalLake) -> None:
    version = lake.image().version
    keeping = Keeping(lake)
    keeping.now = datetime.now(UTC) + KEEP

    keeping.run()

    with pytest.raises(UnreachableError):
        read(mirror(lake), version)


def gate_images(lake: LocalLake, how: Any) -> tuple[Image, ...]:
    """What the gate sees once images are to be made *how*."""
    as_now = replace(lake.settings, publish=(PublishRule("db.*", how=how, keep=KEEP),))
    found = Lake(as_now, DeltaMirrors(None)).applied("db.t")
    assert found is not None
    return found.images


def test_s08_of_a_day_that_was_written_out_no_version_of_the_mirror_is_promised(
    tmp_path: Path,
) -> None:
    """That images are pinned from now on brings none back."""
    made = image_of_yesterday(tmp_path, "parquet")
    version = made.image().version
    keeping = Keeping(made)
    keeping.now = datetime.now(UTC)

    keeping.run()

    with pytest.raises(UnreachableError):
        read(mirror(made), version)
    assert gate_images(made, "pin") == ()


def test_s08_a_version_that_was_promised_stays_though_days_are_written_out_by_now(
    lake: LocalLake,
) -> None:
    lake.settings = replace(lake.settings, publish=(PublishRule("db.*", how="parquet", keep=KEEP),))
    keeping = Keeping(lake)
    keeping.now = datetime.now(UTC)

    keeping.run()

    (found,) = gate_images(lake, "pin")
    assert read(mirror(lake), found.version) == YESTERDAY


def test_s08_a_clone_is_read_as_long_as_it_was_promised(tmp_path: Path) -> None:
    """It leans on files that its mirror has left long ago."""
    made = image_of_yesterday(tmp_path, "clone")
    mirrors = Mirrors(made.settings, DeltaMirrors(None))
    (written,) = ImageWriter(made.settings, mirrors, lambda: made.now).run(
        LandedState(made.checkpoint, made.catalog)
    )
    clone = tmp_path / "clones" / "db" / "t" / f"{IMAGED}.r0"
    keeping = Keeping(made)
    keeping.now = datetime.now(UTC)

    keeping.run()

    assert written.rows == len(YESTERDAY)
    assert read(str(clone), 0) == YESTERDAY
