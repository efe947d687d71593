"""Which values does a key of the change log stand for at the server?  The inverse of `wire_text`.

Only a text that the log itself would write is taken: another spelling of the same value would be
found at the source, and looked for in vain in the mirror.  Pure.
"""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation

import numpy as np

from pipeline.sources.asked_keys import require_spelling, texts_of, unread
from pipeline.sources.condition import SqlCondition, Value
from pipeline.sources.postgres.column import TEXTS
from pipeline.sources.postgres.read_columns import ReadColumn
from pipeline.sources.postgres.session import quoted
from pipeline.sources.postgres.typemap import WHOLE
from pipeline.sources.postgres.wire_text import MICROS, wire_text

UNREADABLE = (ValueError, TypeError, InvalidOperation, OverflowError, binascii.Error)
AS_THEY_ARE = (*TEXTS, "ENUM", "INET", "CIDR", "MACADDR", "MACADDR8")
READ: Mapping[str, Callable[[str], str]] = {
    "UUID": str.lower,
    "BOOL": lambda text: text[:1],
    "BYTEA": lambda text: f"\\x{base64.b64decode(text, validate=True).hex()}",
}


def one_of(shard: str, columns: Sequence[ReadColumn], keys: Sequence[str]) -> SqlCondition:
    """Rows under one of *keys*, each the JSON array of the texts of *columns*.

    Raises:
        ConfigError: one of them is no key of the shard.
    """
    names = ", ".join(quoted(one.name) for one in columns)
    rows = [_row(shard, columns, key) for key in keys]
    places = ", ".join([f"({', '.join(['%s'] * len(columns))})"] * len(rows))
    return f"({names}) IN ({places})", tuple(value for row in rows for value in row)


def _row(shard: str, columns: Sequence[ReadColumn], key: str) -> tuple[Value, ...]:
    texts = texts_of(shard, [one.name for one in columns], key)
    return tuple(_value(shard, *pair) for pair in zip(columns, texts, strict=True))


def _value(shard: str, one: ReadColumn, text: str) -> str:
    try:
        raw = _meant(one, text)
        told = wire_text(one, raw)
    except UNREADABLE as error:
        raise unread(shard, one.name, one.column, text) from error
    require_spelling(shard, one.name, text, told)
    return raw


def _meant(one: ReadColumn, text: str) -> str:
    """The value as the server writes it."""
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
    """A day, or a time of a day, as the server writes it."""
    kind = one.column.kind
    if kind == "TIMESTAMPTZ":
        return f"{text.removesuffix('Z').replace('T', ' ')}+00"
    if kind == "TIME":
        each = 1_000 if one.column.sent == "time.Time" else 1
        whole, micros = divmod(int(text) * each, MICROS)
        return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}.{micros:06}"
    if kind not in ("DATE", "TIMESTAMP"):
        msg = f"rows cannot be asked for one by one by a {one.column}"
        raise ValueError(msg)
    brief = one.column.sent == "time.Timestamp"
    unit = "D" if kind == "DATE" else "ms" if brief else "us"
    return str(np.array([int(text)]).astype(f"datetime64[{unit}]")[0]).replace("T", " ")
