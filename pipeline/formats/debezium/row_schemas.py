"""Which columns has a table, where nothing tells but the schema around each of its rows?

A connector without schema changes (Postgres) says so in every message; this reads it once for
each spelling.  What a type means the source's dialect knows: it is told what the server calls it
(with ``column.propagate.source.type``) and as what it is sent.  Pure.
"""

from functools import lru_cache

import msgspec
from msgspec import UNSET, Raw, UnsetType

from pipeline.formats import json_text
from pipeline.formats.debezium import keys, postgres
from pipeline.formats.json_text import object_of, text_of
from pipeline.formats.told_columns import ToldColumn, ToldRows
from pipeline.model import Op, ShardId

SOURCE_TYPE = "__debezium.source.column."
OWN = "io.debezium."  # types that are not Connect's begin with it
LABELS = "allowed"  # of data.Enum, with commas between them
ROWS = {"c": Op.CREATE, "u": Op.UPDATE, "d": Op.DELETE, "r": Op.READ}


class _SentField(msgspec.Struct):
    """A schema of Connect's, as far as it is asked."""

    type: str
    field: str = ""
    optional: bool = False
    name: str | None = None
    parameters: dict[str, str] | None = None
    fields: tuple[Raw, ...] = ()
    default: Raw | UnsetType = UNSET


def payload(shard: ShardId, key: tuple[str, ...], schema: bytes) -> str | None:
    """What rows of *shard* in this *schema* tell; None if it cannot be read as one."""
    columns = _columns(schema)
    if columns is None:
        return None
    told = ToldRows((shard.database, shard.relation), key, columns)
    return msgspec.json.encode(told).decode()


def told_by(key: bytes | None, value: bytes | None) -> str | None:
    """What one message tells of its table's columns; None if it is no row, or tells nothing."""
    if value is None or postgres.CONNECTOR.encode() not in value:
        return None
    try:
        message = dict(json_text.read(value) or ())
        envelope = object_of(message.get("payload")) or {}
        source = object_of(envelope.get("source")) or {}
        names = key_names(key)
        shard = ShardId(text_of(source.get("schema")) or "", text_of(source.get("table")) or "")
    except (ValueError, RecursionError):
        return None
    if text_of(envelope.get("op")) not in ROWS or not postgres.is_postgres(source):
        return None
    schema = message.get("schema")
    return None if schema is None or names is None else payload(shard, names, schema.encode())


def key_names(key: bytes | None) -> tuple[str, ...] | None:
    """Names of the key's columns; None of a broken one."""
    fields = keys.read(key)
    return None if fields is None else tuple(json_text.whole(name) for name, _ in fields)


@lru_cache(maxsize=1024)  # tables that are written to at the same time; one is some 10 kB
def _columns(schema: bytes) -> tuple[ToldColumn, ...] | None:
    try:
        envelope = _FIELD.decode(schema)
        named = {one.field: one for one in map(_FIELD.decode, envelope.fields)}
        row = named.get("after")
        fields = () if row is None else row.fields
        columns = tuple(_column(_FIELD.decode(field)) for field in fields)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return columns or None


def _column(field: _SentField) -> ToldColumn:
    known = field.parameters or {}
    sent_as = (field.name or field.type).removeprefix(OWN)
    source = known.get(f"{SOURCE_TYPE}type", "")
    return ToldColumn(
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
