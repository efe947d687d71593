"""What does one schema-change message of Debezium tell: the statement, and tables as they are then?

Measured on 3.5: RENAME and DROP of several tables come as one message each, in their order, at one
order, their text written anew; a table that a chain of renames only passes through is not
described.  ``databaseName`` is the database of the table described, not the session's.  A
statement the collector could not read (``skip.unparseable.ddl``) comes without any table.
A snapshot drops and creates every table of the server, captured or not.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.errors import FormatError
from pipeline.model import Order, ShardId
from pipeline.schema import ddl, table_ids
from pipeline.schema.column import Column, TableSchema

_LIVE = (None, "", "false")


@dataclass(frozen=True, slots=True)
class Told:
    """One message.  ``database`` is None if it names none.

    ``tables`` are those it describes: with their columns from then on, or None for one dropped.
    ``snapshot`` if it describes what is about to be read, and nothing happened.
    """

    order: Order
    text: str
    database: str | None
    tables: tuple[tuple[ShardId, TableSchema | None], ...] = ()
    snapshot: bool = False


def read(after: str, order: Order) -> Told:
    """Read a message as the change log keeps it.

    Raises:
        FormatError: it is not built as those of Debezium are.
    """
    try:
        message = json.loads(after)
        text = message.get("ddl") or ""
        changes = message.get("tableChanges") or ()
        tables = tuple(_table(change, text, order) for change in changes)
        snapshot = (message.get("source") or {}).get("snapshot") not in _LIVE
        return Told(order, text, message.get("databaseName"), tables, snapshot)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        msg = f"a schema change at {order} is not built as Debezium's are: {error!r}"
        raise FormatError(msg) from error


def _table(
    change: Mapping[str, Any], text: str, order: Order
) -> tuple[ShardId, TableSchema | None]:
    shard, table = table_ids.read(change["id"]), change.get("table")
    if change["type"] not in ("CREATE", "ALTER", "DROP"):
        msg = f"type {change['type']!r}"
        raise ValueError(msg)
    if change["type"] == "DROP" or table is None:
        return shard, None
    return shard, described(shard, table, text, order)


def described(shard: ShardId, table: Mapping[str, Any], text: str, order: Order) -> TableSchema:
    """The columns and key of *shard*, as *table* of a message tells them beside its statement."""
    columns = tuple(_column(column, text) for column in table["columns"])
    key = tuple(table.get("primaryKeyColumnNames") or ())
    return TableSchema(str(shard), order, columns, key)


def _column(raw: Mapping[str, Any], text: str) -> Column:
    name, default = raw["name"], raw.get("defaultValueExpression")
    return Column(
        name=name,
        type=raw["typeName"],
        length=raw.get("length"),
        scale=raw.get("scale"),
        nullable=bool(raw["optional"]),
        default=default,
        has_default=default is not None or bool(raw["optional"]),
        generated=ddl.generated(text, name) or ddl.computed_default(text, name),
        position=raw["position"],
        values=tuple(_label(value) for value in raw.get("enumValues") or ()),
    )


def _label(quoted: str) -> str:
    quote = quoted[:1]
    if quote not in ("'", '"') or quote != quoted[-1:]:
        return quoted
    return quoted[1:-1].replace(quote * 2, quote)
