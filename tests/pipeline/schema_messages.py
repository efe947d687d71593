"""Schema changes as Debezium sends them, for tests that need one and are not about its form."""

import json
from collections.abc import Mapping, Sequence
from typing import Any


def message(text: str, *tables: Mapping[str, Any], database: str = "db") -> str:
    """A statement of *database*, and the *tables* told with it."""
    return json.dumps({"ddl": text, "databaseName": database, "tableChanges": tables})


def described(
    text: str, name: str, columns: str, *, database: str = "db", key: Sequence[str] = ("id",)
) -> dict[str, Any]:
    """Table *name* as the statement *text* leaves it; columns as ``name TYPE:length default, ..``.

    A word after the type is the default.
    """
    kind = "CREATE" if text.startswith("CREATE") else "ALTER"
    made = [_column(number, *one.split()) for number, one in enumerate(columns.split(", "), 1)]
    table = {"primaryKeyColumnNames": [*key], "columns": made}
    return {"type": kind, "id": f'"{database}"."{name}"', "table": table}


def _column(number: int, name: str, kind: str, default: str | None = None) -> dict[str, Any]:
    kind, _, length = kind.partition(":")
    return {
        "name": name,
        "typeName": kind,
        "length": int(length) if length else None,
        "optional": True,
        "position": number,
        "defaultValueExpression": default,
    }
