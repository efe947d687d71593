"""A look asks for what it does not know; what is no longer there is noticed all the same."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from pipeline.apply.image_export import AGAIN, FEW, FoundImages, Manifest, WrittenImages
from pipeline.errors import UnreachableError
from pipeline.image import Image
from pipeline.settings import PipelineSettings, PublishRule
from tests.pipeline.hand_lake import NOW

DAYS = 30


def image(day: int, version: int = 1) -> Image:
    cut = NOW + timedelta(days=day)
    until = cut + timedelta(days=90)
    return Image(cut, version, day, (), {}, cut, until, str(cut.date()))


IMAGES = tuple(image(day) for day in range(DAYS))


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
