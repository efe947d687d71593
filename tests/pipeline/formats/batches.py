"""Batches of messages for the formats' tests, decoded at once and one by one."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from pipeline.formats.debezium import envelope, schema_changes
from pipeline.formats.debezium.schema_changes import build_schema_event
from pipeline.formats.debezium_json import FORMAT
from pipeline.formats.format import DECODED, RAW, Decoded, build_batch
from pipeline.model import Op

Raw = tuple[bytes | None, bytes | None, str]  # key, value, topic


def batch(messages: Sequence[Raw]) -> pa.RecordBatch:
    keys, values, topics = ([m[i] for m in messages] for i in range(3))
    places: list[list[int]] = [[0] * len(messages), list(range(len(messages)))]
    columns = [keys, values, topics, *places]
    arrays = [pa.array(given, f.type) for given, f in zip(columns, RAW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RAW)


def at_once(messages: Sequence[Raw]) -> list[dict[str, Any]]:
    return told(FORMAT().decode(batch(messages), {}))


def one_by_one(messages: Sequence[Raw]) -> list[dict[str, Any]]:
    return told(build_batch(_each(messages)))


def _each(messages: Sequence[Raw]) -> Iterator[tuple[int, Decoded]]:
    """Each message by itself; before a row its columns, if its table's last row told others."""
    last: dict[str | None, str] = {}
    for number, (key, value, topic) in enumerate(messages):
        row = envelope.decode_message(key, value, topic)
        text = None if row.op is Op.ERROR else schema_changes.describe_row(key, value)
        if text is not None and last.get(row.shard) != text:
            last[row.shard] = text
            yield number, build_schema_event(asdict(row), text)
        yield number, row


def told(decoded: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as Python's values; whoever builds a batch wrongly is found out here."""
    decoded.validate(full=True)
    assert decoded.schema == DECODED
    found: list[dict[str, Any]] = decoded.to_pylist()
    return found
