"""Where a transaction was begun again is told by an event with two numbers, or not at all."""

import pytest

from pipeline.changelog.transactions import SentEvent, find_resumed_numbers


def sent_events(first: int, last: int, *, at: int) -> list[SentEvent]:
    """Events numbered from *first* to *last*, the first of them at place *at*."""
    return [SentEvent((0, 1, at + n - first, 0), n) for n in range(first, last + 1)]


@pytest.mark.parametrize(
    ("events", "begun", "promised", "answer"),
    [
        pytest.param(sent_events(1, 9, at=100), 1, 9, (), id="never begun again"),
        pytest.param(
            sent_events(1, 9, at=100) + sent_events(1, 5, at=106),
            2,
            5,
            (7,),
            id="from its 7th event",
        ),
        pytest.param(
            sent_events(1, 9, at=100) + sent_events(1, 8, at=101), 2, 8, (2,), id="from its 2nd"
        ),
        pytest.param(
            sent_events(1, 9, at=100) * 2 + sent_events(1, 5, at=106),
            2,
            5,
            (7,),
            id="landed twice besides",
        ),
        pytest.param(sent_events(1, 9, at=100) * 2, 2, 9, (1,), id="from its first event"),
        pytest.param(sent_events(1, 9, at=100), 2, 9, (1,), id="the first run had sent nothing"),
        pytest.param(
            sent_events(1, 3, at=100) + sent_events(1, 5, at=103),
            2,
            5,
            (),
            id="no event sent twice",
        ),
        pytest.param(sent_events(1, 9, at=100), 2, 0, (), id="the second run sent nothing"),
        pytest.param(
            sent_events(1, 9, at=100) + sent_events(1, 5, at=103) + sent_events(1, 4, at=105),
            3,
            4,
            (),
            id="three runs",
        ),
        pytest.param([], 2, 3, (), id="nothing landed"),
    ],
)
def test_the_number_the_first_run_gave_to_the_second_ones_first_event(
    events: list[SentEvent], begun: int, promised: int, answer: tuple[int, ...]
) -> None:
    assert find_resumed_numbers(events, begun, promised) == answer


def test_measured_restart_adds_up_to_the_truth() -> None:
    # seen: END said 52,997, and the first event sent again had been number 6,994
    events = sent_events(1, 6_998, at=0) + sent_events(1, 52_997, at=6_993)

    (first,) = find_resumed_numbers(events, 2, 52_997)

    assert first - 1 + 52_997 == len({event.place for event in events}) == 59_990
