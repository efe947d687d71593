"""Which columns of which tables are written by a standard, and how is a row written then?

A row is the JSON object that its format makes of it, a key the JSON array of its values' texts.
All that is written of a table goes through here, whether it was sent or read again, so that one
value has one answer.  Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from hashlib import blake2b
from typing import Any, Self

import msgspec
from msgspec import Raw

from pipeline.errors import FormatError
from pipeline.formats import flat_rows
from pipeline.formats.canonical import quote
from pipeline.formats.key import parse
from pipeline.settings import StandardRule
from pipeline.standards.standard import Standard

NONE = ""
"""The digest of a table of which no column is written otherwise."""


@dataclass(frozen=True)
class TableStandards:
    """By column, its standard; ``key`` are the columns of the table's key, as they are sent.

    ``names`` are those of the standards; ``expected`` columns are named for this very table.
    """

    key: tuple[str, ...]
    standards: Mapping[str, Standard]
    names: Mapping[str, str] = field(default_factory=dict)
    expected: frozenset[str] = frozenset()

    @cached_property
    def hides(self) -> bool:
        """Whether what its source has is not for whoever reads the lake."""
        return any(one.hides for one in self.standards.values())

    @cached_property
    def digest(self) -> str:
        """Another one where the same row would be written otherwise."""
        told = sorted(
            (column, self.names.get(column, ""), one.lake_type, one.fingerprint)
            for column, one in self.standards.items()
        )
        return blake2b(repr((self.key, told)).encode(), digest_size=8).hexdigest()

    def of(self, column: str) -> Standard | None:
        """The standard of a column; None if its values stay as they are."""
        return self.standards.get(column)

    def row(self, text: str) -> str:
        """The row as it is to be written; fields without a standard stay as they were sent.

        Raises:
            FormatError: nothing stands for one of its values, or it is no row.
        """
        sent = flat_rows.read(Raw(text.encode()))
        if sent is None:
            raise FormatError("the row is no JSON object")
        found = {name: self._field(name, raw) for name, raw in sent.items()}
        return flat_rows.written(found)

    def key_values(self, texts: str) -> str:
        """The key as it is to be written.

        Raises:
            FormatError: it has other columns, or nothing stands for one of its values.
        """
        values = parse(texts)
        if len(values) != len(self.key):
            raise FormatError(f"its key has {len(values)} columns, {self._told_key} were expected")
        parts = [
            None if text is None else self._answer(name, text)
            for name, text in zip(self.key, values, strict=True)
        ]
        return f"[{','.join('null' if part is None else quote(part) for part in parts)}]"

    def require_key(self, texts: str, row: str) -> None:
        """Refuse a key that is not made of the columns that the config names as the key's.

        In: both as they were sent.  One of others could bring a value to the lake as it is.

        Raises:
            FormatError: it is not.
        """
        sent = flat_rows.read(Raw(row.encode()))
        try:
            own = None if sent is None else parse(flat_rows.key(sent, self.key))
        except (KeyError, ValueError):
            own = None
        if own is None or own != parse(texts):
            msg = f"its key is not that of {self._told_key}, which `standards` names as the key"
            raise FormatError(msg)

    @property
    def _told_key(self) -> str:
        return f"({', '.join(self.key)})"

    def _field(self, name: str, raw: Raw) -> Raw:
        if name not in self.standards or flat_rows.is_null(raw):
            return raw
        try:
            text = flat_rows.text(raw)
        except ValueError as error:
            raise FormatError(f"column {name}: a list or an object has no standard") from error
        answer = self._answer(name, text)
        return flat_rows.NULL if answer is None else Raw(msgspec.json.encode(answer))

    def _answer(self, name: str, text: str) -> str | None:
        standard = self.standards.get(name)
        if standard is None:
            return text
        try:
            return standard.value(text)
        except FormatError as error:
            raise FormatError(f"column {name}: {error}") from error


@dataclass(frozen=True)
class Standards:
    """Those of all tables; each table is asked for once."""

    rules: tuple[StandardRule, ...] = ()
    _known: dict[str, TableStandards | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        """Send the rules alone to where tasks run."""
        return type(self), (self.rules,)

    @cached_property
    def hides(self) -> bool:
        """Whether some are there for what nobody may see."""
        return any(one.hides for rule in self.rules for _, one in rule.standards)

    def of(self, table: str | None) -> TableStandards | None:
        """Those of *table*; None if all of its columns stay as they are, or it is no table."""
        if table is None or not self.rules:
            return None
        if table not in self._known:
            self._known[table] = self._found(table)
        return self._known[table]

    def columns(self, table: str) -> tuple[str, ...]:
        """The columns of *table* that are written by one, sorted."""
        own = self.of(table)
        return () if own is None else tuple(sorted(own.standards))

    def digest(self, table: str | None) -> str:
        """Of those of *table*; ``NONE`` if it has none."""
        own = self.of(table)
        return NONE if own is None else own.digest

    def _found(self, table: str) -> TableStandards | None:
        rules = [rule for rule in self.rules if fnmatchcase(table, rule.tables)]
        named = list(_named(rules))
        if not named:
            return None
        standards = {column: one for column, _, one in reversed(named)}
        names = {column: name for column, name, _ in reversed(named)}
        own = frozenset(c for c, _, _ in _named(one for one in rules if one.tables == table))
        return TableStandards(rules[0].key, standards, names, own)


NO_STANDARDS = Standards()


def _named(rules: Iterable[StandardRule]) -> Iterator[tuple[str, str, Standard]]:
    for rule in rules:
        for name, one in rule.standards:
            yield from ((column, name, one) for column in one.columns)
