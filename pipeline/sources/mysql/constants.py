"""Which value did the source put into old rows when it added a column?  Only constants count.

The value is the source's own, computed once; where the schema change does not tell it for
certain, the column is not followed.  Pure.
"""

import re
from datetime import date, datetime

from pipeline.sources.mysql.column import MySqlColumn as Column
from pipeline.sources.mysql.literals import unquoted
from pipeline.sources.mysql.typemap import BYTES, TEXTS

Value = int | str | bytes | bool | date | datetime | None
UNSURE = "1970-01-01 00:00:00"  # how Debezium writes a default that is the time of the change
_TIME = re.compile(r"(-?)(\d{1,3}):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_TWO_DIGITS, _TURN = 100, 70  # YEAR 0-69 is 2000-2069, 70-99 is 1970-1999


def constant(column: Column) -> Value:
    """Value that old rows got in *column*; None for NULL.

    Raises:
        ValueError: if it is not known for certain; says why.
    """
    text, kind = column.default, column.kind
    if column.generated:
        raise ValueError("it is computed, from other columns or when the statement ran")
    if text is None:
        if not column.nullable:
            raise ValueError("it is NOT NULL without a default")
        return None
    if kind in ("ENUM", "SET", *TEXTS):
        word = unquoted(text)
        return word if kind in TEXTS else word.rstrip(" ")  # a label has no blank at its end
    if kind in BYTES:
        return _bytes(column, text)
    if kind == "TIMESTAMP":
        raise ValueError("a TIMESTAMP's default depends on the session's time zone")
    if kind in ("DATE", "DATETIME", "TIME", "YEAR"):
        return _moment(kind, text)
    if kind == "BIT":
        return _bit(column, text)
    word = {"TRUE": "1", "FALSE": "0"}.get(text.upper(), text)
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", word):
        raise ValueError("its default is no constant")
    return word


def _moment(kind: str, text: str) -> Value:
    if text == UNSURE or text.startswith("0000"):
        raise ValueError("its default is the time of the change, or a zero date")
    if kind == "DATE":
        return date.fromisoformat(text[:10])
    if kind == "DATETIME":
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            raise ValueError("a default with a zone depends on the session's time zone")
        return str(moment)
    if kind == "YEAR":
        year = int(text)
        short = 2000 if year < _TURN else 1900
        return year if not 0 < year < _TWO_DIGITS else year + short
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError("its default is no plain time")
    sign, hours, minutes, seconds, fraction = found.groups()
    micros = (int(hours) * 3600 + int(minutes) * 60 + int(seconds)) * 1_000_000
    micros += int((fraction or "").ljust(6, "0"))
    return -micros if sign else micros


def _bit(column: Column, text: str) -> Value:
    """Only 0 and 1: b'101' and 101 look alike in a schema change."""
    if text not in ("0", "1"):
        raise ValueError("a BIT's default is told without its base")
    if column.width == 1:
        return text == "1"
    return int(text).to_bytes((column.width + 7) // 8, "big")


def _bytes(column: Column, text: str) -> bytes:
    """Plain letters only: hexadecimal and escapes look like letters in a schema change."""
    if not text.isascii() or not text.isprintable() or text.lower().startswith(("0x", "\\")):
        raise ValueError("a binary default is not told exactly")
    data = text.encode()
    return data.ljust(column.width, b"\0") if column.kind == "BINARY" else data
