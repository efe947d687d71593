"""Encodes backfilled rows and keys in the notation of the collector that sends the table.

* Keys: a key of the change log becomes a condition on the server. A text is accepted only as
  the log writes it. Another spelling would match at the source but not in the mirror. A key
  text that may mean any nonexistent date is rejected.
* Plain notation: integers, floats, texts and bytes have one spelling. The collector's spelling of
  decimals, dates and labels is unknown, so a table with such a column is rejected. A JSON column
  that only the events have is null in backfilled rows. Events without such a column come from
  another collector, whose spelling is unknown, so their table is rejected.
* Server texts: ENUM is the number of its label; SET and BIT are numbers of bits. Bytes are ISO
  8859-1 text, and BINARY has no trailing zeros. Other values are the server's text. `values`
  decodes this notation.
"""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation

import numpy as np
import pyarrow as pa

from pipeline.errors import ConfigError
from pipeline.sources.condition import SqlCondition, Value
from pipeline.sources.mysql.session import quote_name
from pipeline.sources.mysql.types import BYTES, GEOMETRIES, TEXTS, WHOLE, decode_label
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.sources.mysql.values import (
    MILLIS,
    YEAR_ZERO,
    Raw,
    encode_missing_date,
    to_wire_text,
    to_wire_texts,
)
from pipeline.sources.row_reader import (
    WireTexts,
    encode_rows,
    invalid_key_value,
    parse_key,
    require_spelling,
)

WHOLE_NUMBERS = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT")
ALIKE: Mapping[str, frozenset[str]] = {  # type in events -> types in the table
    "TINYINT": frozenset({"TINYINT"}),
    "INT": frozenset(WHOLE_NUMBERS[:-1]),
    "BIGINT": frozenset(WHOLE_NUMBERS),
    "DOUBLE": frozenset({"DOUBLE"}),
    "LONGTEXT": frozenset(TEXTS),
    "LONGBLOB": frozenset({*BYTES} - {"BINARY"}),  # the log lacks trailing zeros of BINARY
}
BESIDE = "JSON"
OTHERS = "its rows would have other texts than those of its collector"


def encode_plain_rows(
    shard: str, described: Sequence[Column], there: Sequence[Column], values: Sequence[pa.Array]
) -> pa.StringArray:
    """Encode rows as events do, with the columns *described*.

    *there* are the existing columns, *values* their values.

    Raises:
        ConfigError: the collector's spelling of a column is unknown.
    """
    if not any(one.kind == BESIDE and one.name not in {c.name for c in there} for one in described):
        raise ConfigError(f"{shard}: {OTHERS}")
    own = {one.name: (one, raw) for one, raw in zip(there, values, strict=True)}
    count = len(values[0]) if values else 0
    written = [_written(shard, one, own.get(one.name), count) for one in described]
    return encode_rows([one.name for one in described], written)


def _written(
    shard: str, described: Column, found: tuple[Column, pa.Array] | None, count: int
) -> WireTexts:
    if found is None and described.kind == BESIDE:
        return WireTexts(pa.nulls(count, pa.string()), quoted=False)
    if found is None:
        raise ConfigError(f"{shard} has no column {described.name}, which its events have")
    column, raw = found
    wide = column.unsigned and column.kind == "BIGINT"
    if wide or column.kind not in ALIKE.get(described.kind, ()):
        pair = f"{column.type} in {shard}, and {described.kind} in its events"
        msg = f"column {described.name} is {pair}, and how its sender encodes that is unknown"
        raise ConfigError(f"{msg}, so the table cannot be backfilled")
    return to_wire_texts(column, raw)


def to_server_texts(column: Column, raw: pa.Array) -> WireTexts:
    """Encode the values of *column*, strings or binary, as server texts."""
    tell = _TELLING.get(column.kind)
    if tell is None:
        return WireTexts(raw.cast(pa.string()), quoted=True)
    described = [None if value is None else tell(column, value) for value in raw.to_pylist()]
    return WireTexts(pa.array(described, pa.string()), quoted=True)


def _bits(_: Column, value: Raw) -> str:
    return str(int.from_bytes(_octets(value), "big"))


def _letters(column: Column, value: Raw) -> str:
    data = _octets(value)
    return (data.rstrip(b"\0") if column.kind == "BINARY" else data).decode("latin-1")


def _number(column: Column, value: Raw) -> str:
    """The number of a label, from 1; 0 is the server's value for an invalid label."""
    labels = [decode_label(one) for one in column.values]
    text = _text(value)
    return str(labels.index(text) + 1) if text in labels else "0"


def _members(column: Column, value: Raw) -> str:
    labels = [decode_label(one) for one in column.values]
    chosen = _text(value).split(",") if _text(value) else []
    return str(sum(1 << labels.index(one) for one in chosen if one in labels))


def _octets(value: Raw) -> bytes:
    return value if isinstance(value, bytes) else (value or "").encode()


def _text(value: Raw) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""


_TELLING: Mapping[str, Callable[[Column, Raw], str]] = {
    "BIT": _bits,
    "ENUM": _number,
    "SET": _members,
    **dict.fromkeys((*BYTES, *GEOMETRIES), _letters),
}


NO_DAYS = ("DATE", "DATETIME", "TIMESTAMP")
UNREADABLE = (ValueError, TypeError, InvalidOperation, OverflowError, binascii.Error)


def match_keys(shard: str, columns: Sequence[Column], keys: Sequence[str]) -> SqlCondition:
    """A condition for the rows with one of *keys*, each the JSON array of the texts of *columns*.

    Raises:
        ConfigError: one of *keys* is no key of the shard.
    """
    equal = " AND ".join(f"{quote_name(column.name)} = %s" for column in columns)
    rows = [_row(shard, columns, key) for key in keys]
    return " OR ".join([f"({equal})"] * len(rows)), tuple(value for row in rows for value in row)


def _row(shard: str, columns: Sequence[Column], key: str) -> tuple[Value, ...]:
    texts = parse_key(shard, [column.name for column in columns], key)
    return tuple(_value(shard, *pair) for pair in zip(columns, texts, strict=True))


def _value(shard: str, column: Column, text: str) -> Value:
    try:
        value, raw = _meant(column, text)
        described = to_wire_text(column, raw)
    except UNREADABLE as error:
        raise invalid_key_value(shard, column.name, column, text) from error
    require_spelling(shard, column.name, text, described)
    if column.kind in NO_DAYS and text == encode_missing_date(column):
        msg = f"{text!r} of {shard}'s key column {column.name} may be 1970-01-01 or any day"
        advice = "it is unknown which; run `sluice bootstrap TABLE --reason ...`"
        raise ConfigError(f"{msg} that does not exist, such as 0000-00-00: {advice}")
    return value


def _meant(column: Column, text: str) -> tuple[Value, Raw]:
    """The value that *text* means, and the server's text of it."""
    kind = column.kind
    if kind == "BIGINT" and column.unsigned:
        number = int.from_bytes(base64.b64decode(text, validate=True), "big", signed=True)
        return number, str(number)
    if kind in (*WHOLE, "BIGINT", "YEAR"):
        number = 0 if kind == "YEAR" and int(text) == YEAR_ZERO else int(text)
        return number, str(number)
    if kind == "DECIMAL":
        return Decimal(text), f"{Decimal(text):.{column.fraction}f}"
    if kind in BYTES:
        data = base64.b64decode(text, validate=True)
        return data, data
    if kind in (*TEXTS, "ENUM", "SET"):
        return text, text
    moment = _moment(column, text)
    return moment, moment


def _moment(column: Column, text: str) -> str:
    """The server's text of a DATE, DATETIME or TIMESTAMP."""
    if column.kind == "TIMESTAMP":
        return text.removesuffix("Z").replace("T", " ")
    if column.kind not in ("DATE", "DATETIME"):
        msg = f"rows cannot be read one by one by a {column.kind}"
        raise ValueError(msg)
    unit = "D" if column.kind == "DATE" else "ms" if column.fraction <= MILLIS else "us"
    moment = np.array([int(text)]).astype(f"datetime64[{unit}]")
    return str(moment[0]).replace("T", " ")
