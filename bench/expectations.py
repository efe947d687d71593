"""Measures a run of the check `expectations` on changed rows, expectation by expectation.

    python -m bench.expectations --rows 100000

A local Delta mirror has twice as many rows. Half of them changed since the previous run. The check
reads these from the mirror's files, and evaluates each expectation by the pandas engine, as the
service does. Only the CPU time of this process counts. Great Expectations is imported once per
process.
"""

import tempfile
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import TypeVar

import click
import pyarrow as pa
from deltalake import write_deltalake

from pipeline.apply.row_metadata import META
from pipeline.delta.reader import open_table
from pipeline.model import Shard, Table
from pipeline.suites import ExpectationSettings, evaluate_rows, list_read_columns
from pipeline.tables.delta.reader import MirrorReader

T = TypeVar("T")
TABLE = Table("shop.orders", (Shard("shop", "shop.orders"),), ("id",), "id")
SUITE = tuple(
    ExpectationSettings(f"expect_column_values_to_{kind}", kwargs)
    for kind, kwargs in (
        ("not_be_null", {"column": "state"}),
        ("be_in_set", {"column": "state", "value_set": ["new", "paid", "sent"]}),
        ("be_between", {"column": "total", "min_value": 0, "max_value": 1000}),
        ("be_between", {"column": "placed", "min_value": "2020-01-01T00:00:00"}),
        ("match_regex", {"column": "email", "regex": "^[^@]+@[^@]+$"}),
    )
)


@click.command()
@click.option("--rows", default=100_000, show_default=True)
@click.option("--bad", default=10, show_default=True, help="Rows that do not meet expectation 2.")
@click.option("--unread", default=0, show_default=True, help="More columns, of texts.")
def main(rows: int, bad: int, unread: int) -> None:
    """Print the CPU seconds of the import, of reading, and of each expectation."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        for batch in (1, 2):
            made = make_rows(rows, batch, bad if batch == 2 else 0)
            for number in range(unread):
                made = made.append_column(f"more_{number}", made["email"])
            write_deltalake(folder, made, mode="append")
        opened = open_table(folder)
        if opened is None:
            raise click.ClickException("the mirror is gone")
        mirror = MirrorReader(opened, TABLE, "bench")
        _, importing = timed(lambda: evaluate_rows(made.slice(0, 1), TABLE, SUITE[:1]))
        columns = list_read_columns(SUITE, TABLE.key)
        changed, reading = timed(lambda: pa.Table.from_batches(mirror.rows_after(1, columns)))
        whole, reading_all = timed(lambda: pa.Table.from_batches(mirror.rows_after(1)))
        click.echo(f"import of Great Expectations: {importing:.1f} s of CPU, once")
        own, every = (f"{one.nbytes >> 20} MiB" for one in (changed, whole))
        click.echo(
            f"read {changed.num_rows} changed rows of {mirror.rows()}: {reading:.2f} s, {own};"
            f" all columns: {reading_all:.2f} s, {every}"
        )
        for each in SUITE:
            (result,), took = timed(partial(evaluate_rows, changed, TABLE, (each,)))
            click.echo(f"{each.type}: {took:.2f} s, {result.unexpected} unexpected")
        _, took = timed(lambda: evaluate_rows(changed, TABLE, SUITE))
        click.echo(f"all {len(SUITE)} in one look: {took:.2f} s")


def make_rows(rows: int, batch: int, bad: int) -> pa.Table:
    """Return rows of eight columns and `_sluice`; *bad* of them have an unknown state."""
    first = (batch - 1) * rows
    ids = range(first, first + rows)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    origin = {"source": "shop", "shard": "shop.orders", "op": "c", "batch": batch}
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "user_id": pa.array([n % 997 for n in ids], pa.int64()),
            "state": ["odd" if n < first + bad else ("new", "paid", "sent")[n % 3] for n in ids],
            "total": pa.array([Decimal(n % 900) for n in ids], pa.decimal128(12, 2)),
            "placed": pa.array([at] * rows, pa.timestamp("us", "UTC")),
            "email": [f"user{n}@example.org" for n in ids],
            "note": ["a note of some words about the order"] * rows,
            "touched": pa.array([n % 13 or None for n in ids], pa.int64()),
            "_sluice": pa.array([origin] * rows, META),
        }
    )


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return the result of *work*, and its CPU seconds in this process."""
    began = time.process_time()
    return work(), time.process_time() - began


if __name__ == "__main__":
    main()
