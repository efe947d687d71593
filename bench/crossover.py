"""Measures from how many rows on a Spark job pays off: lands in the driver and by a job, in turns.

    python -m bench.crossover --rows 5000 --rows 20000 --rows 100000 --rows 300000

Both land the same topic of 4 partitions into fresh change logs, with the product's code. The first
round warms both up; it is reported separately, because Python workers start in it. ``--wide 7000``
adds as many rows of 900 columns, in a separate topic: Spark reports that their generated code is
too long, and runs without it. CPU is that of the whole process tree (driver, JVM, workers; without
the broker).
"""

import shutil
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench.kit import ours
from bench.kit.cpu import spent
from bench.kit.events import KAFKA, Stream
from bench.kit.rounds import under_load
from bench.kit.spark import fresh, session
from demo.kafka import Kafka
from demo.ports import free_ports
from pipeline.settings import PipelineSettings
from pipeline.start import Workers
from pipeline.transports.kafka import KafkaTransport

PARTITIONS = 4
COLUMNS = 900
WIDE = f"{{prefix}}.shop.wide_{COLUMNS}"
WAYS = {"driver": 10**9, "job": 0}
"""The largest number of rows that each way lands in the driver."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one landing, by the clock and of CPU."""

    seconds: float
    cpu: float


@dataclass(eq=False)
class Track:
    """Topics of *rows* rows, and *wide* rows in a separate topic."""

    session: SparkSession
    stream: Stream
    folder: Path
    transport: KafkaTransport
    broker: int
    rows: int
    wide: int

    def fill(self) -> None:
        """Write the topics."""
        self.stream.create()
        self.stream.fill(self.session, first=0, events=self.rows)
        if self.wide:
            topic = WIDE.format(prefix=self.stream.prefix)
            self.stream.create_beside(topic, 1)
            self._fill_wide(topic)

    def land(self, small: int) -> Cost:
        """Land everything in one batch; up to *small* rows in the driver."""
        lake = fresh(self.folder, "lake")
        landing = ours.opened(self.session, self.stream, lake, self.transport)
        landing.work = Workers(self.session, small)
        cpu, started = spent([self.broker]), time.monotonic()
        landed = landing.land(frozenset())
        cost = Cost(time.monotonic() - started, spent([self.broker]) - cpu)
        if landed.rows != self.rows + self.wide or landed.capped:
            raise AssertionError(f"{landed.rows} of {self.rows + self.wide} rows were landed")
        shutil.rmtree(lake)
        return cost

    def _fill_wide(self, topic: str) -> None:
        number = F.col("id")
        values = [
            (F.concat(F.lit("value "), number * n % 977) if n % 3 == 0 else number * n % 1000)
            .alias(f"column_number_{n}")
            for n in range(COLUMNS)
        ]  # fmt: skip
        source = F.struct(
            *(F.lit(told).alias(name) for name, told in (("connector", "mysql"), ("db", "shop"))),
            F.lit(f"wide_{COLUMNS}").alias("table"),
            F.lit("binlog.000002").alias("file"),
            (number * 400 + 157).alias("pos"),
            F.lit(0).alias("row"),
        )
        value = F.struct(
            F.struct("id", *values).alias("after"), source.alias("source"), F.lit("c").alias("op")
        )
        rows = self.session.range(0, self.wide, 1, 1).select(
            F.lit(topic).alias("topic"),
            F.to_json(F.struct("id")).alias("key"),
            F.to_json(value).alias("value"),
        )
        rows.write.format("kafka").option(KAFKA, self.stream.kafka).save()


@click.command()
@click.option("--rows", multiple=True, type=int, default=[1_000, 5_000, 20_000, 100_000, 300_000])
@click.option("--wide", default=0, help="Rows of 900 columns beside them.")
@click.option("--rounds", default=3, help="Rounds that count.")
@click.option("--dir", "folder", default=Path("build/bench/crossover"), type=Path)
def main(*, rows: Sequence[int], wide: int, rounds: int, folder: Path) -> None:
    """Print seconds and CPU of both ways, for each number of rows."""
    shutil.rmtree(folder, ignore_errors=True)
    folder = folder.resolve()
    port, controller_port = free_ports(2)
    kafka = Kafka(folder / "kafka", port, controller_port)
    kafka.start()
    spark = session(PipelineSettings(str(folder), kafka.bootstrap, ()))
    broker = kafka.daemon.process.pid if kafka.daemon.process else 0
    try:
        with KafkaTransport(kafka.bootstrap) as transport:
            for number, count in enumerate(rows):
                stream = Stream(kafka.bootstrap, number + 1, PARTITIONS)
                track = Track(spark, stream, folder, transport, broker, count, wide)
                track.fill()
                measure(track, rounds)
    finally:
        spark.stop()
        kafka.stop()
        shutil.rmtree(folder, ignore_errors=True)


def measure(track: Track, rounds: int) -> None:
    """Warm both ways up, and land in turns."""
    first = {name: track.land(small) for name, small in WAYS.items()}
    costs: dict[str, list[Cost]] = {name: [] for name in WAYS}
    for _ in range(rounds):
        for name, small in WAYS.items():
            costs[name].append(track.land(small))
    click.echo(f"{track.rows} rows and {track.wide} wide ones; {under_load()}")
    for name, own in costs.items():
        seconds = [one.seconds for one in own]
        told = f"{statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})"
        cpu = statistics.median(one.cpu for one in own)
        cold = f"the first {first[name].seconds:.2f} s, CPU {first[name].cpu:.1f} s"
        click.echo(f"  {name:8} {told}, CPU {cpu:.2f} s; {cold}")


if __name__ == "__main__":
    main()
