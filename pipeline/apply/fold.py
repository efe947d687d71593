"""Many changes of a key become one: the newest by ``(order, origin)``; how many is counted."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.landing.disorder import digest
from pipeline.model import Op, Origin

ROW_OPS = (Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ)
_CARRIED = ("source", "shard", "op", "before", "after", "at", "batch", "topic", "partition")


def newer(left: Column, right: Column) -> Column:
    """Whether the rank *left* is above *right*; ranks are struct(order, origin)."""
    return left > right


def rank() -> Column:
    """What decides between two changes of one key."""
    return F.struct(F.col("order"), F.col("origin"))


def fold(changes: DataFrame, *, unique: bool = False) -> DataFrame:
    """Keep the newest change of each key.

    In: change-log rows of one table with ops of ``ROW_OPS``, in any order, repeated or not.
    Out: one row for each key: key, order, origin, ``_CARRIED``, and three counts of its changes:
    ``total``, ``distinct_total`` (repetitions of one change counted once) and ``conflicts``
    (orders under which LIVE changes differ; anything but 0 means the log contradicts itself).
    ``born`` says that the key was created among them.

    With *unique*, keys span shards: a delete speaks for its own shard only, so the newest upsert
    of any shard wins over deletes of others.
    """
    live = F.col("origin") == int(Origin.LIVE)
    said = F.struct("source", "shard", "order", "origin", digest().alias("digest"))
    live_said = F.when(live, F.struct("shard", "order", digest().alias("digest")))
    live_order = F.when(live, F.struct("shard", "order"))
    groups = ["key", "source", "shard"] if unique else ["key"]
    newest = changes.groupBy(*groups).agg(
        F.max_by(F.struct("order", "origin", *_CARRIED), rank()).alias("newest"),
        F.count(F.lit(1)).alias("total"),
        F.size(F.collect_set(said)).alias("distinct_total"),
        (F.size(F.collect_set(live_said)) - F.size(F.collect_set(live_order))).alias("conflicts"),
        F.max(F.col("op") == Op.CREATE).alias("born"),
    )
    if unique:
        newest = _across(newest)
    return newest.select("key", "newest.*", "total", "distinct_total", "conflicts", "born")


def _across(newest: DataFrame) -> DataFrame:
    """One row for each key from the newest of each of its shards: upserts before deletes."""
    upsert = F.col("newest.op") != Op.DELETE
    best = F.struct(upsert, F.col("newest.order"), F.col("newest.origin"))
    return newest.groupBy("key").agg(
        F.max_by("newest", best).alias("newest"),
        F.sum("total").alias("total"),
        F.sum("distinct_total").alias("distinct_total"),
        F.sum("conflicts").alias("conflicts"),
        F.max("born").alias("born"),
    )
