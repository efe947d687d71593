"""Runs MySQL, Kafka and Connect together: one folder, free ports, started and stopped as one.

`servers.json` in the folder describes a running set, so that another process can find or end it.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from demo.beside import Aside
from demo.connect import Connect
from demo.kafka import Kafka
from demo.mysql import MySQL
from demo.ports import free_ports
from demo.postgres import Postgres
from demo.processes import Process
from pipeline.errors import ConfigError

RECORD = "servers.json"


@dataclass(eq=False)
class Servers:
    """The three servers of one folder; usable in `with`, which starts and stops them."""

    home: Path
    mysql: MySQL
    kafka: Kafka
    connect: Connect

    @classmethod
    def create(cls, home: Path, *, leashed: bool = True) -> Self:
        """Define the servers of *home*, with the same ports as before; nothing is started.

        Leashed servers die with this process; others run until they are stopped.
        """
        home.mkdir(parents=True, exist_ok=True)
        ports = home / "ports.json"
        if not ports.exists():  # connectors remember ports, so a folder keeps its first ones
            ports.write_text(json.dumps(free_ports(4)), encoding="utf-8")
        return cls._on(home, json.loads(ports.read_text(encoding="utf-8")), leashed=leashed)

    @classmethod
    def load(cls, home: Path) -> Self:
        """Return the servers that were started in *home*.

        Raises:
            ConfigError: none were started there.
        """
        try:
            record = json.loads((home / RECORD).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            msg = f"no servers were started in {home}; start them with `python -m demo up`"
            raise ConfigError(msg) from error
        servers = cls.create(home, leashed=record["leashed"])
        for name, process in record["processes"].items():
            getattr(servers, name).daemon.process = Process(**process)
        return servers

    def start(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Start all three; returns when all are ready. After an error it stops them and raises.

        *say* gets a line for each that is ready.
        """
        try:
            mysql = Aside(lambda: self._start_mysql(say))
            try:
                self.kafka.start()
                say(f"Kafka is ready at {self.kafka.bootstrap}")
                self.connect.start()
                say(f"Connect is ready at {self.connect.url}")
                mysql.result()
            finally:
                mysql.wait()  # it is stopped below, and must not start after that
            self.record()
        except BaseException:
            self.stop()
            raise

    def _start_mysql(self, say: Callable[[str], None]) -> None:
        self.mysql.start()
        say(f"MySQL is ready at port {self.mysql.port}")

    def stop(self) -> None:
        """Stop all three, readers before the servers that they read."""
        for server in (self.connect, self.kafka, self.mysql):
            server.stop()
        (self.home / RECORD).unlink(missing_ok=True)

    def addresses(self) -> dict[str, Any]:
        """Return the addresses of the servers and the logins, ready for JSON."""
        return {
            "home": str(self.home),
            "mysql": {
                "host": self.mysql.host,
                "port": self.mysql.port,
                "server_id": self.mysql.server_id,
                "users": {"root": "", "debezium": "debezium", "sluice": "sluice"},
            },
            "kafka": {"bootstrap": self.kafka.bootstrap},
            "connect": {"url": self.connect.url},
        }

    def __enter__(self) -> Self:
        """Start them."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop them."""
        self.stop()

    @classmethod
    def _on(cls, home: Path, ports: Sequence[int], *, leashed: bool) -> Self:
        home = home.resolve()
        kafka = Kafka(home / "kafka", ports[1], ports[2], leashed)
        return cls(
            home,
            MySQL(home / "mysql", ports[0], leashed=leashed),
            kafka,
            Connect(home / "connect", ports[3], kafka.bootstrap, leashed),
        )

    def record(self) -> None:
        """Write which servers run now, for `load`; needed after a restart of servers that stay."""
        daemons = (self.mysql.daemon, self.kafka.daemon, self.connect.daemon)
        record = {
            **self.addresses(),
            "leashed": self.mysql.leashed,
            "processes": {
                daemon.name: asdict(daemon.process)
                for daemon in daemons
                if daemon.process is not None
            },
        }
        (self.home / RECORD).write_text(json.dumps(record, indent=2), encoding="utf-8")


@dataclass(eq=False)
class PostgresServers:
    """Postgres, Kafka and Connect in one folder, on free ports; the data of Postgres is removed."""

    postgres: Postgres
    kafka: Kafka
    connect: Connect

    @classmethod
    def create(cls, home: Path, version: str) -> Self:
        """Define the servers of *home*; nothing is started."""
        home, ports = home.resolve(), free_ports(4)
        kafka = Kafka(home / "kafka", ports[1], ports[2])
        connect = Connect(home / "connect", ports[3], kafka.bootstrap)
        return cls(Postgres(home / "postgres", ports[0], version), kafka, connect)

    def start(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Start all three; *say* gets a line for each that is ready."""
        self.postgres.start()
        say(f"Postgres {self.postgres.version} is ready at port {self.postgres.port}")
        self.kafka.start()
        say(f"Kafka is ready at {self.kafka.bootstrap}")
        self.connect.start()
        say(f"Connect is ready at {self.connect.url}")

    def stop(self) -> None:
        """Stop all three, readers before the servers that they read."""
        self.connect.stop()
        self.kafka.stop()
        self.postgres.remove()
