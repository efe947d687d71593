"""An hour rests only while nothing in it can be other than it was."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.files.layout import UNFINISHED, HourPartition
from pipeline.files.sweep import RestingHours

PART = HourPartition("clicks", "2026_11_23", "12")


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
