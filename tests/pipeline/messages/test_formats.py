"""What every format must keep, held over the folder: both faces agree, and neither ever fails."""

import dataclasses
import importlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.errors import ConfigError
from pipeline.messages import format as formats
from pipeline.messages.format import Decoded
from pipeline.model import Op
from tests.pipeline.corpus import Message, messages

KAFKA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
RESULT = {
    **dict.fromkeys(("op", "shard", "key_values", "before", "after", "snapshot", "gtid"), "string"),
    "changed": "array<string>",
    "at": "timestamp",
    **dict.fromkeys(("log", "pos", "row"), "bigint"),
    "origin": "int",
    "tx": "struct<id:string,total_order:bigint>",
    "schema_id": "int",
    "error": "string",
    "raw": "binary",
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EVERY = [(name, m) for name in formats.known() for m in messages(name)]


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"no format 'avrò' .*known: .*debezium_json"):
        formats.find("avrò")


@pytest.mark.parametrize("name", formats.known())
def test_every_file_exports_a_format_and_has_a_corpus(name: str) -> None:
    module = importlib.import_module(f"pipeline.formats.{name}")

    found = formats.find(name)

    assert found is module.FORMAT
    assert callable(found.columns)
    assert callable(found.decode)
    assert messages(name)


@pytest.mark.parametrize(
    ("name", "message"), [pytest.param(n, m, id=f"{n} {m.id}") for n, m in EVERY]
)
def test_a_message_becomes_what_the_corpus_says(name: str, message: Message) -> None:
    decoded = formats.find(name).decode(message.key, message.value, message.topic)

    told = plain(decoded)
    assert {field: told[field] for field in message.expect} == {
        field: message.value if field == "raw" else value for field, value in message.expect.items()
    }
    assert (told["error"] is not None) == (told["op"] == Op.ERROR)


@pytest.mark.spark
@pytest.mark.parametrize("name", formats.known())
def test_both_faces_agree_on_the_whole_corpus(name: str, spark: SparkSession) -> None:
    corpus = messages(name)

    decoded = collect(formats.find(name).columns(kafka(spark, corpus)))

    for message, row in zip(corpus, decoded, strict=True):
        one = formats.find(name).decode(message.key, message.value, message.topic)
        assert row == plain(one), message.id


@pytest.mark.spark
@pytest.mark.parametrize("name", formats.known())
def test_columns_are_added_to_kafkas_own_with_fixed_types(name: str, spark: SparkSession) -> None:
    raw = kafka(spark, ()).withColumn("more", F.lit(1))

    out = formats.find(name).columns(raw)

    assert out.columns[: len(raw.columns)] == raw.columns
    assert dict(out.dtypes[len(raw.columns) :]) == RESULT


@pytest.mark.parametrize("name", formats.known())
@given(key=st.none() | st.binary(), value=st.none() | st.binary() | st.text().map(str.encode))
def test_decode_never_fails_on_bytes(name: str, key: bytes | None, value: bytes | None) -> None:
    decoded = formats.find(name).decode(key, value, "a.b.c")

    assert decoded.op == (Op.TOMBSTONE if value is None and key is None else decoded.op)
    assert (decoded.op is Op.ERROR) == (decoded.error is not None)


@pytest.mark.parametrize("name", formats.known())
@given(data=st.data())
def test_decode_never_fails_on_damaged_messages(name: str, data: st.DataObject) -> None:
    message = data.draw(st.sampled_from([m for m in messages(name) if m.value]))
    damaged = bytearray(message.value or b"")
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))

    decoded = formats.find(name).decode(message.key, bytes(damaged), message.topic)

    assert decoded.raw == (bytes(damaged) if decoded.op is Op.ERROR else None)


@pytest.mark.spark
@pytest.mark.parametrize("name", formats.known())
def test_both_faces_agree_on_messages_with_one_byte_damaged(name: str, spark: SparkSession) -> None:
    damaged = [
        dataclasses.replace(m, id=f"{m.id}, byte {at} is {byte}", value=value)
        for m in messages(name)
        for at in range(0, len(m.value or b""), 1 + len(m.value or b"") // 6)
        for byte in (0x22, 0xFF, 0x30)
        for value in [(m.value or b"")[:at] + bytes([byte]) + (m.value or b"")[at + 1 :]]
    ]

    decoded = collect(formats.find(name).columns(kafka(spark, damaged)))

    for message, row in zip(damaged, decoded, strict=True):
        one = formats.find(name).decode(message.key, message.value, message.topic)
        assert row == plain(one), message.id


def kafka(spark: SparkSession, corpus: tuple[Message, ...] | list[Message]) -> DataFrame:
    rows = [
        (
            None if m.key is None else bytearray(m.key),
            None if m.value is None else bytearray(m.value),
            *(m.topic, 0, offset, EPOCH),
        )
        for offset, m in enumerate(corpus)
    ]
    return spark.createDataFrame(rows, KAFKA)


def collect(decoded: DataFrame) -> list[dict[str, Any]]:
    """Decoded fields of every row, by offset, in the shape of :func:`plain`."""
    rows = decoded.withColumn("at", F.unix_micros("at")).orderBy("offset").collect()
    return [_of_spark(row.asDict()) for row in rows]


def plain(decoded: Decoded) -> dict[str, Any]:
    fields = {f.name: getattr(decoded, f.name) for f in dataclasses.fields(decoded)}
    at, tx = decoded.at, decoded.tx
    return {
        **fields,
        "op": str(decoded.op),
        "origin": int(decoded.origin),
        "at": None if at is None else (at - EPOCH) // timedelta(microseconds=1),
        "tx": None if tx is None else [tx.id, tx.total_order],
    }


def _of_spark(row: Mapping[str, Any]) -> dict[str, Any]:
    raw, tx = row["raw"], row["tx"]
    return {
        **{name: row[name] for name in RESULT},
        "raw": None if raw is None else bytes(raw),
        "tx": None if tx is None else list(tx),
    }
