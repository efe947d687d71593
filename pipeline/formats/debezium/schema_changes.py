"""Reads Debezium's schema events, and the columns that schemas around rows describe.

Measured on Debezium 3.5: RENAME and DROP of several tables arrive as one message each. The
messages are in sequence, at one order, and their text is rewritten. An intermediate table of a
chain of renames is not described. `databaseName` is the database of the described table, not
that of the session. A statement that the collector could not parse (`skip.unparseable.ddl`)
arrives without any table. A snapshot drops and creates every table of the server, captured or
not.

A connector without schema events (Postgres) describes columns in the schema around every row.
This module parses each spelling of such a schema once. The source's dialect interprets the
types, from the server's name (with `column.propagate.source.type`) and the type in which values
are sent.

The description of a table comes before its first row in a batch. It comes again wherever the
columns differ from those of the previous row. Most messages repeat the previous schema byte by
byte, so schemas are compared, not parsed.
"""

import zlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType
from msgspec.json import Decoder

from pipeline.errors import FormatError
from pipeline.formats import json_text
from pipeline.formats.debezium import envelope as keys
from pipeline.formats.debezium.envelope import CONNECTORS, PAYLOAD, connector_of
from pipeline.formats.debezium.mysql import read_table_id
from pipeline.formats.format import (
    AROUND,
    ColumnsPayload,
    Decoded,
    PayloadColumn,
    build_batch,
    require_short_names,
)
from pipeline.formats.json_text import object_of, text_of
from pipeline.model import LOG_PARTS, Op, Origin, ShardId
from pipeline.schema.model import ColumnDescription, SchemaMessage, TableDescription

KINDS = {"CREATE": "create", "ALTER": "alter", "DROP": "drop"}
_LIVE = ("none", "", "false")


class _SentColumn(Struct):
    name: str
    typeName: str  # noqa: N815 - Debezium's
    optional: bool
    position: int
    length: int | None = None
    scale: int | None = None
    defaultValueExpression: str | None = None  # noqa: N815
    enumValues: tuple[str, ...] | None = None  # noqa: N815


class _SentTable(Struct):
    columns: tuple[_SentColumn, ...]
    primaryKeyColumnNames: tuple[str, ...] | None = None  # noqa: N815


class _SentChange(Struct):
    id: str
    type: str
    table: _SentTable | None = None


class _SentSource(Struct):
    snapshot: str | bool | None = None
    db: str | None = None
    table: str | None = None


class _SentMessage(Struct):
    """The fields that are read; others are ignored."""

    ddl: str | None = None
    databaseName: str | None = None  # noqa: N815
    tableChanges: tuple[_SentChange, ...] | None = None  # noqa: N815
    source: _SentSource | None = None


_DECODER = Decoder(_SentMessage)


def read_schema_change(payload: str) -> SchemaMessage:
    """Read a message as the change log stores it.

    Raises:
        FormatError: it does not have the form of Debezium's messages.
    """
    try:
        message = _DECODER.decode(payload)
        source = message.source or _SentSource()
        named = ShardId(source.db or "", source.table or "")
        return SchemaMessage(
            text=message.ddl or "",
            database=message.databaseName,
            tables=tuple(_table(change, named) for change in message.tableChanges or ()),
            snapshot=str(source.snapshot).lower() not in _LIVE,
        )
    except (DecodeError, ValueError, KeyError, RecursionError) as error:
        msg = f"a schema change is not built as Debezium's are: {error!r}"
        raise FormatError(msg) from error


def _table(change: _SentChange, named: ShardId) -> TableDescription:
    shard, kind, table = read_table_id(change.id, named), KINDS[change.type], change.table
    require_short_names(shard)
    if kind == "drop" or table is None:
        return TableDescription(shard, "drop")
    columns = tuple(map(_column, table.columns))
    return TableDescription(shard, kind, columns, table.primaryKeyColumnNames or ())


def _column(raw: _SentColumn) -> ColumnDescription:
    return ColumnDescription(
        name=raw.name,
        type=raw.typeName,
        length=raw.length,
        scale=raw.scale,
        nullable=raw.optional,
        default=raw.defaultValueExpression,
        position=raw.position,
        values=tuple(map(_label, raw.enumValues or ())),
    )


def _label(quoted: str) -> str:
    quote = quoted[:1]
    if quote not in ("'", '"') or quote != quoted[-1:]:
        return quoted
    return quoted[1:-1].replace(quote * 2, quote)


SOURCE_TYPE = "__debezium.source.column."
OWN = "io.debezium."  # prefix of types that are not Connect's
LABELS = "allowed"  # of data.Enum, separated by commas
DESCRIBED = tuple(one for one in CONNECTORS.values() if one.describes_rows)
ROWS = {"c": Op.CREATE, "u": Op.UPDATE, "d": Op.DELETE, "r": Op.READ}


class _SentField(msgspec.Struct):
    """The fields of a Connect schema that are read."""

    type: str
    field: str = ""
    optional: bool = False
    name: str | None = None
    parameters: dict[str, str] | None = None
    fields: tuple[Raw, ...] = ()
    default: Raw | UnsetType = UNSET


def read_row_columns(shard: ShardId, key: tuple[str, ...], schema: bytes) -> str | None:
    """Return the payload that rows of *shard* in *schema* describe; None if it is unreadable."""
    columns = _columns(schema)
    if columns is None:
        return None
    payload = ColumnsPayload((shard.database, shard.relation), key, columns)
    return msgspec.json.encode(payload).decode()


def describe_row(key: bytes | None, value: bytes | None) -> str | None:
    """Return the columns in one message; None unless it is a row with a schema around it."""
    if value is None or not any(one.name.encode() in value for one in DESCRIBED):
        return None
    try:
        message = dict(json_text.read_fields(value) or ())
        envelope = object_of(message.get("payload")) or {}
        source = object_of(envelope.get("source")) or {}
        names = read_key_names(key)
        connector = connector_of(text_of(source.get("connector")))
        database = text_of(source.get(connector.database_field))
        shard = ShardId(database or "", text_of(source.get("table")) or "")
    except (ValueError, RecursionError):
        return None
    if text_of(envelope.get("op")) not in ROWS or not connector.describes_rows:
        return None
    schema = message.get("schema")
    return (
        None if schema is None or names is None else read_row_columns(shard, names, schema.encode())
    )


def read_key_names(key: bytes | None) -> tuple[str, ...] | None:
    """Return the names of the key's columns; None for a broken key."""
    fields = keys.read_key(key)
    return (
        None if fields is None else tuple(json_text.replace_surrogates(name) for name, _ in fields)
    )


@lru_cache(maxsize=1024)  # tables that are written to at the same time; one is some 10 kB
def _columns(schema: bytes) -> tuple[PayloadColumn, ...] | None:
    try:
        envelope = _FIELD.decode(schema)
        named = {one.field: one for one in map(_FIELD.decode, envelope.fields)}
        row = named.get("after")
        fields = () if row is None else row.fields
        columns = tuple(_describe_column(_FIELD.decode(field)) for field in fields)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return columns or None


def _describe_column(field: _SentField) -> PayloadColumn:
    known = field.parameters or {}
    sent_as = (field.name or field.type).removeprefix(OWN)
    source = known.get(f"{SOURCE_TYPE}type", "")
    return PayloadColumn(
        name=field.field,
        type=f"{source or 'unknown'} as {sent_as}",
        nullable=field.optional,
        length=_number(known.get(f"{SOURCE_TYPE}length")),
        scale=_number(known.get(f"{SOURCE_TYPE}scale")),
        default=None if field.default is UNSET else bytes(field.default).decode(),
        labels=tuple(known[LABELS].split(",")) if LABELS in known else (),
    )


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


_FIELD = msgspec.json.Decoder(_SentField)


_ROWS = frozenset(ROWS.values())
_PLACE = ("at", *LOG_PARTS)


def add_schema_events(
    decoded: pa.RecordBatch, batch: pa.RecordBatch, known: Mapping[int, Raw | None]
) -> pa.RecordBatch:
    """Return *decoded* (``DECODED``, a row per message), an ``Op.DDL`` row before changed columns.

    *known* are the messages of *batch* that may describe columns, with the schema of each; None if
    the schema must be read from the message.
    """
    news = list(_news(decoded, batch, known))
    if not news:
        return decoded
    added = build_batch(
        (at, build_schema_event(decoded.slice(at, 1).to_pylist()[0], text)) for at, text in news
    )
    table = pa.Table.from_batches([added, decoded])
    order = pa.array(range(len(table)))
    by_message = table.select(["message"]).append_column("place", order)
    by_message = by_message.sort_by([("message", "ascending"), ("place", "ascending")])
    (whole,) = table.take(by_message["place"]).combine_chunks().to_batches()
    return whole


def _news(
    decoded: pa.RecordBatch, batch: pa.RecordBatch, known: Mapping[int, Raw | None]
) -> Iterator[tuple[int, str]]:
    """Yield messages whose columns differ from those of the table's row before; with payload."""
    last: dict[str, tuple[Raw | None, bytes]] = {}
    payloads: dict[str, str] = {}
    some = pa.array(sorted(known), pa.int64())
    columns = (decoded["op"], decoded["shard"], batch["key"])
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
    """Return the text before a key's values; the whole key if no schema is around it."""
    key = key or b""
    at = key.rfind(PAYLOAD)
    return key if at < 0 else key[:at]


def _payload(
    schema: Raw | None, shard: str, key: bytes | None, batch: pa.RecordBatch, at: int
) -> str | None:
    if schema is None:
        return describe_row(key, batch["value"][at].as_py())
    names = read_key_names(key)
    return None if names is None else read_row_columns(ShardId.parse(shard), names, bytes(schema))


def build_schema_event(row: Mapping[str, Any], text: str) -> Decoded:
    """Make a schema event at the position of *row* (of ``DECODED``), which it describes."""
    return Decoded(
        Op.DDL,
        shard=row["shard"],
        after=text,
        schema_id=zlib.crc32(text.encode()) >> 1,
        origin=Origin(row["origin"]),
        snapshot=None if row["snapshot"] == AROUND else row["snapshot"],
        **{name: row[name] for name in _PLACE},
    )
