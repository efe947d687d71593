"""The append-only lake table with every landed change; the landing loop's only memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.mark import Mark
from pipeline.messages import key
from pipeline.model import Op, Order
from pipeline.route import Router

ORDER = "struct<epoch: bigint, log: bigint, pos: bigint, row: bigint>"
SCHEMA = {
    "lane": "string",
    "batch": "bigint",
    "source": "string",
    "shard": "string",
    "table": "string",
    "op": "string",
    "key": "string",
    "before": "string",
    "after": "string",
    "changed": "array<string>",
    "at": "timestamp",
    "order": ORDER,
    "origin": "int",
    "tx": "struct<id: string, total_order: bigint>",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "received": "timestamp",
    "dt": "date",
    "schema_id": "int",
    "error": "string",
    "raw": "binary",
    "snapshot": "string",
}
ORDER_TYPE = pa.struct([(part, pa.int64()) for part in ("epoch", "log", "pos", "row")])
TIME = pa.timestamp("us", "UTC")
CHANGES = pa.schema(  # the same columns over Arrow
    [
        ("lane", pa.string()),
        ("batch", pa.int64()),
        ("source", pa.string()),
        ("shard", pa.string()),
        ("table", pa.string()),
        ("op", pa.string()),
        ("key", pa.string()),
        ("before", pa.string()),
        ("after", pa.string()),
        ("changed", pa.list_(pa.string())),
        ("at", TIME),
        ("order", ORDER_TYPE),
        ("origin", pa.int32()),
        ("tx", pa.struct([("id", pa.string()), ("total_order", pa.int64())])),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("received", TIME),
        ("dt", pa.date32()),
        ("schema_id", pa.int32()),
        ("error", pa.string()),
        ("raw", pa.binary()),
        ("snapshot", pa.string()),
    ]
)
_PROPERTIES = {
    "delta.enableDeletionVectors": "false",  # nothing is ever deleted row by row
    "delta.logRetentionDuration": "interval 1 days",  # batches are numbered in the rows
    "delta.deletedFileRetentionDuration": "interval 1 days",  # must not outlive the log
    "delta.checkpointInterval": "20",
    # no statistics on before, after and raw: they are long, and nothing is found by them
    "delta.dataSkippingStatsColumns": (
        "lane,batch,source,shard,table,op,key,order,origin,topic,partition,offset"
    ),
}
# rows that change a mirror; the order of their names is of no meaning
MIRROR_OPS = (Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ, Op.TRUNCATE, Op.SETTLE)


def app(lane: str) -> str:
    """The Delta transaction id that numbers a lane's batches, and its mirrors' applied batches."""
    return f"sluice:{lane}"


def create(session: SparkSession, path: str) -> None:
    """Create the empty change log at *path*."""
    columns = ", ".join(f"`{name}` {kind}" for name, kind in SCHEMA.items())
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in _PROPERTIES.items())
    session.sql(
        f"CREATE TABLE IF NOT EXISTS delta.`{path}` ({columns}) USING delta "
        f"PARTITIONED BY (dt) TBLPROPERTIES ({properties})"
    )


@dataclass(frozen=True, slots=True)
class Stamp:
    """What every row of one batch shares; ``received`` is one instant, so a batch is one day."""

    lane: str
    batch: int
    received: datetime


def shape(
    parsed: DataFrame, source: str, heartbeat: str, *, router: Router, epoch: Column, stamp: Stamp
) -> DataFrame:
    """Columns of a format -> columns of the change log.

    In: what ``Format.columns`` returns.  Out: ``SCHEMA``, one row for each row in.
    Rows of the table *heartbeat* become op ``heartbeat`` and belong to no table.
    """
    is_row = F.col("op").isin([Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ])
    beat = is_row & (F.col("shard") == heartbeat)
    row = F.coalesce("row", F.lit(0)).alias("row")
    order = F.struct(epoch.cast("bigint").alias("epoch"), "log", "pos", row)
    made = {
        "lane": F.lit(stamp.lane),
        "batch": F.lit(stamp.batch).cast("bigint"),
        "source": F.lit(source),
        "op": F.when(beat, F.lit(Op.HEARTBEAT)).otherwise(F.col("op")),
        "table": F.when(~F.coalesce(beat, F.lit(False)), router.table_column(F.col("shard"))),
        "key": key.column(
            F.col("key_values"),
            F.lit(source),
            F.col("shard"),
            unique=router.unique_column(F.col("shard")),
        ),
        "order": F.when(F.col("log").isNotNull(), order),
        "received": F.lit(stamp.received),
        "dt": F.lit(stamp.received.date()),
    }
    return parsed.select(*[_as(name, made.get(name, F.col(name))) for name in SCHEMA])


def slim(rows: DataFrame) -> DataFrame:
    """The columns a batch is judged by: no payload but that of heartbeats and schema changes.

    Out: source, topic, partition, offset, table, shard, op, origin, epoch, log, pos, row, snapshot,
    and ``note``: the heartbeat's number, or the schema change's payload.  Heartbeats of other
    sources, which share the table when two collectors read one server, have no note.
    """
    own = F.get_json_object("after", "$.source") == F.col("source")
    beat = (F.col("op") == Op.HEARTBEAT) & own
    note = F.when(beat, F.get_json_object("after", "$.n"))
    note = note.when(F.col("op") == Op.DDL, F.col("after"))
    order = [F.col(f"order.{part}").alias(part) for part in ("epoch", "log", "pos", "row")]
    plain = ("source", "topic", "partition", "offset", "table", "shard", "op", "origin")
    return rows.select(*plain, *order, "snapshot", note.alias("note"))


def settle_row(source: str, shard: str, table: str | None, order: Order) -> dict[str, object]:
    """A row that says: this shard's base is complete as of *order*; older rows are gone."""
    return {"source": source, "shard": shard, "table": table, "op": Op.SETTLE, "order": order}


def made_rows(
    session: SparkSession, mark: Mark, settled: Sequence[Mapping[str, object]], received: datetime
) -> DataFrame:
    """The rows a batch adds of its own: its settle rows and its marker; columns of ``SCHEMA``."""
    rows: list[Mapping[str, object]] = [*settled, {"op": Op.MARK, "after": mark.dumps()}]
    names = ("source", "shard", "table", "op", "after")
    columns = {n: pa.array([_text(row.get(n)) for row in rows], pa.string()) for n in names}
    orders = [row.get("order") for row in rows]
    for part in ("epoch", "log", "pos", "row"):
        columns[part] = pa.array([getattr(order, part, None) for order in orders], pa.int64())
    frame = session.createDataFrame(pa.table(columns))
    order = F.struct("epoch", "log", "pos", "row")
    made = {name: F.col(name) for name in names} | {
        "lane": F.lit(mark.lane),
        "batch": F.lit(mark.batch).cast("bigint"),
        "order": F.when(F.col("epoch").isNotNull(), order),
        "origin": F.lit(0),
        "received": F.lit(received),
        "dt": F.lit(received.date()),
    }
    return frame.select(*[_as(name, made.get(name, F.lit(None))) for name in SCHEMA]).coalesce(1)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _as(name: str, column: Column) -> Column:
    return column.cast(SCHEMA[name]).alias(name)
