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
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import ClassVar

import msgspec
import pyarrow as pa
from msgspec import Raw

from pipeline.errors import ConfigError, FormatError
from pipeline.formats import format as told_columns
from pipeline.formats import json_text
from pipeline.formats.canal_types import column
from pipeline.formats.format import Decoded, Format, Schemas, build_batch, with_schema_event
from pipeline.model import Op, Ordering, ShardId
from pipeline.schema.model import Notation, SchemaMessage, TableDescription

ROWS = {"INSERT": Op.CREATE, "UPDATE": Op.UPDATE, "DELETE": Op.DELETE}
STATEMENT = "QUERY"
TRUNCATE = "TRUNCATE"
END_OF_TIME = 253_402_300_800_000  # milliseconds: the year 10000
Scalar = str | int | float | bool | None

NO_VALUE = "the message is empty; canal sends none such"
BAD_VALUE = "value is no flat message of canal: no JSON object in UTF-8, or a field of a wrong kind"
UNKNOWN_KIND = "type is none of INSERT, UPDATE, DELETE, and isDdl is not true"
NO_ROWS = "a statement without its rows: the source must log rows (binlog_format=ROW)"
NO_SHARD = "database or table is missing"
NO_DATA = "data holds no rows"
NO_OLD = "old of an UPDATE is not as long as data"
NO_KEY = "a column of pkNames is missing in a row, or is null"


class FlatMessage(msgspec.Struct):
    """As far as it is asked."""

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
    def shard(self) -> ShardId | None:
        """None if it names no table."""
        return ShardId(self.database, self.table) if self.database and self.table else None

    @property
    def key(self) -> tuple[str, ...]:
        """Names of the key's columns; empty where the table has none."""
        return tuple(self.pkNames or ())

    @property
    def at(self) -> datetime | None:
        """When the source says that it ran; None if in no calendar."""
        if self.es is None or not 0 <= self.es < END_OF_TIME:
            return None
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=self.es)


def read(value: bytes | None) -> FlatMessage:
    """Read the envelope.

    Raises:
        FormatError: it is none.
    """
    if value is None:
        raise FormatError(NO_VALUE)
    try:
        value.decode("utf-8")
        return _MESSAGE.decode(value)
    except (ValueError, RecursionError) as error:
        raise FormatError(BAD_VALUE) from error


def changes(message: FlatMessage, value: bytes) -> Sequence[Decoded]:
    """All that it says, in its order; *value* is what it was read from.

    Raises:
        FormatError: it makes no sense.
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
        return tuple(_updates(message, str(shard)))
    key, name = message.key, str(shard)
    return tuple(_whole(op, name, one, key, message.at) for one in message.data)


def schema_change(payload: str) -> SchemaMessage:
    """What a statement's message tells: its words, and no columns.

    Raises:
        FormatError: it is none.
    """
    message = read(payload.encode())
    if not message.isDdl or message.sql is None:
        raise FormatError("this is no schema change of canal: isDdl is not true, or sql is missing")
    return SchemaMessage(message.sql, message.database or None)


def _statement(message: FlatMessage, value: bytes) -> Decoded:
    shard = None if message.shard is None else str(message.shard)
    if message.type == TRUNCATE:
        if shard is None:
            raise FormatError(NO_SHARD)
        return Decoded(Op.TRUNCATE, shard, at=message.at)
    if message.sql is None:
        raise FormatError(UNKNOWN_KIND)
    return Decoded(Op.DDL, shard, after=value.decode("utf-8").strip(), at=message.at)


def _whole(op: Op, shard: str, raw: Raw, key: Sequence[str], at: datetime | None) -> Decoded:
    """A row that came, or one that went."""
    text, values = json_text.row_text(raw), _key(_row(raw), key)
    if op is Op.DELETE:
        return Decoded(op, shard, values, before=text, at=at)
    return Decoded(op, shard, values, after=text, at=at)


def _updates(message: FlatMessage, shard: str) -> Iterator[Decoded]:
    data, old = message.data or [], message.old or []
    if len(data) != len(old):
        raise FormatError(NO_OLD)
    for after, changed in zip(data, old, strict=True):
        now = _row(after)
        was = now | _row(changed)
        before, new = _key(was, message.key), _key(now, message.key)
        old_text, text, at = json_text.write_row(was), json_text.row_text(after), message.at
        if before == new:
            yield Decoded(Op.UPDATE, shard, new, before=old_text, after=text, at=at)
        else:
            yield Decoded(Op.DELETE, shard, before, before=old_text, at=at)
            yield Decoded(Op.CREATE, shard, new, after=text, at=at)


def _row(raw: Raw) -> json_text.Row:
    """Its columns' slices; each is a text, a number, a truth or null."""
    try:
        _SCALARS.decode(raw)
    except (ValueError, RecursionError) as error:
        raise FormatError(BAD_VALUE) from error
    found = json_text.read_row(raw)
    if found is None:
        raise FormatError(BAD_VALUE)
    return found


def _key(row: json_text.Row, names: Sequence[str]) -> str | None:
    """JSON array of the key's texts; None of a table without one."""
    if not names:
        return None
    try:
        return json_text.key(row, names)
    except (KeyError, ValueError) as error:
        raise FormatError(NO_KEY) from error


_MESSAGE = msgspec.json.Decoder(FlatMessage)
_SCALARS = msgspec.json.Decoder(dict[str, Scalar])


ZONES = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")


@dataclass(frozen=True, slots=True)
class CanalJson:
    """``zone``: of canal's process, which it writes every TIMESTAMP in; only UTC is read."""

    zone: str
    ordering: ClassVar[Ordering] = Ordering.OFFSET
    notation: ClassVar[Notation] = Notation.TEXTS
    columns: ClassVar[tuple[str, ...]] = ()
    registry: ClassVar[None] = None

    def __post_init__(self) -> None:
        """Refuse what would make other instants of a TIMESTAMP."""
        if self.zone not in ZONES:
            raise ConfigError(
                f"format_options.zone: is {self.zone}, and a TIMESTAMP is read as UTC; run canal "
                "with -Duser.timezone=UTC, and say zone: UTC"
            )

    def added_topics(self, prefix: str) -> tuple[str, ...]:
        """None: statements come with the rows."""
        return ()

    def schema_change(self, payload: str) -> SchemaMessage:
        """A statement, without its columns; or the columns that rows tell behind it."""
        if told_columns.is_columns_payload(payload):
            return told_columns.decode_columns(payload)
        return schema_change(payload)

    def columns_payload(self, table: TableDescription) -> str:
        """As rows tell them."""
        return told_columns.encode_columns(table)

    def needs(self, _: pa.RecordBatch) -> frozenset[int]:
        """None: a message says all itself."""
        return frozenset()

    def decode(self, batch: pa.RecordBatch, schemas: Schemas) -> pa.RecordBatch:
        """Decode ``RAW`` to ``DECODED``; see :class:`Format`."""
        return build_batch(_decoded(batch["value"].to_pylist()))


def _decoded(values: list[bytes | None]) -> Iterator[tuple[int, Decoded]]:
    """Changes by message; before a row its columns, where they are others than its table's last."""
    last: dict[str, TableDescription] = {}
    for number, value in enumerate(values):
        shard = None
        try:
            message = read(value)
            shard = None if message.shard is None else str(message.shard)
            found = changes(message, value or b"")
        except FormatError as error:
            yield number, Decoded(Op.ERROR, shard, error=str(error), raw=value)
            continue
        yield from ((number, one) for one in with_schema_event(found, _columns(message), last))


def _columns(message: FlatMessage) -> TableDescription | None:
    """What a message tells of its table's columns; None if nothing."""
    shard, types = message.shard, message.mysqlType
    if message.isDdl or shard is None or not types:
        return None
    return _table(shard, tuple(types.items()), message.key)


@lru_cache(maxsize=1024)  # each message tells them again
def _table(
    shard: ShardId, types: tuple[tuple[str, str], ...], key: tuple[str, ...]
) -> TableDescription:
    told = tuple(column(name, text, at) for at, (name, text) in enumerate(types, start=1))
    return TableDescription(shard, "alter", told, key)


FORMAT: type[Format] = CanalJson
