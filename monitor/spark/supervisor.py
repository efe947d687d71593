"""Keeps the Spark process running, sends it requests, and kills it when a reply is late.

Each verb takes one request at a time. Landing never waits for a merge.

A dead JVM cannot be revived inside a Python process, and a thread cannot be stopped. Only
another process can enforce a deadline. Killing is safe, because the only state is the commits
in the lake. The exception is harmful settings that landing saw while nothing could be
committed. The store keeps them from one process to the next. Cannot keep: settings that only a
killed landing saw, because it never replied.

Replies come in any order and find their caller by number. A process run ends once, with one
reason for all callers that wait and all that ask later.
"""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count
from typing import IO, cast

import structlog
from pydantic import TypeAdapter, ValidationError

from monitor.spark.requests import (
    CRASH,
    LINES,
    OPENING,
    Failure,
    Reply,
    Request,
    Verb,
    as_error,
    dump_request,
    load_reply,
)
from monitor.store.history import CheckMemory
from pipeline.errors import ProofError, SluiceError, UnreachableError
from pipeline.finding import Finding
from pipeline.settings import PipelineSettings

OPENING_WITHIN = timedelta(minutes=3)  # since the opening began, or since its last progress
EXPLAINING = timedelta(milliseconds=200)
LAST_WORDS = timedelta(seconds=1)  # to read what a dead process has written
DIED = "the Spark process died; it is started again"
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class Child:
    """One run of the Spark process, in its own process group, so that its JVM is killed with it.

    ``ended`` says why no reply will come, though the process may still exist. A separate thread
    writes requests: a process that does not read then blocks no caller, so deadlines hold while a
    request larger than the pipe is sent.
    """

    process: subprocess.Popen[bytes]
    requests: IO[bytes]
    replies: IO[bytes]
    progress: str = ""  # of the opening
    _sign: float = field(init=False)  # time of the last progress of the opening
    ended: Failure | None = None
    _opened: threading.Event = field(default_factory=threading.Event)
    _numbers: "count[int]" = field(default_factory=lambda: count(OPENING + 1))
    _waiting: dict[int, Future[Reply]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _lines: "queue.SimpleQueue[bytes | None]" = field(default_factory=queue.SimpleQueue)

    def __post_init__(self) -> None:
        """Start the threads that write requests and read replies."""
        self._sign = time.monotonic()
        self._writer = threading.Thread(target=self._write, name="spark-requests", daemon=True)
        self._writer.start()
        self._reader = threading.Thread(target=self._read, name="spark-replies", daemon=True)
        self._reader.start()

    def ask(self, request: Request) -> Future[Reply]:
        """Send *request* under a new number; the result is its reply, or the end of the process."""
        answer: Future[Reply] = Future()
        with self._lock:
            number = next(self._numbers)
            if self.ended is not None:
                answer.set_result(Reply(number, failure=self.ended))
                return answer
            self._waiting[number] = answer
        self.send(replace(request, id=number))
        return answer

    def has_opened(self, until: float) -> bool:
        """Wait until the opening ends, at most until *until* (monotonic); False if it still runs.

        An opening without progress for ``OPENING_WITHIN`` is late, and the process is killed. An
        opening with progress is not killed, because its work grows with what has landed.
        """
        while not self._opened.wait(min(until, self._late) - time.monotonic()):
            if time.monotonic() >= self._late:
                self._kill_late(OPENING_WITHIN)
            elif time.monotonic() >= until:
                return False
        return True

    def wait(self, answer: Future[Reply], until: float, deadline: timedelta) -> Reply:
        """Return the result of *answer*; wait at most until *until*, the end of its *deadline*.

        If it is late, the process is killed and every waiting caller gets an error: a JVM that
        hangs in one thread is not trusted in another.
        """
        with suppress(TimeoutError):
            return answer.result(until - time.monotonic())
        self._kill_late(deadline)
        return answer.result()  # the error that it is late, or a reply at the last moment

    def take(self, reply: Reply) -> None:
        """Pass *reply* to its caller; a failed opening or a crash ends all waits."""
        if reply.progress:
            self.progress, self._sign = reply.progress, time.monotonic()
            return
        with self._lock:
            answer = self._waiting.pop(reply.id, None)
        if answer is not None:
            answer.set_result(reply)
        crashed = reply.failure is not None and reply.failure.kind == CRASH
        if reply.failure is not None and (crashed or reply.id == OPENING):
            self._end(reply.failure)
        elif reply.id == OPENING:
            self._opened.set()

    def end(self, why: str) -> None:
        """End all waits with *why*; the first reason is kept."""
        self._end(Failure(CRASH, why))

    def send(self, request: Request) -> None:
        """Queue *request* for writing, unchanged, and return at once."""
        self._lines.put(dump_request(request))

    def kill(self) -> None:
        """Kill the whole process group at once; does nothing if it has ended."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def wait_for_exit(self) -> int:
        """Wait for the end of the process, kill its JVM, and return its exit status.

        All waits for replies end then, even if its pipe is still open. A process whose opening is
        late is killed, even if no caller waits for it.
        """
        while not self._opened.is_set():
            try:
                self.process.wait(max(0, self._late - time.monotonic()))
            except subprocess.TimeoutExpired:
                if not self._opened.is_set() and time.monotonic() >= self._late:
                    self._kill_late(OPENING_WITHIN)
            else:
                break
        status = self.process.wait()
        self.kill()  # a JVM left behind would keep writing to the lake
        self._reader.join(LAST_WORDS.total_seconds())
        self.end(DIED)
        self._lines.put(None)
        self._writer.join(LAST_WORDS.total_seconds())
        return status

    @property
    def _late(self) -> float:
        return self._sign + OPENING_WITHIN.total_seconds()

    def _write(self) -> None:
        try:
            with self.requests:
                while (line := self._lines.get()) is not None:
                    self.requests.write(line)
                    self.requests.flush()
        except OSError:  # the process has ended, which is noticed elsewhere, or closed the pipe
            log.info("spark process takes no more requests", pid=self.process.pid)

    def _read(self) -> None:
        try:
            with self.replies:
                for line in self.replies:
                    self.take(load_reply(line))
        except ValueError:  # half a line: the process was killed while writing it
            self.kill()
        finally:
            self.end(DIED)

    def _end(self, failure: Failure) -> None:
        with self._lock:
            self.ended = self.ended or failure
            left, self._waiting = self._waiting, {}
        for number, answer in left.items():
            answer.set_result(Reply(number, failure=self.ended))
        self._opened.set()

    def _kill_late(self, limit: timedelta) -> None:
        """Kill the process, after it has logged the stack of each of its threads."""
        self.end(f"spark process missed {limit}; killed")
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGUSR1)
        time.sleep(EXPLAINING.total_seconds())
        self.kill()


COMMAND = (sys.executable, "-m", "monitor.spark.worker")
FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=60)

Hazards = Mapping[str, tuple[Finding, ...]]
_HAZARDS: TypeAdapter[Hazards] = TypeAdapter(Hazards)


@dataclass(eq=False)
class SeenHazards:
    """Harmful settings that landing saw and no landing checkpoint has yet; kept in the store."""

    memory: CheckMemory
    lane: str
    clock: Callable[[], datetime]
    unread: bool = False  # nothing may land while true: a cut could be proven past them
    _kept: Hazards | None = None

    def known(self) -> Hazards:
        """Return the stored settings, by source; nothing if ``unread``."""
        try:
            kept = self.memory.recall(self._subject, "hazards")
            self._kept = _HAZARDS.validate_python(kept or {})
        except (SluiceError, ValidationError) as error:
            log.warning("hazards_not_recalled", error=str(error))
        self.unread = self._kept is None
        return self._kept or {}

    def keep(self, hazards: Hazards) -> None:
        """Store *hazards* instead of the previous ones, unless those are unread and still count."""
        if hazards != self._kept and not self.unread:
            kept = _HAZARDS.dump_python(hazards, mode="json")
            self.memory.remember(self._subject, "hazards", kept, self.clock())
            self._kept = hazards

    @property
    def why(self) -> str:
        """Return what to do if the stored settings are unreadable."""
        return (
            f"lane {self.lane}: which harmful settings landing has seen cannot be read from the"
            f" store; stop the service, delete row {self._subject} hazards of table memory in the"
            " store, start it, and bootstrap what they may have harmed"
        )

    @property
    def _subject(self) -> str:
        return f"lane:{self.lane}"


@dataclass(eq=False)
class Supervisor:
    """Starts the Spark process again whenever it ends, after a growing pause."""

    settings: PipelineSettings
    command: Sequence[str] = COMMAND
    first_pause: timedelta = FIRST_PAUSE
    restarts: int = 0
    trouble: Failure | None = None
    seen: SeenHazards | None = None
    held: Callable[[], frozenset[str]] = frozenset  # ids of the current holds
    _child: Child | None = None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _keeper: threading.Thread | None = None
    _failures: int = 0

    def __post_init__(self) -> None:
        """Create one lock per line, because each line takes one request at a time."""
        self._locks = {verb: threading.Lock() for verb in LINES}

    @property
    def pid(self) -> int | None:
        """Return the id of the running process; None between two runs."""
        return self._child.process.pid if self._child else None

    def start(self) -> None:
        """Start to keep a process running; returns at once."""
        self._keeper = threading.Thread(target=self._keep, name="spark-keeper", daemon=True)
        self._keeper.start()

    def call(self, request: Request, deadline: timedelta) -> Reply:
        """Send *request* (its number is set here) and wait at most *deadline* for the reply.

        Each line takes one request at a time. A request waits for its line for at most *deadline*,
        and then as long for the reply.

        Raises:
            SluiceError: what the pipeline raised; the process goes on.
            UnreachableError: the line is busy, or the process is opening, has died or was late.
            ProofError: nothing may land, as the harmful settings seen before cannot be read.
        """
        lock, until = self._locks[request.verb], time.monotonic() + deadline.total_seconds()
        while not lock.acquire(timeout=0.5):
            if self._stopping.is_set() or time.monotonic() > until:
                msg = f"the spark process was busy; {request.verb.value} was not asked"
                raise UnreachableError(msg)
        try:
            return self._ask(request, deadline)
        finally:
            lock.release()

    def stop(self, patience: timedelta) -> None:
        """Ask the process to close Spark, wait *patience*, then kill what is left of it."""
        self._stopping.set()
        child = self._child
        if child is not None:
            child.send(Request(-1, Verb.STOP))
            try:
                child.process.wait(patience.total_seconds())
            except subprocess.TimeoutExpired:
                log.warning("spark process did not stop in time", pid=child.process.pid)
            child.kill()
        if self._keeper is not None:
            self._keeper.join(timeout=5)

    def _ask(self, request: Request, deadline: timedelta) -> Reply:
        child = self._child
        if child is None:
            reason = f": {self.trouble.text}" if self.trouble else ""
            msg = f"the spark process is starting again{reason}"
            raise UnreachableError(msg)
        if request.verb is Verb.LAND:
            self._remind(child)
        until = time.monotonic() + deadline.total_seconds()
        if not child.has_opened(until):
            msg = f"the spark process is still opening: {child.progress or 'it starts Spark'}"
            raise UnreachableError(msg)
        reply = child.wait(child.ask(request), until, deadline)
        if self.seen is not None and reply.hazards is not None:
            self.seen.keep(reply.hazards)
        if reply.failure is not None:
            self.trouble = reply.failure
            raise as_error(reply.failure)
        self.trouble, self._failures = None, 0
        return reply

    def _remind(self, child: Child) -> None:
        """Kill a process that did not receive the stored harmful settings, which are readable now.

        Raises:
            ProofError: they are still unreadable.
        """
        if self.seen is None or not self.seen.unread:
            return
        if self.seen.known():
            child.kill()
        if self.seen.unread:
            raise ProofError(self.seen.why)

    def _keep(self) -> None:
        """Own the process from a thread that outlives it: its death signal follows this thread."""
        while not self._stopping.is_set():
            self._child = child = self._spawn()
            if self._stopping.is_set():  # stopped by a caller that did not see this process
                child.kill()
            status = child.wait_for_exit()
            self._child = None
            if self._stopping.is_set():
                return
            self._failures += 1
            pause = min(self.first_pause * 2 ** min(self._failures - 1, 10), LONGEST_PAUSE)
            log.warning("spark process ended", status=status, pause=pause.total_seconds())
            self._stopping.wait(pause.total_seconds())
            self.restarts += 1

    def _spawn(self) -> Child:
        reading, writing = os.pipe()
        process = subprocess.Popen(
            [*self.command, str(writing)],
            stdin=subprocess.PIPE,
            pass_fds=(writing,),
            start_new_session=True,
        )
        os.close(writing)
        child = Child(process, cast("IO[bytes]", process.stdin), os.fdopen(reading, "rb"))
        seen = {} if self.seen is None else self.seen.known()
        opening = Request(OPENING, Verb.OPEN, settings=self.settings, hazards=seen)
        child.send(replace(opening, held=self.held()))
        log.info("spark process started", pid=process.pid)
        return child
