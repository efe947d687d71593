"""What does landing cost beside a bare copy of the same bytes?

    python -m bench.landing --events 1000000 --rounds 3

Contenders: Kafka -> Parquet and Kafka -> Delta as plain Spark copies of key, value and place, and
Sluice's landing, which decodes each message, folds shards, orders, and commits W with its mark.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.kit import events, ours
from bench.kit.rounds import Contender, compete, report
from bench.kit.spark import fresh, require_equal, session, total
from demo.kafka import Kafka
from demo.ports import free_ports
from pipeline.settings import PipelineSettings

WANTED = 0.6
RAW = ("key", "value", "topic", "partition", "offset", "timestamp")


@dataclass(eq=False)
class Race:
    """One broker full of events, and where each contender put them last."""

    session: SparkSession
    kafka: str
    folder: Path
    events: int
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
        ours.land(self.session, self.kafka, self.done["sluice"], lambda: datetime.now(UTC))

    def check(self, _: int) -> None:
        """Hold what each contender wrote against the others, then drop it."""
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

    def _copied(self, name: str) -> DataFrame:
        self.done[name] = fresh(self.folder, name)
        return events.scan(self.session, self.kafka).select(*RAW)


def _told(raw: DataFrame) -> DataFrame:
    """Place, op and row of each message, out of the raw bytes, by paths instead of a schema."""
    text = F.col("value").cast("string")
    return raw.select(
        "topic",
        "partition",
        "offset",
        F.get_json_object(text, "$.op"),
        F.get_json_object(text, "$.source.pos").cast("bigint"),
        F.get_json_object(text, "$.before"),
        F.get_json_object(text, "$.after"),
    )


def _landed(session: SparkSession, lake: str) -> DataFrame:
    """The same of the change log."""
    log = session.read.format("delta").load(f"{lake}/changes").where("op IN ('c', 'u', 'd')")
    return log.select("topic", "partition", "offset", "op", "order.pos", "before", "after")


@click.command()
@click.option("--events", "count", default=1_000_000, help="Messages in the topic.")
@click.option("--rounds", default=3, help="Rounds; every contender runs once in each.")
@click.option("--partitions", default=4, help="Partitions of the topic.")
@click.option("--dir", "folder", default=Path("build/bench/landing"), type=Path)
def main(count: int, rounds: int, partitions: int, folder: Path) -> None:
    """Measure landing against bare copies."""
    shutil.rmtree(folder, ignore_errors=True)
    folder = folder.resolve()
    port, controller_port = free_ports(2)
    kafka = Kafka(folder / "kafka", port, controller_port)
    kafka.start()
    try:
        times = _run(kafka.bootstrap, folder, {"events": count, "partitions": partitions}, rounds)
    finally:
        kafka.stop()
        shutil.rmtree(folder, ignore_errors=True)
    report(f"landing {count} events", times, "delta", WANTED)


def _run(kafka: str, folder: Path, size: Mapping[str, int], rounds: int) -> dict[str, list[float]]:
    """Fill the topic, warm every contender up with a first round, and time the others."""
    spark = session(PipelineSettings(str(folder), kafka, (), driver_memory="2g"))
    bytes_each = events.fill(spark, kafka, **size)
    click.echo(
        f"{size['events']} events of {bytes_each:.0f} bytes in {size['partitions']} partitions"
    )
    race = Race(spark, kafka, folder, size["events"])
    contenders = [
        Contender("parquet", race.parquet),
        Contender("delta", race.delta),
        Contender("sluice", race.sluice),
    ]
    try:
        times = compete(contenders, rounds + 1, race.check)
    finally:
        spark.stop()
    return {name: spent[1:] for name, spent in times.items()}


if __name__ == "__main__":
    main()
