from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.outbox import (
    FIRST_PAUSE,
    LONGEST_ASKED_PAUSE,
    LONGEST_PAUSE,
    ChannelHealth,
    QueuedMessage,
    health_after_failure,
    health_after_refusal,
    health_after_success,
    plan_sendings,
)
from tests.alerts.kit import at, message, minutes


def letters(count: int) -> list[QueuedMessage]:
    return [QueuedMessage(number, "slack", message(number), at(0)) for number in range(count)]


@pytest.mark.parametrize(
    ("waiting", "before", "sizes"),
    [
        pytest.param(0, 0, [], id="nothing waits"),
        pytest.param(3, 0, [1, 1, 1], id="each on its own"),
        pytest.param(5, 0, [1, 1, 1, 1, 1], id="just the rate"),
        pytest.param(9, 0, [1, 1, 1, 1, 5], id="what is more is a digest"),
        pytest.param(9, 4, [9], id="one sending left takes all"),
        pytest.param(9, 5, [], id="no sending left"),
        pytest.param(9, 7, [], id="a rate that was lowered"),
    ],
)
def test_at_five_a_minute(waiting: int, before: int, sizes: list[int]) -> None:
    standing = ChannelHealth(sent=(at(0),) * before)

    planned = plan_sendings(letters(waiting), standing, 5, at(0.5))

    assert [len(group) for group in planned] == sizes


def test_sendings_of_more_than_a_minute_ago_do_not_count() -> None:
    standing = ChannelHealth(sent=(at(0),) * 5)

    assert len(plan_sendings(letters(2), standing, 5, at(1))) == 2


def test_failures_double_the_pause_up_to_ten_minutes() -> None:
    standing, pauses = ChannelHealth(), []
    for _ in range(12):
        standing = health_after_failure(standing, "down", at(0))
        assert standing.not_before is not None
        pauses.append(standing.not_before - at(0))

    assert pauses[:4] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE, 8 * FIRST_PAUSE]
    assert max(pauses) == LONGEST_PAUSE


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(minutes(3), minutes(3), id="what the receiver asks for"),
        pytest.param(minutes(0), FIRST_PAUSE, id="never less than our own"),
        pytest.param(minutes(60 * 24), LONGEST_ASKED_PAUSE, id="never for ever"),
    ],
)
def test_a_receiver_may_ask_for_a_longer_pause(asked, expected) -> None:  # type: ignore[no-untyped-def]
    assert (
        health_after_failure(ChannelHealth(), "busy", at(0), asked).not_before == at(0) + expected
    )


def test_in_a_pause_nothing_is_sent_and_after_it_all_is() -> None:
    standing = health_after_failure(ChannelHealth(), "down", at(0), minutes(2))

    assert plan_sendings(letters(1), standing, 5, at(1.9)) == ()
    assert len(plan_sendings(letters(1), standing, 5, at(2))) == 1


def test_a_pause_that_a_fast_clock_began_keeps_nothing_back_once_that_is_set_right() -> None:
    down = health_after_failure(ChannelHealth(), "down", at(600), LONGEST_ASKED_PAUSE)

    assert plan_sendings(letters(1), down, 5, at(599)) != ()
    assert plan_sendings(letters(1), down, 5, at(600)) == ()


def test_a_success_ends_the_pauses() -> None:
    standing = health_after_failure(
        health_after_failure(ChannelHealth(), "down", at(0)), "down", at(1)
    )

    after = health_after_success(standing, at(2))

    assert (after.failures, after.not_before, after.why) == (0, None, "")


def test_after_a_refused_digest_letters_go_one_by_one_for_a_while() -> None:
    standing = health_after_refusal(ChannelHealth(), at(0))

    assert [len(group) for group in plan_sendings(letters(9), standing, 5, at(0.1))] == [1] * 4
    assert [len(group) for group in plan_sendings(letters(9), standing, 5, at(11))] == [
        1,
        1,
        1,
        1,
        5,
    ]


@given(st.integers(0, 30), st.integers(1, 10), st.lists(st.floats(0, 3), max_size=12))
def test_a_plan_keeps_the_order_and_the_rate(waiting: int, rate: int, earlier: list[float]) -> None:
    standing = replace(ChannelHealth(), sent=tuple(sorted(at(minute) for minute in earlier)))
    now = at(3)

    planned = plan_sendings(letters(waiting), standing, rate, now)

    flat = [letter.number for group in planned for letter in group]
    assert flat == list(range(len(flat)))
    recent = [moment for moment in standing.sent if now - moment < minutes(1)]
    assert len(planned) <= max(rate - len(recent), 0)
