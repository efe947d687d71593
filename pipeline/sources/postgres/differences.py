"""Does a server tell the same columns of a table as its rows have?  Pure."""

from collections.abc import Sequence

from pipeline.schema.model import TableSchema
from pipeline.sources.postgres.column import KNOWN, columns
from pipeline.sources.postgres.column import PostgresColumn as Column


def differences(schema: TableSchema, server: Sequence[Column]) -> tuple[str, ...]:
    """What the server's own description says otherwise; empty if they agree.

    What changes no value is no difference: NOT NULL, the order of columns (rows tell names), what
    a type that Sluice does not know is made of.

    *server*: the table's columns as it describes them.
    """
    there = {column.name: column for column in server}
    here = {column.name: column for column in columns(schema)}
    missing = [
        f"{name}: the server has it, no row has told it yet" for name in there if name not in here
    ]
    found = [
        f"{name}: {why}"
        for name, column in here.items()
        if (why := _difference(column, there.get(name)))
    ]
    return (*found, *missing)


def _difference(column: Column, there: Column | None) -> str | None:
    if there is None:
        return "rows have it, the server does not"
    known = column.kind in KNOWN and there.kind in KNOWN
    if known and column.shape != there.shape:
        return f"rows say {column}, the server {there}"
    return None
