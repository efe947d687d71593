"""Which heartbeats fall when clocks are set back: those since they leapt forward."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.clocks import (
    FIRST_WAIT,
    LONGEST_WAIT,
    ClockReading,
    Retries,
    has_passed,
    in_order,
    is_behind,
    redate,
    step_back,
)
from pipeline.model import Fence
from tests.builders.values import fence
from tests.checks.samples import NOW

SECOND = timedelta(seconds=1)


def fences_at(*seconds: float) -> tuple[Fence, ...]:
    """Heartbeats of these times, numbered from 0."""
    return tuple(fence(n, NOW + one * SECOND) for n, one in enumerate(seconds))


@pytest.mark.parametrize(
    ("seconds", "first"),
    [
        pytest.param([0, 1, 2, 3], None, id="clocks that go on"),
        pytest.param([0, 1, 1], None, id="the same instant twice"),
        pytest.param([], None, id="no history"),
        pytest.param([5, 0], 0, id="the only one before it"),
        pytest.param([0, 1, 2, 723, 724, 5], 3, id="fast by twelve minutes for two beats"),
        pytest.param(
            [0, *range(31, 131), 102], 1, id="fast for longer than the leap: also earlier ones"
        ),
        pytest.param([0, *range(40, 50), *range(110, 115), 55], 11, id="the last leap, as far"),
        pytest.param([0, 200, 201, 305, 306, 203], 3, id="the last of two leaps as far"),
        pytest.param([0, 1, 2, 723, 3], 3, id="as far as to the beat that was due"),
        pytest.param([0, 1, 2, 722, 2], 0, id="not as far as to the beat that was due"),
        pytest.param([0, 1, *range(100, 130), 80], 2, id="a longer silence may hide the leap"),
        pytest.param([0, 1, 2, 3, 4, 5, 2.5], 0, id="fast without a leap: a clock that ran fast"),
    ],
)
def test_f01_those_since_the_leap_forward_fall(seconds: list[float], first: int | None) -> None:
    *history, new = fences_at(*seconds) if seconds else (fence(0, NOW),)

    step = step_back(history, new)

    assert (step and step.first) == first
    if step is not None:
        assert [one.number for one in history if step.fells(one)] == [
            *range(step.first, new.number)
        ]
        assert (step.since, step.before) == (history[step.first].at, history[-1].at)
        assert not step.fells(new)
        assert not any(step.fells(replace(one, source="other")) for one in history)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12))
def test_f01_what_is_left_standing_is_never_later_than_what_came_after(times: list[int]) -> None:
    kept: Sequence[Fence] = ()
    for one in fences_at(*times):
        step = step_back(kept, one)
        kept = (*(old for old in kept if step is None or not step.fells(old)), one)

    assert in_order(kept) == kept
    assert kept[-1].number == len(times) - 1


@given(st.lists(st.integers(0, 9), max_size=12))
def test_f01_of_a_history_in_disorder_none_stands_before_an_earlier_one(times: list[int]) -> None:
    history = fences_at(*times)

    kept = in_order(tuple(reversed(history)))

    assert kept == tuple(
        one for n, one in enumerate(history) if all(one.at <= later.at for later in history[n:])
    )


def test_f01_a_step_waives_and_names_itself() -> None:
    history = fences_at(0, 720, 1)

    step = step_back(history[:2], history[2])

    assert step is not None
    assert (step.id, step.size) == ("clock:shop:2", timedelta(seconds=719))


@pytest.mark.parametrize(
    ("told", "behind"),
    [(0, 0), (2, 0), (-1, 1), (3, -1), (-720, 720)],
)
def test_f01_only_what_no_round_trip_explains_is_skew(told: int, behind: int) -> None:
    found = ClockReading(NOW, NOW + told * SECOND, NOW + 2 * SECOND)

    assert found.skew == behind * SECOND


@pytest.mark.parametrize("told", [-3, -2, -1, 0])
def test_f01_what_our_own_step_back_while_it_answered_explains_is_no_skew(told: int) -> None:
    found = ClockReading(NOW, NOW + told * SECOND, NOW - 2 * SECOND)

    assert found.skew == (3 * SECOND if told == -3 else timedelta())


@pytest.mark.parametrize("told", [-720, 0, 720])
def test_f01_a_heartbeat_bears_the_earlier_of_both_clocks(told: int) -> None:
    found = ClockReading(NOW, NOW + told * SECOND, NOW + SECOND)

    assert found.earlier == NOW + min(told, 0) * SECOND
    assert found.later == NOW + max(told, 0) * SECOND


@pytest.mark.parametrize(
    ("waited", "done"),
    [
        pytest.param(0, False, id="it begins"),
        pytest.param(9, False, id="not yet"),
        pytest.param(10, True, id="just over"),
        pytest.param(-1, True, id="the clock was set back since"),
    ],
)
def test_f01_a_clock_set_back_keeps_nobody_waiting(waited: int, done: bool) -> None:
    now = NOW + timedelta(seconds=waited)

    assert has_passed(NOW, timedelta(seconds=10), now) is done


AT_FIRST = datetime(2026, 1, 2, tzinfo=UTC)


def test_a_table_that_never_failed_is_due() -> None:
    assert Retries().due("t", "as it is", AT_FIRST)


def test_a_table_that_failed_waits_and_no_other_does() -> None:
    retries = Retries()
    retries.failed("t", "as it is", AT_FIRST)

    assert not retries.due("t", "as it is", AT_FIRST + FIRST_WAIT - SECOND)
    assert retries.due("t", "as it is", AT_FIRST + FIRST_WAIT)
    assert retries.due("u", "as it is", AT_FIRST)


def test_it_is_tried_at_once_if_its_cause_may_be_gone() -> None:
    retries = Retries()
    retries.failed("t", ("schema", 1), AT_FIRST)

    assert retries.due("t", ("schema", 2), AT_FIRST)


def test_the_pause_doubles_up_to_a_minute_so_that_nobody_waits_for_long() -> None:
    retries, now, pauses = Retries(), AT_FIRST, []
    for _ in range(8):
        retries.failed("t", "as it is", now)
        pause = SECOND
        while not retries.due("t", "as it is", now + pause):
            pause += SECOND
        pauses.append(pause // SECOND)
        now += pause

    assert pauses == [2, 4, 8, 16, 32, 60, 60, 60]
    assert timedelta(seconds=pauses[-1]) == LONGEST_WAIT


def test_under_other_circumstances_it_begins_with_a_short_pause() -> None:
    retries = Retries()
    for _ in range(5):
        retries.failed("t", "as it was", AT_FIRST)
    retries.failed("t", "as it is", AT_FIRST)

    assert retries.due("t", "as it is", AT_FIRST + FIRST_WAIT)


def test_what_went_well_is_forgotten() -> None:
    retries = Retries()
    for _ in range(5):
        retries.failed("t", "as it is", AT_FIRST)
    retries.succeeded("t")
    retries.succeeded("never failed")

    assert retries.due("t", "as it is", AT_FIRST)
    retries.failed("t", "as it is", AT_FIRST)
    assert retries.due("t", "as it is", AT_FIRST + FIRST_WAIT)


def test_it_tells_for_how_long_a_table_has_failed() -> None:
    retries = Retries()

    failing = [
        retries.failed("t", ("schema", n), AT_FIRST + n * SECOND) // SECOND for n in (0, 3, 90)
    ]
    retries.succeeded("t")

    assert failing == [0, 3, 90]
    assert retries.failed("t", "again", AT_FIRST + 100 * SECOND) == timedelta()


def test_nobody_waits_for_a_clock_that_was_set_back() -> None:
    retries = Retries()
    retries.failed("t", "as it is", AT_FIRST)
    back = AT_FIRST - timedelta(days=1)

    assert retries.due("t", "as it is", back)
    assert retries.failed("t", "as it is", back) == timedelta()
    assert retries.failed("t", "as it is", back + SECOND) == SECOND


def test_instants_of_a_clock_that_was_ahead_become_now_wherever_they_are() -> None:
    now, until = NOW, NOW + timedelta(hours=1)
    early, ahead = NOW - SECOND, NOW + timedelta(minutes=59, microseconds=7)
    later = until + SECOND
    others = ["2020-01-01", "12:30:00", ahead.strftime("%Y-%m-%d %H:%M:%S"), 7, None, True]

    found = redate(
        {"ended": ahead.isoformat(), "spans": [[-9, early.isoformat()], [3, until.isoformat()]]}
        | {ahead.isoformat(): later.isoformat(), "others": others},
        until,
        now,
    )

    assert found == {
        "ended": now.isoformat(),
        "spans": [[-9, early.isoformat()], [3, now.isoformat()]],
        ahead.isoformat(): later.isoformat(),
        "others": others,
    }


def test_a_clock_is_behind_if_a_heartbeat_is_seconds_after_it() -> None:
    fences = fences_at(0, 10)

    assert not is_behind(NOW, ())
    assert not is_behind(NOW + 8 * SECOND, fences)
    assert is_behind(NOW + 7 * SECOND, fences)


def test_what_a_clock_that_was_ahead_claims_is_nothing() -> None:
    """Else it would be younger than it is."""
    now, until = NOW, NOW + timedelta(hours=2)
    ahead, early = (NOW + timedelta(hours=1)).isoformat(), (NOW - SECOND).isoformat()

    found = redate(
        {"ended": ahead, "proof": {"ruled": ahead, "oldest": early}, "spans": [[1, ahead]]},
        until,
        now,
        ("proof", "spans"),
    )

    assert found == {
        "ended": now.isoformat(),
        "proof": {"ruled": None, "oldest": early},
        "spans": [[1, None]],
    }
