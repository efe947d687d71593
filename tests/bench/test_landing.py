"""The race of landing against copies runs, and all ways come to the same messages."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.kit.events import Stream
from bench.landing import Race
from demo.servers import Servers
from pipeline.transports.kafka import KafkaTransport

pytestmark = [pytest.mark.stack, pytest.mark.spark]


def test_all_ways_come_to_the_same_messages(
    servers: Servers, spark: SparkSession, tmp_path: Path
) -> None:
    stream = Stream(servers.kafka.bootstrap, tables=3, partitions=2)
    stream.create()
    stream.fill(spark, first=0, events=50)

    with KafkaTransport(stream.kafka) as transport:
        race = Race(spark, stream, tmp_path, 50, transport)
        for run in (race.parquet, race.delta, race.sluice):
            run(0)
        race.check(0)
        small = race.small(1)

    assert len(small) == 1
