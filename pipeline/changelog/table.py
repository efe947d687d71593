"""The append-only lake table with every landed change; the landing loop's only memory."""

from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from pipeline.model import Op

ORDER_TYPE = pa.struct([(part, pa.int64()) for part in ("epoch", "log", "pos", "row")])
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
APPS = "sluice:"  # how the transaction ids of all lanes begin
DROPPED = "sluice.dropped"  # property: the last batch of a dropped day
PROPERTIES = {
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
    return f"{APPS}{lane}"


@dataclass(frozen=True, slots=True)
class Stamp:
    """What every row of one batch shares; ``received`` is one instant, so a batch is one day."""

    lane: str
    batch: int
    received: datetime
