"""Describes Postgres columns and their Spark types.

A column is described by its rows or by the catalog. Rows have the server's name of the type, or
a user's name (`MOOD`, `PRICE`), and the type in which values are sent. The catalog has the base
type. Both give the same `kind`. The type map is fixed: changing it breaks existing mirrors.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from pipeline.schema.decode import MOST_DIGITS
from pipeline.schema.model import Dialect, TableSchema

CATALOGUE = """
SELECT a.attname::text AS name, b.typname::text AS type, b.typtype::text AS made,
    CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END AS modifier,
    t.typtype = 'd' AS domain, a.attnotnull AS filled, pg_get_expr(d.adbin, d.adrelid) AS default,
    a.attgenerated <> '' AS computed, current_setting('server_encoding') AS encoding,
    EXISTS (SELECT FROM pg_inherits h JOIN pg_class p ON p.oid = h.inhparent
        WHERE h.inhparent = a.attrelid AND p.relkind = 'r') AS inherited
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
ONE_NAME = {
    **{"SERIAL": "INT4", "SERIAL4": "INT4", "BIGSERIAL": "INT8", "SERIAL8": "INT8"},
    **{"SMALLSERIAL": "INT2", "SERIAL2": "INT2", "CHARACTER": "BPCHAR", "CITEXT": "TEXT"},
}
KNOWN = frozenset(
    {
        *("BOOL", "INT2", "INT4", "INT8", "OID", "FLOAT4", "FLOAT8", "NUMERIC", "MONEY"),
        *("BPCHAR", "VARCHAR", "TEXT", "NAME", "BYTEA", "DATE", "TIME", "TIMETZ", "TIMESTAMP"),
        *("TIMESTAMPTZ", "INTERVAL", "UUID", "JSON", "JSONB", "XML", "INET", "CIDR", "MACADDR"),
        *("MACADDR8", "BIT", "VARBIT", "HSTORE", "LTREE", "TSVECTOR", "ARRAY", "ENUM"),
        *("INT4RANGE", "INT8RANGE", "NUMRANGE", "TSRANGE", "TSTZRANGE", "DATERANGE"),
    }
)
SENT = {  # type in which values of a user's type are sent -> its base type
    **{"boolean": "BOOL", "int16": "INT2", "int32": "INT4", "int64": "INT8"},
    **{"float": "FLOAT4", "double": "FLOAT8", "string": "TEXT", "array": "ARRAY"},
    "data.Enum": "ENUM",
    "time.Date": "DATE",
    **dict.fromkeys(("time.Time", "time.MicroTime"), "TIME"),
    "time.ZonedTime": "TIMETZ",
    **{f"time.{one}Timestamp": "TIMESTAMP" for one in ("", "Micro", "Nano")},
    "time.ZonedTimestamp": "TIMESTAMPTZ",
}
TEXTS = ("BPCHAR", "VARCHAR", "TEXT", "NAME")
ANY_SIZE = {2_147_483_647, 131_089, -1, 0}  # lengths that rows report for types without a size
MODIFIER = 4  # the catalog's modifier is the size plus this


@dataclass(frozen=True, slots=True)
class PostgresColumn:
    """A column as its rows or the catalog describe it.

    ``sent`` is the type on the wire, None from the catalog.  ``length`` is the digits of a NUMERIC,
    the characters of a text, or the bits; None if any number fits.  ``has_default`` is also true
    for a default that is not constant, if it is reported.  ``undigested`` is the reason why the
    server's values must not be compared, empty without one.
    """

    name: str
    type: str
    sent: str | None = None
    length: int | None = None
    scale: int | None = None
    nullable: bool = True
    has_default: bool = False
    position: int = 0
    values: tuple[str, ...] = ()
    undigested: str = ""

    @property
    def dialect(self) -> Dialect:
        from pipeline.sources.postgres.dialect import POSTGRES  # noqa: PLC0415  - it knows columns

        return POSTGRES

    @property
    def kind(self) -> str:
        """The canonical name of the type; the base type of a user's type."""
        name = ONE_NAME.get(self.type.upper(), self.type.upper())
        if name in KNOWN:
            return name
        if name.startswith("_"):
            return "ARRAY"
        return SENT.get(self.sent or "", name)

    @property
    def digits(self) -> int | None:
        """Digits of a NUMERIC; None if any number fits."""
        return self.length

    @property
    def fraction(self) -> int:
        """Digits after the point of a NUMERIC; may be negative, or more than ``digits``."""
        return self.scale or 0

    @property
    def shape(self) -> tuple[object, ...]:
        """The parts of the type that decide which values fit, without the unit of sent times."""
        kind = self.kind
        if kind == "NUMERIC":
            return (kind, self.length, self.scale if self.length is not None else None)
        if kind in ("BPCHAR", "VARCHAR", "BIT", "VARBIT"):
            return (kind, self.length)
        if kind == "ARRAY":
            return (kind, self.type.upper())
        return (kind,)

    def __str__(self) -> str:
        """Format the type as Postgres does: ``NUMERIC(10,2)``."""
        kind, *rest = self.shape
        numbers = ",".join(str(part) for part in rest if isinstance(part, int))
        name = f"{self.type.upper().removeprefix('_')}[]" if kind == "ARRAY" else kind
        return f"{name}({numbers})" if numbers else str(name)


def postgres_columns(schema: TableSchema) -> tuple[PostgresColumn, ...]:
    """The columns of *schema*, which must be Postgres's."""
    return cast("tuple[PostgresColumn, ...]", schema.columns)


def normalize_size(
    kind: str, length: int | None, scale: int | None
) -> tuple[int | None, int | None]:
    """Length and scale of a type; None if the type has none, even if they are reported."""
    one = ONE_NAME.get(kind.upper(), kind.upper())
    if one not in ("NUMERIC", "BPCHAR", "VARCHAR", "BIT", "VARBIT") or length in ANY_SIZE:
        return None, None
    return length, scale if one == "NUMERIC" else None


def read_column(row: Mapping[str, Any], position: int = 0) -> PostgresColumn:
    """Build the column of a *row* of ``CATALOGUE``.

    A domain of texts or numbers becomes text of any size, as rows report it.
    """
    kind = str(row["type"]).upper()
    if row["made"] == "e":
        kind = "ENUM"
    if row["domain"] and kind in (*TEXTS, "NUMERIC"):
        kind = "TEXT"
    length, scale = _of_modifier(kind, int(row["modifier"]))
    return PostgresColumn(
        name=str(row["name"]),
        type=kind,
        length=length,
        scale=scale,
        nullable=not row["filled"],
        has_default=row["default"] is not None,
        position=position,
        undigested=_undigested(row, str(row["type"]).upper(), kind),
    )


def _undigested(row: Mapping[str, Any], base: str, kind: str) -> str:
    """Why the server's values are not those of the log; *base* is the base type of a domain."""
    if row.get("inherited"):
        return "other tables inherit from its table, whose rows the server counts as its own"
    if row.get("computed"):
        return "it is computed, and no log shows that"
    if row["domain"] and base in ("BPCHAR", "NUMERIC"):
        return f"a domain over {'char' if base == 'BPCHAR' else 'numeric'} has no one spelling"
    if row.get("encoding") == "SQL_ASCII" and kind in (*TEXTS, "CITEXT", "ENUM"):
        return "the database has the encoding SQL_ASCII, so its texts are any bytes"
    return ""


def _of_modifier(kind: str, modifier: int) -> tuple[int | None, int | None]:
    if kind in ("BIT", "VARBIT"):
        return (None if modifier < 0 else modifier), None
    if modifier < MODIFIER:
        return None, None
    size = modifier - MODIFIER
    if kind == "NUMERIC":
        scale = size & 0x7FF  # eleven bits with a sign
        return size >> 16 & 0xFFFF, (scale ^ 1024) - 1024
    return (size, None) if kind in ("BPCHAR", "VARCHAR") else (None, None)


WHOLE = {"INT2": "smallint", "INT4": "int", "INT8": "bigint", "OID": "bigint"}
FIXED = {
    **{"BOOL": "boolean", "FLOAT4": "float", "FLOAT8": "double", "BYTEA": "binary"},
    **{"DATE": "date", "TIME": "bigint", "TIMESTAMP": "timestamp_ntz", "TIMESTAMPTZ": "timestamp"},
}
_EARLY = "a time before 1582-10-15 arrives some days early, and infinity"
LOST = {  # types with values that arrive changed
    "DATE": "infinity is kept as the last, -infinity as the first day of the lake",
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPTZ"), f"{_EARLY} is kept as the lake's last moment"),
    "MONEY": "money arrives as a double's text; make it NUMERIC",
    "VARBIT": "the leading zeros of a bit varying do not arrive",
    "ARRAY": "an array of more than one dimension arrives as NULLs",
}
LOSSY_ARRAYS = ("_FLOAT4", "_FLOAT8")


def lake_type(column: PostgresColumn) -> str:
    """Spark type of *column* in a mirror; text for types Sluice does not know."""
    kind = column.kind
    if kind in WHOLE:
        return WHOLE[kind]
    if kind == "NUMERIC":
        return f"decimal({column.digits},{column.fraction})" if is_decimal(column) else "string"
    if kind == "BIT" and column.length in (1, None):
        return "boolean"
    return FIXED.get(kind, "string")


def is_decimal(column: PostgresColumn) -> bool:
    """Whether every number that fits a NUMERIC fits a decimal of the lake; NaN fits none."""
    digits = column.digits
    return digits is not None and digits <= MOST_DIGITS and 0 <= column.fraction <= digits


def why_unverifiable(column: PostgresColumn) -> str | None:
    """Why *column* of source and mirror cannot be compared; None if it can."""
    name, kind = column.name, column.kind
    if column.type.upper() in LOSSY_ARRAYS:
        return f"{name}: a large array that an UPDATE leaves as it is arrives as NULL"
    if kind not in KNOWN:
        return f"{name}: type {column.type} is kept as the collector's text and is not compared"
    return f"{name}: {LOST[kind]}" if kind in LOST else None
