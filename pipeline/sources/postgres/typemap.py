"""Which type has a Postgres column in the lake?  The map is fixed: changing it breaks mirrors.

Pure.
"""

from pipeline.schema.decode import MOST_DIGITS
from pipeline.sources.postgres.column import KNOWN
from pipeline.sources.postgres.column import PostgresColumn as Column

WHOLE = {"INT2": "smallint", "INT4": "int", "INT8": "bigint", "OID": "bigint"}
FIXED = {
    **{"BOOL": "boolean", "FLOAT4": "float", "FLOAT8": "double", "BYTEA": "binary"},
    **{"DATE": "date", "TIME": "bigint", "TIMESTAMP": "timestamp_ntz", "TIMESTAMPTZ": "timestamp"},
}
_EARLY = "a time before 1582-10-15 arrives some days early, and infinity"
LOST = {  # what does not arrive as it is
    "DATE": "infinity is kept as the last, -infinity as the first day of the lake",
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPTZ"), f"{_EARLY} is kept as the lake's last moment"),
    "MONEY": "money arrives as a double's text; make it NUMERIC",
    "VARBIT": "the zeros in front of a bit varying do not arrive",
    "ARRAY": "an array of more than one dimension arrives as NULLs",
}
LOSSY_ARRAYS = ("_FLOAT4", "_FLOAT8")


def lake_type(column: Column) -> str:
    """Spark type of *column* in a mirror; text for types Sluice does not know."""
    kind = column.kind
    if kind in WHOLE:
        return WHOLE[kind]
    if kind == "NUMERIC":
        return f"decimal({column.digits},{column.fraction})" if is_decimal(column) else "string"
    if kind == "BIT" and column.length in (1, None):
        return "boolean"
    return FIXED.get(kind, "string")


def is_decimal(column: Column) -> bool:
    """Whether every number that fits a NUMERIC fits a decimal of the lake; NaN fits none."""
    digits = column.digits
    return digits is not None and digits <= MOST_DIGITS and 0 <= column.fraction <= digits


def unverifiable(column: Column) -> str | None:
    """Why source and mirror cannot be compared in *column*; None if they can."""
    name, kind = column.name, column.kind
    if column.type.upper() in LOSSY_ARRAYS:
        return f"{name}: a large array that an UPDATE leaves as it is arrives as NULL"
    if kind not in KNOWN:
        return f"{name}: type {column.type} is kept as the collector's text and is not compared"
    return f"{name}: {LOST[kind]}" if kind in LOST else None
