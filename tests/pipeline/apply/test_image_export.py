"""Written images: which are listed, and where rows that went to an archive are."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.apply.image_export import (
    AGAIN,
    FEW,
    FoundImages,
    ImageWriter,
    Manifest,
    WrittenImages,
)
from pipeline.apply.landed_state import LandedState
from pipeline.apply.table_format import Mirrors
from pipeline.archive import ArchiveMarker, ArchiveRule, ArchiveWindow, rules_of
from pipeline.errors import UnreachableError
from pipeline.image import Image
from pipeline.model import Op
from pipeline.settings import PipelineSettings, PublishRule
from pipeline.tables.delta.table_format import DeltaMirrors
from pipeline.tables.lake import Lake
from tests.builders.change_log import read_table
from tests.builders.lake import NOW, LocalLake, row

C, U, D = Op.CREATE, Op.UPDATE, Op.DELETE
DAYS = 30


def image_of_day(day: int, version: int = 1) -> Image:
    cut = NOW + timedelta(days=day)
    until = cut + timedelta(days=90)
    return Image(cut, version, day, (), {}, cut, until, str(cut.date()))


IMAGES = tuple(image_of_day(day) for day in range(DAYS))


@dataclass(eq=False)
class Folders(WrittenImages):
    """Images that stand in folders, by their cuts, and the questions that were asked of them."""

    there: dict[object, Manifest] = field(default_factory=dict)
    asked: list[Image] = field(default_factory=list)
    silent: bool = False

    def manifest(self, table: str, image: Image) -> Manifest | None:
        if self.silent:
            raise UnreachableError("no answer")
        self.asked.append(image)
        return self.there.get(image.cut)

    def put(self, image: Image, mirror: str = "m") -> None:
        told = Manifest("db.t", image.cut, mirror, image.version, 1, 1, NOW, image.until)
        self.there[image.cut] = told

    def questions(self) -> Iterator[Image]:
        yield from self.asked
        self.asked.clear()


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    rules = (PublishRule("db.*", how="parquet"),)
    return Folders(PipelineSettings(str(tmp_path), "", (), publish=rules))


def test_what_was_found_is_not_asked_for_in_each_look(folders: Folders) -> None:
    for one in IMAGES:
        folders.put(one)
    found = FoundImages(folders)

    first = found.of("db.t", IMAGES, "m")
    assert list(folders.questions()) == list(IMAGES[::-1])
    again = [found.of("db.t", IMAGES, "m") for _ in range(AGAIN - 2)]

    assert [one.cut for one in first] == [one.cut for one in IMAGES]
    assert first[0].path.endswith(f"/db/t/dt={IMAGES[0].day}")
    assert all(one == first for one in again)
    assert list(folders.questions()) == []


def test_what_is_not_there_yet_is_asked_for_a_few_at_a_time_until_it_is(folders: Folders) -> None:
    found = FoundImages(folders)
    assert found.of("db.t", IMAGES, "m") == ()
    assert len(list(folders.questions())) == DAYS

    assert found.of("db.t", IMAGES, "m") == ()
    asked = list(folders.questions())
    assert IMAGES[-1] in asked
    assert len(asked) <= FEW + 1

    folders.put(IMAGES[-1])
    assert len(found.of("db.t", IMAGES, "m")) == 1
    for one in IMAGES:
        folders.put(one)
    looks = [found.of("db.t", IMAGES, "m") for _ in range(DAYS)]
    assert len(looks[-1]) == DAYS


def test_one_that_somebody_removes_is_noticed(folders: Folders) -> None:
    for one in IMAGES[:3]:
        folders.put(one)
    found = FoundImages(folders)
    found.of("db.t", IMAGES[:3], "m")

    del folders.there[IMAGES[1].cut]
    looks = [found.of("db.t", IMAGES[:3], "m") for _ in range(3 * AGAIN)]

    assert [len(looks[0]), len(looks[-1])] == [3, 2]


def test_another_version_or_mirror_is_another_image(folders: Folders) -> None:
    folders.put(IMAGES[0])
    found = FoundImages(folders)
    assert len(found.of("db.t", IMAGES[:1], "m")) == 1

    assert found.of("db.t", IMAGES[:1], "rebuilt") == ()
    assert found.of("db.t", [replace(IMAGES[0], version=2)], "m") == ()


def test_a_store_that_does_not_answer_says_so_and_what_it_told_stays(folders: Folders) -> None:
    folders.put(IMAGES[0])
    found = FoundImages(folders)
    folders.silent = True
    with pytest.raises(UnreachableError):
        found.of("db.t", IMAGES[:1], "m")

    folders.silent = False
    assert len(found.of("db.t", IMAGES[:1], "m")) == 1


CUT, HOUR = NOW + timedelta(minutes=25), timedelta(hours=1)
WINDOW = ArchiveWindow(NOW - HOUR, NOW + HOUR, "name", "2026")
TX = {"id": "7"}


def imaged(folder: Path, rule: ArchiveRule, *early: dict[str, Any]) -> LocalLake:
    """An image of rows 1 and 2, which are old, and of 3; *early* rows landed before it."""
    made = LocalLake(folder, publish=(PublishRule("db.*", how="clone"),), archive=(rule,))
    rows = [row(C, 10, 1, "2025"), row(C, 11, 2, "2025"), row(C, 12, 3, "2026")]
    made.play(rows, *([early] if early else []))
    made.end_day(CUT, 50, "2026-01-01")
    made.now = CUT
    made.land(row(U, 60, 3, "2027"))
    made.run()
    return made


def archived_image(lake: LocalLake) -> dict[int, Any]:
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
    table = read_table(one.path)
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

    assert archived_image(lake) == {1: ("2025", "d"), 2: ("2025", "c")}


def test_a_marker_counts_for_a_late_purge_too(tmp_path: Path) -> None:
    lake = imaged(tmp_path, ArchiveRule("db.t", (), (ArchiveMarker("db.runs"),)))
    runs = {"table": "db.runs", "shard": "db.runs", "topic": "s.runs"}
    lake.land(row(D, 40, 1, "2025", tx=TX), row(C, 41, 1, "x", tx=TX) | runs)
    lake.prove(70)
    assert lake.apply().hold is None

    assert archived_image(lake)[1] == ("2025", "d")


def test_a_row_that_took_another_key_is_in_a_correction_once(tmp_path: Path) -> None:
    """Its delete was taken for the archive's when the image was made; its create came too late."""
    lake = imaged(tmp_path, ArchiveRule("db.t", (WINDOW,)), row(D, 40, 1, "2025"))
    lake.land(row(C, 40, 9, "2025"))
    assert lake.apply().hold is None

    assert archived_image(lake) == {2: ("2025", "c"), 3: ("2026", "c"), 9: ("2025", "c")}
