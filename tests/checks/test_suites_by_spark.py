"""Spark and pandas evaluate a suite alike, and Spark collects few rows."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pipeline.delta.reader import open_table
from pipeline.model import Shard, Table
from pipeline.suites import ExpectationSettings, SuiteLook, evaluate_by_spark, evaluate_rows
from pipeline.tables.delta.reader import MirrorReader
from pipeline.tables.delta.table_format import DeltaMirrors
from tests.builders.change_log import APP, NOON, meta, write_mirror

pytestmark = [
    pytest.mark.spark,
    # Great Expectations imports what Python and pandas have deprecated.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

A, B = Shard("shop", "s.t_00"), Shard("shop", "s.t_01")
TABLE = Table("shop.t", (A, B), ("id",), "id")
TYPES = {
    "id": pa.int64(),
    "state": pa.string(),
    "at": pa.timestamp("us", "UTC"),
    "doc": pa.string(),
}
ENDLESS = f'"{"a" * 60}!"'  # for Python's re and the pattern below


def rows(shard: Shard, batch: int, *ids: int) -> list[dict[str, Any]]:
    about = meta(shard.name, batch)
    return [
        {
            "id": n,
            "state": "bad" if n % 10 == 3 else "good",
            "at": NOON,
            "doc": ENDLESS if n % 10 == 3 else '"a"',
            "_sluice": about,
        }
        for n in ids
    ]


def expect(kind: str, **kwargs: Any) -> ExpectationSettings:
    return ExpectationSettings(f"expect_{kind}", kwargs)


SUITE = (
    expect("column_values_to_not_be_null", column="id"),
    expect("column_values_to_be_in_set", column="state", value_set=["good"]),
    expect("column_values_to_be_in_set", column="state", value_set=["good"], mostly=0.5),
    expect("column_values_to_be_between", column="at", min_value="2020-01-01T00:00:00"),
    expect(
        "column_values_to_be_between",
        column="id",
        max_value=50,
        row_condition='state=="good"',
        condition_parser="pandas",
    ),
    expect("column_values_to_be_unique", column="id"),
    expect("table_row_count_to_be_between", min_value=4),
    expect("column_values_to_match_json_schema", column="doc", json_schema={"pattern": "^(a+)+$"}),
    expect("column_values_to_not_be_null", column="gone"),
    expect("magic", column="id"),
)


def test_both_engines_find_the_same(tmp_path: Path, spark: SparkSession) -> None:
    write_mirror(tmp_path, rows(A, 0, 1, 2, 3) + rows(B, 0, 13, 14), 0, TYPES)
    write_mirror(tmp_path, rows(B, 4, 60, 63) + rows(A, 4, 61), 4, TYPES)
    opened = open_table(str(tmp_path))
    assert opened is not None
    mirror = MirrorReader(opened, TABLE, APP)
    look = SuiteLook(TABLE, 1, 4, 0, "state", SUITE)
    frame = DeltaMirrors(spark).frame(str(tmp_path), look.version)
    assert frame is not None

    here = evaluate_rows(pa.Table.from_batches(mirror.rows_after(0)), TABLE, SUITE)
    there = evaluate_by_spark(frame, look)

    assert there.rows == 3
    for one, other in zip(here, there.results, strict=True):
        assert (other.met, other.unexpected, sorted(other.keys)) == (
            one.met,
            one.unexpected,
            sorted(one.keys),
        ), one
        assert one.met is None or one.text == other.text
    assert [one.unexpected for one in here] == [0, 1, 1, 0, 2, 0, 0, 1, 0, 0]
    assert there.results[1].keys != ()
    assert [one.met for one in there.results[-2:]] == [None, None]


def test_spark_collects_no_more_rows_than_it_names(tmp_path: Path, spark: SparkSession) -> None:
    write_mirror(tmp_path, rows(A, 0, *range(3, 400, 10)), 0, TYPES)
    mean = expect("column_mean_to_be_between", column="id", min_value=0)
    look = SuiteLook(TABLE, 0, 0, None, "state", (SUITE[1], mean))
    frame = DeltaMirrors(spark).frame(str(tmp_path), 0)
    assert frame is not None

    found, average = evaluate_by_spark(frame, look).results

    assert (average.met, average.observed) == (True, "198")
    assert (found.met, found.unexpected, len(found.keys)) == (False, 40, 20)
    assert found.keys[0].startswith(f"{A}:")


@pytest.mark.parametrize(("most", "met"), [(20, False), (40, True)])
def test_spark_evaluates_a_query(tmp_path: Path, spark: SparkSession, most: int, met: bool) -> None:
    write_mirror(tmp_path, rows(A, 0, 3, 33), 0, TYPES)
    kwargs = {"unexpected_rows_query": f"SELECT * FROM {{batch}} WHERE id > {most}"}
    suite = (ExpectationSettings("unexpected_rows_expectation", kwargs),)
    frame = DeltaMirrors(spark).frame(str(tmp_path), 0)
    assert frame is not None

    (found,) = evaluate_by_spark(frame, SuiteLook(TABLE, 0, 0, None, "state", suite)).results

    assert (found.met, found.keys) == (met, ())
