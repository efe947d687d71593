"""The whole way under load, in a folder that stays if anything is wrong with it."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
import yaml

from demo import processes
from demo.clocks import set_service_clock
from demo.connect import Connect
from demo.debezium import mysql_connector
from demo.kafka import Kafka
from demo.mysql import MySQL
from demo.ports import free_ports
from demo.processes import Process, started, wait_until
from demo.s3 import S3
from demo.servers import Servers
from demo.shop.schema import DATABASES, PAYMENTS_SHELF
from demo.shop.workload import Ledger, Shop, Workload
from demo.spark_cluster import DRIVER, SparkCluster
from demo.story.memory import family
from demo.story.service import CONFIG, Service, read_config
from pipeline.errors import UnreachableError
from tests.proof.asking import Asker, Question, questions
from tests.proof.judging import Base
from tests.proof.plan import Round, Victim
from tests.proof.system import MySQLSystem, System

HEARTBEAT = "sluice"
CONNECTOR = "shop"
ROWS = 400
PATIENCE = timedelta(minutes=6)
ORPHANS = timedelta(minutes=2)
MISLED = 5.0  # seconds that a wrong clock lasts once it was noticed


@dataclass(eq=False)
class Stand:
    """Servers, shop, service and asker in *home*; ``log`` tells what was done when.

    The lake lies in ``s3``, if there is one, and Spark runs on ``cluster``, with a job for each
    batch; whoever gave them starts and stops them.  The service reads ``config``; ``collect`` makes
    the shop's changes get into topics, by a ``connector``.  ``built`` names the servers of *home*,
    MySQL's as it is.
    """

    home: Path
    seed: int
    rate: float = 100
    config: Path = CONFIG
    collect: Callable[["Stand"], None] = lambda stand: stand.register()
    connector: str = CONNECTOR
    s3: S3 | None = None
    cluster: SparkCluster | None = None
    built: Callable[[Path], System] = MySQLSystem
    log: list[str] = field(default_factory=list)
    bases: list[Base] = field(default_factory=list)
    ends: ExitStack = field(default_factory=ExitStack)
    _stop: threading.Event = field(default_factory=threading.Event)
    _asking: Future[None] = field(default_factory=Future)
    _began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        """Name everything; nothing is started."""
        self.system: System = self.built(self.home)
        address = self.system.address
        self.shop, self.ledger = Shop(address), Ledger(self.home / "ledger.jsonl")
        self.workload = Workload(address, self.ledger, seed=self.seed, rate=self.rate)
        port, program = free_ports(1)[0], "demo.wrong_clock"
        environment = self.system.environment
        self.service = Service(
            self.home, environment, port, program, config=self._config(), s3=self.s3
        )
        self.asker = Asker(self.service.url, Random(f"ask/{self.seed}"))

    @property
    def servers(self) -> Servers:
        """Those of a system whose shop is on MySQL."""
        assert isinstance(self.system.site, Servers)
        return self.system.site

    def open(self) -> None:
        """Start everything; the first change after the snapshot is made when all is READY."""
        self.ends.callback(self.system.site.stop)
        self.system.site.start()
        self.shop.create()
        self.workload.fill(ROWS)
        begun = datetime.now(UTC)
        self.collect(self)
        self.ends.callback(self.service.stop)
        self.service.start()
        self.recover()
        self.bases.append(Base(begun, datetime.now(UTC)))
        self.ends.callback(self.workload.stop)
        self.workload.start()
        pool = ThreadPoolExecutor(1, thread_name_prefix="asker")
        self.ends.callback(self._stop.set)
        self._asking = pool.submit(self.asker.run, self._stop)
        pool.shutdown(wait=False)
        self.note("under load")

    def register(self) -> None:
        """Let a connector send all changes into topics named after the tables."""
        config = mysql_connector(
            self.servers.mysql,
            self.servers.kafka.bootstrap,
            databases=[*DATABASES, HEARTBEAT],
            settings=exact_floats(self.servers.mysql),
        )
        self.servers.connect.register(self.connector, config)

    def play(self, round_: Round) -> None:
        """Load, kill, start again, and recover unless in a rush."""
        self._stop.wait(round_.delay)
        self.note(f"kill {round_.victim}")
        self._kill(round_)
        self.note(f"{round_.victim} started again")
        if not round_.rush:
            self.recover()
            self.note("recovered")

    def mislead(self, seconds: float) -> None:
        """Set the service's clock wrong until it says so itself, and then right again."""
        set_service_clock(self.home, seconds)
        self.note(f"clock set wrong by {seconds:.0f} s")
        wait_until(self._doubted, PATIENCE, "doubt in the clock")
        self._stop.wait(MISLED)
        set_service_clock(self.home, 0)
        self.note("clock set right")
        self.recover()
        self.note("recovered")

    def rebase(self) -> None:
        """Let the collector take a new snapshot of everything, by the runbook, and recover."""
        begun, connect = datetime.now(UTC), self.system.site.connect
        connect.halt(self.connector)
        connect.forget_offsets(self.connector)
        connect.resume(self.connector)
        self.recover()
        self.bases.append(Base(begun, datetime.now(UTC)))
        self.note("new base")

    def recover(self, *held: str) -> None:
        """Wait until every table but *held* is READY, in both stages, as of the call.

        Raises:
            UnreachableError: if it does not become so.
        """
        left = [one for one in questions(datetime.now(UTC)) if one.table not in held]
        pause = threading.Event()

        def recovered() -> bool:
            left[:] = self.asker.ask(left)
            return not left or pause.wait(1)

        try:
            wait_until(recovered, PATIENCE, "recovery")
        except UnreachableError as error:
            raise UnreachableError(
                "\n".join([str(error), *self._describe(left), *self.log])
            ) from error

    def _describe(self, left: list[Question]) -> list[str]:
        """What the gate says now to each question that is *left*."""
        said = [(each, self.asker.answer(each)) for each in left]
        return [
            f"{each.stage} of {each.table} at {each.cut}: "
            + (f"{now.state} {', '.join(now.reasons)}" if now else "no answer")
            for each, now in said
        ]

    def note(self, what: str) -> None:
        """Say in the log what happened, and when."""
        changes = self.workload.tally["changes"]
        self.log.append(f"{time.monotonic() - self._began:6.1f} s, {changes} changes: {what}")

    def load(self, seconds: float) -> None:
        """Let the shop go on for a while."""
        self._stop.wait(seconds)

    @contextmanager
    def frozen(self) -> Iterator[list[Process]]:
        """The service's machine stands still, and goes on later as if nothing had been."""
        service = self.service.daemon.process
        if service is None:
            msg = "no service runs"
            raise UnreachableError(msg)
        asleep: list[Process] = []
        new = [service]
        try:
            while new:  # whoever was just started by one that did not yet stand still
                for each in new:
                    asleep.append(each)
                    _send(each, signal.SIGSTOP)
                wait_until(lambda: all(map(_still, asleep)), ORPHANS, "service that stands still")
                new = [each for each in self._relatives() if each not in asleep]
            yield asleep
        finally:
            for each in asleep:
                _send(each, signal.SIGCONT)

    def kill_service(self) -> None:
        """Kill it, and wait until nothing of it writes any more; it stays away."""
        with self.frozen() as everyone:
            self.service.daemon.kill()
        wait_until(lambda: not any(each.alive for each in everyone), ORPHANS, "end of orphans")

    @contextmanager
    def environment(self) -> Iterator[None]:
        """What the service finds in its environment is in this process's inside the block."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.service.daemon.environment.items():
                patch.setenv(name, value)
            yield

    def close(self) -> None:
        """Stop everything, those that write first; harmless when it is stopped."""
        self.ends.close()

    def finish(self) -> None:
        """Stop the writers, catch up, and stop what asks and answers; servers go on.

        Raises:
            pymysql.err.Error: what a writer could not bear.
        """
        self.workload.stop()
        self.note("writers stopped")
        self.recover()
        self.note("caught up")
        self._stop.set()
        self._asking.result()
        self.service.stop()

    def _config(self) -> Path:
        """As it was given, unless Spark is elsewhere."""
        if self.cluster is None:
            return self.config
        config = read_config(self.config)
        config["pipeline"] |= {"master": self.cluster.url, "small_batch_rows": 0}
        config["pipeline"]["spark"] |= DRIVER
        path = self.home / "sluice.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        return path

    def _doubted(self) -> bool:
        """Whether the service finds that the clocks do not agree."""
        answer = self.asker.answer(questions(datetime.now(UTC))[0])
        return answer is not None and "clock" in answer.reasons

    def _kill(self, round_: Round) -> None:
        match round_.victim:
            case Victim.SERVICE:
                self._kill_service()
            case Victim.SPARK:
                self._kill_spark()
            case Victim.CONNECT:
                self._restart(self.system.site.connect, round_.down)
            case Victim.KAFKA:
                self._restart(self.system.site.kafka, round_.down)

    def _kill_service(self) -> None:
        relatives = self._relatives()
        self.service.daemon.kill()
        self.service.start()
        wait_until(lambda: not any(each.alive for each in relatives), ORPHANS, "end of orphans")

    def _kill_spark(self) -> None:
        (jvm, *_) = wait_until(lambda: [p for p in self._relatives() if _java(p)], PATIENCE, "JVM")
        with suppress(ProcessLookupError):
            os.kill(jvm.pid, signal.SIGKILL)
        wait_until(lambda: not jvm.alive, ORPHANS, "end of the JVM")

    def _restart(self, server: Connect | Kafka, down: float) -> None:
        server.kill()
        self._stop.wait(down)
        server.start()

    def _relatives(self) -> list[Process]:
        """The service's Spark process, its JVM, and whatever else descends from the service."""
        service = self.service.daemon.process
        found = family(service.pid)[1:] if service else []
        return [Process(pid, when) for pid in found if (when := started(pid)) is not None]


def exact_floats(mysql: MySQL) -> dict[str, str]:
    """Settings by which a snapshot of payments holds all of a FLOAT.

    MySQL's text protocol prints six digits of one; a row that nobody touches later keeps them.
    """
    table = PAYMENTS_SHELF.name
    columns = [name for name, *_ in mysql.execute(f"SHOW COLUMNS FROM {table}")]
    chosen = ", ".join(f"{c} * 1e0 AS {c}" if c == "ratio" else c for c in columns)
    setting = "snapshot.select.statement.overrides"
    return {setting: table, f"{setting}.{table}": f"SELECT {chosen} FROM {table}"}


def _send(process: Process, number: signal.Signals) -> None:
    """To it alone; nothing happens if it has ended."""
    if process.alive:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _still(process: Process) -> bool:
    """Whether it does nothing, or has ended."""
    try:
        return processes.held(process.pid) or not process.alive
    except OSError:
        return True


def _java(process: Process) -> bool:
    try:
        return Path(f"/proc/{process.pid}/exe").readlink().name == "java"
    except OSError:  # it has ended meanwhile
        return False
