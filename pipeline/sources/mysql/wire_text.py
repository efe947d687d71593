"""How would the log send a value that a query returned?  The inverse of `values`, as text.

In come a server's own texts, or bytes, as its protocol has them; out come the texts that the
collector writes for the same value, so that a row read here and one from the log are one row under
one key.  An ENUM or SET comes as its label, JSON in the server's own spelling, as from a snapshot.
A FLOAT must be asked for as a double, or the server rounds it.  Pure.
"""

import binascii
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from string import ascii_lowercase, ascii_uppercase, digits
from struct import unpack_from

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.sources.mysql.column import MySqlColumn as Column
from pipeline.sources.mysql.typemap import BYTES, GEOMETRIES
from pipeline.sources.wire_texts import WireTexts, rows_of

Raw = str | bytes | None
MICROS = 1_000_000
MILLIS = 3  # fractions up to this many digits are sent as milliseconds
YEAR_ZERO = 1900  # how the log's year 0000 is sent; no other year is sent as 1900
POINT_AT = 9  # bytes before a point's x in its WKB: byte order and type
NATURAL, SIGN = 9, 0x80  # bytes of a BIGINT UNSIGNED as it is sent, and what marks one below 0
LETTERS = np.frombuffer(f"{ascii_uppercase}{ascii_lowercase}{digits}+/".encode(), np.uint8)
SECONDS = len("2026-01-01 00:00:00")


Tell = Callable[[Column, pa.Array], pa.StringArray]


def wire_texts(column: Column, raw: pa.Array) -> WireTexts:
    """How the values of *column*, strings or binary, are sent."""
    kind = column.kind
    if kind == "BIGINT" and column.unsigned:
        return WireTexts(_naturals(column, raw), quoted=True)
    if kind == "BIT" and column.width == 1:
        return WireTexts(_truths(column, raw), quoted=False)
    quoted, tell = TELLING.get(kind, (True, _plain))
    return WireTexts(tell(column, raw), quoted)


def wire_text(column: Column, raw: Raw) -> str | None:
    """How one value is sent."""
    told: str | None = wire_texts(column, pa.array([raw])).texts[0].as_py()
    return told


def told_of_none(column: Column) -> str | None:
    """What is sent for a day, or a moment, that does not exist; None for NULL."""
    if column.nullable:
        return None
    return "1970-01-01T00:00:00Z" if column.kind == "TIMESTAMP" else "0"


def images(columns: Sequence[Column], raw: Sequence[pa.Array]) -> pa.StringArray:
    """Each row as a JSON object; *raw* are the columns' values."""
    told = [wire_texts(c, values) for c, values in zip(columns, raw, strict=True)]
    return rows_of([column.name for column in columns], told)


def _plain(_: Column, raw: pa.Array) -> pa.StringArray:
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:  # bytes that are no UTF-8
        return _each(lambda value: _octets(value).decode("utf-8", "replace"))(_, raw)


def _each(tell: Callable[[str | bytes], str | None]) -> Tell:
    """Value by value: for what is rare, or costs more than that."""
    return lambda _, raw: pa.array(
        [None if value is None else tell(value) for value in raw.to_pylist()], pa.string()
    )


def _numbers(column: Column, raw: pa.Array) -> pa.StringArray:
    if "ZEROFILL" not in column.type.upper():
        return _plain(column, raw)
    return _each(lambda value: str(int(value)))(column, raw)


def _decimals(column: Column, raw: pa.Array) -> pa.StringArray:
    if "ZEROFILL" not in column.type.upper():
        return _plain(column, raw)
    return _each(lambda value: format(Decimal(_text(value)), "f"))(column, raw)


def _natural(value: str | bytes) -> str:
    """Base64 of the big-endian bytes of a signed number, as few as it needs."""
    number = int(value)
    return _base64(number.to_bytes(number.bit_length() // 8 + 1, "big"))


def _naturals(column: Column, raw: pa.Array) -> pa.StringArray:
    """The same of all side by side: of 64 bits, and one in front for the sign."""
    try:
        numbers = pc.fill_null(_plain(column, raw).cast(pa.uint64()), 0).to_numpy()
    except pa.ArrowInvalid:
        return _each(_natural)(column, raw)
    octets = np.zeros((len(numbers), NATURAL), np.uint8)
    octets[:, 1:] = numbers.astype(">u8").view(np.uint8).reshape(-1, NATURAL - 1)
    needed = octets > 0
    needed[:, :-1] |= octets[:, 1:] >= SIGN  # or it would be read as below 0
    needed[:, -1] = True
    first = needed.argmax(axis=1)
    texts = np.empty(len(numbers), f"S{NATURAL * 4 // 3}")
    for spare in np.unique(first).tolist():
        rows = first == spare
        texts[rows] = _base64_of(octets[rows, spare:])
    return pc.if_else(raw.is_valid(), pa.array(texts).cast(pa.string()), None)


def _base64_of(octets: npt.NDArray[np.uint8]) -> npt.NDArray[np.bytes_]:
    """Of each row of *octets*."""
    count, width = octets.shape
    filler = -width % 3
    padded = np.zeros((count, width + filler), np.uint32)
    padded[:, :width] = octets
    three = padded.reshape(count, -1, 3)
    bits = three[..., 0] << 16 | three[..., 1] << 8 | three[..., 2]
    letters = LETTERS[np.stack([bits >> shift & 63 for shift in (18, 12, 6, 0)], axis=-1)]
    flat = letters.reshape(count, -1)
    flat[:, flat.shape[1] - filler :] = ord("=")
    return np.ascontiguousarray(flat).view(f"S{flat.shape[1]}")[:, 0]


def _truths(_: Column, raw: pa.Array) -> pa.StringArray:
    one = pa.array(["\x01", "1"], raw.type)
    true = pc.if_else(pc.is_null(raw), None, pc.is_in(raw, one))
    return pc.if_else(true, "true", "false")


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()


def _octets(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("latin-1")


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def _dates(column: Column, raw: pa.Array) -> pa.StringArray:
    return _counted(column, raw, pa.date32())


def _datetimes(column: Column, raw: pa.Array) -> pa.StringArray:
    return _counted(column, raw, pa.timestamp("ms" if column.fraction <= MILLIS else "us"))


def _counted(column: Column, raw: pa.Array, kind: pa.DataType) -> pa.StringArray:
    """Days, milliseconds or microseconds since 1970; a day that is none is sent as if it were 0."""
    texts = _plain(column, raw)
    days = _days(texts)
    number = pa.int32() if pa.types.is_date(kind) else pa.int64()
    told = days.cast(kind).cast(number).cast(pa.string())
    return _filled(column, told, texts)


def _filled(column: Column, told: pa.StringArray, texts: pa.StringArray) -> pa.StringArray:
    """With what stands for a day that does not exist where there is a text of one."""
    if (none := told_of_none(column)) is None:
        return told
    return pc.if_else(pc.and_(told.is_null(), texts.is_valid()), none, told)


def _days(texts: pa.StringArray) -> pa.StringArray:
    """Those of *texts* whose day exists, the others null.

    The server lets in days, and months, of the number 0, and a 30th of February where
    ALLOW_INVALID_DATES is set.
    """
    day = pc.utf8_slice_codeunits(texts, 0, 10)
    try:
        day.cast(pa.date32())
    except pa.ArrowInvalid:
        there = pa.array(map(_exists, day.to_pylist()), pa.bool_())
        return pc.if_else(there, texts, None)
    return texts


def _exists(day: str | None) -> bool:
    if day is None or day[5:7] == "00" or day[8:] == "00":
        return False
    try:
        np.datetime64(day)
    except ValueError:
        return False
    return True


def _timestamps(column: Column, raw: pa.Array) -> pa.StringArray:
    """In UTC; without a fraction that is 0, else in three digits or six."""
    texts = _plain(column, raw)
    days = _days(texts)
    day, clock = pc.utf8_slice_codeunits(days, 0, 10), pc.utf8_slice_codeunits(days, 11, SECONDS)
    rest = pc.utf8_rtrim(pc.utf8_slice_codeunits(days, SECONDS + 1), "0")
    many = pc.greater(pc.utf8_length(rest), 3)
    padded = pc.if_else(many, pc.utf8_rpad(rest, 6, "0"), pc.utf8_rpad(rest, 3, "0"))
    point = pc.if_else(pc.equal(rest, ""), "Z", pc.binary_join_element_wise(padded, "Z", ""))
    dot = pc.if_else(pc.equal(rest, ""), "", ".")
    told = pc.binary_join_element_wise(day, "T", clock, dot, point, "")
    return _filled(column, told, texts)


def _micros(value: str | bytes) -> str:
    text = _text(value)
    sign, clock = (-1, text[1:]) if text.startswith("-") else (1, text)
    hours, minutes, seconds = clock.split(":")
    whole, _, fraction = seconds.partition(".")
    total = (int(hours) * 60 + int(minutes)) * 60 + int(whole)
    return str(sign * (total * MICROS + int(fraction.ljust(6, "0") or 0)))


def _shape(column: Column, data: bytes) -> str:
    """Geometry: the server puts its reference system's number before the WKB."""
    (system,), wkb = unpack_from("<I", data), data[4:]
    told = f'"wkb":"{_base64(wkb)}","srid":{system or "null"}'
    if column.kind != "POINT":
        return f"{{{told}}}"
    x, y = unpack_from("<dd" if wkb[0] else ">dd", wkb, POINT_AT - 4)
    return f'{{"x":{x!r},"y":{y!r},{told}}}'


def _shapes(column: Column, raw: pa.Array) -> pa.StringArray:
    return _each(lambda value: _shape(column, _octets(value)))(column, raw)


TELLING: Mapping[str, tuple[bool, Tell]] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT"), (False, _numbers)),
    **dict.fromkeys(("FLOAT", "DOUBLE"), (False, _plain)),
    "DECIMAL": (True, _decimals),
    "BIT": (True, _each(lambda value: _base64(_octets(value)[::-1]))),
    "YEAR": (False, _each(lambda value: str(int(value) or YEAR_ZERO))),
    "DATE": (False, _dates),
    "DATETIME": (False, _datetimes),
    "TIMESTAMP": (True, _timestamps),
    "TIME": (False, _each(_micros)),
    **dict.fromkeys(BYTES, (True, _each(lambda value: _base64(_octets(value))))),
    **dict.fromkeys(GEOMETRIES, (False, _shapes)),
}
