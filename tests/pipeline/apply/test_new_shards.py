"""A shard that comes later is folded if its columns fit; else its table says so, and waits."""

from pathlib import Path

from pipeline.model import Op, Order
from pipeline.sources.mysql.types import MySqlColumn as Column
from tests.pipeline.hand_lake import ID, NAME, HandLake, row

NEW = {"shard": "db.t2", "topic": "s.db.t2"}


def _with_new(tmp_path: Path, *columns: Column) -> HandLake:
    lake = HandLake(tmp_path, shards=("db.t", "db.t2"))
    lake.land(row(Op.CREATE, 2, 1, "Ada"))
    assert lake.apply().hold is None
    lake.alter(*columns, at=Order(1, 1, 3), shard="db.t2")
    return lake


def test_a_new_shard_whose_columns_fit_is_folded(tmp_path: Path) -> None:
    lake = _with_new(tmp_path, ID, NAME, Column("city", "VARCHAR", 20))

    lake.land(row(Op.CREATE, 4, 2, "Bob", **NEW))

    assert lake.apply().hold is None
    assert lake.rows() == {1: "Ada", 2: "Bob"}


def test_a_new_shard_of_other_columns_is_told_and_nothing_of_it_is_folded(tmp_path: Path) -> None:
    lake = _with_new(tmp_path, ID, Column("name", "DATE"))

    lake.land(row(Op.CREATE, 4, 2, "Bob", **NEW))

    told = lake.apply().hold
    assert told is not None
    assert told.reason == "shards_differ"
    assert "name is VARCHAR(80) in db.t and DATE in db.t2; make them alike" in told.detail
    assert lake.rows() == {1: "Ada"}
