"""Starts, watches and ends servers, so that no process is left behind.

A process is known by its id *and* its start time: an id alone may belong to another process by now.
The kernel ends a leashed child with the *thread* that started it, so one thread starts them all.
It is asked by a queue written in C: an executor's locks are written in Python, and Ctrl-C in the
middle of one leaves it held, so that every later start would wait for ever.
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
PAUSE, LONGEST_PAUSE = 0.05, 0.25  # seconds between two looks
GONE = timedelta(seconds=60)  # a busy machine takes its time to give memory back
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Process:
    """A running program: its id, and its start in clock ticks since the machine's own."""

    pid: int
    started: int

    @property
    def alive(self) -> bool:
        """Whether it still runs; a zombie does not, and is reaped if it is our child."""
        if started(self.pid) == self.started:
            return True
        with suppress(ChildProcessError):  # after the look: it may have ended just before that
            os.waitpid(self.pid, os.WNOHANG)
        return False

    def kill(self) -> None:
        """End it as a power cut would; returns when it is gone."""
        self.signal(signal.SIGKILL)
        wait_until(lambda: not self.alive, GONE, f"end of process {self.pid}")

    def hold(self) -> None:
        """Let it stand still until it is sent SIGCONT; returns when all its threads do, or none is.

        Its group is sent the signal, too, and is not waited for.
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
        """Send *number* to its whole group; nothing happens if it is gone."""
        if not self.alive:
            return
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:  # so young that it is not yet a group of its own
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def start(
    command: Sequence[str],
    *,
    log: Path,
    leashed: bool = True,
    environment: Mapping[str, str] | None = None,
) -> Process:
    """Start *command* (its first word a full path) in its own session, its output into *log*.

    *environment* is added to this process's own.
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
    """Return the first true answer of *condition*, which is asked less often in a long wait.

    Raises:
        UnreachableError: not in time; names *what* was waited for.
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
    """Seconds until the next look of who has *waited*: a twentieth of it, within bounds."""
    return min(max(waited / 20, least), LONGEST_PAUSE)


def started(pid: int) -> int | None:
    """Start time in clock ticks; None if there is no such process, or only its zombie.

    A zombie whose other threads are still ending holds its ports and files: it counts as running.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()  # the name before it may hold anything
    threads, started = int(fields[16]), int(fields[18])
    return None if state in "ZX" and threads <= 1 else started


def held(pid: int) -> bool:
    """Whether a process that was sent SIGSTOP stands still, with all its threads.

    Raises:
        OSError: if there is no such process.
    """
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    try:
        stats = [(task / "stat").read_text(encoding="utf-8") for task in tasks]
    except OSError:  # a thread has ended since: not all of them stood still
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
    """Start what is asked for, for as long as this process lives."""
    while True:
        work, answer = _asked.get()
        try:
            answer.put(work())
        except Exception as error:  # noqa: BLE001 - it is raised where it was asked for
            answer.put(error)


_asked = SimpleQueue[tuple[Callable[[], Process], SimpleQueue[Process | Exception]]]()
_thread.start_new_thread(_start_asked, ())
