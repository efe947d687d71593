"""What came too late for an image is put into a clone of it, and nothing from above its cut."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from structlog.testing import capture_logs

from pipeline.apply.image_export import ImageWriter
from pipeline.apply.landed_state import LandedState
from pipeline.apply.table_format import Mirrors
from pipeline.backfill_state import Backfill
from pipeline.changelog.maintenance import LogMaintenance
from pipeline.delta.reader import open_table
from pipeline.image import Image
from pipeline.model import Op, Order, Origin, Shard
from pipeline.settings import PublishRule
from pipeline.tables.delta.table_format import DeltaMirrors
from pipeline.tables.lake import Lake
from tests.builders.change_log import read_table
from tests.builders.lake import NOW, LocalLake, row
from tests.example_count import examples
from tests.pipeline.apply.test_random_images import (
    CUTS,
    Cut,
    History,
    draw_history,
    finish,
    let_come,
    prove,
)

C, U, D, R, T = Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ, Op.TRUNCATE
CUT = NOW + timedelta(minutes=25)
DAY = "2026-01-01"
REPAIR = int(Origin.REPAIR)
AS_MADE = {1: "day", 2: "old"}


def imaged(folder: Path, *with_it: Mapping[str, Any], how: Any = "pin") -> LocalLake:
    """A lake with an image of two rows, and a change after it; *with_it* landed with its mark."""
    made = LocalLake(folder, publish=(PublishRule("db.*", how=how),))
    made.play([row(C, 10, 1, "old"), row(C, 11, 2, "old")])
    made.end_day(CUT, 50, DAY)
    made.now = CUT
    made.land(row(U, 40, 1, "day"), row(U, 60, 1, "night"), *with_it)
    made.run()
    return made


def late(lake: LocalLake, *rows: Mapping[str, Any]) -> None:
    lake.land(*rows)
    assert lake.apply().hold is None


def another(lake: LocalLake, days: int) -> None:
    """Make the image of so many days later."""
    lake.now = CUT + timedelta(days=days)
    lake.end_day(lake.now, 80, f"2026-01-{1 + days:02}", number=8)
    lake.land(row(U, 75, 1, "then"))
    lake.run()


def count_written(lake: LocalLake) -> int:
    """How many were written by one run."""
    mirrors = Mirrors(lake.settings, DeltaMirrors(None))
    ours = ImageWriter(lake.settings, mirrors, lambda: lake.now)
    return len(ours.run(LandedState(lake.checkpoint, lake.catalog)))


def gate_image(lake: LocalLake) -> Image:
    """The image as the gate sees it."""
    found = Lake(lake.settings, DeltaMirrors(None)).applied("db.t")
    assert found is not None
    (image,) = found.images
    return image


def rows_at(path: str) -> dict[int, Any]:
    found = read_table(path)
    return {one["id"]: one["name"] for one in found.select("SELECT * FROM t")}


def days_at(path: str) -> dict[int, Any]:
    found = ds.dataset(path, format="parquet").to_table().to_pylist()
    return {one["id"]: one["name"] for one in found}


@pytest.mark.parametrize(
    ("with_it", "came", "left"),
    [
        pytest.param([], [row(U, 48, 2, "late")], {1: "day", 2: "late"}, id="a change"),
        pytest.param([], [row(C, 48, 3, "late")], {**AS_MADE, 3: "late"}, id="a row"),
        pytest.param([], [row(D, 48, 2, "old")], {1: "day"}, id="a delete"),
        pytest.param([], [row(T, 49, None)], {}, id="a truncate"),
        pytest.param([], [row(U, 39, 1, "late")], AS_MADE, id="older than what is there"),
        pytest.param(
            [], [row(U, 48, 2, "late"), row(U, 70, 2, "new")], {1: "day", 2: "late"}, id="and newer"
        ),
        pytest.param(
            [row(D, 42, 2, "old")], [row(U, 41, 2, "late")], {1: "day"}, id="deleted since"
        ),
        pytest.param(
            [row(D, 61, 3, "x")],
            [row(C, 48, 3, "late")],
            {**AS_MADE, 3: "late"},
            id="deleted on the next day",
        ),
    ],
)
def test_a_late_change_makes_a_corrected_image(
    tmp_path: Path,
    with_it: Sequence[Mapping[str, Any]],
    came: Sequence[Mapping[str, Any]],
    left: Mapping[int, Any],
) -> None:
    lake = imaged(tmp_path, *with_it)
    assert count_written(lake) == 0, "an image that is pinned stands in its mirror"
    late(lake, *came)
    assert gate_image(lake).left_out

    assert count_written(lake) == 1

    image = gate_image(lake)
    assert (image.left_out, image.revision, image.through) == ((), 1, lake.checkpoint.batch)
    assert image.path.endswith(f"/clones/db/t/{DAY}.r1")
    assert rows_at(image.path) == left
    assert count_written(lake) == 0


def test_each_correction_is_another_table_and_none_is_changed(tmp_path: Path) -> None:
    lake = imaged(tmp_path, how="clone")
    first = count_written(lake), gate_image(lake).path
    late(lake, row(U, 47, 1, "first"))
    second = count_written(lake), gate_image(lake).path
    late(lake, row(U, 48, 2, "second"))
    third = count_written(lake), gate_image(lake).path

    assert [made for made, _ in (first, second, third)] == [1, 1, 1]
    assert [rows_at(path) for _, path in (first, second, third)] == [
        AS_MADE,
        {1: "first", 2: "old"},
        {1: "first", 2: "second"},
    ]
    assert gate_image(lake).revision == 2


@pytest.mark.parametrize("how", ["clone", "parquet"])
def test_two_corrections_of_one_number_are_two(tmp_path: Path, how: str) -> None:
    """A mirror that lost its newest entry learns anew what was late, by then with more beside."""
    lake = imaged(tmp_path / "lake", how=how)
    mirror = Path(lake.settings.mirror("db.t"))
    shutil.copytree(mirror, tmp_path / "before")
    late(lake, row(U, 47, 1, "first"))
    assert count_written(lake) == 1
    shutil.rmtree(mirror)
    shutil.copytree(tmp_path / "before", mirror)
    lake.reopen()
    lake.land(row(U, 48, 2, "second"))
    assert lake.apply().hold is None
    assert gate_image(lake).left_out, "the first correction lacks the second change"

    assert count_written(lake) == 1

    assert gate_image(lake).left_out == ()
    found = rows_at(gate_image(lake).path) if how == "clone" else days_at(gate_image(lake).path)
    assert found == {1: "first", 2: "second"}


def test_a_day_of_parquet_is_replaced_and_its_parts_have_other_names(tmp_path: Path) -> None:
    lake = imaged(tmp_path, how="parquet")
    count_written(lake)
    folder = Path(gate_image(lake).path)
    before = {one.name for one in folder.glob("*.parquet")}
    late(lake, row(U, 48, 2, "late"))
    assert gate_image(lake).left_out, "what stands there is not what it should be"

    assert count_written(lake) == 1

    assert days_at(str(folder)) == {1: "day", 2: "late"}
    assert before.isdisjoint(one.name for one in folder.glob("*.parquet"))
    assert gate_image(lake).left_out == ()
    assert list((tmp_path / "images" / "_staged").iterdir()) == []


AGAIN = row(R, 45, 3, "again", origin=REPAIR)


@pytest.mark.parametrize(
    ("closing", "corrected"),
    [
        pytest.param(None, False, id="nobody knows until when they were read"),
        pytest.param(Order(1, 1, 55), False, id="read over the cut: they may tell of after it"),
        pytest.param(Order(1, 1, 49), True, id="read before the cut"),
    ],
)
def test_rows_that_were_read_again_go_in_only_if_that_ended_below_the_cut(
    tmp_path: Path, closing: Order | None, *, corrected: bool
) -> None:
    lake = imaged(tmp_path)
    if closing is not None:
        again = Backfill("id", Origin.REPAIR, Order(1, 1, 45), "A", 1, closing=closing, done=2)
        lake.checkpoint = replace(lake.checkpoint, backfills={Shard("s", "db.t"): again})
    late(lake, AGAIN)

    with capture_logs() as logs:
        made = count_written(lake)

    assert made == int(corrected)
    assert (gate_image(lake).left_out == ()) is corrected
    assert [one["event"] for one in logs] == ([] if corrected else ["image_unwritten"])


def test_none_is_made_once_days_that_came_after_the_image_are_in_the_log_no_more(
    tmp_path: Path,
) -> None:
    lake = imaged(tmp_path)
    late(lake, row(U, 47, 1, "first"))
    assert count_written(lake) == 1
    days = lake.settings.upkeep.keep_changes + timedelta(days=2)
    lake.received += days
    late(lake, row(U, 48, 2, "second"))
    keeping = LogMaintenance(lake.settings, lake.log, lambda: lake.received)
    keeping.run(lake.checkpoint, lake.checkpoint.tables)
    lake.received += lake.settings.upkeep.vacuum_every
    keeping.run(lake.checkpoint, lake.checkpoint.tables)

    with capture_logs() as logs:
        assert count_written(lake) == 0

    assert "no longer in the change log" in logs[0]["why"]
    assert gate_image(lake).left_out, (
        "a table with the second change, and without the first, is none"
    )


def test_what_is_refused_is_tried_again_later_and_not_in_each_round(tmp_path: Path) -> None:
    lake = imaged(tmp_path)
    late(lake, AGAIN)
    ours = ImageWriter(lake.settings, Mirrors(lake.settings, DeltaMirrors(None)), lambda: lake.now)
    landed = LandedState(lake.checkpoint, lake.catalog)

    with capture_logs() as logs:
        for minutes in (0, 1, 8, 2):
            lake.now += timedelta(minutes=minutes)
            ours.run(landed)

    assert len(logs) == 2


@pytest.mark.parametrize("how", ["parquet", "clone"])
def test_one_that_cannot_be_made_keeps_no_other_from_it(tmp_path: Path, how: str) -> None:
    lake = imaged(tmp_path, how=how)
    another(lake, days=1)
    mirror = DeltaTable(lake.settings.mirror("db.t"))
    newest = set(mirror.file_uris())
    mirror.load_as_version(lake.images()[0].version)
    Path((set(mirror.file_uris()) - newest).pop()).unlink()

    with capture_logs() as logs:
        assert count_written(lake) == 1

    assert [(one["event"], one["day"]) for one in logs] == [("image_unwritten", DAY)]
    assert gate_image(lake).day == "2026-01-02", "the image of the next day"


def test_what_was_killed_between_a_clone_and_its_manifest_is_made_anew(tmp_path: Path) -> None:
    lake = imaged(tmp_path, how="clone")
    count_written(lake)
    Path(f"{gate_image(lake).path}.json").unlink()
    found = Lake(lake.settings, DeltaMirrors(None)).applied("db.t")
    assert found is not None
    assert found.images == (), "nobody is told of it meanwhile"

    assert count_written(lake) == 1
    assert rows_at(gate_image(lake).path) == AS_MADE


def test_clones_that_are_kept_no_longer_go_with_their_corrections(tmp_path: Path) -> None:
    lake = imaged(tmp_path, how="clone")
    count_written(lake)
    late(lake, row(U, 48, 2, "late"))
    count_written(lake)
    folder = tmp_path / "clones" / "db" / "t"
    old = [one.name for one in folder.iterdir()]
    another(lake, days=9)

    count_written(lake)

    assert sorted(old) == [f"{DAY}.r{n}{end}" for n in (0, 1) for end in ("", ".json")]
    assert sorted(one.name for one in folder.iterdir()) == ["2026-01-10.r0", "2026-01-10.r0.json"]


FIRST = {99: "first"}
LONG = timedelta(days=9)


def lied_about(folder: Path, seed: int, how: Any) -> tuple[LocalLake, History, list[Cut]]:
    """A lake to which some of what stands below a cut came after its image was made."""
    lake = LocalLake(folder, publish=(PublishRule("db.*", how=how, hold_back=LONG),))
    random = Random(seed)
    history, cuts = draw_history(lake, random)
    for _ in range(500):
        if history.landed(10**9):
            break
        due, ahead = let_come(lake, cuts)
        lake.land(*history.some(ahead) if random.random() < 0.3 else ())
        liar = random.random() < 0.5
        covered = [one for one in due if liar or history.landed(one.pos)]
        prove(lake, covered)
        lake.run()
    finish(lake, cuts)
    return lake, history, cuts


def read_image(lake: LocalLake, image: Image, how: str) -> dict[int, Any]:
    """What is read as the image, by whoever goes by what it names."""
    if how == "parquet":
        told = ds.dataset(image.path, format="parquet").to_table().to_pylist()
    else:
        at = (image.path, 0) if image.path else (lake.settings.mirror("db.t"), image.version)
        found = open_table(*at)
        assert found is not None
        told = found.select("SELECT * FROM t")
    assert len({one["id"] for one in told}) == len(told), "duplicates"
    return {one["id"]: one["name"] for one in told}


@pytest.mark.parametrize("how", ["pin", "clone", "parquet"])
@pytest.mark.parametrize("seed", range(examples(4, brief=1)))
def test_a_corrected_image_is_what_the_changes_below_its_cut_leave(
    tmp_path: Path, seed: int, how: str
) -> None:
    lake, history, cuts = lied_about(tmp_path, seed, how)
    writing = ImageWriter(lake.settings, Mirrors(lake.settings, DeltaMirrors(None)), lambda: NOW)

    writing.run(LandedState(lake.checkpoint, lake.catalog))

    found = Lake(lake.settings, DeltaMirrors(None)).applied("db.t")
    assert found is not None
    assert [one.left_out for one in found.images] == [()] * CUTS
    assert [read_image(lake, one, how) for one in found.images] == [
        FIRST | history.model(one.pos) for one in cuts
    ]
    assert [len(one.late) for one in found.images] == [len(one.late) for one in lake.images()]


def test_some_of_these_histories_have_images_that_are_to_be_corrected(tmp_path: Path) -> None:
    late = [
        len(image.late)
        for seed in range(4)
        for image in lied_about(tmp_path / str(seed), seed, "pin")[0].images()
    ]

    assert sum(late) > 3
