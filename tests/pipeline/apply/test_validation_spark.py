"""What a mirror that Spark merges is spared and what cannot be asked of it (file validation.py)."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.invariants.invariant import Invariant
from pipeline.invariants.not_null import NotNull
from pipeline.invariants.unique import Unique
from pipeline.settings import InvariantRule
from pipeline.tables.delta.table_format import DeltaMirrors
from tests.builders.lake import LocalLake, row
from tests.pipeline.apply.two_writers import C, D, U, writers_of

pytestmark = pytest.mark.spark


@pytest.fixture(params=["vectors", "spark"])
def writers(request: pytest.FixtureRequest, spark: SparkSession) -> DeltaMirrors:
    """Either writer."""
    return writers_of(request.param, spark)


def demanding(home: Path, writers: DeltaMirrors, name: str, invariant: Invariant) -> LocalLake:
    rule = InvariantRule("db.*", ((name, invariant),))
    return LocalLake(home, invariants=(rule,), table_format=writers)


def read_by_spark(spark: SparkSession, lake: LocalLake) -> dict[int, str | None]:
    """The rows as Spark reads them."""
    found = spark.read.format("delta").load(lake.settings.mirror("db.t"))
    return {one["id"]: one["name"] for one in found.collect()}


def test_a_slice_is_held_heals_and_is_let_through(
    writers: DeltaMirrors, spark: SparkSession, tmp_path: Path
) -> None:
    lake = demanding(tmp_path, writers, "not_null", NotNull(("name",)))
    lake.play([row(C, 10, 1, "a"), row(C, 11, 2, "b")])
    lake.land(row(U, 20, 1, None), row(D, 21, 2, "b"), row(C, 22, 3, "c"))
    first = lake.apply()
    assert first.hold is not None
    assert first.hold.id.startswith("invalid:db.t:1-1@")
    assert read_by_spark(spark, lake) == {1: "a", 2: "b"}

    lake.land(row(U, 30, 1, "right"))
    healed = lake.apply()
    assert (healed.hold, healed.account.residual) == (None, 0)
    assert read_by_spark(spark, lake) == {1: "right", 3: "c"}

    lake.land(row(U, 40, 1, None))
    again = lake.apply().hold
    assert again is not None
    assert lake.apply([again.id]).hold is None
    assert read_by_spark(spark, lake) == {1: None, 3: "c"}


def test_values_are_not_looked_up_where_spark_merges(spark: SparkSession, tmp_path: Path) -> None:
    lake = demanding(tmp_path, writers_of("spark", spark), "unique", Unique((("name",),)))
    lake.land(row(C, 10, 1, "a"))

    hold = lake.apply().hold

    assert hold is not None
    assert hold.reason == "invariant"
    assert "a mirror that cannot be searched for values, as Spark's are" in hold.detail
