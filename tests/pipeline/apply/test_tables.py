from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.lake.pinned import open_table
from pipeline.model import Op
from tests.pipeline.bench_lake import BenchLake, row

OTHERS = ("db.u", "db.v", "db.w")
pytestmark = pytest.mark.spark


def test_tables_merged_side_by_side_keep_their_numbers_and_one_that_fails_stops_no_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Numbers are session settings: in a shared session two merges at once mix them up."""
    lake = BenchLake(spark, tmp_path, others=OTHERS, workers=2)
    tables = ("db.t", *OTHERS)
    every = [row(Op.CREATE, 10, 1, "a", table=t, shard=t, topic=f"s.{t}") for t in tables]
    lake.land(*every)
    lake.lane.apply(frozenset())
    path = lake.settings.mirror("db.u")
    spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT short CHECK (id < 5)")
    lake.land(*(row(Op.CREATE, 20, 9, t, table=t, shard=t, topic=f"s.{t}") for t in tables))

    turns = {turn.table: turn for turn in lake.lane.apply(frozenset())}
    spark.sql(f"ALTER TABLE delta.`{path}` DROP CONSTRAINT short")
    freed = lake.lane.apply(frozenset())

    assert {name for name, turn in turns.items() if turn.hold is not None} == {"db.u"}
    assert [(turn.table, turn.hold, turn.batch) for turn in freed] == [("db.u", None, 1)]
    for table in tables:
        mirror = open_table(lake.settings.mirror(table))
        assert mirror is not None
        assert mirror.transaction("sluice:main") == 1
        names = [r["name"] for r in mirror.select("SELECT name FROM t ORDER BY id")]
        assert names == ["a", table]
