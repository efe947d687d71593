"""How would the log send a value that a query returned?  The inverse of `values`, as text.

In come a server's own texts, or bytes, as its protocol has them; out come the texts that the
collector writes for the same value, so that a row read here and one from the log are one row under
one key.  An ENUM or SET comes as its label, JSON in the server's own spelling, as from a snapshot.
A FLOAT must be asked for as a double, or the server rounds it.  Pure.
"""

import binascii
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from struct import unpack_from

import numpy as np

from pipeline.sources.mysql.column import MySqlColumn as Column
from pipeline.sources.mysql.typemap import BYTES, GEOMETRIES
from pipeline.sources.wire_texts import WireTexts, rows_of

Raw = str | bytes | None
MICROS = 1_000_000
MILLIS = 3  # fractions up to this many digits are sent as milliseconds
YEAR_ZERO = 1900  # how the log's year 0000 is sent; no other year is sent as 1900
POINT_AT = 9  # bytes before a point's x in its WKB: byte order and type


Tell = Callable[[Column, Sequence[Raw]], list[str | None]]


def wire_texts(column: Column, raw: Sequence[Raw]) -> WireTexts:
    """How the values of *column* are sent."""
    kind = column.kind
    if kind == "BIGINT" and column.unsigned:
        return WireTexts(_naturals(column, raw), quoted=True)
    if kind == "BIT" and column.width == 1:
        return WireTexts([None if v is None else _truth(v) for v in raw], quoted=False)
    quoted, tell = TELLING.get(kind, (True, _plain))
    return WireTexts(tell(column, raw), quoted)


def images(columns: Sequence[Column], raw: Sequence[Sequence[Raw]]) -> list[str]:
    """Each row as a JSON object; *raw* are the columns' values."""
    told = [wire_texts(c, values) for c, values in zip(columns, raw, strict=True)]
    return rows_of([column.name for column in columns], told)


def _plain(_: Column, raw: Sequence[Raw]) -> list[str | None]:
    return [
        value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in raw
    ]


def _numbers(column: Column, raw: Sequence[Raw]) -> list[str | None]:
    if "ZEROFILL" not in column.type.upper():
        return _plain(column, raw)
    return [None if value is None else str(int(value)) for value in raw]


def _decimals(column: Column, raw: Sequence[Raw]) -> list[str | None]:
    if "ZEROFILL" not in column.type.upper():
        return _plain(column, raw)
    return [None if text is None else format(Decimal(text), "f") for text in _plain(column, raw)]


def _naturals(_: Column, raw: Sequence[Raw]) -> list[str | None]:
    """Base64 of the big-endian bytes of a signed number, as few as it needs."""
    return [None if value is None else _base64(_bytes_of(int(value))) for value in raw]


def _bytes_of(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "big")


def _truth(value: str | bytes) -> str:
    return "true" if value in (b"\x01", "1", "\x01") else "false"


def _bits(_: Column, raw: Sequence[Raw]) -> list[str | None]:
    return [None if value is None else _base64(_octets(value)[::-1]) for value in raw]


def _binary(_: Column, raw: Sequence[Raw]) -> list[str | None]:
    return [None if value is None else _base64(_octets(value)) for value in raw]


def _octets(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("latin-1")


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def _years(_: Column, raw: Sequence[Raw]) -> list[str | None]:
    return [None if value is None else str(int(value) or YEAR_ZERO) for value in raw]


def _dates(column: Column, raw: Sequence[Raw]) -> list[str | None]:
    return _counted(column, raw, "D")


def _datetimes(column: Column, raw: Sequence[Raw]) -> list[str | None]:
    return _counted(column, raw, "ms" if column.fraction <= MILLIS else "us")


def _counted(column: Column, raw: Sequence[Raw], unit: str) -> list[str | None]:
    """Days, milliseconds or microseconds since 1970; a day that is none is sent as if it were 0."""
    texts = _plain(column, raw)
    days = [None if text is None or not _is_day(text) else text for text in texts]
    counts = np.array(["NaT" if day is None else day for day in days], f"datetime64[{unit}]")
    numbers = counts.astype(np.int64).tolist()
    none = None if column.nullable else "0"
    told = zip(texts, days, numbers, strict=True)
    return [None if t is None else none if d is None else str(n) for t, d, n in told]


def _is_day(text: str) -> bool:
    """Whether a date exists: the server lets in days, and months, of the number 0."""
    return text[5:7] != "00" and text[8:10] != "00" and _exists(text[:10])


def _exists(day: str) -> bool:
    if day[8:] <= "28":
        return True
    try:
        np.datetime64(day)
    except ValueError:  # a 30th of February, which ALLOW_INVALID_DATES lets in
        return False
    return True


def _timestamps(column: Column, raw: Sequence[Raw]) -> list[str | None]:
    none = None if column.nullable else "1970-01-01T00:00:00Z"
    return [
        None if text is None else f"{text[:10]}T{_short(text[11:])}Z" if _is_day(text) else none
        for text in _plain(column, raw)
    ]


def _short(clock: str) -> str:
    """A time as it is sent: without a fraction that is 0, else in three digits or six."""
    seconds, _, fraction = clock.partition(".")
    digits = fraction.rstrip("0")
    return seconds if not digits else f"{seconds}.{digits.ljust(3 if len(digits) <= 3 else 6, '0')}"


def _times(column: Column, raw: Sequence[Raw]) -> list[str | None]:
    return [None if text is None else str(_micros(text)) for text in _plain(column, raw)]


def _micros(text: str) -> int:
    sign, clock = (-1, text[1:]) if text.startswith("-") else (1, text)
    hours, minutes, seconds = clock.split(":")
    whole, _, fraction = seconds.partition(".")
    total = (int(hours) * 60 + int(minutes)) * 60 + int(whole)
    return sign * (total * MICROS + int(fraction.ljust(6, "0") or 0))


def _shapes(column: Column, raw: Sequence[Raw]) -> list[str | None]:
    """Geometry: the server puts its reference system's number before the WKB."""
    return [None if value is None else _shape(column, _octets(value)) for value in raw]


def _shape(column: Column, data: bytes) -> str:
    (system,), wkb = unpack_from("<I", data), data[4:]
    told = f'"wkb":"{_base64(wkb)}","srid":{system or "null"}'
    if column.kind != "POINT":
        return f"{{{told}}}"
    x, y = unpack_from("<dd" if wkb[0] else ">dd", wkb, POINT_AT - 4)
    return f'{{"x":{x!r},"y":{y!r},{told}}}'


TELLING: Mapping[str, tuple[bool, Tell]] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT"), (False, _numbers)),
    **dict.fromkeys(("FLOAT", "DOUBLE"), (False, _plain)),
    "DECIMAL": (True, _decimals),
    "BIT": (True, _bits),
    "YEAR": (False, _years),
    "DATE": (False, _dates),
    "DATETIME": (False, _datetimes),
    "TIMESTAMP": (True, _timestamps),
    "TIME": (False, _times),
    **dict.fromkeys(BYTES, (True, _binary)),
    **dict.fromkeys(GEOMETRIES, (False, _shapes)),
}
