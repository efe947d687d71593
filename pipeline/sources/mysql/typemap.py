"""Which type has a MySQL column in the lake?  The map is fixed: changing it breaks mirrors.

Pure.
"""

from pipeline.sources.mysql.column import MySqlColumn as Column

WHOLE = {"TINYINT": "tinyint", "SMALLINT": "smallint", "MEDIUMINT": "int", "INT": "int"}
WHOLE_UNSIGNED = {"TINYINT": "smallint", "SMALLINT": "int", "MEDIUMINT": "int", "INT": "bigint"}
TEXTS = ("CHAR", "VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT")
WORDS = (*TEXTS, "ENUM", "SET", "JSON")
BYTES = ("BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB")
FIXED = {
    **{"BIGINT": "bigint", "FLOAT": "float", "DOUBLE": "double", "YEAR": "int", "DATE": "date"},
    **{"DATETIME": "timestamp_ntz", "TIMESTAMP": "timestamp", "TIME": "bigint"},
    **dict.fromkeys(WORDS, "string"),
    **dict.fromkeys(BYTES, "binary"),
}
GEOMETRY = ("GEOMETRY", "POINT", "LINESTRING", "POLYGON", "GEOMCOLLECTION", "GEOMETRYCOLLECTION")
GEOMETRIES = (*GEOMETRY, "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON")
DATED = ("DATE", "DATETIME", "TIMESTAMP")
MOST_DIGITS = 38


def lake_type(column: Column) -> str:
    """Spark type of *column* in a mirror; text for types Sluice does not know."""
    kind = column.kind
    if kind in WHOLE:
        return WHOLE_UNSIGNED[kind] if column.unsigned else WHOLE[kind]
    if kind == "BIGINT" and column.unsigned:
        return "decimal(20,0)"
    if kind == "DECIMAL":
        fits = column.digits <= MOST_DIGITS
        return f"decimal({column.digits},{column.fraction})" if fits else "string"
    if kind == "BIT":
        return "boolean" if column.width == 1 else "binary"
    return FIXED.get(kind, "string")


def unverifiable(column: Column, *, zero_dates: bool = False) -> str | None:
    """Why source and mirror cannot be compared in *column*; None if they can.

    *zero_dates*: the server's ``sql_mode`` lets ``0000-00-00`` in (no ``NO_ZERO_DATE``).
    """
    kind = column.kind
    if kind in GEOMETRIES:
        return f"{column.name}: geometry is kept as the collector's text and is not compared"
    if kind not in FIXED and kind not in WHOLE and kind not in ("DECIMAL", "BIT"):
        return f"{column.name}: type {column.type} is not known; it is kept as text, not compared"
    evident = (column.default or "").startswith("0000-00-00")
    if kind in DATED and (zero_dates or evident):
        return f"{column.name}: 0000-00-00 arrives as NULL or 1970-01-01, as if it were that"
    if kind == "YEAR":
        return f"{column.name}: the year 0000 arrives from a snapshot as 2000"
    if kind in ("ENUM", "SET") and any("?" in label for label in column.values):
        return f"{column.name}: a label the server writes as ? (outside utf8mb3) arrives as ?"
    return None


def rounded(column: Column) -> bool:
    """Whether a snapshot gets less than *column* holds: the server prints a FLOAT in six digits.

    One with a number of decimals, FLOAT(10,2), is printed with all of them.
    """
    return column.kind == "FLOAT" and column.scale is None
