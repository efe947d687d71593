"""Schema changes as Debezium sends them, for tests that need one and are not about its form."""

import json
from collections.abc import Mapping, Sequence
from typing import Any


def message(text: str, *tables: Mapping[str, Any], database: str = "db", **more: Any) -> str:
    """A statement of *database*, the *tables* told with it, and *more* of the envelope."""
    return json.dumps({"ddl": text, "databaseName": database, "tableChanges": tables, **more})


def described(
    text: str,
    name: str,
    columns: str,
    *,
    database: str = "db",
    key: Sequence[str] = ("id",),
    kind: str = "",
) -> dict[str, Any]:
    """Table *name* as *text* leaves it; columns as ``name TYPE:length default, ..``.

    ``!`` after a type says NOT NULL; a word behind it is the default.
    """
    kind = kind or ("CREATE" if text.startswith("CREATE") else "ALTER")
    made = [
        _column(number, *one.split(maxsplit=2))
        for number, one in enumerate(filter(None, columns.split(", ")), 1)
    ]
    table = {"primaryKeyColumnNames": [*key], "columns": made}
    return {"type": kind, "id": f'"{database}"."{name}"', "table": table}


def dropped(name: str, *, database: str = "db") -> dict[str, Any]:
    """Table *name*, which is gone."""
    return {"type": "DROP", "id": f'"{database}"."{name}"', "table": None}


def _column(number: int, name: str, kind: str, default: str | None = None) -> dict[str, Any]:
    kind, _, length = kind.partition(":")
    return {
        "name": name,
        "typeName": kind.rstrip("!"),
        "length": int(length.rstrip("!")) if length else None,
        "optional": not (kind + length).endswith("!"),
        "position": number,
        "defaultValueExpression": default,
    }
