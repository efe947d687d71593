"""Since which order has a shard a column that its older rows lacked?  Per shard, never for all.

Rows below a column's birth hold what the source filled in when it added the column; two shards of
one table add it at two orders.  A column is not born by a shard's first schema, nor by that of a
table made anew: no row of it is older.
Cannot be seen: a column dropped and added again by one statement (``effects`` holds its shard).
Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

from pipeline.model import Order, ShardId
from pipeline.schema.column import TableSchema


@dataclass(frozen=True, slots=True)
class Step:
    """The columns of *shard* from *order* on; None if it is dropped there.

    ``rows_of`` names the shard whose rows it has from then on, if it was renamed.
    """

    shard: ShardId
    order: Order
    schema: TableSchema | None
    rows_of: ShardId | None = None


@dataclass(frozen=True, slots=True)
class _Life:
    columns: frozenset[str]
    born: Mapping[str, Order]


def births(steps: Iterable[Step]) -> dict[tuple[ShardId, str], Order]:
    """(shard, column) -> order of the statement that added it to rows that were there.

    Of all shards of one source; *steps* rise by order, those of one order as they came.
    Steps of one order see what was before it, so that two tables can change places.  A snapshot's
    DROP and CREATE at one order begin a table anew.
    """
    lives: dict[ShardId, _Life] = {}
    for _, group in groupby(steps, key=lambda step: step.order):
        together, dropped = tuple(group), set[ShardId]()
        origins = {step.rows_of or step.shard for step in together}
        before = {shard: lives.get(shard) for shard in origins}
        for step in together:
            if step.schema is None:
                dropped.add(step.shard)
                lives.pop(step.shard, None)
                continue
            anew = step.rows_of is None and step.shard in dropped
            origin = None if anew else before[step.rows_of or step.shard]
            lives[step.shard] = _live(origin, step.schema, step.order)
    return {(s, name): order for s, life in lives.items() for name, order in life.born.items()}


def _live(origin: _Life | None, schema: TableSchema, order: Order) -> _Life:
    columns = frozenset(column.name for column in schema.columns)
    if origin is None:
        return _Life(columns, {})
    kept = {name: born for name, born in origin.born.items() if name in columns}
    return _Life(columns, {**kept, **dict.fromkeys(columns - origin.columns, order)})
