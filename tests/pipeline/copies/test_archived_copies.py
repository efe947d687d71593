"""A copy holds what its mirror holds: rows that went to an archive, too."""

from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.apply.test_archived import NEW, OLD, RULE, C, D, T, U
from tests.pipeline.copies.copied import Copied
from tests.pipeline.hand_lake import HandLake, row
from tests.toy.copy import FileCopy


@pytest.fixture
def copied(tmp_path: Path) -> Copied:
    lake = HandLake(tmp_path / "lake", archive=RULE)
    made = Copied(lake, FileCopy(str(tmp_path / "copy.json")))
    made.play(row(C, 10, 1, OLD), row(C, 11, 2, OLD), row(C, 12, 3, NEW))
    return made


def held(copied: Copied) -> dict[int, Any]:
    assert isinstance(copied.copy, FileCopy)
    return {int(one["id"]): one.get("name") for one in copied.copy.rows("db.t").values()}


def test_a_copy_keeps_what_went_to_an_archive(copied: Copied) -> None:
    copied.play(row(D, 20, 1, OLD), row(D, 21, 3, NEW))
    assert held(copied) == copied.lake.rows() == {1: OLD, 2: OLD}

    copied.play(row(T, 30, None))
    assert held(copied) == copied.lake.rows() == {1: OLD}

    copied.play(row(C, 40, 1, "back"), row(U, 41, 1, "again"))
    assert held(copied) == copied.lake.rows() == {1: "again"}
    copied.play(row(D, 50, 1, NEW))
    assert held(copied) == copied.lake.rows() == {}


def test_a_copy_that_is_loaded_later_has_them_too(tmp_path: Path, copied: Copied) -> None:
    copied.play(row(D, 20, 1, OLD), row(C, 21, 7, OLD), row(D, 22, 7, OLD))

    other = Copied(copied.lake, FileCopy(str(tmp_path / "other.json")))
    other.bring()

    assert held(other) == held(copied) == copied.lake.rows() == {1: OLD, 2: OLD, 3: NEW, 7: OLD}


def test_a_kept_row_that_had_only_taken_another_key_goes_again(copied: Copied) -> None:
    copied.play(row(D, 20, 1, OLD))
    assert held(copied)[1] == OLD

    copied.play(row(C, 20, 7, OLD))

    assert held(copied) == copied.lake.rows() == {2: OLD, 3: NEW, 7: OLD}
