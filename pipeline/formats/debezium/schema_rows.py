"""Before which rows of a batch stands what their messages tell of the columns?  Before the first.

And wherever the columns of a table are others than those of its row before.  Most messages repeat
the schema of the one before byte by byte, so it is compared, not read.  Pure.
"""

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from msgspec import Raw

from pipeline.formats.debezium import row_schemas
from pipeline.formats.debezium.keys import PAYLOAD
from pipeline.formats.format import AROUND, Decoded, rows
from pipeline.model import Op, Origin, ShardId

_ROWS = frozenset(row_schemas.ROWS.values())
_PLACE = ("at", "log", "pos", "row")


def told_with(
    told: pa.RecordBatch, batch: pa.RecordBatch, known: Mapping[int, Raw | None]
) -> pa.RecordBatch:
    """*told* (``DECODED``, a row a message) with a row of ``Op.DDL`` before each that tells anew.

    *known* are the messages of *batch* that may tell something, with the schema of each, or None
    where it has to be looked for.
    """
    news = list(_news(told, batch, known))
    if not news:
        return told
    added = rows((at, schema_row(told.slice(at, 1).to_pylist()[0], text)) for at, text in news)
    table = pa.Table.from_batches([added, told])
    order = pa.array(range(len(table)))
    by_message = table.select(["message"]).append_column("place", order)
    by_message = by_message.sort_by([("message", "ascending"), ("place", "ascending")])
    (whole,) = table.take(by_message["place"]).combine_chunks().to_batches()
    return whole


def _news(
    told: pa.RecordBatch, batch: pa.RecordBatch, known: Mapping[int, Raw | None]
) -> Iterator[tuple[int, str]]:
    """Messages that tell other columns than the row of the same table before, and what."""
    last: dict[str, tuple[Raw | None, bytes]] = {}
    payloads: dict[str, str] = {}
    some = pa.array(sorted(known), pa.int64())
    columns = (told["op"], told["shard"], batch["key"])
    sent = zip(some.to_pylist(), *(one.take(some).to_pylist() for one in columns), strict=True)
    for at, op, shard, key in sent:
        now = (known[at], _wrapping(key))
        if op not in _ROWS or (now[0] is not None and last.get(shard) == now):
            continue
        text = _payload(now[0], shard, key, batch, at)
        last[shard] = now
        if text is not None and payloads.get(shard) != text:
            payloads[shard] = text
            yield at, text


def _wrapping(key: bytes | None) -> bytes:
    """What stands before a key's values; with its names, where no schema is around it."""
    key = key or b""
    at = key.rfind(PAYLOAD)
    return key if at < 0 else key[:at]


def _payload(
    schema: Raw | None, shard: str, key: bytes | None, batch: pa.RecordBatch, at: int
) -> str | None:
    if schema is None:
        return row_schemas.told_by(key, batch["value"][at].as_py())
    names = row_schemas.key_names(key)
    return (
        None if names is None else row_schemas.payload(ShardId.parse(shard), names, bytes(schema))
    )


def schema_row(row: Mapping[str, Any], text: str) -> Decoded:
    """Columns that *row* (of ``DECODED``) tells: they stand at its place, for they hold for it."""
    return Decoded(
        Op.DDL,
        shard=row["shard"],
        after=text,
        schema_id=zlib.crc32(text.encode()) >> 1,
        origin=Origin(row["origin"]),
        snapshot=None if row["snapshot"] == AROUND else row["snapshot"],
        **{name: row[name] for name in _PLACE},
    )
