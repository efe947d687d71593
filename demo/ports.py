"""Which ports may servers take?

Loopback ports below the range the kernel hands to outgoing connections: a server that is killed
must find its own port free when it comes back.
"""

import random
import socket
from contextlib import ExitStack

RANGE = range(18_000, 32_000)


def free_ports(count: int) -> tuple[int, ...]:
    """Distinct ports of 127.0.0.1 that nobody listens on now."""
    found: list[int] = []
    with ExitStack() as held:
        for port in random.sample(RANGE, len(RANGE)):
            if len(found) == count:
                break
            candidate = held.enter_context(socket.socket())
            try:
                candidate.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
    return tuple(found)


def listening(port: int, host: str = "127.0.0.1") -> bool:
    """Whether somebody accepts connections at *port* of *host*."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0
