"""Reads the rows of a Postgres as its texts, and compares a mirror's values with them.

Written from Postgres' manual and the mirror contract alone. The source's raw value is the text that
the server sends; the mirror's is what Arrow returns.
"""

import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import psycopg

from demo.oracle.canon import meaning
from demo.oracle.rows import Row, RowId, Source
from demo.shop.postgres import PostgresAddress

# The contract: docs/postgres_types.md
FIXED = {
    "boolean": "boolean",
    "smallint": "short",
    "integer": "integer",
    "bigint": "long",
    "real": "float",
    "double precision": "double",
    "bytea": "binary",
    "date": "date",
    "time without time zone": "long",
    "timestamp without time zone": "timestamp_ntz",
    "timestamp with time zone": "timestamp",
    **dict.fromkeys(("text", "character varying", "bit", "uuid", "inet", "cidr"), "string"),
    **dict.fromkeys(("json", "jsonb", "interval", "int4range", "int8range"), "string"),
}
WIDEST_DECIMAL = 38
SPECIAL = {"NaN": "NAN", "Infinity": "POSITIVE_INFINITY", "-Infinity": "NEGATIVE_INFINITY"}
SPAN = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)W)?(?:(-?\d+)D)?"
    r"(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?[\d.]+)S)?)?"
)
COLUMNS = """
    SELECT a.attname, format_type(a.atttypid, NULL), format_type(a.atttypid, a.atttypmod),
        t.typtype, t.typcategory
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
KEY = """
    SELECT a.attname FROM pg_index i CROSS JOIN unnest(i.indkey) WITH ORDINALITY AS k (num, place)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.num
    WHERE i.indrelid = %s::regclass AND i.indisprimary ORDER BY k.place
"""


@dataclass(frozen=True, slots=True)
class PostgresColumn:
    """A column: ``kind`` is its type without a size, ``declared`` the type with its size."""

    name: str
    kind: str
    declared: str
    enumerated: bool = False
    listed: bool = False

    @property
    def verifiable(self) -> bool:
        """Tell whether the contract has a mirror type for its type."""
        return self.kind in FIXED or self.kind == "numeric" or self.enumerated or self.listed

    @property
    def picked(self) -> str:
        """Return the expression of its raw value."""
        name = f'"{self.name}"'
        if self.listed:
            return f"to_json({name})::text"
        return f"CASE WHEN {name} IS NOT NULL THEN format('%s', {name}) END"  # as a query's result

    def fits(self, mirror_type: str) -> bool:
        """Tell whether *mirror_type*, in Delta's names, is the contract's."""
        if self.enumerated or self.listed:
            return mirror_type == "string"
        if self.kind == "numeric":
            return mirror_type == (f"decimal{self._size}" if self._size else "string")
        return mirror_type == FIXED[self.kind]

    def from_source(self, raw: str | None) -> object:
        """Convert a raw value of the source to canonical form; None for NULL."""
        if raw is None:
            return None
        if self.kind == "numeric":
            return self._number(SPECIAL.get(raw, raw))
        read = READ.get(self.kind)
        return self._text(raw) if read is None else read(raw)

    def from_mirror(self, value: object) -> object:
        """Convert a mirror's value to canonical form; None for NULL, an invalid value unchanged."""
        if isinstance(value, datetime) and value.tzinfo:
            return value.astimezone(UTC)
        if isinstance(value, Decimal | str) and self.kind == "numeric":
            return self._number(str(value))
        if isinstance(value, float):
            return repr(value) if self.kind == "double precision" else _short(value)
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> object:
        """Convert a text with several spellings to one form: JSON and intervals."""
        if self.kind in {"json", "jsonb"} or self.listed:
            return meaning(json.loads(text))
        if self.kind == "interval":
            return _lengths(text)
        if self.kind == "double precision":
            return repr(float(text))
        return _short(float(text)) if self.kind == "real" else text

    def _number(self, text: str) -> object:
        """Return all digits, with trailing zeros; a text that is no number unchanged."""
        return text if text in SPECIAL.values() else f"{Decimal(text):f}"

    @property
    def _size(self) -> str:
        """Return the size in its declaration, ``(12,4)``; empty if a decimal cannot have it."""
        found = re.search(r"\((\d+),(-?\d+)\)", self.declared)
        fits = found and int(found[1]) <= WIDEST_DECIMAL and 0 <= int(found[2]) <= int(found[1])
        return found[0] if found and fits else ""


def _microseconds(text: str) -> int:
    of = time.fromisoformat(text)
    passed = timedelta(
        hours=of.hour, minutes=of.minute, seconds=of.second, microseconds=of.microsecond
    )
    return passed // timedelta(microseconds=1)


READ: Mapping[str, Callable[[str], object]] = {
    "boolean": lambda raw: raw == "t",
    **dict.fromkeys(("smallint", "integer", "bigint"), int),
    "bytea": lambda raw: bytes.fromhex(raw.removeprefix("\\x")),
    "date": date.fromisoformat,
    "time without time zone": _microseconds,
    "timestamp without time zone": datetime.fromisoformat,
    "timestamp with time zone": lambda raw: datetime.fromisoformat(raw).astimezone(UTC),
}


def read_postgres(
    address: PostgresAddress, mirrors: Mapping[str, Sequence[str]]
) -> dict[str, Source]:
    """Read every shard, ``schema.table``, of every mirror in one snapshot of the database."""
    link = psycopg.connect(
        host=address.host,
        port=address.port,
        dbname=address.database,
        user=address.user,
        password=address.password,
        options="-c timezone=UTC -c intervalstyle=iso_8601 -c datestyle=ISO",
    )
    with link, link.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        return {mirror: _source(cursor, tuple(shards)) for mirror, shards in mirrors.items()}


def _source(cursor: "psycopg.Cursor[Any]", shards: tuple[str, ...]) -> Source:
    """Read one table's shards; the columns of the first one count for all."""
    cursor.execute(COLUMNS, shards[:1])
    declared = [
        PostgresColumn(name, kind, whole, group == "e", category == "A")
        for name, kind, whole, group, category in cursor.fetchall()
    ]
    columns = tuple(column for column in declared if column.verifiable)
    cursor.execute(KEY, shards[:1])
    key = tuple(str(row[0]) for row in cursor.fetchall())
    rows: dict[RowId, Row] = {}
    for shard in shards:
        picked = f"SELECT {', '.join(column.picked for column in columns)} FROM {shard}"
        cursor.execute(picked.encode())
        for values in cursor.fetchall():
            pairs = zip(columns, values, strict=True)
            row = {column.name: column.from_source(raw) for column, raw in pairs}
            rows[shard, tuple(row[name] for name in key)] = row
    unverified = tuple(column.name for column in declared if not column.verifiable)
    return Source(shards, columns, key, rows, unverified)


def _short(value: float) -> str:
    """Return a number of 32 bits in one spelling, for any number of digits."""
    return repr(struct.unpack("f", struct.pack("f", value))[0])


def _lengths(text: str) -> tuple[int, int, int]:
    """Return months, days and microseconds of an ISO 8601 interval."""
    found = SPAN.fullmatch(text)
    if found is None:
        return (-1, -1, -1)
    years, months, weeks, days, hours, minutes = (int(one or 0) for one in found.groups()[:6])
    seconds = Decimal(found[7] or 0)
    passed = (hours * 60 + minutes) * 60 * 10**6 + int(seconds * 10**6)
    return years * 12 + months, weeks * 7 + days, passed
