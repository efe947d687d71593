import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pipeline.spark.scratch import make_scratch

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
        needed = {"pipeline.landing.task", "pipeline.apply.merge_job", "deltalake"}
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"said": sorted(needed & sys.modules.keys())})

    rows = spark.range(1).mapInArrow(told, "said string").collect()

    assert {row["said"] for row in rows} == {"pipeline.landing.task", "pipeline.apply.merge_job"}


def test_f57_time_stamps_are_written_so_that_every_reader_reads_them(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "TIMESTAMP_MICROS"


SECRETS = """
from pathlib import Path
from pipeline.settings import PipelineSettings
from pipeline.spark import jars
from pipeline.spark.session import open_session

key = "spark.executorEnv.AWS_SECRET_ACCESS_KEY"
settings = PipelineSettings("lake", "k:1", (), spark={key: "s3cret-of-the-bucket"})
session = open_session(settings, jars.spark_jars())
lines = [one.read_bytes() for one in Path("/proc").glob("[0-9]*/cmdline")]
java = [one for one in lines if b"org.apache.spark.deploy.SparkSubmit" in one]
print(len(java) > 0, any(b"s3cret-of-the-bucket" in one for one in java))
print(session.sparkContext.getConf().get(key))
session.stop()
"""


def test_f165_no_key_of_a_bucket_stands_in_a_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-"],
        input=SECRETS,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )

    assert done.stdout.splitlines()[-2:] == ["True False", "s3cret-of-the-bucket"]


KILLED = """
import os, signal
from pipeline.settings import PipelineSettings
from pipeline.spark import jars
from pipeline.spark.session import open_session

session = open_session(PipelineSettings("lake", "k:1", ()), jars.spark_jars())
print(session.range(1000).repartition(4).persist().count(), flush=True)
os.killpg(0, signal.SIGKILL)
"""


def test_what_killed_processes_leave_is_removed_when_the_next_one_starts(
    tmp_path: Path,
) -> None:
    places = {"TMPDIR": str(tmp_path), "SPARK_LOCAL_DIRS": ""}
    done = subprocess.run(
        [sys.executable, "-"],
        input=KILLED,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
        env=os.environ | places,
        start_new_session=True,
    )
    (left,) = tmp_path.iterdir()
    kinds = {one.name.partition("-")[0] for one in left.iterdir()}

    made = make_scratch(tmp_path)

    assert done.stdout.splitlines()[-1:] == ["1000"]
    assert {"spark", "blockmgr", "artifacts"} <= kinds
    assert list(tmp_path.iterdir()) == [made]
