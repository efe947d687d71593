"""How does one value in Debezium's JSON become a value of its lake type?

Read as text first, so that no number passes through a double on its way; NULL where it does not
fit.  The connector must send DECIMAL as text, BIGINT UNSIGNED precisely, and times adaptively in
microseconds: in other modes the same numbers mean something else.
"""

from collections.abc import Callable

from pyspark.sql import Column as Spark
from pyspark.sql import functions as F

from pipeline.schema.column import Column
from pipeline.schema.typemap import BYTES, lake_type

YEAR_ZERO = 1900  # how the log's year 0000 arrives; no other year is sent as 1900
MILLIS = 3  # fractions up to this many digits arrive as milliseconds

Reader = Callable[[Column, Spark], Spark]


def value(column: Column, wire: Spark) -> Spark:
    """Typed value of *column* from the *wire*'s text; NULL where it does not fit."""
    return _reader(column)(column, wire).alias(column.name)


def _reader(column: Column) -> Reader:
    kind = column.kind
    if kind in BYTES:
        return _bytes
    if kind == "BIGINT" and column.unsigned:
        return _unsigned
    return READERS.get(kind, _plain)


def _plain(column: Column, wire: Spark) -> Spark:
    """Text, and numbers that are written as Spark reads them."""
    kind = lake_type(column)
    return wire if kind == "string" else wire.try_cast(kind)


def _tiny(column: Column, wire: Spark) -> Spark:
    """A TINYINT(1) declared as BOOL arrives as a boolean, but not from a snapshot."""
    number = F.when(wire == "true", 1).when(wire == "false", 0)
    return F.coalesce(wire.try_cast(lake_type(column)), number.cast(lake_type(column)))


def _unsigned(column: Column, wire: Spark) -> Spark:
    """Digits, or the base64 of a number's big-endian bytes.

    The two cannot be confused: base64 that begins with a digit would be a negative number.
    """
    digits = wire.rlike(r"^[0-9]+$")
    data = F.try_to_binary(wire, F.lit("base64"))
    number = F.conv(F.hex(data), 16, 10).try_cast(lake_type(column))
    first = F.hex(F.substring(data, 1, 1))
    fits = F.when(F.octet_length(data) > 8, first == "00").otherwise(first < "80")
    fits = fits & (F.octet_length(data) <= 9)
    return F.when(digits, wire.try_cast(lake_type(column))).when(fits, number)


def _decimal(column: Column, wire: Spark) -> Spark:
    """A decimal's text; never rounded, so one digit too many is a misread."""
    fits = wire.rlike(
        rf"^-?[0-9]+(\.[0-9]{{1,{column.fraction}}})?$" if column.fraction else WHOLES
    )
    return F.when(fits, _plain(column, wire))


WHOLES = r"^-?[0-9]+$"


def _bit(column: Column, wire: Spark) -> Spark:
    """BIT(1) is a boolean; more bits come as little-endian bytes and are kept big-endian."""
    if column.width == 1:
        return F.when(wire.isin("true", "1"), True).when(wire.isin("false", "0"), False)
    data, size = F.try_to_binary(wire, F.lit("base64")), (column.width + 7) // 8
    turned = F.concat(*(F.substring(data, at, 1) for at in range(size, 0, -1)))
    return F.when(F.octet_length(data) == size, turned)


def _date(_: Column, wire: Spark) -> Spark:
    return F.date_from_unix_date(wire.try_cast("int"))


def _datetime(column: Column, wire: Spark) -> Spark:
    """Milliseconds or microseconds since 1970, by the column's fraction; no time zone."""
    count = wire.try_cast("bigint")
    unit = "MILLISECOND" if column.fraction <= MILLIS else "MICROSECOND"
    return F.timestamp_add(unit, count, F.lit("1970-01-01").cast("timestamp_ntz"))


def _year(_: Column, wire: Spark) -> Spark:
    year = wire.try_cast("int")
    return F.when(year == YEAR_ZERO, 0).otherwise(year)


def _bytes(_: Column, wire: Spark) -> Spark:
    return F.try_to_binary(wire, F.lit("base64"))


READERS: dict[str, Reader] = {
    "TINYINT": _tiny,
    "DECIMAL": _decimal,
    "BIT": _bit,
    "DATE": _date,
    "DATETIME": _datetime,
    "YEAR": _year,
}
