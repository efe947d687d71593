"""Measures a merge run over many mirrors, and whether a merge grows with its mirror or history.

    python -m bench.passes --what even --what skewed

``even`` and ``skewed`` are merge runs over a thousand mirrors, the first of a process and the next.
``beside`` is how long small mirrors wait for the one with most of the changes. ``grown`` and
``commits`` are merges of one mirror, and ``read`` reads it whole after a thousand. ``memory`` is a
merge of a mirror of 64,000,000 rows, in a separate process; its preparation takes many minutes.
"""

import multiprocessing
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

from bench.kit import table
from bench.kit.lake import Lake, here
from bench.kit.rounds import under_load
from bench.kit.spark import session, total
from pipeline.apply.merge_job import run_group
from pipeline.checkpoint import Checkpoint
from pipeline.parallel import spark_map
from pipeline.settings import PipelineSettings

PASS_WANTED = 120  # seconds
FLAT_WANTED = 1.2  # limit: times the first
READ_WANTED = 1.3  # limit: times the fresh mirror
BESIDE_WANTED = 1.5  # limit: times as long as without the mirror with most changes
READ_AFTER = 1_000  # small merges
MEMORY_WANTED = 1536  # MiB
ROUNDS = 5
READS = 15  # of each version
SHARE = 0.9  # share of the changes in that one mirror
KEPT_UP = 20  # small merges between two runs of maintenance
FEW = 20  # changes of a small merge


@dataclass(frozen=True, slots=True)
class Size:
    """The sizes of all scenarios.

    ``mirrors`` of ``rows`` each have ``changed`` changes in a merge run. ``large`` is the number of
    rows of the mirror with most of them. ``grown`` is the largest mirror of one that grows,
    ``huge`` the one whose memory is measured. ``turned`` keys change in a merge of these two.
    """

    mirrors: int
    rows: int
    changed: int
    large: int
    grown: int
    huge: int
    turned: int
    commits: int


Scenario = Callable[[Path, Size], None]


def even(folder: Path, size: Size) -> None:
    """Time merge runs over mirrors with equal numbers of changes."""
    works = [_work(number, size.rows, size.changed) for number in range(size.mirrors)]
    _passes(folder, works, "changes spread evenly")


def skewed(folder: Path, size: Size) -> None:
    """Time merge runs with the same total of changes, most of them in one mirror."""
    most = int(size.mirrors * size.changed * SHARE)
    least = max(1, (size.mirrors * size.changed - most) // max(1, size.mirrors - 1))
    works = [_work(0, size.large, most)]
    works += [_work(number, size.rows, least) for number in range(1, size.mirrors)]
    _passes(folder, works, f"{most} of the changes in one mirror of {size.large} rows")


def beside(folder: Path, size: Size) -> None:
    """Time how long small mirrors wait for their commits, with and without the one of most changes.

    Both alternate, so that other load of the machine affects both.
    """
    most = int(size.mirrors * size.changed * SHARE / (1 - SHARE))
    large = _work(0, size.large, most)
    small = [_work(number, size.rows, size.changed) for number in range(1, size.mirrors)]
    spark = session(PipelineSettings(str(folder), "", ()))
    lake = _fresh(folder, [large, *small])
    lake.runner.spread = partial(spark_map, spark, run_group)
    _turn(lake, [large, *small])  # the first merge run knows nothing yet
    alone, together, all_ = list[float](), list[float](), list[float]()
    for _ in range(ROUNDS):
        for works, found in ((small, alone), ([large, *small], together)):
            spent = _turn(lake, works)
            begun = time.time() - spent
            found.append(max(_committed(lake, work) for work in small) - begun)
        all_.append(spent)
    told = f"{most} changes in one mirror beside {len(small)} of {size.changed} each"
    click.echo(f"  {told}; {under_load()}")
    times = [statistics.median(one) for one in (alone, together, all_)]
    spent_beside = f"beside it {times[1]:.2f} s of {times[2]:.2f}"
    click.echo(f"  the small ones alone {times[0]:.2f} s, {spent_beside}")
    ratios = [two / one for one, two in zip(alone, together, strict=True)]
    span = f"({min(ratios):.2f} to {max(ratios):.2f})"
    click.echo(f"  {statistics.median(ratios):.2f} times {span}; wanted: {BESIDE_WANTED} times")


def grown(folder: Path, size: Size) -> None:
    """Time merges of equally many recent keys in larger and larger mirrors."""
    found = []
    for rows in (size.grown // 16, size.grown // 4, size.grown):
        work = table.Workload(table.NARROW, rows, size.turned, window=10 * size.turned)
        lake = _fresh(folder, [work])
        turns = [_turn(lake, [work]) for _ in range(ROUNDS + 1)]
        found.append(statistics.median(turns[1:]))
        told = f"{found[-1]:.3f} s ({min(turns[1:]):.3f} to {max(turns[1:]):.3f})"
        click.echo(f"  {size.turned} recent keys in {rows} rows: {told}; {under_load()}")
    click.echo(f"  {found[-1] / found[0]:.2f} x the first; wanted: {FLAT_WANTED} x")


def commits(folder: Path, size: Size) -> None:
    """Time small merges, one after the other, with maintenance between them."""
    work = table.Workload(
        table.NARROW, size.grown // 16, FEW, window=min(500 * FEW, size.grown // 16)
    )
    lake = _fresh(folder, [work])
    stretch = max(1, size.commits // 10)
    turns: list[float] = []
    used, found, kept = 0.0, [], 0.0
    for number in range(1, size.commits + 1):
        cpu = time.process_time()
        turns.append(_turn(lake, [work]))
        used += time.process_time() - cpu
        if number % KEPT_UP == 0:
            started = time.monotonic()
            lake.upkeep()
            kept += time.monotonic() - started
        if number % stretch == 0:
            found.append((statistics.median(turns), used / stretch))
            told = f"median {found[-1][0]:.4f} s, {found[-1][1]:.4f} s of CPU with their landing"
            click.echo(
                f"  {len(turns)} small turns up to the {number}th: {told}; "
                f"upkeep {kept:.1f} s; {under_load()}"
            )
            turns, used, kept = [], 0.0, 0.0
    seconds, cpu = (last / first for first, last in zip(found[0], found[-1], strict=True))
    click.echo(f"  {seconds:.2f} x the first, {cpu:.2f} x of CPU; wanted: {FLAT_WANTED} x")


def read(folder: Path, size: Size) -> None:
    """Time a full read after many small merges, and that of the fresh mirror; also maintenance."""
    rows, turns = size.grown // 16, min(size.commits, READ_AFTER)
    for keys, window in (("recent", min(500 * FEW, rows)), ("uniform", rows)):
        work = table.Workload(table.NARROW, rows, FEW, window=window)
        lake = _fresh(folder / keys, [work])  # Spark caches a folder's log
        versions, spent = [_version(lake, work)], [0.0, 0.0]
        written = 0
        for number in range(1, turns + 1):
            spent[0] += _turn(lake, [work])
            if number % KEPT_UP == 0:
                versions[1:] = [_version(lake, work)]
                seconds, anew = _kept_up(lake, work)
                spent[1] += seconds
                written += anew
        versions.append(_version(lake, work))
        click.echo(f"  {rows} rows, {keys} keys, {turns} small turns; {under_load()}")
        click.echo(
            f"  turns {spent[0]:.1f} s, upkeep {spent[1]:.1f} s, in which it wrote "
            f"{written / (turns * FEW):.1f} rows for each changed one"
        )
        fresh, *worn = _reading(lake, work, versions)
        by_spark = _reading_by_spark(folder / keys, lake.mirror(work), versions)
        for when, one, spark in zip(("before", "after"), worn, by_spark[1:], strict=False):
            cpu, seconds = (part / whole for part, whole in zip(one, fresh, strict=True))
            click.echo(
                f"  {when} the last upkeep: {one[0]:.3f} s of CPU, {cpu:.2f} x the fresh mirror's; "
                f"{one[1]:.3f} s, {seconds:.2f} x; by Spark {spark:.3f} s, "
                f"{spark / by_spark[0]:.2f} x; wanted: {READ_WANTED} x"
            )


def memory(folder: Path, size: Size) -> None:
    """Measure the most memory that a process needs for merges of a huge mirror."""
    work = table.Workload(table.NARROW, size.huge, size.turned, window=size.huge)
    lake = _fresh(folder, [work])
    lake.land(work.changes(1))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        seconds, most = pool.apply(_alone, (folder, work, lake.checkpoint))
    told = f"{most} MiB, {seconds:.1f} s; wanted: {MEMORY_WANTED} MiB; {under_load()}"
    click.echo(f"  {size.turned} uniform keys in {size.huge} rows: {told}")


WHAT: dict[str, Scenario] = {
    one.__name__: one for one in (even, skewed, beside, grown, commits, read, memory)
}


@click.command()
@click.option("--what", type=click.Choice([*WHAT]), multiple=True, default=[*WHAT][:-1])
@click.option("--mirrors", default=1_000, help="Mirrors of a pass.")
@click.option("--rows", default=5_000, help="Rows of each of them.")
@click.option("--changed", default=300, help="Changed keys of each, on average.")
@click.option("--large", default=1_000_000, help="Rows of the one that changes most.")
@click.option("--grown", default=16_000_000, help="Rows of the largest mirror that turns grow to.")
@click.option("--huge", default=64_000_000, help="Rows of the mirror whose memory is measured.")
@click.option("--turned", default=10_000, help="Changed keys of a turn of these.")
@click.option("--commits", default=10_000, help="Small turns.")
@click.option("--dir", "folder", default=Path("build/bench/passes"), type=Path)
def main(*, what: Sequence[str], folder: Path, **size: int) -> None:
    """Measure merge runs over many mirrors, and merges of growing ones."""
    folder = folder.resolve()
    try:
        for name in what:
            click.echo(f"{name}: {(WHAT[name].__doc__ or '').partition('.')[0]}")
            WHAT[name](folder, Size(**size))
    finally:
        if (spark := SparkSession.getActiveSession()) is not None:
            spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _work(number: int, rows: int, changed: int) -> table.Workload:
    return table.Workload(table.WIDE, rows, changed, window=rows, shard=f"shop.orders_{number:04}")


def _passes(folder: Path, works: Sequence[table.Workload], title: str) -> None:
    """Time the first merge run of a process, in which nothing is known, and some after it."""
    spark = session(PipelineSettings(str(folder), "", ()))
    lake = _fresh(folder, works)
    lake.runner.spread = partial(spark_map, spark, run_group)
    spent = [_turn(lake, works) for _ in range(ROUNDS)]
    next_ = f"then {statistics.median(spent[1:]):.1f} s"
    span = f"({min(spent[1:]):.1f} to {max(spent[1:]):.1f})"
    click.echo(f"  {len(works)} mirrors, {title}; {under_load()}")
    click.echo(f"  the first pass {spent[0]:.1f} s, {next_} {span}; wanted: {PASS_WANTED} s")


def _fresh(folder: Path, works: Sequence[table.Workload]) -> Lake:
    shutil.rmtree(folder, ignore_errors=True)
    lake = Lake(folder, works, here)
    lake.fill()
    return lake


def _turn(lake: Lake, works: Sequence[table.Workload]) -> float:
    """Land the next changes of every table; return the seconds to apply them."""
    batch = lake.checkpoint.batch + 1
    lake.land(*(work.changes(batch) for work in works))
    started = time.monotonic()
    lake.apply()
    return time.monotonic() - started


def _committed(lake: Lake, work: table.Workload) -> float:
    """Return when a mirror's newest commit was made, in seconds since 1970."""
    log = Path(lake.mirror(work)) / "_delta_log"
    return max(entry.stat().st_mtime for entry in log.glob("*.json"))


def _version(lake: Lake, work: table.Workload) -> int:
    return int(DeltaTable(lake.mirror(work)).version())


def _kept_up(lake: Lake, work: table.Workload) -> tuple[float, int]:
    """Return the seconds of maintenance, and the rows that it rewrote."""
    before = lake.files(work)
    started = time.monotonic()
    lake.upkeep()
    seconds = time.monotonic() - started
    made = (file for path, file in lake.files(work).items() if path not in before)
    return seconds, sum(file.records or 0 for file in made)


def _reading(
    lake: Lake, work: table.Workload, versions: Sequence[int]
) -> list[tuple[float, float]]:
    """Return CPU and other seconds of a reader for all rows of each version, the best of some.

    Versions alternate in each round, so that other load of the machine affects all.
    """
    spent: list[list[tuple[float, float]]] = [[] for _ in versions]
    for _ in range(READS):
        for version, found in zip(versions, spent, strict=True):
            started, used = time.monotonic(), time.process_time()
            mirror = DeltaTable(lake.mirror(work), version=version)
            query = QueryBuilder().register("t", mirror)
            rows = pa.table(query.execute("SELECT * FROM t").read_all())
            found.append((time.process_time() - used, time.monotonic() - started))
            if len(rows) < work.rows:
                raise AssertionError(f"{len(rows)} rows were read of {work.rows}")
    return [(min(cpu for cpu, _ in one), min(wall for _, wall in one)) for one in spent]


def _reading_by_spark(folder: Path, mirror: str, versions: Sequence[int]) -> list[float]:
    """Return the seconds in which Spark reads all rows of each version, the best of some.

    One task reads a file, whether rows of it are deleted or not; the other reader splits only files
    without deleted rows.
    """
    spark = session(PipelineSettings(str(folder), "", ()))
    spent: list[list[float]] = [[] for _ in versions]
    for _ in range(READS):
        for version, found in zip(versions, spent, strict=True):
            started = time.monotonic()
            rows = spark.read.format("delta").option("versionAsOf", version).load(mirror)
            total(rows)
            found.append(time.monotonic() - started)
    return [min(one) for one in spent]


def _alone(folder: Path, work: table.Workload, mark: Checkpoint) -> tuple[float, int]:
    """Return the seconds of a merge, and the highest MiB that this process ever used."""
    lake = Lake(folder, [work], here, mark)
    started = time.monotonic()
    lake.apply()
    seconds = time.monotonic() - started
    # not `getrusage`, which also counts the memory before the process became this one
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return seconds, int(peak.split()[1]) // 1024


if __name__ == "__main__":
    main()
