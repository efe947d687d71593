"""Which columns had a shard at a given order?  As its own log of schema changes tells.

Measured: a snapshot writes DROP and CREATE of each table at one and the same order; a live
statement over several tables arrives as one change each, at one order too.
"""

import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pipeline.errors import FormatError
from pipeline.model import Order, ShardId
from pipeline.schema import ddl, table_ids, told
from pipeline.schema.column import TableSchema as TableSchema  # noqa: PLC0414  - part of this module's face
from pipeline.schema.evolution import Compatible as Compatible  # noqa: PLC0414
from pipeline.schema.evolution import Incompatible as Incompatible  # noqa: PLC0414
from pipeline.schema.evolution import compare as compare  # noqa: PLC0414
from pipeline.schema.evolution import merge as merge  # noqa: PLC0414

KINDS = {"CREATE": "create", "ALTER": "alter", "DROP": "drop"}


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


def parse(after: str, order: Order) -> tuple[SchemaChange, ...]:
    """Read a schema-change message of Debezium; empty if it is about no table.

    Raises:
        FormatError: if the message is not built as those of Debezium are.
    """
    try:
        message = json.loads(after)
        statement = message.get("ddl") or ""
        changes = message.get("tableChanges") or ()
        return tuple(_change(change, statement, order) for change in changes)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        msg = f"a schema change at {order} is not built as Debezium's are: {error!r}"
        raise FormatError(msg) from error


class History:
    """All schemas of one source's shards, by order."""

    def __init__(self, *changes: SchemaChange) -> None:
        self._steps: dict[str, list[tuple[Order, TableSchema | None]]] = {}
        ordered = sorted(changes, key=lambda c: (c.order, c.kind != "drop"))
        for change in ordered:
            steps = self._steps.setdefault(change.shard, [])
            known = self.newest(change.previous or change.shard) if change.schema else None
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


def _remember(known: TableSchema | None, new: TableSchema | None) -> TableSchema | None:
    """Keep what only an earlier statement told: which columns are computed."""
    if known is None or new is None:
        return new
    computed = {(c.name, c.shape) for c in known.columns if c.generated}
    columns = (
        replace(c, generated=c.generated or (c.name, c.shape) in computed) for c in new.columns
    )
    return replace(new, columns=tuple(columns))


def _change(change: Mapping[str, Any], statement: str, order: Order) -> SchemaChange:
    named = table_ids.read(change["id"])
    shard = str(named)
    kind, table = KINDS[change["type"]], change.get("table")
    if kind == "drop" or table is None:
        return SchemaChange("drop", shard, order, None, statement)
    schema = told.described(named, table, statement, order)
    old = ddl.renamed_from(statement, named.relation)
    previous = str(ShardId(named.database, old)) if old is not None else None
    return SchemaChange(kind, shard, order, schema, statement, previous)
