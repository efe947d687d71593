"""Decodes Canal's flat JSON: MySQL rows as texts, and statements, without log positions.

The order of a change is its message's offset and its index in the message. So all changes of a
source must go through one partition, or each table through one together with its statements.

A message holds the rows of one event in `data`. For an UPDATE, `old` holds the previous values
of the columns that changed, and no others. For a DELETE, `data` is the deleted row. A row whose
key changed becomes a delete and a create, in this order.

According to Canal's source code, flat messages have neither key nor transaction, and TRUNCATE
arrives as a statement.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import ClassVar

import msgspec
import pyarrow as pa
from msgspec import Raw

from pipeline.errors import ConfigError, FormatError
from pipeline.formats import format as told_columns
from pipeline.formats import json_text
from pipeline.formats.canal_types import describe_column
from pipeline.formats.format import Decoded, Format, Schemas
from pipeline.formats.messages import (
    decode_messages,
    read_envelope,
    read_key,
    time_of_millis,
    updated_row,
    whole_row,
)
from pipeline.model import Op, Ordering, ShardId
from pipeline.schema.model import Notation, SchemaMessage, TableDescription

ROWS = {"INSERT": Op.CREATE, "UPDATE": Op.UPDATE, "DELETE": Op.DELETE}
STATEMENT = "QUERY"
TRUNCATE = "TRUNCATE"
Scalar = str | int | float | bool | None

NO_VALUE = "the message is empty; canal sends none such"
BAD_VALUE = "value is no flat message of canal: no JSON object in UTF-8, or a field of a wrong kind"
UNKNOWN_KIND = "type must be INSERT, UPDATE or DELETE, or isDdl must be true"
NO_ROWS = "a statement without its rows: the source must log rows (binlog_format=ROW)"
NO_SHARD = "database or table is missing"
NO_DATA = "data holds no rows"
NO_OLD = "old of an UPDATE is not as long as data"
NO_KEY = "a column of pkNames is missing in a row, or is null"


class FlatMessage(msgspec.Struct):
    """The fields that are read."""

    database: str | None = None
    table: str | None = None
    type: str | None = None
    isDdl: bool | None = None  # noqa: N815 - canal's
    data: list[Raw] | None = None
    old: list[Raw] | None = None
    es: int | None = None
    sql: str | None = None
    mysqlType: dict[str, str] | None = None  # noqa: N815
    pkNames: list[str] | None = None  # noqa: N815

    @property
    def shard(self) -> str | None:
        """Return the shard; None if the message names no table."""
        return str(ShardId(self.database, self.table)) if self.database and self.table else None

    @property
    def key(self) -> tuple[str, ...]:
        """Return the names of the key's columns; empty if the table has no key."""
        return tuple(self.pkNames or ())

    @property
    def at(self) -> datetime | None:
        """Return when the source executed it; None if that is out of range."""
        return time_of_millis(self.es)


def read_message(value: bytes | None) -> FlatMessage:
    """Read the envelope.

    Raises:
        FormatError: *value* is not such a message.
    """
    return read_envelope(value, _MESSAGE, empty=NO_VALUE, bad=BAD_VALUE)


def decode_changes(message: FlatMessage, value: bytes) -> Sequence[Decoded]:
    """Return all changes of a message, in order; *value* is the message as it was sent.

    Raises:
        FormatError: it is no valid message.
    """
    if message.isDdl:
        return (_statement(message, value),)
    op, shard = ROWS.get(message.type or ""), message.shard
    if op is None:
        raise FormatError(NO_ROWS if message.type == STATEMENT else UNKNOWN_KIND)
    if shard is None:
        raise FormatError(NO_SHARD)
    if not message.data:
        raise FormatError(NO_DATA)
    if op is Op.UPDATE:
        return tuple(_updates(message, shard))
    return tuple(_whole(op, shard, one, message) for one in message.data)


def schema_change(payload: str) -> SchemaMessage:
    """Read the message of a statement; it has no columns.

    Raises:
        FormatError: *payload* is not such a message.
    """
    message = read_message(payload.encode())
    if not message.isDdl or message.sql is None:
        raise FormatError("this is no schema change of canal: isDdl is not true, or sql is missing")
    return SchemaMessage(message.sql, message.database or None)


def _statement(message: FlatMessage, value: bytes) -> Decoded:
    shard = message.shard
    if message.type == TRUNCATE:
        if shard is None:
            raise FormatError(NO_SHARD)
        return Decoded(Op.TRUNCATE, shard, at=message.at)
    if message.sql is None:
        raise FormatError(UNKNOWN_KIND)
    return Decoded(Op.DDL, shard, after=value.decode("utf-8").strip(), at=message.at)


def _whole(op: Op, shard: str, raw: Raw, message: FlatMessage) -> Decoded:
    key = read_key(_row(raw), message.key, NO_KEY)
    return whole_row(op, shard, key, json_text.row_text(raw), message.at)


def _updates(message: FlatMessage, shard: str) -> Iterator[Decoded]:
    data, previous = message.data or [], message.old or []
    if len(data) != len(previous):
        raise FormatError(NO_OLD)
    for after, changed in zip(data, previous, strict=True):
        was = _row(after) | _row(changed)
        key, text = read_key(was, message.key, NO_KEY), json_text.write_row(was)
        old = whole_row(Op.DELETE, shard, key, text, message.at)
        yield from updated_row(old, _whole(Op.CREATE, shard, after, message))


def _row(raw: Raw) -> json_text.Row:
    """Return the slices of its columns; each must be a text, a number, a boolean or null."""
    try:
        _SCALARS.decode(raw)
    except (ValueError, RecursionError) as error:
        raise FormatError(BAD_VALUE) from error
    found = json_text.read_row(raw)
    if found is None:
        raise FormatError(BAD_VALUE)
    return found


_MESSAGE = msgspec.json.Decoder(FlatMessage)
_SCALARS = msgspec.json.Decoder(dict[str, Scalar])


ZONES = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")


@dataclass(frozen=True, slots=True)
class CanalJson:
    """``zone``: time zone of canal's process, in which it writes TIMESTAMPs; only UTC is read."""

    zone: str
    ordering: ClassVar[Ordering] = Ordering.OFFSET
    notation: ClassVar[Notation] = Notation.TEXTS
    columns: ClassVar[tuple[str, ...]] = ()
    registry: ClassVar[None] = None

    def __post_init__(self) -> None:
        """Reject a zone in which a TIMESTAMP would become another instant."""
        if self.zone not in ZONES:
            raise ConfigError(
                f"format_options.zone: is {self.zone}, and a TIMESTAMP is read as UTC; run canal "
                "with -Duser.timezone=UTC, and say zone: UTC"
            )

    def added_topics(self, prefix: str) -> tuple[str, ...]:
        """Return none: statements come with the rows."""
        return ()

    def schema_change(self, payload: str) -> SchemaMessage:
        """Read a statement, which has no columns; or the columns that rows describe."""
        if told_columns.is_columns_payload(payload):
            return told_columns.decode_columns(payload)
        return schema_change(payload)

    def columns_payload(self, table: TableDescription) -> str:
        """Return the columns of *table* as rows would describe them."""
        return told_columns.encode_columns(table)

    def needs(self, _: pa.RecordBatch) -> frozenset[int]:
        """Return none: a message needs no schema."""
        return frozenset()

    def decode(self, batch: pa.RecordBatch, schemas: Schemas) -> pa.RecordBatch:
        """Decode ``RAW`` to ``DECODED``; see :class:`Format`."""
        values = batch["value"].to_pylist()
        return decode_messages(
            values,
            lambda at: read_message(values[at]),
            lambda at, message: (decode_changes(message, values[at] or b""), _columns(message)),
        )


def _columns(message: FlatMessage) -> TableDescription | None:
    """Return the columns in a message with rows; None if it has none."""
    shard, types = message.shard, message.mysqlType
    if message.isDdl or shard is None or not types:
        return None
    return _table(shard, tuple(types.items()), message.key)


@lru_cache(maxsize=1024)  # each message describes them again
def _table(
    shard: str, types: tuple[tuple[str, str], ...], key: tuple[str, ...]
) -> TableDescription:
    columns = tuple(
        describe_column(name, text, at) for at, (name, text) in enumerate(types, start=1)
    )
    return TableDescription(ShardId.parse(shard), "alter", columns, key)


FORMAT: type[Format] = CanalJson
