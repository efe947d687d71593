"""Both ways land all rows of both topics: a figure of fewer rows is no figure."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.crossover import WAYS, Track
from bench.kit.events import Stream
from demo.servers import Servers
from pipeline.transports.kafka import KafkaTransport

pytestmark = [pytest.mark.stack, pytest.mark.spark]


def test_both_ways_land_all_rows(servers: Servers, spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(servers.kafka.bootstrap, tables=5, partitions=3)

    with KafkaTransport(stream.kafka) as transport:
        track = Track(spark, stream, tmp_path, transport, 0, 40, 2)
        track.fill()
        costs = [track.land(small) for small in WAYS.values()]  # it counts the rows itself

    assert [cost.seconds > 0 for cost in costs] == [True] * len(WAYS)
    assert len(WAYS) == 2
