"""Numbers that fall, leap or are left out tell what was sent again, twice, or never."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.heartbeats import (
    CALM_HEARTBEATS,
    HeartbeatHistory,
    LandedHeartbeat,
    MissingHeartbeats,
    follow_heartbeats,
)
from pipeline.model import Order


@dataclass(frozen=True)
class Seen:
    trail: HeartbeatHistory
    skipped: tuple[MissingHeartbeats, ...]
    doubtful: tuple[int, ...]


def follow(*numbers: int) -> Seen:
    """One batch a number."""
    trail, skipped, doubtful = None, tuple[MissingHeartbeats, ...](), list[int]()
    for at, number in enumerate(numbers):
        found = follow_heartbeats(trail, [landed_heartbeat(number, at)], at)
        assert found is not None
        trail, skipped = found.trail, (*skipped, *found.skipped)
        doubtful += [at] if found.doubtful else []
    assert trail is not None
    return Seen(trail, skipped, tuple(doubtful))


def landed_heartbeat(number: int, offset: int) -> LandedHeartbeat:
    return LandedHeartbeat(number, "canal", 0, offset, Order(1, 0, offset))


def in_partition(partition: int, beats: Sequence[LandedHeartbeat]) -> list[LandedHeartbeat]:
    return [replace(one, partition=partition) for one in beats]


THRICE = (*range(5), *range(4, 10), *range(8, 15), *range(14, 20))
KILLED = tuple(n for first in range(0, 40, 5) for n in range(first, first + 6))


@pytest.mark.parametrize(
    ("numbers", "resending", "divided"),
    [
        pytest.param((5, 6, 7), False, False, id="one after the other"),
        pytest.param((5, 6, 7, 6), True, False, id="sent again after a kill"),
        pytest.param((5, 6, 7, 6, 7), False, False, id="and come back to where it was"),
        pytest.param((5, 6, 7, 6, 7, 8), False, False, id="and gone on"),
        pytest.param((5, 6, 7, 7, 8), False, False, id="the last one twice"),
        pytest.param((5, 6, 7, 5, 6, 5, 6, 7, 8), False, False, id="killed twice"),
        pytest.param((*THRICE, 20, 21), False, False, id="killed three times, now and then"),
        pytest.param((9, 10, *(8, 9, 10) * 9, 11), False, False, id="again and again at one place"),
        pytest.param(KILLED, False, True, id="killed now and then, and never calm"),
        pytest.param((5, 6, 7, 3, 8), False, True, id="another goes on while one is behind"),
        pytest.param((5, 6, 7, 3, 8, 4), True, True, id="and the one behind, too"),
        pytest.param((5, 5, 6, 6, 7, 7), False, True, id="two side by side"),
    ],
)
def test_falls_and_leaps(numbers: tuple[int, ...], resending: bool, divided: bool) -> None:
    found = follow(*numbers)

    assert (found.trail.resending, found.trail.divided) == (resending, divided)
    assert found.skipped == ()


def test_the_highest_keeps_the_order_it_came_with_first() -> None:
    found = follow(5, 6, 7, 6, 7).trail

    assert (found.highest, found.order, found.last) == (7, Order(1, 0, 2), 7)
    assert (found.raised, found.again, found.over) == (2, 3, 4)


def test_what_came_again_below_the_newest_is_over_once_that_came_again() -> None:
    """It never fell below itself, and what stood between it and the one before came again, too."""
    found = follow(5, 6, 6, 7).trail

    assert not found.resending
    assert (found.raised, found.over) == (3, 2)


def test_two_that_send_are_over_once_one_was_quiet_for_long() -> None:
    two = (5, 6, 7, 3, 8, 4, 9)

    before = follow(*two, *range(10, 10 + CALM_HEARTBEATS - 1)).trail
    after = follow(*two, *range(10, 10 + CALM_HEARTBEATS + 1)).trail

    assert before.divided
    assert not after.divided


@pytest.mark.parametrize(
    ("numbers", "skipped"),
    [
        pytest.param((5, 6, 9), (MissingHeartbeats(7, 9),), id="some"),
        pytest.param((5, 7), (MissingHeartbeats(6, 7),), id="one"),
        pytest.param((9,), (), id="what was before the first is not known"),
        pytest.param((5, 6, 4, 5, 6, 7), (), id="sent again"),
        pytest.param((5, 6, 4, 9), (MissingHeartbeats(7, 9),), id="sent again in part, then some"),
    ],
)
def test_numbers_that_never_came_are_told(
    numbers: tuple[int, ...], skipped: tuple[MissingHeartbeats, ...]
) -> None:
    assert follow(*numbers).skipped == skipped


def test_those_of_one_batch_are_taken_in_the_order_in_which_they_arrived() -> None:
    beats = [
        landed_heartbeat(7, 2),
        landed_heartbeat(5, 0),
        landed_heartbeat(6, 1),
        landed_heartbeat(6, 3),
    ]

    found = follow_heartbeats(None, beats, 0)

    assert found is not None
    assert (found.trail.last, found.trail.highest, found.skipped) == (6, 7, ())
    assert follow_heartbeats(None, [], 0) is None


@pytest.mark.parametrize("later", [1, 3])
def test_heartbeats_that_go_through_another_partition_from_now_on_are_none_that_were_skipped(
    later: int,
) -> None:
    """Their topic got more partitions."""
    before, moved = (
        [landed_heartbeat(6, 90), landed_heartbeat(7, 91)],
        [landed_heartbeat(8, 0), landed_heartbeat(9, 1)],
    )
    trail = HeartbeatHistory(5, Order(1, 0, 89), 5, 0)

    found = follow_heartbeats(trail, [*in_partition(later, moved), *in_partition(2, before)], 1)

    assert found is not None
    assert (found.skipped, found.doubtful, found.trail.resending) == ((), False, False)
    assert found.trail.highest == 9


def test_what_two_have_sent_is_in_doubt_as_of_the_newest_sign_of_it() -> None:
    assert follow(5, 6, 7, 3, 8, 4, 9, 10, 11).doubtful == (4, 5, 6)
    assert follow(5, 5, 6, 6, 7, 7, 8, 9).doubtful == (5,)
    assert follow(5, 6, 7, 6, 7, 8, 9).doubtful == ()


SENDING = st.one_of(
    st.tuples(st.just("log"), st.lists(st.booleans(), min_size=1, max_size=4)),
    st.tuples(st.just("send"), st.integers(1, 8)),
    st.tuples(st.just("land"), st.none()),
    st.tuples(st.just("kill"), st.integers(1, 10)),
)


@given(st.lists(SENDING, max_size=60))
def test_up_to_a_sure_batch_no_row_goes_back_however_often_one_that_sends_is_killed(
    steps: list[tuple[str, Any]],
) -> None:
    """A log of rising values of one row, and heartbeats; who sends it is set back, and goes on."""
    log, place, sent, offset = list[bool](), 0, list[int](), 0
    trail: HeartbeatHistory | None = None
    stands, shown = list[int](), -1  # the row's value after each batch, and the newest one shown
    for step, told in steps:
        if step == "log":
            log += told
        elif step == "kill":
            place = max(0, place - told)
        elif step == "send":
            sent += range(place, min(len(log), place + told))
            place = min(len(log), place + told)
        if step != "land":
            continue
        new, sent = sent, []
        numbers = [sum(log[:at]) for at in new if log[at]]
        found = follow_heartbeats(
            trail, [landed_heartbeat(n, offset + i) for i, n in enumerate(numbers)], len(stands)
        )
        trail, offset = None if found is None else found.trail, offset + len(numbers)
        trail = trail and replace(trail, level=len(stands))
        rows = [at for at in new if not log[at]]
        stands.append(rows[-1] if rows else (stands[-1] if stands else -1))
        if trail is not None and trail.sure is not None and trail.sure >= 0:
            assert stands[trail.sure] >= shown
            shown = stands[trail.sure]
