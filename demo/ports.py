"""Chooses the ports of servers.

Ports are below the range that the kernel uses for outgoing connections: a killed server must find
its own port free when it restarts. Seconds pass between the choice of a port and the start of its
server. So each process has its own share of ports, and returns no port twice.
"""

import fcntl
import os
import random
import socket
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

RANGE = range(18_000, 32_000)
SHARE = 1_000


@dataclass(eq=False)
class PortShare:
    """A part of the ports; the open file ``held`` reserves it until this process ends."""

    ports: range
    held: int | None = None
    left: list[int] = field(default_factory=list)

    def take(self) -> int:
        """Return a random port that was not returned yet, or any if all were."""
        if not self.left:
            self.left = random.sample(self.ports, len(self.ports))
        return self.left.pop()


def free_ports(count: int) -> tuple[int, ...]:
    """Return distinct ports of 127.0.0.1 that are free now."""
    own, found = _own(os.getpid()), list[int]()
    with ExitStack() as held:
        for _ in own.ports:
            if len(found) == count:
                break
            port = own.take()
            candidate = held.enter_context(socket.socket())
            try:
                candidate.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
    return tuple(found)


@cache
def _own(_: int) -> PortShare:
    """Return the first share that no process has; all ports if there are too many processes."""
    for first in RANGE[::SHARE]:
        with suppress(OSError):  # another process has it, or its file belongs to another user
            return PortShare(range(first, first + SHARE), _locked(f"sluice-ports-{first}"))
    return PortShare(RANGE)


def _locked(name: str) -> int:
    """Lock a file, and return its descriptor, which stays open as long as this process runs."""
    file = os.open(Path(tempfile.gettempdir(), name), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise
    return file


def listening(port: int, host: str = "127.0.0.1") -> bool:
    """Tell whether a program accepts connections at *port* of *host*."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0
