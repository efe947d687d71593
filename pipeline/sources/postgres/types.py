"""Describes Postgres columns and converts wire values to the Arrow types of the mirror.

A column comes from its rows or from the catalog. Rows have the server's name of the type, or a
user's name (`MOOD`, `PRICE`), and how values are sent. The catalog has the base type. Both
resolve to one `kind`. The type map is fixed: a change of it breaks existing mirrors.

A value that does not fit becomes null; nothing is rounded, truncated or guessed. The rows say
in which unit a time is sent (`time.MicroTimestamp`). Measured: infinity arrives as one fixed
number per type, or as a word where the type has a time zone. Bits arrive lowest byte first.

Array texts follow section 8.15.6 of the Postgres manual: braces, commas, quotes where needed,
and NULL without quotes.
"""

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.schema.decode import (
    FIRST_DAY,
    LAST,
    LAST_DAY,
    MOST_DIGITS,
    ColumnReading,
    as_integer,
    as_sent,
    base64,
    data,
    date,
    decimal,
    flag,
    floating,
    instants,
    moments,
)
from pipeline.schema.model import Dialect, TableSchema, arrow_type
from pipeline.schema.wire import HIGHEST, LOWEST, SentAs

CATALOGUE = """
SELECT a.attname::text AS name, b.typname::text AS type, b.typtype::text AS made,
    CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END AS modifier,
    t.typtype = 'd' AS domain, a.attnotnull AS filled, pg_get_expr(d.adbin, d.adrelid) AS default
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
SENT = {  # what a type made by users is sent as -> what it is made of
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
ANY_SIZE = {2_147_483_647, 131_089, -1, 0}  # what is told of a type that names no size
MODIFIER = 4  # is added to every size in the catalogue's modifier


@dataclass(frozen=True, slots=True)
class PostgresColumn:
    """A column as its rows or the catalogue tell it.

    ``sent`` is what its values are sent as, None where the catalogue tells; ``length`` the digits
    of a NUMERIC, the characters of a text, the bits; None for any.  ``has_default`` as well where
    it is no constant, if that is told.
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

    @property
    def dialect(self) -> Dialect:
        """Postgres's."""
        from pipeline.sources.postgres.dialect import POSTGRES  # noqa: PLC0415  - it knows columns

        return POSTGRES

    @property
    def kind(self) -> str:
        """The type's one name; of one made by users, what it is made of."""
        name = ONE_NAME.get(self.type.upper(), self.type.upper())
        if name in KNOWN:
            return name
        if name.startswith("_"):
            return "ARRAY"
        return SENT.get(self.sent or "", name)

    @property
    def digits(self) -> int | None:
        """Of a NUMERIC; None if it holds any number of them."""
        return self.length

    @property
    def fraction(self) -> int:
        """Digits after the point of a NUMERIC; may be negative, or more than all."""
        return self.scale or 0

    @property
    def shape(self) -> tuple[object, ...]:
        """All of the type that decides which values fit; times are sent in one unit or another."""
        kind = self.kind
        if kind == "NUMERIC":
            return (kind, self.length, self.scale if self.length is not None else None)
        if kind in ("BPCHAR", "VARCHAR", "BIT", "VARBIT"):
            return (kind, self.length)
        if kind == "ARRAY":
            return (kind, self.type.upper())
        return (kind,)

    def __str__(self) -> str:
        """Render the type as Postgres would: ``NUMERIC(10,2)``."""
        kind, *rest = self.shape
        numbers = ",".join(str(part) for part in rest if isinstance(part, int))
        name = f"{self.type.upper().removeprefix('_')}[]" if kind == "ARRAY" else kind
        return f"{name}({numbers})" if numbers else str(name)


def postgres_columns(schema: TableSchema) -> tuple[PostgresColumn, ...]:
    """The columns of a schema that is Postgres's."""
    return cast("tuple[PostgresColumn, ...]", schema.columns)


def normalize_size(
    kind: str, length: int | None, scale: int | None
) -> tuple[int | None, int | None]:
    """Length and scale of a type, None where it has none, whatever is told."""
    one = ONE_NAME.get(kind.upper(), kind.upper())
    if one not in ("NUMERIC", "BPCHAR", "VARCHAR", "BIT", "VARBIT") or length in ANY_SIZE:
        return None, None
    return length, scale if one == "NUMERIC" else None


def read_column(row: Mapping[str, Any], position: int = 0) -> PostgresColumn:
    """The column that a *row* of ``CATALOGUE`` tells.

    Of a domain of texts or numbers rows tell texts of any size: so does this.
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
    )


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
LOST = {  # what does not arrive as it is
    "DATE": "infinity is kept as the last, -infinity as the first day of the lake",
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPTZ"), f"{_EARLY} is kept as the lake's last moment"),
    "MONEY": "money arrives as a double's text; make it NUMERIC",
    "VARBIT": "the zeros in front of a bit varying do not arrive",
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
    """Why source and mirror cannot be compared in *column*; None if they can."""
    name, kind = column.name, column.kind
    if column.type.upper() in LOSSY_ARRAYS:
        return f"{name}: a large array that an UPDATE leaves as it is arrives as NULL"
    if kind not in KNOWN:
        return f"{name}: type {column.type} is kept as the collector's text and is not compared"
    return f"{name}: {LOST[kind]}" if kind in LOST else None


FIRST = -62_135_596_800_000_000  # 0001-01-01, in microseconds
FIRST_OF_ALL = FIRST_DAY + 366  # the same day
LATEST, EARLIEST = 9_223_372_036_825_200_000, -9_223_372_036_832_400_000
LAST_DATE, FIRST_DATE = -2_147_472_692, -2_147_472_691  # infinity as days, 32 bits run over
LAST_DATES, FIRST_DATES = (2_146_033_979, -622_191_234), (-625_821_272,)  # since 3.7; no real days
UNITS = {"time.Timestamp": 1_000, "time.Time": 1_000}
NANO = ("time.NanoTimestamp", "time.NanoTime")
ISO = {"infinity": "9999-12-31T23:59:59.999999Z", "-infinity": "0001-01-01T00:00:00Z"}

# The calendar of JDBC has no 5th to 14th of October 1582: a snapshot sends a DATE of these days ten
# days later, the log sends it right (*measured*: Debezium 3.7).
SHIFTED = (datetime.date(1582, 10, 15), datetime.date(1582, 10, 25))

Reading = ColumnReading[PostgresColumn]


def wire_kind(column: PostgresColumn) -> SentAs:
    """How the values of *column* arrive."""
    return _reading(column).sent


def decode_values(column: PostgresColumn, wire: pa.Array) -> pa.Array:
    """Values of *column*'s Arrow type, as `ColumnReading.values` says."""
    return _reading(column).values(column, wire)


def find_altered_by_snapshot(column: PostgresColumn, typed: pa.Array) -> pa.BooleanArray | None:
    """Those days that a collector's snapshot sends for the ones ten days earlier, too.

    Of timestamps that early none is compared (``unverifiable``).
    """
    if column.kind != "DATE" or not pa.types.is_date(typed.type):
        return None
    first, until = (pa.scalar(one, typed.type) for one in SHIFTED)
    return pc.and_(pc.greater_equal(typed, first), pc.less(typed, until))


def _reading(column: PostgresColumn) -> Reading:
    if column.sent in NANO:
        return NONE
    if column.kind == "BIT":
        return FLAG if column.length in (1, None) else BITS
    if column.kind == "NUMERIC" and not is_decimal(column):
        return WORD
    return READINGS.get(column.kind, OTHER)


def _none(column: PostgresColumn, wire: pa.StringArray) -> pa.Array:
    """Finer than the lake's microseconds: nothing is cut."""
    return pa.nulls(len(wire), arrow_type(column))


def _decimal(column: PostgresColumn, wire: pa.StringArray) -> pa.Array:
    return decimal(wire, arrow_type(column), column.digits or 0, column.fraction)


def _float(column: PostgresColumn, wire: pa.StringArray) -> pa.Array:
    return floating(wire, arrow_type(column))


def _flag(_: PostgresColumn, wire: pa.StringArray) -> pa.BooleanArray:
    return flag(wire)


def _bytes(_: PostgresColumn, wire: pa.StringArray) -> pa.BinaryArray:
    return data(wire)


def _bits(column: PostgresColumn, wire: pa.StringArray) -> pa.StringArray:
    """As Postgres writes them, all of them told."""
    return pa.array([_bit_text(text, column.length or 1) for text in wire.to_pylist()], pa.string())


def _bit_text(text: str | None, length: int) -> str | None:
    found = base64(text)
    if found is None or int.from_bytes(found, "little") >= 1 << length:
        return None
    return f"{int.from_bytes(found, 'little'):0{length}b}"


def _date(_: PostgresColumn, wire: pa.Int64Array) -> pa.Date32Array:
    ends = [(told, LAST_DAY) for told in (LAST_DATE, *LAST_DATES)]
    return date(_ends(wire, *ends, *((t, FIRST_OF_ALL) for t in (FIRST_DATE, *FIRST_DATES))))


def _time(column: PostgresColumn, wire: pa.Int64Array) -> pa.Int64Array:
    return pc.multiply(wire, UNITS.get(column.sent or "", 1))


def _timestamp(column: PostgresColumn, wire: pa.Int64Array) -> pa.TimestampArray:
    unit = UNITS.get(column.sent or "", 1)
    latest = ((told, LAST // unit) for told in (LATEST, HIGHEST))
    known = _ends(wire, *latest, *((told, FIRST // unit) for told in (EARLIEST, LOWEST)))
    return moments(known, unit, arrow_type(column))


def _timestamptz(column: PostgresColumn, wire: pa.StringArray) -> pa.TimestampArray:
    for word, moment in ISO.items():
        wire = pc.if_else(pc.equal(wire, word), moment, wire)
    return instants(wire, arrow_type(column))


def _ends(wire: pa.Int64Array, *pairs: tuple[int, int]) -> pa.Int64Array:
    """With what stands for infinity as what the lake has for it."""
    for told, kept in pairs:
        wire = pc.if_else(pc.equal(wire, told), pa.scalar(kept, pa.int64()), wire)
    return wire


NONE = ColumnReading(SentAs.ANY, _none)
FLAG = ColumnReading(SentAs.ANY, _flag)
BITS = ColumnReading(SentAs.WORD, _bits)
WORD: Reading = ColumnReading(SentAs.WORD, as_sent)
OTHER: Reading = ColumnReading(SentAs.ANY, as_sent)
READINGS: Mapping[str, Reading] = {
    "BOOL": FLAG,
    **dict.fromkeys(("INT2", "INT4", "INT8", "OID"), ColumnReading(SentAs.WHOLE, as_integer)),
    **dict.fromkeys(("FLOAT4", "FLOAT8"), ColumnReading(SentAs.ANY, _float)),
    "NUMERIC": ColumnReading(SentAs.WORD, _decimal),
    "BYTEA": ColumnReading(SentAs.WORD, _bytes),
    "DATE": ColumnReading(SentAs.WHOLE, _date),
    "TIME": ColumnReading(SentAs.WHOLE, _time),
    "TIMESTAMP": ColumnReading(SentAs.WHOLE, _timestamp),
    "TIMESTAMPTZ": ColumnReading(SentAs.WORD, _timestamptz),
    **dict.fromkeys(("BPCHAR", "VARCHAR", "TEXT", "NAME", "ENUM", "UUID", "JSON", "JSONB"), WORD),
}


TOKEN = re.compile(r'[{},]|"((?:[^"\\]|\\.)*)"|((?:[^{},"\\]|\\.)+)', re.DOTALL)
ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def parse_array(text: str) -> list[Any]:
    """Texts, None for NULL; a list for each row of more than one dimension.

    Bounds other than from 1 on (``[0:1]={1,2}``) are left aside.
    """
    if text.startswith("["):
        text = text.partition("=")[2]
    stack: list[list[Any]] = [[]]
    for found in TOKEN.finditer(text):
        sign = found[0]
        if sign == "{":
            stack.append([])
        elif sign == "}":
            stack[-2].append(stack.pop())
        elif sign != ",":
            stack[-1].append(_value(found))
    (whole,) = stack[0]
    return list(whole)


def _value(found: re.Match[str]) -> str | None:
    if found[1] is not None:
        return ESCAPED.sub(r"\1", found[1])
    return None if found[2].upper() == "NULL" else ESCAPED.sub(r"\1", found[2])
