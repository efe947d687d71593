"""Debezium's JSON for MySQL and MariaDB, with and without the schema around each message.

Rows stay text: the envelope is parsed once and only in part.  Nothing here can fail on a row;
a message that makes no sense is ``op=error`` with its bytes.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.messages import debezium as dbz
from pipeline.messages import jsonshape
from pipeline.messages.format import Decoded, Format
from pipeline.model import Op, Origin

STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
BROKEN = "_broken"


@dataclass(frozen=True, slots=True)
class DebeziumJson:
    """Both faces; see :class:`pipeline.messages.format.Format`."""

    def columns(self, raw: DataFrame) -> DataFrame:
        """Add the decoded columns; in and out as the protocol says."""
        read = raw.select("*", *_texts()).select("*", *_parsed()).select("*", *_envelope())
        told = read.select("*", _kind().alias("_kind"), _shard().alias("_shard"))
        judged = told.withColumn("error", _error())
        return judged.select(*raw.columns, *(c.alias(n) for n, c in _fields().items()))

    def decode(self, key: bytes | None, value: bytes | None, topic: str) -> Decoded:
        """Decode one message; one that cannot be decoded is ``Op.ERROR``, never an exception."""
        return dbz.decode(key, value, topic)


def _texts() -> tuple[Column, ...]:
    return tuple(
        F.try_validate_utf8(F.col(name).cast("string")).alias(f"_{name}")
        for name in ("key", "value")
    )


def _parsed() -> tuple[Column, ...]:
    """The key as a map of texts, null if broken; the wanted part of the value."""
    shape = jsonshape.ddl({**dbz.MESSAGE, BROKEN: "string"})
    message = F.from_json("_value", shape, {**STRICT, "columnNameOfCorruptRecord": BROKEN})
    return _map(F.col("_key")).alias("_key_map"), message.alias("_message")


def _map(text: Column) -> Column:
    return F.when(_closed(text), F.from_json(text, "map<string,string>", STRICT))


def _closed(text: Column) -> Column:
    """Whether the text ends as an object does; Spark does not look behind what it has read."""
    return F.endswith(text, F.lit("}")) | text.rlike(r"\}[ \t\r\n]+$")


def _envelope() -> tuple[Column, ...]:
    """The envelope, out of its payload if it is wrapped, null if unreadable; the key's fields."""
    outer = F.struct(*(F.col(f"_message.{name}").alias(name) for name in dbz.ENVELOPE))
    envelope = F.coalesce(F.col("_message.payload"), outer)
    whole = F.col("_message").isNotNull() & F.col(f"_message.{BROKEN}").isNull()
    names, inner = F.map_keys("_key_map"), F.try_element_at("_key_map", F.lit("payload"))
    wrapped = (names == F.array(F.lit("schema"), F.lit("payload"))) & inner.startswith("{")
    return (
        F.when(whole & _closed(F.col("_value")), envelope).alias("_e"),
        F.when(wrapped, _map(inner)).otherwise(F.col("_key_map")).alias("_fields"),
    )


def _kind() -> Column:
    """What the message is, by what it holds; null if that cannot be told."""
    op, status = F.col("_e.op"), F.col("_e.status")
    named = F.coalesce(F.array_contains(F.map_keys("_fields"), dbz.HEARTBEAT_KEY), F.lit(False))
    beats = F.startswith("topic", F.lit(dbz.HEARTBEAT_TOPIC)) | named
    return (
        F.when(F.col("value").isNull(), Op.TOMBSTONE.value)
        .when(op.isNotNull(), _one_of(op, dbz.ROW_OPS))
        .when(status.isNotNull(), F.when(F.col("_e.id").isNotNull(), _one_of(status, dbz.TX_OPS)))
        .when(F.col("_e.ddl").isNotNull(), Op.DDL.value)
        .when(beats & F.col("_e.ts_ms").isNotNull(), Op.HEARTBEAT.value)
    )


def _one_of(word: Column, ops: Mapping[str, Op]) -> Column:
    return functools.reduce(
        lambda case, pair: case.when(word == pair[0], pair[1].value),
        ops.items(),
        F.when(F.lit(False), ""),
    )


def _shard() -> Column:
    db, table, parts = F.col("_e.source.db"), F.col("_e.source.table"), F.split("topic", r"\.")
    first = F.get("_e.tableChanges", F.lit(0))["id"]
    names = (F.regexp_extract(first, dbz.TABLE_ID, group) for group in (1, 2))
    return (
        F.when(
            F.col("_kind").isin(*dbz.ROW_OPS.values()) & (db != "") & (table != ""),
            F.concat_ws(".", db, table),
        )
        .when(
            (F.col("_kind") == Op.DDL.value) & first.rlike(dbz.TABLE_ID), F.concat_ws(".", *names)
        )
        .when(
            (F.col("_kind") == Op.TOMBSTONE.value) & (F.size(parts) == dbz.TOPIC_PARTS),
            F.concat_ws(".", F.get(parts, F.lit(1)), F.get(parts, F.lit(2))),
        )
    )


def _error() -> Column:
    """Why the message cannot be used, the first reason of several; null when it can."""
    kind, before, after = F.col("_kind"), F.col("_e.before"), F.col("_e.after")
    row = kind.isin(*dbz.ROW_OPS.values())
    unplaced = _log().isNull() | F.col("_e.source.pos").isNull() | F.col("_e.source.row").isNull()
    no_row = kind.isin(*dbz.WITH_AFTER) & after.isNull()
    odd_row = ~F.coalesce(before.startswith("{"), F.lit(True)) | ~F.coalesce(
        after.startswith("{"), F.lit(True)
    )
    return (
        F.when(F.col("key").isNotNull() & F.col("_key_map").isNull(), dbz.BAD_KEY)
        .when(kind == Op.TOMBSTONE.value, F.lit(None))
        .when(F.col("_e").isNull(), dbz.BAD_VALUE)
        .when(kind.isNull(), dbz.UNKNOWN_KIND)
        .when(row & F.col("_shard").isNull(), dbz.NO_SHARD)
        .when((row | (kind == Op.DDL.value)) & unplaced, dbz.NO_POSITION)
        .when(row & (no_row | odd_row), dbz.NO_ROW)
    )


def _log() -> Column:
    number = F.regexp_extract("_e.source.file", dbz.LOG_NUMBER, 1)
    return F.when(number != "", number.try_cast("bigint"))


def _fields() -> dict[str, Column]:
    """Columns of :class:`Decoded`, in its order; of an error only what may be known."""
    fine, source = F.col("error").isNull(), "_e.source"
    placed = fine & F.col("_kind").isin(*dbz.ROW_OPS.values(), Op.DDL.value)
    row = fine & F.col("_kind").isin(*dbz.ROW_OPS.values())
    ends = fine & F.col("_kind").isin(*dbz.TX_OPS.values())
    live = F.coalesce(F.col(f"{source}.snapshot"), F.lit("")).isin("", "false")
    snapshot = F.when(placed & ~live, F.col(f"{source}.snapshot"))
    return {
        "op": F.when(fine, F.col("_kind")).otherwise(Op.ERROR.value),
        "shard": F.when(~F.coalesce(F.col("error") == dbz.BAD_KEY, F.lit(False)), F.col("_shard")),
        "key_values": F.when(F.size("_fields") > 0, F.to_json(F.map_values("_fields"))),
        "before": F.when(row, F.col("_e.before")),
        "after": F.when(row, F.col("_e.after")).when(fine, _whole()),
        "changed": F.lit(None).cast("array<string>"),
        "at": F.when(fine, _at()),
        "log": F.when(placed, _log()),
        "pos": F.when(placed, F.col(f"{source}.pos")),
        "row": F.when(placed, F.col(f"{source}.row")),
        "snapshot": snapshot,
        "origin": F.when(snapshot.isNull(), int(Origin.LIVE)).otherwise(int(Origin.SNAPSHOT)),
        "tx": F.when(row & F.col("_e.transaction.id").isNotNull(), F.col("_e.transaction")).when(
            ends,
            F.struct(F.col("_e.id").alias("id"), F.lit(None).cast("bigint").alias("total_order")),
        ),
        "gtid": F.when(placed, F.col(f"{source}.gtid")),
        "schema_id": F.lit(None).cast("int"),
        "error": F.col("error"),
        "raw": F.when(~fine, F.col("value")),
    }


def _whole() -> Column:
    """The whole payload as text, of the few messages that are not rows."""
    wrapped = F.col("_message.payload").isNotNull()
    payload = F.from_json("_value", "payload string", STRICT)["payload"]
    return F.when(
        F.col("_kind").isin(*dbz.TX_OPS.values(), Op.DDL.value),
        F.when(wrapped, payload).otherwise(F.col("_value")),
    )


def _at() -> Column:
    """The source's time: microseconds if it has them, else milliseconds; null if absurd."""
    millis = F.coalesce("_e.source.ts_ms", "_e.ts_ms")
    micros = F.coalesce(F.col("_e.source.ts_us"), F.try_multiply(millis, F.lit(1000)))
    return F.when((micros >= 0) & (micros < dbz.END_OF_TIME), F.timestamp_micros(micros))


FORMAT: Format = DebeziumJson()
