import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.changelog.data_file import (
    GROUP,
    STORED,
    Blank,
    SortedFile,
    WrittenFile,
    merge_statistics,
    restamp_copy,
    sort_rows,
)
from pipeline.changelog.table import CHANGES, PROPERTIES, Stamp
from pipeline.delta import statistics
from pipeline.delta.log import Metadata
from pipeline.delta.protocol import describe_table
from pipeline.delta.store import Store, open_store

RECEIVED = datetime(2026, 11, 21, 23, 30, tzinfo=UTC)
Rows = list[dict[str, Any]]


def metadata() -> Metadata:
    text, properties = describe_table(CHANGES, PROPERTIES)
    return Metadata({}, "changes", text, ("dt",), properties)


def changes_batch(rows: Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=CHANGES)


def log_row(op: str, table: str | None, pos: int | None, **more: Any) -> dict[str, Any]:
    order = None if pos is None else {"epoch": 1, "log": 1, "pos": pos, "row": 0}
    return {"op": op, "table": table, "order": order, **more}


def row_positions(rows: pa.RecordBatch | pa.Table) -> list[tuple[Any, ...]]:
    return [
        (one["op"], one["table"], one["order"] and one["order"]["pos"]) for one in rows.to_pylist()
    ]


rows_of_a_table = st.lists(
    st.fixed_dictionaries(
        {
            "op": st.sampled_from(["c", "u", "r", "d", "ddl", "tombstone", "heartbeat", "error"]),
            "table": st.sampled_from([None, "a", "b", "ö", "a.b"]),
            "key": st.none() | st.text(max_size=40),
            "offset": st.integers(0, 5),
            "order": st.none()
            | st.fixed_dictionaries(
                {part: st.integers(-1, 3) for part in ("epoch", "log", "pos", "row")}
            ),
        }
    ),
    max_size=30,
)


def sort_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Where a row stands, said as plainly as can be."""
    kind = {"c": 0, "u": 0, "r": 0, "d": 1, "ddl": 2}.get(row["op"], 3)
    order = row["order"]
    names = ("epoch", "log", "pos", "row")
    parts = (1,) if order is None else (0, *(order[name] for name in names))
    return (kind, row["table"] is None, row["table"] or "", *parts)


@given(rows_of_a_table)
def test_rows_are_ordered_by_kind_table_and_order_then_as_they_came(rows: Rows) -> None:
    expected = sorted(range(len(rows)), key=lambda n: sort_key(rows[n]))

    assert sort_rows(changes_batch(rows)).tolist() == expected


@given(rows_of_a_table.filter(bool), rows_of_a_table.filter(bool))
def test_statistics_of_two_runs_are_those_of_all_their_rows(one: Rows, other: Rows) -> None:
    def of(rows: Rows) -> dict[str, Any]:
        return statistics.collect_statistics(
            pa.Table.from_batches([changes_batch(rows)]), metadata()
        )

    assert merge_statistics(of(one), of(other)) == of(one + other)


def test_a_column_that_one_run_cannot_bound_has_no_bound() -> None:
    def of(low: Any, nulls: int) -> dict[str, Any]:
        bounds = {} if low is None else {"key": low}
        return {"numRecords": 2, "minValues": bounds, "maxValues": {}, "nullCount": {"key": nulls}}

    assert merge_statistics(of("a", 0), of(None, 2))["minValues"] == {"key": "a"}
    assert merge_statistics(of("a", 0), of(None, 1))["minValues"] == {}


def test_a_file_holds_its_runs_sorted_and_tells_all_that_an_add_needs(tmp_path: Path) -> None:
    runs = [
        [log_row("d", "b", 1), log_row("u", "b", 2), log_row("ddl", None, 3), log_row("c", "a", 4)],
        [log_row("tombstone", None, None), log_row("u", "a", 9), log_row("c", "a", 8)],
    ]

    with SortedFile(open_store(str(tmp_path)), metadata(), "part-1.parquet", RECEIVED) as file:
        for rows in runs:
            file.add([changes_batch(rows[:2]), changes_batch(rows[2:])])

    written = file.written
    assert written is not None
    path = tmp_path / "dt=2026-11-21" / "part-1.parquet"
    assert (written.path, written.partition) == (
        "dt=2026-11-21/part-1.parquet",
        {"dt": "2026-11-21"},
    )
    assert (written.size, written.records, written.modified) == (path.stat().st_size, 7, RECEIVED)
    assert row_positions(pq.read_table(path, partitioning=None)) == [
        *[("c", "a", 4), ("u", "b", 2), ("d", "b", 1), ("ddl", None, 3)],
        *[("c", "a", 8), ("u", "a", 9), ("tombstone", None, None)],
    ]
    stats = json.loads(written.stats)
    assert stats["numRecords"] == 7
    assert (stats["minValues"]["order"]["pos"], stats["maxValues"]["order"]["pos"]) == (1, 9)
    assert (stats["minValues"]["table"], stats["maxValues"]["table"]) == ("a", "b")
    assert stats["nullCount"]["table"] == 2
    assert {"after", "raw", "dt"} & stats["minValues"].keys() == set()


def test_row_groups_are_small_bounded_and_indexed(tmp_path: Path) -> None:
    rows = [log_row("u", f"t{n % 3}", n, key=f'["{n}"]') for n in range(3 * GROUP)]

    with SortedFile(open_store(str(tmp_path)), metadata(), "p.parquet", RECEIVED) as file:
        file.add([changes_batch(rows)])

    assert file.written is not None
    parquet = pq.ParquetFile(tmp_path / file.written.path)
    groups = [parquet.metadata.row_group(n) for n in range(parquet.num_row_groups)]
    names = [groups[0].column(n).path_in_schema for n in range(groups[0].num_columns)]
    table = [group.column(names.index("table")) for group in groups]
    assert [group.num_rows for group in groups] == [GROUP] * 3
    assert [(c.statistics.min, c.statistics.max) for c in table] == [
        (f"t{n}",) * 2 for n in range(3)
    ]
    assert all(column.has_column_index and column.has_offset_index for column in table)
    assert groups[0].column(names.index("order.pos")).statistics.max == 3 * (GROUP - 1)
    assert not groups[0].column(names.index("after")).is_stats_set
    assert parquet.schema_arrow.equals(STORED)


def test_the_batches_of_a_run_are_taken_over(tmp_path: Path) -> None:
    batches = [changes_batch([log_row("u", "a", 1)]), changes_batch([log_row("u", "a", 0)])]

    with SortedFile(open_store(str(tmp_path)), metadata(), "p.parquet", RECEIVED) as file:
        file.add(batches)

    assert batches == []


def test_no_run_leaves_no_file(tmp_path: Path) -> None:
    with SortedFile(open_store(str(tmp_path)), metadata(), "p.parquet", RECEIVED) as file:
        pass

    assert file.written is None
    assert list(tmp_path.rglob("*")) == []


def test_a_block_that_fails_leaves_no_file(tmp_path: Path) -> None:
    file = SortedFile(open_store(str(tmp_path)), metadata(), "p.parquet", RECEIVED)
    with suppress(ZeroDivisionError), file:
        file.add([changes_batch([log_row("u", "a", 1)])])
        _ = 1 / 0

    assert file.written is None
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_row_groups_of_large_rows_hold_few(tmp_path: Path) -> None:
    rows = [log_row("u", "a", n, after="x" * 5 * 2**20) for n in range(6)]

    with SortedFile(open_store(str(tmp_path)), metadata(), "p.parquet", RECEIVED) as file:
        file.add([changes_batch(rows)])

    assert file.written is not None
    found = pq.read_metadata(tmp_path / file.written.path)
    assert [found.row_group(n).num_rows for n in range(found.num_row_groups)] == [3, 3]


# blank files

READ = datetime(2026, 11, 21, 23, 30, tzinfo=UTC)
STAMP = Stamp("main", 7, READ + timedelta(minutes=1, microseconds=3))
COUNT = 2 * GROUP + 5


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


def write_one(store: Store, blank: Blank | None, name: str = "one.parquet") -> WrittenFile:
    """Two runs of rows, in several row groups."""
    text, properties = describe_table(CHANGES, PROPERTIES)
    metadata = Metadata({}, "changes", text, ("dt",), properties)
    with SortedFile(store, metadata, name, READ) as file:
        for first in (0, COUNT):
            file.add([numbered(first, blank)])
    assert file.written is not None
    return file.written


def numbered(first: int, blank: Blank | None) -> pa.RecordBatch:
    plain = {"batch": pa.repeat(7, COUNT), "received": pa.repeat(STAMP.received, COUNT)}
    order = [{"epoch": 1, "log": 2, "pos": n, "row": 0} for n in range(first, first + COUNT)]
    columns = (plain if blank is None else blank.columns(COUNT)) | {
        "lane": pa.repeat("main", COUNT),
        "table": pa.repeat("d.t", COUNT),
        "op": pa.repeat("r", COUNT),
        "key": pa.array([f'["{n}"]' for n in range(first, first + COUNT)]),
        "after": pa.array([f'{{"id":{n}}}' for n in range(first, first + COUNT)]),
        "order": pa.array(order, CHANGES.field("order").type),
        "dt": pa.repeat(READ.date(), COUNT),
    }
    arrays = [columns.get(one.name, pa.nulls(COUNT, one.type)) for one in CHANGES]
    return pa.RecordBatch.from_arrays(
        [a.cast(f.type) for a, f in zip(arrays, CHANGES, strict=True)], CHANGES.names
    )


def test_it_is_byte_by_byte_what_would_have_been_written_in_the_batch(store: Store) -> None:
    blank, plain = write_one(store, Blank.drawn()), write_one(store, None, "two.parquet")

    made = restamp_copy(store, blank, STAMP)

    assert made is not None
    assert store.read(made.path) == store.read(plain.path)
    assert replace(made, path="", modified=READ) == replace(
        plain, path="", modified=READ, stats=made.stats
    )


def test_the_same_file_can_be_taken_by_one_batch_after_the_other(store: Store) -> None:
    """A batch that came to nothing leaves the file as it was."""
    blank = write_one(store, Blank.drawn())

    restamp_copy(store, blank, STAMP)
    made = restamp_copy(store, blank, Stamp("main", 8, STAMP.received))

    assert made is not None
    kept = ds.dataset(store.uri + "/" + made.path)
    found = {number: kept.count_rows(filter=ds.field("batch") == number) for number in (7, 8)}
    assert found == {7: 0, 8: 2 * COUNT}


@pytest.mark.parametrize(
    "stamp",
    [
        pytest.param(Stamp("main", 7, READ + timedelta(hours=1)), id="its day is another one"),
        pytest.param(STAMP, id="it bears no blank"),
    ],
)
def test_what_cannot_be_filled_is_left_to_be_written_anew(store: Store, stamp: Stamp) -> None:
    file = write_one(store, None if stamp is STAMP else Blank.drawn())

    assert restamp_copy(store, file, stamp) is None


def test_a_file_whose_rows_do_not_come_out_right_is_not_taken(store: Store) -> None:
    """As if a later Parquet packed the values in another way."""
    file = write_one(store, Blank.drawn())
    table = pq.read_table(store.uri + "/" + file.path)
    with store.sink("packed.parquet") as output:
        packed = {"batch": "DELTA_BINARY_PACKED"}
        pq.write_table(table, output, use_dictionary=False, column_encoding=packed)

    assert restamp_copy(store, replace(file, path="packed.parquet"), STAMP) is None
