"""Who works through much gives way while somebody is answered, and still comes to an end."""

import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from monitor.runtime import MOST_WAIT, RequestPriority


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


def watched() -> tuple[RequestPriority, Waits]:
    waits = Waits()
    way = RequestPriority(lambda: waits.now)
    way._lock = waits  # type: ignore[assignment]
    return way, waits


def test_nobody_waits_where_nobody_is_answered() -> None:
    way, waits = watched()
    with way.foreground():
        pass

    way.give()

    assert waits.told == []


def test_who_gives_way_waits_no_longer_in_sum_than_it_has_worked() -> None:
    way, waits = watched()
    with way.foreground():
        way.give()
        way.give()
        waits.now += 0.02
        way.give()
        waits.now += 60
        way.give()

    assert waits.told == [MOST_WAIT, 0, 0.02, MOST_WAIT]


def test_who_gives_way_goes_on_once_the_last_has_its_answer() -> None:
    way, went = RequestPriority(), threading.Event()
    way._credit = 60

    def work() -> None:
        way.give()
        went.set()

    first, second = way.foreground(), way.foreground()
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
    way = RequestPriority()

    with suppress(IndexError), way.foreground():
        [].pop()

    assert not way.asked


PROGRAM = """
import ctypes, sys, threading
from monitor.runtime import limit_arenas
if sys.argv[1] == "limited":
    assert limit_arenas()
libc, gate = ctypes.CDLL(None), threading.Barrier(9)
def take():
    libc.malloc(100_000)
    gate.wait()
threads = [threading.Thread(target=take) for _ in range(8)]
[one.start() for one in threads]
gate.wait()
libc.malloc_stats()
"""


@pytest.mark.parametrize(("how", "few"), [("limited", True), ("as it is", False)])
def test_threads_share_two_pools_of_memory(how: str, few: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True
    )

    pools = done.stderr.count("Arena ")
    assert pools > 0
    assert (pools <= 2) == few


PROGRAM_INTERPRETER = """
import gc, sys
from monitor.runtime import collect_garbage, prefer_answers

full, middle = [], []
gc.callbacks.append(lambda phase, told: full.append(phase) if told["generation"] == 2 else None)
gc.callbacks.append(lambda phase, told: middle.append(phase) if told["generation"] == 1 else None)
prefer_answers()
class Ring: pass
def ring():
    one = Ring(); one.me = one
kept = []
full.clear(); middle.clear()
for number in range(100_000):
    kept.append([number]); ring()
at_once = 100_000 // max(1, len(middle) // 2)
young, switch = len(full), sys.getswitchinterval()
collect_garbage()
rings = sum(isinstance(one, Ring) for one in gc.get_objects())
print(young, len(full), switch, at_once < 5_000, rings)
"""


def test_what_is_old_is_looked_through_when_it_is_asked_for_and_not_while_somebody_waits() -> None:
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM_INTERPRETER], capture_output=True, text=True, check=True
    )

    assert told.stdout.split() == ["0", "2", "0.0005", "True", "0"]
