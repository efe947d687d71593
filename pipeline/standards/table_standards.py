"""Applies the standards of tables to rows and keys, in whole batches, and to columns.

A row is the JSON object that its format produces; a key is the JSON array of its value texts.
All rows that are written go through here, from topics or from a backfill. So one value always
has the same answer.

A source can rename a column before Sluice learns of it. So where a standard hides values, a row
lands only if each of its columns is covered. A column is covered if it has a standard, is part
of the key, or is declared as not secret (`clear`).

Rows of tables without standards are not changed, at no cost per row. A row with a value that
has no answer becomes an error row, like a message that cannot be decoded. Its table is held,
the message remains in the topic, and no other table waits.

In the mirror, a column with a standard has the type of the standard's answers, for any type of
the source. The change log keeps the source's columns, so DDL is followed as usual.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from typing import Any, Self

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from pipeline.errors import ConfigError, FormatError, HeldError
from pipeline.formats import json_text
from pipeline.formats.format import DECODED, SENDER_SAYS
from pipeline.formats.json_text import parse_key, quote_text
from pipeline.model import Op, ShardId
from pipeline.row_digest import Form
from pipeline.schema.decode import as_sent, parse_whole_numbers
from pipeline.schema.model import (
    Column,
    ColumnDescription,
    Compatible,
    Dialect,
    Effect,
    Incompatible,
    KnownTables,
    SchemaEvent,
    TableSchema,
)
from pipeline.schema.wire import SentAs
from pipeline.settings import StandardRule
from pipeline.sources.row_reader import ROWS
from pipeline.standards.standard import Standard

NONE = ""
"""The digest of a table without standards."""


ALL = ("*",)
_PLAIN_NAME = re.compile(
    r"[^\W\d][\w$]{0,63}"
)  # a row may have any text as a column name; others are not shown
_GLOB = re.compile(r"[*?[]")
_MANY = 10_000  # column names whose standard is cached


@dataclass(frozen=True)
class TableStandards:
    """The standards of one table by column in lower case; ``key`` are its key columns.

    ``names`` are the names of the standards by column.  ``expected`` are the columns of rules that
    name this table and no pattern.  If a standard hides values, a column without a standard lands
    only if it is in ``clear`` (globs) or part of the key.
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
        """Whether a standard of the table hides the source's values."""
        return any(one.hides for one in self.standards.values())

    @cached_property
    def digest(self) -> str:
        """A text that changes whenever the same row would be written differently."""
        parts = sorted(
            (column, self.names.get(column, ""), one.lake_type, one.fingerprint)
            for column, one in self.standards.items()
        )
        return blake2b(repr((self.key, parts)).encode(), digest_size=8).hexdigest()

    @cached_property
    def _secret(self) -> frozenset[str]:
        """Columns, in lower case, in ``expected`` whose standard hides values."""
        expected = {name.casefold() for name in self.expected}
        return frozenset(name for name in expected if self.standards[name].hides)

    @cached_property
    def _spoken(self) -> frozenset[str]:
        """Columns, in lower case, that ``clear`` lists by name, and those of the key."""
        named = (one for one in self.clear if not _GLOB.search(one))
        return frozenset(one.casefold() for one in (*named, *self.key))

    @cached_property
    def _open(self) -> bool:
        """Whether ``clear`` has a glob, so that columns land that no rule names."""
        return any(map(_GLOB.search, self.clear))

    def of(self, column: str) -> Standard | None:
        """The standard of a column; None if it has none."""
        return self.standards.get(column.casefold())

    def name_of(self, column: str) -> str:
        """The name of a column's standard; empty if it has none."""
        return self.names.get(column.casefold(), "")

    def row(self, text: str) -> str:
        """Return the row with the answers of the standards; other fields stay as they were sent.

        Raises:
            FormatError: a value has no answer, a column must not land, or *text* is no row.
        """
        found = {name: self._field(name, raw) for name, raw in _read(text).items()}
        return json_text.write_row(found)

    def require_columns(self, texts: Iterable[str], *, beside: Iterable[str] = ()) -> None:
        """Reject row images in which a hidden column may have another name.

        ``beside`` names columns whose values are in no image.  If ``clear`` has a glob, the values
        of a missing column may be in another column, unless each column is listed by name.

        Raises:
            FormatError: names the missing column.
        """
        if not self._secret or not self._open:
            return
        described = chain(beside, *map(_read, texts))
        names = {name.casefold() for name in described}
        lacking = sorted(self._secret - names)
        if lacking and not names <= self._spoken:
            msg = f"it has no column {lacking[0]}, whose values may be in another column now"
            raise FormatError(f"{msg}; name the others under `clear` in `standards`")

    def key_values(self, texts: str) -> str:
        """Return the key with the answers of the standards.

        Raises:
            FormatError: the number of its columns differs, or a value has no answer.
        """
        values = parse_key(texts)
        if len(values) != len(self.key):
            raise FormatError(f"its key has {len(values)} columns, {self._key_text} were expected")
        parts = [
            None if text is None else self._answer(name, text)
            for name, text in zip(self.key, values, strict=True)
        ]
        return f"[{','.join('null' if part is None else quote_text(part) for part in parts)}]"

    def require_key(self, texts: str, row: str) -> None:
        """Reject a key that does not consist of the row's values in the configured key columns.

        *texts* and *row* are as they were sent.  A key of other columns could carry a hidden value
        to the lake.

        Raises:
            FormatError: it does not.
        """
        sent = json_text.read_row(Raw(row.encode()))
        try:
            own = None if sent is None else parse_key(json_text.key_of_row(sent, self.key))
        except (KeyError, ValueError):
            own = None
        if own is None or own != parse_key(texts):
            msg = f"its key is not that of {self._key_text}, which `standards` names as the key"
            raise FormatError(msg)

    @property
    def _key_text(self) -> str:
        return f"({', '.join(self.key)})"

    def _field(self, name: str, raw: Raw) -> Raw:
        if self._decided(name) is None or json_text.is_null(raw):
            return raw
        try:
            text = json_text.value_text(raw)
        except ValueError as error:
            raise FormatError(f"column {name}: a list or an object has no standard") from error
        answer = self._answer(name, text)
        return json_text.NULL if answer is None else Raw(msgspec.json.encode(answer))

    def _decided(self, name: str) -> Standard | None:
        """The standard of a column; None if it has none and may land as it is.

        Raises:
            FormatError: it has no standard and must not land.
        """
        if name not in self._found:
            found = self.of(name)
            if found is None and not self._may_land(name):
                shown = name if _PLAIN_NAME.fullmatch(name) else "with an unusual name"
                msg = f"column {shown} has no entry in `standards`, so it cannot land"
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
    """The standards of all tables; the result for each table is cached."""

    rules: tuple[StandardRule, ...] = ()
    _known: dict[str, TableStandards | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        """Pickle the rules only, without the cache."""
        return type(self), (self.rules,)

    @cached_property
    def hides(self) -> bool:
        """Whether some rule hides values."""
        return any(hides_values(rule.standards) for rule in self.rules)

    def of(self, table: str | None) -> TableStandards | None:
        """The standards of *table*; None if it has none, or *table* is None."""
        if table is None or not self.rules:
            return None
        if table not in self._known:
            self._known[table] = self._found(table)
        return self._known[table]

    def are_secret(self, table: str) -> bool:
        """Whether a rule of *table* hides values."""
        own = self.of(table)
        return own is not None and own.hides

    def columns(self, table: str) -> tuple[str, ...]:
        """The columns of *table* that have a standard, in lower case, sorted."""
        own = self.of(table)
        return () if own is None else tuple(sorted(own.standards))

    def digest(self, table: str | None) -> str:
        """The digest of the standards of *table*; ``NONE`` without any."""
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
        clear = next((rule.clear for rule in rules if hides_values(rule.standards)), ALL)
        return TableStandards(rules[0].key, standards, names, own, clear)


NO_STANDARDS = Standards()


def hides_values(standards: Iterable[tuple[str, Standard]]) -> bool:
    """Whether one of *standards*, pairs of name and standard, hides values."""
    return any(one.hides for _, one in standards)


def _read(text: str) -> json_text.Row:
    sent = json_text.read_row(Raw(text.encode()))
    if sent is None:
        raise FormatError("the row is no JSON object")
    return sent


def _named(rules: Iterable[StandardRule]) -> Iterator[tuple[str, str, Standard]]:
    for rule in rules:
        for name, one in rule.standards:
            yield from ((column, name, one) for column in one.columns)


_ROWS = frozenset({Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ})
_WRITTEN = ("op", "key_values", "before", "after", "changed", "left_out", "error", "raw")
WITHHELD = "its bytes are not kept, because the table has standards"


def standardise_batch(
    decoded: pa.RecordBatch, tables: pa.Array, standards: Standards
) -> pa.RecordBatch:
    """Apply the standards to decoded rows, before they are written to the change log.

    *decoded* has the schema ``DECODED``; *tables* is the table of each row, null for none.
    Returns ``DECODED`` with the same number of rows in the same order.
    """
    if not standards.rules:
        return decoded
    few = tables.dictionary_encode()
    own = [standards.of(name) for name in few.dictionary.to_pylist()]
    named = pa.array([one is not None for one in own], pa.bool_()).take(few.indices)
    mine = pc.fill_null(named, False)
    if standards.hides:  # the table of an unreadable event is not known
        unknown = pc.and_(tables.is_null(), pc.equal(decoded["op"], str(Op.ERROR)))
        mine = pc.or_(mine, pc.fill_null(unknown, False))
    places = np.flatnonzero(mine.to_numpy(zero_copy_only=False))
    if not len(places):
        return decoded
    rows = decoded.select(list(_WRITTEN)).take(pa.array(places)).to_pylist()
    which = few.indices.take(pa.array(places)).to_pylist()
    made = [
        _written(row, None if at is None else own[at]) for row, at in zip(rows, which, strict=True)
    ]
    return _replaced(decoded, mine, made)


def rows_again(rows: pa.RecordBatch, key: tuple[str, ...], own: TableStandards) -> pa.RecordBatch:
    """Apply the standards *own* to backfilled ``ROWS``, whose keys have the columns *key*.

    Raises:
        FormatError: a value has no answer, or a column must not land; names the column.
        ConfigError: the table's key differs from the config's.
    """
    if key != own.key:
        problem = f"its key is ({', '.join(key)}), and `standards` says ({', '.join(own.key)})"
        raise ConfigError(f"{problem}; correct `standards`, and restart the service")
    texts = [own.key_values(one) for one in rows["key_values"].to_pylist()]
    sent = rows["after"].to_pylist()
    for one in sent:
        own.require_columns([one])
    after = [own.row(one) for one in sent]
    return pa.RecordBatch.from_arrays(
        [pa.array(texts, pa.string()), pa.array(after, pa.string())], schema=ROWS
    )


def _written(row: Mapping[str, Any], own: TableStandards | None) -> Mapping[str, Any]:
    if row["op"] == Op.ERROR:
        return row if own is not None and not own.hides else _withheld(row, str(row["error"]))
    if own is None or row["op"] not in {*_ROWS, Op.TOMBSTONE}:
        return row  # it contains no values of a row
    try:
        return _answered(row, own)
    except FormatError as error:
        return _withheld(row, f"no standard value: {error}")


def _answered(row: Mapping[str, Any], own: TableStandards) -> Mapping[str, Any]:
    key, before, after = row["key_values"], row["before"], row["after"]
    if key is not None and row["op"] in _ROWS:
        own.require_key(key, (before if row["op"] == Op.DELETE else after) or "")
    images = [one for one in (before, after) if one is not None]
    own.require_columns(images, beside=row["left_out"] or ())
    return {
        **row,
        "key_values": None if key is None else own.key_values(key),
        "before": None if before is None else own.row(before),
        "after": None if after is None else own.row(after),
    }


def _withheld(row: Mapping[str, Any], why: str) -> Mapping[str, Any]:
    nothing = dict.fromkeys(("key_values", "before", "after", "changed", "left_out", "raw"))
    if why.startswith(SENDER_SAYS):
        why = SENDER_SAYS.rstrip(": ")
    return {**row, **nothing, "op": str(Op.ERROR), "error": f"{why}; {WITHHELD}"}


def _replaced(
    decoded: pa.RecordBatch, mine: pa.Array, made: list[Mapping[str, Any]]
) -> pa.RecordBatch:
    columns = {}
    for name in _WRITTEN:
        kind = DECODED.field(name).type
        new = pa.array([row[name] for row in made], kind)
        columns[name] = _merged(decoded[name], mine, new)
    arrays = [columns.get(name, decoded[name]) for name in DECODED.names]
    return pa.RecordBatch.from_arrays(arrays, schema=DECODED)


def _merged(old: pa.Array, mine: pa.Array, new: pa.Array) -> pa.Array:
    """*old*, with the values of *new* in their order where *mine* is true."""
    here = mine.to_numpy(zero_copy_only=False)
    places = np.arange(len(old))
    places[here] = len(old) + np.arange(len(new))
    return pa.concat_arrays([old, new]).take(pa.array(places))


@dataclass(frozen=True, slots=True)
class StandardColumn:
    """A column of the source, and the standard that replaces its values."""

    sent: Column
    standard: Standard

    @property
    def name(self) -> str:
        """The source's name of the column."""
        return self.sent.name

    @property
    def dialect(self) -> "StandardDialect":
        """The dialect that knows the type of the answers."""
        return StandardDialect(self.sent.dialect)

    def __str__(self) -> str:
        """Show the column in messages."""
        return f"{self.sent}, by its standard"


@dataclass(frozen=True, slots=True)
class StandardDialect:
    """The source's dialect ``own``, with other answers for columns that have a standard."""

    own: Dialect

    def column(self, description: ColumnDescription, statement: str) -> Column:
        """As the source's."""
        return self.own.column(description, statement)

    def renamed_from(self, statement: str, shard: ShardId) -> ShardId | None:
        """As the source's."""
        return self.own.renamed_from(statement, shard)

    def follow(
        self, events: Sequence[SchemaEvent], known: KnownTables
    ) -> tuple[tuple[Effect, ...], KnownTables]:
        """As the source's."""
        return self.own.follow(events, known)

    def makes_anew(self, statement: str, *, there: bool | None) -> bool:
        """As the source's."""
        return self.own.makes_anew(statement, there=there)

    def leaves_values(self, statement: str) -> bool:
        """As the source's."""
        return self.own.leaves_values(statement)

    def database_dropped(self, statement: str) -> str | None:
        """As the source's."""
        return self.own.database_dropped(statement)

    def compare(self, old: TableSchema, new: TableSchema) -> Compatible | Incompatible:
        """As the source's, with the source's columns."""
        return self.own.compare(source_schema(old), source_schema(new))

    def remembered(self, known: TableSchema, new: TableSchema) -> TableSchema:
        """As the source's, with the source's columns."""
        return self.own.remembered(source_schema(known), source_schema(new))

    def merge(self, schemas: Sequence[TableSchema]) -> TableSchema | Incompatible:
        """As the source's, with the source's columns."""
        return self.own.merge([source_schema(one) for one in schemas])

    def lake_type(self, column: Column) -> str:
        """The type of the standard's answers, or as the source's."""
        if isinstance(column, StandardColumn):
            return column.standard.lake_type
        return self.own.lake_type(column)

    def digest_form(self, column: Column) -> Form | str:
        if isinstance(column, StandardColumn):
            return "a standard writes it"
        return self.own.digest_form(column)

    def whole(self, column: Column) -> bool:
        """As the source's; False with a standard, because answers have another order."""
        return not isinstance(column, StandardColumn) and self.own.whole(column)

    def spellings(self, column: Column, number: int) -> tuple[str, ...]:
        """As the source's; with a standard, only the digits of *number*."""
        if isinstance(column, StandardColumn):
            return (str(number),)
        return self.own.spellings(column, number)

    def reads(self, column: Column, text: str) -> bool:
        """As the source's; with a standard, every text."""
        return isinstance(column, StandardColumn) or self.own.reads(column, text)

    def spelled_alike(self, column: Column) -> bool:
        """As the source's for the source's column: two spellings would have two answers."""
        return self.own.spelled_alike(source_column(column))

    def sent(self, column: Column) -> SentAs:
        """Text with a standard, or as the source's."""
        return SentAs.WORD if isinstance(column, StandardColumn) else self.own.sent(column)

    def values(self, column: Column, wire: pa.Array) -> pa.Array:
        """The values of *wire* in the type of the answers, or as the source's."""
        if not isinstance(column, StandardColumn):
            return self.own.values(column, wire)
        return (
            parse_whole_numbers(wire)
            if column.standard.lake_type == "bigint"
            else as_sent(column, wire)
        )

    def altered_by_snapshot(self, column: Column, typed: pa.Array) -> pa.BooleanArray | None:
        """As the source's; None with a standard, because the answers do not show it."""
        if isinstance(column, StandardColumn):
            return None
        return self.own.altered_by_snapshot(column, typed)

    def default(self, column: Column) -> pa.Scalar:
        """The answer to the value that the source gave to old rows.

        Raises:
            FormatError: it has no answer, or its type may be sent in several ways.
        """
        if not isinstance(column, StandardColumn):
            return self.own.default(column)
        return answer_value(self.own.default(column.sent), column)

    def differences(self, schema: TableSchema, server: Sequence[Column]) -> tuple[str, ...]:
        """As the source's, with the source's columns."""
        return self.own.differences(source_schema(schema), [source_column(one) for one in server])


def written_column(column: Column, standard: Standard | None) -> Column:
    """The column as a mirror has it: with its *standard*, if any."""
    return column if standard is None else StandardColumn(column, standard)


def source_column(column: Column) -> Column:
    """The column as its source has it."""
    return column.sent if isinstance(column, StandardColumn) else column


def source_schema(schema: TableSchema) -> TableSchema:
    """The schema with the columns as their source has them."""
    columns = tuple(source_column(one) for one in schema.columns)
    return replace(schema, columns=columns)


def default_of(column: Column) -> pa.Scalar:
    """The default that the column's dialect gives.

    Raises:
        HeldError: ``standards``, the value that the source gave to old rows has no answer.
    """
    try:
        return column.dialect.default(column)
    except FormatError as error:
        detail = f"older rows have a default, and {error}"
        raise HeldError("standards", f"{detail}; take a new base") from error


def answer_value(value: pa.Scalar, column: StandardColumn) -> pa.Scalar:
    """The answer to a *value* of the source's type; null for null.

    Raises:
        FormatError: it has no answer, or its type may be sent in several ways.
    """
    kind = pa.int64() if column.standard.lake_type == "bigint" else pa.string()
    if not value.is_valid:
        return pa.scalar(None, kind)
    raw = value.as_py()
    if isinstance(raw, bool) or not isinstance(raw, str | int):
        raise FormatError(f"column {column.name}: a default of {value.type} has no standard")
    text = str(raw)
    answer = column.standard.value(text)
    if answer is None or kind == pa.string():
        return pa.scalar(answer, pa.string() if kind == pa.string() else kind)
    return pa.scalar(int(answer), kind)
