"""Provides the objects of the acts: servers, shop, service, screen; each act starts its own."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.client import CONFLICT, OK
from pathlib import Path

from demo.ports import free_ports
from demo.servers import Servers
from demo.shop.schema import MIRRORS
from demo.shop.visits import Visits
from demo.shop.workload import Address, Ledger, Shop, Workload
from demo.story import memory
from demo.story.harm import Harm
from demo.story.lags import LagBook
from demo.story.landed import LandedCount
from demo.story.progress import Progress, Watch
from demo.story.screen import Screen
from demo.story.service import GateAnswer, Service, whereabouts
from demo.story.spark_jobs import WORK, ask_spark, largest
from demo.story.summary import Summary
from pipeline.errors import SluiceError, UnreachableError

OWN = ("mysql", "kafka", "connect", "lake")
OWN_FILES = (
    *("ports.json", "servers.json", "ledger.jsonl", "service.log", "sluice.db*"),
    "summary.json",
)
PAUSE = 2.0  # seconds; the service's own snapshot is not newer
PATIENCE = timedelta(minutes=5)


class UnseenError(SluiceError):
    """The event of an act did not happen; the message says what was seen instead."""


@dataclass(frozen=True, slots=True)
class Plot:
    """How much is written, and how long lag is measured."""

    rate: float = 100
    measure: timedelta = timedelta(seconds=28)
    rows: int = 400


@dataclass(eq=False)
class Stage:
    """All objects of one run in *home*; ``ends`` stops what was started, last first."""

    home: Path
    plot: Plot
    screen: Screen
    summary: Summary
    ends: ExitStack
    servers: Servers = field(init=False)
    address: Address = field(init=False)
    shop: Shop = field(init=False)
    ledger: Ledger = field(init=False)
    workload: Workload = field(init=False)
    service: Service = field(init=False)
    visits: Visits = field(init=False)
    watch: Watch = field(init=False)
    lags: LagBook = field(default_factory=LagBook)
    harm: Harm | None = None

    def __post_init__(self) -> None:
        """Create all objects; remove what an earlier run left in *home*."""
        clear_home(self.home)
        self.servers = Servers.create(self.home)
        self.address = Address(self.servers.mysql.host, self.servers.mysql.port)
        self.shop, self.ledger = Shop(self.address), Ledger(self.home / "ledger.jsonl")
        self.workload = Workload(self.address, self.ledger, rate=self.plot.rate)
        port, spark_port = free_ports(2)
        where = whereabouts(self.servers)
        self.service = Service(self.home, where, port, spark_port=spark_port)
        self.visits = Visits(self.servers.mysql)
        self.watch = Watch(
            self.service, self.shop.counts, LandedCount(f"{self.service.lake}/changes")
        )

    def wait(
        self,
        seen: Callable[[Progress], bool],
        what: str,
        within: timedelta = PATIENCE,
    ) -> None:
        """Show progress until *seen* is true.

        Raises:
            UnreachableError: it takes too long (names *what*), or a part of the pipeline has ended.
        """
        until = time.monotonic() + within.total_seconds()
        while not seen(self.look()):
            self._check_running()
            if time.monotonic() > until:
                msg = f"no {what} after {within.total_seconds():.0f} s"
                raise UnreachableError(msg)
            time.sleep(PAUSE)

    def ask_gate(self, when: str, closed: Sequence[str] = ()) -> None:
        """Ask for one cut, the instant of the call, until the gate is open except for *closed*.

        Raises:
            UnreachableError: it does not open; with the gate's answer.
        """
        cut, answers = datetime.now(UTC).isoformat(), dict[str, GateAnswer]()
        expected = {table: CONFLICT if table in closed else OK for table in MIRRORS}

        def seen(_: Progress) -> bool:
            answers.update({table: self.service.gate([table], cut) for table in MIRRORS})
            return {table: answer.status for table, answer in answers.items()} == expected

        try:
            self.wait(seen, f"such gate {when}: {_told(expected)}")
        except UnreachableError as error:
            reasons = "; ".join(reason for each in answers.values() for reason in each.reasons)
            msg = f"{error}; it says: {reasons}"
            raise UnreachableError(msg) from error
        finally:
            told = {table: answer.status for table, answer in answers.items()}
            self.summary.gates[when] = told
        self.screen.say(f"  gate for now, {when}: {_told(told)}")

    def ask_gate_for(self, table: str) -> None:
        """Wait until *table* is ready for now.

        Raises:
            UnreachableError: it does not become ready.
        """
        cut = datetime.now(UTC).isoformat()
        self.wait(lambda _: self.service.gate([table], cut).open, f"open gate for {table}")

    def show_jobs(self) -> None:
        """Show the Spark jobs that were not shown yet, and the address of the Spark UI.

        Raises:
            UnseenError: no batch, or no merge, was a Spark job.
        """
        jobs = ask_spark(self.service.spark_url)
        for job in jobs[len(self.summary.spark) :]:
            self.screen.say(f"  Spark job: {job}")
        self.summary.spark = jobs
        self.screen.say(f"  Spark's pages: {self.service.spark_url}/jobs/", "bold green")
        missing = [work for work in WORK if largest(jobs, work) is None]
        if missing:
            raise UnseenError(f"no Spark job did: {' or '.join(missing)}")

    def look(self) -> Progress:
        """Take a snapshot, show it, and note the memory in use."""
        progress = self.watch.take()
        self.screen.show(progress)
        self.summary.peak_memory = max(self.summary.peak_memory, memory.in_use())
        return progress

    def _check_running(self) -> None:
        daemons = (
            *(self.servers.mysql.daemon, self.servers.kafka.daemon, self.servers.connect.daemon),
            self.service.daemon,
        )
        for daemon in daemons:
            if not daemon.running:
                msg = f"{daemon.name} has ended; see {daemon.log}"
                raise UnreachableError(msg)


def _told(statuses: Mapping[str, int]) -> str:
    return ", ".join(f"{table} {status:d}" for table, status in statuses.items())


def clear_home(home: Path) -> None:
    """Remove what an earlier run left, and nothing else."""
    for name in OWN:
        shutil.rmtree(home / name, ignore_errors=True)
    for pattern in OWN_FILES:
        for file in home.glob(pattern):
            file.unlink()
