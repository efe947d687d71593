"""Which values does a key of the change log stand for at the server?  The inverse of `wire_text`.

Only a text that the log itself would write is taken: another spelling of the same value would be
found at the source, and looked for in vain in the mirror.  Pure.
"""

import base64
import binascii
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

import numpy as np

from pipeline.errors import ConfigError
from pipeline.sources.asked_keys import require_spelling, texts_of, unread
from pipeline.sources.condition import SqlCondition, Value
from pipeline.sources.mysql.column import MySqlColumn as Column
from pipeline.sources.mysql.typemap import BYTES, TEXTS, WHOLE
from pipeline.sources.mysql.wire_text import MILLIS, YEAR_ZERO, Raw, told_of_none, wire_text

NO_DAYS = ("DATE", "DATETIME", "TIMESTAMP")
UNREADABLE = (ValueError, TypeError, InvalidOperation, OverflowError, binascii.Error)


def one_of(shard: str, columns: Sequence[Column], keys: Sequence[str]) -> SqlCondition:
    """Rows under one of *keys*, each the JSON array of the texts of *columns*.

    Raises:
        ConfigError: one of them is no key of the shard.
    """
    equal = " AND ".join(f"{_name(column)} = %s" for column in columns)
    rows = [_row(shard, columns, key) for key in keys]
    return " OR ".join([f"({equal})"] * len(rows)), tuple(value for row in rows for value in row)


def _row(shard: str, columns: Sequence[Column], key: str) -> tuple[Value, ...]:
    texts = texts_of(shard, [column.name for column in columns], key)
    return tuple(_value(shard, *pair) for pair in zip(columns, texts, strict=True))


def _value(shard: str, column: Column, text: str) -> Value:
    try:
        value, raw = _meant(column, text)
        told = wire_text(column, raw)
    except UNREADABLE as error:
        raise unread(shard, column.name, column, text) from error
    require_spelling(shard, column.name, text, told)
    if column.kind in NO_DAYS and text == told_of_none(column):
        msg = f"{text!r} of {shard}'s key column {column.name} stands for 1970 and for each day"
        advice = "which of them is meant nobody tells; take a new base: sluice bootstrap"
        raise ConfigError(f"{msg} that does not exist, such as 0000-00-00: {advice}")
    return value


def _meant(column: Column, text: str) -> tuple[Value, Raw]:
    """The value, and how the server writes it."""
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
    """A day, or a time of a day, as the server writes it."""
    if column.kind == "TIMESTAMP":
        return text.removesuffix("Z").replace("T", " ")
    if column.kind not in ("DATE", "DATETIME"):
        msg = f"rows cannot be asked for one by one by a {column.kind}"
        raise ValueError(msg)
    unit = "D" if column.kind == "DATE" else "ms" if column.fraction <= MILLIS else "us"
    moment = np.array([int(text)]).astype(f"datetime64[{unit}]")
    return str(moment[0]).replace("T", " ")


def _name(column: Column) -> str:
    return f"`{column.name.replace('`', '``')}`".replace("%", "%%")
