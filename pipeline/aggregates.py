"""Defines row counts and column sums over a time range, computed alike for source and mirror.

Numbers are added exactly. A text counts as the first 15 hexadecimal digits (60 bits) of the MD5
of its UTF-8. So a sum does not depend on the order of the rows, and equal values cannot cancel
each other. NULL adds nothing. A range is half-open: it includes its start and excludes its end.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from hashlib import md5
from typing import Any, Protocol, TypeVar

from pipeline.errors import ProofError
from pipeline.model import Shard

DIGITS = 15  # hexadecimal digits of an MD5: 60 bits

Moment = date | datetime
"""A day, a naive time or an instant, of the same kind as the column it is compared with."""

TimeSpan = tuple[Moment, Moment]
"""Half open: ``(first, until)`` includes ``first`` and excludes ``until``."""


@dataclass(frozen=True, slots=True)
class AggregatedColumn:
    """A column whose values are summed: numbers, or digests of texts if it is ``text``."""

    name: str
    text: bool = False


class KindOfColumn(Protocol):
    """A column of a source, with its source's name for its type."""

    @property
    def name(self) -> str:
        """Its name in the source."""
        ...

    @property
    def kind(self) -> str:
        """Its type, as its source names it."""
        ...


C = TypeVar("C", bound=KindOfColumn)


@dataclass(frozen=True, slots=True)
class AggregatedTypes:
    """The kinds of columns that a source can sum; ``times`` can be compared with moments."""

    times: frozenset[str]
    numbers: frozenset[str]
    texts: frozenset[str]

    def known(
        self, columns: Sequence[C], shard: Shard, column: str, fields: Sequence[AggregatedColumn]
    ) -> dict[str, C]:
        """The *columns* of *shard* by name.

        Raises:
            ProofError: *column*, or one of *fields*, is missing, or of another kind.
        """
        known = {one.name: one for one in columns}
        _require(known, shard, column, self.times, "is no date or time")
        for one in fields:
            if one.text:
                _require(known, shard, one.name, self.texts, "is no text")
            else:
                _require(
                    known, shard, one.name, self.numbers, "is neither an integer nor a decimal"
                )
        return known


@dataclass(frozen=True, slots=True)
class RangeAggregate:
    """Row count, and a sum for each field, in the order of the fields."""

    rows: int
    sums: tuple[Decimal, ...] = ()


def add_up(
    rows: Iterable[Mapping[str, Any]],
    column: str,
    span: TimeSpan,
    fields: Sequence[AggregatedColumn],
) -> RangeAggregate:
    """The aggregate of *rows* in *span*, added one by one; SQL statements must equal it."""
    first, until = span
    inside = [row for row in rows if row[column] is not None and first <= row[column] < until]
    return RangeAggregate(len(inside), tuple(_sum(inside, one) for one in fields))


def _sum(rows: Iterable[Mapping[str, Any]], field: AggregatedColumn) -> Decimal:
    values = (row[field.name] for row in rows)
    return sum((_number(one, field) for one in values if one is not None), Decimal())


def _number(value: Any, field: AggregatedColumn) -> Decimal:
    if not field.text:
        return Decimal(value)
    digest = md5(str(value).encode(), usedforsecurity=False).hexdigest()
    return Decimal(int(digest[:DIGITS], 16))


def _require(
    known: Mapping[str, KindOfColumn], shard: Shard, name: str, kinds: frozenset[str], why: str
) -> None:
    if name not in known:
        raise ProofError(f"{shard} has no column {name!r}; it has {', '.join(known) or 'none'}")
    if known[name].kind not in kinds:
        raise ProofError(f"{shard}: {name} ({known[name].kind}) {why}")


def parse_aggregate(row: Mapping[str, Any], fields: tuple[AggregatedColumn, ...]) -> RangeAggregate:
    """Read an answer in which ``n`` counts rows and ``s0``, ``s1``, ... are the sums of fields."""
    sums = (row[f"s{number}"] for number in range(len(fields)))
    return RangeAggregate(
        int(row["n"]), tuple(Decimal(one if one is not None else 0) for one in sums)
    )
