"""How many rows lie in a span of time, and what do their fields come to?  Words for both sides.

Numbers are added up exactly, texts by a digest each: the first 15 hexadecimal digits of the MD5 of
its UTF-8.  So a sum does not depend on the order of rows, and equal ones cannot cancel each other.
NULL adds nothing.  Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from hashlib import md5
from typing import Any

DIGITS = 15  # hexadecimal, of an MD5: 60 bits

Moment = date | datetime
"""A day, a wall's time (naive) or an instant (aware): as the column that it is held against."""

TimeSpan = tuple[Moment, Moment]
"""Half open: ``(first, until)`` holds ``first`` and not ``until``."""


@dataclass(frozen=True, slots=True)
class TalliedField:
    """A column whose values are added up: numbers, or digests of texts where it is ``text``."""

    name: str
    text: bool = False


@dataclass(frozen=True, slots=True)
class SpanTally:
    """Rows, and a sum for each field, in their order."""

    rows: int
    sums: tuple[Decimal, ...] = ()


def added_up(
    rows: Iterable[Mapping[str, Any]], column: str, span: TimeSpan, fields: Sequence[TalliedField]
) -> SpanTally:
    """The tally of *rows* that lie in *span*, one by one: what every statement comes to."""
    first, until = span
    inside = [row for row in rows if row[column] is not None and first <= row[column] < until]
    return SpanTally(len(inside), tuple(_sum(inside, one) for one in fields))


def _sum(rows: Iterable[Mapping[str, Any]], field: TalliedField) -> Decimal:
    values = (row[field.name] for row in rows)
    return sum((_number(one, field) for one in values if one is not None), Decimal())


def _number(value: Any, field: TalliedField) -> Decimal:
    if not field.text:
        return Decimal(value)
    digest = md5(str(value).encode(), usedforsecurity=False).hexdigest()
    return Decimal(int(digest[:DIGITS], 16))


def tally(row: Mapping[str, Any], fields: tuple[TalliedField, ...]) -> SpanTally:
    """Read an answer in which ``n`` counts rows and ``s0``, ``s1``, ... add fields up."""
    sums = (row[f"s{number}"] for number in range(len(fields)))
    return SpanTally(int(row["n"]), tuple(Decimal(one if one is not None else 0) for one in sums))
