"""Does a server tell the same columns of a table as its log has?  Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence

from pipeline.schema.model import TableSchema
from pipeline.sources.mysql.column import MySqlColumn as Column
from pipeline.sources.mysql.column import columns

TEXTS = ("TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "JSON")
WIDEST = {"VARCHAR": 16_383, "VARBINARY": 65_532}  # of all character sets; then it may be a text
_UNSAYABLE = re.compile(r"[\U00010000-\U0010ffff]")  # information_schema speaks utf8mb3


def differences(schema: TableSchema, server: Sequence[Column]) -> tuple[str, ...]:
    """What the server's own description says otherwise; empty if they agree.

    What changes no value is no difference: the case of names, NOT NULL, which of the text types
    it is (the server picks a larger one by itself, and MariaDB's JSON is one), what a label holds
    that the server cannot say.

    *server*: the table's columns as it describes them, in order.
    """
    there = {column.name.casefold(): column for column in server}
    placed = sorted(columns(schema), key=lambda column: column.position)
    here = {column.name.casefold(): column for column in placed}
    missing = [
        f"{column.name}: the server has it, the log does not"
        for name, column in there.items()
        if name not in here
    ]
    found = [
        f"{column.name}: {why}"
        for name, column in here.items()
        if (why := _difference(column, there.get(name)))
    ]
    if not (found or missing) and list(here) != list(there):
        return tuple(_moved(here, there))
    return (*found, *missing)


def _difference(column: Column, there: Column | None) -> str | None:
    if there is None:
        return "the log has it, the server does not"
    if _told(column) != _told(there):
        return f"the log says {column}, the server {there}"
    return None


def _moved(here: Iterable[str], there: Iterable[str]) -> Iterator[str]:
    """Columns at other places: a row's values stand in the log by place, without names."""
    for place, (own, other) in enumerate(zip(here, there, strict=True), start=1):
        if own != other:
            yield f"{own}: column {place} of the log, where the server has {other}"


def _told(column: Column) -> tuple[object, ...]:
    """The column's shape as far as a server's own description can bear it out."""
    wide = column.width > WIDEST.get(column.kind, column.width)
    if column.kind in TEXTS or (wide and column.kind == "VARCHAR"):
        return ("TEXT",)
    if column.kind.endswith("BLOB") or wide:
        return ("BLOB",)
    if column.kind in ("ENUM", "SET"):
        return (column.kind, tuple(_label_told(value) for value in column.values))
    return column.shape


def _label_told(label: str) -> str:
    """Without what a server drops or writes otherwise: blanks at its end, backslashes."""
    return _UNSAYABLE.sub("?", label).replace("\\", "").rstrip(" ")
