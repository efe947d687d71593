"""Measures landing against a bare copy of the same bytes.

    python -m bench.landing --events 1000000 --rounds 3 --partitions 4 --partitions 64

There are three contenders. Kafka -> Parquet and Kafka -> Delta are plain Spark copies of key, value
and position. Sluice's landing decodes each message, folds shards, orders, checks, and commits W
with its checkpoint. Then small batches are measured: they show how long a change waits on a quiet
day. At last, the same changes are landed in one table and in many, in turns, because the machine's
speed changes over minutes.
"""

import shutil
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.kit import ours
from bench.kit.events import Stream
from bench.kit.rounds import Contender, compete, report, under_load
from bench.kit.spark import fresh, require_equal, session, total
from demo.kafka import Kafka
from demo.ports import free_ports
from pipeline.settings import PipelineSettings
from pipeline.transports.kafka import KafkaTransport

WANTED = 0.9
ALIKE = 0.9  # wanted speed with many tables, relative to one
SMALL, SMALL_ROUNDS, SMALL_WANTED = 100, 20, 0.5
RAW = ("key", "value", "topic", "partition", "offset", "timestamp")


@dataclass(eq=False)
class Race:
    """One topic full of events, and the last output of each contender."""

    session: SparkSession
    stream: Stream
    folder: Path
    events: int
    transport: KafkaTransport
    done: dict[str, str] = field(default_factory=dict)

    def parquet(self, _: int) -> None:
        """Copy the bytes into Parquet files."""
        self._copied("parquet").write.parquet(self.done["parquet"])

    def delta(self, _: int) -> None:
        """Copy the bytes into a Delta table."""
        self._copied("delta").write.format("delta").save(self.done["delta"])

    def sluice(self, _: int) -> None:
        """Land the topic as the product does."""
        self.done["sluice"] = fresh(self.folder, "sluice")
        ours.land(ours.opened(self.session, self.stream, self.done["sluice"], self.transport))

    def check(self, _: int) -> None:
        """Compare the outputs of the contenders, then drop them."""
        raw = {
            "parquet": self.session.read.parquet(self.done["parquet"]),
            "delta": self.session.read.format("delta").load(self.done["delta"]),
        }
        found = {name: total(_told(rows)) for name, rows in raw.items()}
        found["sluice"] = total(_landed(self.session, self.done["sluice"]))
        require_equal(found)
        if found["sluice"][0] != self.events:
            raise AssertionError(f"{found['sluice'][0]} of {self.events} events are there")
        for path in self.done.values():
            shutil.rmtree(path)

    def landed(self) -> int:
        """Return how many rows were landed last; they are dropped."""
        count = _landed(self.session, self.done["sluice"]).count()
        shutil.rmtree(self.done["sluice"])
        return count

    def small(self, rounds: int) -> list[float]:
        """Return seconds of each small batch, after everything has landed and one has warmed up."""
        landing = ours.opened(
            self.session, self.stream, fresh(self.folder, "small"), self.transport
        )
        ours.land(landing)
        spent = []
        for number in range(rounds + 1):
            first = self.events + number * SMALL
            self.stream.fill(self.session, first=first, events=SMALL)
            started = time.monotonic()
            landed = landing.land(frozenset())
            spent.append(time.monotonic() - started)
            if landed.rows != SMALL:
                raise AssertionError(f"{landed.rows} of {SMALL} events were landed")
        return spent[1:]

    def _copied(self, name: str) -> DataFrame:
        self.done[name] = fresh(self.folder, name)
        return self.stream.scan(self.session).select(*RAW)


def _told(raw: DataFrame) -> DataFrame:
    """Return position, op and row of each message from the raw bytes, by paths without a schema."""
    text = F.col("value").cast("string")
    return raw.select(
        "topic",
        "partition",
        "offset",
        F.get_json_object(text, "$.op"),
        F.concat(F.lit("shop."), F.get_json_object(text, "$.source.table")),
        F.get_json_object(text, "$.source.pos").cast("bigint"),
        F.get_json_object(text, "$.before"),
        F.get_json_object(text, "$.after"),
    )


def _landed(session: SparkSession, lake: str) -> DataFrame:
    """Return position, op and row of each change in the change log."""
    log = session.read.format("delta").load(f"{lake}/changes").where("op IN ('c', 'u', 'd')")
    places = ("topic", "partition", "offset")
    return log.select(*places, "op", "table", "order.pos", "before", "after")


@click.command()
@click.option("--events", default=1_000_000, help="Messages in the topic.")
@click.option("--rounds", default=3, help="Rounds; every contender runs once in each.")
@click.option("--partitions", multiple=True, type=int, default=[4], help="Of the topic.")
@click.option("--tables", multiple=True, type=int, default=[1, 1000], help="Tables in the topic.")
@click.option("--dir", "folder", default=Path("build/bench/landing"), type=Path)
def main(
    *, events: int, rounds: int, partitions: Sequence[int], tables: Sequence[int], folder: Path
) -> None:
    """Measure landing against bare copies."""
    shutil.rmtree(folder, ignore_errors=True)
    folder = folder.resolve()
    port, controller_port = free_ports(2)
    kafka = Kafka(folder / "kafka", port, controller_port)
    kafka.start()
    spark = session(PipelineSettings(str(folder), kafka.bootstrap, (), driver_memory="2g"))
    try:
        for count in partitions:
            with KafkaTransport(kafka.bootstrap) as transport:
                streams = [Stream(kafka.bootstrap, number, count) for number in tables]
                races = [Race(spark, stream, folder, events, transport) for stream in streams]
                for race in races:
                    measure(race, rounds)
                if len(races) > 1:
                    compare(races, rounds)
    finally:
        spark.stop()
        kafka.stop()
        shutil.rmtree(folder, ignore_errors=True)


def measure(race: Race, rounds: int) -> None:
    """Fill the topic, warm every contender up with a first round, and time the others."""
    stream = race.stream
    stream.create()
    size = stream.fill(race.session, first=0, events=race.events)
    title = f"{race.events} events of {size:.0f} bytes, {stream.tables} tables"
    title += f", {stream.partitions} partitions"
    click.echo(title)
    contenders = [
        Contender("parquet", race.parquet),
        Contender("delta", race.delta),
        Contender("sluice", race.sluice),
    ]
    times = compete(contenders, rounds + 1, race.check)
    report(title, {name: spent[1:] for name, spent in times.items()}, "delta", WANTED)
    small = race.small(SMALL_ROUNDS)
    told = f"{statistics.median(small):.3f} s ({min(small):.3f} to {max(small):.3f})"
    click.echo(f"  {SMALL} events alone: {told}; wanted: {SMALL_WANTED} s; {under_load()}")


def compare(races: Sequence[Race], rounds: int) -> None:
    """Land the races' topics in turns, to show whether the number of tables matters."""
    named = {f"{race.stream.tables} tables": race for race in races}

    def check(_: int) -> None:
        counts = {name: (race.landed(), 0) for name, race in named.items()}
        require_equal(counts)

    contenders = [Contender(name, race.sluice) for name, race in named.items()]
    times = compete(contenders, rounds + 1, check)
    title = f"the same changes, {races[0].stream.partitions} partitions"
    report(title, {name: spent[1:] for name, spent in times.items()}, next(iter(named)), ALIKE)


if __name__ == "__main__":
    main()
