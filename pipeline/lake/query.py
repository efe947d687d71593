"""How are names and values written in a query of a lake table?  Quoted here and nowhere else.

The table is called ``t`` in every query.
"""

from collections.abc import Iterable


def name(column: str) -> str:
    """*column* as a SQL name; capitals count."""
    escaped = column.replace('"', '""')
    return f'"{escaped}"'


def literal(value: str | int) -> str:
    """*value* as a SQL literal."""
    if isinstance(value, int):
        return str(int(value))
    escaped = value.replace("'", "''")
    return f"'{escaped}'"


def among(column: str, values: Iterable[str | int]) -> str:
    """Condition that *column*, an SQL expression, is one of *values*; false if there are none."""
    listed = ", ".join(literal(value) for value in values)
    return f"{column} IN ({listed})" if listed else "false"
