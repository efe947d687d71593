"""Runs a real Kafka broker (KRaft, broker and controller in one process), replication factor 1.

Topics are never created by a request for them: a consumer that starts too early must not decide how
many partitions a topic has.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from demo.daemon import Daemon
from demo.java import Program
from demo.ports import listening

START = timedelta(minutes=4)
CLUSTER = "c2x1aWNlLWRlbW8ta2Fma2"  # the cluster's id: any 22 characters of base64


@dataclass(eq=False)
class Kafka:
    """One broker on two loopback ports."""

    home: Path
    port: int
    controller_port: int
    leashed: bool = True
    daemon: Daemon = field(init=False)

    def __post_init__(self) -> None:
        """Define the process; nothing is started or written."""
        self.home = self.home.resolve()
        self.daemon = Daemon("kafka", self.home / "kafka.log", self.leashed)

    @property
    def bootstrap(self) -> str:
        """Return the address with which clients begin."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start on existing or fresh data; returns when it accepts clients."""
        self.home.mkdir(parents=True, exist_ok=True)
        settings = self.home / "server.properties"
        settings.write_text(self._settings(), encoding="utf-8")
        if not (self.home / "data" / "meta.properties").exists():
            self._format(settings)
        self.daemon.start(self._program.command, lambda: listening(self.port), START)

    def stop(self) -> None:
        """Shut down; the data stays."""
        if self.daemon.stop():
            self._program.keep_classes()

    def kill(self) -> None:
        """`kill -9`; the data stays."""
        self.daemon.kill()

    def restart(self) -> None:
        """Kill it, and start it again on the same ports and data."""
        self.kill()
        self.start()

    @property
    def _program(self) -> Program:
        settings = str(self.home / "server.properties")
        return Program("kafka.Kafka", (settings,), self.home, heap="512m", level="warn")

    def _format(self, settings: Path) -> None:
        arguments = ("format", "--standalone", "-t", CLUSTER, "-c", str(settings))
        program = Program(
            "kafka.tools.StorageTool", arguments, self.home, heap="128m", level="warn"
        )
        Daemon("format of kafka's storage", self.home / "kafka.log").run(program.command, START)
        program.keep_classes()

    def _settings(self) -> str:
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller_port}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.home / "data"),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "broker.heartbeat.interval.ms": "1000",
            "broker.session.timeout.ms": "4000",  # how soon a killed broker is accepted again
            "group.initial.rebalance.delay.ms": "0",
            "num.network.threads": "2",
            "num.io.threads": "4",
            "background.threads": "2",
            "metadata.max.idle.interval.ms": "0",  # else it writes an empty record twice a second
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())
