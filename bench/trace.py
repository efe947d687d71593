"""Measures how long a trace searches the change log for one key.

    python -m bench.trace --files 200

A log of 500,000 rows a file; 200 files have 100 million.  Half of the rows are inserts of one
table in the order of its key; the others are updates of random keys of another.  Each search
is made twice: first as after a start, when no footer was read, then with all footers known.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import click
import numpy as np
import pyarrow as pa

from bench.kit.rounds import under_load
from bench.kit.table import fill_changes, make_order
from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.data_file import SortedFile
from pipeline.changelog.key_search import FooterBounds, KeySearch, SoughtKeys, find_key_changes
from pipeline.delta.commit import commit_actions
from pipeline.delta.store import open_store
from pipeline.model import Op

LANE, INSERTED, UPDATED = "main", "db.inserted", "db.updated"
ROWS = 500_000  # of a file
KEYS = 20_000_000  # that are updated
AT = datetime(2026, 1, 2, tzinfo=UTC)
KEEN = timedelta(minutes=10)  # a budget that ends no search
WANTED = 2.0  # seconds


@dataclass(frozen=True, slots=True)
class SearchTime:
    """Seconds on the clock and of CPU of one search, and what it found."""

    name: str
    seconds: float
    cpu: float
    found: KeySearch


def make_rows(batch: int, rows: int = ROWS, keys: int = KEYS) -> pa.RecordBatch:
    """Return *rows* of ``CHANGES`` of one *batch*; updates are of *keys* different ones."""
    half = rows // 2
    updated = np.random.default_rng(batch).integers(0, keys, rows - half)
    numbers = np.concatenate([np.arange(batch * half, (batch + 1) * half), updated])
    tables = np.array([INSERTED, UPDATED]).repeat([half, rows - half])
    places = np.arange(rows) + batch * rows
    known = {
        **{"lane": LANE, "batch": batch, "source": "s", "origin": 0, "partition": 0},
        **{"shard": tables, "table": tables, "topic": [f"s.{name}" for name in tables]},
        "op": np.array([Op.CREATE, Op.UPDATE]).repeat([half, rows - half]),
        "key": [_key(name, n) for name, n in zip(tables, numbers, strict=True)],
        "after": [f'{{"id":{n},"name":"customer {n * 7919 % 99_991}"}}' for n in numbers],
        **{"order": make_order(1, places), "offset": places},
        **{"at": AT, "received": AT, "dt": AT.date()},
    }
    return fill_changes(rows, known)


def make_log(folder: Path, files: int, rows: int = ROWS, keys: int = KEYS) -> ChangeLog:
    """Write a change log of so many *files*, one for each batch."""
    log = ChangeLog(open_store(str(folder)), LANE)
    log.opened(AT)
    for batch in range(files):
        with SortedFile(log.store, log.snapshot.metadata, f"{batch}.parquet", AT) as file:
            file.add([make_rows(batch, rows, keys)])
        if file.written is None:
            raise AssertionError("nothing was written")
        added = [file.written.added(AT)]
        made = commit_actions(log.store, log.snapshot, added, operation="WRITE", clock=AT)
        log.know(made)
    return log


def measure(log: ChangeLog, table: str, number: int) -> Iterator[SearchTime]:
    """Search for one key of *table*, without footers and with them."""
    known = FooterBounds()
    sought = SoughtKeys(LANE, table, (_key(table, number),), KEEN)
    for name in ("first trace", "next trace"):
        began, used = time.monotonic(), time.process_time()
        found = find_key_changes(log.store, log.snapshot, sought, known)
        yield SearchTime(name, time.monotonic() - began, time.process_time() - used, found)


def _key(table: str, number: int) -> str:
    return f'["s","{table}","{number}"]'


@click.command()
@click.option("--files", default=20, help="files of 500,000 rows; 200 need 3 GB and ten minutes")
def main(files: int) -> None:
    """Write a log, and search it for keys of both kinds."""
    home = Path(tempfile.mkdtemp(prefix="sluice-trace-"))
    try:
        log = make_log(home / "changes", files)
        size = sum(one.stat().st_size for one in home.rglob("*.parquet"))
        click.echo(
            f"{files * ROWS:,} rows in {files} files, {size / 2**20:,.0f} MiB; {under_load()}"
        )
        middle = files * ROWS // 4
        chosen = Random(1).choice(make_rows(files // 2)["key"].to_pylist()[ROWS // 2 :])
        updated = int(chosen.rsplit('"', 2)[1])
        for text, table, number in (
            ("inserted in the order of the key", INSERTED, middle),
            ("updated at random", UPDATED, updated),
            ("updated at random, and not there", UPDATED, KEYS // 2 * 10 + 1),
        ):
            for one in measure(log, table, number):
                found = one.found
                click.echo(
                    f"  {text:33} {one.name:12} {one.seconds:6.2f} s, {one.cpu:5.2f} s of CPU;"
                    f" {len(found.changes)} changes; {found.footers} of {found.files} files"
                    f" looked at, {found.groups} row groups read (wanted: {WANTED:.0f} s)"
                )
    finally:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
