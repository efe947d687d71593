"""Starts, watches and ends servers, so that no process is left behind.

A process is identified by its id *and* its start time, because the id may belong to another process
by now. The kernel ends a leashed child with the *thread* that started it, so one thread starts them
all. It gets its work by a queue written in C: the locks of an executor are written in Python.
Ctrl-C inside one leaves it locked, and every later start would wait for ever.
"""

import _thread
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from pipeline.errors import UnreachableError

LEASH = Path(__file__).with_name("leash.py")
PAUSE, LONGEST_PAUSE = 0.05, 0.25  # seconds between two checks
GONE = timedelta(seconds=60)  # a busy machine takes time to free memory
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Process:
    """A running program: its id, and its start in clock ticks since the boot."""

    pid: int
    started: int

    @property
    def alive(self) -> bool:
        """Tell whether it still runs; a zombie does not, and is reaped if it is our child."""
        if started(self.pid) == self.started:
            return True
        with suppress(ChildProcessError):  # after the check: it may have ended just before that
            os.waitpid(self.pid, os.WNOHANG)
        return False

    def kill(self) -> None:
        """End it like a power cut; returns when it has ended."""
        self.signal(signal.SIGKILL)
        wait_until(lambda: not self.alive, GONE, f"end of process {self.pid}")

    def hold(self) -> None:
        """Send SIGSTOP; returns when all its threads have stopped, or it has ended.

        Its group gets the signal, too, and is not waited for.
        """
        self.signal(signal.SIGSTOP)
        with suppress(OSError):  # it has ended meanwhile
            wait_until(
                lambda: not self.alive or held(self.pid), GONE, f"pause of process {self.pid}"
            )

    def stop(
        self,
        grace: timedelta = GONE,
        asked: signal.Signals = signal.SIGTERM,
    ) -> bool:
        """Ask it to end, and kill it after *grace*; returns whether it ended without a kill."""
        self.signal(asked)
        with suppress(UnreachableError):
            return wait_until(lambda: not self.alive, grace, f"end of process {self.pid}")
        self.kill()
        return False

    def signal(self, number: signal.Signals) -> None:
        """Send *number* to its whole group; does nothing if it has ended."""
        if not self.alive:
            return
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:  # so young that it has no group of its own yet
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def start(
    command: Sequence[str],
    *,
    log: Path,
    leashed: bool = True,
    environment: Mapping[str, str] | None = None,
) -> Process:
    """Start *command* (its first word a full path) in its own session, with its output in *log*.

    *environment* is added to that of this process.
    """
    parent = os.getpid() if leashed else 0
    answer = SimpleQueue[Process | Exception]()
    work = partial(_spawn, command, log, parent, {**os.environ, **(environment or {})})
    _asked.put((work, answer))
    spawned = answer.get()
    if isinstance(spawned, Exception):
        raise spawned
    return spawned


def wait_until(condition: Callable[[], T], within: timedelta, what: str) -> T:
    """Return the first true result of *condition*, which is called less often in a long wait.

    Raises:
        UnreachableError: it takes too long; names *what* was waited for.
    """
    began = time.monotonic()
    while not (answer := condition()):
        waited = time.monotonic() - began
        if waited > within.total_seconds():
            msg = f"no {what} after {within.total_seconds():.0f} s"
            raise UnreachableError(msg)
        time.sleep(pause_after(waited))
    return answer


def pause_after(waited: float, least: float = PAUSE) -> float:
    """Return the seconds to pause after *waited* seconds: a twentieth, within bounds."""
    return min(max(waited / 20, least), LONGEST_PAUSE)


def started(pid: int) -> int | None:
    """Return the start time in clock ticks; None if there is no such process, or only its zombie.

    A zombie whose other threads are still ending has its ports and files, so it counts as running.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()  # the name before it may hold any characters
    threads, started = int(fields[16]), int(fields[18])
    return None if state in "ZX" and threads <= 1 else started


def held(pid: int) -> bool:
    """Tell whether a process that got SIGSTOP is stopped, with all its threads.

    Raises:
        OSError: there is no such process.
    """
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    try:
        stats = [(task / "stat").read_text(encoding="utf-8") for task in tasks]
    except OSError:  # a thread has ended since: not all of them had stopped
        return False
    return all(one.rpartition(")")[2].split()[0] == "T" for one in stats)


def _spawn(
    command: Sequence[str], log: Path, parent: int, environment: Mapping[str, str]
) -> Process:
    log.parent.mkdir(parents=True, exist_ok=True)
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", str(LEASH), str(parent), *command],
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
    )
    return Process(pid, started(pid) or 0)


def _start_asked() -> None:
    """Start the requested programs, for as long as this process runs."""
    while True:
        work, answer = _asked.get()
        try:
            answer.put(work())
        except Exception as error:  # noqa: BLE001 - it is raised where it was asked for
            answer.put(error)


_asked = SimpleQueue[tuple[Callable[[], Process], SimpleQueue[Process | Exception]]]()
_thread.start_new_thread(_start_asked, ())
