"""Which changes belong in an image, and by which heartbeat."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pipeline.image import IMAGES, DueCut, Image, fence_of, images_in, positions, told_images
from pipeline.mark import Epoch, Mark
from pipeline.model import Acknowledged, Fence, Head, Order
from pipeline.sources.mysql.position import binlog_position

CUT = datetime(2026, 3, 29, 22, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def beat(number: int, after: float, identity: str = "A") -> Fence:
    """A heartbeat so many seconds after the cut; its position is its number."""
    head = Head(identity, binlog_position(3, number * 100))
    return Fence("shop", number, CUT + after * SECOND, head)


def mark(through: int, identity: str = "A") -> Mark:
    position = binlog_position(3, through * 100)
    return Mark(
        "main",
        9,
        acknowledged={"shop": Acknowledged(position)},
        heartbeats={"shop": through},
        epochs={"shop": Epoch(2, identity, position)},
    )


def test_the_cut_stands_where_the_log_ended_after_its_heartbeat() -> None:
    cut = DueCut(CUT, {"shop": beat(7, 0.4)})

    assert positions(cut, ("shop",), mark(7)) == {"shop": Order(2, 3, 700)}


def test_a_fence_of_an_epoch_before_stands_nowhere_though_its_server_has_come_back() -> None:
    """By that place what the other server wrote meanwhile would be below the cut."""
    newest, due = mark(9), DueCut(CUT, {"shop": beat(7, 0)})
    back = replace(newest, epochs={"shop": replace(newest.epochs["shop"], heartbeat=7)})

    assert positions(due, ("shop",), newest) is not None
    assert positions(due, ("shop",), back) is None


@pytest.mark.parametrize(
    ("cut", "landed"),
    [
        pytest.param(DueCut(CUT), mark(7), id="no heartbeat after the cut is written yet"),
        pytest.param(DueCut(CUT, {"shop": beat(7, 0)}), mark(6), id="it has not landed"),
        pytest.param(DueCut(CUT, {"shop": beat(7, 0)}), mark(9, "B"), id="another server is read"),
        pytest.param(DueCut(CUT, {"other": beat(7, 0)}), mark(9), id="it is another source's"),
    ],
)
def test_without_proof_a_cut_stands_nowhere(cut: DueCut, landed: Mark) -> None:
    assert positions(cut, ("shop",), landed) is None


@pytest.mark.parametrize(
    ("fences", "number"),
    [
        pytest.param((beat(1, -1), beat(2, 0), beat(3, 1)), 2, id="the first at or after the cut"),
        pytest.param((beat(1, -1),), None, id="none yet"),
        pytest.param((), None, id="none at all"),
        pytest.param((beat(1, 2), beat(2, -1), beat(3, 1)), 3, id="a clock was fast before"),
        pytest.param((beat(1, 1), beat(2, -1)), None, id="a clock was fast, and it is not time"),
        pytest.param((beat(1, 1), beat(2, 2, "B")), None, id="another server has taken over since"),
        pytest.param((beat(1, -1), beat(2, 2, "B")), 2, id="another had taken over by then"),
        pytest.param(
            (beat(1, 1), beat(2, 2, "B"), beat(3, 3)), None, id="the first one has come back since"
        ),
    ],
)
def test_the_first_heartbeat_after_the_cut_of_the_server_there_is(
    fences: tuple[Fence, ...], number: int | None
) -> None:
    found = fence_of(fences, CUT)

    assert (found and found.number) == number


def test_what_a_mirror_remembers_of_its_images_is_what_was_told() -> None:
    made = Image(CUT, 7, 12, (beat(7, 0),), {"shop": Order(2, 3, 700, 1)}, CUT, CUT + SECOND)
    later = Image(CUT + SECOND, 9, 14, (), {}, CUT, CUT + SECOND)

    told = told_images((later, made))

    assert images_in(told[IMAGES]) == (made, later)
    assert images_in(None) == ()
    assert made.keep == SECOND
    assert [made.held(CUT + SECOND), made.held(CUT + 2 * SECOND)] == [True, False]
