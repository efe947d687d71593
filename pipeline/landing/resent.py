"""After a fail-over the collector may send again, from the new server, what is landed already.

The same transactions stand at other places in the new server's log, so their orders do not say
that they are old; their ids (GTIDs) and what they say do.  Such a row takes the order it was
landed with, and is a repetition from then on.
"""

from collections.abc import Collection

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipeline.landing.disorder import digest
from pipeline.landing.epochs import Epochs
from pipeline.mark import Mark


def resending(mark: Mark, epochs: Epochs) -> frozenset[str]:
    """Sources whose newest epoch is so new that no heartbeat of its own has landed before."""
    return frozenset(
        source
        for source, epoch in epochs.known.items()
        if epoch.number > 1 and mark.heartbeats.get(source, -1) <= epoch.heartbeat
    )


def reordered(rows: DataFrame, log: DataFrame, sources: Collection[str]) -> DataFrame:
    """Give rows of *sources* that the *log* already holds the order they have there.

    In, out: columns of the change log.  Rows without a transaction id are left as they are.
    """
    own = F.col("source").isin(sorted(sources)) & F.col("tx.id").isNotNull()
    ordered = own & F.col("order").isNotNull()
    landed = _numbered(log.where(ordered)).select("_said", F.col("order").alias("_landed"))
    sent = _numbered(rows.where(ordered)).join(landed, "_said", "left")
    changed = sent.withColumn("order", F.coalesce("_landed", "order")).select(*rows.columns)
    return changed.unionByName(rows.where(~F.coalesce(ordered, F.lit(False))))


def _numbered(rows: DataFrame) -> DataFrame:
    """Add ``_said``: transaction, what is said, and which time it is said in the transaction."""
    what = Window.partitionBy("source", "tx.id", digest())
    time = F.row_number().over(what.orderBy("order"))
    return rows.withColumn("_said", F.struct("source", "tx.id", digest(), time))
