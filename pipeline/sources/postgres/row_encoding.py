"""Encodes backfilled Postgres rows and keys as the collector writes them in the log.

Input is the server's text: ISO dates, ISO 8601 intervals, hex bytes, all in UTC. Output is the
text that the collector writes for a logged row. A snapshot writes some values differently
(money, times before 1582); the log is authoritative. Measured on Debezium 3.5: an unknown type
is sent as the bytes of Postgres's text, and geometry has numbers in Java's format.

* Keys: a text is accepted only as the log writes it. Another spelling would match at the source
  but not in the mirror.
* Columns: the catalog is read. Generated columns, and columns that the publication excludes,
  are in no row of the log and so in no backfilled row.
"""

import base64
import binascii
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from struct import pack
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.formats.json_text import Number, write_text
from pipeline.model import Shard, ShardId
from pipeline.schema.model import ColumnDescription, TableDescription, TableSchema
from pipeline.sources.condition import SqlCondition, Value
from pipeline.sources.postgres.session import quote_name
from pipeline.sources.postgres.types import (
    KNOWN,
    TEXTS,
    WHOLE,
    PostgresColumn,
    postgres_columns,
    read_column,
)
from pipeline.sources.postgres.values import EARLIEST, FIRST_DATE, LAST_DATE, LATEST, parse_array
from pipeline.sources.row_reader import (
    WireTexts,
    invalid_key_value,
    parse_key,
    require_spelling,
)

# Elements of an array are described like a column with the same name.
TYPED = """\
SELECT a.attname::text AS name, a.attnum AS place, b.typname::text AS type,
    b.typtype::text AS made, upper(t.typname::text) AS own,
    CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END AS modifier,
    t.typtype = 'd' AS domain, a.attnotnull AS filled, pg_get_expr(d.adbin, d.adrelid) AS default,
    n.nspname = 'pg_catalog' OR b.typtype <> 'b' OR b.typcategory = 'A' AS ordered,
    e.typname::text AS element, e.typtype::text AS element_made
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
JOIN pg_namespace n ON n.oid = b.typnamespace
LEFT JOIN pg_type e ON b.typcategory = 'A' AND e.oid = b.typelem
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY a.attnum
"""
MILLIS = 3  # digits of a second up to which a timestamp is sent in milliseconds
WAYS = {  # kind -> how its values are sent, with the settings that the doctor demands
    **{"BOOL": "boolean", "INT2": "int16", "INT4": "int32", "INT8": "int64", "OID": "int64"},
    **{"FLOAT4": "float", "FLOAT8": "double", "BYTEA": "bytes", "DATE": "time.Date"},
    **{"TIME": "time.MicroTime", "TIMETZ": "time.ZonedTime", "TIMESTAMPTZ": "time.ZonedTimestamp"},
    **{"BIT": "data.Bits", "VARBIT": "data.Bits", "ENUM": "data.Enum", "UUID": "data.Uuid"},
    **{"JSON": "data.Json", "JSONB": "data.Json", "HSTORE": "data.Json", "XML": "data.Xml"},
    **{"LTREE": "data.Ltree", "INTERVAL": "time.Interval"},
    **{"ARRAY": "array", "POINT": "data.geometry.Point", "TSVECTOR": "data.Tsvector"},
    **dict.fromkeys(
        ("BPCHAR", "VARCHAR", "TEXT", "NAME", "CHAR", "NUMERIC", "MONEY", "CITEXT"), "string"
    ),
    **dict.fromkeys(("INET", "CIDR", "MACADDR", "MACADDR8"), "string"),
    **dict.fromkeys(("INT4RANGE", "INT8RANGE", "NUMRANGE"), "string"),
    **dict.fromkeys(("TSRANGE", "TSTZRANGE", "DATERANGE"), "string"),
}
UNSENT = ("BIT", "VARBIT")  # an array of these is always sent as NULL
LEFT_OUT = ("INTERVAL",)  # no row of the log has a column that is an array of these


@dataclass(frozen=True, slots=True)
class ReadColumn:
    """A column to read; ``own`` is the name of its type in rows.

    ``ordered``: SQL can order by its type.  ``element`` is the type of an array's elements.
    """

    column: PostgresColumn
    own: str
    ordered: bool = True
    element: PostgresColumn | None = None

    @property
    def name(self) -> str:
        return self.column.name

    @property
    def description(self) -> ColumnDescription:
        """The description of the column, as a row of the log has it."""
        one = self.column
        kind = one.type if one.kind in KNOWN and one.kind != "ENUM" else self.own
        return ColumnDescription(
            one.name,
            f"{kind} as {one.sent}",
            one.length,
            one.scale,
            one.nullable,
            position=one.position,
        )


def read_columns(
    rows: Sequence[Mapping[str, Any]],
    declared: TableSchema | None = None,
    published: Collection[str] | None = None,
) -> tuple[ReadColumn, ...]:
    """Build columns from *rows* of ``TYPED``.

    *declared* is the schema that rows of the log describe, with the units of times.
    *published* are the names of columns that are sent; None means all.
    """
    known = {one.name: one for one in postgres_columns(declared)} if declared is not None else {}
    among = (row for row in rows if published is None or row["name"] in published)
    sent = (row for row in among if not _is_left_out(row))
    return tuple(_column(row, place, known) for place, row in enumerate(sent, start=1))


def describe_table(
    shard: Shard, found: Sequence[ReadColumn], key: Sequence[str]
) -> TableDescription:
    """The description of the table, as rows with these columns have it."""
    columns = tuple(one.description for one in found)
    return TableDescription(ShardId.parse(shard.name), "alter", columns, tuple(key))


def _is_left_out(row: Mapping[str, Any]) -> bool:
    return str(row["element"] or "").upper() in LEFT_OUT


def _column(row: Mapping[str, Any], place: int, known: Mapping[str, PostgresColumn]) -> ReadColumn:
    column = read_column(row, place)
    before = known.get(column.name)
    encoded = before.sent if before is not None and before.kind == column.kind else None
    column = replace(_timed(column, row), sent=encoded or _way(column, int(row["modifier"])))
    element = _element(row) if row["element"] is not None else None
    return ReadColumn(column, str(row["own"]), bool(row["ordered"]), element)


def _timed(column: PostgresColumn, row: Mapping[str, Any]) -> PostgresColumn:
    """Set ``length`` of a TIMESTAMPTZ to its digits of a second: as many are sent."""
    if column.kind != "TIMESTAMPTZ" or int(row["modifier"]) < 0:
        return column
    return replace(column, length=int(row["modifier"]))


def _element(row: Mapping[str, Any]) -> PostgresColumn:
    """The elements of an array as a column; elements of a domain are sent as bytes."""
    made = {"type": row["element"], "made": row["element_made"], "domain": False}
    if row["element_made"] == "d":
        return replace(read_column({**row, **made}), sent="bytes")
    element = read_column({**row, **made})
    return replace(element, sent=_way(element, int(row["modifier"])))


def _way(column: PostgresColumn, modifier: int) -> str:
    if column.kind == "TIMESTAMP":
        brief = 0 <= modifier <= MILLIS
        return "time.Timestamp" if brief else "time.MicroTimestamp"
    if column.kind == "BIT" and column.length in (1, None):
        return "boolean"
    return WAYS.get(column.kind, "bytes")


Raw = str | None
Encoder = Callable[[PostgresColumn, pa.StringArray], pa.StringArray]
MICROS = 1_000_000
DAY = 86_400 * MICROS
HIGHEST, LOWEST = 2**63 - 1, -(2**63)
FRACTION = 6  # default digits of a second
COMMON = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?\+00$"
SECONDS, BEFORE_ZONE = len("2026-01-01 00:00:00"), -len("+00")
MOMENT = re.compile(r"(\d+)-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d+))?)?(?:\+00)?( BC)?")
INTERVAL = re.compile(
    r"P(?:([-\d]+)Y)?(?:([-\d]+)M)?(?:([-\d]+)D)?(?:T(?:([-\d]+)H)?(?:([-\d]+)M)?(?:([-.\d]+)S)?)?"
)
ZONED = re.compile(r"(\d\d):(\d\d):(\d\d)(\.\d+)?([-+])(\d\d)(?::(\d\d))?(?::(\d\d))?")
NUMBER = re.compile(r"-?(?:\d+(?:\.\d+)?(?:e[-+]?\d+)?|Infinity)|NaN")
PAIRS = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:NULL|"((?:[^"\\]|\\.)*)")', re.DOTALL)
ODD_NUMBERS = {"NaN": "NAN", "Infinity": "POSITIVE_INFINITY", "-Infinity": "NEGATIVE_INFINITY"}


def to_wire_texts(one: ReadColumn, raw: pa.StringArray) -> WireTexts:
    """Encode the values of a column as the collector sends them."""
    if one.element is not None:
        return WireTexts(_arrays(one.element, raw), quoted=False)
    return _encode_column(one.column, raw)


def to_wire_text(one: ReadColumn, raw: Raw) -> str | None:
    """Encode one value as the collector sends it."""
    encoded: str | None = to_wire_texts(one, pa.array([raw], pa.string())).texts[0].as_py()
    return encoded


def _encode_column(column: PostgresColumn, raw: pa.StringArray) -> WireTexts:
    quoted, encode = _find_encoder(column)
    return WireTexts(encode(column, raw), quoted)


def _find_encoder(column: PostgresColumn) -> tuple[bool, Encoder]:
    if column.kind == "BIT" and column.length in (1, None):
        return False, _truths("1")
    return ENCODERS.get(column.kind, BYTES if column.sent == "bytes" else PLAIN)


def _arrays(element: PostgresColumn, raw: pa.StringArray) -> pa.StringArray:
    """Encode arrays; with several dimensions each element is null; arrays of bits are NULL."""
    if element.kind in UNSENT:
        return _each(lambda _: "null")(element, raw)
    found = [None if text is None else parse_array(text) for text in raw.to_pylist()]
    flat = [None if isinstance(v, list) else v for one in found if one for v in one]
    encoded = iter(_encode_column(element, pa.array(flat, pa.string())).fragments.to_pylist())
    texts = [None if one is None else f"[{','.join(next(encoded) for _ in one)}]" for one in found]
    return pa.array(texts, pa.string())


def _each(encode: Callable[[str], str]) -> Encoder:
    """An encoder that loops over values, for types that are rare or costly to encode anyway."""
    return lambda _, raw: pa.array(
        [None if value is None else encode(value) for value in raw.to_pylist()], pa.string()
    )


def _as_it_is(_: PostgresColumn, raw: pa.StringArray) -> pa.StringArray:
    return raw


def _truths(one: str) -> Encoder:
    return lambda _, raw: pc.if_else(pc.equal(raw, one), "true", "false")


def _unless_odd(encode: Callable[[str], str]) -> Encoder:
    """An encoder that leaves values unchanged unless one is NaN or infinity."""
    odd = pa.array(ODD_NUMBERS, pa.string())
    return lambda _, raw: _each(encode)(_, raw) if pc.any(pc.is_in(raw, odd)).as_py() else raw


def _real(text: str) -> str:
    return f'"{text}"' if text in ODD_NUMBERS else text


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def _shape(text: str) -> str:
    return _base64(NUMBER.sub(lambda found: format_java_double(found[0]), text).encode())


def format_java_double(text: str) -> str:
    """Format a number as Java formats a double."""
    if text in ODD_NUMBERS:
        return text
    return write_text(Number(text, integral=False)) or ""


def _point(text: str) -> str:
    x, y = (float(part) for part in text[1:-1].split(","))
    wkb = _base64(pack("<BIdd", 1, 1, x, y))
    return f'{{"x":{_real(str(x))},"y":{_real(str(y))},"wkb":"{wkb}","srid":null}}'


def _bits(text: str) -> str:
    """Encode bits as little-endian bytes, without trailing zero bytes."""
    number = int(text or "0", 2)
    return _base64(number.to_bytes((number.bit_length() + 7) // 8, "little"))


def _interval(text: str) -> str:
    found = INTERVAL.fullmatch(text)
    if found is None:
        return text
    years, months, days, hours, minutes, seconds = (part or "0" for part in found.groups())
    return f"P{years}Y{months}M{days}DT{hours}H{minutes}M{seconds}S"


def _hstore(text: str) -> str:
    found = {
        _bare(pair[1]): None if pair[2] is None else _bare(pair[2]) for pair in PAIRS.finditer(text)
    }
    return msgspec.json.encode(found).decode()


def _bare(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


def _zoned_time(text: str) -> str:
    """Convert a time with a zone to UTC; the fraction stays as the server prints it."""
    found = ZONED.fullmatch(text)
    if found is None:
        return text
    hours, minutes, seconds = (int(found[place]) for place in (1, 2, 3))
    offset = sum(int(found[place] or 0) * unit for place, unit in ((6, 3600), (7, 60), (8, 1))) * (
        -1 if found[5] == "-" else 1
    )
    whole = (hours * 3600 + minutes * 60 + seconds - offset) % 86_400
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{found[4] or ''}Z"


def _clock(text: str) -> int:
    hours, minutes, seconds = text.split(":")
    whole, _, fraction = seconds.partition(".")
    total = (int(hours) * 60 + int(minutes)) * 60 + int(whole)
    return total * MICROS + int(fraction.ljust(FRACTION, "0") or 0)


def _clocks(column: PostgresColumn, raw: pa.StringArray) -> pa.StringArray:
    """Times of a day in microseconds, or in milliseconds if rows of the log have these."""
    unit = 1_000 if column.sent == "time.Time" else 1
    return _each(lambda text: str(_clock(text) // unit))(column, raw)


def _dates(column: PostgresColumn, raw: pa.StringArray) -> pa.StringArray:
    """Days since 1970; infinity is the number that the collector sends in 32 bits."""
    try:
        return raw.cast(pa.date32()).cast(pa.int32()).cast(pa.string())
    except pa.ArrowInvalid:  # a year without four digits, or infinity
        ends = {"infinity": LAST_DATE, "-infinity": FIRST_DATE}
        return _each(lambda text: str(ends[text] if text in ends else _micros(text) // DAY))(
            column, raw
        )


def _timestamps(column: PostgresColumn, raw: pa.StringArray) -> pa.StringArray:
    """Milliseconds or microseconds since 1970, limited to 64 bits."""
    unit = 1_000 if column.sent == "time.Timestamp" else 1
    try:
        return _floored(raw.cast(pa.timestamp("us")).cast(pa.int64()), unit).cast(pa.string())
    except pa.ArrowInvalid:
        return _each(lambda text: _timestamp(text, unit))(column, raw)


def _floored(numbers: pa.Int64Array, unit: int) -> pa.Int64Array:
    if unit == 1:
        return numbers
    floored = pa.array(pc.fill_null(numbers, 0).to_numpy() // unit)
    return pc.if_else(pc.is_null(numbers), None, floored)


def _timestamp(text: str, unit: int) -> str:
    ends = {"infinity": LATEST, "-infinity": EARLIEST}
    return str(ends[text] if text in ends else max(LOWEST, min(_micros(text) // unit, HIGHEST)))


def _instants(column: PostgresColumn, raw: pa.StringArray) -> pa.StringArray:
    """Times in UTC, with as many digits of a second as the type has."""
    digits = FRACTION if column.digits is None else column.digits
    if not pc.all(pc.match_substring_regex(raw, COMMON), min_count=0).as_py():
        return _each(lambda t: t if t.endswith("infinity") else _instant(t, digits))(column, raw)
    day, clock = pc.utf8_slice_codeunits(raw, 0, 10), pc.utf8_slice_codeunits(raw, 11, SECONDS)
    if not digits:
        return pc.binary_join_element_wise(day, "T", clock, "Z", "")
    fraction = pc.utf8_slice_codeunits(raw, SECONDS + 1, BEFORE_ZONE)
    padded = pc.utf8_rpad(fraction, digits, "0")
    return pc.binary_join_element_wise(day, "T", clock, ".", padded, "Z", "")


def _instant(text: str, digits: int) -> str:
    before = text.endswith(" BC")
    day, _, clock = text.removesuffix(" BC").partition(" ")
    seconds, _, fraction = clock.removesuffix("+00").partition(".")
    year, month, number = day.split("-")
    if before:
        year = f"-{int(year) - 1:04}" if int(year) > 1 else "0000"
    elif len(year) > len("9999"):
        year = f"+{year}"
    fraction = f".{fraction.ljust(digits, '0')}" if digits else ""
    return f"{year}-{month}-{number}T{seconds}{fraction}Z"


def _micros(text: str) -> int:
    """Microseconds since 1970 of a date or timestamp in any year."""
    found = MOMENT.fullmatch(text)
    if found is None:
        return HIGHEST
    year, month, day, hours, minutes, seconds = (int(part or 0) for part in found.groups()[:6])
    days = _days(1 - year if found[8] else year, month, day)
    whole = (hours * 60 + minutes) * 60 + seconds
    return days * DAY + whole * MICROS + int((found[7] or "").ljust(FRACTION, "0"))


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970 in the proleptic Gregorian calendar, computed by eras of 400 years."""
    year -= month <= 2
    era, rest = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + rest * 365 + rest // 4 - rest // 100 + of_year - 719_468


PLAIN: tuple[bool, Encoder] = (True, _as_it_is)
BYTES: tuple[bool, Encoder] = (True, _each(lambda text: _base64(text.encode())))
ENCODERS: Mapping[str, tuple[bool, Encoder]] = {
    **dict.fromkeys(("INT2", "INT4", "INT8", "OID"), (False, _as_it_is)),
    **dict.fromkeys(("FLOAT4", "FLOAT8"), (False, _unless_odd(_real))),
    "BOOL": (False, _truths("t")),
    "NUMERIC": (True, _unless_odd(lambda text: ODD_NUMBERS.get(text, text))),
    "BYTEA": (True, _each(lambda text: _base64(bytes.fromhex(text[2:])))),
    "DATE": (False, _dates),
    "TIME": (False, _clocks),
    "TIMETZ": (True, _each(_zoned_time)),
    "TIMESTAMP": (False, _timestamps),
    "TIMESTAMPTZ": (True, _instants),
    "INTERVAL": (True, _each(_interval)),
    "HSTORE": (True, _each(_hstore)),
    "POINT": (False, _each(_point)),
    **dict.fromkeys(("BIT", "VARBIT"), (True, _each(_bits))),
    **dict.fromkeys(("BOX", "LINE", "LSEG", "PATH", "POLYGON", "CIRCLE"), (True, _each(_shape))),
}


UNREADABLE = (ValueError, TypeError, InvalidOperation, OverflowError, binascii.Error)
AS_THEY_ARE = (*TEXTS, "ENUM", "INET", "CIDR", "MACADDR", "MACADDR8")
READ: Mapping[str, Callable[[str], str]] = {
    "UUID": str.lower,
    "BOOL": lambda text: text[:1],
    "BYTEA": lambda text: f"\\x{base64.b64decode(text, validate=True).hex()}",
}


def match_keys(shard: str, columns: Sequence[ReadColumn], keys: Sequence[str]) -> SqlCondition:
    """A condition for the rows with one of *keys*, each the JSON array of the texts of *columns*.

    Raises:
        ConfigError: one of *keys* is no key of the shard.
    """
    names = ", ".join(quote_name(one.name) for one in columns)
    rows = [_row(shard, columns, key) for key in keys]
    places = ", ".join([f"({', '.join(['%s'] * len(columns))})"] * len(rows))
    return f"({names}) IN ({places})", tuple(value for row in rows for value in row)


def _row(shard: str, columns: Sequence[ReadColumn], key: str) -> tuple[Value, ...]:
    texts = parse_key(shard, [one.name for one in columns], key)
    return tuple(_value(shard, *pair) for pair in zip(columns, texts, strict=True))


def _value(shard: str, one: ReadColumn, text: str) -> str:
    try:
        raw = _meant(one, text)
        encoded = to_wire_text(one, raw)
    except UNREADABLE as error:
        raise invalid_key_value(shard, one.name, one.column, text) from error
    require_spelling(shard, one.name, text, encoded)
    return raw


def _meant(one: ReadColumn, text: str) -> str:
    """The server's text of the value that *text* means."""
    kind = one.column.kind
    if kind in WHOLE:
        return str(int(text))
    if kind in AS_THEY_ARE:
        return text
    if kind == "NUMERIC":
        number = Decimal(text)
        return f"{number:.{one.column.fraction}f}" if one.column.digits else f"{number:f}"
    if kind in READ:
        return READ[kind](text)
    return _moment(one, text)


def _moment(one: ReadColumn, text: str) -> str:
    """The server's text of a date, time or timestamp."""
    kind = one.column.kind
    if kind == "TIMESTAMPTZ":
        return f"{text.removesuffix('Z').replace('T', ' ')}+00"
    if kind == "TIME":
        each = 1_000 if one.column.sent == "time.Time" else 1
        whole, micros = divmod(int(text) * each, MICROS)
        return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}.{micros:06}"
    if kind not in ("DATE", "TIMESTAMP"):
        msg = f"rows cannot be read one by one by a {one.column}"
        raise ValueError(msg)
    brief = one.column.sent == "time.Timestamp"
    unit = "D" if kind == "DATE" else "ms" if brief else "us"
    return str(np.array([int(text)]).astype(f"datetime64[{unit}]")[0]).replace("T", " ")
