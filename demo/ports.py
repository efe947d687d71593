"""Chooses the ports of servers.

Loopback ports below the range the kernel hands to outgoing connections: a server that is killed
must find its own port free when it comes back.  Between the choice of a port and its server's start
lie seconds, so each process has a share of its own to choose from, and gives no port twice.
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
    """Some of the ports; ``held`` keeps them from other processes until this one ends."""

    ports: range
    held: int | None = None
    left: list[int] = field(default_factory=list)

    def take(self) -> int:
        """One that was not given yet, or all were; at random, as others may not ask here."""
        if not self.left:
            self.left = random.sample(self.ports, len(self.ports))
        return self.left.pop()


def free_ports(count: int) -> tuple[int, ...]:
    """Distinct ports of 127.0.0.1 that are free now."""
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
    """The first share that no process has; all ports where there are more processes."""
    for first in RANGE[::SHARE]:
        with suppress(OSError):  # another process has it, or its file is another user's
            return PortShare(range(first, first + SHARE), _locked(f"sluice-ports-{first}"))
    return PortShare(RANGE)


def _locked(name: str) -> int:
    """Its descriptor, which stays open as long as this process lives."""
    file = os.open(Path(tempfile.gettempdir(), name), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise
    return file


def listening(port: int, host: str = "127.0.0.1") -> bool:
    """Whether somebody accepts connections at *port* of *host*."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0
