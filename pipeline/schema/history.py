"""Which columns had a shard at a given order?  As its own log of schema changes tells.

Measured: a snapshot writes DROP and CREATE of each table at one and the same order; a live
statement over several tables arrives as one change each, at one order too.  Pure.
"""

from bisect import bisect_right
from dataclasses import dataclass

from pipeline.model import Order
from pipeline.schema.column import TableSchema


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One table's part of a statement: ``create``, ``alter`` or ``drop``.

    ``schema`` is None for a drop.  ``previous`` is the shard's name before, if it was renamed.
    """

    kind: str
    shard: str
    order: Order
    schema: TableSchema | None
    statement: str
    previous: str | None = None


class History:
    """All schemas of one source's shards, by order."""

    def __init__(self, *changes: SchemaChange) -> None:
        self._steps: dict[str, list[tuple[Order, TableSchema | None]]] = {}
        ordered = sorted(changes, key=lambda c: (c.order, c.kind != "drop"))
        for change in ordered:
            steps = self._steps.setdefault(change.shard, [])
            known = self.newest(change.previous or change.shard) if change.schema else None
            if _is_repeated(known, change):
                continue
            steps.append((change.order, _remember(known, change.schema)))
            if change.previous is not None:
                self._steps.setdefault(change.previous, []).append((change.order, None))

    def at(self, shard: str, order: Order) -> TableSchema | None:
        """Schema in force for a change at *order*; None if none is known, or it is dropped."""
        steps = self._steps.get(shard, [])
        found = bisect_right(steps, order, key=lambda step: step[0])
        return steps[found - 1][1] if found else None

    def newest(self, shard: str) -> TableSchema | None:
        """The last schema known; None if there is none, or the shard was dropped."""
        steps = self._steps.get(shard)
        return steps[-1][1] if steps else None


def _is_repeated(known: TableSchema | None, change: SchemaChange) -> bool:
    """Whether rows, not a statement, told of columns that were in force already."""
    if known is None or change.schema is None or change.statement or change.previous is not None:
        return False
    return (known.columns, known.key) == (change.schema.columns, change.schema.key)


def _remember(known: TableSchema | None, new: TableSchema | None) -> TableSchema | None:
    if known is None or new is None:
        return new
    return new.columns[0].dialect.remembered(known, new)
