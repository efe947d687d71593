"""Measures the lag of tier 0 beside a backlog and a bootstrap of low tiers, and alone.

    python -m bench.tiers --rows 1000000 --read 300000

It runs real MySQL, Debezium, Kafka, Spark and `sluice run` with its defaults. A row's lag is the
time from its commit at the source to the commit of the mirror that contains it. The first phase is
tier 0 alone. In the second, the service was stopped: *rows* changes of low tiers wait in their
topics. A job asks for them, so they do not wait for a merge interval. The start of the process is
not counted: rows count from the first commit of tier 0 after it, until the backlog is merged. In
the third phase, a table of *read* rows of a low tier is read again.
"""

import json
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from bench.kit.rounds import under_load
from demo.beside import beside
from demo.debezium import mysql_connector
from demo.oracle.compare import compare, mirror_path
from demo.ports import free_ports
from demo.processes import wait_until
from demo.servers import Servers
from demo.shop.link import Address
from demo.story.service import Service, whereabouts

CONFIG = Path(__file__).with_suffix(".yaml")
PATIENCE = timedelta(minutes=20)
HOT = "hot.orders"
LOW = tuple(f"low.events_{number}" for number in range(4))
AGAIN = "low.archive"
PACE = 0.2  # seconds between two rows of tier 0
AT_ONCE = 2_000  # rows of a statement
WANTED = 1.5


@dataclass(eq=False)
class Stopwatch:
    """Writes rows into the table of tier 0, and watches its mirror's log for them."""

    servers: Servers
    log: Path
    written: dict[int, float] = field(default_factory=dict)
    seen: dict[int, float] = field(default_factory=dict)

    def running(self) -> AbstractContextManager[None]:
        """Write and watch inside the block, each in a thread."""
        return beside(self._write, self._watch)

    def lags(self, since: float, until: float) -> list[float]:
        """Return the seconds of each row written from *since* to *until*; all were seen."""
        lags = []
        for row, at in list(self.written.items()):
            if since <= at < until:
                found = [when for top, when in self.seen.items() if top >= row]
                lags.append(min(found) - at)
        return lags

    def reached(self, row: int) -> bool:
        """Tell whether *row* is in the mirror."""
        return any(top >= row for top in list(self.seen))

    def _write(self, ended: threading.Event) -> None:
        with self.servers.mysql.connect(autocommit=True) as link, link.cursor() as cursor:
            while not ended.wait(PACE):
                row = len(self.written) + 1
                cursor.execute(f"INSERT INTO {HOT} VALUES ({row}, 'order {row}')")
                self.written[row] = time.monotonic()

    def _watch(self, ended: threading.Event) -> None:
        known = set[Path]()
        while not ended.wait(0.02):
            for path in set(self.log.glob("*.json")) - known:
                known.add(path)
                tops = [top for line in path.read_text().splitlines() if (top := parse_top(line))]
                if tops:
                    self.seen.setdefault(max(tops), time.monotonic())


def parse_top(line: str) -> int:
    """Return the highest id of a file that a commit adds; 0 for any other line."""
    stats = json.loads(line).get("add", {}).get("stats")
    return int(json.loads(stats).get("maxValues", {}).get("id", 0)) if stats else 0


@dataclass(eq=False)
class Stand:
    """Servers, tables and the service in *home*."""

    home: Path
    ends: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        """Define all servers; nothing is started."""
        self.servers, self.port = Servers.create(self.home), free_ports(1)[0]
        self.service = Service(self.home, whereabouts(self.servers), self.port, config=CONFIG)

    def open(self, read: int) -> None:
        """Start everything; returns when all tables are READY, *read* rows in one of them."""
        self.ends.callback(self.servers.stop)
        self.servers.start()
        columns = "(id BIGINT PRIMARY KEY, note VARCHAR(200))"
        self.servers.mysql.execute(
            "CREATE DATABASE hot",
            "CREATE DATABASE low",
            *(f"CREATE TABLE {name} {columns}" for name in (HOT, *LOW, AGAIN)),
            *(f"INSERT INTO {name} VALUES (0, 'first')" for name in (HOT, *LOW)),
        )
        self.fill([AGAIN], read)
        self.ends.callback(self._end)
        self.service.start()
        mysql, bootstrap = self.servers.mysql, self.servers.kafka.bootstrap
        databases = ["hot", "low", "sluice"]
        self.servers.connect.register(
            "shop", mysql_connector(mysql, bootstrap, databases=databases)
        )
        cut, tables = datetime.now(UTC).isoformat(), [HOT, *LOW, AGAIN]
        wait_until(lambda: self.service.gate(tables, cut).open, PATIENCE, "READY")

    def fill(self, tables: Sequence[str], rows: int) -> None:
        """Write *rows* rows, or slightly more, spread over *tables*."""
        note = "x" * 150
        with self.servers.mysql.connect(autocommit=True) as link, link.cursor() as cursor:
            for first in range(1, rows // len(tables) + 1, AT_ONCE):
                values = ", ".join(f"({n}, '{note}')" for n in range(first, first + AT_ONCE))
                for table in tables:
                    cursor.execute(f"INSERT INTO {table} VALUES {values}")

    def away(self, rows: int) -> None:
        """Stop the service, write *rows* rows of low tiers, and let the collector send them."""
        self.service.stop()
        self.fill(LOW, rows)
        ((file, position, *_),) = self.servers.mysql.execute("SHOW MASTER STATUS")
        wait_until(lambda: self._sent() >= (file, position), PATIENCE, "all of it sent")
        self.service = Service(self.home, whereabouts(self.servers), self.port, config=CONFIG)

    def bootstrap(self) -> None:
        """Request a bootstrap of a table of a low tier."""
        asked = {"tables": [AGAIN], "reason": "to see whom it delays", "who": "bench"}
        self.service.http.post("/v1/bootstraps", json=asked).raise_for_status()

    def caught_up(self, rows: int) -> bool:
        """Tell whether *rows* changes of low tiers are merged; asks for them, as a job would."""
        self.service.gate(LOW)
        return self.merged() >= rows

    def merged(self) -> int:
        """Return how many changes of low tiers merges have read."""
        told = self.service.merged()
        return sum(told.get(name, 0) for name in LOW)

    def run_backfills(self) -> dict[str, Any]:
        """Return the state of the bootstrap."""
        (one,) = self.service.http.get("/v1/bootstraps").json()
        found: dict[str, Any] = one
        return found

    def wrong(self) -> dict[str, str]:
        """Return tables with a row that differs from its source."""
        address = Address(self.servers.mysql.host, self.servers.mysql.port)
        mirrors = {name: [name] for name in (HOT, *LOW, AGAIN)}
        found = compare(address, self.service.lake, mirrors=mirrors)
        return {name: str(diff) for name, diff in found.items() if not diff.clean}

    def _end(self) -> None:
        self.service.stop()

    def _sent(self) -> tuple[str, int]:
        """Return the position up to which the collector has handed over."""
        (told,) = self.servers.connect.offsets("shop")
        return told["offset"]["file"], int(told["offset"]["pos"])


@click.command()
@click.option("--rows", default=1_000_000, help="Changes of low tiers that wait.")
@click.option("--read", default=300_000, help="Rows of the table that is read again.")
@click.option("--seconds", default=60.0, help="How long tier 0 is watched alone.")
@click.option("--dir", "folder", default=Path("build/bench/tiers"), type=Path)
def main(*, rows: int, read: int, seconds: float, folder: Path) -> None:
    """Measure the lag of tier 0 alone, and beside a backlog and a bootstrap of tier 2."""
    home = folder.resolve()
    shutil.rmtree(home, ignore_errors=True)
    stand = Stand(home)
    try:
        stand.open(read)
        measured(stand, rows, seconds)
        if wrong := stand.wrong():
            raise AssertionError(f"not as their sources: {wrong}")
    finally:
        stand.ends.close()
    shutil.rmtree(home, ignore_errors=True)


def measured(stand: Stand, rows: int, seconds: float) -> None:
    """Run all phases, one after the other, with the same rows of tier 0."""
    watch = Stopwatch(stand.servers, Path(mirror_path(stand.service.lake, HOT)) / "_delta_log")
    with watch.running():
        caught_up(watch)
        alone = stretch(lambda: time.sleep(seconds))
        caught_up(watch)
        stand.away(rows)
        stand.service.start()
        caught_up(watch)
        waited = rows - stand.merged()
        backlog = stretch(
            lambda: wait_until(lambda: stand.caught_up(rows), PATIENCE, "the backlog merged")
        )
        stand.bootstrap()
        again = stretch(
            lambda: wait_until(
                lambda: bool(stand.run_backfills()["done"]), PATIENCE, "the bootstrap"
            )
        )
        caught_up(watch)
    click.echo(f"  {waited} of {rows} changes were not merged when it began; {under_load()}")
    idle = p95(watch.lags(*alone))
    for name, part in (("alone", alone), ("a backlog", backlog), ("a bootstrap", again)):
        lags = watch.lags(*part)
        middle, most = statistics.median(lags), max(lags)
        told = f"p95 {p95(lags):.2f} s, median {middle:.2f} s, most {most:.2f} s"
        ratio = f"{p95(lags) / idle:.2f} x, wanted {WANTED} x"
        took = f"{len(lags)} rows in {part[1] - part[0]:.0f} s"
        click.echo(f"  tier 0, {name}: {told}; {ratio}; {took}")


def caught_up(watch: Stopwatch) -> None:
    """Wait until everything that is written now is in the mirror."""
    row = len(watch.written) + 1
    wait_until(lambda: watch.reached(row), PATIENCE, "tier 0 merged")


def stretch(work: Callable[[], object]) -> tuple[float, float]:
    """Return the start and end of *work*."""
    began = time.monotonic()
    work()
    return began, time.monotonic()


def p95(lags: Sequence[float]) -> float:
    """Return the 95th percentile; at least two values are needed."""
    return statistics.quantiles(lags, n=20)[-1]


if __name__ == "__main__":
    main()
