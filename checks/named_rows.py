"""Subtracts and compares sets of rows that keys of findings name: ``s/t:17``, ``s/t:1-200``.

A key that does not end in an id or a range of ids names one row: itself.
"""

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

_ROWS = re.compile(r"(?P<of>.+:)(?P<first>-?\d+)(?:-(?P<last>-?\d+))?", re.DOTALL)


def describe_count(rows: int) -> str:
    """Return the number of *rows* as text."""
    return "1 row" if rows == 1 else f"{rows} rows"


def describe_all(rows: int) -> str:
    """Return "all *rows* rows" as text, with a singular form for 1."""
    return "the only row" if rows == 1 else f"all {rows} rows"


def are_within(keys: Collection[str], others: Collection[str]) -> bool:
    """Whether *others* name every row that *keys* name, one by one or within a range."""
    return bool(keys) and all(map(NamedRows.of(others).holds, keys))


def has_overlap(id_: str, others: Collection[str]) -> bool:
    """Whether *others* name any row that *id_* names, alone or within a range."""
    return NamedRows.of(others).have_overlap([id_])


def subtract_rows(keys: Iterable[str], others: Collection[str]) -> tuple[str, ...]:
    """The rows of *keys* that *others* do not name; a range without some of its rows is cut."""
    known = NamedRows.of(others)
    return tuple(part for key in keys for part in known.left_of(key))


Span = tuple[int, int]
"""Ids from the first to the last, both included."""


@dataclass(frozen=True, slots=True)
class NamedRows:
    """Rows that keys and ranges name, indexed for many lookups.

    ``ids`` are the keys themselves. ``spans`` maps the text before a range to its ranges, ascending
    and disjoint.  A lookup takes time logarithmic in the number of ranges.
    """

    ids: frozenset[str]
    spans: Mapping[str, tuple[Span, ...]]

    @classmethod
    def of(cls, ids: Collection[str]) -> "NamedRows":
        """Index the rows that *ids* name."""
        return _index_rows(ids) if isinstance(ids, tuple) else _index_rows(tuple(ids))

    def left_of(self, id_: str) -> Iterator[str]:
        """Yield the rows of *id_* that are not among these; *id_* itself if no row of it is."""
        if id_ in self.ids:
            return
        rows = _rows(id_)
        if rows is None:
            yield id_
            return
        of, first, last = rows
        held = self.spans.get(of, ())
        for low, high in held[bisect_left(held, first, key=lambda one: one[1]) :]:
            if low > last:
                break
            if first < low:
                yield _range_id(of, first, low - 1)
            first = high + 1
        if first == rows[1]:
            yield id_
        elif first <= last:
            yield _range_id(of, first, last)

    def holds(self, id_: str) -> bool:
        """Whether all rows of *id_* are among these."""
        return next(self.left_of(id_), None) is None

    def have_overlap(self, ids: Iterable[str]) -> bool:
        """Whether any row of any of *ids* is among these."""
        return any(tuple(self.left_of(id_)) != (id_,) for id_ in ids)


@lru_cache(maxsize=16)  # the same keys are compared with many others
def _index_rows(ids: tuple[str, ...]) -> NamedRows:
    found = dict[str, list[Span]]()
    for rows in filter(None, map(_rows, ids)):
        found.setdefault(rows[0], []).append(rows[1:])
    return NamedRows(frozenset(ids), {of: tuple(_join_spans(own)) for of, own in found.items()})


def _join_spans(spans: Iterable[Span]) -> Iterator[Span]:
    """Yield *spans* ascending, with overlapping ones joined."""
    low, high = None, 0
    for first, last in sorted(spans):
        if low is None:
            low, high = first, last
        elif first <= high:
            high = max(high, last)
        else:
            yield low, high
            low, high = first, last
    if low is not None:
        yield low, high


def _rows(id_: str) -> tuple[str, int, int] | None:
    """Text before the ids in *id_*, the first and the last id; None if it ends in no id."""
    found = _ROWS.fullmatch(id_)
    if found is None:
        return None
    first = int(found["first"])
    return found["of"], first, int(found["last"] or first)


def _range_id(of: str, first: int, last: int) -> str:
    return f"{of}{first}" + (f"-{last}" if last > first else "")
