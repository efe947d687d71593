"""What does one schema-change message of Debezium tell: the statement, and tables as they are then?

Measured on 3.5: RENAME and DROP of several tables come as one message each, in their order, at one
order, their text written anew; a table that a chain of renames only passes through is not
described.  ``databaseName`` is the database of the table described, not the session's.  A
statement the collector could not read (``skip.unparseable.ddl``) comes without any table.
A snapshot drops and creates every table of the server, captured or not.  Pure.
"""

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from pipeline.errors import FormatError
from pipeline.formats.debezium import table_ids
from pipeline.schema.model import ColumnTold, SchemaMessage, TableTold

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


class _SentMessage(Struct):
    """As far as it is asked: whatever stands elsewhere is no matter."""

    ddl: str | None = None
    databaseName: str | None = None  # noqa: N815
    tableChanges: tuple[_SentChange, ...] | None = None  # noqa: N815
    source: _SentSource | None = None


_DECODER = Decoder(_SentMessage)


def read(payload: str) -> SchemaMessage:
    """Read a message as the change log keeps it.

    Raises:
        FormatError: it is not built as those of Debezium are.
    """
    try:
        message = _DECODER.decode(payload)
        snapshot = str((message.source or _SentSource()).snapshot).lower() not in _LIVE
        return SchemaMessage(
            text=message.ddl or "",
            database=message.databaseName,
            tables=tuple(map(_table, message.tableChanges or ())),
            snapshot=snapshot,
        )
    except (DecodeError, ValueError, KeyError, RecursionError) as error:
        msg = f"a schema change is not built as Debezium's are: {error!r}"
        raise FormatError(msg) from error


def _table(change: _SentChange) -> TableTold:
    shard, kind, table = table_ids.read(change.id), KINDS[change.type], change.table
    if kind == "drop" or table is None:
        return TableTold(shard, "drop")
    columns = tuple(map(_column, table.columns))
    return TableTold(shard, kind, columns, table.primaryKeyColumnNames or ())


def _column(raw: _SentColumn) -> ColumnTold:
    return ColumnTold(
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
