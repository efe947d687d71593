"""Converts MySQL values between the wire texts of collectors, server results and Arrow types.

From the wire: a value that does not fit becomes null; nothing is rounded, truncated or guessed.
The connector must send DECIMAL as text, BIGINT UNSIGNED with mode ``precise`` and times as
adaptive microseconds. In other modes the same numbers have other meanings.

Other notations: collectors other than Connect send the texts of the server's log, and numbers
for labels. They are converted to what Connect would send. A value that does not fit becomes
null, so its table is held.

To the wire: a value of a query result becomes the text that the collector writes for it, so a
backfilled row and a logged row have the same key. ENUM and SET become labels, and JSON keeps the
server's spelling, both as in a snapshot. A FLOAT must be selected as a double, or the server
rounds it.
"""

import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from string import ascii_lowercase, ascii_uppercase, digits
from struct import unpack_from

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.schema.decode import (
    ColumnReading,
    as_integer,
    as_sent,
    decode_base64,
    decode_bytes,
    keep_fitting,
    parse_booleans,
    parse_decimals,
    parse_floats,
    parse_instants,
    parse_whole_numbers,
    to_dates,
    to_timestamps,
)
from pipeline.schema.model import Notation, arrow_type
from pipeline.schema.wire import SentAs
from pipeline.sources.mysql.types import BYTES, GEOMETRIES, TEXTS, decode_label, decode_labels
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.sources.row_reader import WireTexts

Raw = str | bytes | None
MICROS = 1_000_000
MILLIS = 3  # fractions up to this many digits are sent as milliseconds
YEAR_ZERO = 1900  # the log's year 0000 is sent as 1900, and no other year is
POINT_AT = 9  # bytes before a point's x: reference system, byte order and type
NATURAL, SIGN = 9, 0x80  # most bytes of a sent BIGINT UNSIGNED; sign bit of the first byte
LETTERS = np.frombuffer(f"{ascii_uppercase}{ascii_lowercase}{digits}+/".encode(), np.uint8)
SECONDS = len("2026-01-01 00:00:00")


Encoder = Callable[[Column, pa.Array], pa.StringArray]


def to_wire_texts(column: Column, raw: pa.Array) -> WireTexts:
    """Encode the values of *column*, strings or binary, as the collector sends them."""
    kind = column.kind
    if kind == "BIGINT" and column.unsigned:
        return WireTexts(_naturals(column, raw), quoted=True)
    if kind == "BIT" and column.width == 1:
        return WireTexts(_truths(column, raw), quoted=False)
    quoted, encode = ENCODERS.get(kind, (True, _plain))
    return WireTexts(encode(column, raw), quoted)


def to_wire_text(column: Column, raw: Raw) -> str | None:
    """Encode one value as the collector sends it."""
    encoded: str | None = to_wire_texts(column, pa.array([raw])).texts[0].as_py()
    return encoded


def encode_missing_date(column: Column) -> str | None:
    """The text that is sent for a date or time that does not exist; None if NULL is sent."""
    if column.nullable:
        return None
    return "1970-01-01T00:00:00Z" if column.kind == "TIMESTAMP" else "0"


def _plain(_: Column, raw: pa.Array) -> pa.StringArray:
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:  # bytes that are not UTF-8
        return _each(lambda value: _octets(value).decode("utf-8", "replace"))(_, raw)


def _each(encode: Callable[[str | bytes], str | None]) -> Encoder:
    """An encoder that loops over values, for types that are rare or costly to encode anyway."""
    return lambda _, raw: pa.array(
        [None if value is None else encode(value) for value in raw.to_pylist()], pa.string()
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
    """Base64 of the big-endian bytes of a signed number, with as few bytes as possible."""
    number = int(value)
    return _base64(number.to_bytes(number.bit_length() // 8 + 1, "big"))


def _naturals(column: Column, raw: pa.Array) -> pa.StringArray:
    """Like `_natural` for all values at once: 8 bytes, and a byte before them for the sign."""
    try:
        numbers = pc.fill_null(_plain(column, raw).cast(pa.uint64()), 0).to_numpy()
    except pa.ArrowInvalid:
        return _each(_natural)(column, raw)
    octets = np.zeros((len(numbers), NATURAL), np.uint8)
    octets[:, 1:] = numbers.astype(">u8").view(np.uint8).reshape(-1, NATURAL - 1)
    needed = octets > 0
    needed[:, :-1] |= octets[:, 1:] >= SIGN  # without it the number would be negative
    needed[:, -1] = True
    first = needed.argmax(axis=1)
    texts = np.empty(len(numbers), f"S{NATURAL * 4 // 3}")
    for spare in np.unique(first).tolist():
        rows = first == spare
        texts[rows] = _base64_of(octets[rows, spare:])
    return pc.if_else(raw.is_valid(), pa.array(texts).cast(pa.string()), None)


def _base64_of(octets: npt.NDArray[np.uint8]) -> npt.NDArray[np.bytes_]:
    """Base64 of each row of *octets*."""
    count, width = octets.shape
    filler = -width % 3
    padded = np.zeros((count, width + filler), np.uint32)
    padded[:, :width] = octets
    three = padded.reshape(count, -1, 3)
    bits = three[..., 0] << 16 | three[..., 1] << 8 | three[..., 2]
    characters = LETTERS[np.stack([bits >> shift & 63 for shift in (18, 12, 6, 0)], axis=-1)]
    flat = characters.reshape(count, -1)
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
    """Days, milliseconds or microseconds since 1970; 0 for a date that does not exist."""
    texts = _plain(column, raw)
    days = _days(texts)
    number = pa.int32() if pa.types.is_date(kind) else pa.int64()
    encoded = days.cast(kind).cast(number).cast(pa.string())
    return _filled(column, encoded, texts)


def _filled(column: Column, encoded: pa.StringArray, texts: pa.StringArray) -> pa.StringArray:
    """Replace dates that do not exist with what is sent for them."""
    if (none := encode_missing_date(column)) is None:
        return encoded
    return pc.if_else(pc.and_(encoded.is_null(), texts.is_valid()), none, encoded)


def _days(texts: pa.StringArray) -> pa.StringArray:
    """*texts* with null for each whose day does not exist.

    The server may accept 0 as day or month, and with ALLOW_INVALID_DATES a 30th of February.
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
    """Times in UTC; the fraction is omitted if it is 0, else it has three digits or six."""
    texts = _plain(column, raw)
    days = _days(texts)
    day, clock = pc.utf8_slice_codeunits(days, 0, 10), pc.utf8_slice_codeunits(days, 11, SECONDS)
    rest = pc.utf8_rtrim(pc.utf8_slice_codeunits(days, SECONDS + 1), "0")
    many = pc.greater(pc.utf8_length(rest), 3)
    padded = pc.if_else(many, pc.utf8_rpad(rest, 6, "0"), pc.utf8_rpad(rest, 3, "0"))
    point = pc.if_else(pc.equal(rest, ""), "Z", pc.binary_join_element_wise(padded, "Z", ""))
    dot = pc.if_else(pc.equal(rest, ""), "", ".")
    encoded = pc.binary_join_element_wise(day, "T", clock, dot, point, "")
    return _filled(column, encoded, texts)


def _micros(value: str | bytes) -> str:
    text = _text(value)
    sign, clock = (-1, text[1:]) if text.startswith("-") else (1, text)
    hours, minutes, seconds = clock.split(":")
    whole, _, fraction = seconds.partition(".")
    total = (int(hours) * 60 + int(minutes)) * 60 + int(whole)
    return str(sign * (total * MICROS + int(fraction.ljust(6, "0") or 0)))


def _shape(column: Column, data: bytes) -> str:
    """Encode a geometry, whose WKB is preceded by the number of its reference system."""
    (system,), wkb = unpack_from("<I", data), data[4:]
    encoded = f'"wkb":"{_base64(wkb)}","srid":{system or "null"}'
    if column.kind != "POINT":
        return f"{{{encoded}}}"
    x, y = unpack_from("<dd" if wkb[0] else ">dd", wkb, POINT_AT - 4)
    return f'{{"x":{x!r},"y":{y!r},{encoded}}}'


def _shapes(column: Column, raw: pa.Array) -> pa.StringArray:
    return _each(lambda value: _shape(column, _octets(value)))(column, raw)


ENCODERS: Mapping[str, tuple[bool, Encoder]] = {
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


DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
MOMENT = re.compile(rf"{DATE.pattern} [0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]{{1,6}})?")
CLOCK = re.compile(r"-?[0-9]{1,3}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?")
WHOLE = re.compile(r"-?[0-9]{1,20}")
YEAR = re.compile(r"[0-9]{4}|0")
SHAPES: Mapping[str, re.Pattern[str]] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT"), WHOLE),
    **{"DATE": DATE, "DATETIME": MOMENT, "TIMESTAMP": MOMENT, "TIME": CLOCK, "YEAR": YEAR},
}
ODD = (ValueError, OverflowError, IndexError, binascii.Error, msgspec.MsgspecError)
_WORDS = msgspec.json.Decoder(list[str])
MOST_BITS = 64


def to_connect(column: Column, wire: pa.Array) -> pa.Array:
    """Convert to the texts of Connect; null if one does not fit.  Geometry stays as it is."""
    if column.notation is Notation.CONNECT or column.kind in GEOMETRIES:
        return wire
    plain = replace(column, notation=Notation.CONNECT)
    texts = wire.cast(pa.string())
    known = texts.unique().drop_null().to_pylist()
    encoded = _read_texts(plain, [_raw(plain, column.notation, text) for text in known])
    by_text = dict(zip(known, encoded, strict=True))
    return pa.array([by_text.get(text) for text in texts.to_pylist()], pa.string())


def _raw(plain: Column, notation: Notation, text: str) -> Raw:
    try:
        return _FROM[notation](plain, text)
    except ODD:
        return None


def _read_texts(plain: Column, raws: Sequence[Raw]) -> list[str | None]:
    """Encode all values at once, or one by one if one of them is invalid."""
    kind = pa.binary() if any(isinstance(raw, bytes) for raw in raws) else pa.string()
    try:
        encoded: list[str | None] = to_wire_texts(plain, pa.array(raws, kind)).texts.to_pylist()
    except ODD:
        return (
            [None]
            if len(raws) == 1
            else [text for raw in raws for text in _read_texts(plain, [raw])]
        )
    return encoded


def _of_texts(column: Column, text: str) -> Raw:
    """The server's text of a value in the notation TEXTS."""
    kind = column.kind
    if kind == "BIT":
        return _bits(column, text)
    if kind == "ENUM" and WHOLE.fullmatch(text):
        return _labels(column)[int(text) - 1] if int(text) > 0 else ""
    if kind == "SET" and WHOLE.fullmatch(text):
        return _members(column, int(text))
    if kind in BYTES:
        return _whole(column, text.encode("latin-1"))
    return _shaped(column, text)


def _of_plain(column: Column, text: str) -> Raw:
    """The server's text of a value in the notation PLAIN."""
    kind = column.kind
    if kind == "BIT":
        return _bits(column, {"true": "1", "false": "0"}.get(text, text))
    if kind == "SET" and text.startswith("["):
        return ",".join(_WORDS.decode(text))
    if kind in BYTES:
        return _whole(column, binascii.a2b_base64(text, strict_mode=True))
    if kind == "TINYINT":
        return _shaped(column, {"true": "1", "false": "0"}.get(text, text))
    return _shaped(column, text)


def _shaped(column: Column, text: str) -> Raw:
    shape = SHAPES.get(column.kind)
    return text if shape is None or shape.fullmatch(text) else None


def _whole(column: Column, data: bytes) -> bytes:
    """The value in the table: the log omits trailing zeros of BINARY."""
    return data.ljust(column.length or 1, b"\0") if column.kind == "BINARY" else data


def _bits(column: Column, text: str) -> Raw:
    """Big-endian bytes of a BIT value, as many as the column has; None if it does not fit."""
    if not WHOLE.fullmatch(text):
        return None
    size = (column.width + 7) // 8
    number = int(text)
    if number < 0:  # 64 bits, written as a signed number
        number += 2**MOST_BITS
    return None if number >= 2**column.width else number.to_bytes(size, "big")


def _labels(column: Column) -> Sequence[str]:
    return [decode_label(value) for value in column.values]


def _members(column: Column, bits: int) -> str | None:
    labels = _labels(column)
    bits += 2**MOST_BITS if bits < 0 else 0
    if bits >= 2 ** len(labels):
        return None
    return ",".join(label for at, label in enumerate(labels) if bits >> at & 1)


_FROM: Mapping[Notation, Callable[[Column, str], Raw]] = {
    Notation.TEXTS: _of_texts,
    Notation.PLAIN: _of_plain,
}


UNSIGNED_BYTES = 8

# A collector's snapshot reads by JDBC, whose calendar has no 5th to 14th of October 1582: a
# DATETIME of these days arrives ten days later.  DATEs and values of the log are not shifted
# (*measured*: Debezium 3.5).
SHIFTED = (datetime(1582, 10, 15), datetime(1582, 10, 25))  # noqa: DTZ001 - without a zone

Reading = ColumnReading[Column]


def wire_kind(column: Column) -> SentAs:
    """The kind in which the values of *column* arrive."""
    return _reading(column).sent if column.notation is Notation.CONNECT else SentAs.ANY


def decode_values(column: Column, wire: pa.Array) -> pa.Array:
    """Decode values to the Arrow type of *column*; see `ColumnReading.values`."""
    return _reading(column).values(column, to_connect(column, wire))


def find_altered_by_snapshot(column: Column, values: pa.Array) -> pa.BooleanArray | None:
    """Which *values*, of the lake's type, a snapshot may have shifted; None if it shifts none."""
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
    """Decode a TINYINT: one declared as BOOL arrives as a boolean, except from a snapshot."""
    digit = pc.if_else(pc.equal(wire, "true"), "1", pc.if_else(pc.equal(wire, "false"), "0", wire))
    return as_integer(column, parse_whole_numbers(digit))


def _unsigned(column: Column, wire: pa.StringArray) -> pa.Array:
    """Decode a BIGINT UNSIGNED from digits, or from base64 of its big-endian bytes.

    They are distinct: base64 that begins with a digit would be a negative number.
    """
    digits = pc.match_substring_regex(wire, "^[0-9]+$")
    coded = keep_fitting(pc.invert(digits), wire).to_pylist()
    numbers = pa.array([_natural_value(text) for text in coded], arrow_type(column))
    return pc.coalesce(numbers, _decimal(column, keep_fitting(digits, wire)))


def _natural_value(text: str | None) -> int | None:
    found = decode_base64(text)
    if not found or len(found) > UNSIGNED_BYTES + 1:
        return None
    number = int.from_bytes(found, "big", signed=True)
    return number if 0 <= number < 2 ** (8 * UNSIGNED_BYTES) else None


def _decimal(column: Column, wire: pa.StringArray) -> pa.Array:
    kind = arrow_type(column)
    known = pa.types.is_decimal(kind)
    digits, fraction = (kind.precision, kind.scale) if known else (column.digits, column.fraction)
    return parse_decimals(wire, kind, digits, fraction)


def _float(column: Column, wire: pa.StringArray) -> pa.Array:
    return parse_floats(wire, arrow_type(column))


def _flag(_: Column, wire: pa.StringArray) -> pa.BooleanArray:
    return parse_booleans(wire)


def _bits_value(column: Column, wire: pa.StringArray) -> pa.BinaryArray:
    """Decode bits, which arrive as little-endian bytes, to big-endian bytes."""
    size = (column.width + 7) // 8
    found = (decode_base64(text) for text in wire.to_pylist())
    turned = [bits[::-1] if bits is not None and len(bits) == size else None for bits in found]
    return pa.array(turned, pa.binary())


def _bytes(_: Column, wire: pa.StringArray) -> pa.BinaryArray:
    return decode_bytes(wire)


def _date(_: Column, wire: pa.Int64Array) -> pa.Date32Array:
    return to_dates(wire)


def _datetime(column: Column, wire: pa.Int64Array) -> pa.TimestampArray:
    """Milliseconds or microseconds since 1970, by the column's fraction; no time zone."""
    return to_timestamps(wire, 1_000 if column.fraction <= MILLIS else 1, arrow_type(column))


def _timestamp(column: Column, wire: pa.StringArray) -> pa.TimestampArray:
    return parse_instants(wire, arrow_type(column))


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
    "BIT": ColumnReading(SentAs.WORD, _bits_value),
    **dict.fromkeys(("ENUM", "SET"), ColumnReading(SentAs.WORD, decode_labels)),
    **dict.fromkeys((*TEXTS, "JSON"), ColumnReading(SentAs.WORD, as_sent)),
    **dict.fromkeys(BYTES, ColumnReading(SentAs.WORD, _bytes)),
}
