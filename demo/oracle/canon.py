"""Converts values of mirror and source to one form, by MySQL's type, to compare them.

Written from MySQL's manual and the mirror contract alone. The source's raw value is the text, or
the bytes, that the server sends; the mirror's is what Arrow returns. BIT(n) is big-endian on both
sides.
"""

import json
import re
import struct
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation

INTS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
WIDTHS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"}
BYTES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
WIDEST_DECIMAL = 38

FIXED = {
    "datetime": "timestamp_ntz",
    "timestamp": "timestamp",
    "date": "date",
    "time": "long",
    "float": "float",
    "double": "double",
    "json": "string",
    **dict.fromkeys(TEXTS, "string"),
    **dict.fromkeys(BYTES, "binary"),
}


@dataclass(frozen=True, slots=True)
class Column:
    """A source column: ``kind`` is information_schema's DATA_TYPE, ``declared`` its COLUMN_TYPE."""

    name: str
    kind: str
    declared: str

    @property
    def verifiable(self) -> bool:
        """Tell whether the contract has a mirror type for its type."""
        return self.kind in {*INTS, *FIXED, "decimal", "year", "bit"}

    @property
    def size(self) -> tuple[int, ...]:
        """Return the numbers in its declaration: (12, 4) of DECIMAL(12,4)."""
        declared = re.search(r"\(([\d,]+)\)", self.declared)
        return tuple(map(int, declared[1].split(","))) if declared else ()

    def fits(self, mirror_type: str) -> bool:
        """Tell whether *mirror_type*, in Delta's names, is the contract's."""
        return fits(self, mirror_type)

    def from_mirror(self, value: object) -> object:
        """Convert a mirror's value to canonical form; None for NULL, an invalid value unchanged."""
        return from_mirror(self, value)


def fits(column: Column, mirror_type: str) -> bool:
    """Tell whether *mirror_type*, in Delta's names, is the contract's for *column*."""
    unsigned = "unsigned" in column.declared
    if column.kind == "bigint" and unsigned:
        return mirror_type == "decimal(20,0)"
    if column.kind in INTS:
        return WIDTHS.get(mirror_type, 0) >= INTS[column.kind] + unsigned
    if column.kind == "year":
        return WIDTHS.get(mirror_type, 0) >= WIDTHS["short"]
    if column.kind == "decimal":
        digits, scale = column.size
        exact = f"decimal({digits},{scale})"
        return mirror_type == (exact if digits <= WIDEST_DECIMAL else "string")
    if column.kind == "bit":
        return mirror_type == ("boolean" if column.size == (1,) else "binary")
    return mirror_type == FIXED[column.kind]


def from_source(column: Column, raw: str | bytes | None) -> object:
    """Convert a raw value of the source to canonical form; None for NULL.

    A value without such a form (a zero date) is returned as its text.
    """
    if raw is None:
        return None
    if isinstance(raw, bytes):
        if column.kind != "bit":
            return raw
        return any(raw) if column.size == (1,) else raw
    if column.kind in INTS or column.kind == "year":
        return int(raw)
    if column.kind in {"datetime", "timestamp", "date", "time"}:
        return _clock(column.kind, raw)
    return _plain(column, raw)


def from_mirror(column: Column, value: object) -> object:
    """Convert a mirror's value to canonical form; None for NULL, an invalid value unchanged."""
    if isinstance(value, str | float | Decimal) and column.kind not in TEXTS:
        try:
            return int(value) if column.kind in INTS else _plain(column, value)
        except (ValueError, InvalidOperation):
            return value
    if isinstance(value, datetime) and column.kind == "timestamp" and value.tzinfo:
        return value.astimezone(UTC)
    return value


def _plain(column: Column, value: str | float | Decimal) -> object:
    """Convert a number or a JSON text to canonical form; return other texts unchanged."""
    if column.kind == "decimal":
        return Decimal(value)
    if column.kind == "double":
        return float(value)
    if column.kind == "float":
        return struct.unpack("f", struct.pack("f", float(value)))[0]
    if column.kind == "json":
        return meaning(json.loads(str(value)))
    return value


def meaning(value: object) -> object:
    """Mark values that are equal in Python and not in JSON: true and 1, null and NULL."""
    if value is None or isinstance(value, bool):
        return ("json", value)
    if isinstance(value, list):
        return [meaning(item) for item in value]
    if isinstance(value, dict):
        return {name: meaning(item) for name, item in value.items()}
    return value


def _clock(kind: str, raw: str) -> object:
    """Parse MySQL's text of a date or time; return the text itself if it is invalid."""
    if kind == "time":
        return _microseconds(raw)
    try:
        if kind == "date":
            return date.fromisoformat(raw)
        moment = datetime.fromisoformat(raw)
    except ValueError:
        return raw
    return moment.replace(tzinfo=UTC) if kind == "timestamp" else moment


def _microseconds(raw: str) -> int:
    """Convert ``-838:59:59.000001`` to microseconds."""
    hours, minutes, seconds = raw.lstrip("-").split(":")
    whole, _, fraction = seconds.partition(".")
    span = timedelta(
        hours=int(hours),
        minutes=int(minutes),
        seconds=int(whole),
        microseconds=int(fraction.ljust(6, "0")),
    )
    return span // timedelta(microseconds=1) * (-1 if raw.startswith("-") else 1)
