"""Which tables does a statement of Maxwell describe, and with which columns?

It tells names, types, signs, digits of times and labels; not how many digits a DECIMAL has, how
long a text may be, whether a column may be NULL, nor defaults: what the statement says of these,
the dialect reads there.  Pure.
"""

import msgspec
from msgspec import UNSET, UnsetType

from pipeline.errors import FormatError
from pipeline.model import ShardId
from pipeline.schema.model import ColumnTold, Notation, SchemaMessage, TableTold

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


def read(payload: str) -> SchemaMessage:
    """Read a statement's message as the change log keeps it.

    Raises:
        FormatError: it is not built as those of Maxwell are.
    """
    try:
        found = _STATEMENT.decode(payload)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FormatError(f"a schema change is not built as Maxwell's are: {error!r}") from error
    return SchemaMessage(found.sql, found.database or None, tuple(_tables(found)))


def _tables(found: _MaxwellStatement) -> list[TableTold]:
    if found.type == f"{TABLE}drop" and found.database and found.table:
        return [TableTold(ShardId(found.database, found.table), "drop")]
    if not found.type.startswith(TABLE) or found.made is UNSET:
        return []
    made = found.made
    columns = tuple(_column(one, at) for at, one in enumerate(made.columns, start=1))
    shard = ShardId(made.database, made.table)
    return [TableTold(shard, found.type.removeprefix(TABLE), columns, made.primary_key or ())]


def _column(sent: _MaxwellColumn, position: int) -> ColumnTold:
    sign = " UNSIGNED" if sent.signed is False else ""
    return ColumnTold(
        name=sent.name,
        type=f"{sent.type.upper()}{sign}",
        length=sent.column_length,
        nullable=False,
        position=position,
        values=sent.enum_values or (),
        notation=Notation.PLAIN,
    )


_STATEMENT = msgspec.json.Decoder(_MaxwellStatement)
