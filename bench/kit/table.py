"""A table to merge into, and slices of changes for it, made by Spark from key and version alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.changelog import table as changelog
from pipeline.messages import key

SOURCE, SHARD = "one", "shop.orders"
TOPIC = "bench.shop.orders"
AT = datetime(2026, 1, 1, tzinfo=UTC)
RECENT = 0.05
"""Share of the table that recent keys are drawn from."""


@dataclass(frozen=True, slots=True)
class Field:
    """One column: what MySQL declares, what the wire carries, what the lake holds."""

    name: str
    kind: str
    wire: str
    lake: str
    length: int | None = None
    scale: int | None = None


BIG = Field("", "BIGINT", "bigint", "bigint")
MONEY = Field("", "DECIMAL", "string", "decimal(12,2)", 12, 2)
MOMENT = Field("", "DATETIME", "bigint", "timestamp_ntz", 6)
DAY = Field("", "DATE", "int", "date")
TEXT = Field("", "VARCHAR", "string", "string", 64)


def _named(field: Field, *names: str) -> list[Field]:
    return [replace(field, name=name) for name in names]


NARROW: tuple[Field, ...] = (
    *_named(BIG, "id", "user_id"),
    *_named(MONEY, "total"),
    *_named(MOMENT, "placed"),
    *_named(TEXT, "state"),
)
WIDE: tuple[Field, ...] = (
    *NARROW,
    *_named(BIG, "shop_id", "clerk_id", "points", "weight"),
    *_named(MONEY, "tax", "discount", "freight"),
    *_named(MOMENT, "paid", "sent"),
    *_named(DAY, "due"),
    *_named(TEXT, "street", "city", "note", "coupon", "channel"),
)


@dataclass(frozen=True, slots=True)
class Workload:
    """*rows* rows of *fields*, of which each round changes *changed*; ``recent`` keys or any."""

    fields: tuple[Field, ...]
    rows: int
    changed: int
    recent: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(field.name for field in self.fields)

    def image(self, session: SparkSession) -> DataFrame:
        """The table before the first round, by key; columns of the lake, and ``order``."""
        ids = session.range(0, self.rows, 1, max(4, self.rows // 250_000))
        return ids.select(*self.values(F.lit(0)), _order(F.lit(1), F.col("id")).alias("order"))

    def changes(self, session: SparkSession, round_: int) -> DataFrame:
        """The slice of one round, as rows of the change log; batch and log number name it.

        Of ten changed keys one is new, one is deleted, and one was changed twice.
        """
        window = int(self.rows * RECENT) if self.recent else self.rows
        step = F.col("i") * max(1, window // self.changed) + round_
        place = F.col("i")
        known = F.lit(self.rows - window) + step % window
        fresh = F.lit(self.rows + round_ * self.changed) + place
        drawn = session.range(0, self.changed, 1, 2).withColumnRenamed("id", "i")
        kinds = drawn.select(
            F.when(place % 10 == 0, fresh).otherwise(known).alias("id"),
            F.when(place % 10 == 0, "c").when(place % 10 == 1, "d").otherwise("u").alias("op"),
            F.explode(
                F.when(place % 10 == 2, F.array(F.lit(0), F.lit(1))).otherwise(F.array(F.lit(1)))
            ),
        )
        return self._logged(kinds, round_)

    def values(self, version: Column) -> list[Column]:
        """A row's values as the lake holds them, from ``id`` and *version*."""
        return [_value(field, place, version) for place, field in enumerate(self.fields)]

    def _logged(self, kinds: DataFrame, round_: int) -> DataFrame:
        """Rows (id, op, col: 1 for the last change of a key) as rows of the change log."""
        row = F.to_json(F.struct(*(_wired(f, c) for f, c in self._versioned(round_))))
        gone = F.col("op") == "d"
        made = {
            "lane": F.lit("main"),
            "batch": F.lit(round_),
            "source": F.lit(SOURCE),
            "shard": F.lit(SHARD),
            "table": F.lit(SHARD),
            "op": F.col("op"),
            "key": key.column(
                F.to_json(F.array(F.col("id").cast("string"))),
                F.lit(SOURCE),
                F.lit(SHARD),
                unique=F.lit(False),
            ),
            "before": F.when(gone, row),
            "after": F.when(~gone, row),
            "at": F.lit(AT),
            "order": _order(F.lit(round_ + 1), F.col("id") * 2 + F.col("col")),
            "origin": F.lit(3),
            "topic": F.lit(TOPIC),
            "partition": F.lit(0),
            "offset": F.col("id"),
            "received": F.lit(AT),
            "dt": F.lit(AT.date()),
        }
        return kinds.select(
            *(
                made.get(name, F.lit(None)).cast(kind).alias(name)
                for name, kind in changelog.SCHEMA.items()
            )
        )

    def _versioned(self, round_: int) -> Sequence[tuple[Field, Column]]:
        version = F.lit(round_ * 2) + F.col("col")
        return list(zip(self.fields, self.values(version), strict=True))


def parsed(fields: Sequence[Field], image: Column) -> list[Column]:
    """Values of a row out of its JSON, by nothing but Spark."""
    shape = ", ".join(f"{field.name} {field.wire}" for field in fields)
    row = F.from_json(image, shape)
    return [_unwired(field, row[field.name]).alias(field.name) for field in fields]


def _order(log: Column, position: Column) -> Column:
    parts = {"epoch": F.lit(1), "log": log, "pos": position, "row": F.lit(0)}
    return F.struct(*(part.cast("bigint").alias(name) for name, part in parts.items()))


def _value(field: Field, place: int, version: Column) -> Column:
    """One value of the lake's type, different for each key, version and column."""
    number = F.col("id") if field.name == "id" else F.col("id") * (place + 3) + version
    if field.kind == "DECIMAL":
        value = (number % 1_000_000).cast("decimal(12,2)") + F.lit("0.25").cast("decimal(12,2)")
    elif field.kind == "DATETIME":
        value = F.timestamp_micros(number + 1_700_000_000_000_000)
    elif field.kind == "DATE":
        value = F.date_from_unix_date((number % 20_000).cast("int"))
    elif field.kind == "VARCHAR":
        value = F.md5(number.cast("string"))
    else:
        value = number
    return value.cast(field.lake).alias(field.name)


def _wired(field: Field, value: Column) -> Column:
    """A value as Debezium writes it into JSON."""
    if field.kind == "DATETIME":
        value = F.unix_micros(value.cast("timestamp"))
    elif field.kind == "DATE":
        value = F.unix_date(value)
    return value.cast(field.wire).alias(field.name)


def _unwired(field: Field, value: Column) -> Column:
    """The way back."""
    if field.kind == "DATETIME":
        return F.timestamp_micros(value).cast(field.lake)
    if field.kind == "DATE":
        return F.date_from_unix_date(value)
    return value.cast(field.lake)
