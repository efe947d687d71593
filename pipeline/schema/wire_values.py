"""Which value of a lake type is what was sent?  Null where it does not fit; nothing is rounded.

What the dialects of all sources read alike; texts and whole numbers as :mod:`pipeline.schema.wire`
gives them.  Pure.
"""

import binascii
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.schema.wire import HIGHEST, LOWEST

MOST_DIGITS = 38
FIRST_DAY, LAST_DAY = -719_528, 2_932_896  # 0000-01-01 and 9999-12-31: all that a lake holds
DAY = 86_400_000_000  # microseconds
FIRST, LAST = FIRST_DAY * DAY, (LAST_DAY + 1) * DAY - 1
WHOLE = r"^-?0*[0-9]{1,19}$"
NUMBER = r"^(-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|NaN|-?Infinity)$"
INSTANT = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})$"
)


def fitting(fits: pa.BooleanArray, wire: pa.Array) -> pa.Array:
    """*wire* where it *fits*, which is null where *wire* is."""
    if pc.all(fits, min_count=0).as_py():  # nulls do not count, and stay null
        return wire
    return pc.if_else(fits, wire, pa.scalar(None, wire.type))


def between(wire: pa.Array, low: pa.Scalar, high: pa.Scalar) -> pa.Array:
    """*wire* from *low* to *high*, both included."""
    return fitting(pc.and_(pc.greater_equal(wire, low), pc.less_equal(wire, high)), wire)


def whole(wire: pa.StringArray) -> pa.Int64Array:
    """Digits of whole numbers; by way of decimals, which hold more than 64 bits."""
    found = fitting(pc.match_substring_regex(wire, WHOLE), wire)
    wide = found.cast(pa.decimal128(MOST_DIGITS, 0))
    low, high = (pa.scalar(Decimal(edge), wide.type) for edge in (LOWEST, HIGHEST))
    return between(wide, low, high).cast(pa.int64())


def integer(wire: pa.Int64Array, kind: pa.DataType) -> pa.Array:
    """Whole numbers as one of the integer types."""
    edge = 2 ** (kind.bit_width - 1)
    low, high = (pa.scalar(one, pa.int64()) for one in (-edge, edge - 1))
    return between(wire, low, high).cast(kind)


def decimal(wire: pa.StringArray, kind: pa.DataType, digits: int, fraction: int) -> pa.Array:
    """A decimal's text, as *kind* if that is one; never rounded, so one digit too many is none.

    The digits are counted here: Arrow lets a number of 39 digits overflow.
    """
    before_point = digits - fraction
    before = rf"(0*[0-9]{{1,{before_point}}}|0+)" if before_point else "0+"
    after = rf"(\.[0-9]{{1,{fraction}}})?" if fraction else ""
    return fitting(pc.match_substring_regex(wire, f"^-?{before}{after}$"), wire).cast(kind)


def floating(wire: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """A number as it is written; what is too large for the type does not fit."""
    numbers = fitting(pc.match_substring_regex(wire, NUMBER), wire).cast(kind)
    fits = pc.or_(pc.invert(pc.is_inf(numbers)), pc.ends_with(wire, "Infinity"))
    return fitting(fits, numbers)


def flag(wire: pa.StringArray) -> pa.BooleanArray:
    """True and false, as words or digits."""
    true, false = (pc.is_in(wire, pa.array(words)) for words in (["true", "1"], ["false", "0"]))
    return fitting(pc.or_(true, false), true)


def data(wire: pa.StringArray) -> pa.BinaryArray:
    """Bytes out of base64."""
    return pa.array([base64(text) for text in wire.to_pylist()], pa.binary())


def base64(text: str | None) -> bytes | None:
    """Bytes of one text; None if it is no base64."""
    try:
        return None if text is None else binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        return None


def date(wire: pa.Int64Array) -> pa.Date32Array:
    """Days since 1970."""
    first, last = (pa.scalar(day, pa.int64()) for day in (FIRST_DAY, LAST_DAY))
    return between(wire, first, last).cast(pa.int32()).cast(pa.date32())


def moments(wire: pa.Int64Array, unit: int, kind: pa.DataType) -> pa.TimestampArray:
    """Moments since 1970 that count *unit* microseconds each."""
    first, last = (pa.scalar(edge // unit, pa.int64()) for edge in (FIRST, LAST))
    return pc.multiply(between(wire, first, last), unit).cast(kind)


def instants(wire: pa.StringArray, kind: pa.DataType) -> pa.TimestampArray:
    """ISO text with its zone; without one it would be no instant."""
    found = parsed(fitting(pc.match_substring_regex(wire, INSTANT), wire), kind)
    first, last = (pa.scalar(edge, pa.int64()).cast(kind) for edge in (FIRST, LAST))
    return between(found, first, last)


def parsed(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """Cast; null where a value cannot be, found by halves (a 30th of February)."""
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return pa.nulls(1, kind)
        half = len(texts) // 2
        return pa.concat_arrays([parsed(texts[:half], kind), parsed(texts[half:], kind)])
