"""Starts a server, waits until it is ready, and ends it gracefully or by a kill."""

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from demo import processes
from demo.processes import Process
from pipeline.errors import UnreachableError


@dataclass(eq=False)
class Daemon:
    """A server's process and its log; its data is not handled here.

    ``asked`` is the signal that asks it to end.
    """

    name: str
    log: Path
    leashed: bool = True
    process: Process | None = field(default=None)
    environment: Mapping[str, str] = field(default_factory=dict)
    asked: signal.Signals = signal.SIGTERM

    @property
    def running(self) -> bool:
        """Tell whether its process exists; it may not be ready."""
        return self.process is not None and self.process.alive

    def start(self, command: Sequence[str], ready: Callable[[], bool], within: timedelta) -> None:
        """Start *command* and wait until it is *ready*.

        Raises:
            UnreachableError: it ends first, or is not ready in time; with the end of its log.
        """
        self.process = processes.start(
            command, log=self.log, leashed=self.leashed, environment=self.environment
        )
        try:
            processes.wait_until(lambda: ready() or not self.running, within, f"ready {self.name}")
        except UnreachableError as error:
            self.kill()
            msg = f"{error}: {self._last_words()}"
            raise UnreachableError(msg) from error
        if not self.running:
            msg = f"{self.name} ended at once: {self._last_words()}"
            raise UnreachableError(msg)

    def run(self, command: Sequence[str], within: timedelta) -> None:
        """Run *command* to its end.

        Raises:
            UnreachableError: it does not end in time.
        """
        self.process = processes.start(command, log=self.log)
        try:
            processes.wait_until(lambda: not self.running, within, f"end of {self.name}")
        finally:
            self.kill()

    def stop(self) -> bool:
        """End it; returns whether it ran and ended without a kill."""
        return self.running and self.process is not None and self.process.stop(asked=self.asked)

    def kill(self) -> None:
        """End it like a power cut; does nothing if it does not run."""
        if self.process is not None:
            self.process.kill()

    def _last_words(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-1500:]
