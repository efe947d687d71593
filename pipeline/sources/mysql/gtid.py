"""Which transactions has a MySQL server executed?  Sets of GTIDs as its own text has them.

A set is compared by content, never by text: servers print the same set in several ways.  Tagged
GTIDs (MySQL 8.3 and later) count as a name of their own, ``uuid:tag``.  MariaDB's ``0-11-5`` is
one position per domain and no set, so it is refused here.  Pure.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Self

from pipeline.errors import FormatError

UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}")
INTERVAL = re.compile(r"(\d+)(?:-(\d+))?")
MARIADB = re.compile(r"\d+-\d+-\d+(?:,\d+-\d+-\d+)*")
HIGHEST = 2**63 - 1

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class GtidSet:
    """Transactions by name of their origin: disjoint closed spans, ascending, as far as possible.

    Build it with `parse` or `of`; both bring it into that one form, so equal sets are equal.
    """

    spans: tuple[tuple[str, tuple[Span, ...]], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``uuid:1-5:7,uuid2:tag:1``, with any white space; an empty text is the empty set.

        Raises:
            FormatError: if it is something else, such as a MariaDB position.
        """
        squeezed = "".join(text.split()).lower()
        if MARIADB.fullmatch(squeezed):
            msg = f"{squeezed} is a MariaDB position, not a GTID set; compare log positions instead"
            raise FormatError(msg)
        return cls.of(span for part in squeezed.split(",") if part for span in _spans(part))

    @classmethod
    def of(cls, spans: Iterable[tuple[str, Span]]) -> Self:
        """Build the set of all these spans, which may touch and overlap."""
        by_name = groupby(sorted(spans), key=itemgetter(0))
        return cls(tuple((name, _merged(span for _, span in group)) for name, group in by_name))

    def contains(self, other: "GtidSet") -> bool:
        """Whether every transaction of *other* is in this set; the empty set is in every set."""
        mine: Mapping[str, tuple[Span, ...]] = dict(self.spans)
        return all(
            any(low <= first and last <= high for low, high in mine.get(name, ()))
            for name, spans in other.spans
            for first, last in spans
        )

    def __or__(self, other: "GtidSet") -> "GtidSet":
        """Union."""
        both = (*self.spans, *other.spans)
        return GtidSet.of((name, span) for name, spans in both for span in spans)

    def __str__(self) -> str:
        """MySQL's text, in one canonical form; a tag is written with its uuid each time."""
        return ",".join(
            f"{name}:{':'.join(_text(span) for span in spans)}" for name, spans in self.spans
        )


def contains(big: str, small: str) -> bool:
    """Whether every transaction of *small* is in *big*, both as text."""
    return GtidSet.parse(big).contains(GtidSet.parse(small))


def _spans(part: str) -> Iterable[tuple[str, Span]]:
    uuid, *rest = part.split(":")
    if not UUID.fullmatch(uuid) or not rest or TAG.fullmatch(rest[-1]):
        msg = f"not a GTID set: {part!r}; expected uuid:1-5:7"
        raise FormatError(msg)
    name = uuid
    for word in rest:
        interval = INTERVAL.fullmatch(word)
        if interval is None and TAG.fullmatch(word):
            name = f"{uuid}:{word}"  # it holds for the intervals up to the next tag
            continue
        first, last = (int(interval[1]), int(interval[2] or interval[1])) if interval else (0, 0)
        if not 1 <= first <= last <= HIGHEST:
            msg = f"not a GTID interval: {word!r} in {part!r}"
            raise FormatError(msg)
        yield name, (first, last)


def _merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Ascending spans, joined where they touch: without that, containment would miss a span."""
    merged: list[Span] = []
    for first, last in spans:
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)


def _text(span: Span) -> str:
    return str(span[0]) if span[0] == span[1] else f"{span[0]}-{span[1]}"
