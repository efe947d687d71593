"""Converts wire values of Postgres columns to the Arrow types of the mirror.

A value that does not fit becomes null; nothing is rounded, truncated or guessed. The rows have
the unit of times (`time.MicroTimestamp`). Measured: infinity arrives as a fixed number per type,
or as a word if the type has a time zone. Bits arrive as little-endian bytes.

Array texts follow section 8.15.6 of the Postgres manual: braces, commas, quotes where needed,
and NULL without quotes.
"""

import datetime
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.schema.decode import (
    FIRST_DAY,
    LAST,
    LAST_DAY,
    ColumnReading,
    as_integer,
    as_sent,
    decode_base64,
    decode_bytes,
    parse_booleans,
    parse_decimals,
    parse_floats,
    parse_instants,
    to_dates,
    to_timestamps,
)
from pipeline.schema.model import arrow_type
from pipeline.schema.wire import HIGHEST, LOWEST, SentAs
from pipeline.sources.postgres.types import PostgresColumn, is_decimal

FIRST = -62_135_596_800_000_000  # 0001-01-01, in microseconds
FIRST_OF_ALL = FIRST_DAY + 366  # 0001-01-01, in days
LATEST, EARLIEST = 9_223_372_036_825_200_000, -9_223_372_036_832_400_000
LAST_DATE, FIRST_DATE = -2_147_472_692, -2_147_472_691  # infinity in days, overflowed 32 bits
LAST_DATES, FIRST_DATES = (2_146_033_979, -622_191_234), (-625_821_272,)  # since Debezium 3.7
UNITS = {"time.Timestamp": 1_000, "time.Time": 1_000}
NANO = ("time.NanoTimestamp", "time.NanoTime")
ISO = {"infinity": "9999-12-31T23:59:59.999999Z", "-infinity": "0001-01-01T00:00:00Z"}

# JDBC's calendar has no 5th to 14th of October 1582: a snapshot sends a DATE of these days ten
# days later; the log sends the correct one (*measured*: Debezium 3.7).
SHIFTED = (datetime.date(1582, 10, 15), datetime.date(1582, 10, 25))

Reading = ColumnReading[PostgresColumn]


def wire_kind(column: PostgresColumn) -> SentAs:
    """The kind in which the values of *column* arrive."""
    return _reading(column).sent


def decode_values(column: PostgresColumn, wire: pa.Array) -> pa.Array:
    """Decode values to the Arrow type of *column*; see `ColumnReading.values`."""
    return _reading(column).values(column, wire)


def find_altered_by_snapshot(column: PostgresColumn, typed: pa.Array) -> pa.BooleanArray | None:
    """Which dates a snapshot may have shifted by ten days; None if it shifts none.

    Timestamps that early are not compared (`why_unverifiable`).
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
    """Return nulls: nanoseconds do not fit the lake's microseconds, and are not truncated."""
    return pa.nulls(len(wire), arrow_type(column))


def _decimal(column: PostgresColumn, wire: pa.StringArray) -> pa.Array:
    return parse_decimals(wire, arrow_type(column), column.digits or 0, column.fraction)


def _float(column: PostgresColumn, wire: pa.StringArray) -> pa.Array:
    return parse_floats(wire, arrow_type(column))


def _flag(_: PostgresColumn, wire: pa.StringArray) -> pa.BooleanArray:
    return parse_booleans(wire)


def _bytes(_: PostgresColumn, wire: pa.StringArray) -> pa.BinaryArray:
    return decode_bytes(wire)


def _bits(column: PostgresColumn, wire: pa.StringArray) -> pa.StringArray:
    """Decode bits to Postgres's text, with leading zeros."""
    return pa.array([_bit_text(text, column.length or 1) for text in wire.to_pylist()], pa.string())


def _bit_text(text: str | None, length: int) -> str | None:
    found = decode_base64(text)
    if found is None or int.from_bytes(found, "little") >= 1 << length:
        return None
    return f"{int.from_bytes(found, 'little'):0{length}b}"


def _date(_: PostgresColumn, wire: pa.Int64Array) -> pa.Date32Array:
    ends = [(sent, LAST_DAY) for sent in (LAST_DATE, *LAST_DATES)]
    return to_dates(_ends(wire, *ends, *((t, FIRST_OF_ALL) for t in (FIRST_DATE, *FIRST_DATES))))


def _time(column: PostgresColumn, wire: pa.Int64Array) -> pa.Int64Array:
    return pc.multiply(wire, UNITS.get(column.sent or "", 1))


def _timestamp(column: PostgresColumn, wire: pa.Int64Array) -> pa.TimestampArray:
    unit = UNITS.get(column.sent or "", 1)
    latest = ((sent, LAST // unit) for sent in (LATEST, HIGHEST))
    known = _ends(wire, *latest, *((sent, FIRST // unit) for sent in (EARLIEST, LOWEST)))
    return to_timestamps(known, unit, arrow_type(column))


def _timestamptz(column: PostgresColumn, wire: pa.StringArray) -> pa.TimestampArray:
    for word, moment in ISO.items():
        wire = pc.if_else(pc.equal(wire, word), moment, wire)
    return parse_instants(wire, arrow_type(column))


def _ends(wire: pa.Int64Array, *pairs: tuple[int, int]) -> pa.Int64Array:
    """Replace the wire values of infinity with those of the lake."""
    for sent, kept in pairs:
        wire = pc.if_else(pc.equal(wire, sent), pa.scalar(kept, pa.int64()), wire)
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
    """The elements of an array: texts, None for NULL, and lists if it has several dimensions.

    Explicit bounds (``[0:1]={1,2}``) are ignored.
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
