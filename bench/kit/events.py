"""Creates a topic full of changes as Debezium writes them, made by Spark in order of position."""

from dataclasses import dataclass

from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

KAFKA = "kafka.bootstrap.servers"
_GTID = "3e11fa47-71ca-11e1-9e33-c80aa9429562:"


@dataclass(frozen=True, slots=True)
class Stream:
    """A topic of *partitions* partitions, whose changes rotate over *tables* tables."""

    kafka: str
    tables: int
    partitions: int

    @property
    def prefix(self) -> str:
        """Return the collector's prefix; each stream has its own, so none lands another's topic."""
        return f"bench-{self.tables}-{self.partitions}"

    @property
    def topic(self) -> str:
        """Return the topic's name."""
        return f"{self.prefix}.shop.orders"

    def create(self) -> None:
        """Create the topic, empty."""
        self.create_beside(self.topic, self.partitions)

    def create_beside(self, topic: str, partitions: int) -> None:
        """Create another topic, empty."""
        admin = KafkaAdminClient(bootstrap_servers=self.kafka)
        admin.create_topics([NewTopic(topic, partitions, 1)])
        admin.close()

    def fill(self, session: SparkSession, *, first: int, events: int) -> float:
        """Write *events* changes, numbered from *first* on; return their mean size in bytes.

        Each partition gets a contiguous part of them.
        """
        rows = session.range(first, first + events, 1, self.partitions).select(
            F.lit(self.topic).alias("topic"),
            F.spark_partition_id().alias("partition"),
            F.to_json(F.struct("id")).alias("key"),
            F.to_json(self._envelope(), {"ignoreNullFields": "false"}).alias("value"),
        )
        write = rows.write.format("kafka").option(KAFKA, self.kafka)
        write.option("kafka.linger.ms", "20").save()
        return float(rows.limit(1000).agg(F.avg(F.length("value"))).collect()[0][0])

    def scan(self, session: SparkSession) -> DataFrame:
        """Read the whole topic with Spark's own source."""
        reader = session.read.format("kafka").option(KAFKA, self.kafka)
        ends = {"startingOffsets": "earliest", "endingOffsets": "latest"}
        return reader.option("subscribe", self.topic).options(**ends).load()

    def _envelope(self) -> Column:
        """Return a change: an insert, or an update with its before image."""
        updated = F.col("id") % 2 == 1
        named = F.concat_ws("_", F.lit("orders"), (F.col("id") % self.tables).cast("string"))
        return F.struct(
            F.when(updated, _row(F.lit("new"))).alias("before"),
            _row(F.when(updated, F.lit("paid")).otherwise(F.lit("new"))).alias("after"),
            F.struct(
                F.lit("3.5.0.Final").alias("version"),
                F.lit("mysql").alias("connector"),
                F.lit(self.prefix).alias("name"),
                (F.col("id") + 1_750_000_000_000).alias("ts_ms"),
                F.lit("false").alias("snapshot"),
                F.lit("shop").alias("db"),
                F.lit(None).cast("string").alias("sequence"),
                ((F.col("id") + 1_750_000_000_000) * 1000).alias("ts_us"),
                named.alias("table"),
                F.lit(1).alias("server_id"),
                F.concat(F.lit(_GTID), F.col("id")).alias("gtid"),
                F.lit("binlog.000002").alias("file"),
                (F.col("id") * 400 + 157).alias("pos"),
                F.lit(0).alias("row"),
                F.lit(12).alias("thread"),
                F.lit(None).cast("string").alias("query"),
            ).alias("source"),
            F.struct(
                F.concat(F.lit(_GTID), F.col("id")).alias("id"),
                F.lit(1).alias("total_order"),
                F.lit(1).alias("data_collection_order"),
            ).alias("transaction"),
            F.when(updated, F.lit("u")).otherwise(F.lit("c")).alias("op"),
            (F.col("id") + 1_750_000_000_100).alias("ts_ms"),
        )


def _row(state: Column) -> Column:
    """Return an order of eight columns."""
    return F.struct(
        "id",
        (F.col("id") * 7919 % 100_000).alias("user_id"),
        state.alias("state"),
        F.concat((F.col("id") % 900).cast("string"), F.lit(".25")).alias("total"),
        (F.col("id") * 1_000_000 + 1_700_000_000_000_000).alias("placed"),
        F.lit(None).cast("string").alias("coupon"),
        F.concat(F.lit('a note with "quotes" and '), F.md5(F.col("id").cast("string"))).alias(
            "note"
        ),
        F.col("id").alias("touched"),
    )
