"""What Spark's workers begin with."""

import os
import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

from pipeline.parallel import spark_map
from pipeline.spark.session import NICENESS, PRELOADED

pytestmark = pytest.mark.spark


def imported(name: str) -> bool:
    return name in sys.modules


def test_workers_begin_with_the_plug_ins_that_the_session_was_told(spark: SparkSession) -> None:
    names = ["examples.json_lines", "pipeline.landing.task", "examples.line_file"]

    assert spark_map(spark, imported, names) == [True, True, False]


def test_a_plug_in_whose_import_fails_stops_no_worker() -> None:
    told = {**os.environ, PRELOADED: "no.such.module,examples.json_lines"}
    asked = "import sys, pipeline.spark.worker_daemon; print('examples.json_lines' in sys.modules)"

    said = subprocess.run(
        [sys.executable, "-c", asked], env=told, capture_output=True, text=True, check=True
    )

    assert said.stdout == "True\n"


def test_workers_give_way_where_the_session_says_so() -> None:
    told = {**os.environ, NICENESS: "5"}
    program = "import os, runpy, pyspark.daemon; pyspark.daemon.manager = lambda: print(os.nice(0))"
    asked = f"{program}; runpy.run_module('pipeline.spark.worker_daemon', run_name='__main__')"

    said = subprocess.run(
        [sys.executable, "-c", asked], env=told, capture_output=True, text=True, check=True
    )

    assert said.stdout == f"{os.nice(0) + 5}\n"
