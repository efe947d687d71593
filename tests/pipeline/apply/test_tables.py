from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.lake.pinned import open_table
from pipeline.model import Op
from tests.pipeline.bench_lake import BenchLake, row

C = Op.CREATE
OTHERS = ("db.u", "db.v", "db.w")
pytestmark = pytest.mark.spark


def test_tables_merged_side_by_side_keep_their_numbers_and_one_that_fails_stops_no_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Numbers are session settings: in a shared session two merges at once mix them up."""
    lake = BenchLake(spark, tmp_path, others=OTHERS, workers=2)
    tables = ("db.t", *OTHERS)

    def land(pos: int, key: int, name: str) -> None:
        lake.land(*(row(C, pos, key, name, table=t, shard=t, topic=f"s.{t}") for t in tables))

    land(10, 1, "a")
    lake.lane.apply(frozenset())
    path = lake.settings.mirror("db.u")
    spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT short CHECK (id < 5)")
    land(20, 9, "b")
    held = {turn.table for turn in lake.lane.apply(frozenset()) if turn.hold is not None}
    land(30, 3, "c")
    later = {turn.table: turn.account.read for turn in lake.lane.apply(frozenset())}
    spark.sql(f"ALTER TABLE delta.`{path}` DROP CONSTRAINT short")
    (freed,) = lake.lane.apply(frozenset())

    assert held == {"db.u"}
    assert later == {"db.t": 1, "db.u": 0, "db.v": 1, "db.w": 1}, "nothing is read twice"
    assert (freed.table, freed.hold, freed.batch, freed.account.read) == ("db.u", None, 2, 2)
    for table in tables:
        mirror = open_table(lake.settings.mirror(table))
        assert mirror is not None
        assert mirror.transaction("sluice:main") == 2
        names = [r["name"] for r in mirror.select("SELECT name FROM t ORDER BY id")]
        assert names == ["a", "c", "b"]
