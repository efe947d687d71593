"""What becomes of a mirror's rows when a statement runs at the source?  Words; dialects use them.

Effects of one order all start from what was before it: two tables can change places.  Pure.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from pipeline.model import Order, ShardId
from pipeline.schema.column import TableSchema


@dataclass(frozen=True, slots=True)
class Keep:
    """Rows stay; *schema* differs from the one before only in what a mirror may follow."""

    shard: ShardId
    order: Order
    schema: TableSchema | None


@dataclass(frozen=True, slots=True)
class Empty:
    """No row older than *order* is left; *schema* is None if no column of it was ever told."""

    shard: ShardId
    order: Order
    schema: TableSchema | None


@dataclass(frozen=True, slots=True)
class Replace:
    """Rows older than *order* are those of *rows_of* as they were just before *order*."""

    shard: ShardId
    order: Order
    rows_of: ShardId
    schema: TableSchema | None


@dataclass(frozen=True, slots=True)
class Drop:
    """No table of that name is left."""

    shard: ShardId
    order: Order


@dataclass(frozen=True, slots=True)
class BaseNeeded:
    """A base later than *order* is needed; *detail* says why, and what to do."""

    shard: ShardId
    order: Order
    reason: str
    detail: str
    schema: TableSchema | None = None


Effect = Keep | Empty | Replace | Drop | BaseNeeded


@dataclass(frozen=True, slots=True)
class KnownTables:
    """The tables of one source that are there, as of some order.

    ``based``: shards whose rows were told of from the first on, by their CREATE or by a snapshot
    that begins; that it came to its end the change log must show.  ``captured`` says of any shard
    whether the collector sends its rows.
    """

    captured: Callable[[ShardId], bool]
    schemas: Mapping[ShardId, TableSchema] = field(default_factory=dict)
    based: AbstractSet[ShardId] = frozenset()
