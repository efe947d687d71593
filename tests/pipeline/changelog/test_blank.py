"""A file that was written before its batch had a number is that batch's, as if written in it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from pipeline.changelog.data_file import GROUP, Blank, SortedFile, WrittenFile, filled
from pipeline.changelog.table import CHANGES, PROPERTIES, Stamp
from pipeline.delta.log import Metadata
from pipeline.delta.protocol import describe_table
from pipeline.delta.store import Store, open_store

READ = datetime(2026, 11, 21, 23, 30, tzinfo=UTC)
STAMP = Stamp("main", 7, READ + timedelta(minutes=1, microseconds=3))
ROWS = 2 * GROUP + 5


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


def written(store: Store, blank: Blank | None, name: str = "one.parquet") -> WrittenFile:
    """Two runs of rows, in several row groups."""
    text, properties = describe_table(CHANGES, PROPERTIES)
    metadata = Metadata({}, "changes", text, ("dt",), properties)
    with SortedFile(store, metadata, name, READ) as file:
        for first in (0, ROWS):
            file.add([rows(first, blank)])
    assert file.written is not None
    return file.written


def rows(first: int, blank: Blank | None) -> pa.RecordBatch:
    plain = {"batch": pa.repeat(7, ROWS), "received": pa.repeat(STAMP.received, ROWS)}
    order = [{"epoch": 1, "log": 2, "pos": n, "row": 0} for n in range(first, first + ROWS)]
    columns = (plain if blank is None else blank.columns(ROWS)) | {
        "lane": pa.repeat("main", ROWS),
        "table": pa.repeat("d.t", ROWS),
        "op": pa.repeat("r", ROWS),
        "key": pa.array([f'["{n}"]' for n in range(first, first + ROWS)]),
        "after": pa.array([f'{{"id":{n}}}' for n in range(first, first + ROWS)]),
        "order": pa.array(order, CHANGES.field("order").type),
        "dt": pa.repeat(READ.date(), ROWS),
    }
    arrays = [columns.get(one.name, pa.nulls(ROWS, one.type)) for one in CHANGES]
    return pa.RecordBatch.from_arrays(
        [a.cast(f.type) for a, f in zip(arrays, CHANGES, strict=True)], CHANGES.names
    )


def test_it_is_byte_by_byte_what_would_have_been_written_in_the_batch(store: Store) -> None:
    blank, plain = written(store, Blank.drawn()), written(store, None, "two.parquet")

    made = filled(store, blank, STAMP)

    assert made is not None
    assert store.read(made.path) == store.read(plain.path)
    assert replace(made, path="", modified=READ) == replace(
        plain, path="", modified=READ, stats=made.stats
    )


def test_the_same_file_can_be_taken_by_one_batch_after_the_other(store: Store) -> None:
    """A batch that came to nothing leaves the file as it was."""
    blank = written(store, Blank.drawn())

    filled(store, blank, STAMP)
    made = filled(store, blank, Stamp("main", 8, STAMP.received))

    assert made is not None
    kept = ds.dataset(store.uri + "/" + made.path)
    found = {number: kept.count_rows(filter=ds.field("batch") == number) for number in (7, 8)}
    assert found == {7: 0, 8: 2 * ROWS}


@pytest.mark.parametrize(
    "stamp",
    [
        pytest.param(Stamp("main", 7, READ + timedelta(hours=1)), id="its day is another one"),
        pytest.param(STAMP, id="it bears no blank"),
    ],
)
def test_what_cannot_be_filled_is_left_to_be_written_anew(store: Store, stamp: Stamp) -> None:
    file = written(store, None if stamp is STAMP else Blank.drawn())

    assert filled(store, file, stamp) is None


def test_a_file_whose_rows_do_not_come_out_right_is_not_taken(store: Store) -> None:
    """As if a later Parquet packed the values in another way."""
    file = written(store, Blank.drawn())
    table = pq.read_table(store.uri + "/" + file.path)
    with store.sink("packed.parquet") as output:
        packed = {"batch": "DELTA_BINARY_PACKED"}
        pq.write_table(table, output, use_dictionary=False, column_encoding=packed)

    assert filled(store, replace(file, path="packed.parquet"), STAMP) is None
