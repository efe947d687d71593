"""The Spark process: answers requests, and ends with its parent.

Requests arrive on stdin, and replies leave on a separate pipe. Output of libraries goes to stderr.
Landing, merging, merging of tier 0, maintenance, publishing, looks of checks and backfills run in
parallel. Each has one thread and handles one request after the other. Nothing is remembered here:
the commits in the lake say where to continue.
"""

import faulthandler
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from ctypes import CDLL
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import IO, TYPE_CHECKING

import structlog

from monitor.runtime import configure_logging
from monitor.spark.requests import (
    CRASH,
    LINES,
    OPENING,
    Reply,
    Request,
    Verb,
    answer_request,
    as_failure,
    dump_reply,
    load_request,
)
from pipeline.errors import SluiceError
from pipeline.settings import PipelineSettings

if TYPE_CHECKING:
    from pipeline.lane import Lane  # which imports Spark

PR_SET_PDEATHSIG = 1  # prctl(2)
DRAINED_WITHIN = timedelta(seconds=5)  # part of the time that the service waits for a stop
log = structlog.get_logger(__name__)


OpenLane = Callable[[PipelineSettings, Callable[[str], object]], "Lane"]
"""Opens a lane, and reports its progress meanwhile."""


@dataclass(eq=False)
class RequestQueue:
    """Requests that a thread named *name* answers one after the other."""

    name: str
    answer: Callable[[Request], object]
    _requests: "queue.SimpleQueue[Request | None]" = field(default_factory=queue.SimpleQueue)

    def __post_init__(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._work, name=self.name, daemon=True)
        self._thread.start()

    def put(self, request: Request | None) -> None:
        """Queue *request*; None ends the thread after the queued requests."""
        self._requests.put(request)

    def ended(self, within: float) -> bool:
        """Wait at most *within* seconds; return whether the thread has ended."""
        self._thread.join(max(within, 0))
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            self.answer(request)


@dataclass(eq=False)
class RequestServer:
    """Answers requests with one lane, which the first request opens.

    ``crashed`` is called, from any thread, after the reply with an unexpected error.
    """

    open_lane: OpenLane
    replies: IO[bytes]
    crashed: Callable[[], object]
    lane: "Lane | None" = None
    _lines: dict[Verb, RequestQueue] = field(default_factory=dict)
    draining: threading.Event = field(default_factory=threading.Event)
    _silent: bool = False
    _writing: threading.Lock = field(default_factory=threading.Lock)

    def take(self, request: Request) -> bool:
        """Answer *request* or queue it for its line; False if this process must end."""
        if self.lane is not None and request.verb in LINES:
            if request.verb not in self._lines:
                self._lines[request.verb] = RequestQueue(request.verb.value, self._in_line)
            self._lines[request.verb].put(request)
            return True
        if request.verb is Verb.STOP:
            self.drain(DRAINED_WITHIN)
        self._answer(request)
        return self.lane is not None and request.verb is not Verb.STOP

    def drain(self, within: timedelta) -> None:
        """Start nothing new, and wait for running requests; those not done *within* get no reply.

        Without a reply, the caller does not record the end of Spark as a failure of a table.
        """
        self.draining.set()
        until = time.monotonic() + within.total_seconds()
        for line in self._lines.values():
            line.put(None)
        if not all(line.ended(until - time.monotonic()) for line in self._lines.values()):
            self.hush()

    def hush(self) -> None:
        """Stop all replies of lines; returns when none is being written."""
        with self._writing:
            self._silent = True

    @property
    def drained(self) -> bool:
        """Tell whether every line has ended."""
        return all(line.ended(0) for line in self._lines.values())

    def _in_line(self, request: Request) -> None:
        if not self.draining.is_set():
            self._answer(request)

    def _answer(self, request: Request) -> None:
        try:
            reply = self._with_jobs(self._do(request))
        except SluiceError as error:  # expected: no traceback
            if not self._silent:
                log.warning("request failed", verb=request.verb.value, why=str(error))
            reply = Reply(request.id, failure=as_failure(error))
        except Exception as error:  # the boundary of one job, in its own process
            if not self._silent:
                log.exception("request failed", verb=request.verb.value)
            reply = Reply(request.id, failure=as_failure(error))
        if request.verb is Verb.LAND and self.lane is not None:
            reply = replace(reply, hazards=self.lane.unsaid_hazards())
        with self._writing:
            if self._silent and request.verb in LINES:
                return
            self._write(reply)
        if reply.failure is not None and reply.failure.kind == CRASH:
            self.crashed()

    def _say_progress(self, what: str) -> None:
        with self._writing:
            self._write(Reply(OPENING, progress=what))

    def _write(self, reply: Reply) -> None:
        self.replies.write(dump_reply(reply))
        self.replies.flush()

    def _with_jobs(self, reply: Reply) -> Reply:
        return reply if self.lane is None else replace(reply, spark=self.lane.spark_work())

    def _do(self, request: Request) -> Reply:
        if request.verb is Verb.OPEN and request.settings is not None:
            self.lane = self.open_lane(request.settings, self._say_progress)
            self.lane.remind(request.hazards, request.held)
            return Reply(OPENING)
        if self.lane is None:
            msg = f"the first request must open a lane, not {request.verb.value}"
            raise RuntimeError(msg)
        return answer_request(self.lane, request)


def serve(open_lane: OpenLane, reply_fd: int) -> int:
    """Answer until a stop; return exit status 0 then, 1 after an unexpected failure."""
    signal.signal(signal.SIGTERM, lambda *_: _end_group())
    faulthandler.register(signal.SIGUSR1)  # the supervisor sends it before it kills a late process
    CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # not SIGKILL: it would leave the JVM behind
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the service handles Ctrl-C
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    threading.Thread(target=_read_requests, args=(lines,), daemon=True).start()
    with os.fdopen(reply_fd, "wb") as replies:
        server = RequestServer(open_lane, replies, crashed=lambda: lines.put(None))
        status = _answer_all(server, lines)
        server.hush()
    if not server.drained:  # the interpreter would wait for threads that are inside the JVM
        sys.stderr.flush()
        os._exit(status)
    return status


def _answer_all(server: RequestServer, lines: "queue.SimpleQueue[bytes | None]") -> int:
    while (line := lines.get()) is not None:
        request = load_request(line)
        if not server.take(request):
            return 0 if request.verb is Verb.STOP else 1
    return 1


def _read_requests(lines: "queue.SimpleQueue[bytes | None]") -> None:
    """Put each line of stdin into *lines*; the end of stdin means the parent has ended."""
    with os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0) as requests:
        for line in requests:  # unbuffered: a buffer's lock would be held at the end of main
            lines.put(line)
    _end_group()


def _end_group() -> None:
    """Kill this process and its JVM, which would otherwise keep writing to the lake."""
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _open_lane(settings: PipelineSettings, progress: Callable[[str], object]) -> "Lane":
    from pipeline.start import open_lane  # noqa: PLC0415  - seconds of Spark, only here

    return open_lane(settings, lambda: datetime.now(UTC), progress)


if __name__ == "__main__":
    configure_logging(json=not sys.stderr.isatty())
    sys.exit(serve(_open_lane, int(sys.argv[1])))
