"""Batches of messages for the formats' tests, decoded at once and one by one."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pipeline.formats.debezium import envelope
from pipeline.formats.debezium_json import FORMAT
from pipeline.formats.format import DECODED, RAW, rows

Raw = tuple[bytes | None, bytes | None, str]  # key, value, topic


def batch(messages: Sequence[Raw]) -> pa.RecordBatch:
    keys, values, topics = ([m[i] for m in messages] for i in range(3))
    places: list[list[int]] = [[0] * len(messages), list(range(len(messages)))]
    columns = [keys, values, topics, *places]
    arrays = [pa.array(given, f.type) for given, f in zip(columns, RAW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RAW)


def at_once(messages: Sequence[Raw]) -> list[dict[str, Any]]:
    return told(FORMAT().decode(batch(messages)))


def one_by_one(messages: Sequence[Raw]) -> list[dict[str, Any]]:
    return told(rows((i, envelope.decode(*message)) for i, message in enumerate(messages)))


def told(decoded: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as Python's values; whoever builds a batch wrongly is found out here."""
    decoded.validate(full=True)
    assert decoded.schema == DECODED
    found: list[dict[str, Any]] = decoded.to_pylist()
    return found
