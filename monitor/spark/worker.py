"""The Spark process: does what it is asked, one request after the other, and dies with its parent.

Requests come in on stdin, replies leave on a pipe of their own; whatever libraries print goes to
stderr.  Nothing is remembered here: the lake's own commits say where to go on.
"""

import faulthandler
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from ctypes import CDLL
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Protocol

import structlog

from monitor.logs import configure
from monitor.spark.wire import (
    CRASH,
    OPENING,
    Reply,
    Request,
    Verb,
    as_failure,
    dump_reply,
    load_request,
)
from pipeline.report import Applied, Landed
from pipeline.settings import PipelineSettings

PR_SET_PDEATHSIG = 1  # prctl(2)
log = structlog.get_logger(__name__)


class Lane(Protocol):
    """What this process asks of the pipeline."""

    def land(self, waived: frozenset[str]) -> Landed:
        """Land one batch."""
        ...

    def apply(self, waived: frozenset[str]) -> tuple[Applied, ...]:
        """Merge what is landed."""
        ...

    def upkeep(self, readers: Mapping[str, int]) -> object:
        """Compact and clean, keeping the versions that *readers* still need."""
        ...

    def close(self) -> None:
        """Stop Spark."""
        ...


OpenLane = Callable[[PipelineSettings], Lane]


@dataclass(eq=False)
class Server:
    """Answers requests with one lane, opened by the first of them."""

    open_lane: OpenLane
    replies: IO[bytes]
    lane: Lane | None = None

    def answer(self, request: Request) -> bool:
        """Do what *request* asks and reply; false when this process should end."""
        try:
            reply = self._do(request)
        except Exception as error:  # the boundary of one job, in its own process
            log.exception("request failed", verb=request.verb.value)
            reply = Reply(request.id, failure=as_failure(error))
        self.replies.write(dump_reply(reply))
        self.replies.flush()
        crashed = reply.failure is not None and reply.failure.kind == CRASH
        return self.lane is not None and request.verb is not Verb.STOP and not crashed

    def _do(self, request: Request) -> Reply:
        if request.verb is Verb.OPEN and request.settings is not None:
            self.lane = self.open_lane(request.settings)
            return Reply(OPENING)
        if self.lane is None:
            msg = f"the first request must open a lane, not {request.verb.value}"
            raise RuntimeError(msg)
        match request.verb:
            case Verb.LAND:
                return Reply(request.id, landed=self.lane.land(request.waived))
            case Verb.APPLY:
                return Reply(request.id, applied=self.lane.apply(request.waived))
            case Verb.UPKEEP:
                self.lane.upkeep(request.readers)
            case Verb.STOP:
                self.lane.close()
        return Reply(request.id)


def serve(open_lane: OpenLane, reply_fd: int) -> int:
    """Answer until told to stop; exit status 0 then, 1 after a failure nobody foresaw."""
    signal.signal(signal.SIGTERM, lambda *_: _end_group())
    faulthandler.register(signal.SIGUSR1)  # asked for before the process is killed as late
    CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # not SIGKILL: it would leave the JVM behind
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the service's to handle
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_requests, args=(lines,), daemon=True).start()
    with os.fdopen(reply_fd, "wb") as replies:
        server = Server(open_lane, replies)
        while True:
            request = load_request(lines.get())
            if not server.answer(request):
                return 0 if request.verb is Verb.STOP else 1


def _read_requests(lines: "queue.SimpleQueue[bytes]") -> None:
    """Pass on stdin; its end means the parent is gone."""
    with os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0) as requests:
        for line in requests:  # unbuffered: a buffer's lock would be held at the end of main
            lines.put(line)
    _end_group()


def _end_group() -> None:
    """End this process and its JVM, which would keep writing to the lake."""
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _open_lane(settings: PipelineSettings) -> Lane:
    from pipeline.start import open_lane  # noqa: PLC0415  - seconds of Spark, only here

    lane: Lane = open_lane(settings, lambda: datetime.now(UTC))
    return lane


if __name__ == "__main__":
    configure(json=not sys.stderr.isatty())
    sys.exit(serve(_open_lane, int(sys.argv[1])))
