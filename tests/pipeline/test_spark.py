import sys
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_f56_workers_run_the_interpreter_of_the_service(spark: SparkSession) -> None:
    def told(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pipeline.model  # noqa: PLC0415  - in the worker: this is what failed

        for batch in batches:
            names = [sys.executable, pipeline.model.__name__]
            yield pa.RecordBatch.from_pydict({"said": names[: max(batch.num_rows, 2)]})

    rows = spark.range(1).mapInArrow(told, "said string").collect()

    assert [row["said"] for row in rows] == [sys.executable, "pipeline.model"]


def test_a_worker_begins_with_what_its_tasks_need_imported(spark: SparkSession) -> None:
    def told(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        needed = {"pipeline.landing.task", "pipeline.apply.mirror_job", "deltalake"}
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"said": sorted(needed & sys.modules.keys())})

    rows = spark.range(1).mapInArrow(told, "said string").collect()

    assert {row["said"] for row in rows} == {"pipeline.landing.task", "pipeline.apply.mirror_job"}


def test_f57_time_stamps_are_written_so_that_every_reader_reads_them(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "TIMESTAMP_MICROS"
