"""Folded changes -> rows of the mirror's own types, and what must be known before a MERGE."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from pipeline.errors import HeldError
from pipeline.model import Op, Order, Origin
from pipeline.schema.history import TableSchema, default_of, unknown_fields
from pipeline.schema.types import typed as read

_RANGED = ("bigint", "int", "smallint", "tinyint", "date", "string", "decimal")


def typed(folded: DataFrame, schema: TableSchema, born: Mapping[str, Order]) -> DataFrame:
    """Parse each folded row's image late, by *schema*.

    In: what ``fold`` returns.  Out: the schema's columns, ``_sluice`` as in a mirror, and
    ``_work``: key (canonical), at (``topic:partition``), unknown (fields the schema lacks),
    misread (a value did not survive typing), and the three counts of ``fold``.
    A delete is typed from its before image.
    *born*: column -> order it was added at; older rows take its default.
    """
    image = F.coalesce("after", "before")
    meta = F.struct("source", "shard", "order", "op", "origin", "at", "batch").alias("_sluice")
    work = F.struct(
        "key",
        F.concat_ws(":", "topic", "partition").alias("at"),
        unknown_fields(image, schema.columns).alias("unknown"),
        F.col("_misread").alias("misread"),
        "total",
        "distinct_total",
        "conflicts",
        "born",
    )
    parsed = read(folded, image, schema.columns).select("_row.*", meta, work.alias("_work"))
    for name, order in born.items():
        column = schema.column(name)
        if column is not None and column.has_default:
            old = F.col("_sluice.order") < as_struct(order)
            filled = F.when(old & F.col(name).isNull(), default_of(column)).otherwise(F.col(name))
            parsed = parsed.withColumn(name, filled)
    return parsed


def as_struct(order: Order) -> Column:
    """An order as a literal of the change log's ``order`` type."""
    parts = {"epoch": order.epoch, "log": order.log, "pos": order.pos, "row": order.row}
    return F.struct(*[F.lit(v).cast("bigint").alias(k) for k, v in parts.items()])


def suspect(high: Mapping[str, Order] | None, grown: bool) -> Column:
    """Whether an upsert may be older than a delete that the mirror no longer remembers.

    *high*: ``topic:partition`` -> highest LIVE order applied; None when that is not known.  Keys of
    a topic that has gained partitions may have moved, so there every partition's high counts.
    """
    upsert = F.col("_sluice.op") != Op.DELETE
    if high is None:
        return upsert
    not_live = F.col("_sluice.origin") != int(Origin.LIVE)
    if not high:
        return upsert & not_live
    if grown:
        return upsert & (not_live | (F.col("_sluice.order") <= as_struct(max(high.values()))))
    behind = F.lit(False)
    for name, order in high.items():
        same = F.col("_work.at") == name
        behind = behind | (same & (F.col("_sluice.order") <= as_struct(order)))
    return upsert & (not_live | behind)


@dataclass(frozen=True, slots=True)
class Look:
    """One aggregate over the typed rows, before anything is written.

    ``vanished``: keys created and deleted in these changes; a mirror that never had them ignores
    their deletes.
    """

    kept: int
    vanished: int
    total: int
    distinct: int
    suspects: int
    bounds: tuple[tuple[str, object, object], ...]


def look(rows: DataFrame, key: Sequence[str], suspects: Column) -> Look:
    """Count *rows* and find their key range; in: what ``typed`` returns.

    Raises:
        HeldError: the log contradicts itself, a value was misread, or a field is unknown.
    """
    kinds = dict(rows.dtypes)
    ranged = [name for name in key if kinds[name].startswith(_RANGED)]
    extremes = [f(name).alias(f"{word}_{name}") for name in ranged for word, f in _EXTREMES]
    found = rows.agg(
        F.count(F.lit(1)).alias("kept"),
        F.coalesce(F.sum("_work.total"), F.lit(0)).alias("total"),
        F.coalesce(F.sum("_work.distinct_total"), F.lit(0)).alias("distinct"),
        F.coalesce(F.sum("_work.conflicts"), F.lit(0)).alias("conflicts"),
        F.max_by("_work.key", "_work.conflicts").alias("conflict"),
        F.count_if((F.col("_sluice.op") == Op.DELETE) & F.col("_work.born")).alias("vanished"),
        F.count_if(suspects).alias("suspects"),
        F.count_if(F.col("_work.misread")).alias("misread"),
        F.min(F.when(F.col("_work.misread"), F.col("_work.key"))).alias("misread_key"),
        F.array_distinct(F.flatten(F.collect_set("_work.unknown"))).alias("unknown"),
        *extremes,
    ).collect()[0]
    _check(found)
    bounds = tuple((name, found[f"min_{name}"], found[f"max_{name}"]) for name in ranged)
    return Look(
        kept=found["kept"],
        vanished=found["vanished"],
        total=found["total"],
        distinct=found["distinct"],
        suspects=found["suspects"],
        bounds=bounds,
    )


def _check(found: Row) -> None:
    if found["conflicts"]:
        detail = f"key {found['conflict']} has two different changes at one place of its log"
        raise HeldError("conflict", detail)
    if found["unknown"]:
        names = ", ".join(sorted(found["unknown"])[:5])
        detail = f"fields {names} are in no schema that has landed; it may still be on its way"
        raise HeldError("unknown_field", detail)
    if found["misread"]:
        detail = f"{found['misread']} rows hold a value their column's type cannot, first key "
        raise HeldError("misread", detail + str(found["misread_key"]))


_EXTREMES = (("min", F.min), ("max", F.max))
