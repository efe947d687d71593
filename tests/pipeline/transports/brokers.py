"""Brokers that one test needs for itself: several that elect leaders, or one that asks who you are.

A controller of its own, so that a majority is there whichever brokers are dead.  A certificate is
signed by itself, and speaks of 127.0.0.1 alone: who comes by another name must not believe it.
"""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from demo.daemon import Daemon
from demo.java import Program
from demo.ports import free_ports, listening
from pipeline.spark import jars

START = timedelta(minutes=3)  # against hanging only
CLUSTER = "c2x1aWNlLXRlc3RzLWthZg"
QUICK = {
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "broker.heartbeat.interval.ms": "250",
    "broker.session.timeout.ms": "1500",  # a killed broker's partitions are led by another after it
    "replica.lag.time.max.ms": "1500",
    "replica.fetch.wait.max.ms": "100",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "1",
    "log.cleaner.enable": "false",
}
PASSWORDS = {"admin": "over-all", "reader": "right"}
ASKING = {  # for one broker: who are you, and may you?
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.clients.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' username="admin" password="over-all" user_admin="over-all" user_reader="right";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",  # the controller's own connections have no name
}

SCRAM: Final = "SCRAM-SHA-512"
SECURED = {  # for one broker: nothing unencrypted, and no password sent
    "listener.security.protocol.map": "CLIENTS:SASL_SSL,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": SCRAM,
    "sasl.mechanism.inter.broker.protocol": SCRAM,
    "listener.name.clients.scram-sha-512.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required"
        ' username="admin" password="over-all";'
    ),
    "ssl.keystore.type": "PKCS12",
    "ssl.keystore.password": "of-the-store",
    "ssl.truststore.type": "PEM",  # it looks whether it would believe itself
}


@dataclass(eq=False)
class Node:
    """One process of a cluster; ``controller`` is where all find its only controller."""

    home: Path
    id: int
    port: int
    controller: str
    roles: str
    more: Mapping[str, str] = field(default_factory=dict)
    users: Mapping[str, str] = field(default_factory=dict)  # who log in by SCRAM
    daemon: Daemon = field(init=False)

    def __post_init__(self) -> None:
        self.daemon = Daemon(f"kafka {self.id}", self.home / "kafka.log")

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start on the data that is there, or on fresh data."""
        self.home.mkdir(parents=True, exist_ok=True)
        settings = self.home / "server.properties"
        settings.write_text("".join(f"{k}={v}\n" for k, v in self._settings().items()))
        if not (self.home / "data").exists():
            told = (f"{SCRAM}=[name={name},password={word}]" for name, word in self.users.items())
            users = (word for one in told for word in ("--add-scram", one))
            arguments = ("format", "-t", CLUSTER, "-c", str(settings), *users)
            program = self._program("kafka.tools.StorageTool", arguments, "128m")
            Daemon(f"format {self.id}", self.home / "format.log").run(program.command, START)
        program = self._program("kafka.Kafka", (str(settings),), "256m")
        self.daemon.start(program.command, lambda: listening(self.port), START)

    def kill(self) -> None:
        self.daemon.kill()

    def _program(self, main: str, arguments: tuple[str, ...], heap: str) -> Program:
        return Program(main, arguments, self.home, heap=heap, level="warn")

    def _settings(self) -> dict[str, str]:
        listener = f"CONTROLLER://{self.controller}"
        if "broker" in self.roles:
            alone = f",{listener}" if "controller" in self.roles else ""
            listener = f"CLIENTS://{self.bootstrap}{alone}"
        named = {"inter.broker.listener.name": "CLIENTS"} if "broker" in self.roles else {}
        return {
            "process.roles": self.roles,
            "node.id": str(self.id),
            "controller.quorum.voters": f"1@{self.controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": listener,
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.home / "data"),
            **named,
            **QUICK,
            **self.more,
        }


def cluster(home: Path) -> tuple[Node, Node, Node]:
    """A controller and two brokers; nothing is started."""
    ports = free_ports(3)
    controller = f"127.0.0.1:{ports[0]}"
    return (
        Node(home / "1", 1, ports[0], controller, "controller"),
        Node(home / "2", 2, ports[1], controller, "broker"),
        Node(home / "3", 3, ports[2], controller, "broker"),
    )


def asking(home: Path) -> Node:
    """One broker that lets nobody in without a password, and nowhere without a right."""
    port, controller = free_ports(2)
    return Node(home, 1, port, f"127.0.0.1:{controller}", "broker,controller", ASKING)


def secured(home: Path) -> Node:
    """One broker that is told from others by its certificate, ``home / "ca.pem"``."""
    (port, controller), store, ca = free_ports(2), home / "store.p12", home / "ca.pem"
    home.mkdir(parents=True)
    own = f"-keystore {store} -storepass {SECURED['ssl.keystore.password']} -alias own"
    told = "-keyalg EC -dname CN=broker -validity 2 -ext san=ip:127.0.0.1 -ext bc:c"
    _keytool(f"-genkeypair {own} {told}")
    _keytool(f"-exportcert {own} -rfc -file {ca}")
    files = {"ssl.keystore.location": str(store), "ssl.truststore.location": str(ca)}
    at = f"127.0.0.1:{controller}"
    return Node(home, 1, port, at, "broker,controller", SECURED | files, PASSWORDS)


def _keytool(arguments: str) -> None:
    tool = Path(jars.find_java()).resolve().with_name("keytool")
    subprocess.run([tool, *arguments.split()], check=True, capture_output=True, timeout=60)
