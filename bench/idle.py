"""Measures the service over a real lake: percent of a core, idle and with changes.

    python -m bench.idle --tables 1 --tables 100 --tables 1000

Mirrors are Delta tables. Observers, probes and their readers, source inventory and retention are
those of `sluice run`, over a store that is a real file. Sources and landing answer at once
(`bench/kit/service.py`). Time is moved by hand, one second at a time, so the machine's load hardly
matters. Figures are CPU seconds of this process and all below it, for each second of the service,
without those that make the changes. The Spark worker is not part of it.
"""

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from bench.kit.cpu import spent
from bench.kit.rounds import under_load
from bench.kit.service import FakeLake, Service
from monitor.app import App
from monitor.runtime import configure_logging
from pipeline.apply.mirror import Commit
from pipeline.checkpoint import Checkpoint
from pipeline.lags.samples import MirrorPosition
from pipeline.model import Shard
from pipeline.tables.lake import Lake

WARM, SECONDS = 70, 120  # of the service: every probe has run once, then each runs at least twice
ROWS = 100
PACE = 5  # seconds between monitoring rounds, between probe runs, and between inventories
RETENTION = 30  # seconds between two reads of the topics' retention
LANE = "sluice:main"
PROBES = ("max_id", "range_counts")  # probes that compare mirrors with sources
META = pa.struct([("source", pa.string()), ("shard", pa.string())])


@dataclass(eq=False)
class BenchSource:
    """A server whose tables have as many rows as their mirrors."""

    rows: int

    def max_id(self, shard: Shard, column: str) -> int | None:
        """Return the newest row's id."""
        return self.rows - 1

    def min_id(self, shard: Shard, column: str) -> int | None:
        """Return the first row's id."""
        return 0

    def count_ids(
        self, shard: Shard, column: str, ranges: Sequence[tuple[int, int]]
    ) -> tuple[int, ...]:
        """Return counts as if all ids existed."""
        return tuple(max(0, min(high, self.rows) - max(low, 0)) for low, high in ranges)


@dataclass(eq=False)
class MirroredLake:
    """The checkpoint of a lake that answers at once, and mirrors of a real lake."""

    landed: FakeLake
    real: Lake

    def checkpoint(self) -> Checkpoint:
        """Return the checkpoint as landed."""
        return self.landed.checkpoint()

    def applied(self, table: str) -> MirrorPosition | None:
        """Read the mirror's own log."""
        return self.real.applied(table)

    def history(self, table: str, since: int | None, until: int) -> Sequence[Commit]:
        """Read the mirror's own log, as if every commit were Sluice's."""
        commits = self.real.history(table, since, until)
        return [replace(one, note={"sluice": {"after": one.version - 1}}) for one in commits]


@click.command()
@click.option("--tables", "sizes", multiple=True, type=int, default=[1, 100, 1_000])
@click.option("--dir", "folder", default=Path("build/bench/idle"), type=Path)
def main(*, sizes: Sequence[int], folder: Path) -> None:
    """Measure the service at these numbers of tables: idle, and with one change a second."""
    for size in sizes:
        home = folder.resolve() / str(size)
        shutil.rmtree(home, ignore_errors=True)
        service = _service(home, size)
        with service.life() as app:
            _join(service, app)
            _live(service, app, WARM)
            idle = _live(service, app, SECONDS)
            busy = _live(service, app, SECONDS, changes=1)
        shutil.rmtree(home, ignore_errors=True)
        click.echo(
            f"  {size:5} tables: idle {idle:6.1%} of a core, 1 change a second {busy:6.1%}"
            f" ({under_load()})"
        )


def _service(home: Path, size: int) -> Service:
    service = Service(home, size)
    for name in service.tables:
        _commit(service, name, 0, ROWS)
    return service


def _commit(service: Service, table: str, batch: int, rows: int) -> None:
    """Add a commit to a mirror, applied through *batch*."""
    known = service.lake.newest.shards
    shard = next(s for s, t in known.items() if t == table) if batch == 0 else Shard("", "")
    columns = {
        "id": pa.array(range(rows), pa.int64()),
        "_sluice": pa.array([{"source": shard.source, "shard": shard.name}] * rows, META),
    }
    properties = CommitProperties(app_transactions=[Transaction(app_id=LANE, version=batch)])
    path = service.folder / "lake" / "mirrors" / table.replace(".", "/")
    write_deltalake(str(path), pa.table(columns), mode="append", commit_properties=properties)


def _join(service: Service, app: App) -> None:
    """Connect observers to the real mirrors, and probes to sources that answer."""
    parts: Any = app
    lake = MirroredLake(service.lake, app.lake.lake)
    sampler = parts.observers.watcher.sampler
    sampler.lake = sampler.foreign.lake = lake
    sources = {name: BenchSource(ROWS) for name in app.observers.collectors}
    parts.observers.servers.all = lambda *_: sources
    parts.probing.plans = tuple(one for one in parts.probing.plans if one.name in PROBES)


def _live(service: Service, app: App, seconds: int, *, changes: int = 0) -> float:
    """Return CPU seconds per second of *seconds* of the service, without those of the changes."""
    before, ours = spent(), 0.0
    for second in range(seconds):
        service.write_heartbeat()
        began = time.process_time()
        changed = [service.tables[(second * 7 + n) % service.size] for n in range(changes)]
        if second % 2 == 0 or changed:
            service.lake.land(changed)
        for name in changed:
            _commit(service, name, service.lake.newest.batch, 0)
        ours += time.process_time() - began
        if second % RETENTION == 0:
            app.observers.retention.ask()
        if second % PACE == 0:
            app.observers.census.ask()
            app.cycle.watch()
            app.probing.round()
            while app.probing.lines.open:
                time.sleep(0.01)
    return (spent() - before - ours) / seconds


if __name__ == "__main__":
    configure_logging(json=True, level="CRITICAL")
    main()
