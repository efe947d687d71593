"""Measures how large the store grows, and for how long its pruning blocks writers.

Two tables run for real for one hour over midnight; one changes every minute. The rows that this
leaves in the store are then copied to all tables and hours, with their own names and times, a day
at a time. Each table also gets what its volatility probe remembers of its hours. Each day is pruned
as the service prunes.
"""

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sqlalchemy import event

from bench.kit.service import BEGIN, Service
from checks.baseline import CountedInterval
from checks.model import Outcome, Ruling
from checks.probes import volatility
from checks.world import World
from monitor.app import App
from monitor.config.plans import CheckPlan
from monitor.store.database import Database
from monitor.store.store import ServiceStore
from pipeline.model import Account, Fence, Table

BUSY_SHARE = 0.1  # of the tables change every minute
PROBES = ("completeness", "max_id", "offset_keys", "range_counts", "schema", "volatility")
JOBS = ("watch", "probe", "deliver")
ROUND, HOUR, DAY = timedelta(seconds=5), timedelta(hours=1), timedelta(days=1)
TIMES: Mapping[str, tuple[str, ...]] = {
    "verdicts": ("at",),
    "accounts": ("at",),
    "certificates": ("cut", "issued"),
    "fences": ("at",),
    "ticks": ("planned", "until", "started", "finished"),
}
"""Instants of a row; the first decides its hour, and the cut that of a certificate."""
OWN = ("verdicts", "accounts", "certificates")  # tables whose rows belong to a table
DAILY = ("certificates",)
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Steady:
    """The finding of a probe."""

    value: float
    as_of: tuple[Fence, ...]


@dataclass(frozen=True, slots=True)
class SteadyProbe:
    """A probe that finds nothing wrong; the busy table gets another number each minute."""

    busy: str
    limit: timedelta = timedelta(minutes=1)

    def measure(self, table: Table, world: World) -> Steady:
        """Return a number that depends on the time only."""
        fence = world.fence_after(table.sources[0], world.now - timedelta(minutes=1))
        value = float(world.now.minute) if table.name == self.busy else 0.0
        return Steady(value, (fence,) if fence else ())

    def judge(self, reading: Steady, past: Sequence[float]) -> Ruling:
        """Return a PASS."""
        return Ruling(Outcome.PASS, "both sides reach id 1200300")


@dataclass(frozen=True, slots=True)
class NoServers:
    """A replacement of the servers that connects to none."""

    def all(self) -> dict[str, object]:
        """Return none."""
        return {}

    def queries(self, worker: int = 0) -> dict[str, object]:
        """Return none."""
        return {}

    def admit(self, names: Iterable[str]) -> None:
        """Admit at once."""

    def workers(self, names: Iterable[str]) -> int:
        """Return one."""
        return 1

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class StoredHour:
    """The rows that one hour has written: of the busy table, of the other, and of no table."""

    busy: Mapping[str, Sequence[Row]]
    idle: Mapping[str, Sequence[Row]]
    common: Mapping[str, Sequence[Row]]


@dataclass(frozen=True, slots=True)
class Lived:
    """Bytes of the store and its rows by table; ``pause`` is a writer's longest wait, in seconds.

    ``pruning`` is the CPU of the last prune of a day, and ``hourly`` that of another an hour later.
    """

    size: int
    rows: Mapping[str, int]
    pause: float
    pruning: float
    hourly: float


@dataclass(frozen=True, slots=True)
class LivedHour:
    """The store at ``path`` after an hour of two tables, which ended ``at``."""

    path: Path
    stored: StoredHour
    at: datetime


def live_hour(folder: Path) -> LivedHour:
    """Run an hour over midnight, in *folder*.

    Raises:
        RuntimeError: a job has failed, so its rows are missing.
    """
    service = Service(folder, 2)
    service.clock.now = BEGIN.replace(hour=23, minute=25)
    probe = SteadyProbe(service.tables[0])
    plans = tuple(CheckPlan(name, timedelta(seconds=15), "*", probe) for name in PROBES)
    service.config = service.config.model_copy(update={"probes": plans})
    with service.life() as app:
        app.observers.servers = NoServers()  # type: ignore[assignment]
        event.listen(app.store.database.engine, "checkout", _hasty)
        _live(service, app, timedelta(minutes=5))
        app.observers.census.ask()  # otherwise nothing is certified
        since = service.clock.now
        _live(service, app, HOUR)
        if app.schedule.problems:
            raise RuntimeError(f"jobs failed: {app.schedule.problems}; repair what stands in")
    path = folder / "s.db"
    return LivedHour(path, _hour(path, service, since.timestamp() * 1e6), service.clock())


def live_days(hour: LivedHour, path: Path, size: int, days: int) -> Lived:
    """Return what *days* like *hour* of *size* tables leave in the store, written to *path*."""
    spent, used = list[float](), 0.0
    with closing(sqlite3.connect(hour.path)) as before, closing(sqlite3.connect(path)) as after:
        before.backup(after)
    for day in range(days):
        evening = hour.at + (day + 1) * DAY
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            for name in TIMES:
                _insert(connection, name, rows(hour.stored, name, size, day=day))
            _insert(connection, "memory", memories(size, evening, day + 1))
            connection.execute("COMMIT")
        with closing(ServiceStore.open(path)) as store:
            used = _pruned(store, evening, spent)
    with closing(ServiceStore.open(path)) as store:
        hourly = _pruned(store, evening + HOUR, spent)
    return Lived(path.stat().st_size, _counted(path), max(spent, default=0.0), used, hourly)


def _live(service: Service, app: App, length: timedelta) -> None:
    jobs = [job for job in app.schedule.jobs if job.name.partition(":")[0] in JOBS]
    for number in range(length // ROUND):
        changed = service.tables[:1] if number % 12 == 0 else ()
        service.round(changed)
        batch, now = service.lake.checkpoint().batch, service.clock()
        for table in changed:
            app.store.accounts.add("main", table, batch, Account(read=9, applied=9), now)
        for job in jobs:
            app.schedule.tick(job)


def _hasty(connection: Any, *_: object) -> None:
    """Turn off waits for the disk, because the hour has a commit a second."""
    connection.execute("PRAGMA synchronous=OFF").close()


def _hour(path: Path, service: Service, since: float) -> StoredHour:
    busy, idle = service.tables
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        found = {
            name: [
                dict(row)
                for row in connection.execute(f"SELECT * FROM {name}")
                if row[times[0]] >= since
            ]
            for name, times in TIMES.items()
        }
    own = {
        table: {name: [row for row in found[name] if row["table"] == table] for name in OWN}
        for table in (busy, idle)
    }
    common = {name: rows for name, rows in found.items() if name not in OWN}
    return StoredHour(own[busy], own[idle], common)


def rows(hour: StoredHour, name: str, size: int, *, day: int) -> Iterator[Row]:
    """Yield the rows of one day in *name*."""
    for number in range(1) if name in DAILY else range(24):
        later = day * DAY + (number + 1) * HOUR
        if name not in OWN:
            yield from (_moved(row, name, later, "") for row in hour.common[name])
            continue
        for table in range(size):
            own = hour.busy if table < size * BUSY_SHARE else hour.idle
            yield from (_moved(r, name, later, f"shop.orders_{table:05}") for r in own[name])


def _moved(row: Row, name: str, later: timedelta, table: str) -> Row:
    moved = dict(row)
    micros = later // timedelta(microseconds=1)
    for column in TIMES[name]:
        moved[column] = None if row[column] is None else row[column] + micros
    if table:
        moved["table"] = table
    if name == "verdicts":
        moved["id"] = None
    elif name == "accounts":
        moved["batch"] += later // ROUND
    elif name == "certificates":
        moved["id"] = f"{row['id'][:8]}{table}{later.days}"[-20:]
    return moved


def _insert(connection: sqlite3.Connection, name: str, rows: Iterator[Row]) -> None:
    first = next(rows, None)
    if first is None:
        return
    names, marks = ", ".join(f'"{n}"' for n in first), ", ".join(f":{n}" for n in first)
    text = f"INSERT OR REPLACE INTO {name} ({names}) VALUES ({marks})"
    connection.execute(text, first)
    connection.executemany(text, rows)


def memories(size: int, now: datetime, days: int) -> Iterator[Row]:
    """Yield what volatility remembers of each table after so many days."""
    hours = [CountedInterval(now - hour * HOUR, 1234.5) for hour in range(days * 24, 0, -1)]
    kept = json.dumps(
        {"kept": volatility.dump_memory(now, 123_456, hours), "batch": 123_456, "life": 7}
    )
    for number in range(size):
        name = f"shop.orders_{number:05}"
        at = int(now.timestamp() * 1e6)
        yield {"table": name, "check": volatility.NAME, "kept": kept, "at": at}


def _pruned(store: ServiceStore, now: datetime, spent: list[float]) -> float:
    """Prune what is due at *now*; append how long the store was locked; return CPU seconds."""
    plain, began = Database.write, time.process_time()
    with patch.object(Database, "write", lambda self: _Timed(plain(self), spent)):
        store.prune(now)
    return time.process_time() - began


def _counted(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as connection:
        count = "SELECT count(*) FROM {}"
        return {
            name: connection.execute(count.format(name)).fetchone()[0]
            for name in (*TIMES, "memory")
        }


@dataclass(eq=False)
class _Timed:
    """A transaction that records its duration."""

    inner: Any
    spent: list[float]
    began: float = 0.0

    def __enter__(self) -> Any:
        self.began = time.monotonic()
        return self.inner.__enter__()

    def __exit__(self, *error: Any) -> Any:
        try:
            return self.inner.__exit__(*error)
        finally:
            self.spent.append(time.monotonic() - self.began)
