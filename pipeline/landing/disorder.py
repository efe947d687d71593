"""Rows that stand below what was landed before: sent again, or out of order?

Sent again means equal, by order and by digest of op, key, before and after, to a row that is
landed already or stands earlier in the batch; the transaction block and time stamps of a second
sending differ, so they are not compared.  Everything else must be explained by a new log.
"""

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.model import TopicPartition

_POSITION = ("source", "o_log", "o_pos", "o_row", "digest")


def digest() -> Column:
    """64 bits of what a change says, without when and in which sending it was said."""
    return F.xxhash64("op", "key", "before", "after")


def unexplained(
    session: SparkSession,
    written: DataFrame,
    log: DataFrame,
    back: Mapping[TopicPartition, tuple[int, ...]],
) -> dict[TopicPartition, int]:
    """Partition -> lowest offset among the *back* rows that equal no row before them.

    In: *written* the batch's rows, *log* the change log before it; both with its columns.
    Bounded by the number of partitions.
    """
    low = _low(session, back)
    rows = _positioned(written)
    suspects = rows.join(F.broadcast(low), ["topic", "partition", "offset"], "left_semi")
    suspects = suspects.persist()
    try:
        files = suspects.agg(F.min("o_log").alias("low"), F.max("o_log").alias("high")).first()
        if files is None:
            return {}
        near = log.where(F.col("order.log").between(files["low"], files["high"]))
        landed = _positioned(near).join(
            F.broadcast(suspects.select("topic").distinct()), "topic", "left_semi"
        )
        first = rows.join(F.broadcast(low), ["topic", "partition", "offset"], "left_anti")
        known = landed.select(*_POSITION).unionByName(first.select(*_POSITION))
        strange = suspects.join(known, list(_POSITION), "left_anti")
        found = strange.groupBy("topic", "partition").agg(F.min("offset").alias("offset")).collect()
    finally:
        suspects.unpersist()
    return {TopicPartition(r["topic"], r["partition"]): int(r["offset"]) for r in found}


def _low(session: SparkSession, back: Mapping[TopicPartition, tuple[int, ...]]) -> DataFrame:
    rows = [(tp.topic, tp.partition, offset) for tp, offsets in back.items() for offset in offsets]
    topics, partitions, offsets = zip(*rows, strict=True)
    table = pa.table(
        {
            "topic": pa.array(topics, pa.string()),
            "partition": pa.array(partitions, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
        }
    )
    return session.createDataFrame(table)


def _positioned(rows: DataFrame) -> DataFrame:
    """Rows with an order, flattened: the epoch is left out, for it is what is in question."""
    return rows.where("`order` IS NOT NULL").select(
        "source",
        "topic",
        "partition",
        "offset",
        F.col("order.log").alias("o_log"),
        F.col("order.pos").alias("o_pos"),
        F.col("order.row").alias("o_row"),
        digest().alias("digest"),
    )
