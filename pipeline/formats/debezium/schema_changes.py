"""What does one schema-change message of Debezium tell: the statement, and tables as they are then?

Measured on 3.5: RENAME and DROP of several tables come as one message each, in their order, at one
order, their text written anew; a table that a chain of renames only passes through is not
described.  ``databaseName`` is the database of the table described, not the session's.  A
statement the collector could not read (``skip.unparseable.ddl``) comes without any table.
A snapshot drops and creates every table of the server, captured or not.  Pure.
"""

import json
from collections.abc import Mapping
from typing import Any

from pipeline.errors import FormatError
from pipeline.formats.debezium import table_ids
from pipeline.schema.schema_change import ColumnTold, SchemaMessage, TableTold

KINDS = {"CREATE": "create", "ALTER": "alter", "DROP": "drop"}
_LIVE = (None, "", "false")


def read(payload: str) -> SchemaMessage:
    """Read a message as the change log keeps it.

    Raises:
        FormatError: it is not built as those of Debezium are.
    """
    try:
        message = json.loads(payload)
        changes = message.get("tableChanges") or ()
        snapshot = (message.get("source") or {}).get("snapshot") not in _LIVE
        return SchemaMessage(
            text=message.get("ddl") or "",
            database=message.get("databaseName"),
            tables=tuple(map(_table, changes)),
            snapshot=snapshot,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        msg = f"a schema change is not built as Debezium's are: {error!r}"
        raise FormatError(msg) from error


def _table(change: Mapping[str, Any]) -> TableTold:
    shard, kind, table = table_ids.read(change["id"]), KINDS[change["type"]], change.get("table")
    if kind == "drop" or table is None:
        return TableTold(shard, "drop")
    columns = tuple(map(_column, table["columns"]))
    return TableTold(shard, kind, columns, tuple(table.get("primaryKeyColumnNames") or ()))


def _column(raw: Mapping[str, Any]) -> ColumnTold:
    return ColumnTold(
        name=raw["name"],
        type=raw["typeName"],
        length=raw.get("length"),
        scale=raw.get("scale"),
        nullable=bool(raw["optional"]),
        default=raw.get("defaultValueExpression"),
        position=raw["position"],
        values=tuple(_label(value) for value in raw.get("enumValues") or ()),
    )


def _label(quoted: str) -> str:
    quote = quoted[:1]
    if quote not in ("'", '"') or quote != quoted[-1:]:
        return quoted
    return quoted[1:-1].replace(quote * 2, quote)
