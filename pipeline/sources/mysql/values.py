"""How do a column's values, as they were sent, become values of its lake type?

Null where one does not fit: nothing is rounded, cut or guessed.  The connector must send DECIMAL
as text, BIGINT UNSIGNED precisely, and times adaptively in microseconds: in other modes the same
numbers mean something else.  Pure.
"""

import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.schema.arrow_types import arrow_type
from pipeline.schema.wire import HIGHEST, LOWEST, SentAs
from pipeline.sources.mysql.column import MySqlColumn as Column
from pipeline.sources.mysql.labels import labels
from pipeline.sources.mysql.typemap import BYTES, MOST_DIGITS, TEXTS

YEAR_ZERO = 1900  # how the log's year 0000 arrives; no other year is sent as 1900
MILLIS = 3  # fractions up to this many digits arrive as milliseconds
FIRST_DAY, LAST_DAY = -719_528, 2_932_896  # 0000-01-01 and 9999-12-31: all that MySQL holds
DAY = 86_400_000_000  # microseconds
FIRST, LAST = FIRST_DAY * DAY, (LAST_DAY + 1) * DAY - 1
UNSIGNED_BYTES = 8
WHOLE = r"^-?0*[0-9]{1,19}$"
NUMBER = r"^(-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|NaN|-?Infinity)$"
INSTANT = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})$"
)

Read = Callable[[Column, pa.Array], pa.Array]


@dataclass(frozen=True, slots=True)
class ColumnReading:
    """How a kind of column is sent, and what becomes of it: int64 or text -> its lake type."""

    sent: SentAs
    read: Read


def sent(column: Column) -> SentAs:
    """How the values of *column* arrive."""
    return _reading(column).sent


def values(column: Column, wire: pa.Array) -> pa.Array:
    """Values of *column*'s Arrow type, null where the *wire*'s does not fit.

    In: texts; where whole numbers are expected, int64 as well.
    """
    reading = _reading(column)
    if reading.sent is SentAs.WHOLE and pa.types.is_string(wire.type):
        wire = _whole(wire)
    return reading.read(column, wire)


def _reading(column: Column) -> ColumnReading:
    kind = column.kind
    if kind == "BIGINT" and column.unsigned:
        return UNSIGNED
    if kind == "BIT" and column.width == 1:
        return FLAG
    return READINGS.get(kind, OTHER)


def _as_sent(_: Column, wire: pa.StringArray) -> pa.StringArray:
    return wire


def _whole(wire: pa.StringArray) -> pa.Int64Array:
    """Digits of whole numbers; by way of decimals, which hold more than 64 bits."""
    wide = _where(pc.match_substring_regex(wire, WHOLE), wire).cast(pa.decimal128(MOST_DIGITS, 0))
    low, high = (pa.scalar(Decimal(edge), wide.type) for edge in (LOWEST, HIGHEST))
    return _between(wide, low, high).cast(pa.int64())


def _integer(column: Column, wire: pa.Int64Array) -> pa.Array:
    kind = arrow_type(column)
    edge = 2 ** (kind.bit_width - 1)
    return _between(wire, pa.scalar(-edge, pa.int64()), pa.scalar(edge - 1, pa.int64())).cast(kind)


def _tiny(column: Column, wire: pa.StringArray) -> pa.Array:
    """A TINYINT(1) declared as BOOL arrives as a boolean, but not from a snapshot."""
    digit = pc.if_else(pc.equal(wire, "true"), "1", pc.if_else(pc.equal(wire, "false"), "0", wire))
    return _integer(column, _whole(digit))


def _unsigned(column: Column, wire: pa.StringArray) -> pa.Array:
    """Digits, or the base64 of a number's big-endian bytes.

    The two cannot be confused: base64 that begins with a digit would be a negative number.
    """
    digits = pc.match_substring_regex(wire, "^[0-9]+$")
    coded = _where(pc.invert(digits), wire).to_pylist()
    numbers = pa.array([_natural(text) for text in coded], arrow_type(column))
    return pc.coalesce(numbers, _decimal(column, _where(digits, wire)))


def _natural(text: str | None) -> int | None:
    data = _base64(text)
    if not data or len(data) > UNSIGNED_BYTES + 1:
        return None
    number = int.from_bytes(data, "big", signed=True)
    return number if 0 <= number < 2 ** (8 * UNSIGNED_BYTES) else None


def _decimal(column: Column, wire: pa.StringArray) -> pa.Array:
    """A decimal's text; never rounded, so one digit too many is a misread.

    The digits are counted here: Arrow lets a number of 39 digits overflow.
    """
    kind = arrow_type(column)
    known = pa.types.is_decimal(kind)
    digits, fraction = (kind.precision, kind.scale) if known else (column.digits, column.fraction)
    whole = digits - fraction
    before = rf"(0*[0-9]{{1,{whole}}}|0+)" if whole else "0+"
    after = rf"(\.[0-9]{{1,{fraction}}})?" if fraction else ""
    return _where(pc.match_substring_regex(wire, f"^-?{before}{after}$"), wire).cast(kind)


def _float(column: Column, wire: pa.StringArray) -> pa.Array:
    """A number as it is written; what is too large for the type does not fit."""
    numbers = _where(pc.match_substring_regex(wire, NUMBER), wire).cast(arrow_type(column))
    fits = pc.or_(pc.invert(pc.is_inf(numbers)), pc.ends_with(wire, "Infinity"))
    return _where(fits, numbers)


def _flag(_: Column, wire: pa.StringArray) -> pa.BooleanArray:
    true, false = (pc.is_in(wire, pa.array(words)) for words in (["true", "1"], ["false", "0"]))
    return _where(pc.or_(true, false), true)


def _bits(column: Column, wire: pa.StringArray) -> pa.BinaryArray:
    """Bits come as little-endian bytes and are kept big-endian."""
    size = (column.width + 7) // 8
    data = (_base64(text) for text in wire.to_pylist())
    turned = [bits[::-1] if bits is not None and len(bits) == size else None for bits in data]
    return pa.array(turned, pa.binary())


def _bytes(_: Column, wire: pa.StringArray) -> pa.BinaryArray:
    return pa.array([_base64(text) for text in wire.to_pylist()], pa.binary())


def _base64(text: str | None) -> bytes | None:
    try:
        return None if text is None else binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        return None


def _date(_: Column, wire: pa.Int64Array) -> pa.Date32Array:
    first, last = (pa.scalar(day, pa.int64()) for day in (FIRST_DAY, LAST_DAY))
    return _between(wire, first, last).cast(pa.int32()).cast(pa.date32())


def _datetime(column: Column, wire: pa.Int64Array) -> pa.TimestampArray:
    """Milliseconds or microseconds since 1970, by the column's fraction; no time zone."""
    unit = 1_000 if column.fraction <= MILLIS else 1
    first, last = (pa.scalar(edge // unit, pa.int64()) for edge in (FIRST, LAST))
    return pc.multiply(_between(wire, first, last), unit).cast(arrow_type(column))


def _timestamp(column: Column, wire: pa.StringArray) -> pa.TimestampArray:
    """ISO text with its zone; without one it would be no instant."""
    kind = arrow_type(column)
    moments = _cast(_where(pc.match_substring_regex(wire, INSTANT), wire), kind)
    first, last = (pa.scalar(edge, pa.int64()).cast(kind) for edge in (FIRST, LAST))
    return _between(moments, first, last)


def _cast(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """Cast; null where a value cannot be, found by halves (a 30th of February)."""
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return pa.nulls(1, kind)
        half = len(texts) // 2
        return pa.concat_arrays([_cast(texts[:half], kind), _cast(texts[half:], kind)])


def _year(column: Column, wire: pa.Int64Array) -> pa.Array:
    return _integer(column, pc.if_else(pc.equal(wire, YEAR_ZERO), 0, wire))


def _between(wire: pa.Array, low: pa.Scalar, high: pa.Scalar) -> pa.Array:
    return _where(pc.and_(pc.greater_equal(wire, low), pc.less_equal(wire, high)), wire)


def _where(fits: pa.BooleanArray, wire: pa.Array) -> pa.Array:
    if pc.all(fits, min_count=0).as_py():  # nulls do not count, and stay null
        return wire
    return pc.if_else(fits, wire, pa.scalar(None, wire.type))


UNSIGNED = ColumnReading(SentAs.ANY, _unsigned)
FLAG = ColumnReading(SentAs.ANY, _flag)
OTHER = ColumnReading(SentAs.ANY, _as_sent)
READINGS: Mapping[str, ColumnReading] = {
    "TINYINT": ColumnReading(SentAs.ANY, _tiny),
    **dict.fromkeys(
        ("SMALLINT", "MEDIUMINT", "INT", "BIGINT"), ColumnReading(SentAs.WHOLE, _integer)
    ),
    "TIME": ColumnReading(SentAs.WHOLE, _integer),
    "YEAR": ColumnReading(SentAs.WHOLE, _year),
    "DATE": ColumnReading(SentAs.WHOLE, _date),
    "DATETIME": ColumnReading(SentAs.WHOLE, _datetime),
    "TIMESTAMP": ColumnReading(SentAs.WORD, _timestamp),
    "DECIMAL": ColumnReading(SentAs.WORD, _decimal),
    **dict.fromkeys(("FLOAT", "DOUBLE"), ColumnReading(SentAs.ANY, _float)),
    "BIT": ColumnReading(SentAs.WORD, _bits),
    **dict.fromkeys(("ENUM", "SET"), ColumnReading(SentAs.WORD, labels)),
    **dict.fromkeys((*TEXTS, "JSON"), ColumnReading(SentAs.WORD, _as_sent)),
    **dict.fromkeys(BYTES, ColumnReading(SentAs.WORD, _bytes)),
}
