"""The oracle itself: break a true mirror in each way, and it must say which."""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from demo.oracle.canon import Column
from demo.oracle.compare import judge
from demo.oracle.rows import Mirror, RowId, Source, read_mirror, read_touched

SHARDS = ("shop_00.orders_00", "shop_01.orders_00")
COLUMNS = (
    Column("id", "bigint", "bigint(20)"),
    Column("total", "decimal", "decimal(12,2)"),
    Column("touched", "bigint", "bigint(20)"),
)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("total", pa.decimal128(12, 2)),
        ("touched", pa.int64()),
        ("_sluice", pa.struct([("source", pa.string()), ("shard", pa.string())])),
    ]
)
ROLLED_BACK = frozenset({66})


def mirror_row(shard: int, key: int, total: str, touched: int) -> dict[str, Any]:
    sluice = {"source": "one", "shard": SHARDS[shard]}
    return {"id": key, "total": Decimal(total), "touched": touched, "_sluice": sluice}


TRUE = [mirror_row(0, 1, "1.50", 11), mirror_row(1, 1, "2.50", 12), mirror_row(0, 2, "3.50", 13)]
SOURCE = Source(
    SHARDS, COLUMNS, ("id",), {(each["_sluice"]["shard"], (each["id"],)): each for each in TRUE}
)
FIRST: RowId = (SHARDS[0], (1,))
OTHER: RowId = (SHARDS[1], (1,))
SECOND: RowId = (SHARDS[0], (2,))


def write_mirror(path: Path, *rows: Mapping[str, Any]) -> Mirror:
    write_deltalake(str(path), pa.Table.from_pylist([dict(each) for each in rows], schema=SCHEMA))
    return read_mirror(str(path), SOURCE)


@pytest.mark.parametrize(
    ("rows", "finding", "named"),
    [
        pytest.param(TRUE, None, [], id="the same rows in any files"),
        pytest.param(TRUE[::-1], None, [], id="the same rows in another order"),
        pytest.param(TRUE[:2], "lost", [SECOND], id="a row less"),
        pytest.param([TRUE[0], TRUE[2]], "lost", [OTHER], id="a row less, its twin id is there"),
        pytest.param([*TRUE, TRUE[1]], "duplicated", [OTHER], id="a row twice"),
        pytest.param(
            [mirror_row(0, 1, "9", 10), *TRUE[1:]], "regressed", [FIRST], id="an older row"
        ),
        pytest.param(
            [*TRUE, mirror_row(1, 2, "4", 9)], "ghost", [(SHARDS[1], (2,))], id="a row more"
        ),
        pytest.param(
            [mirror_row(0, 1, "1.50", 66), *TRUE[1:]], "rolled_back", [FIRST], id="an undone update"
        ),
        pytest.param(
            [*TRUE, mirror_row(0, 3, "1", 66)],
            "rolled_back",
            [(SHARDS[0], (3,))],
            id="an undone insert",
        ),
    ],
)
def test_each_harm_to_rows_is_found_under_its_name(
    tmp_path: Path, rows: list[dict[str, Any]], finding: str | None, named: list[RowId]
) -> None:
    diff = judge(SOURCE, write_mirror(tmp_path / "orders", *rows), ROLLED_BACK)

    assert {name for name, count in diff.counts.items() if count} == ({finding} - {None})
    assert diff.clean is (finding is None)
    assert finding is None or list(getattr(diff, finding)) == named


def test_a_changed_value_is_named_with_both_sides(tmp_path: Path) -> None:
    diff = judge(SOURCE, write_mirror(tmp_path / "orders", mirror_row(0, 1, "1.51", 11), *TRUE[1:]))

    (value,) = diff.changed
    assert (value.row, value.column) == (FIRST, "total")
    assert (value.source, value.mirror) == (Decimal("1.50"), Decimal("1.51"))
    assert diff.counts == {**dict.fromkeys(diff.counts, 0), "changed": 1}


def test_a_newer_row_than_the_source_has_is_a_changed_value(tmp_path: Path) -> None:
    diff = judge(SOURCE, write_mirror(tmp_path / "orders", mirror_row(0, 1, "1.50", 99), *TRUE[1:]))

    assert [(value.row, value.column) for value in diff.changed] == [(FIRST, "touched")]


def test_a_mirror_that_does_not_exist_has_lost_every_row(tmp_path: Path) -> None:
    diff = judge(SOURCE, read_mirror(str(tmp_path / "none"), SOURCE))

    assert set(diff.lost) == {FIRST, OTHER, SECOND}


def test_columns_missing_of_another_type_and_nobodys_are_named(tmp_path: Path) -> None:
    table = pa.table({"id": [1], "total": [1.5], "more": ["?"]})
    write_deltalake(str(tmp_path / "orders"), table)

    diff = judge(SOURCE, read_mirror(str(tmp_path / "orders"), SOURCE))

    assert diff.columns == (
        "touched is missing",
        "total is double for decimal(12,2)",
        "more is not a column of the source",
    )


def test_an_earlier_version_is_read_as_it_was(tmp_path: Path) -> None:
    path = str(tmp_path / "orders")
    write_mirror(tmp_path / "orders", *TRUE)
    DeltaTable(path).delete("touched = 12")

    then, now = (judge(SOURCE, read_mirror(path, SOURCE, version)) for version in (0, 1))

    assert then.clean
    assert now.lost == (OTHER,)
    assert read_touched(path, ["id"], 0) == {FIRST: 11, OTHER: 12, SECOND: 13}
    assert read_touched(path, ["id"], 1) == {FIRST: 11, SECOND: 13}


def test_of_a_duplicate_the_oldest_copy_counts_for_a_ready_answer(tmp_path: Path) -> None:
    write_mirror(tmp_path / "orders", *TRUE, mirror_row(0, 1, "1.50", 4))

    assert read_touched(str(tmp_path / "orders"), ["id"])[FIRST] == 4


def test_a_diff_names_the_first_few_of_each_finding(tmp_path: Path) -> None:
    diff = judge(SOURCE, write_mirror(tmp_path / "orders", TRUE[0]))

    assert str(diff) == f"3 rows; 2 lost: {OTHER}, {SECOND}"
