"""Rows of JSON text -> typed columns; a value its type cannot hold is told, never lost unseen.

The one door to the types: the map itself stands in `typemap`, single values in `values`.
"""

import functools
import operator
from collections.abc import Sequence

from pyspark.sql import Column as Spark
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from pipeline.schema.column import Column as Column  # noqa: PLC0414  - part of this module's face
from pipeline.schema.typemap import lake_type as lake_type  # noqa: PLC0414
from pipeline.schema.typemap import unverifiable as unverifiable  # noqa: PLC0414
from pipeline.schema.values import value as value  # noqa: PLC0414

STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
BROKEN = "\0broken"  # no column of MySQL can have this name


def row(after: Spark, columns: Sequence[Column]) -> list[Spark]:
    """Typed columns, in order, out of the row's JSON text; all NULL where that is NULL.

    In: *after* string.  Out: one column for each of *columns*, named like it.
    """
    texts = _texts(after, columns)
    return [value(column, texts[column.name]) for column in columns]


def misread(after: Spark, columns: Sequence[Column]) -> Spark:
    """Whether a value of the row would be lost: it is there, but NULL once it is typed.

    In: *after* string.  Out: boolean, never NULL; true as well when the text is no JSON object.
    """
    texts = _texts(after, columns)
    lost = [
        texts[column.name].isNotNull() & value(column, texts[column.name]).isNull()
        for column in columns
    ]
    told = functools.reduce(operator.or_, lost, _broken(after, texts))
    return F.coalesce(told, F.lit(False))


def typed(frame: DataFrame, after: Spark, columns: Sequence[Column]) -> DataFrame:
    """Type whole rows, each text parsed once; for wide tables far cheaper than ``row``.

    In: any columns, *after* a string over them.  Out: the same, ``_row`` (a struct of the typed
    columns, in order) and ``_misread`` (boolean, as ``misread`` tells).
    """
    wire = frame.withColumn("_wire", _texts(after, columns)).withColumn("_text", after)
    values = F.struct(*(value(column, F.col("_wire")[column.name]) for column in columns))
    done = wire.withColumn("_row", values)
    lost = (
        F.col("_wire")[column.name].isNotNull() & F.col("_row")[column.name].isNull()
        for column in columns
    )
    told = functools.reduce(operator.or_, lost, _broken(F.col("_text"), F.col("_wire")))
    return done.withColumn("_misread", F.coalesce(told, F.lit(False))).drop("_wire", "_text")


def _broken(after: Spark, texts: Spark) -> Spark:
    return after.isNotNull() & (texts.isNull() | texts[BROKEN].isNotNull())


def _texts(after: Spark, columns: Sequence[Column]) -> Spark:
    fields = [StructField(name, StringType()) for name in (*(c.name for c in columns), BROKEN)]
    return F.from_json(after, StructType(fields), {**STRICT, "columnNameOfCorruptRecord": BROKEN})
