"""Decodes Maxwell's JSON: MySQL rows, statements with their columns, and bootstrap steps.

Messages have log positions where Maxwell writes them (`output_binlog_position`). Otherwise, and
only then, changes are ordered by message offset.

A message is one row, one statement or one step of a bootstrap. `data` is the row. For an
update, `old` holds the previous values of the columns that changed. All rows of one event share
one position, and `xoffset` distinguishes them. Without it, the second change of a key in one
event would count as a redelivery of the first. The last row of a transaction has `commit` and
no `xoffset`. The key columns come from `primary_key_columns`, or from the message's key.

A statement describes names, types, signs, fractional digits of times, and labels. It does not
describe the digits of a DECIMAL, the length of a text, nullability or defaults. The dialect
reads these from the statement.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
from msgspec import UNSET, Raw, UnsetType

from pipeline.errors import ConfigError, FormatError
from pipeline.formats import format as told_columns
from pipeline.formats import json_text
from pipeline.formats.format import (
    INCREMENTAL,
    Decoded,
    Format,
    Schemas,
    require_short_names,
)
from pipeline.formats.messages import (
    decode_messages,
    read_envelope,
    read_key,
    time_of_millis,
    updated_row,
    whole_row,
)
from pipeline.model import Op, Ordering, Origin, ShardId
from pipeline.schema.model import ColumnDescription, Notation, SchemaMessage, TableDescription

ROWS = {"insert": Op.CREATE, "update": Op.UPDATE, "delete": Op.DELETE, "bootstrap-insert": Op.READ}
STEPS = ("bootstrap-start", "bootstrap-complete")
STATEMENTS = frozenset(
    f"{what}-{done}" for what in ("table", "database") for done in ("create", "alter", "drop")
)
PLACE = re.compile(r".*\.([0-9]{1,18}):([0-9]{1,18})", re.DOTALL)
LAST = 2**31 - 1  # row of a transaction's last change
SECONDS_ONLY = 10**11  # a lower time is in seconds, a higher one in milliseconds
PREFIX = "pk."

NO_VALUE = "the message is empty: Maxwell writes a message for each row"
BAD_VALUE = "value is not a Maxwell message: a UTF-8 JSON object with fields of the right types"
BAD_KEY = "key is neither an object nor a list as Maxwell writes them"
UNKNOWN_KIND = "type is no row, statement or step of a bootstrap that Maxwell knows"
NO_SHARD = "database or table is missing"
NO_DATA = "data is missing, or no object"
NO_KEY = "a column of the key is missing in data, or is null, a list or an object"
NO_PLACE = "position is missing, or no FILE.NUMBER:OFFSET: set output_binlog_position of Maxwell"
NO_ROW = (
    "xoffset and commit are missing, so rows of one event look alike: set output_xoffset of "
    "Maxwell, and leave output_commit_info on"
)


class MaxwellMessage(msgspec.Struct):
    """The fields that are read."""

    database: str | None = None
    table: str | None = None
    type: str | None = None
    ts: int | None = None
    xoffset: int | None = None
    commit: bool = False
    position: str | None = None
    data: Raw = json_text.NULL
    old: Raw = json_text.NULL
    primary_key_columns: list[str] | None = None
    sql: str | None = None

    @property
    def shard(self) -> str | None:
        """Return the shard; None if the message names no table."""
        return str(ShardId(self.database, self.table)) if self.database and self.table else None

    @property
    def numbered(self) -> bool:
        """Return whether it shows which row of its transaction it is."""
        return self.commit or self.xoffset is not None

    @property
    def at(self) -> datetime | None:
        """Return when it was executed; None if that is out of range.

        Statements have milliseconds, rows have seconds.
        """
        if self.ts is None:
            return None
        return time_of_millis(self.ts * 1000 if self.ts < SECONDS_ONLY else self.ts)


def read_message(value: bytes | None) -> MaxwellMessage:
    """Read the envelope.

    Raises:
        FormatError: *value* is not such a message.
    """
    return read_envelope(value, _MESSAGE, empty=NO_VALUE, bad=BAD_VALUE)


def decode_changes(
    message: MaxwellMessage, key: bytes | None, value: bytes, *, positions: bool
) -> Sequence[Decoded]:
    """Return all changes of a message, in order.

    *value* is the message as it was sent. With *positions* it must have a log position.

    Raises:
        FormatError: it is no valid message.
    """
    kind = message.type or ""
    if kind in STEPS:
        return (Decoded(Op.HEARTBEAT, at=message.at),)
    place = _place(message) if positions else None
    if kind in STATEMENTS and message.sql is not None:
        text = value.decode("utf-8").strip()
        return (_placed(Decoded(Op.DDL, message.shard, after=text, at=message.at), place),)
    op = ROWS.get(kind)
    if op is None:
        raise FormatError(UNKNOWN_KIND)
    if message.shard is None:
        raise FormatError(NO_SHARD)
    if place is not None and op is not Op.READ and not message.numbered:
        raise FormatError(NO_ROW)
    rows = _rows(op, message, message.shard, _names(message, key))
    return tuple(_placed(one, place) for one in rows)


def _rows(op: Op, message: MaxwellMessage, shard: str, names: Sequence[str]) -> Sequence[Decoded]:
    now = json_text.read_row(message.data)
    if now is None:
        raise FormatError(NO_DATA)
    row = whole_row(op, shard, _key(now, names), json_text.row_text(message.data), message.at)
    if op is Op.READ:
        return (replace(row, snapshot=INCREMENTAL, origin=Origin.SNAPSHOT),)
    if op is not Op.UPDATE or json_text.is_null(message.old):
        return (row,)
    changed = json_text.read_row(message.old)
    if changed is None:
        raise FormatError(BAD_VALUE)
    was = now | changed
    old = whole_row(Op.DELETE, shard, _key(was, names), json_text.write_row(was), message.at)
    return updated_row(old, replace(row, op=Op.CREATE))


def _names(message: MaxwellMessage, key: bytes | None) -> Sequence[str]:
    """Return the names of the key's columns, in order; those in a message key are in lower case."""
    if message.primary_key_columns is not None:
        return message.primary_key_columns
    if key is None:
        return ()
    try:
        found = _KEY.decode(key)
    except (ValueError, RecursionError) as error:
        raise FormatError(BAD_KEY) from error
    if isinstance(found, dict):
        return [name.removeprefix(PREFIX) for name in found if name.startswith(PREFIX)]
    columns = found[2] if len(found) > 2 else None  # database, table, columns
    if not isinstance(columns, list) or not all(isinstance(one, dict) for one in columns):
        raise FormatError(BAD_KEY)
    return [name for one in columns for name in one]


def _key(row: json_text.Row, names: Sequence[str]) -> str | None:
    folded = {name.lower(): name for name in row}
    exact = [name if name in row else folded.get(name.lower(), name) for name in names]
    return read_key(row, exact, NO_KEY)


def _place(message: MaxwellMessage) -> tuple[int, int, int]:
    found = PLACE.fullmatch(message.position or "")
    if found is None:
        raise FormatError(NO_PLACE)
    row = LAST if message.commit else message.xoffset or 0
    if not 0 <= row <= LAST:
        raise FormatError(BAD_VALUE)
    return int(found[1]), int(found[2]), row


def _placed(one: Decoded, place: tuple[int, int, int] | None) -> Decoded:
    if place is None:
        return one
    log, pos, row = place
    return replace(one, log=log, pos=pos, row=0 if one.op is Op.DDL else row)


_MESSAGE = msgspec.json.Decoder(MaxwellMessage)
_KEY = msgspec.json.Decoder(dict[str, Any] | list[Any])


TABLE = "table-"


class _MaxwellColumn(msgspec.Struct, rename="kebab"):
    name: str
    type: str
    signed: bool | None = None
    column_length: int | None = None
    enum_values: tuple[str, ...] | None = None


class _MaxwellTable(msgspec.Struct, rename="kebab"):
    database: str
    table: str
    columns: tuple[_MaxwellColumn, ...] = ()
    primary_key: tuple[str, ...] | None = None


class _MaxwellStatement(msgspec.Struct):
    type: str
    sql: str
    database: str | None = None
    table: str | None = None
    made: _MaxwellTable | UnsetType = msgspec.field(default=UNSET, name="def")


def read_statement(payload: str) -> SchemaMessage:
    """Read a statement's message as the change log stores it.

    Raises:
        FormatError: it does not have the form of Maxwell's messages.
    """
    try:
        found = _STATEMENT.decode(payload)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FormatError(
            f"a schema change does not have the form of Maxwell's: {error!r}"
        ) from error
    return SchemaMessage(found.sql, found.database or None, tuple(_tables(found)))


def _tables(found: _MaxwellStatement) -> list[TableDescription]:
    if found.type == f"{TABLE}drop" and found.database and found.table:
        return [TableDescription(ShardId(found.database, found.table), "drop")]
    if not found.type.startswith(TABLE) or found.made is UNSET:
        return []
    made = found.made
    columns = tuple(_column(one, at) for at, one in enumerate(made.columns, start=1))
    shard = ShardId(made.database, made.table)
    require_short_names(shard)
    return [
        TableDescription(shard, found.type.removeprefix(TABLE), columns, made.primary_key or ())
    ]


def _column(sent: _MaxwellColumn, position: int) -> ColumnDescription:
    sign = " UNSIGNED" if sent.signed is False else ""
    return ColumnDescription(
        name=sent.name,
        type=f"{sent.type.upper()}{sign}",
        length=sent.column_length,
        nullable=False,
        position=position,
        values=sent.enum_values or (),
        notation=Notation.PLAIN,
    )


_STATEMENT = msgspec.json.Decoder(_MaxwellStatement)


@dataclass(frozen=True, slots=True)
class MaxwellJson:
    """``positions``: messages have log positions; one without a position is quarantined.

    ``statements``: topic of the statements (``ddl_kafka_topic``), if they have one of their
    own, which requires ``positions``.
    """

    positions: bool = True
    statements: str = ""
    notation: ClassVar[Notation] = Notation.PLAIN
    columns: ClassVar[tuple[str, ...]] = ()
    registry: ClassVar[None] = None

    def __post_init__(self) -> None:
        """Reject a topic of statements without positions: its offsets give no order among rows."""
        if self.statements and not self.positions:
            raise ConfigError(
                f"format_options.statements: those of a topic of their own ({self.statements}) "
                "have no order among rows without positions; take ddl_kafka_topic out of Maxwell's "
                "config, and statements out of this one, or set Maxwell's output_binlog_position"
            )

    @property
    def ordering(self) -> Ordering:
        """Return that of the log if messages have positions, else that of offsets."""
        return Ordering.LOG if self.positions else Ordering.OFFSET

    def added_topics(self, prefix: str) -> tuple[str, ...]:
        """Return the topic of its statements, if they have one."""
        return (self.statements,) if self.statements else ()

    def schema_change(self, payload: str) -> SchemaMessage:
        """Read a statement with the table that results; or columns that rows described."""
        if told_columns.is_columns_payload(payload):
            return told_columns.decode_columns(payload)
        return read_statement(payload)

    def columns_payload(self, table: TableDescription) -> None:
        """Return None: statements describe columns."""

    def needs(self, _: pa.RecordBatch) -> frozenset[int]:
        """Return none: a message needs no schema."""
        return frozenset()

    def decode(self, batch: pa.RecordBatch, schemas: Schemas) -> pa.RecordBatch:
        """Decode ``RAW`` to ``DECODED``; see :class:`Format`."""
        keys, values = batch["key"].to_pylist(), batch["value"].to_pylist()
        return decode_messages(
            values,
            lambda at: read_message(values[at]),
            lambda at, message: (
                decode_changes(message, keys[at], values[at] or b"", positions=self.positions),
                None,
            ),
        )


FORMAT: type[Format] = MaxwellJson
