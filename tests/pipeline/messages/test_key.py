"""The change log's key: one row, one text, in both faces."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.messages import key

VALUES = st.lists(st.none() | st.text(st.characters(codec="utf-8")), min_size=1)
ODD = (
    ("17", "2"),
    ("",),
    (None, "x"),
    ('q"uote', "back\\slash", "sl/ash"),
    ("é 😀 \u2028 \x7f",),
    ("".join(map(chr, range(32))),),
    ("]", "[", "]]", ","),
)


@pytest.mark.parametrize(
    ("unique", "expected"),
    [
        pytest.param(True, '["17","2"]', id="unique keys stand alone"),
        pytest.param(False, '["main","shop_00.orders","17","2"]', id="others name their shard"),
    ],
)
def test_a_key_is_a_json_array_without_blanks(unique: bool, expected: str) -> None:
    assert key.canonical(["17", "2"], "main", "shop_00.orders", unique=unique) == expected


@given(values=VALUES)
def test_a_key_gives_its_values_back(values: list[str | None]) -> None:
    text = key.canonical(values, "s", "d.t", unique=False)

    assert key.parse(text) == ("s", "d.t", *values)
    assert json.loads(text) == ["s", "d.t", *values]


@given(one=VALUES, other=VALUES)
def test_different_values_never_share_a_key(one: list[str | None], other: list[str | None]) -> None:
    same = key.canonical(one, "s", "d.t") == key.canonical(other, "s", "d.t")

    assert same == (one == other)


@pytest.mark.spark
@pytest.mark.parametrize("unique", [True, False])
def test_spark_builds_the_same_key(unique: bool, spark: SparkSession) -> None:
    shards = ("shop.orders", 'odd".na\\me]', "ünï.😀")
    cases = [(values, shard) for values in ODD for shard in shards]
    rows = [(list(values), shard) for values, shard in cases]
    frame = spark.createDataFrame(rows, "parts array<string>, shard string")

    text = F.to_json("parts")  # how a format builds its key values
    built = key.column(text, F.lit("a]"), F.col("shard"), unique=F.lit(unique))
    found = [row[0] for row in frame.select(built).collect()]

    assert found == [key.canonical(values, "a]", shard, unique=unique) for values, shard in cases]


@pytest.mark.spark
def test_a_change_without_key_has_none(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(None,)], "k string")

    built = key.column(F.col("k"), F.lit("s"), F.lit("d.t"), unique=F.lit(False))

    assert frame.select(built).collect()[0][0] is None
