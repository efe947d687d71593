"""Tasks in Spark's workers, on a real broker: what they leave, and what their errors look like."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from demo.servers import Servers
from pipeline.changelog.table import CHANGES, PROPERTIES, Stamp
from pipeline.delta.log import Metadata
from pipeline.delta.protocol import describe_table
from pipeline.errors import UnreachableError
from pipeline.formats.debezium_json import DebeziumJson
from pipeline.formats.format import Format
from pipeline.landing.task import LandingTask, SourceContext, TaskSource, run_task
from pipeline.parallel import spark_map
from pipeline.settings import Router
from pipeline.transports.kafka import KafkaReader
from pipeline.transports.transport import OffsetRange, ReadBounds
from tests.pipeline.landing.fatal_format import Fatal
from tests.pipeline.transports.topics import make, refused, send

pytestmark = [pytest.mark.stack, pytest.mark.spark]

HASTY = ReadBounds(patience=timedelta(seconds=2))
names = (f"p1.spread.shop.t{n}" for n in count())


@pytest.fixture
def topic(servers: Servers) -> str:
    """A topic of two partitions, with twenty changes in each."""
    name = make(servers.kafka.bootstrap, partitions=2, name=next(names))
    for partition in range(2):
        rows = [(b'{"id":%d}' % n, change_message(n)) for n in range(20)]
        send(servers.kafka.bootstrap, name, rows, partition=partition)
    return name


def change_message(n: int) -> bytes:
    source = {
        "connector": "mysql",
        "snapshot": "false",
        "db": "shop",
        "table": f"t{n % 2}",
        "file": "binlog.000002",
        "pos": 100 + n,
        "row": 0,
    }
    return json.dumps({"before": None, "after": {"id": n}, "source": source, "op": "c"}).encode()


def task(
    servers: Servers,
    lake: Path,
    *ranges: OffsetRange,
    format_: Format | None = None,
    bounds: ReadBounds | None = None,
) -> LandingTask:
    text, properties = describe_table(CHANGES, PROPERTIES)
    came = SourceContext("shop", "sluice.heartbeat")
    return LandingTask(
        str(lake),
        Metadata({}, "changes", text, ("dt",), properties),
        Stamp("main", 7, datetime(2026, 11, 21, 12, tzinfo=UTC)),
        Router(),
        (TaskSource(came, format_ or DebeziumJson(), ranges),),
        KafkaReader({"bootstrap.servers": servers.kafka.bootstrap}),
        bounds or ReadBounds(),
    )


def read_rows(lake: Path, path: str) -> list[Mapping[str, object]]:
    found: list[Mapping[str, object]] = pq.read_table(lake / path, partitioning=None).to_pylist()
    return found


def test_each_task_leaves_one_file_and_tells_of_it_in_the_order_of_the_tasks(
    spark: SparkSession, servers: Servers, topic: str, tmp_path: Path
) -> None:
    ranges = [
        OffsetRange(topic, 1, 5, 20),
        OffsetRange(topic, 0, 0, 7),
        OffsetRange(topic, 0, 7, 9),
    ]
    tasks = [task(servers, tmp_path, *ranges[:2]), task(servers, tmp_path, ranges[2])]

    told = spark_map(spark, run_task, tasks)

    assert [[(one.asked, one.count) for one in done.ranges] for done in told] == [
        [(ranges[0], 15), (ranges[1], 7)],
        [(ranges[2], 2)],
    ]
    assert [[one.rows for one in done.tallies] for done in told] == [[22], [2]]
    written = [done.file for done in told if done.file is not None]
    first, second = (read_rows(tmp_path, file.path) for file in written)
    assert [(r["table"], r["offset"]) for r in second] == [("shop.t0", 8), ("shop.t1", 7)]
    assert [r["table"] for r in first] == sorted(str(r["table"]) for r in first)
    assert len({file.path for file in written}) == 2


def test_a_worker_and_the_driver_make_the_same_of_a_task(
    spark: SparkSession, servers: Servers, topic: str, tmp_path: Path
) -> None:
    one = task(servers, tmp_path, OffsetRange(topic, 0, 0, 20, 0), OffsetRange(topic, 1, 3, 20, 0))

    (there,), here = spark_map(spark, run_task, [one]), run_task(one)

    assert there.file is not None
    assert here.file is not None
    assert replace(there.file, path="") == replace(here.file, path="")
    assert read_rows(tmp_path, there.file.path) == read_rows(tmp_path, here.file.path)
    assert (there.ranges, there.tallies) == (here.ranges, here.tallies)


def test_a_tasks_error_is_the_callers_and_not_sparks(
    spark: SparkSession, servers: Servers, topic: str, tmp_path: Path
) -> None:
    good, bad = OffsetRange(topic, 0, 0, 20), OffsetRange(topic, 1, 0, 21)

    lakes: list[Path] = []

    def asked() -> None:
        lakes.append(tmp_path / str(len(lakes)))
        lakes[-1].mkdir()
        hasty = task(servers, lakes[-1], bad, bounds=HASTY)
        spark_map(spark, run_task, [task(servers, lakes[-1], good), hasty])

    said = refused(asked, r"^1 ranges not read.* its log ends at 20")

    assert "Py4J" not in said
    assert len(list(lakes[-1].rglob("*.parquet"))) == 1  # an orphan: nobody will name it


def test_a_worker_that_dies_is_an_error_of_one_line(
    spark: SparkSession, servers: Servers, topic: str, tmp_path: Path
) -> None:
    fatal = task(servers, tmp_path, OffsetRange(topic, 0, 0, 20), format_=Fatal())

    with pytest.raises(UnreachableError, match="a Spark job failed") as caught:
        spark_map(spark, run_task, [fatal])

    assert "\n" not in str(caught.value)


def test_no_tasks_need_no_job(spark: SparkSession) -> None:
    assert spark_map(spark, run_task, []) == []
