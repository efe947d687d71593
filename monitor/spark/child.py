"""One life of the Spark process, as its supervisor holds it: pipes, deadlines, and its end."""

import os
import queue
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import IO

import structlog

from monitor.spark.wire import Reply, Request, dump_request

OPENING_WITHIN = timedelta(minutes=3)
EXPLAINING = timedelta(milliseconds=200)
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class Child:
    """One life of the Spark process; a process group of its own, so that its JVM goes with it."""

    process: subprocess.Popen[bytes]
    requests: IO[bytes]
    replies: "queue.SimpleQueue[Reply | None]" = field(default_factory=queue.SimpleQueue)
    writing: threading.Lock = field(default_factory=threading.Lock)
    born: float = field(default_factory=time.monotonic)
    opened: bool = False

    def next_reply(self, until: float) -> Reply | None:
        """The next reply, waited for up to monotonic time *until*; None once the process ended.

        Raises:
            queue.Empty: it is late; an opening is late after ``OPENING_WITHIN`` already.
        """
        limit = until if self.opened else min(until, self.born + OPENING_WITHIN.total_seconds())
        left = limit - time.monotonic()
        if left <= 0:
            raise queue.Empty
        reply = self.replies.get(timeout=left)
        self.opened = True
        return reply

    def explain(self) -> None:
        """Let it write to the log where each of its threads stands."""
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGUSR1)
        time.sleep(EXPLAINING.total_seconds())

    def send(self, request: Request) -> None:
        """Hand over *request*; a dead process is found when its reply is awaited."""
        try:
            with self.writing:
                self.requests.write(dump_request(request))
                self.requests.flush()
        except (OSError, ValueError):  # a closed pipe, at the other end or at ours
            log.info("spark process takes no more requests", pid=self.process.pid)

    def kill(self) -> None:
        """End the whole group at once; harmless when it is gone already."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def bury(self) -> int:
        """Wait for the end of the process and take its JVM with it; its exit status."""
        status = self.process.wait()
        self.kill()  # a JVM left behind would keep writing to the lake
        with suppress(OSError):
            self.requests.close()
        return status
