"""At which event did a connector go on, when it was killed inside a transaction?

Its new run begins the transaction again and numbers its events from 1, somewhere at or before the
first event that nobody knows to be stored; END then counts the new run only.  Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SentEvent:
    """One landed event of a transaction; landed twice, it is two of these.

    ``place`` orders events within the transaction: the order, then delete before create, because a
    changed key is sent as both, from one place in the log.
    """

    place: tuple[int, ...]
    total_order: int


def resumed(events: Iterable[SentEvent], begun: int, promised: int) -> tuple[int, ...]:
    """The number the first of two runs gave to the event the second began with.

    Empty if it was not begun twice, or if it cannot be told: begun more often, or the second run
    began right where the first had ended, so that no event has two numbers.
    """
    numbers: dict[tuple[int, ...], list[int]] = {}
    for event in events:
        numbers.setdefault(event.place, []).append(event.total_order)
    starts = sorted(place for place, seen in numbers.items() if 1 in seen)
    if begun != 2 or not starts or not promised:
        return ()
    if len(starts) == 1:  # it began again at its first event, or had sent none before
        return (1,)
    return tuple({number for number in numbers[starts[-1]] if number > 1})
