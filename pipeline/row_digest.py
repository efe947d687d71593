"""Defines the digest of a row, which the source, the mirror and Python compute alike.

Each value has one text in all of them. A row's text joins the texts of its columns. Its digest is
the first 64 bits of the MD5 of that text. Digests are added modulo 2**64. So a sum does not depend
on the order of the rows, and two equal rows do not cancel each other as in a XOR.

* NULL is `N`, which no value's text is. A text is preceded by its number of characters, so a
  separator inside a value cannot move the border between two columns.
* Bytes are their own MD5, so that long ones are not written out as digits.
* Dates are days, and times are microseconds, since 1970-01-01. Values that no lake holds exactly
  have the text `X` on each side and are not compared: anything before 1582-10-15, which collectors
  shift, and the last day of the year 9999, which stands for infinity.
* A form may count two values as equal (`ZERO_DATE`), or a value as not compared (`LATIN`), where
  collectors send one value in two ways.
* Floating point numbers have no form: systems print the same number differently.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from hashlib import md5
from typing import Any

from pipeline.model import Shard

VERSION = 1
"""Increase it with any change of a text below: stored digests of another version are invalid."""
MODULUS = 1 << 64
HEX_DIGITS = 16
"""Hexadecimal digits of an MD5 that are used: 64 bits."""
NULL, UNPROVEN = "N", "X"
DAY = 86_400_000_000  # microseconds
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  - in UTC, without a zone
FIRST_DATE, END_DATE = "1582-10-15", "9999-12-31"
"""The dates that are compared; the end is excluded."""
FIRST_DAY, END_DAY = (
    (date.fromisoformat(one) - EPOCH.date()).days for one in (FIRST_DATE, END_DATE)
)
UNDEFINED = "\x81\x8d\x8f\x90\x9d\ufffd"
"""The characters into which converters turn the five bytes that latin1 does not define."""
NO_FLOATS = "systems print the same number differently"
"""Why floating point numbers have no form."""


class Form(StrEnum):
    """The form in which a value is written."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    DECIMAL = "decimal"
    DATE = "date"
    MOMENT = "moment"
    TEXT = "text"
    BYTES = "bytes"
    PADDED = "padded_bytes"
    """Bytes without trailing zeros, which some writers of a column add."""
    ZERO_DATE = "date_or_zero"
    ZERO_MOMENT = "moment_or_zero"
    """NULL equals 1970-01-01: collectors send either for a date that does not exist."""
    LATIN = "latin_text"
    """A text with a character of ``UNDEFINED`` is ``UNPROVEN``: converters may replace it."""

    @property
    def base(self) -> "Form":
        """The form without what only the server knows of a column."""
        return Form.TEXT if self is Form.LATIN else self


@dataclass(frozen=True, slots=True)
class DigestColumn:
    """A column that is part of the digest, and the form of its values."""

    name: str
    form: Form


@dataclass(frozen=True, slots=True)
class RangeDigest:
    """Rows of a range, and the sum of their digests modulo ``MODULUS``."""

    rows: int = 0
    sum: int = 0

    def __add__(self, other: "RangeDigest") -> "RangeDigest":
        """Return the rows and digests of both together."""
        return RangeDigest(self.rows + other.rows, (self.sum + other.sum) % MODULUS)

    def __sub__(self, other: "RangeDigest") -> "RangeDigest":
        """Return the rows and digests without *other*; the number of rows may become negative."""
        return RangeDigest(self.rows - other.rows, (self.sum - other.sum) % MODULUS)


@dataclass(frozen=True, slots=True)
class KeyedRow:
    """A row by the digest of its ``key``, with the ``digest`` of the row; ``name`` is for people.

    Two systems may order keys differently, but they digest them alike. ``columns`` are the digests
    of single columns, if requested.
    """

    key: int
    digest: int
    name: tuple[str, ...] = ()
    columns: tuple[int, ...] = ()


KeyValues = tuple[int | str, ...]
"""The values of a row's key, in the order of its columns."""


@dataclass(frozen=True, slots=True)
class Bucketing:
    """Divides the rows of a table into *buckets* by the digest of their ``key``.

    The number of buckets is a power of two, so a digest's lowest bits are its bucket.
    """

    key: tuple[DigestColumn, ...]
    buckets: int

    def bucket_of(self, digest: int) -> int:
        """The bucket of a key with that *digest*, signed or unsigned."""
        return digest % self.buckets


def is_plain_value(value: object) -> bool:
    """Whether each source and each mirror can find a row by that key value.

    They can for 64-bit integers and for texts. In a `latin1` column of MySQL a control character
    from U+0080 on is a byte that latin1 does not define. If a list of texts contains one, MySQL 8
    finds no row by any of them.
    """
    if isinstance(value, int):
        return not isinstance(value, bool) and -(2**63) <= value < 2**63
    return isinstance(value, str) and not any("\x80" <= one <= "\x9f" for one in value)


def render_value(form: Form, value: Any) -> str:
    """The text of one value, as a mirror returns it; SQL statements must produce the same."""
    if value is None:
        return f"{NULL}|" if form.base is Form.TEXT else NULL
    return _RENDERERS[form](value)


def digest_row(columns: Sequence[DigestColumn], values: Sequence[Any]) -> RangeDigest:
    """The digest of one row; *values* are those of *columns*."""
    text = "|".join(render_value(one.form, v) for one, v in zip(columns, values, strict=True))
    return RangeDigest(1, int(_md5(text.encode())[:HEX_DIGITS], 16))


def list_row_digests(
    rows: Iterable[Mapping[str, Any]], column: str, columns: Sequence[DigestColumn]
) -> list[tuple[int, int]]:
    """Id and digest of each row by its integer *column*, ascending; for few rows."""
    return sorted(
        (int(row[column]), digest_row(columns, [row[one.name] for one in columns]).sum)
        for row in rows
    )


def list_keyed_rows(
    rows: Iterable[Mapping[str, Any]], by: Bucketing, columns: Sequence[DigestColumn]
) -> list[KeyedRow]:
    """Each row with the digest of its key; for few rows."""
    found = list[KeyedRow]()
    for row in rows:
        values = [row[one.name] for one in by.key]
        digest = digest_row(columns, [row[one.name] for one in columns]).sum
        found.append(KeyedRow(digest_row(by.key, values).sum, digest, name_key(values)))
    return found


def list_keyed_columns(
    rows: Iterable[Mapping[str, Any]], by: Bucketing, columns: Sequence[DigestColumn]
) -> list[KeyedRow]:
    """Each row with the digest of its key, and of each of *columns* alone; for few rows."""
    found = list[KeyedRow]()
    for row in rows:
        values = [row[one.name] for one in by.key]
        own = tuple(digest_row([one], [row[one.name]]).sum for one in columns)
        found.append(KeyedRow(digest_row(by.key, values).sum, 0, name_key(values), own))
    return found


class ListedRows:
    """Implements the queries by key over rows in memory; for few rows.

    Base class for a source or table format whose rows no query language reaches.
    """

    def list_rows(self, shard: Shard, names: Collection[str]) -> Iterable[Mapping[str, Any]]:
        """Rows of *shard*, in any order, each with at least the columns *names*."""
        raise NotImplementedError

    def bucket_digests(
        self, shard: Shard, by: Bucketing, columns: Sequence[DigestColumn]
    ) -> dict[int, RangeDigest]:
        """Rows and digests of each bucket that has rows."""
        return sum_buckets(list_keyed_rows(self._rows_for(shard, by, columns), by, columns), by)

    def bucket_rows(
        self,
        shard: Shard,
        by: Bucketing,
        columns: Sequence[DigestColumn],
        chosen: Collection[int],
        limit: int,
    ) -> tuple[KeyedRow, ...]:
        """Rows of the *chosen* buckets, in any order, at most *limit*."""
        rows = list_keyed_rows(self._rows_for(shard, by, columns), by, columns)
        return tuple([one for one in rows if by.bucket_of(one.key) in chosen][:limit])

    def keyed_columns(
        self,
        shard: Shard,
        by: Bucketing,
        columns: Sequence[DigestColumn],
        keys: Collection[int],
        limit: int,
    ) -> tuple[KeyedRow, ...]:
        """Rows with one of *keys*, with the digest of each of *columns* alone, at most *limit*."""
        rows = list_keyed_columns(self._rows_for(shard, by, columns), by, columns)
        return tuple([one for one in rows if one.key in keys][:limit])

    def rows_by_key(
        self,
        shard: Shard,
        by: Bucketing,
        columns: Sequence[DigestColumn],
        keys: Mapping[int, KeyValues],
    ) -> tuple[KeyedRow, ...]:
        """Rows with one of *keys* (digest -> values of the key)."""
        rows = list_keyed_rows(self._rows_for(shard, by, columns), by, columns)
        return tuple(one for one in rows if one.key in keys)

    def _rows_for(
        self, shard: Shard, by: Bucketing, columns: Sequence[DigestColumn]
    ) -> Iterable[Mapping[str, Any]]:
        return self.list_rows(shard, {one.name for one in (*by.key, *columns)})


def name_key(values: Iterable[Any]) -> tuple[str, ...]:
    """The values of a key for people; bytes are hexadecimal digits."""
    return tuple(one.hex() if isinstance(one, bytes | bytearray) else str(one) for one in values)


def sum_rows(rows: Iterable[tuple[int, int]]) -> dict[int, RangeDigest]:
    """The sum of each id; *rows* are ids with digests."""
    found = dict[int, RangeDigest]()
    for id_, digest in rows:
        found[id_] = found.get(id_, RangeDigest()) + RangeDigest(1, digest)
    return found


def sum_buckets(rows: Iterable[KeyedRow], by: Bucketing) -> dict[int, RangeDigest]:
    """The sum of each bucket that has rows."""
    return sum_rows((by.bucket_of(row.key), row.digest) for row in rows)


def sum_ranges(
    rows: Iterable[tuple[int, int]], ranges: Iterable[tuple[int, int]]
) -> tuple[RangeDigest, ...]:
    """The sum of each half-open range of *rows*, which are ids with digests."""
    known = [*rows]
    return tuple(
        sum((RangeDigest(1, one) for id_, one in known if low <= id_ < high), RangeDigest())
        for low, high in ranges
    )


def sum_ids(rows: Iterable[tuple[int, int]], ids: Iterable[int]) -> tuple[RangeDigest, ...]:
    """The sum of each of *ids*, in their order; *rows* are ids with digests."""
    found = sum_rows(rows)
    return tuple(found.get(id_, RangeDigest()) for id_ in ids)


def sum_columns(
    columns: Iterable[Iterable[tuple[int, int]]], ids: Sequence[int]
) -> tuple[tuple[RangeDigest, ...], ...]:
    """The sum of each of *columns* for each of *ids*; a column's rows are ids with digests."""
    each = [sum_ids(rows, ids) for rows in columns]
    return tuple(tuple(own[place] for own in each) for place in range(len(ids)))


def _render_latin(value: str) -> str:
    if not set(UNDEFINED).isdisjoint(value):
        return f"{UNPROVEN}|"
    return f"{len(value)}|{value}"


def _render_date(value: date) -> str:
    return _bounded((value - EPOCH.date()).days, FIRST_DAY, END_DAY)


def _render_moment(value: datetime) -> str:
    wall = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    since = wall - EPOCH
    micros = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return _bounded(micros, FIRST_DAY * DAY, END_DAY * DAY)


def _none_if_zero(text: str) -> str:
    return NULL if text == "0" else text


def _md5(data: bytes) -> str:
    return md5(data, usedforsecurity=False).hexdigest()


def _bounded(number: int, first: int, end: int) -> str:
    return str(number) if first <= number < end else UNPROVEN


_RENDERERS: Mapping[Form, Callable[[Any], str]] = {
    Form.BOOLEAN: lambda value: str(int(value)),
    Form.INTEGER: lambda value: str(int(value)),
    Form.DECIMAL: lambda value: f"{Decimal(value):f}",
    Form.DATE: _render_date,
    Form.MOMENT: _render_moment,
    Form.ZERO_DATE: lambda value: _none_if_zero(_render_date(value)),
    Form.ZERO_MOMENT: lambda value: _none_if_zero(_render_moment(value)),
    Form.LATIN: _render_latin,
    Form.TEXT: lambda value: f"{len(value)}|{value}",
    Form.BYTES: lambda value: _md5(bytes(value)),
    Form.PADDED: lambda value: _md5(bytes(value).rstrip(b"\0")),
}
