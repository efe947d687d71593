"""Keeps the Spark process alive, asks it one thing at a time and line, kills it when it is late.

Landing has a line of its own, so that it never waits for a merge.  A dead JVM cannot be revived
inside a Python process and a thread cannot be stopped: only another process can hold a deadline.
Killing is always safe, since the lake's commits are the only memory: but for harmful settings that
were seen while nothing could be committed, which the store keeps from one process to the next.
Cannot keep: those that only a landing saw which was killed, for it never replied.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import IO, cast

import structlog
from pydantic import TypeAdapter, ValidationError

from monitor.spark.child import Child
from monitor.spark.wire import LINES, OPENING, Failure, Reply, Request, Verb, as_error
from monitor.store.memory import CheckMemory
from pipeline.errors import ProofError, SluiceError, UnreachableError
from pipeline.finding import Finding
from pipeline.settings import PipelineSettings

COMMAND = (sys.executable, "-m", "monitor.spark.worker")
FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=60)
log = structlog.get_logger(__name__)

Hazards = Mapping[str, tuple[Finding, ...]]
_HAZARDS: TypeAdapter[Hazards] = TypeAdapter(Hazards)


@dataclass(eq=False)
class SeenHazards:
    """Harmful settings that landing has seen and that are in no mark yet, kept in the store."""

    memory: CheckMemory
    lane: str
    clock: Callable[[], datetime]
    unread: bool = False  # nothing may land meanwhile: a cut could be proven past them
    _kept: Hazards | None = None

    def known(self) -> Hazards:
        """What was kept last, by source; nothing where that is ``unread``."""
        try:
            kept = self.memory.recall(self._subject, "hazards")
            self._kept = _HAZARDS.validate_python(kept or {})
        except (SluiceError, ValidationError) as error:
            log.warning("hazards_not_recalled", error=str(error))
        self.unread = self._kept is None
        return self._kept or {}

    def keep(self, hazards: Hazards) -> None:
        """Keep *hazards* in place of those before, unless these are unread: they still count."""
        if hazards != self._kept and not self.unread:
            kept = _HAZARDS.dump_python(hazards, mode="json")
            self.memory.remember(self._subject, "hazards", kept, self.clock())
            self._kept = hazards

    @property
    def why(self) -> str:
        """What to do where they are unread."""
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
    _child: Child | None = None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _keeper: threading.Thread | None = None
    _failures: int = 0

    def __post_init__(self) -> None:
        """Each line takes one request at a time; applying and upkeep share mirrors in the lane."""
        self._turns = {verb: threading.Lock() for verb in LINES}

    @property
    def pid(self) -> int | None:
        """The process as it is now; None between two lives."""
        return self._child.process.pid if self._child else None

    def start(self) -> None:
        """Begin to keep a process alive; returns at once."""
        self._keeper = threading.Thread(target=self._keep, name="spark-keeper", daemon=True)
        self._keeper.start()

    def call(self, request: Request, deadline: timedelta) -> Reply:
        """Ask *request* (its number is set on the way) and wait at most *deadline*.

        Each line takes one request at a time; waiting for one's turn costs nothing of a deadline.

        Raises:
            SluiceError: what the pipeline raised; the process goes on.
            UnreachableError: no process, or it died or was late; it is started again.
            ProofError: nothing may land, as the harmful settings seen before cannot be read.
        """
        turn, until = self._turns[request.verb], time.monotonic() + deadline.total_seconds()
        while not turn.acquire(timeout=0.5):
            if self._stopping.is_set() or time.monotonic() > until:
                msg = f"the spark process was busy; {request.verb.value} was not asked"
                raise UnreachableError(msg)
        try:
            return self._ask(request, deadline)
        finally:
            turn.release()

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
            told = f": {self.trouble.text}" if self.trouble else ""
            msg = f"the spark process is starting again{told}"
            raise UnreachableError(msg)
        if request.verb is Verb.LAND:
            self._remind(child)
        reply = child.wait(child.ask(request), deadline)
        if self.seen is not None and reply.hazards is not None:
            self.seen.keep(reply.hazards)
        if reply.failure is not None:
            self.trouble = reply.failure
            raise as_error(reply.failure)
        self.trouble, self._failures = None, 0
        return reply

    def _remind(self, child: Child) -> None:
        """Where it could not be told what was seen before, only another one can."""
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
            if self._stopping.is_set():  # by somebody who did not see this one
                child.kill()
            status = child.bury()
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
        child.send(Request(OPENING, Verb.OPEN, settings=self.settings, hazards=seen))
        log.info("spark process started", pid=process.pid)
        return child
