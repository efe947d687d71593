"""Defines the change log table, and the rows that a batch adds on its own.

The change log is the append-only table of every landed change, and the only persistent state of
the landing loop. The added rows are: the base of a shard is complete, the columns of backfilled
rows, and the marker with the landing checkpoint. All rows of a batch have one receive time, so
a batch is in one day's partition.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from pipeline.model import ORDER_PARTS, Op, Order, Origin

ORDER_TYPE = pa.struct([(part, pa.int64()) for part in ORDER_PARTS])
TIME = pa.timestamp("us", "UTC")
CHANGES = pa.schema(
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
APPS = "sluice:"  # prefix of the transaction ids of all lanes
DROPPED = "sluice.dropped"  # property: the last batch of a dropped day
PROPERTIES = {
    "delta.enableDeletionVectors": "false",  # nothing is ever deleted row by row
    "delta.logRetentionDuration": "interval 1 days",  # batches are numbered in the rows
    "delta.deletedFileRetentionDuration": "interval 1 days",  # must not outlive the log
    "delta.checkpointInterval": "20",
    # no statistics on before, after and raw: they are long, and no search uses them
    "delta.dataSkippingStatsColumns": (
        "lane,batch,source,shard,table,op,key,order,origin,topic,partition,offset"
    ),
}
# rows that change a mirror; the sequence of the ops has no meaning
MIRROR_OPS = (Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ, Op.TRUNCATE, Op.SETTLE)


def build_app_id(lane: str) -> str:
    """Return the Delta transaction id of a lane's batches, and of its mirrors' applied batches."""
    return f"{APPS}{lane}"


@dataclass(frozen=True, slots=True)
class Stamp:
    """The values that all rows of a batch share; ``received`` is one instant, so it has one day."""

    lane: str
    batch: int
    received: datetime


@dataclass(frozen=True, slots=True)
class Settle:
    """A shard's base is complete as of ``order``: its older rows do not exist any more."""

    source: str
    shard: str
    table: str | None
    order: Order


@dataclass(frozen=True, slots=True)
class ColumnEvent:
    """Columns of a shard's rows from ``order`` on; ``payload`` as its format describes them."""

    source: str
    shard: str
    table: str | None
    order: Order
    payload: str


def column_event_rows(events: Sequence[ColumnEvent], stamp: Stamp) -> pa.RecordBatch:
    """Return one row of ``CHANGES`` for each of *events*."""
    rows = [
        _row(one, Op.DDL)
        | {"after": one.payload, "schema_id": zlib.crc32(one.payload.encode()) >> 1}
        for one in events
    ]
    return _rows(rows, stamp)


def settle_rows(settles: Sequence[Settle], stamp: Stamp) -> pa.RecordBatch:
    """Return one row of ``CHANGES`` for each of *settles*."""
    return _rows([_row(one, Op.SETTLE) for one in settles], stamp)


def checkpoint_row(text: str, stamp: Stamp) -> pa.RecordBatch:
    """Return the marker of a batch, as a row of ``CHANGES``."""
    return _rows([{"op": str(Op.MARK), "after": text}], stamp)


def _row(one: ColumnEvent | Settle, op: Op) -> dict[str, Any]:
    place = dict(zip(ORDER_PARTS, one.order.parts, strict=True))
    about = {"source": one.source, "shard": one.shard, "table": one.table}
    return {**about, "op": str(op), "order": place}


def _rows(rows: Sequence[Mapping[str, Any]], stamp: Stamp) -> pa.RecordBatch:
    shared = {
        "lane": stamp.lane,
        "batch": stamp.batch,
        "origin": int(Origin.SNAPSHOT),
        "received": stamp.received,
        "dt": stamp.received.date(),
    }
    full = [{**shared, **row} for row in rows]
    arrays = [pa.array([row.get(field.name) for row in full], field.type) for field in CHANGES]
    return pa.RecordBatch.from_arrays(arrays, schema=CHANGES)
