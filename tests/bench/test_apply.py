"""The race of turns against rewrites runs, and both ways come to the same rows."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.apply import Race, measured
from bench.kit.table import NARROW, WIDE, Workload

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(Workload(WIDE, 200, 20, window=200), id="wide, any key"),
        pytest.param(Workload(NARROW, 200, 20, window=40, text_keys=True), id="narrow, text"),
    ],
)
def test_both_ways_come_to_the_same_rows(
    work: Workload, spark: SparkSession, tmp_path: Path
) -> None:
    times = measured(Race(spark, tmp_path, work), rounds=1)

    assert {name: len(spent) for name, spent in times.items()} == {"rewrite": 1, "sluice": 1}


def test_a_way_that_loses_a_row_is_found_out(spark: SparkSession, tmp_path: Path) -> None:
    race = Race(spark, tmp_path, Workload(NARROW, 200, 20, window=200))
    race.prepare()
    race.rewrite(0)

    with pytest.raises(AssertionError, match="results differ"):
        race.check(0)
