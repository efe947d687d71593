"""No tick passes without a trace: done, failed, late or missed."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.schedule import EPOCH, Job, Schedule, batch_ticks, missed_ticks, newest_tick
from monitor.store.ticks import Ticks
from pipeline.errors import UnreachableError
from tests.patience import wait_for

START = datetime(2026, 10, 25, 0, 59, 58, tzinfo=UTC)
FIVE = timedelta(seconds=5)


@dataclass
class Clock:
    """Stands still until told; what it is set to is no time that passed."""

    now: datetime = START
    passed: float = 0.0

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.passed += seconds

    def elapsed(self) -> float:
        return self.passed


@dataclass
class Book:
    """Ticks as one letter each, oldest first: `d`one, `f`ailed, `l`ate, `m`issed, `-` covered."""

    letters: dict[datetime, str] = field(default_factory=dict)
    details: list[str] = field(default_factory=list)
    full: bool = False

    def start(self, job: str, planned: datetime, at: datetime) -> bool:
        self._write()
        return planned not in self.letters

    def finish(
        self,
        job: str,
        planned: datetime,
        at: datetime,
        result: str,
        detail: str = "",
        *,
        through: Sequence[datetime] = (),
    ) -> None:
        """One letter, and a dash for each tick that it ran through."""
        self._write()
        for tick in (planned, *through):
            assert tick not in self.letters
            self.letters[tick] = "-"
        self.letters[planned] = result[0]
        self.details.append(detail)

    def miss_many(self, job: str, planneds: Sequence[datetime], at: datetime) -> None:
        self._write()
        for planned in planneds:
            assert planned not in self.letters
            self.letters[planned] = "m"

    def forget(self, job: str, since: datetime, every: timedelta) -> None:
        self.letters = {tick: one for tick, one in self.letters.items() if tick < since}

    def _write(self) -> None:
        if self.full:
            raise UnreachableError("store: database or disk is full")

    def __str__(self) -> str:
        return "".join(letter for _, letter in sorted(self.letters.items()))


def scheduled(
    job: Job, book: Book, clock: Callable[[], datetime], last: Mapping[str, datetime] | None = None
) -> Schedule:
    elapsed = clock.elapsed if isinstance(clock, Clock) else time.monotonic
    return Schedule([job], cast(Ticks, book), clock, last or {}, elapsed)


def _job(run: Callable[[], object], deadline: timedelta = FIVE) -> Job:
    return Job("watch", FIVE, deadline, run)


@pytest.mark.parametrize(
    ("waits", "sheet"),
    [
        pytest.param([5, 5, 5], "dddd", id="each in its turn"),
        pytest.param([5, 20, 5], "ddmmmdd", id="a machine that slept"),
        pytest.param([1, 1, 1], "dd", id="a timer that fires too often"),
        pytest.param([4.9, 5.2, 5], "dddd", id="a timer that trembles"),
        pytest.param([5, -20, 5, 5], "ddd", id="a clock set back begins again where it stands"),
    ],
)
def test_each_tick_of_the_grid_is_written_down_once(waits: list[float], sheet: str) -> None:
    book, clock = Book(), Clock()
    job = _job(lambda: None)
    schedule = scheduled(job, book, clock)

    schedule.tick(job)
    for wait in waits:
        clock.advance(wait)
        schedule.tick(job)

    assert str(book) == sheet


@pytest.mark.parametrize(
    ("continuous", "full", "sheet"),
    [
        pytest.param(False, ".....", "ddddd", id="never"),
        pytest.param(False, ".xx..", "dfmdd", id="before two ticks"),
        pytest.param(False, "X....", "ddddd", id="while one ran"),
        pytest.param(False, ".Xxx.", "ddmmd", id="while one ran, and for two more"),
        pytest.param(True, ".xxx.", "dfmmd", id="before three of a job that goes on and on"),
    ],
)
def test_ticks_are_told_of_once_the_book_that_was_full_takes_them(
    full: str, sheet: str, *, continuous: bool
) -> None:
    """`x`: it is full when the tick begins, `X`: from when it runs on."""
    book, clock, ran = Book(), Clock(), list[datetime]()
    job = Job("watch", FIVE, FIVE, lambda: ran.append(clock()), continuous)
    schedule = scheduled(job, book, clock)

    for each in full:
        book.full = each == "x"
        run = replace(job, run=partial(setattr, book, "full", True)) if each == "X" else job
        schedule.tick(run)
        clock.advance(5)

    assert str(book) == sheet
    assert len(ran) == full.count(".")
    assert schedule.problems == {}


@pytest.mark.parametrize("vital", [False, True])
def test_a_book_that_is_full_is_logged_once(
    capsys: pytest.CaptureFixture[str], *, vital: bool
) -> None:
    book, clock = Book(full=True), Clock()
    job = replace(_job(lambda: None), vital=vital)
    schedule = scheduled(job, book, clock)

    for _ in range(5):
        schedule.tick(job)
        clock.advance(5)

    assert capsys.readouterr().out.count("disk is full") == 1
    assert "disk is full" in schedule.problems["watch"]

    book.full = False
    schedule.tick(job)
    assert schedule.problems == {}


@pytest.mark.parametrize(
    ("down", "sheet"),
    [
        pytest.param(1.0, "", id="a restart within one tick repeats nothing"),
        pytest.param(4.0, "d", id="a quick restart misses nothing"),
        pytest.param(60.0, "mmmmmmmmmmmd", id="a minute of silence is twelve ticks"),
    ],
)
def test_ticks_missed_while_the_service_was_down_are_recorded(down: float, sheet: str) -> None:
    book, clock = Book(), Clock()
    job = _job(lambda: None)
    last = newest_tick(clock(), FIVE)
    clock.advance(down)

    scheduled(job, book, clock, last={"watch": last}).tick(job)

    assert str(book) == sheet


def test_a_long_tick_is_late_and_the_ticks_it_covers_are_missed() -> None:
    book, clock = Book(), Clock()
    job = _job(lambda: clock.advance(12))
    schedule = scheduled(job, book, clock)

    schedule.tick(job)
    clock.advance(3)
    schedule.tick(job)

    assert str(book) == "lmml"


@pytest.mark.parametrize(
    ("takes", "pauses", "sheet"),
    [
        pytest.param([1, 1, 1], [4, 4], "ddd", id="fast enough"),
        pytest.param([12, 7, 1], [3, 3], "d--d-d", id="back to back misses nothing"),
        pytest.param([12, 1], [18], "d--mmmd", id="the silence after one is missed"),
        pytest.param([1, 1], [24], "dmmmmd", id="a machine that slept between two"),
        pytest.param([5, 1], [5], "d-d", id="a tick on the stroke of the end is covered"),
    ],
)
def test_a_continuous_job_covers_the_ticks_that_it_runs_through(
    takes: list[float], pauses: list[float], sheet: str
) -> None:
    book, clock, left = Book(), Clock(newest_tick(START, FIVE)), iter(takes)
    job = Job(
        "land", FIVE, timedelta(minutes=1), lambda: clock.advance(next(left)), continuous=True
    )
    schedule = scheduled(job, book, clock)

    schedule.tick(job)
    for pause in pauses:
        clock.advance(pause)
        schedule.tick(job)

    assert str(book) == sheet


def test_a_continuous_job_that_fails_covers_its_ticks_and_one_cut_off_by_a_crash_none() -> None:
    book, clock = Book(), Clock(newest_tick(START, FIVE))

    def fail_late() -> None:
        clock.advance(12)
        raise ValueError("no such table")

    job = Job("land", FIVE, timedelta(minutes=1), fail_late, continuous=True)
    scheduled(job, book, clock).tick(job)
    began = newest_tick(clock(), FIVE) + FIVE
    clock.advance(18)  # killed at once: the store knows of its begin alone

    scheduled(job, book, clock, last={"land": began}).tick(job)

    assert str(book) == "f--mmf--"


def test_a_tick_that_fails_is_recorded_and_the_next_one_runs() -> None:
    book, clock = Book(), Clock()
    runs: list[int] = []

    def fail_once() -> None:
        runs.append(1)
        if len(runs) == 1:
            raise ValueError("no such table")

    job = _job(fail_once)
    schedule = scheduled(job, book, clock)

    schedule.tick(job)
    clock.advance(5)
    schedule.tick(job)

    assert str(book) == "fd"
    assert book.details[0] == "ValueError: no such table"


def test_a_tick_in_progress_is_overdue_after_its_deadline() -> None:
    clock = Clock()
    seen: list[dict[str, datetime]] = []

    def run() -> None:
        clock.advance(4)
        seen.append(schedule.overdue())
        clock.advance(2)
        seen.append(schedule.overdue())

    job = _job(run)
    schedule = scheduled(job, Book(), clock)

    schedule.tick(job)

    assert seen == [{}, {"watch": START}]
    assert schedule.overdue() == {}


@pytest.mark.parametrize("step", [3600, -3600], ids=["forwards", "backwards"])
@pytest.mark.parametrize(("takes", "result"), [(4, "d"), (6, "l")])
def test_a_clock_that_is_set_is_no_time_that_a_tick_took(
    step: int, takes: int, result: str
) -> None:
    clock, book = Clock(), Book()
    seen: list[dict[str, datetime]] = []

    def run() -> None:
        clock.now += timedelta(seconds=step)
        clock.advance(takes)
        seen.append(schedule.overdue())

    job = _job(run)
    schedule = scheduled(job, book, clock)

    schedule.tick(job)

    assert seen == [{"watch": START} if result == "l" else {}]
    assert str(book)[0] == result


@pytest.mark.parametrize("jump", [60, -60], ids=["forwards", "backwards"])
def test_a_silent_timer_is_started_again(jump: float) -> None:
    clock = Clock(datetime.now(UTC))  # APScheduler has no other clock than the real one
    ran = threading.Event()
    job = Job("watch", timedelta(seconds=1), FIVE, ran.set)
    schedule = scheduled(job, Book(), clock)
    schedule.start()
    try:
        wait_for(ran.is_set)
        clock.advance(jump)

        schedule.watch()

        assert schedule.restarts == 1
    finally:
        schedule.stop()


def test_a_real_timer_runs_every_job_at_once_and_again() -> None:
    runs: list[float] = []
    job = Job("beat", timedelta(milliseconds=200), FIVE, lambda: runs.append(time.monotonic()))
    schedule = scheduled(job, Book(), lambda: datetime.now(UTC))

    schedule.start()
    try:
        wait_for(lambda: len(runs) >= 3)
    finally:
        schedule.stop()

    assert schedule.restarts == 0


@given(
    st.integers(0, 10**15).map(lambda micros: EPOCH + timedelta(microseconds=micros)),
    st.integers(1, 100_000),
    st.integers(0, 300),
)
def test_a_tick_is_on_the_grid_and_none_is_counted_twice(
    now: datetime, seconds: int, ticks: int
) -> None:
    every = timedelta(seconds=seconds)
    last = newest_tick(now, every)

    between = list(missed_ticks(last, last + every * ticks, every))

    assert (last - EPOCH) % every == timedelta()
    assert last <= now < last + every
    assert len(between) == max(ticks - 1, 0)
    assert all(newest_tick(tick, every) == tick for tick in between)


def test_a_long_silence_is_cut_into_batches() -> None:
    ticks = missed_ticks(EPOCH, EPOCH + FIVE * 12, FIVE)

    assert [len(batch) for batch in batch_ticks(ticks, 5)] == [5, 5, 1]
