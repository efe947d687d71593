"""What do readers ask of a lake table at one version?  Rows by SQL, bounds from its statistics.

The table is called ``t`` in every query; names and values are quoted here and nowhere else.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol


class Pinned(Protocol):
    """One table at one version; errors are those of ``checks/world.py``."""

    @property
    def version(self) -> int:
        """The pinned version."""
        ...

    @property
    def path(self) -> str:
        """Where the table lies, for messages."""
        ...

    def transaction(self, app: str) -> int | None:
        """Newest transaction version of *app*; None if it never committed here."""
        ...

    def columns(self) -> Mapping[str, str]:
        """Top-level columns in order, with their types in Delta's words (``long``, ``struct``)."""
        ...

    def select(self, query: str) -> list[dict[str, Any]]:
        """Rows of the answer; the query bounds how many."""
        ...

    def bounds(self, column: str) -> tuple[tuple[Any, Any], ...]:
        """Lowest and highest value in each file, or nothing; never narrower than the truth."""
        ...


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
