"""How do a column's values, as they were sent, become values of its lake type?

Null where one does not fit: nothing is rounded, cut or guessed.  The connector must send DECIMAL
as text, BIGINT UNSIGNED precisely, and times adaptively in microseconds: in other modes the same
numbers mean something else.  Pure.
"""

from collections.abc import Mapping
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.schema.decode import (
    ColumnReading,
    as_integer,
    as_sent,
    base64,
    data,
    date,
    decimal,
    fitting,
    flag,
    floating,
    instants,
    moments,
    whole,
)
from pipeline.schema.model import Notation, arrow_type
from pipeline.schema.wire import SentAs
from pipeline.sources.mysql.column import MySqlColumn as Column
from pipeline.sources.mysql.labels import labels
from pipeline.sources.mysql.notations import to_connect
from pipeline.sources.mysql.typemap import BYTES, TEXTS
from pipeline.sources.mysql.wire_text import MILLIS, YEAR_ZERO

UNSIGNED_BYTES = 8

# A collector's snapshot reads by JDBC, whose calendar has no 5th to 14th of October 1582: a
# DATETIME of these days arrives ten days later.  A DATE does not, nor does any value of the log
# (*measured*: Debezium 3.5).
SHIFTED = (datetime(1582, 10, 15), datetime(1582, 10, 25))  # noqa: DTZ001 - of no zone

Reading = ColumnReading[Column]


def sent(column: Column) -> SentAs:
    """How the values of *column* arrive."""
    return _reading(column).sent if column.notation is Notation.CONNECT else SentAs.ANY


def values(column: Column, wire: pa.Array) -> pa.Array:
    """Values of *column*'s Arrow type, as `ColumnReading.values` says."""
    return _reading(column).values(column, to_connect(column, wire))


def altered_by_snapshot(column: Column, values: pa.Array) -> pa.BooleanArray | None:
    """Those *values* of the lake's type that a collector's snapshot may have shifted."""
    if column.kind != "DATETIME" or column.notation is not Notation.CONNECT:
        return None
    first, until = (pa.scalar(one, values.type) for one in SHIFTED)
    return pc.and_(pc.greater_equal(values, first), pc.less(values, until))


def _reading(column: Column) -> Reading:
    kind = column.kind
    if kind == "BIGINT" and column.unsigned:
        return UNSIGNED
    if kind == "BIT" and column.width == 1:
        return FLAG
    return READINGS.get(kind, OTHER)


def _tiny(column: Column, wire: pa.StringArray) -> pa.Array:
    """A TINYINT(1) declared as BOOL arrives as a boolean, but not from a snapshot."""
    digit = pc.if_else(pc.equal(wire, "true"), "1", pc.if_else(pc.equal(wire, "false"), "0", wire))
    return as_integer(column, whole(digit))


def _unsigned(column: Column, wire: pa.StringArray) -> pa.Array:
    """Digits, or the base64 of a number's big-endian bytes.

    The two cannot be confused: base64 that begins with a digit would be a negative number.
    """
    digits = pc.match_substring_regex(wire, "^[0-9]+$")
    coded = fitting(pc.invert(digits), wire).to_pylist()
    numbers = pa.array([_natural(text) for text in coded], arrow_type(column))
    return pc.coalesce(numbers, _decimal(column, fitting(digits, wire)))


def _natural(text: str | None) -> int | None:
    found = base64(text)
    if not found or len(found) > UNSIGNED_BYTES + 1:
        return None
    number = int.from_bytes(found, "big", signed=True)
    return number if 0 <= number < 2 ** (8 * UNSIGNED_BYTES) else None


def _decimal(column: Column, wire: pa.StringArray) -> pa.Array:
    kind = arrow_type(column)
    known = pa.types.is_decimal(kind)
    digits, fraction = (kind.precision, kind.scale) if known else (column.digits, column.fraction)
    return decimal(wire, kind, digits, fraction)


def _float(column: Column, wire: pa.StringArray) -> pa.Array:
    return floating(wire, arrow_type(column))


def _flag(_: Column, wire: pa.StringArray) -> pa.BooleanArray:
    return flag(wire)


def _bits(column: Column, wire: pa.StringArray) -> pa.BinaryArray:
    """Bits come as little-endian bytes and are kept big-endian."""
    size = (column.width + 7) // 8
    found = (base64(text) for text in wire.to_pylist())
    turned = [bits[::-1] if bits is not None and len(bits) == size else None for bits in found]
    return pa.array(turned, pa.binary())


def _bytes(_: Column, wire: pa.StringArray) -> pa.BinaryArray:
    return data(wire)


def _date(_: Column, wire: pa.Int64Array) -> pa.Date32Array:
    return date(wire)


def _datetime(column: Column, wire: pa.Int64Array) -> pa.TimestampArray:
    """Milliseconds or microseconds since 1970, by the column's fraction; no time zone."""
    return moments(wire, 1_000 if column.fraction <= MILLIS else 1, arrow_type(column))


def _timestamp(column: Column, wire: pa.StringArray) -> pa.TimestampArray:
    return instants(wire, arrow_type(column))


def _year(column: Column, wire: pa.Int64Array) -> pa.Array:
    return as_integer(column, pc.if_else(pc.equal(wire, YEAR_ZERO), 0, wire))


UNSIGNED = ColumnReading(SentAs.ANY, _unsigned)
FLAG = ColumnReading(SentAs.ANY, _flag)
OTHER: Reading = ColumnReading(SentAs.ANY, as_sent)
READINGS: Mapping[str, Reading] = {
    "TINYINT": ColumnReading(SentAs.ANY, _tiny),
    **dict.fromkeys(
        ("SMALLINT", "MEDIUMINT", "INT", "BIGINT"), ColumnReading(SentAs.WHOLE, as_integer)
    ),
    "TIME": ColumnReading(SentAs.WHOLE, as_integer),
    "YEAR": ColumnReading(SentAs.WHOLE, _year),
    "DATE": ColumnReading(SentAs.WHOLE, _date),
    "DATETIME": ColumnReading(SentAs.WHOLE, _datetime),
    "TIMESTAMP": ColumnReading(SentAs.WORD, _timestamp),
    "DECIMAL": ColumnReading(SentAs.WORD, _decimal),
    **dict.fromkeys(("FLOAT", "DOUBLE"), ColumnReading(SentAs.ANY, _float)),
    "BIT": ColumnReading(SentAs.WORD, _bits),
    **dict.fromkeys(("ENUM", "SET"), ColumnReading(SentAs.WORD, labels)),
    **dict.fromkeys((*TEXTS, "JSON"), ColumnReading(SentAs.WORD, as_sent)),
    **dict.fromkeys(BYTES, ColumnReading(SentAs.WORD, _bytes)),
}
