"""The only place where the benchmarks call Sluice: one landing, one apply."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.kit import events, table
from bench.kit.table import Field
from pipeline.apply.mirror import Mirror
from pipeline.apply.slices import Slice
from pipeline.apply.turn import Applier, Turn
from pipeline.changelog import table as changelog
from pipeline.landing.feed import Feed
from pipeline.landing.loop import Landing
from pipeline.landing.reading import Reader
from pipeline.mark import Mark
from pipeline.messages import format  # noqa: A004  - the product's own word
from pipeline.model import Acknowledged, Head, Order, Shard, Table
from pipeline.route import Router
from pipeline.schema.history import TableSchema
from pipeline.schema.types import Column
from pipeline.settings import CollectorSettings, PipelineSettings, SourceSettings
from pipeline.tables.delta import DeltaLake
from pipeline.transports.kafka import KafkaTransport

NAME = f"{table.SOURCE}/{table.SHARD}"

SOURCE = SourceSettings(
    name="one",
    host="127.0.0.1",
    port=1,
    user="",
    collector=CollectorSettings("", ""),
    prefix=events.PREFIX,
    follow_collector=False,
)


@dataclass(frozen=True, slots=True)
class Idle:
    """A server and its collector, at rest behind everything in the topic."""

    def head(self) -> Head:
        """The end of the log."""
        return Head("3e11fa47-71ca-11e1-9e33-c80aa9429562", 3, 4)

    def acknowledged(self) -> Acknowledged:
        """Everything was handed over."""
        return Acknowledged(3, 4)

    def address(self) -> tuple[str, int]:
        """Nobody asks."""
        return "127.0.0.1", 1


def land(session: SparkSession, kafka: str, lake: str, clock: Callable[[], datetime]) -> None:
    """Land the whole topic into a fresh lake, by as many batches as the product takes."""
    settings = PipelineSettings(lake, kafka, (SOURCE,))
    feeds = (Feed(SOURCE, Idle(), format.find(SOURCE.format), lambda _: Idle()),)
    changelog.create(session, settings.changes)
    with KafkaTransport(kafka) as transport:
        reader = Reader(session, transport, feeds, Router(), kafka, settings.small_batch_rows)
        read_back = DeltaLake(settings).mark
        mark = Mark(settings.lane, -1)
        landing = Landing(session, settings, feeds, reader, clock, read_back, mark)
        while landing.land(frozenset()).batch is not None:
            pass


def prepare(session: SparkSession, path: str, fields: Sequence[Field], image: DataFrame) -> None:
    """Create a mirror that holds *image*, as a base would have left it."""
    schema = _schema(fields)
    mirror = Mirror(session, path, "main")
    mirror.create(schema, {NAME: schema.order})
    meta = F.struct(
        F.lit(table.SOURCE).alias("source"),
        F.lit(table.SHARD).alias("shard"),
        F.col("order"),
        F.lit("r").alias("op"),
        F.lit(0).alias("origin"),
        F.lit(table.AT).alias("at"),
        F.lit(0).cast("bigint").alias("batch"),
    )
    rows = image.select(*(field.name for field in fields), meta.alias("_sluice"))
    rows.write.format("delta").mode("append").save(path)


def apply(session: SparkSession, log: str, path: str, fields: Sequence[Field], batch: int) -> None:
    """Apply one batch of the change log to the mirror at *path*.

    Raises:
        AssertionError: the product held the table.
    """
    shard = Shard(table.SOURCE, table.SHARD)
    schema = _schema(fields)
    turn = Turn(
        table=Table(table.SHARD, (shard,), ("id",), "id"),
        schema=schema,
        newest={NAME: schema},
        schema_at=lambda _name, _order: schema,
        after=batch - 1,
        high={f"{table.TOPIC}:0": Order(1, batch, 2**62)},
        grown=False,
    )
    with Slice(session, log, {table.SHARD: batch - 1}, batch) as slice_:
        applier = Applier(session, "main", log, lambda: table.AT)
        applied = applier.apply(turn, slice_, path)
    if applied.hold is not None or applied.account.residual:
        raise AssertionError(f"not applied: {applied}")


def _schema(fields: Sequence[Field]) -> TableSchema:
    columns = tuple(
        Column(field.name, field.kind, field.length, field.scale, position=place + 1)
        for place, field in enumerate(fields)
    )
    return TableSchema(table.SHARD, Order(1, 1, 0), columns, ("id",))
