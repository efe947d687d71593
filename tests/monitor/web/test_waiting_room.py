"""Questions that wait are asked once for all who ask them, and a failed turn is not for ever."""

import asyncio
from collections.abc import Awaitable

import pytest

from monitor.right_of_way import RightOfWay
from monitor.web import waiting_room
from monitor.web.waiting_room import WaitingRoom


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns follow each other."""
    monkeypatch.setattr(waiting_room, "AGAIN", 0.0)


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


def room(gate: Gate) -> WaitingRoom[str, int]:
    return WaitingRoom(gate.ask, RightOfWay())


def run(*waiting: Awaitable[int]) -> list[int | BaseException]:
    async def all_of_them() -> list[int | BaseException]:
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

    async def twice() -> list[int]:
        return [await own.next("a"), await own.next("a")]

    assert asyncio.run(twice()) == [1, 2]


def test_a_question_that_cannot_be_answered_fails_for_its_own_callers_alone() -> None:
    own = room(Gate())

    found = run(own.next("wrong"), own.next("a"), own.next("wrong"))

    assert [type(one) for one in found] == [ValueError, int, ValueError]
    assert run(own.next("a")) == [2]


def test_a_caller_who_leaves_takes_nobodys_answer_away() -> None:
    own = room(Gate())

    async def one_leaves() -> int:
        first, second = (asyncio.create_task(own.next("a")) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        return await second

    assert asyncio.run(one_leaves()) == 1


def test_the_more_wait_the_less_often_each_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = list[float]()

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(waiting_room, "EACH", 0.25)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    own = room(Gate())

    run(*(own.next(name) for name in "abcd"))

    assert waited == [1.0] * 4


def test_questions_that_wait_give_way_to_those_that_are_new() -> None:
    gate, way = Gate(), RightOfWay()
    own, gave = WaitingRoom(gate.ask, way), list[list[str]]()
    way.give = lambda: gave.append([*gate.asked])  # type: ignore[method-assign]

    run(own.next("a"))

    assert (gave, gate.asked) == ([[]], ["a"])
