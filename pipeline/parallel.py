"""Runs work in parallel: calls with a deadline in threads, independent pieces as Spark tasks.

The deadline pool has at most one open call per name. A late name delays no other. In later
rounds it is called last, and the caller does not wait for it, until it answers in time again. A
late answer counts as of the time of its call, for at most `usable`. A name that is missing in
the result was not called, because too many others are silent.

A Spark task returns a `SluiceError` as a value. The job does not fail, Spark retries nothing,
and the caller gets the original error instead of Spark's text.
"""

import pickle
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

import pyarrow as pa
import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipeline.errors import SluiceError, UnreachableError
from pipeline.model import Missing

PATIENCE = timedelta(seconds=3)
CALLS = 8  # calls that may each leave `most` questions open, each with a hanging thread
_IDLE = 60.0  # seconds after which an idle thread ends
T = TypeVar("T")
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """A value, and when it was asked for; it may be as old as that."""

    value: T
    asked: datetime


@dataclass(eq=False, slots=True)
class _Inquiry(Generic[T]):
    """A running question.

    ``awaited`` until its caller gives up, ``shared`` if several calls wait for it.
    """

    name: str
    put: Callable[[], T]
    asked: datetime
    began: float
    awaited: bool
    shared: bool = False
    answer: Answer[T] | Missing | None = None


@dataclass(eq=False, slots=True)
class _Asking(Generic[T]):
    """One call: the questions that wait, those that were asked, and those still awaited."""

    waiting: deque[str]
    questions: Mapping[str, Callable[[], T]]
    context: Context
    changed: threading.Condition
    put: dict[str, _Inquiry[T]] = field(default_factory=dict)
    awaited: set[_Inquiry[T]] = field(default_factory=set)


@dataclass(eq=False)
class DeadlinePool(Generic[T]):
    """Asks questions by name, from any number of threads.

    ``at_once`` limits the concurrent questions of one call; None removes the limit. Many small
    questions are best asked one after the other. An overdue one makes room for the next. If
    ``most`` of one call are unanswered, or `CALLS` times as many of all calls, no other is asked.
    """

    clock: Callable[[], datetime]
    usable: timedelta
    patience: timedelta = PATIENCE
    at_once: int | None = None
    most: int | None = None
    elapsed: Callable[[], float] = time.monotonic
    _open: dict[str, _Inquiry[T]] = field(default_factory=dict)
    _slow: dict[str, None] = field(default_factory=dict)  # in the order in which they were asked
    _late: dict[str, Answer[T] | Missing] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    _askings: set[_Asking[T]] = field(default_factory=set, repr=False)
    _jobs: SimpleQueue[tuple[_Asking[T], _Inquiry[T]]] = field(
        default_factory=SimpleQueue, repr=False
    )
    _idle: int = 0

    @property
    def open(self) -> frozenset[str]:
        """Names that were asked and have not answered yet."""
        with self._lock:
            return frozenset(self._open)

    def ask(self, questions: Mapping[str, Callable[[], T]]) -> dict[str, Answer[T] | Missing]:
        """The answers by name; Missing, with the error's text, if a question raised a SluiceError.

        Names that were not asked, because too many others do not answer, are absent.
        """
        changed = threading.Condition(self._lock)  # other calls' answers do not wake it
        with self._lock:
            asking = _Asking(self._ordered(questions), questions, copy_context(), changed)
            self._askings.add(asking)
            try:
                while (left := self._left(asking)) is not None:
                    changed.wait(left)
            finally:
                self._askings.discard(asking)
            return {name: self._answer_of(one) for name, one in asking.put.items()}

    def _left(self, asking: _Asking[T]) -> float | None:
        """Seconds until the next one is overdue; None without open questions."""
        now, patience = self.elapsed(), self.patience.total_seconds()
        for one in tuple(asking.awaited):
            if one.answer is None and now - one.began >= patience:
                one.awaited = False
                self._slow[one.name] = None
                self._late.pop(one.name, None)
            if one.answer is not None or not one.awaited:
                asking.awaited.discard(one)
        for one in self._next(asking):
            self._start(asking, one)
        overdue = (one.began + patience for one in asking.awaited)
        first = min(overdue, default=None)
        return None if first is None else max(first - self.elapsed(), 0)

    def _next(self, asking: _Asking[T]) -> Iterator[_Inquiry[T]]:
        """The questions to ask now; one that another call still asks is shared."""
        while asking.waiting and (self.at_once is None or len(asking.awaited) < self.at_once):
            name = asking.waiting[0]
            known = self._open.get(name)
            if known is None and self._crowded(asking):
                return
            asking.waiting.popleft()
            one = known or _Inquiry(
                name, asking.questions[name], self.clock(), self.elapsed(), name not in self._slow
            )
            asking.put[name] = self._open[name] = one
            if name in self._slow:
                self._slow[name] = self._slow.pop(name)
            one.shared = known is not None
            if one.awaited:
                asking.awaited.add(one)
            if known is None:
                yield one

    def _ordered(self, names: Iterable[str]) -> deque[str]:
        """Put slow names last, so that they delay no other."""
        places = {name: place for place, name in enumerate(self._slow)}
        return deque(sorted(names, key=lambda name: places.get(name, -1)))

    def _crowded(self, asking: _Asking[T]) -> bool:
        if self.most is None:
            return False
        silent = [one for one in self._open.values() if not one.awaited]
        own = sum(asking.put.get(one.name) is one for one in silent)
        return own >= self.most or len(silent) >= CALLS * self.most

    def _start(self, asking: _Asking[T], one: _Inquiry[T]) -> None:
        """Start one in an idle thread, if any: starting a thread takes longer than asking."""
        self._jobs.put((asking, one))
        if self._idle:
            self._idle -= 1
        else:
            threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                asking, one = self._jobs.get(timeout=_IDLE)
            except Empty:
                with self._lock:
                    if self._jobs.empty():
                        self._idle -= 1
                        return
                continue
            asking.context.copy().run(self._work, asking, one)
            threading.current_thread().name = "idle"
            with self._lock:
                self._idle += 1

    def _work(self, asking: _Asking[T], one: _Inquiry[T] | None) -> None:
        """Answer *one*, then the questions that wait behind it, while each answer is in time."""
        while one is not None:
            threading.current_thread().name = f"ask {one.name}"
            answer = self._answer(one)
            with self._lock:
                self._close(one, answer)
                asking.awaited.discard(one)
                shared, one = one.shared, self._following(asking, one)
                if one is None:  # waking the caller for each of thousands would cost more
                    asking.changed.notify()
                if shared:
                    self.wake()

    def wake(self) -> None:
        """Make all calls read the time again, from ``elapsed``."""
        with self._lock:
            for asking in self._askings:
                asking.changed.notify()

    def _following(self, asking: _Asking[T], one: _Inquiry[T]) -> _Inquiry[T] | None:
        """The next question for the thread that answered *one*; None if that answer was late."""
        return next(self._next(asking), None) if one.awaited else None

    def _answer(self, one: _Inquiry[T]) -> Answer[T] | Missing:
        try:
            return Answer(one.put(), one.asked)
        except SluiceError as error:
            return Missing(str(error))
        except Exception as error:  # the boundary of one question: it stops no other
            log.exception("question_broken", of=one.name)
            return Missing(f"{type(error).__name__}: {error}")

    def _close(self, one: _Inquiry[T], answer: Answer[T] | Missing) -> None:
        one.answer = answer
        del self._open[one.name]
        if self.elapsed() - one.began < self.patience.total_seconds():
            self._slow.pop(one.name, None)
        if one.awaited:
            self._late.pop(one.name, None)
        else:
            self._late[one.name] = answer

    def _answer_of(self, one: _Inquiry[T]) -> Answer[T] | Missing:
        if one.answer is not None and one.awaited:
            return one.answer
        now, late = self.clock(), self._late.get(one.name)
        if isinstance(late, Answer) and timedelta() <= now - late.asked <= self.usable:
            return late
        if isinstance(late, Missing) and timedelta() <= now - one.asked <= self.usable:
            return late
        return Missing(f"{one.name} has not answered since {one.asked:%H:%M:%S} UTC")


_LOST = re.compile(r"most recent failure: .*?\(TID \d+\) \((\S+)[^)]*\): (.*)")
_NO_PYTHON = re.compile(r"Error from python worker:\n(?:.*\n)*?\s*(\S.*)\nPYTHONPATH was")
R = TypeVar("R")


def spark_map(session: SparkSession, work: Callable[[T], R], pieces: Sequence[T]) -> list[R]:
    """The results of *work*, a function of a module, for each of *pieces*, in their order.

    Pieces and results must be picklable; all results together are held in the driver.

    Raises:
        SluiceError: the error of the first piece that failed, as it raised it.
        UnreachableError: a worker died, or Spark did not run the job to its end.
    """
    if not pieces:
        return []
    sent = tuple(pickle.dumps((work, piece)) for piece in pieces)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch["id"].to_pylist():
                results = [run_piece(sent[index])]
                yield pa.RecordBatch.from_pydict({"id": [index], "result": results})

    numbers = session.range(0, len(pieces), 1, len(pieces))
    try:
        rows = numbers.mapInArrow(run, "id bigint, result binary").toArrow().to_pylist()
    except (PySparkException, Py4JError) as error:
        raise UnreachableError(f"a Spark job failed: {failure_text(str(error))}") from error
    found = {row["id"]: row["result"] for row in rows}
    return [load_result(found[index]) for index in range(len(pieces))]


def failure_text(text: str) -> str:
    """The line of Spark's long *text* that states the failure, and the machine."""
    lost, python = _LOST.search(text), _NO_PYTHON.search(text)
    if lost is None:
        return text.strip().partition("\n")[0]
    said = python[1] if python else lost[2].removeprefix("java.io.IOException: ")
    return f"at {lost[1]}: {said}"


def run_piece(sent: bytes) -> bytes:
    """Run one pickled piece of work; return its pickled result, or pickled SluiceError."""
    work, piece = pickle.loads(sent)  # noqa: S301  - our driver's
    try:
        return pickle.dumps(work(piece))
    except SluiceError as error:
        return pickle.dumps(error)


def load_result(pickled: bytes) -> Any:
    """Unpickle what `run_piece` returned.

    Raises:
        SluiceError: the one it holds.
    """
    found = pickle.loads(pickled)  # noqa: S301  - our workers'
    if isinstance(found, SluiceError):
        raise found
    return found
