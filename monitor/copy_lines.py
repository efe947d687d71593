"""How do copies of tables stand?  Lines for people, of what `GET /v1/tables` tells.  Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

SHOWN = 20  # tables that stand still, or of which nothing is known


def of_table(row: Mapping[str, Any]) -> list[str]:
    """A line for each copy of one table."""
    return [f"copy {name}: {_standing(one)}" for name, one in sorted(row["copies"].items())]


def of_tables(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each copy; behind them those of its tables that do not follow their mirrors."""
    by_copy: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for row in rows:
        for name, one in row["copies"].items():
            by_copy.setdefault(name, []).append((row["table"], one))
    return [line for name in sorted(by_copy) for line in _of_copy(name, by_copy[name])]


def _of_copy(name: str, own: list[tuple[str, Mapping[str, Any]]]) -> list[str]:
    lags = [one["lag_seconds"] for _, one in own if _follows(one)]
    behind = f", at most {max(lags):.1f} s behind their mirrors" if lags else ""
    odd = [f"  {table}: {_standing(one)}" for table, one in own if not _follows(one)]
    more = [f"  and {len(odd) - SHOWN} more: --json has all"] if len(odd) > SHOWN else []
    head = f"copy {name}: {len(lags)} of {len(own)} tables follow{behind}"
    return [head, *odd[:SHOWN], *more]


def _follows(one: Mapping[str, Any]) -> bool:
    return one["hold"] is None and one["lag_seconds"] is not None


def _standing(one: Mapping[str, Any]) -> str:
    if one["hold"] is not None:
        return f"stands still, {one['hold']}"
    if one["lag_seconds"] is None:
        return f"unknown, {one['why']}"
    up_to = one["watermark"] or "unknown"
    return f"{one['lag_seconds']:.1f} s behind its mirror, complete up to {up_to}"
