"""Odd names and links never stop a sweep, and an hour rests only while nothing in it can change."""

import os
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.errors import UnreachableError
from pipeline.files import sweep
from pipeline.files.layout import UNFINISHED, HourPartition
from pipeline.files.sweep import (
    NO_TEXT,
    RestingHours,
    find_strays,
    hash_partition,
    list_files,
    list_folders,
)

PART = HourPartition("clicks", "2026_11_23", "12")


@pytest.fixture
def hour(tmp_path: Path) -> Path:
    made = tmp_path / PART.path
    made.mkdir(parents=True)
    return made


def list_names(base: Path) -> list[str]:
    return sorted(one.name for one in list_files(base, PART, UNFINISHED))


def test_files_have_any_name_that_is_text(tmp_path: Path, hour: Path) -> None:
    odd = ["a b.json", "b\nc.json", "d'e\"f.json", "\U0001f600.json"]
    for name in odd:
        (hour / name).touch()
    (hour / "g.json.tmp").touch()
    (hour / "folder.json").mkdir()

    assert list_names(tmp_path) == sorted(odd)
    assert all(one.why == "" for one in list_files(tmp_path, PART, UNFINISHED))


def test_a_name_that_is_no_text_is_told(tmp_path: Path, hour: Path) -> None:
    Path(os.fsdecode(os.fsencode(hour) + b"/\xff.json")).touch()

    (one,) = list_files(tmp_path, PART, UNFINISHED)

    assert (one.path, one.why) == (f"{PART.path}/\\xff.json", f"it has {NO_TEXT}")


def test_a_folder_whose_name_is_no_text_is_refused(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).mkdir()

    with pytest.raises(UnreachableError, match=r"folder b'\\xff' in .* no UTF-8; rename it"):
        list_folders(tmp_path)


def test_links_are_followed_but_for_those_that_lead_nowhere(tmp_path: Path, hour: Path) -> None:
    (hour / "a.json").touch()
    (hour / "link.json").symlink_to("a.json")
    for at in (hour / "round.json", tmp_path / "round"):
        at.symlink_to(at.name)
    for at in (hour / "gone.json", tmp_path / "gone"):
        at.symlink_to("nothing")
    (tmp_path / "other").symlink_to("clicks")

    assert list_names(tmp_path) == ["a.json", "link.json"]
    assert list_folders(tmp_path) == ["clicks", "other"]


def test_what_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert list_folders(tmp_path / "gone") == []
    assert list(list_files(tmp_path / "gone", PART, UNFINISHED)) == []


def test_a_footprint_is_another_once_any_file_is(tmp_path: Path, hour: Path) -> None:
    path, seen = hour / "a.json", [digest(tmp_path)]
    path.write_text("1")
    seen.append(digest(tmp_path))
    with path.open("a") as file:
        file.write("2")
    seen.append(digest(tmp_path))
    path.rename(hour / "b.json")
    seen.append(digest(tmp_path))
    (hour / "c.json").touch()
    seen.append(digest(tmp_path))

    (hour / "d.json.tmp").touch()  # no file yet
    assert digest(tmp_path) == seen[-1]
    assert len({*seen}) == len(seen)


def test_many_files_are_digested_with_pauses(
    tmp_path: Path, hour: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        (hour / f"{number}.json").touch()
    whole = digest(tmp_path)
    monkeypatch.setattr(sweep, "PAUSE", 2)

    assert len(list(hash_partition(tmp_path, PART, UNFINISHED))) == 2
    assert digest(tmp_path) == whole


def digest(base: Path) -> bytes:
    found = list[bytes]()

    def asked() -> Generator[None, None, None]:
        found.append((yield from hash_partition(base, PART, UNFINISHED)))

    list(asked())
    return found[0]


def test_files_and_folders_where_no_hour_is_are_told(tmp_path: Path) -> None:
    for good in ("clicks/2026_11_23/05", "views/2026_11_23/23", "views/_staging/x", "lost+found"):
        (tmp_path / good).mkdir(parents=True)
    for odd in ("clicks/2026-11-23/05", "clicks/2026_11_23/5", "clicks/2026_02_30", "views/24"):
        (tmp_path / odd).mkdir(parents=True)
    for file in ("a.json", "clicks/b.json", "views/2026_11_23/c.json", "clicks/2026_11_23/05/d"):
        (tmp_path / file).touch()

    assert list(find_strays(tmp_path, UNFINISHED)) == [
        "a.json",
        "clicks/2026-11-23",
        "clicks/2026_02_30",
        "clicks/2026_11_23/5",
        "clicks/b.json",
        "views/2026_11_23/c.json",
        "views/24",
    ]
    assert list(find_strays(tmp_path / "none", UNFINISHED)) == []


def test_a_name_that_is_no_text_can_be_told(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).touch()

    assert list(find_strays(tmp_path, UNFINISHED)) == ["\\xff"]


@dataclass(eq=False)
class Watch:
    """A clock that is moved."""

    at: float = 0.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def hours(tmp_path: Path, watch: Watch) -> RestingHours:
    (tmp_path / PART.path).mkdir(parents=True)
    return RestingHours(tmp_path, UNFINISHED, watch)


def test_a_folder_is_quiet_after_two_looks_some_time_apart(
    hours: RestingHours, watch: Watch
) -> None:
    found = list[bool]()
    for after in (0, 1, 1.5, 0):
        watch.at += after
        changed = hours.changed(PART)
        found.append(hours.is_quiet(PART, changed))
        hours.looked(PART, changed, b"")

    assert found == [False, False, False, True]
    assert not hours.is_quiet(PART, changed + 1)


def test_an_hour_is_as_it_was_by_the_footprint_with_which_all_was_taken(
    hours: RestingHours,
) -> None:
    assert not hours.is_as_it_was(PART, b"x")

    hours.looked(PART, 1, b"x")
    assert hours.is_as_it_was(PART, b"x")
    assert not hours.is_as_it_was(PART, b"y")

    hours.looked(PART, 1, b"")
    assert not hours.is_as_it_was(PART, b"x")


def test_what_is_not_there_any_more_is_forgotten(hours: RestingHours) -> None:
    hours.looked(PART, 7, b"x")
    assert hours.left(PART) == 7
    assert hours.left(PART) is None

    hours.looked(PART, 7, b"x")
    hours.forget_others({PART.path})
    assert hours.is_as_it_was(PART, b"x")
    hours.forget_others(set())
    assert not hours.is_as_it_was(PART, b"x")
