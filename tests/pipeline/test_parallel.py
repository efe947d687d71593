"""One that does not answer keeps no other waiting, and errors of pieces come back as they were."""

import pickle
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest

from pipeline.errors import ConfigError, HeldError, SluiceError, UnreachableError
from pipeline.model import Missing
from pipeline.parallel import Answer, DeadlinePool, failure_text, load_result, run_piece
from tests.monitor.rig import NOON
from tests.pipeline.hanging import answered

SECOND = timedelta(seconds=1)


@dataclass
class Hall:
    """Those who are asked: by name, how often, and what keeps them from answering."""

    now: datetime = NOON
    asked: list[str] = field(default_factory=list)
    gates: dict[str, threading.Event] = field(default_factory=dict)
    threads: dict[str, int] = field(default_factory=dict)
    expected: set[str] = field(default_factory=set)
    called: threading.Event = field(default_factory=threading.Event)
    seconds: float = 0.0
    tested: DeadlinePool[str] = field(init=False)

    def hang(self, *names: str) -> None:
        """From now on they do not answer, until released."""
        self.gates |= {name: threading.Event() for name in names}

    def release(self, *names: str) -> None:
        """They answer what they were asked, and return when that is heard."""
        for name in names:
            self.gates.pop(name).set()
        answered(self.tested, names)

    def asking(self, **settings: Any) -> DeadlinePool[str]:
        """What is tested."""
        made = DeadlinePool[str](lambda: self.now, 30 * SECOND, 3 * SECOND, **settings)
        made.elapsed = lambda: self._elapsed(made)
        self.tested = made
        return made

    def ask(self, asking: DeadlinePool[str], *names: str) -> dict[str, object]:
        """Ask all of them; who answers gives his own name and how often he was asked before."""
        self.seconds += 1
        self.expected = set(names)
        return {**asking.ask({name: self._question(name) for name in names})}

    def _question(self, name: str) -> Callable[[], str]:
        def answer() -> str:
            self.asked.append(name)
            self.called.set()
            self.threads[name] = threading.get_ident()
            said = f"{name}{self.asked.count(name)}"
            if (gate := self.gates.get(name)) is not None:
                self.tested.wake()
                gate.wait()
            return said

        return answer

    def _elapsed(self, asking: DeadlinePool[str]) -> float:
        """Time stands still until only those that hang have yet to answer."""
        busy = self.expected - self.gates.keys()
        waiting = {one for one in busy if one not in self.asked} | (asking.open & busy)
        hung = self.gates.keys() & self.expected & {*self.asked}
        if hung and not waiting:
            self.seconds += 4
        return self.seconds


@pytest.fixture
def hall() -> Iterator[Hall]:
    made = Hall()
    yield made
    made.release(*made.gates)


def test_all_answer_and_each_answer_is_as_old_as_its_question(hall: Hall) -> None:
    asking = hall.asking()

    assert hall.ask(asking, "a", "b") == {"a": Answer("a1", NOON), "b": Answer("b1", NOON)}
    assert asking.open == frozenset()


def test_f21_one_that_hangs_is_named_and_the_others_have_answered(hall: Hall) -> None:
    asking = hall.asking()
    hall.hang("b")

    said = hall.ask(asking, "a", "b", "c")

    assert said == {
        "a": Answer("a1", NOON),
        "b": Missing("b has not answered since 12:00:00 UTC"),
        "c": Answer("c1", NOON),
    }
    assert asking.open == {"b"}


def test_one_that_hangs_is_asked_no_second_time_and_waited_for_no_more(hall: Hall) -> None:
    asking = hall.asking()
    hall.hang("b")
    hall.ask(asking, "a", "b")
    hall.now += 5 * SECOND
    asking.elapsed = lambda: 0.0  # whoever waits now waits for ever

    again = [hall.ask(asking, "a", "b") for _ in range(3)]

    assert again[-1]["b"] == Missing("b has not answered since 12:00:00 UTC")
    assert again[-1]["a"] == Answer("a4", NOON + 5 * SECOND)
    assert hall.asked.count("b") == 1
    assert sum(one.name == "ask b" for one in threading.enumerate()) == 1


def test_a_late_answer_counts_at_the_next_asking_as_of_when_it_was_asked_for(hall: Hall) -> None:
    asking = hall.asking()
    hall.hang("b")
    hall.ask(asking, "a", "b")
    hall.now += 5 * SECOND
    hall.release("b")
    hall.hang("b")

    assert hall.ask(asking, "a", "b")["b"] == Answer("b1", NOON)
    hall.now += 25 * SECOND
    assert hall.ask(asking, "a", "b")["b"] == Answer("b1", NOON)
    hall.now += SECOND
    assert hall.ask(asking, "a", "b")["b"] == Missing("b has not answered since 12:00:05 UTC")


@pytest.mark.parametrize(
    ("usable", "told"),
    [
        pytest.param(30 * SECOND, Answer("b1", NOON), id="still of use"),
        pytest.param(-SECOND, Missing("b has not answered since 12:00:00 UTC"), id="never"),
    ],
)
def test_an_answer_to_the_question_before_is_a_late_one_though_it_comes_while_others_are_asked(
    hall: Hall, usable: timedelta, told: object
) -> None:
    asking = hall.asking()
    asking.usable = usable
    hall.hang("b")
    hall.ask(asking, "a", "b")
    asking.elapsed = lambda: 0.0

    def free() -> str:
        hall.release("b")
        return "c"

    said = asking.ask({"b": lambda: "another", "c": free})

    assert said == {"b": told, "c": Answer("c", NOON)}


def test_a_late_answer_from_before_the_clock_was_set_back_does_not_count(hall: Hall) -> None:
    asking = hall.asking()
    hall.hang("b")
    hall.ask(asking, "a", "b")
    hall.release("b")
    hall.hang("b")
    hall.now -= SECOND

    assert isinstance(hall.ask(asking, "a", "b")["b"], Missing)


def test_one_that_was_in_time_before_and_hangs_now_is_not_believed_by_what_it_said(
    hall: Hall,
) -> None:
    asking = hall.asking()
    hall.ask(asking, "a", "b")
    hall.hang("b")

    assert hall.ask(asking, "a", "b")["b"] == Missing("b has not answered since 12:00:00 UTC")


def test_one_that_is_in_time_again_is_waited_for_again(hall: Hall) -> None:
    asking = hall.asking()
    hall.hang("b")
    hall.ask(asking, "a", "b")
    hall.release("b")
    hall.hang("b")
    asking.elapsed = lambda: 0.0
    hall.ask(asking, "a", "b")
    hall.release("b")

    assert hall.ask(asking, "a", "b")["b"] == Answer("b3", NOON)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        pytest.param(UnreachableError("b: no route"), "b: no route", id="foreseen"),
        pytest.param(ValueError("a bug"), "ValueError: a bug", id="a bug of a plug-in's"),
    ],
)
def test_one_that_fails_is_missing_with_his_words_and_no_other_is(
    hall: Hall, error: Exception, why: str
) -> None:
    def fail() -> str:
        raise error

    said = hall.asking().ask({"b": fail, "a": lambda: "fine"})

    assert said == {"b": Missing(why), "a": Answer("fine", NOON)}


def test_words_that_came_late_are_told_while_he_is_asked_again(hall: Hall) -> None:
    asking, gate = hall.asking(), threading.Event()

    def refuse() -> str:
        hall.asked.append("b")
        asking.wake()
        gate.wait()
        raise UnreachableError("b: no route to host")

    hall.gates["b"], hall.expected = gate, {"b"}
    first = asking.ask({"b": refuse})["b"]
    hall.release("b")
    hall.hang("b")

    assert first == Missing("b has not answered since 12:00:00 UTC")
    assert hall.ask(asking, "b")["b"] == Missing("b: no route to host")
    hall.now += 31 * SECOND
    assert hall.ask(asking, "b")["b"] == Missing("b has not answered since 12:00:00 UTC")


def test_many_are_asked_one_after_the_other_by_one_thread(hall: Hall) -> None:
    names, asking = [f"t{number}" for number in range(500)], hall.asking(at_once=1, most=4)
    asking.elapsed = lambda: 0.0

    said = hall.ask(asking, *names)

    assert (len(said), hall.asked) == (500, names)
    assert len({*hall.threads.values()}) == 1


def test_one_of_many_that_hangs_gives_its_place_to_the_next(hall: Hall) -> None:
    names = [f"t{number}" for number in range(50)]
    asking = hall.asking(at_once=1, most=4)
    hall.hang("t7", "t9")
    asking.elapsed = _impatient(hall)

    said = hall.ask(asking, *names)

    assert {name for name, one in said.items() if isinstance(one, Missing)} == {"t7", "t9"}
    assert sorted(hall.asked) == sorted(names)


def test_where_too_many_of_a_call_hang_no_other_is_asked_and_of_many_calls_nobody(
    hall: Hall,
) -> None:
    names = [f"t{number}" for number in range(50)]
    asking = hall.asking(at_once=1, most=2)
    hall.hang(*names)
    asking.elapsed = _impatient(hall)

    said = [{*hall.ask(asking, *names)} for _ in range(10)]

    assert said[:2] == [{"t0", "t1"}, {"t2", "t3"}]
    assert said[8:] == [set(), set()]
    assert hall.asked == names[:16]


def test_those_who_hang_keep_no_other_from_being_asked_by_the_next(hall: Hall) -> None:
    names = [f"t{number}" for number in range(50)]
    asking = hall.asking(at_once=1, most=2)
    hall.hang("t0", "t1")
    asking.elapsed = _impatient(hall)
    first = hall.ask(asking, *names)

    said = hall.ask(asking, *names)

    assert {*first} == {"t0", "t1"}
    assert {name for name, one in said.items() if isinstance(one, Answer)} == {*names[2:]}


def test_two_who_ask_the_same_at_once_share_one_question(hall: Hall) -> None:
    asking, heard, gate = hall.asking(), list[object](), threading.Event()
    hall.gates["b"] = gate

    def elapsed() -> float:
        if threading.current_thread() is threading.main_thread():  # which is the second
            gate.set()
        return 0.0

    asking.elapsed = elapsed
    first = threading.Thread(target=lambda: heard.append(hall.ask(asking, "b")))
    first.start()
    hall.called.wait()
    heard.append(hall.ask(asking, "b"))
    first.join()

    assert hall.asked == ["b"]
    assert heard == [{"b": Answer("b1", NOON)}] * 2


def _impatient(hall: Hall) -> Callable[[], float]:
    """Time passes only while nobody is at it but those that hang."""

    def elapsed() -> float:
        going = hall.tested.open
        hall.seconds += 4 if going and going <= {*hall.asked} & hall.gates.keys() else 0
        return hall.seconds

    return elapsed


def fail(error: SluiceError) -> None:
    raise error


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(UnreachableError("no broker at :9092"), id="unreachable"),
        pytest.param(ConfigError("no such setting"), id="config"),
        pytest.param(HeldError("words", "this shard is held"), id="held, by reason and detail"),
    ],
)
def test_an_error_of_ours_comes_back_as_it_was_raised(error: SluiceError) -> None:
    with pytest.raises(type(error)) as caught:
        load_result(run_piece(pickle.dumps((fail, error))))

    assert str(caught.value) == str(error)
    assert vars(caught.value) == vars(error)


def test_what_is_done_comes_back_as_it_is() -> None:
    assert load_result(run_piece(pickle.dumps((sorted, [2, 1])))) == [1, 2]


GONE = "An error occurred while calling o7.getResult.\n: org.apache.spark.SparkException: Exception"
LOST = (
    "\nCaused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in"
    " stage 0.0 failed 4 times, most recent failure: Lost task 1.3 in stage 0.0 (TID 9)"
    " (10.0.0.4 executor 0): "
)
PYTHON = """org.apache.spark.SparkException:
Error from python worker:
  Traceback (most recent call last):
    File "<frozen runpy>", line 198, in _run_module_as_main
  ModuleNotFoundError: No module named 'pyarrow'
PYTHONPATH was:
  /somewhere
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(
            GONE + LOST + 'java.io.IOException: Cannot run program "/no/python": error=2\n\tat x',
            'at 10.0.0.4: Cannot run program "/no/python": error=2',
            id="no Python",
        ),
        pytest.param(
            GONE + LOST + PYTHON,
            "at 10.0.0.4: ModuleNotFoundError: No module named 'pyarrow'",
            id="another Python",
        ),
        pytest.param(GONE, "An error occurred while calling o7.getResult.", id="nothing better"),
    ],
)
def test_of_sparks_long_text_that_line_is_told_that_says_what_happened(
    text: str, said: str
) -> None:
    assert failure_text(text) == said
