"""The example job waits at a real gate, and merges what was certified, once.

Covers examples/merge_job.py.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from examples.merge_job import ask, certified_version, merge_day
from tests.monitor.rig import ORDERS, Rig
from tests.monitor.serving import serving

DAY = "2026-03-28"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path / "rig")
    made.round()
    made.round()
    yield made
    made.close()


@pytest.fixture
def gate(rig: Rig) -> Iterator[str]:
    with serving(rig.api()) as address:
        yield address


def orders(*rows: tuple[int, str, int]) -> pa.Table:
    columns = zip(*rows, strict=True)
    names = ("id", "customer", "amount")
    return pa.table(dict(zip(names, columns, strict=True)))


@pytest.mark.spark
def test_a_job_merges_the_certified_version_and_nothing_newer(
    spark: SparkSession, gate: str, tmp_path: Path
) -> None:
    mirror, target = str(tmp_path / "mirror"), str(tmp_path / "revenue")
    version = certified_version(gate, ORDERS, DAY, patience=0, wait=0)
    write_deltalake(mirror, orders((0, "ann", 1)))
    for number in range(1, version + 3):  # two versions more than what was certified
        write_deltalake(mirror, orders((number, "ann" if number % 2 else "bob", 1)), mode="append")

    for _ in range(2):
        merge_day(spark, mirror, version, DAY, target)

    found = spark.sql(f"SELECT customer, orders FROM delta.`{target}`").collect()
    assert DeltaTable(mirror).version() == version + 2
    assert sum(row["orders"] for row in found) == version + 1
    assert len({row["customer"] for row in found}) == len(found)


def test_a_job_waits_while_the_day_is_not_complete(gate: str) -> None:
    with pytest.raises(TimeoutError, match="not complete up to 2027-01-01"):
        certified_version(gate, ORDERS, "2027-01-01", patience=0, wait=0)


def test_a_job_waits_for_a_service_that_is_away() -> None:
    with pytest.raises(TimeoutError, match="Connection refused"):
        certified_version("http://127.0.0.1:9", ORDERS, DAY, patience=0, wait=0)


@pytest.mark.parametrize(
    ("table", "cut"), [("no.such", DAY), (ORDERS, "yesterday")], ids=["a table", "a cut"]
)
def test_a_wrong_question_ends_the_job_at_once(gate: str, table: str, cut: str) -> None:
    assert ask(gate, table, cut, 0)[0] == 400

    with pytest.raises(RuntimeError, match="will not open"):
        certified_version(gate, table, cut, patience=3600, wait=0)
