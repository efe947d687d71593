"""Opens the session of the benchmarks: the product's own, so that all have the same settings."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.settings import PipelineSettings
from pipeline.spark import jars
from pipeline.spark.session import open_session

PLUG_INS = ("pipeline.formats.debezium_json", "pipeline.transports.kafka")
Sum = tuple[int, int]
"""The number of rows, and the sum of their hashes: equal for equal sets of rows, in any order."""


def session(settings: PipelineSettings) -> SparkSession:
    """Open the product's session."""
    return open_session(settings, jars.spark_jars(), PLUG_INS)


def fresh(folder: Path, name: str) -> str:
    """Return a path for a table that is not written yet."""
    number = sum(1 for _ in folder.glob(f"{name}-*"))
    return str(folder / f"{name}-{number:03}")


def total(rows: DataFrame) -> Sum:
    """Sum up *rows*; the caller keeps the same columns in the same order."""
    hashed = F.xxhash64(*(F.col(f"`{name}`") for name in rows.columns))
    found = rows.agg(
        F.count(F.lit(1)).alias("rows"), F.sum(hashed.cast("decimal(20,0)")).alias("hashes")
    ).collect()[0]
    return int(found["rows"]), int(found["hashes"] or 0)


def require_equal(sums: dict[str, Sum]) -> None:
    """Raise unless all *sums* are the same.

    Raises:
        AssertionError: names those that differ.
    """
    if len(set(sums.values())) > 1:
        raise AssertionError(f"results differ: {sums}")
