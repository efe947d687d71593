"""Which value of its lake type did the source put into old rows when it added a column?  Pure."""

import math
from datetime import datetime
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

import pyarrow as pa

from pipeline.schema.model import arrow_type
from pipeline.sources.mysql.column import MySqlColumn as Column
from pipeline.sources.mysql.constants import Value, constant

WHOLE_DIGITS = 20  # of the highest BIGINT UNSIGNED


def default_scalar(column: Column) -> pa.Scalar:
    """The constant default as a value of the column's Arrow type; null where there is none.

    Raises:
        ValueError: as :func:`.constants.constant`; or the default does not fit.
    """
    value, kind = constant(column), arrow_type(column)
    if value is None:
        return pa.scalar(None, kind)
    try:
        return pa.scalar(_fitted(column, value, kind), kind)
    except (pa.ArrowInvalid, OverflowError, InvalidOperation) as error:
        msg = f"its default {column.default!r} does not fit its type"
        raise ValueError(msg) from error


def _fitted(column: Column, value: Value, kind: pa.DataType) -> object:
    """What Arrow takes for the type; a number in text becomes one."""
    if column.kind == "DATETIME":
        return datetime.fromisoformat(str(value))
    if not isinstance(value, str):
        return value
    if column.kind == "DECIMAL":
        number = _rounded(value, column.digits, column.fraction)
        return number if pa.types.is_decimal(kind) else format(number, "f")
    if pa.types.is_floating(kind):
        return _finite(pa.scalar(value).cast(kind).as_py())
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return int(_rounded(value, WHOLE_DIGITS, 0))
    return value


def _rounded(text: str, digits: int, fraction: int) -> Decimal:
    """As a server rounds it; with an exponent it is a double there, and must be exact."""
    number = Decimal(text)
    held = Context(prec=digits, rounding=ROUND_HALF_UP)
    rounded = held.quantize(number, Decimal(1).scaleb(-fraction))
    if "e" in text.lower() and rounded != number:
        raise InvalidOperation
    return rounded


def _finite(number: float) -> float:
    if math.isinf(number):
        raise OverflowError
    return number
