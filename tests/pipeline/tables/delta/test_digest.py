"""Digests of a Delta table are those of its rows, one by one, whatever the ids are."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pipeline.changelog.table import build_app_id
from pipeline.errors import ProofError, UnreachableError
from pipeline.model import Shard, Table
from pipeline.row_digest import (
    Bucketing,
    DigestColumn,
    Form,
    RangeDigest,
    digest_row,
    list_keyed_rows,
    list_row_digests,
    sum_buckets,
    sum_ranges,
)
from pipeline.tables.delta.reader import MirrorReader
from tests.builders.change_log import read_table

SHARD = Shard("s", "d.t")
COLUMNS = (DigestColumn("id", Form.INTEGER), DigestColumn("v", Form.TEXT))
SIGNED = [-(2**63), -1, 0, 1, 2**63 - 2, 2**63 - 1]
UNSIGNED = [Decimal(one) for one in (0, 1, 2**63 - 1, 2**63, 2**64 - 1)]
EDGES = [(-(2**63), -1), (-1, 1), (1, 2**63 - 2), (2**63 - 2, 2**64)]
HALVES = [(0, 2), (2**63 - 1, 2**63), (2**63, 2**64)]
HOLES = [(0, 1), (2**63 - 1, 2**63), (2**63 + 1, 2**64 - 1)]


def mirror_reader(home: Path, ids: pa.Array, values: list[str | None]) -> MirrorReader:
    write_deltalake(str(home), pa.table({"id": ids, "v": pa.array(values, pa.string())}))
    pinned = read_table(home)
    return MirrorReader(pinned, Table("t", (SHARD,), ("id",), "id"), build_app_id("main"))


@pytest.mark.parametrize(
    ("ids", "ranges"),
    [
        pytest.param(pa.array(SIGNED, pa.int64()), EDGES, id="signed"),
        pytest.param(pa.array(SIGNED, pa.int64()), [(-5, 1), *HALVES[1:]], id="signed, beyond"),
        pytest.param(pa.array(UNSIGNED, pa.decimal128(20, 0)), HALVES, id="unsigned"),
        pytest.param(pa.array(UNSIGNED, pa.decimal128(20, 0)), HOLES, id="unsigned, with holes"),
    ],
)
def test_each_row_counts_in_its_range(
    tmp_path: Path, ids: pa.Array, ranges: list[tuple[int, int]]
) -> None:
    values = [None, "", "a", "b", "c", "d"][: len(ids)]
    rows = [{"id": i, "v": v} for i, v in zip(ids.to_pylist(), values, strict=True)]
    mirror = mirror_reader(tmp_path / "m", ids, values)

    found = mirror.digests(SHARD, "id", ranges, COLUMNS)

    assert found == sum_ranges(list_row_digests(rows, "id", COLUMNS), ranges)


@pytest.mark.parametrize(
    "ids",
    [
        pytest.param(pa.array(SIGNED, pa.int64()), id="signed"),
        pytest.param(pa.array(UNSIGNED, pa.decimal128(20, 0)), id="unsigned"),
    ],
)
def test_each_row_is_found_by_its_id_up_to_the_ends_of_the_type(
    tmp_path: Path, ids: pa.Array
) -> None:
    values = [None, "", "a", "b", "c", "d"][: len(ids)]
    rows = [{"id": i, "v": v} for i, v in zip(ids.to_pylist(), values, strict=True)]
    digests = dict(list_row_digests(rows, "id", COLUMNS))
    mirror, asked = (
        mirror_reader(tmp_path / "m", ids, values),
        [int(one) for one in ids.to_pylist()],
    )

    found = mirror.id_digests(SHARD, "id", asked, COLUMNS)

    assert found == tuple(RangeDigest(1, digests[id_]) for id_ in asked)


def test_many_ranges_and_gaps_between_them_are_told_apart(tmp_path: Path) -> None:
    mirror = mirror_reader(tmp_path / "m", pa.array(range(500), pa.int64()), ["x"] * 500)
    ranges = [(low, low + 3) for low in range(0, 500, 10)]

    found = mirror.digests(SHARD, "id", ranges, COLUMNS)

    assert [one.rows for one in found] == [3] * 50
    assert found[:2] == mirror.digests(SHARD, "id", ranges[:2], COLUMNS)
    assert mirror.row_digests(SHARD, "id", (0, 3), COLUMNS, 2) == tuple(
        (id_, mirror.digests(SHARD, "id", [(id_, id_ + 1)], COLUMNS)[0].sum) for id_ in (0, 1)
    )


@pytest.mark.parametrize("key", ["d", "id", "n", "row_digest"])
def test_the_lowest_rows_are_listed_whatever_the_columns_are_called(
    tmp_path: Path, key: str
) -> None:
    others = {"id", "d", "n", "row_digest", "digest"} - {key}
    falling = dict.fromkeys(sorted(others), range(99, -1, -1))
    write_deltalake(str(tmp_path / "m"), pa.table({key: range(100), **falling}))
    table = Table("t", (SHARD,), (key,), key)
    mirror = MirrorReader(read_table(tmp_path / "m"), table, build_app_id("main"))
    columns = (DigestColumn(key, Form.INTEGER),)

    found = mirror.row_digests(SHARD, key, (0, 100), columns, 10)

    assert [id_ for id_, _ in found] == [*range(10)]
    assert mirror.ids(SHARD, key, (0, 100), 10) == (*range(10),)


def test_an_earlier_version_is_read_and_one_that_is_gone_is_said(tmp_path: Path) -> None:
    mirror = mirror_reader(tmp_path / "m", pa.array([1], pa.int64()), ["old"])
    write_deltalake(str(tmp_path / "m"), pa.table({"id": [1], "v": ["new"]}), mode="overwrite")
    newest = read_table(str(tmp_path / "m"))
    now = MirrorReader(newest, mirror.table, mirror.app)
    before = mirror.digests(SHARD, "id", [(1, 2)], COLUMNS)

    assert now.as_of(0).digests(SHARD, "id", [(1, 2)], COLUMNS) == before
    assert now.digests(SHARD, "id", [(1, 2)], COLUMNS) != before
    with pytest.raises(UnreachableError):
        now.as_of(7)


@pytest.mark.parametrize("column", [DigestColumn("gone", Form.TEXT), DigestColumn("v", Form.DATE)])
def test_a_column_that_does_not_fit_is_refused(tmp_path: Path, column: DigestColumn) -> None:
    mirror = mirror_reader(tmp_path / "m", pa.array([1], pa.int64()), ["x"])

    with pytest.raises(ProofError, match=column.name):
        mirror.digests(SHARD, "id", [(1, 2)], [column])


def test_an_empty_range_has_no_rows(tmp_path: Path) -> None:
    mirror = mirror_reader(tmp_path / "m", pa.array([1], pa.int64()), ["x"])

    assert mirror.digests(SHARD, "id", [(5, 9)], COLUMNS) == (RangeDigest(),)
    assert mirror.digests(SHARD, "id", [], COLUMNS) == ()


def test_rows_are_digested_by_id_in_the_order_asked(tmp_path: Path) -> None:
    """An id that is not there has no row, and one that is there twice has two."""
    mirror = mirror_reader(
        tmp_path / "m", pa.array([5, 7, 7, -3], pa.int64()), ["a", "b", "c", None]
    )
    ranges = [(-3, -2), (5, 6), (6, 7), (7, 8)]
    expected = dict(zip((-3, 5, 6, 7), mirror.digests(SHARD, "id", ranges, COLUMNS), strict=True))

    found = mirror.id_digests(SHARD, "id", [7, -3, 6, 5], COLUMNS)

    assert found == tuple(expected[id_] for id_ in (7, -3, 6, 5))
    assert [one.rows for one in found] == [2, 1, 0, 1]
    assert mirror.id_digests(SHARD, "id", [], COLUMNS) == ()
    assert mirror.row_orders(SHARD, "id", [5]) == {}  # adopted: nothing says what wrote it


NOW = datetime(2024, 2, 29, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("form", "equal", "other"),
    [
        (Form.ZERO_DATE, [None, date(1970, 1, 1)], date(1970, 1, 2)),
        (Form.ZERO_MOMENT, [None, datetime(1970, 1, 1, tzinfo=UTC)], NOW),
        (Form.LATIN, ["a\x81b", "\ufffd", "\x9d"], "\u0178"),
    ],
)
def test_values_that_collectors_send_in_two_ways_are_one(
    tmp_path: Path, form: Form, equal: list[Any], other: Any
) -> None:
    columns = (DigestColumn("v", form),)
    values = [*equal, other]
    write_deltalake(str(tmp_path / "m"), pa.table({"id": range(len(values)), "v": values}))
    pinned = read_table(tmp_path / "m")
    mirror = MirrorReader(pinned, Table("t", (SHARD,), ("id",), "id"), build_app_id("main"))

    found = [digest for _, digest in mirror.row_digests(SHARD, "id", (0, 9), columns, 9)]

    assert found == [digest_row(columns, [one]).sum for one in values]
    assert len(set(found)) == 2


def digest(*values: Any) -> int:
    forms = {str: Form.TEXT, type(None): Form.TEXT, bytes: Form.BYTES, int: Form.INTEGER}
    columns = [DigestColumn(f"c{n}", forms[type(one)]) for n, one in enumerate(values)]
    return digest_row(columns, values).sum


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param((None,), ("",), id="NULL and the empty text"),
        pytest.param((None,), ("N",), id="NULL and its own text"),
        pytest.param((None, "a"), ("a", None), id="NULL changes places"),
        pytest.param(("a", "b"), ("b", "a"), id="two columns swapped"),
        pytest.param(("a|1|b", ""), ("a", "b"), id="a separator in a value"),
        pytest.param(("", "1|a"), ("1|a", ""), id="a length in a value"),
        pytest.param(("a ",), ("a",), id="a blank at the end"),
        pytest.param(("\u00e9",), ("e\u0301",), id="another normal form"),
        pytest.param((b"\0",), (b"",), id="a zero byte"),
        pytest.param((1, 23), (12, 3), id="digits move to the next column"),
    ],
)
def test_other_rows_have_other_digests(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    assert digest(*one) != digest(*other)


def test_two_equal_rows_do_not_cancel_each_other() -> None:
    """As they would in a XOR."""
    row = RangeDigest(1, digest("a"))

    assert row + row != RangeDigest()
    assert (row + row).sum not in (0, row.sum)


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param([["a", "A", "a ", "\u00e9", "", "a"]], id="texts of one collation"),
        pytest.param([[1, 1, 2, 2, -1, 1], ["x", "y", "x", "y", None, "x"]], id="two columns"),
        pytest.param([[b"", b"\0", b"\xff", b"a", b"b", b""]], id="bytes"),
        pytest.param(
            [[Decimal("1.0"), Decimal("0.1"), Decimal(0), None, None, Decimal("1.0")]],
            id="decimals",
        ),
    ],
)
def test_rows_are_added_up_by_buckets_of_any_key(tmp_path: Path, keys: list[list[Any]]) -> None:
    """The last row has the key of the first one; more batches than one are read."""
    names = [f"k{n}" for n in range(len(keys))]
    forms = {str: Form.TEXT, bytes: Form.BYTES, int: Form.INTEGER, Decimal: Form.DECIMAL}
    key = tuple(DigestColumn(n, forms[type(own[0])]) for n, own in zip(names, keys, strict=True))
    by, columns = Bucketing(key, 4), (*key, DigestColumn("v", Form.TEXT))
    data = pa.table({**dict(zip(names, keys, strict=True)), "v": ["p", "q", "r", "s", "t", "u"]})
    for part in (data[:2], data[2:]):
        write_deltalake(str(tmp_path / "m"), part, mode="append")
    mirror = MirrorReader(
        read_table(tmp_path / "m"), Table("t", (SHARD,), tuple(names)), build_app_id("main")
    )
    rows = list_keyed_rows(data.to_pylist(), by, columns)
    bucket = by.bucket_of(rows[0].key)
    inside = [row for row in rows if by.bucket_of(row.key) == bucket]

    assert rows[0].key == rows[-1].key != rows[1].key
    assert mirror.bucket_digests(SHARD, by, columns) == sum_buckets(rows, by)
    found = mirror.bucket_rows(SHARD, by, columns, [bucket], 9)
    assert sorted(found, key=repr) == sorted(inside, key=repr)
    assert len(mirror.bucket_rows(SHARD, by, columns, range(4), 5)) == 5
    values = [*zip(*keys, strict=True)]
    asked = {row.key: own for row, own in zip(rows[1:4], values[1:4], strict=True)}
    if all(isinstance(one, int | str) for own in values for one in own):
        named = mirror.rows_by_key(SHARD, by, columns, {**asked, 7: asked[rows[1].key]})
        assert {(one.key, one.digest) for one in named} == {
            (one.key, one.digest) for one in rows if one.key in asked
        }


def test_each_row_is_read_once_by_its_key_however_many_keys_there_are(tmp_path: Path) -> None:
    """Parts of the keys are asked for one after the other, each by the values of its columns."""
    keys = [(n // 3, n % 3) for n in range(330)]
    columns = (DigestColumn("o", Form.INTEGER), DigestColumn("l", Form.INTEGER))
    data = pa.table({"o": [o for o, _ in keys], "l": [line for _, line in keys]})
    write_deltalake(str(tmp_path / "m"), data)
    mirror = MirrorReader(
        read_table(tmp_path / "m"), Table("t", (SHARD,), ("o", "l")), build_app_id("main")
    )
    asked = {digest_row(columns, key).sum: key for key in keys[:310]}

    found = mirror.rows_by_key(SHARD, Bucketing(columns, 4), columns, asked)

    assert sorted(one.key for one in found) == sorted(asked)
