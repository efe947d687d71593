"""One life of the Spark process, as its supervisor holds it: pipes, who waits, and its end.

Replies come in any order and find their caller by number.  A life has one end, told once and with
one reason to everybody who waits, and to whoever asks later.
"""

import os
import signal
import subprocess
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from typing import IO

import structlog

from monitor.spark.wire import (
    CRASH,
    OPENING,
    Failure,
    Reply,
    Request,
    dump_request,
    load_reply,
)

OPENING_WITHIN = timedelta(minutes=3)
EXPLAINING = timedelta(milliseconds=200)
LAST_WORDS = timedelta(seconds=1)  # to read what a dead process has written
DIED = "the spark process died; it is started again"
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class Child:
    """One life of the Spark process; a process group of its own, so that its JVM goes with it.

    ``ended`` says why no reply comes any more, though the process may still be there.
    """

    process: subprocess.Popen[bytes]
    requests: IO[bytes]
    replies: IO[bytes]
    born: float = field(default_factory=time.monotonic)
    ended: Failure | None = None
    _opened: threading.Event = field(default_factory=threading.Event)
    _numbers: "count[int]" = field(default_factory=lambda: count(OPENING + 1))
    _waiting: dict[int, Future[Reply]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _writing: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Begin to read replies."""
        self._reader = threading.Thread(target=self._read, name="spark-replies", daemon=True)
        self._reader.start()

    def ask(self, request: Request) -> Future[Reply]:
        """Send *request* under a number of its own; its reply, or the end, will be the result."""
        answer: Future[Reply] = Future()
        with self._lock:
            number = next(self._numbers)
            if self.ended is not None:
                answer.set_result(Reply(number, failure=self.ended))
                return answer
            self._waiting[number] = answer
        self.send(replace(request, id=number))
        return answer

    def wait(self, answer: Future[Reply], deadline: timedelta) -> Reply:
        """The result of *answer*, waited for at most *deadline*.

        When it is late the process is killed, and all who wait are told so: a JVM that hangs in
        one thread is not trusted in another.  An opening is late after ``OPENING_WITHIN`` already.
        """
        until = time.monotonic() + deadline.total_seconds()
        limit, born = OPENING_WITHIN, self.born + OPENING_WITHIN.total_seconds()
        if self._opened.wait(min(until, born) - time.monotonic()):
            limit = deadline
            with suppress(TimeoutError):
                return answer.result(until - time.monotonic())
        self.end(f"spark process missed {limit}; killed")
        self._explain()
        self.kill()
        return answer.result()  # that it is late, or what came at the last moment

    def take(self, reply: Reply) -> None:
        """Hand *reply* to its caller; an opening that failed and a crash are the end of all."""
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
        """Let nobody wait any longer, because of *why*; the first reason stands."""
        self._end(Failure(CRASH, why))

    def send(self, request: Request) -> None:
        """Hand over *request* as it is; a dead process is found by its end."""
        try:
            with self._writing:
                self.requests.write(dump_request(request))
                self.requests.flush()
        except (OSError, ValueError):  # a closed pipe, at the other end or at ours
            log.info("spark process takes no more requests", pid=self.process.pid)

    def kill(self) -> None:
        """End the whole group at once; harmless when it is gone already."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def bury(self) -> int:
        """Wait for the end of the process and take its JVM with it; its exit status.

        Nobody waits for it any longer then, whoever may still hold its pipe open.
        """
        status = self.process.wait()
        self.kill()  # a JVM left behind would keep writing to the lake
        self._reader.join(LAST_WORDS.total_seconds())
        self.end(DIED)
        with suppress(OSError):
            self.requests.close()
        return status

    def _read(self) -> None:
        try:
            with self.replies:
                for line in self.replies:
                    self.take(load_reply(line))
        except ValueError:  # half a line: it was killed while it wrote it
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

    def _explain(self) -> None:
        """Let it write to the log where each of its threads stands."""
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGUSR1)
        time.sleep(EXPLAINING.total_seconds())
