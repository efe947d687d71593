"""A clone is a table of its own for whoever knows Delta, and takes nothing from its mirror."""

import json
import uuid
from pathlib import Path
from typing import cast

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaProtocolError
from pyspark.sql import SparkSession

from demo.s3 import BUCKET, S3
from pipeline.delta.reader import open_table
from pipeline.delta.store import open_store
from pipeline.errors import HeldError, UnreachableError
from pipeline.model import Op
from pipeline.tables.delta.clone import to_address
from pipeline.tables.delta.table_format import DeltaMirrors
from tests.builders.change_log import read_table
from tests.builders.lake import NOW, LocalLake, row

C, U, D = Op.CREATE, Op.UPDATE, Op.DELETE
EXPECTED = {1: "new", 3: "old"}


@pytest.fixture
def lake(tmp_path: Path) -> LocalLake:
    """A mirror of two files, with a vector, in a folder whose name is no plain URI."""
    made = LocalLake(tmp_path / "a lake")
    made.play(
        [row(C, 10 + key, key, "old") for key in (1, 2, 3)],
        [row(U, 20, 1, "new"), row(D, 21, 2, "old")],
    )
    return made


def cloned(lake: LocalLake, name: str = "clone") -> str:
    where = str(lake.home / name)
    seen = lake.runner.mirrors.look("db.t")
    assert seen is not None
    assert DeltaMirrors(None).cloned(seen.uri, seen.version, where, NOW) == len(EXPECTED)
    return where


def test_it_holds_the_rows_of_its_version_whatever_becomes_of_the_mirror(lake: LocalLake) -> None:
    where = cloned(lake)
    lake.play([row(U, 30, 3, "later"), row(D, 31, 1, "new")])

    found = open_table(where)

    assert found is not None
    assert {one["id"]: one["name"] for one in found.select("SELECT * FROM t")} == EXPECTED


def test_it_is_no_mirror_and_names_where_it_comes_from(lake: LocalLake) -> None:
    where, mirror = cloned(lake), lake.settings.mirror("db.t")

    entry = (Path(where) / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    told = {name: one for line in map(json.loads, entry) for name, one in line.items()}

    assert told["commitInfo"]["operation"] == "CLONE"
    assert told["commitInfo"]["operationParameters"]["source"] == to_address(mirror)
    assert not [one for one in told["metaData"]["configuration"] if one.startswith("sluice.")]
    assert told["metaData"]["id"] != DeltaTable(mirror).metadata().id
    assert [one.name for one in Path(where).iterdir()] == ["_delta_log"]


def test_there_is_one_table_in_a_folder(lake: LocalLake) -> None:
    cloned(lake)

    with pytest.raises(HeldError, match="log is there already"):
        cloned(lake)


def test_a_version_that_is_not_there_cannot_be_cloned(lake: LocalLake) -> None:
    with pytest.raises(UnreachableError, match="has no version 99"):
        DeltaMirrors(None).cloned(lake.settings.mirror("db.t"), 99, str(lake.home / "c"), NOW)


def test_an_older_version_is_cloned_as_it_was(lake: LocalLake) -> None:
    seen = lake.runner.mirrors.look("db.t")
    assert seen is not None
    where = str(lake.home / "older")

    rows = DeltaMirrors(None).cloned(seen.uri, seen.version - 1, where, NOW)

    found = read_table(where)
    assert rows == len(found.select("SELECT * FROM t")) == 3


@pytest.mark.parametrize("pattern", ["part-*.parquet", "_v/*"])
def test_a_version_whose_files_are_gone_cannot_be_cloned(lake: LocalLake, pattern: str) -> None:
    mirror, where = Path(lake.settings.mirror("db.t")), lake.home / "none"
    next(mirror.glob(pattern)).unlink()
    seen = lake.runner.mirrors.look("db.t")
    assert seen is not None

    with pytest.raises(HeldError, match=r"a vacuum deleted 1 files of version \d+"):
        DeltaMirrors(None).cloned(seen.uri, seen.version, str(where), NOW)

    assert list(where.rglob("*.json")) == []


@pytest.mark.spark
def test_spark_reads_it(lake: LocalLake, spark: SparkSession) -> None:
    found = spark.read.format("delta").load(cloned(lake)).select("id", "name").collect()

    assert {one.id: one.name for one in found} == EXPECTED


def test_pyarrow_by_deltalake_knows_no_vectors_and_says_so(lake: LocalLake) -> None:
    """As of every mirror: then the query engine of `deltalake` reads it, or DuckDB its Parquet."""
    with pytest.raises(DeltaProtocolError, match="deletionVectors"):
        DeltaTable(cloned(lake)).to_pyarrow_dataset()


def test_a_bucket_has_the_name_that_others_know() -> None:
    assert to_address("s3a://bucket/lake") == to_address("s3://bucket/lake") == "s3://bucket/lake"
    assert to_address("/lake/a b") == "file:///lake/a%20b"


@pytest.mark.stack
def test_in_a_bucket_a_clone_is_read_and_goes_as_a_whole(s3: S3) -> None:
    where = f"s3a://{BUCKET}/{uuid.uuid4()}"
    made = LocalLake(cast(Path, where))
    made.play([row(C, 10 + key, key, "old") for key in (1, 2, 3)])
    made.play([row(U, 20, 1, "new"), row(D, 21, 2, "old")])
    seen = made.runner.mirrors.look("db.t")
    assert seen is not None

    DeltaMirrors(None).cloned(seen.uri, seen.version, f"{where}/clone", NOW)

    found = read_table(f"{where}/clone")
    assert {one["id"]: one["name"] for one in found.select("SELECT * FROM t")} == EXPECTED
    open_store(where).drop("clone")
    assert open_table(f"{where}/clone") is None
    assert made.rows() == EXPECTED, "the mirror's files are the mirror's"
