"""Which columns of which tables are written by a standard, and how is a row written then?

A row is the JSON object that its format makes of it, a key the JSON array of its values' texts.
All that is written of a table goes through here, whether it was sent or read again, so that one
value has one answer.  Columns get other names, in a moment and before anybody knows: so a row lands
only if each column in it is written by a standard, or was said to be no secret.  Pure.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from typing import Any, Self

import msgspec
from msgspec import Raw

from pipeline.errors import FormatError
from pipeline.formats import json_text as flat_rows
from pipeline.formats.json_text import parse, quote
from pipeline.settings import StandardRule
from pipeline.standards.standard import Standard

NONE = ""
"""The digest of a table of which no column is written otherwise."""


ALL = ("*",)
_TOLD = re.compile(r"[^\W\d][\w$]{0,63}")  # a name that is a name: a row may have any text for one
_GLOB = re.compile(r"[*?[]")
_MANY = 10_000  # names of columns that are remembered


@dataclass(frozen=True)
class TableStandards:
    """By column, in small letters, its standard; ``key`` are the columns of the table's key.

    ``names`` are those of the standards; ``expected`` columns are named for this very table.  Of
    one that hides values, other columns than those of ``clear`` (globs) and of the key do not land.
    """

    key: tuple[str, ...]
    standards: Mapping[str, Standard]
    names: Mapping[str, str] = field(default_factory=dict)
    expected: frozenset[str] = frozenset()
    clear: tuple[str, ...] = ALL
    _found: dict[str, Standard | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

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

    @cached_property
    def _secret(self) -> frozenset[str]:
        """Columns that this very table should have, and of which nobody may read the values."""
        expected = {name.casefold() for name in self.expected}
        return frozenset(name for name in expected if self.standards[name].hides)

    @cached_property
    def _spoken(self) -> frozenset[str]:
        """Columns, in small letters, that somebody said are no secret or that are its key."""
        named = (one for one in self.clear if not _GLOB.search(one))
        return frozenset(one.casefold() for one in (*named, *self.key))

    @cached_property
    def _open(self) -> bool:
        """Whether columns land of which nobody has named the name."""
        return any(map(_GLOB.search, self.clear))

    def of(self, column: str) -> Standard | None:
        """The standard of a column; None if its values stay as they are."""
        return self.standards.get(column.casefold())

    def name_of(self, column: str) -> str:
        """The name of a column's standard; empty if it has none."""
        return self.names.get(column.casefold(), "")

    def row(self, text: str) -> str:
        """The row as it is to be written; fields without a standard stay as they were sent.

        Raises:
            FormatError: nothing stands for one of its values, one of its columns must not land, or
                it is no row.
        """
        found = {name: self._field(name, raw) for name, raw in _read(text).items()}
        return flat_rows.write_row(found)

    def require_columns(self, texts: Iterable[str], *, beside: Iterable[str] = ()) -> None:
        """Refuse images of a row that lacks a column which this very table should have.

        ``beside`` are columns of it whose values are in none of its images.  Where a glob lets
        other columns land, the values of one that it lacks may stand there under another name.

        Raises:
            FormatError: they do.
        """
        if not self._secret or not self._open:
            return
        told = chain(beside, *map(_read, texts))
        names = {name.casefold() for name in told}
        lacking = sorted(self._secret - names)
        if lacking and not names <= self._spoken:
            msg = f"it has no column {lacking[0]}, whose values may stand in another one now"
            raise FormatError(f"{msg}; name the others under `clear` in `standards`")

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
        sent = flat_rows.read_row(Raw(row.encode()))
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
        if self._decided(name) is None or flat_rows.is_null(raw):
            return raw
        try:
            text = flat_rows.text(raw)
        except ValueError as error:
            raise FormatError(f"column {name}: a list or an object has no standard") from error
        answer = self._answer(name, text)
        return flat_rows.NULL if answer is None else Raw(msgspec.json.encode(answer))

    def _decided(self, name: str) -> Standard | None:
        """The standard of a column; None if its values may land as they are."""
        if name not in self._found:
            found = self.of(name)
            if found is None and not self._may_land(name):
                told = name if _TOLD.fullmatch(name) else "of an odd name"
                msg = f"nothing in `standards` says how column {told} is to land"
                raise FormatError(f"{msg}; give it a standard, or name it under `clear`")
            if len(self._found) < _MANY:
                self._found[name] = found
            return found
        return self._found[name]

    def _may_land(self, name: str) -> bool:
        own = name.casefold()
        if not self.hides or own in {one.casefold() for one in self.key}:
            return True
        return any(fnmatchcase(own, one.casefold()) for one in self.clear)

    def _answer(self, name: str, text: str) -> str | None:
        standard = self._decided(name)
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
        return any(hides(rule.standards) for rule in self.rules)

    def of(self, table: str | None) -> TableStandards | None:
        """Those of *table*; None if all of its columns stay as they are, or it is no table."""
        if table is None or not self.rules:
            return None
        if table not in self._known:
            self._known[table] = self._found(table)
        return self._known[table]

    def are_secret(self, table: str) -> bool:
        """Whether one of those of *table* is there for what nobody may see."""
        own = self.of(table)
        return own is not None and own.hides

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
        standards = {column.casefold(): one for column, _, one in reversed(named)}
        names = {column.casefold(): name for column, name, _ in reversed(named)}
        own = frozenset(c for c, _, _ in _named(one for one in rules if one.tables == table))
        clear = next((rule.clear for rule in rules if hides(rule.standards)), ALL)
        return TableStandards(rules[0].key, standards, names, own, clear)


NO_STANDARDS = Standards()


def hides(standards: Iterable[tuple[str, Standard]]) -> bool:
    """Whether one of the named *standards* does."""
    return any(one.hides for _, one in standards)


def _read(text: str) -> flat_rows.Row:
    sent = flat_rows.read_row(Raw(text.encode()))
    if sent is None:
        raise FormatError("the row is no JSON object")
    return sent


def _named(rules: Iterable[StandardRule]) -> Iterator[tuple[str, str, Standard]]:
    for rule in rules:
        for name, one in rule.standards:
            yield from ((column, name, one) for column in one.columns)
