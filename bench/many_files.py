"""Measures a folder of many files: taking them, and finding that nothing has changed.

    python -m bench.many_files --files 1000000 --hours 1000

It has files of one row on a local disk, and one process that does what the service does on each
sweep. Seconds are CPU seconds: of a sweep, and, to compare, of a walk that asks for each file's
timestamp and remembers nothing.
"""

import os
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import click

from bench.kit.rounds import under_load
from pipeline.files.layout import UNFINISHED, PartitionRange, Patience
from pipeline.files.ledger import Ledger
from pipeline.files.sweep import FileSweep, SweepRules

BUDGET = timedelta(seconds=1)
WALK = "a walk"
WANTED = 3.0  # limit: times the walk


@dataclass(frozen=True, slots=True)
class SweepCost:
    """CPU seconds of one sweep, and wall-clock seconds of its longest call."""

    name: str
    cpu: float
    longest: float = 0.0


@dataclass(eq=False)
class Sweeper:
    """A process that sweeps; its clock can be moved, so that it need not wait."""

    home: Path
    hours: int
    moved: float = 0.0

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.home / "ledger.db")
        self.process = self._process()

    def whole(self, name: str) -> SweepCost:
        """Sweep everything."""
        self.moved += 10**6
        return self._swept(name)

    def passing(self, name: str) -> SweepCost:
        """Sweep what is not at rest, directly after a sweep of everything."""
        return self._swept(name)

    def again(self) -> None:
        """Continue as a new process."""
        self.process.close()
        self.process = self._process()

    def close(self) -> None:
        """Close the ledger."""
        self.process.close()
        self.ledger.close()

    def _swept(self, name: str) -> SweepCost:
        used, longest, going = time.process_time(), 0.0, True
        while going:
            began = time.monotonic()
            self.process.advance()
            longest, going = max(longest, time.monotonic() - began), self.process.going
        return SweepCost(name, time.process_time() - used, longest)

    def _process(self) -> FileSweep:
        base, told = self.home / "logs", rules(self.hours)
        return FileSweep(base, self.ledger, told, self._now, monotonic=self._clock)

    def _now(self) -> datetime:
        return datetime.now(UTC)

    def _clock(self) -> float:
        return time.monotonic() + self.moved


@click.command()
@click.option("--files", default=100_000, help="Files in all.")
@click.option("--hours", default=100, help="Folders that they lie in.")
def main(files: int, hours: int) -> None:
    """Create files in a separate folder, sweep, and remove them."""
    home = Path(tempfile.mkdtemp(prefix="many_files", dir="build"))
    try:
        click.echo(f"{files} files in {hours} hours; {under_load()}")
        write(home / "logs", files, hours, datetime.now(UTC))
        before = _peak()
        tell(home, list(measured(home, hours)), files, before)
    finally:
        shutil.rmtree(home)


def write(base: Path, files: int, hours: int, now: datetime) -> None:
    """Write as many files in each of the *hours* before *now*."""
    for number in range(hours):
        hour = now - timedelta(hours=number)
        folder = base / "clicks" / f"{hour:%Y_%m_%d}" / f"{hour:%H}"
        folder.mkdir(parents=True)
        at = os.open(folder, os.O_RDONLY)
        for one in range(files // hours):
            made = os.open(f"{one:06}.json", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=at)
            os.write(made, b'{"id": %d, "hour": %d}\n' % (one, number))
            os.close(made)
        os.close(at)


def measured(home: Path, hours: int) -> Iterator[SweepCost]:
    """Yield one cost after the other, in the order in which a service has them."""
    walk(home / "logs")  # fills the page cache for the next walk
    used = time.process_time()
    walk(home / "logs")
    yield SweepCost(WALK, time.process_time() - used)
    sweeper = Sweeper(home, hours)
    yield sweeper.whole("all are seen first")
    yield sweeper.whole("all are taken")
    yield sweeper.whole("all are looked up")
    yield sweeper.whole("nothing has changed")
    yield sweeper.passing("folders alone")
    sweeper.again()
    yield sweeper.whole("by another process")
    sweeper.close()


def walk(base: Path) -> int:
    """Ask for the timestamp of each file once; return the number of files."""
    return sum(
        (Path(folder) / name).stat().st_size >= 0
        for folder, _, found in os.walk(base)
        for name in found
    )


def rules(hours: int) -> SweepRules:
    """Return rules: a file is taken when seen again; moving the clock sweeps everything."""
    return SweepRules(
        database="logs",
        logs={},
        range=PartitionRange(timedelta(hours=hours), timedelta(hours=1), ZoneInfo("UTC")),
        unfinished=UNFINISHED,
        patience=Patience(timedelta(), timedelta(minutes=15)),
        budget=BUDGET,
        deep=timedelta(hours=1),
        behind=timedelta(minutes=10),
        grace=timedelta(minutes=15),
    )


def tell(home: Path, costs: Sequence[SweepCost], files: int, before: int) -> None:
    """Print a line for each sweep, and what they took in addition to CPU."""
    (walked,) = (one.cpu for one in costs if one.name == WALK)
    for one in costs:
        each, ratio = one.cpu / files * 1e6, one.cpu / walked
        click.echo(
            f"{one.name:20} {one.cpu:8.2f} s, {each:6.1f} µs a file, {ratio:5.1f} times the walk,"
            f" longest question {one.longest:.1f} s"
        )
    ledger = (home / "ledger.db").stat().st_size
    click.echo(f"memory {_peak() - before} MiB more at most, ledger {ledger >> 20} MiB")
    click.echo(f"wanted: {WANTED:.0f} times the walk where nothing has changed; {under_load()}")


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


if __name__ == "__main__":
    main()
