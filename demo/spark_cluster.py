"""Runs Spark's standalone cluster: a master and workers; each can be killed like a machine.

All come with pyspark. Each listens at its own loopback address, so that no test passes only because
all are called 127.0.0.1. A worker's executors and Python die with its process group.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pyspark

from demo.daemon import Daemon
from demo.ports import free_ports, listening
from pipeline.spark import jars

START = timedelta(minutes=4)
HOME = Path(pyspark.__file__).parent
ENVIRONMENT = {"SPARK_HOME": str(HOME), "SPARK_SCALA_VERSION": "2.13"}  # as in bin/spark-class

DRIVER = {  # settings with which workers find a driver on this machine
    "spark.driver.host": "127.0.0.9",
    "spark.driver.bindAddress": "127.0.0.9",
    "spark.executor.memory": "512m",
}


@dataclass(eq=False)
class SparkCluster:
    """One master and *count* workers of one core each, in *home*."""

    home: Path
    count: int = 2
    memory: str = "512m"
    master: Daemon = field(init=False)
    workers: tuple[Daemon, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Define the processes; nothing is started."""
        self.home.mkdir(parents=True, exist_ok=True)
        self.port, self._page = free_ports(2)
        names = ["spark-master", *(f"spark-worker-{number}" for number in range(self.count))]
        self.master, *workers = (
            Daemon(name, self.home / f"{name}.log", environment=ENVIRONMENT) for name in names
        )
        self.workers = tuple(workers)

    @property
    def url(self) -> str:
        """Return the address of the master for a driver."""
        return f"spark://127.0.0.2:{self.port}"

    def start(self) -> None:
        """Start all; returns when the workers have registered."""
        command = self._command("master.Master", "127.0.0.2", self.port, self._page)
        self.master.start(command, lambda: listening(self.port, "127.0.0.2"), START)
        for number in range(self.count):
            self.start_worker(number)

    def start_worker(self, number: int) -> None:
        """Start one worker, also after a kill."""
        daemon = self.workers[number]
        daemon.log.unlink(missing_ok=True)
        port, page = free_ports(2)
        more = ("--cores", "1", "--memory", self.memory, "--work-dir", str(self.home / daemon.name))
        command = self._command("worker.Worker", f"127.0.0.{3 + number}", port, page)
        daemon.start((*command, *more, self.url), lambda: _registered(daemon), START)

    def stop(self) -> None:
        """End all."""
        for daemon in (*self.workers, self.master):
            daemon.kill()

    def _command(self, main: str, host: str, port: int, page: int) -> tuple[str, ...]:
        return (
            jars.find_java(),
            *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-cp", f"{HOME / 'jars'}/*"),
            f"org.apache.spark.deploy.{main}",
            *("--host", host, "--port", str(port), "--webui-port", str(page)),
        )


def _registered(worker: Daemon) -> bool:
    return "Successfully registered with master" in worker.log.read_text(errors="replace")
