"""Runs each job at its ticks, and records which ticks ran, failed or were missed.

Ticks lie on a grid of wall-clock time that is the same in every run of the service. APScheduler
is only the timer. A slow job, a stopped scheduler or a service that is down may prevent a tick.
The next tick that starts reveals this, and every tick in between is recorded as missed.

A run of a continuous job also covers the ticks that become due while it runs. So its ticks are
missed only if it does not run at all.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice

import structlog
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger
from structlog.contextvars import bound_contextvars

from monitor.runtime import new_run
from monitor.store.ticks import Ticks
from pipeline.errors import SluiceError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def newest_tick(now: datetime, every: timedelta) -> datetime:
    """Return the newest tick at or before *now*."""
    return now - (now - EPOCH) % every


def missed_ticks(last: datetime, planned: datetime, every: timedelta) -> Iterator[datetime]:
    """Yield the ticks after *last* and before *planned*, oldest first."""
    tick = newest_tick(last, every) + every
    while tick < planned:
        yield tick
        tick += every


def batch_ticks(ticks: Iterator[datetime], size: int = 5_000) -> Iterator[tuple[datetime, ...]]:
    """Divide *ticks* into batches of *size*, so that even a week of ticks fits the statements."""
    while batch := tuple(islice(ticks, size)):
        yield batch


PULSE = timedelta(seconds=1)
SILENCE = timedelta(seconds=15)  # a timer without a tick for this long is dead or stuck
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """A periodic job, which runs in its own thread and never twice at the same time.

    A ``continuous`` job works off its whole backlog, however long that takes, so a run covers the
    ticks that become due meanwhile.  A ``vital`` job runs even while the book cannot be written,
    because otherwise no alert would report that.
    """

    name: str
    every: timedelta
    deadline: timedelta
    run: Callable[[], object]
    continuous: bool = False
    vital: bool = False


@dataclass(frozen=True, slots=True)
class Running:
    """A tick in progress."""

    planned: datetime
    started: datetime
    began: float  # the same by ``Schedule.elapsed``


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a tick, to be recorded in the book."""

    planned: datetime
    at: datetime
    result: str
    detail: str
    through: tuple[datetime, ...]


@dataclass(eq=False)
class Schedule:
    """Runs ``jobs`` and records their ticks in ``book``; ``clock`` is timezone-aware UTC.

    How long a tick takes is measured by ``elapsed``, in seconds, because a clock can be set.

    ``last`` has, per job, the newest tick of an earlier run of the service. ``problems`` has, per
    job, why its last tick failed.  If the book could not record the end of a job's last tick (full
    disk), the job waits until it can. Its ticks until then are missed.
    """

    jobs: Sequence[Job]
    book: Ticks
    clock: Callable[[], datetime]
    last: Mapping[str, datetime] = field(default_factory=dict)
    elapsed: Callable[[], float] = time.monotonic
    restarts: int = 0
    running: dict[str, Running] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    _seen: dict[str, datetime] = field(default_factory=dict)
    _booked: dict[str, datetime] = field(default_factory=dict)  # the newest ticks in the book
    _owed: dict[str, _End] = field(default_factory=dict)
    _pulse: datetime = EPOCH
    _timer: BackgroundScheduler | None = None
    _reported: set[tuple[str, datetime]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Continue where an earlier run of the service ended."""
        self._seen.update(self.last)
        self._booked.update(self.last)

    def start(self) -> None:
        """Start the timer; every job runs once immediately."""
        self._pulse = self.clock()
        workers = ThreadPoolExecutor(len(self.jobs) + 1)
        self._timer = BackgroundScheduler(executors={"default": workers}, timezone=UTC)
        self._add("pulse", PULSE, self._note_pulse)
        for job in self.jobs:
            self._add(job.name, job.every, partial(self.tick, job))
        self._timer.start()

    def stop(self) -> None:
        """Start no further ticks; running ones continue."""
        if self._timer is not None:
            self._timer.shutdown(wait=False)
            self._timer = None

    def wait(self, patience: timedelta) -> bool:
        """Wait for running ticks to end; false if one still runs after *patience*."""
        until = time.monotonic() + patience.total_seconds()
        while self.running and time.monotonic() < until:
            time.sleep(0.05)
        return not self.running

    def watch(self) -> None:
        """Log overdue jobs, and restart the timer if it is silent; called from another thread."""
        now = self.clock()
        for name, since in self.overdue().items():
            if (name, since) not in self._reported:
                self._reported.add((name, since))
                log.error("job is overdue", job=name, since=since.isoformat())
        if self._timer is not None and abs(now - self._pulse) > SILENCE:
            log.critical("the timer is silent; starting it again", since=self._pulse.isoformat())
            self.restarts += 1
            self.stop()
            self.start()

    def overdue(self) -> dict[str, datetime]:
        """Return the jobs that run longer than their deadline, and since when they run."""
        limits = {job.name: job.deadline.total_seconds() for job in self.jobs}
        now = self.elapsed()
        return {
            name: one.started
            for name, one in list(self.running.items())
            if now - one.began > limits[name]
        }

    def tick(self, job: Job) -> None:
        """Run *job* for the tick that is due now, unless that tick has already run."""
        planned = newest_tick(self.clock(), job.every)
        with self._lock:
            last = self._seen.get(job.name)
            if job.name in self.running:
                return
            if last is not None and last > self.clock():
                self.book.forget(job.name, planned, job.every)  # the clock went back
                self._booked.pop(job.name, None)
                self._owed.pop(job.name, None)
                last = None
            if last is not None and planned <= last:
                return
            self._seen[job.name] = planned
            self.running[job.name] = Running(planned, self.clock(), self.elapsed())
        try:
            with bound_contextvars(job=job.name, run=new_run()):
                self._run(job, planned)
        finally:
            del self.running[job.name]

    def _run(self, job: Job, planned: datetime) -> None:
        """Run one scheduled job; catch, log and record every exception."""
        started, began = self.clock(), self.elapsed()
        if not self._settled(job) and not job.vital:
            return
        try:
            if not self._accepted(job, planned, started):
                return
            job.run()
        except SluiceError as error:
            self._note_failure(job, error)
            self._finish(job, planned, "failed", _describe_error(error))
        except Exception as error:
            log.exception("job failed")
            self.problems[job.name] = _describe_error(error)
            self._finish(job, planned, "failed", _describe_error(error))
        else:
            late = self.elapsed() - began > job.deadline.total_seconds()
            self._finish(job, planned, "late" if late else "done")
            if job.name not in self._owed:  # else its problem is that the book cannot be written
                self.problems.pop(job.name, None)

    def _accepted(self, job: Job, planned: datetime, started: datetime) -> bool:
        """Record the start of the tick; false if it has already run."""
        try:
            self._note_missed(job, planned)
            accepted = self.book.start(job.name, planned, started)
        except SluiceError as error:
            if not job.vital:
                raise
            self._note_failure(job, error)
            return True
        self._booked[job.name] = planned
        return accepted

    def _note_failure(self, job: Job, error: SluiceError) -> None:
        if self.problems.get(job.name) != _describe_error(error):  # log once, not every second
            log.error("job failed", why=str(error))  # an expected error needs no traceback
        self.problems[job.name] = _describe_error(error)

    def _finish(self, job: Job, planned: datetime, result: str, detail: str = "") -> None:
        now = self.clock()
        after = newest_tick(now, job.every) + job.every
        through = tuple(missed_ticks(planned, after, job.every)) if job.continuous else ()
        self._owed[job.name] = _End(planned, now, result, detail, through)
        self._settled(job)

    def _settled(self, job: Job) -> bool:
        """Record the end of its last tick if that is open; false if the book cannot be written."""
        end = self._owed.get(job.name)
        if end is None:
            return True
        try:
            self._note_missed(job, end.planned)
            self.book.finish(
                job.name, end.planned, end.at, end.result, end.detail, through=end.through
            )
        except SluiceError as error:
            self._note_failure(job, error)
            return False
        del self._owed[job.name]
        until = max((end.planned, *end.through))
        self._booked[job.name] = until
        self._seen[job.name] = max(self._seen[job.name], until)
        return True

    def _note_missed(self, job: Job, planned: datetime) -> None:
        last = self._booked.get(job.name)
        if last is None:
            return
        for planneds in batch_ticks(missed_ticks(last, planned, job.every)):
            self.book.miss_many(job.name, planneds, self.clock())
            self._booked[job.name] = planneds[-1]

    def _add(self, name: str, every: timedelta, run: Callable[[], object]) -> None:
        if self._timer is None:
            return
        self._timer.add_job(
            run,
            IntervalTrigger(
                seconds=every.total_seconds(), start_date=newest_tick(self.clock(), every)
            ),
            id=name,
            next_run_time=self.clock(),
            max_instances=1,
            coalesce=True,
            misfire_grace_time=None,
        )

    def _note_pulse(self) -> None:
        self._pulse = self.clock()


def _describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]
