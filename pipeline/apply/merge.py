"""The MERGE itself: update or delete only what is older; what was deleted stays deleted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.apply.mirror import Mirror
from pipeline.apply.typed import as_struct
from pipeline.model import Op, Order, Table


@dataclass(frozen=True, slots=True)
class Merged:
    """Rows that the mirror's own commit says it inserted, updated and deleted."""

    inserted: int
    updated: int
    deleted: int

    @property
    def applied(self) -> int:
        """All of them."""
        return self.inserted + self.updated + self.deleted


def matches(table: Table) -> Column:
    """Same key, and same shard unless keys are unique across shards; ``m`` mirror, ``c`` change."""
    same = [F.col(f"m.`{name}`") == F.col(f"c.`{name}`") for name in table.key]
    if not table.unique_across_shards:
        same += [F.col(f"m._sluice.{part}") == F.col(f"c._sluice.{part}") for part in _SHARD]
    condition = same[0]
    for part in same[1:]:
        condition = condition & part
    return condition


def is_newer() -> Column:
    """The change outranks the mirror's row; a row without ``_sluice`` is older than any."""
    ranks = [F.struct(f"{side}._sluice.order", f"{side}._sluice.origin") for side in ("c", "m")]
    return F.coalesce(F.col("m._sluice.order").isNull() | (ranks[0] > ranks[1]), F.lit(True))


def merge(
    mirror: Mirror,
    rows: DataFrame,
    table: Table,
    bounds: Sequence[tuple[str, object, object]],
    *,
    batch: int,
    told: Mapping[str, object],
) -> Merged:
    """Merge *rows* (columns of the mirror, and ``_sluice``), as applied batch *batch*.

    ``_work`` is left behind.  *bounds*, the least and greatest of each key column in *rows*, let
    Delta skip files.  The commit notes what is *told* of the turn.
    """
    names = [name for name in rows.columns if name != "_work"]
    condition = matches(table)
    for name, low, high in bounds:
        condition = condition & F.col(f"m.`{name}`").between(F.lit(low), F.lit(high))
    values = {f"`{name}`": F.col(f"c.`{name}`") for name in names}
    deleted = F.col("c._sluice.op") == Op.DELETE
    own = F.lit(True)
    for part in _SHARD:
        own = own & F.col(f"m._sluice.{part}").eqNullSafe(F.col(f"c._sluice.{part}"))
    with mirror.noted(batch, told):
        target = DeltaTable.forPath(mirror.session, mirror.path).alias("m")
        done = (
            target.merge(rows.drop("_work").alias("c"), condition)
            .whenMatchedDelete(deleted & is_newer() & own)
            .whenMatchedUpdate(~deleted & is_newer(), set=dict(values))
            .whenNotMatchedInsert(~deleted, values=dict(values))
            .execute()
        )
    found = done.collect()
    if not found:
        return Merged(0, 0, 0)  # Delta has this batch already, and leaves a repeated MERGE out
    counts = found[0]
    return Merged(
        counts["num_inserted_rows"], counts["num_updated_rows"], counts["num_deleted_rows"]
    )


def delete_older(mirror: Mirror, floors: Mapping[str, Order], batch: int) -> None:
    """Delete rows of each ``source/shard`` that are older than its order."""
    names = sorted(floors)
    for first in range(0, len(names), _AT_ONCE):
        condition = F.lit(False)
        for name in names[first : first + _AT_ONCE]:
            condition = condition | _older(name, floors[name])
        with mirror.noted(batch):
            DeltaTable.forPath(mirror.session, mirror.path).delete(condition)


def count_untouched(mirror: Mirror, rows: DataFrame, table: Table, version: int) -> tuple[int, int]:
    """Rows that the mirror at *version* made a MERGE ignore: (older or absent, equal).

    Counted by comparing, not from the MERGE.
    """
    before = mirror.session.read.format("delta").option("versionAsOf", version).load(mirror.path)
    kept = [*table.key, "_sluice"]
    joined = (
        rows.select(*kept).alias("c").join(before.select(*kept).alias("m"), matches(table), "left")
    )
    deleted = F.col("c._sluice.op") == Op.DELETE
    absent = F.col("m._sluice").isNull() & F.col(f"m.`{table.key[0]}`").isNull()
    same = ~absent & F.col("m._sluice.order").eqNullSafe(F.col("c._sluice.order"))
    foreign = ~F.col("m._sluice.shard").eqNullSafe(F.col("c._sluice.shard"))
    ignored = (absent & deleted) | (~absent & ~is_newer()) | (~absent & deleted & foreign)
    found = joined.agg(
        F.count_if(ignored & ~same).alias("noop"), F.count_if(ignored & same).alias("again")
    ).collect()[0]
    return int(found["noop"]), int(found["again"])


_SHARD = ("source", "shard")
_AT_ONCE = 200


def _older(name: str, order: Order) -> Column:
    """Rows of one shard below *order*, by plain comparisons so that Delta can skip files."""
    source, _, shard = name.partition("/")
    own = (F.col("_sluice.source") == source) & (F.col("_sluice.shard") == shard)
    return (
        own
        & (F.col("_sluice.order") < as_struct(order))
        & (F.col("_sluice.order.epoch") <= order.epoch)
    )
