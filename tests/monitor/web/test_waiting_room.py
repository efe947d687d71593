"""Questions that wait are asked once for all who ask them, and a failed turn is not for ever."""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Sequence

import pytest

from monitor.priority import RightOfWay
from monitor.web import deps
from monitor.web.deps import LongPoll, LongPollFullError


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns follow each other."""
    monkeypatch.setattr(deps, "AGAIN", 0.0)


class Gate:
    """Answers a question with how often it was asked so."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, question: str) -> int:
        """Count it."""
        self.asked.append(question)
        if question == "wrong":
            raise ValueError(question)
        return self.asked.count(question)


def room(gate: Gate) -> LongPoll[str, int]:
    return LongPoll(gate.ask, RightOfWay())


def run(*waiting: Awaitable[int | None]) -> list[int | BaseException | None]:
    async def all_of_them() -> list[int | BaseException | None]:
        return await asyncio.gather(*waiting, return_exceptions=True)

    return asyncio.run(all_of_them())


def test_all_who_wait_for_the_same_share_an_answer() -> None:
    gate = Gate()
    own = room(gate)

    found = run(*(own.next(name) for name in "aabab"))

    assert found == [1, 1, 1, 1, 1]
    assert sorted(gate.asked) == ["a", "b"]


def test_who_goes_on_waiting_gets_an_answer_of_another_turn() -> None:
    gate = Gate()
    own = room(gate)

    async def twice() -> list[int | None]:
        return [await own.next("a"), await own.next("a")]

    assert asyncio.run(twice()) == [1, 2]


def test_a_question_that_cannot_be_answered_fails_for_its_own_callers_alone() -> None:
    own = room(Gate())

    found = run(own.next("wrong"), own.next("a"), own.next("wrong"))

    assert [type(one) for one in found] == [ValueError, int, ValueError]
    assert run(own.next("a")) == [2]


def test_a_caller_who_leaves_takes_nobodys_answer_away() -> None:
    own = room(Gate())

    async def one_leaves() -> int | None:
        first, second = (asyncio.create_task(own.next("a")) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        return await second

    assert asyncio.run(one_leaves()) == 1


def due(own: LongPoll[str, int], waiting: str, asked: str = "") -> list[str]:
    """Who is asked next of those *waiting*, one of whom whatever it hopes for."""

    async def turn() -> list[str]:
        own._waiting = {name: asyncio.get_running_loop().create_future() for name in waiting}
        own._asked = {name: asyncio.create_task(asyncio.sleep(0, 1)) for name in asked}
        return [*await own._due()]

    return asyncio.run(turn())


@pytest.fixture
def in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """One question is asked a turn whatever it hopes for, and two of those that hope."""
    monkeypatch.setattr(deps, "FEWEST", 1)
    monkeypatch.setattr(deps, "MOST", 2)


def _broken(_: Sequence[str]) -> Sequence[str]:
    raise OSError("no log")


@pytest.mark.usefixtures("in_turn")
@pytest.mark.parametrize(
    ("hopeful", "closing", "asked"),
    [
        pytest.param(lambda _: (), False, "a", id="none has hope"),
        pytest.param(lambda asked: asked[-1:], False, "ae", id="the last has"),
        pytest.param(lambda asked: asked, False, "abc", id="of thousands, few a turn"),
        pytest.param(_broken, False, "a", id="a look that fails"),
        pytest.param(lambda _: (), True, "abcde", id="the service ends"),
    ],
)
def test_who_has_hope_is_asked_before_the_others_and_all_where_the_service_ends(
    hopeful: Callable[[Sequence[str]], Sequence[str]], closing: bool, asked: str
) -> None:
    own = LongPoll(Gate().ask, RightOfWay(), hopeful, lambda: closing)

    assert due(own, "abcde") == [*asked]


@pytest.mark.usefixtures("in_turn")
@pytest.mark.parametrize(("asked", "next_"), [("", "abc"), ("a", "bc"), ("ab", "c"), ("abc", "d")])
def test_those_with_hope_do_not_queue_up_behind_each_other(asked: str, next_: str) -> None:
    own = LongPoll(Gate().ask, RightOfWay(), lambda rest: rest)

    assert due(own, "abcde", asked) == [*next_]


@pytest.mark.usefixtures("in_turn")
def test_who_has_no_hope_is_asked_in_turn_all_the_same() -> None:
    gate = Gate()
    own = LongPoll(gate.ask, RightOfWay(), lambda _: ())

    assert run(*(own.next(name) for name in "abc")) == [1, 1, 1]


def test_whose_time_is_over_is_answered_in_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    monkeypatch.setattr(deps, "AGAIN", 3600.0)
    monkeypatch.setattr(deps, "GRACE", 3600.0)
    own = room(gate)

    async def twice() -> list[int | None]:
        return [await own.next("a", 0.0), await own.next("a", 0.0)]

    assert asyncio.run(twice()) == [1, 2]


@pytest.mark.parametrize("question", ["a", "wrong"])
def test_whose_time_is_over_waits_no_longer_for_an_answer_that_does_not_come(
    monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    monkeypatch.setattr(deps, "GRACE", 0.0)
    gate, free, forgotten = Gate(), threading.Event(), list[object]()

    def ask(asked: str) -> int:
        free.wait()
        return gate.ask(asked)

    own = LongPoll(ask, RightOfWay())

    async def once() -> bool:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: forgotten.append(told))
        waiting = asyncio.create_task(own.next(question, 0.0))
        ended, _ = await asyncio.wait({waiting}, timeout=5)
        free.set()
        while own._waiting:
            await asyncio.sleep(0)
        gc.collect()
        return waiting in ended and waiting.result() is None

    assert asyncio.run(once())
    assert (gate.asked, forgotten) == ([question], [])


def test_questions_that_wait_give_way_to_those_that_are_new() -> None:
    gate, way = Gate(), RightOfWay()
    own, gave = LongPoll(gate.ask, way), list[list[str]]()
    way.give = lambda: gave.append([*gate.asked])  # type: ignore[method-assign]

    run(own.next("a"))

    assert (gave, gate.asked) == ([[]], ["a"])


def test_beyond_so_many_nobody_waits_and_who_left_makes_room() -> None:
    gate = Gate()
    own = LongPoll(gate.ask, RightOfWay(), most=2)

    first = run(*(own.next(name) for name in "aab"))
    later = run(own.next("b"))

    assert first[:2] == [1, 1]
    assert isinstance(first[2], LongPollFullError)
    assert later == [1]


def test_who_has_gone_keeps_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deps, "AGAIN", 3600.0)
    monkeypatch.setattr(deps, "SEEN", 0.01)
    own = LongPoll(Gate().ask, RightOfWay(), most=1)

    async def gone() -> bool:
        return True

    async def both() -> list[int | None]:
        return [await asyncio.wait_for(own.next("a", 300, gone), 5) for _ in "ab"]

    assert asyncio.run(both()) == [None, None]
