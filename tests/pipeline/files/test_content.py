"""Whole files are told from half ones, and their rows are the same however they are cut."""

import gzip
import io
import json
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.files.content import (
    LONGEST,
    ColumnsHead,
    FaultHead,
    HeartbeatHead,
    MessageHead,
    RowsHead,
    UnfinishedFile,
    WholeFile,
    decode_head,
    digest_of,
    encode_head,
    examine_file,
    grow_columns,
    own_key,
    read_file_rows,
)

LINES = b"".join(b'{"id": %d, "t": "x"}\n' % n for n in range(25_000))
TYPES = {"id": "bigint", "t": "string"}
TEXTS = {"id": "string", "t": "string"}
CSV = b'id,t\n1,"a\nb"\n2,\n3,""\n'


def parquet(**columns: Any) -> bytes:
    made = io.BytesIO()
    pq.write_table(pa.table(columns), made, row_group_size=7)
    return made.getvalue()


def twice() -> bytes:
    made = io.BytesIO()
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), made)
    return made.getvalue()


PACKED_LINES = gzip.compress(LINES, mtime=0)
BENT = PACKED_LINES[:9_000] + b"\xff\x00\xff" + PACKED_LINES[9_003:]
TABLE = parquet(id=list(range(20)), t=["x"] * 20)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


@pytest.mark.parametrize(
    ("kind", "data", "count", "columns"),
    [
        pytest.param("json_lines", LINES, 25_000, TYPES, id="lines"),
        pytest.param("json_lines", b'{"a": 1}', 1, {"a": "bigint"}, id="a line that is whole"),
        pytest.param(
            *("json_lines", b'{"a": 1}\nbad\n{"a": 2.5}\n', 3, {"a": "double"}), id="a bad line"
        ),
        pytest.param(
            "json_lines",
            b'{"a": [1], "b": true, "c": null}\n{"a": 3, "b": "x", "d": 18446744073709551615}\n',
            2,
            {"a": "string", "b": "string", "c": "string", "d": "string"},
            id="what lines tell differently is a text",
        ),
        pytest.param("csv", CSV, 3, TEXTS, id="csv"),
        pytest.param("parquet", TABLE, 20, TYPES, id="parquet"),
        pytest.param(
            "json_lines.gz",
            PACKED_LINES,
            25_000,
            TYPES,
            id="packed lines",
        ),
        pytest.param("csv.gz", gzip.compress(CSV), 3, TEXTS, id="packed csv"),
        pytest.param(
            "json_lines.gz",
            PACKED_LINES * 2,
            50_000,
            TYPES,
            id="appended",
        ),
    ],
)
def test_a_whole_file_tells_its_rows_and_columns(
    path: Path, kind: str, data: bytes, count: int, columns: dict[str, str]
) -> None:
    path.write_bytes(data)

    found = examine_file(path, kind, path.parent, named=False)

    assert isinstance(found, WholeFile)
    assert (found.rows, dict(found.columns)) == (count, columns)
    assert sum(len(part) for part in read_rows(path, kind)) == count


@pytest.mark.parametrize(
    ("kind", "data", "why"),
    [
        pytest.param("json_lines", LINES[:-5], "its last line", id="a line cut off"),
        pytest.param("json_lines.gz", PACKED_LINES[:-5], "ended before", id="packed, cut off"),
        pytest.param("json_lines.gz", LINES, "Not a gzipped file", id="not packed"),
        pytest.param("json_lines.gz", BENT, "", id="packed, damaged"),
        pytest.param(
            "csv.gz", gzip.compress(CSV[:-1]), "its last row has no line end", id="a packed row"
        ),
        pytest.param("parquet.gz", gzip.compress(TABLE), "compresses itself", id="Parquet packed"),
        pytest.param(
            "csv",
            CSV[:-1],
            "its last row has no line end; finish the file, or add the line end",
            id="a row cut off",
        ),
        pytest.param("csv", b"id,t\n1,2\n3\n", "Expected 2 columns, got 1", id="fewer fields"),
        pytest.param("csv", b"id,id\n1,2\n", "two columns of its head", id="one name twice"),
        pytest.param("parquet", twice(), "two of its columns", id="one name twice in Parquet"),
        pytest.param("parquet", TABLE[:-8], "", id="no footer"),
        pytest.param("parquet", b"PAR1" + TABLE[200:], "", id="rows that are gone"),
    ],
)
def test_a_half_file_is_not_whole(path: Path, kind: str, data: bytes, why: str) -> None:
    path.write_bytes(data)

    found = examine_file(path, kind, path.parent, named=False)

    assert isinstance(found, UnfinishedFile)
    assert why in found.why
    assert found.why


@pytest.mark.parametrize("size", range(1, len(TABLE), 97))
def test_no_beginning_of_a_parquet_file_is_whole(path: Path, size: int) -> None:
    path.write_bytes(TABLE[:size])

    assert isinstance(examine_file(path, "parquet", path.parent, named=False), UnfinishedFile)


@pytest.mark.parametrize("size", range(1, len(CSV)))
def test_a_beginning_of_csv_is_whole_only_where_a_row_ends(path: Path, size: int) -> None:
    path.write_bytes(CSV[:size])

    found = examine_file(path, "csv", path.parent, named=False)

    assert isinstance(found, WholeFile) == (CSV[:size] in (b"id,t\n", CSV[:13], CSV[:16], CSV))


@pytest.mark.parametrize(
    ("kind", "data"), [("json_lines", LINES), ("csv", CSV), ("parquet", TABLE)]
)
def test_rows_are_the_same_wherever_they_are_cut(path: Path, kind: str, data: bytes) -> None:
    path.write_bytes(data)
    every = [row for part in read_rows(path, kind) for row in part]

    for cut in {1, len(every) // 2, len(every) - 1}:
        low = [row for part in read_rows(path, kind, until=cut) for row in part]
        high = [row for part in read_rows(path, kind, first=cut) for row in part]
        assert low + high == every


def test_an_empty_field_of_csv_is_null_and_an_empty_text_is_one(path: Path) -> None:
    path.write_bytes(CSV)

    found = [json.loads(row) for part in read_rows(path, "csv") for row in part]

    assert found == [{"id": "1", "t": "a\nb"}, {"id": "2", "t": None}, {"id": "3", "t": ""}]


def test_one_value_in_thousands_of_rows_takes_the_memory_of_a_few(path: Path) -> None:
    """The file has 300 bytes, and its rows as text 4 GB."""
    value = "x" * 400_000
    values = pa.DictionaryArray.from_arrays(pa.array([0] * 10_000, pa.int32()), [value])
    made = io.BytesIO()
    pq.write_table(pa.table({"v": values, "w": values}), made, compression="zstd")
    path.write_bytes(made.getvalue())
    most = pa.default_memory_pool().max_memory()

    found = examine_file(path, "parquet", path.parent, named=False)
    with path.open("rb") as file:
        first = next(read_file_rows(file, "parquet", 0, 10_000))

    assert isinstance(found, WholeFile)
    assert found.rows == 10_000
    assert len(first) == LONGEST // (2 * len(value))
    assert pa.default_memory_pool().max_memory() < max(most, 10 * LONGEST)


@pytest.mark.parametrize("nested", [False, True])
def test_a_row_of_parquet_larger_than_a_line_may_be_is_refused(path: Path, nested: bool) -> None:
    value = "x" * (LONGEST // 4 + 1)
    path.write_bytes(
        parquet(v=[[{"t": value}] * 4]) if nested else parquet(**{key: [value] for key in "abcd"})
    )

    found = examine_file(path, "parquet", path.parent, named=False)

    assert isinstance(found, UnfinishedFile)
    assert "a row is larger than 16 MiB; shorten it" in found.why


def test_values_of_parquet_are_written_as_a_mirror_reads_them(path: Path) -> None:
    moment = datetime(2026, 11, 23, 1, 2, 3, 4, tzinfo=UTC)
    path.write_bytes(
        parquet(
            d=[Decimal("1.10")],
            at=pa.array([moment], pa.timestamp("us", "UTC")),
            local=pa.array([moment.replace(tzinfo=None)], pa.timestamp("us")),
            day=[date(2026, 11, 23)],
            raw=[b"\x00\xff"],
            many=[[1, 2]],
        )
    )

    found = examine_file(path, "parquet", path.parent, named=False)
    ((row,),) = read_rows(path, "parquet")

    assert isinstance(found, WholeFile)
    assert list(found.columns.values()) == [
        *("decimal(3,2)", "timestamp", "timestamp_ntz", "date", "binary", "string"),
    ]
    assert json.loads(row) == {
        "d": "1.10",
        "at": "2026-11-23T01:02:03.000004Z",
        "local": "2026-11-23T01:02:03.000004",
        "day": "2026-11-23",
        "raw": "AP8=",
        "many": [1, 2],
    }


def test_a_fraction_that_is_no_number_is_not_null(path: Path) -> None:
    values = [float("nan"), None, float("inf"), float("-inf"), 0.5]
    path.write_bytes(parquet(a=pa.array(values), b=pa.array(values, pa.float32())))

    found = [json.loads(row) for part in read_rows(path, "parquet") for row in part]

    told = ["NaN", None, "Infinity", "-Infinity", 0.5]
    assert found == [{"a": one, "b": one} for one in told]


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(pa.array([2**62], pa.timestamp("us")), id="a moment"),
        pytest.param(pa.array([2**30], pa.date32()), id="a day"),
        pytest.param(pa.array([2**62], pa.duration("s")), id="a span"),
    ],
)
def test_what_python_has_no_value_for_is_told_and_stops_nobody(path: Path, values: Any) -> None:
    path.write_bytes(parquet(a=values))

    with pytest.raises(ValueError, match=r"\S"):
        list(read_rows(path, "parquet"))


def test_why_a_file_is_not_whole_shows_none_of_its_values(path: Path) -> None:
    path.write_bytes(b"id,name\n1,ann\n2,secret,s3cret\n")

    found = examine_file(path, "csv", path.parent, named=False)

    assert found == UnfinishedFile("CSV parse error: Expected 2 columns, got 3")


def test_a_digest_moves_nobody_who_reads(path: Path) -> None:
    path.write_bytes(LINES)
    with path.open("rb") as file:
        file.readline()
        whole, first = digest_of(file), digest_of(file, 20)
        assert file.readline() == b'{"id": 1, "t": "x"}\n'
    path.write_bytes(LINES[:20])
    with path.open("rb") as file:
        assert digest_of(file) == first != whole


def read_rows(path: Path, kind: str, first: int = 0, until: int = 10**9) -> Iterator[list[bytes]]:
    with path.open("rb") as file:
        yield from read_file_rows(file, kind, first, until)


def test_a_line_larger_than_16_mib_is_refused_before_it_is_read(path: Path) -> None:
    part = b"x" * LONGEST
    path.write_bytes(gzip.compress(b'{"id": 1}\n{"t": "' + part * 3 + b'"}\n', mtime=0))
    tracemalloc.start()

    found = examine_file(path, "json_lines.gz", path.parent, named=False)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == UnfinishedFile("line 2 is larger than 16 MiB; shorten it")
    assert peak < 2.5 * LONGEST
    with pytest.raises(ValueError, match="line 2 is larger than 16 MiB"):
        list(read_rows(path, "json_lines.gz"))


def test_a_file_with_ids_as_fields_is_refused_unless_its_columns_are_named(path: Path) -> None:
    path.write_bytes(b"".join(b'{"id": 1, "f%d": 2}\n' % n for n in range(1_500)))

    found = examine_file(path, "json_lines", path.parent, named=False)

    assert isinstance(found, UnfinishedFile)
    assert found.why.startswith("its field 'f1499' is one more than 1,500 columns; ")
    assert "`columns:`" in found.why
    assert isinstance(examine_file(path, "json_lines", path.parent, named=True), WholeFile)
    path.write_bytes(b"".join(b'{"id": 1, "f%d": 2}\n' % n for n in range(1_499)))
    assert isinstance(examine_file(path, "json_lines", path.parent, named=False), WholeFile)


def test_lines_are_cut_by_their_bytes_too(path: Path) -> None:
    line = b'"' + b"x" * (LONGEST // 3) + b'"\n'
    path.write_bytes(line * 5)

    assert [len(part) for part in read_rows(path, "json_lines")] == [3, 2]


def test_no_beginning_of_a_packed_file_is_whole(path: Path) -> None:
    data = gzip.compress(LINES[:300], mtime=0)
    for size in range(1, len(data)):
        path.write_bytes(data[:size])

        assert isinstance(
            examine_file(path, "json_lines.gz", path.parent, named=False), UnfinishedFile
        )


def test_rows_of_a_packed_file_are_the_same_however_they_are_cut(path: Path) -> None:
    path.write_bytes(PACKED_LINES)
    whole = [row for part in read_rows(path, "json_lines.gz") for row in part]

    with path.open("rb") as file:
        some = [
            row for part in read_file_rows(file, "json_lines.gz", 9_999, 10_002) for row in part
        ]

    assert b"".join(whole) == LINES
    assert some == whole[9_999:10_002]


KNOWN = ColumnsHead("d.l", "create", (("id", "bigint"), ("_file", "string")), ("_file", "_line"))


def test_the_first_file_tells_them_and_where_a_row_stood_is_added() -> None:
    told = grow_columns("d.l", None, {"id": "bigint", "_file": "double"}, ())

    assert told is not None
    assert told.kind == "create"
    assert told.columns == (
        ("id", "bigint"),
        ("_file", "string"),
        ("_line", "bigint"),
        ("_day", "date"),
        ("_hour", "int"),
    )
    assert told.key == ("_file", "_line")


def test_what_is_new_comes_behind_and_what_is_known_keeps_its_type() -> None:
    told = grow_columns("d.l", KNOWN, {"id": "string", "new": "double"}, ())

    assert told is not None
    assert (told.kind, told.columns) == ("alter", (*KNOWN.columns, ("new", "double")))


def test_nothing_new_is_not_told_and_another_key_is() -> None:
    assert grow_columns("d.l", KNOWN, {"id": "bigint"}, ()) is None

    told = grow_columns("d.l", KNOWN, {"id": "bigint"}, ("id",))
    assert told is not None
    assert told.key == ("id",)


@pytest.mark.parametrize(
    "head",
    [
        RowsHead("d.l", "l/2026_11_23/05/a.json", "2026_11_23", "05", 7, 1_000, ("id",)),
        ColumnsHead("d.l", "create", (("id", "bigint"),), ("id",)),
        HeartbeatHead("sluice.heartbeat", "logs", 3),
        FaultHead("d.l", "a.json", "it is not whole"),
    ],
    ids=lambda head: type(head).__name__,
)
def test_a_head_is_read_back_as_it_was_written(head: MessageHead) -> None:
    assert decode_head(encode_head(head)) == head


def test_a_message_without_a_head_is_none() -> None:
    with pytest.raises(ValueError, match="needs a key"):
        decode_head(None)


def test_a_row_is_known_by_where_it_stood_unless_its_log_has_a_key() -> None:
    assert own_key(()) == ("_file", "_line")
    assert own_key(("id",)) == ("id",)
