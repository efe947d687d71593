"""What becomes of a mirror's rows when a statement runs at the source?  HELD, unless it is known.

A statement's text says which rows go or change places, the tables described with it which columns
there are; both must agree, or the shard is held.  Keep: the mirror evolves by itself.  Empty: it
has no rows from then on.  Replace: its rows are from then on those that another shard's mirror had
just before.  Drop: the table is gone.  Hold: until there is a base later than the statement.
Effects of one order all start from what was before it: two tables can change places.

Cannot be seen, and left to probes and reconcile to find:
* statements under ``sql_log_bin=0``, and those that a collector could not read and did not send;
* a table outside ``table.include.list``: its statements come all the same, its rows do not; so
  *captured* is asked before its rows, none, are taken for another's;
* a shard whose statements are left out (``store.only.captured.tables.ddl``): it looks never seen
  when ``CREATE TABLE IF NOT EXISTS .. LIKE`` comes, which is logged though the table is there;
* text changed where ``sql_mode`` is not strict: a column moved to another character set without
  its being named, a number 0 in a column that becomes AUTO_INCREMENT;
* generated columns whose inputs change their type.

A TRUNCATE is no schema change: it comes among the table's own rows, at its order.  Only one of a
table that the collector lost track of comes here.  Pure.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from pipeline.model import Order, ShardId
from pipeline.schema.model import (
    BaseNeeded,
    Drop,
    Effect,
    Empty,
    Incompatible,
    Keep,
    KnownTables,
    Replace,
    TableSchema,
    Told,
)
from pipeline.sources.mysql.evolution import compare
from pipeline.sources.mysql.moves import Moves, Rows


def follow(told: Sequence[Told], known: KnownTables) -> tuple[tuple[Effect, ...], KnownTables]:
    """One effect per shard and order that a statement touches; none of what is no table.

    *told* stands in log order, messages of one order as they came; all of an order belong
    together, and none may have been given before.  *known* is what was before the first; what is
    known after the last comes back, too.
    """
    found: list[Effect] = []
    schemas, based = dict(known.schemas), set(known.based)
    now, moves = replace(known, schemas=schemas, based=based), Moves(schemas)
    for order, group in groupby(told, key=lambda message: message.order):
        for message in dict.fromkeys(group):  # a collector that starts again sends some twice
            if message.snapshot:
                _describe(message, now, schemas, based)
                for shard, _ in message.tables:
                    moves.restore(shard, schemas)
            elif message.text or None in dict(message.tables).values():
                moves.play(message)
            else:
                moves.described(message)
        made = [e for shard in moves.touched if (e := _effect(shard, moves, now, order))]
        _take(made, schemas, based, known.captured)
        moves.settle(schemas)
        found += made
    return tuple(found), now


def _take(
    made: Iterable[Effect],
    schemas: dict[ShardId, TableSchema],
    based: set[ShardId],
    captured: Callable[[ShardId], bool],
) -> None:
    """Bring *schemas* and *based* behind the effects of one order."""
    for effect in made:
        shard = effect.shard
        if isinstance(effect, Drop):
            schemas.pop(shard, None)
        elif effect.schema is not None:
            schemas[shard] = effect.schema
        if isinstance(effect, Drop | BaseNeeded) or not captured(shard):
            based.discard(shard)
        elif isinstance(effect, Empty | Replace):
            based.add(shard)


def _describe(
    message: Told, known: KnownTables, schemas: dict[ShardId, TableSchema], based: set[ShardId]
) -> None:
    """Take what a snapshot tells is there, and will be read; it drops before it creates."""
    for shard, schema in message.tables:
        if schema is None:
            schemas.pop(shard, None)
            based.discard(shard)
            continue
        schemas[shard] = schema
        if known.captured(shard):
            based.add(shard)


def _effect(shard: ShardId, moves: Moves, known: KnownTables, order: Order) -> Effect | None:
    rows = moves.rows.get(shard)
    if rows is None:
        return Drop(shard, order) if shard in known.schemas else None
    reason, why = rows.doubt or _unlike(shard, rows, known) or ("", "")
    if why:
        again = f"take a new base of {shard}"
        more = ", then rebuild its mirror" if _astray(known.schemas.get(shard), rows) else ""
        return BaseNeeded(shard, order, reason, f"{why}; {again}{more}", rows.schema)
    if rows.of is None:
        return Empty(shard, order, rows.schema)
    if rows.of == shard:
        return Keep(shard, order, rows.schema)
    return Replace(shard, order, rows.of, rows.schema)


def _unlike(shard: ShardId, rows: Rows, known: KnownTables) -> tuple[str, str] | None:
    """Why the mirror of *shard* cannot take over rows that another shard had; None if it can."""
    if rows.of in (None, shard):
        return None
    if rows.of not in known.based or not known.captured(rows.of):
        return "renamed", f"its rows are those of {rows.of}, which has no whole mirror"
    step = _astray(known.schemas.get(shard), rows)
    if step is not None:
        return "schema", f"its rows are those of {rows.of}, and {step.why}"
    return None


def _astray(own: TableSchema | None, rows: Rows) -> Incompatible | None:
    """Why a mirror with *own* columns cannot follow to those of *rows*; None if it can."""
    step = compare(own, rows.schema) if own is not None and rows.schema is not None else None
    return step if isinstance(step, Incompatible) else None
