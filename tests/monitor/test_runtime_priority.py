"""Who works through much gives way while somebody is answered, and still comes to an end."""

import threading
from contextlib import suppress
from dataclasses import dataclass, field

from monitor.runtime import MOST_WAIT, RightOfWay


@dataclass
class Waits:
    """Stands in for the condition: notes how long who gives way would wait, as time goes by."""

    now: float = 100.0
    told: list[float] = field(default_factory=list)

    def __enter__(self) -> None:
        """Nobody else is there."""

    def __exit__(self, *_: object) -> None:
        """Nobody else is there."""

    def wait_for(self, over: object, patience: float) -> None:
        """Nothing happens until *patience* is over."""
        self.told.append(round(patience, 6))
        self.now += patience

    def notify_all(self) -> None:
        """Nobody waits."""


def watched() -> tuple[RightOfWay, Waits]:
    waits = Waits()
    way = RightOfWay(lambda: waits.now)
    way._turn = waits  # type: ignore[assignment]
    return way, waits


def test_nobody_waits_where_nobody_is_answered() -> None:
    way, waits = watched()
    with way.first():
        pass

    way.give()

    assert waits.told == []


def test_who_gives_way_waits_no_longer_in_sum_than_it_has_worked() -> None:
    way, waits = watched()
    with way.first():
        way.give()
        way.give()
        waits.now += 0.02
        way.give()
        waits.now += 60
        way.give()

    assert waits.told == [MOST_WAIT, 0, 0.02, MOST_WAIT]


def test_who_gives_way_goes_on_once_the_last_has_its_answer() -> None:
    way, went = RightOfWay(), threading.Event()
    way._credit = 60

    def work() -> None:
        way.give()
        went.set()

    first, second = way.first(), way.first()
    first.__enter__()
    second.__enter__()
    worker = threading.Thread(target=work)
    worker.start()
    first.__exit__(None, None, None)
    early = went.is_set(), way.asked
    second.__exit__(None, None, None)
    worker.join(10)

    assert early == (False, True)
    assert went.is_set()
    assert not way.asked


def test_a_question_that_fails_stands_in_nobodys_way() -> None:
    way = RightOfWay()

    with suppress(IndexError), way.first():
        [].pop()

    assert not way.asked
