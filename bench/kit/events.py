"""A topic full of changes as Debezium writes them, made by Spark in place, in order of position."""

import json

from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

PREFIX = "bench"
TOPIC = f"{PREFIX}.shop.orders"
KAFKA = "kafka.bootstrap.servers"


def fill(session: SparkSession, kafka: str, *, events: int, partitions: int) -> float:
    """Write *events* changes into *partitions* partitions; give their mean size in bytes."""
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    admin.create_topics([NewTopic(TOPIC, partitions, 1)])
    admin.close()
    rows = session.range(0, events, 1, partitions).select(
        F.lit(TOPIC).alias("topic"),
        F.spark_partition_id().alias("partition"),
        F.to_json(F.struct("id")).alias("key"),
        F.to_json(_envelope(), {"ignoreNullFields": "false"}).alias("value"),
    )
    rows.write.format("kafka").option(KAFKA, kafka).option("kafka.linger.ms", "20").save()
    return float(rows.limit(1000).agg(F.avg(F.length("value"))).collect()[0][0])


def scan(session: SparkSession, kafka: str) -> DataFrame:
    """Read the whole topic with Spark's own source."""
    reader = session.read.format("kafka").option(KAFKA, kafka).option("subscribe", TOPIC)
    ends = {"startingOffsets": "earliest", "endingOffsets": "latest"}
    return reader.options(**ends).option("failOnDataLoss", "true").load()


def _envelope() -> Column:
    """One change: an insert, or an update with its before image."""
    updated = F.col("id") % 2 == 1
    return F.struct(
        F.when(updated, _row(F.lit("new"))).alias("before"),
        _row(F.when(updated, F.lit("paid")).otherwise(F.lit("new"))).alias("after"),
        F.struct(
            F.lit("3.5.0.Final").alias("version"),
            F.lit("mysql").alias("connector"),
            F.lit(PREFIX).alias("name"),
            (F.col("id") + 1_750_000_000_000).alias("ts_ms"),
            F.lit("false").alias("snapshot"),
            F.lit("shop").alias("db"),
            F.lit(None).cast("string").alias("sequence"),
            ((F.col("id") + 1_750_000_000_000) * 1000).alias("ts_us"),
            F.lit("orders").alias("table"),
            F.lit(1).alias("server_id"),
            F.concat(F.lit("3e11fa47-71ca-11e1-9e33-c80aa9429562:"), F.col("id")).alias("gtid"),
            F.lit("binlog.000002").alias("file"),
            (F.col("id") * 400 + 157).alias("pos"),
            F.lit(0).alias("row"),
            F.lit(12).alias("thread"),
            F.lit(None).cast("string").alias("query"),
        ).alias("source"),
        F.struct(
            F.concat(F.lit("3e11fa47-71ca-11e1-9e33-c80aa9429562:"), F.col("id")).alias("id"),
            F.lit(1).alias("total_order"),
            F.lit(1).alias("data_collection_order"),
        ).alias("transaction"),
        F.when(updated, F.lit("u")).otherwise(F.lit("c")).alias("op"),
        (F.col("id") + 1_750_000_000_100).alias("ts_ms"),
    )


def _row(state: Column) -> Column:
    """An order of eight columns."""
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


def topics() -> str:
    """The topic as a pattern, for settings."""
    return json.dumps(TOPIC)[1:-1].replace(".", r"\.")
