"""Digests of a Delta table are those of its rows, one by one, whatever the ids are."""

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pipeline.changelog.table import build_app_id
from pipeline.errors import ProofError, UnreachableError
from pipeline.model import Shard, Table
from pipeline.row_digest import DigestColumn, Form, RangeDigest, list_row_digests, sum_ranges
from pipeline.tables.delta.reader import MirrorReader
from tests.builders.change_log import read_table

SHARD = Shard("s", "d.t")
COLUMNS = (DigestColumn("id", Form.INTEGER), DigestColumn("v", Form.TEXT))
SIGNED = [-(2**63), -1, 0, 1, 2**63 - 2, 2**63 - 1]
UNSIGNED = [Decimal(one) for one in (0, 1, 2**63 - 1, 2**63, 2**64 - 1)]
EDGES = [(-(2**63), -1), (-1, 1), (1, 2**63 - 2), (2**63 - 2, 2**64)]
HALVES = [(0, 2), (2**63 - 1, 2**63), (2**63, 2**64)]


def reader(home: Path, ids: pa.Array, values: list[str | None]) -> MirrorReader:
    write_deltalake(str(home), pa.table({"id": ids, "v": pa.array(values, pa.string())}))
    pinned = read_table(home)
    return MirrorReader(pinned, Table("t", (SHARD,), ("id",), "id"), build_app_id("main"))


@pytest.mark.parametrize(
    ("ids", "ranges"),
    [
        pytest.param(pa.array(SIGNED, pa.int64()), EDGES, id="signed"),
        pytest.param(pa.array(UNSIGNED, pa.decimal128(20, 0)), HALVES, id="unsigned"),
    ],
)
def test_each_row_counts_in_its_range(
    tmp_path: Path, ids: pa.Array, ranges: list[tuple[int, int]]
) -> None:
    values = [None, "", "a", "b", "c", "d"][: len(ids)]
    rows = [{"id": i, "v": v} for i, v in zip(ids.to_pylist(), values, strict=True)]
    mirror = reader(tmp_path / "m", ids, values)

    found = mirror.digests(SHARD, "id", ranges, COLUMNS)

    assert found == sum_ranges(list_row_digests(rows, "id", COLUMNS), ranges)
    assert sum(one.rows for one in found) == len(rows)


def test_many_ranges_and_gaps_between_them_are_told_apart(tmp_path: Path) -> None:
    mirror = reader(tmp_path / "m", pa.array(range(500), pa.int64()), ["x"] * 500)
    ranges = [(low, low + 3) for low in range(0, 500, 10)]

    found = mirror.digests(SHARD, "id", ranges, COLUMNS)

    assert [one.rows for one in found] == [3] * 50
    assert found[:2] == mirror.digests(SHARD, "id", ranges[:2], COLUMNS)
    assert mirror.row_digests(SHARD, "id", (0, 3), COLUMNS, 2) == tuple(
        (id_, mirror.digests(SHARD, "id", [(id_, id_ + 1)], COLUMNS)[0].sum) for id_ in (0, 1)
    )


def test_an_earlier_version_is_read_and_one_that_is_gone_is_said(tmp_path: Path) -> None:
    mirror = reader(tmp_path / "m", pa.array([1], pa.int64()), ["old"])
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
    mirror = reader(tmp_path / "m", pa.array([1], pa.int64()), ["x"])

    with pytest.raises(ProofError, match=column.name):
        mirror.digests(SHARD, "id", [(1, 2)], [column])


def test_an_empty_range_has_no_rows(tmp_path: Path) -> None:
    mirror = reader(tmp_path / "m", pa.array([1], pa.int64()), ["x"])

    assert mirror.digests(SHARD, "id", [(5, 9)], COLUMNS) == (RangeDigest(),)
    assert mirror.digests(SHARD, "id", [], COLUMNS) == ()


def test_rows_are_digested_by_id_in_the_order_asked(tmp_path: Path) -> None:
    """An id that is not there has no row, and one that is there twice has two."""
    mirror = reader(tmp_path / "m", pa.array([5, 7, 7, -3], pa.int64()), ["a", "b", "c", None])
    ranges = [(-3, -2), (5, 6), (6, 7), (7, 8)]
    expected = dict(zip((-3, 5, 6, 7), mirror.digests(SHARD, "id", ranges, COLUMNS), strict=True))

    found = mirror.id_digests(SHARD, "id", [7, -3, 6, 5], COLUMNS)

    assert found == tuple(expected[id_] for id_ in (7, -3, 6, 5))
    assert [one.rows for one in found] == [2, 1, 0, 1]
    assert mirror.id_digests(SHARD, "id", [], COLUMNS) == ()
    assert mirror.row_orders(SHARD, "id", [5]) == {}  # adopted: nothing says what wrote it
