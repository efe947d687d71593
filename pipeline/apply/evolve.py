"""The mirror follows its source's columns by itself where nothing can go wrong, else it stands.

A column added with a constant default gets it in rows that were there before: the source fills
them without writing its log.
"""

from collections.abc import Callable, Mapping

from delta.tables import DeltaTable
from pyspark.sql import functions as F

from pipeline.apply.mirror import Mirror
from pipeline.apply.typed import as_struct
from pipeline.errors import HeldError
from pipeline.model import Order
from pipeline.schema.history import Compatible, Incompatible, TableSchema, compare, default_of
from pipeline.schema.types import Column, lake_type

Found = Mapping[str, TableSchema]
Find = Callable[[str, Order], TableSchema | None]


def evolve(mirror: Mirror, schema: TableSchema, newest: Found, schema_at: Find) -> dict[str, Order]:
    """Create the mirror, or add and widen its columns; returns the orders columns were born at.

    *newest*: ``source/shard`` -> its newest landed schema; *schema* is all of them in one.

    Raises:
        HeldError: a change cannot be followed; names it and the statement that solves it.
    """
    orders = {name: found.order for name, found in newest.items()}
    if mirror.state.version < 0:
        mirror.create(schema, orders)
        return {}
    known = mirror.schemas()
    moved = {n: o for n, o in orders.items() if known.get(n) != o}
    if not moved:
        return {}
    steps = {name: _step(name, known, newest[name], schema_at) for name in moved}
    _reshape(mirror, schema)
    born: dict[str, Order] = {}
    for name, step in steps.items():
        for column in step.added if step is not None else ():
            born[column.name] = max(orders[name], born.get(column.name, orders[name]))
            _fill(mirror, name, column, orders[name])
    mirror.note_schemas(moved)
    return born


def _step(
    name: str, known: Mapping[str, Order], new: TableSchema, schema_at: Find
) -> Compatible | None:
    old = schema_at(name, known[name]) if name in known else None
    if old is None:
        return None  # a shard seen for the first time; it agrees with the others already
    step = compare(old, new)
    if isinstance(step, Incompatible):
        raise HeldError("schema", f"{name}: {step.why}; {step.statement}")
    return step


def _reshape(mirror: Mirror, schema: TableSchema) -> None:
    """Give the mirror every column of *schema*, in its type."""
    fields = mirror.session.read.format("delta").load(mirror.path).schema.fields
    have = {field.name: field.dataType.simpleString() for field in fields}
    kinds = {column.name: lake_type(column).lower() for column in schema.columns}
    widened = {n: k for n, k in kinds.items() if n in have and have[n] != k.replace(" ", "")}
    if widened:
        _rewrite(mirror, widened)
    for name in (name for name in kinds if name not in have):
        with mirror.noted(-1):
            mirror.session.sql(
                f"ALTER TABLE delta.`{mirror.path}` ADD COLUMNS (`{name}` {kinds[name]})"
            )


def _rewrite(mirror: Mirror, kinds: Mapping[str, str]) -> None:
    """Write the mirror anew with wider types.

    Delta could widen in place, but readers without Spark refuse tables that have that feature.
    """
    rows = mirror.session.read.format("delta").load(mirror.path)
    wider = rows.withColumns({name: F.col(name).cast(kind) for name, kind in kinds.items()})
    with mirror.noted(-1):
        writer = wider.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        writer.save(mirror.path)


def _fill(mirror: Mirror, name: str, column: Column, born: Order) -> None:
    """Give rows of the shard that are older than the column the default the source gave them."""
    if column.default is None:
        return
    source, _, shard = name.partition("/")
    own = (F.col("_sluice.source") == source) & (F.col("_sluice.shard") == shard)
    old = own & (F.col("_sluice.order") < as_struct(born)) & F.col(column.name).isNull()
    with mirror.noted(-1):
        target = DeltaTable.forPath(mirror.session, mirror.path)
        target.update(old, {f"`{column.name}`": default_of(column)})
