"""Images of random histories of which a source said too early that all below the cut was sent.

What came late is put into a corrected image: then it is what the changes below the cut leave,
whatever came when.
"""

from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.dataset as ds
import pytest

from pipeline.apply.image_export import ImageWriter
from pipeline.apply.landed_state import LandedState
from pipeline.apply.mirrors import Mirrors
from pipeline.delta.reader import open_table
from pipeline.image import Image
from pipeline.settings import PublishRule
from pipeline.tables.delta.table_format import DeltaMirrors
from pipeline.tables.lake import Lake
from tests.example_count import examples
from tests.pipeline.apply.test_random_images import (
    CUTS,
    Cut,
    History,
    begun,
    finish,
    let_come,
    prove,
)
from tests.pipeline.hand_lake import NOW, HandLake

FIRST = {99: "first"}
LONG = timedelta(days=9)


def lied_about(folder: Path, seed: int, how: Any) -> tuple[HandLake, History, list[Cut]]:
    """A lake to which some of what stands below a cut came after its image was made."""
    lake = HandLake(folder, publish=(PublishRule("db.*", how=how, hold_back=LONG),))
    random = Random(seed)
    history, cuts = begun(lake, random)
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


def rows(lake: HandLake, image: Image, how: str) -> dict[int, Any]:
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
    assert [rows(lake, one, how) for one in found.images] == [
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
