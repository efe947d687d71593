"""Runs a real Redis on a loopback port, from the system's package; its content survives a kill."""

import shutil
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from redis import Redis as Client
from redis import RedisError

from demo.daemon import Daemon
from pipeline.errors import UnreachableError

START = timedelta(minutes=4)


@dataclass(eq=False)
class Redis:
    """One server; each command is in its log before it is answered."""

    home: Path
    port: int
    leashed: bool = True
    daemon: Daemon = field(init=False)

    def __post_init__(self) -> None:
        """Define the process; nothing is started or written."""
        self.daemon = Daemon("redis", self.home / "redis.log", self.leashed)

    def start(self) -> None:
        """Start it on the existing data; returns when it answers.

        Raises:
            UnreachableError: the program is not installed.
        """
        program = shutil.which("redis-server")
        if program is None:
            raise UnreachableError("there is no redis-server; install the package of that name")
        self.home.mkdir(parents=True, exist_ok=True)
        options = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self.home),
            "appendonly": "yes",
            "appendfsync": "no",  # survives kill -9, not a power cut
            "save": "",
        }
        told = (word for name, value in options.items() for word in (f"--{name}", value))
        self.daemon.start((program, *told), self._answers, START)

    def _answers(self) -> bool:
        """Tell whether it has loaded its data, and not only listens."""
        with Client(host="127.0.0.1", port=self.port) as client:
            try:
                return bool(client.ping())
            except RedisError:
                return False

    def stop(self) -> None:
        """Shut down; the data stays."""
        self.daemon.stop()

    def kill(self) -> None:
        """`kill -9`; the data stays."""
        self.daemon.kill()
