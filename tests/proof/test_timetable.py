"""A tick that nobody accounts for is named; whatever is accounted for is not."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from monitor.store.ticks import Tick
from tests.proof.timetable import unrecorded

START = datetime(2030, 1, 1, tzinfo=UTC)
EVERY = timedelta(seconds=2)
RESULTS = {"d": "done", "f": "failed", "l": "late", "r": "running", "m": "missed"}


def ticks(sheet: str) -> list[Tick]:
    """One letter a tick; a dot is none at all.

    Missed ones in a row are one record, and so are a tick and those it ran through, as dashes.
    """
    found: list[Tick] = []
    for place, letter in enumerate(sheet):
        at = START + place * EVERY
        if letter == "m" and place and sheet[place - 1] == "m":
            last = found.pop()
            found.append(tick("m", last.planned, at, last.many + 1))
        elif letter == "-":
            last = found.pop()
            found.append(replace(last, until=at, many=last.many + 1))
        elif letter != ".":
            found.append(tick(letter, at, at))
    return found


def tick(letter: str, planned: datetime, until: datetime, many: int = 1) -> Tick:
    return Tick("land", planned, until, many, planned, until, RESULTS[letter], "")


@pytest.mark.parametrize(
    ("sheet", "wrong"),
    [
        pytest.param("ddfld", 0, id="all ran, well or not"),
        pytest.param("dmmmd", 0, id="missed ones are recorded"),
        pytest.param("d-dl--mmf-d", 0, id="some ran through the next ones"),
        pytest.param("dmfmmd", 0, id="an interrupted one between missed ones"),
        pytest.param("dddr", 0, id="the last one still runs"),
        pytest.param("dd.d", 1, id="one left out"),
        pytest.param("d--..d", 1, id="some left out after one that ran through others"),
        pytest.param("d...md", 1, id="several left out before missed ones"),
        pytest.param("drdd", 1, id="one that never ended"),
        pytest.param("", 1, id="a job that never ran"),
    ],
)
def test_every_planned_tick_is_run_failed_or_missed(sheet: str, wrong: int) -> None:
    found = list(unrecorded({"land": ticks(sheet)}, {"land": EVERY}))

    assert len(found) == wrong, found


def test_a_tick_told_twice_is_named() -> None:
    found = list(unrecorded({"land": ticks("dd") + ticks(".d")}, {"land": EVERY}))

    assert len(found) == 1


def test_missed_ticks_that_do_not_add_up_are_named() -> None:
    short = tick("m", START, START + 3 * EVERY, many=3)

    assert len(list(unrecorded({"land": [short]}, {"land": EVERY}))) == 1


def test_a_job_that_nobody_planned_is_named() -> None:
    assert len(list(unrecorded({"land": ticks("d")}, {}))) == 1
