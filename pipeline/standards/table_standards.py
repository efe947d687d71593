"""Applies the standards of tables to rows and keys, in whole batches, and to columns.

A row is the JSON object that its format produces; a key is the JSON array of its value texts.
Everything that is written of a table goes through here, from topics or from a backfill. So one
value has one answer.

A column can be renamed at any time, before anyone here knows. So where a standard hides values,
a row lands only if each of its columns is covered. A column is covered if it has a standard, is
part of the key, or is declared as no secret (`clear`).

Rows of tables without standards are not changed, at no cost per row. A row with a value that
has no answer becomes an error row, like a message that cannot be decoded. Its table is held,
the message stays where it is, and no other row waits.

A column with a standard has the type of the standard's answers in the mirror, for any type of
the source. The change log keeps the columns as described, so statements are followed as usual.
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
)  # a name that is a name: a row may have any text for one
_GLOB = re.compile(r"[*?[]")
_MANY = 10_000  # names of columns that are remembered


@dataclass(frozen=True)
class TableStandards:
    """By column, in lower case, its standard; ``key`` are the columns of the table's key.

    ``names`` are those of the standards; ``expected`` columns are named for this very table.  If
    one hides values, only columns of ``clear`` (globs) and of the key land beside it.
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
        """Whether readers of the lake must not see what its source has."""
        return any(one.hides for one in self.standards.values())

    @cached_property
    def digest(self) -> str:
        """Another one where the same row would be written otherwise."""
        parts = sorted(
            (column, self.names.get(column, ""), one.lake_type, one.fingerprint)
            for column, one in self.standards.items()
        )
        return blake2b(repr((self.key, parts)).encode(), digest_size=8).hexdigest()

    @cached_property
    def _secret(self) -> frozenset[str]:
        """Columns that this very table should have, and whose values must stay hidden."""
        expected = {name.casefold() for name in self.expected}
        return frozenset(name for name in expected if self.standards[name].hides)

    @cached_property
    def _spoken(self) -> frozenset[str]:
        """Columns, in lower case, that are declared no secret or that are its key."""
        named = (one for one in self.clear if not _GLOB.search(one))
        return frozenset(one.casefold() for one in (*named, *self.key))

    @cached_property
    def _open(self) -> bool:
        """Whether columns land that no rule names."""
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
        return json_text.write_row(found)

    def require_columns(self, texts: Iterable[str], *, beside: Iterable[str] = ()) -> None:
        """Refuse row images that lack a required column.

        ``beside`` names columns whose values are in no image.  Where a glob lets other columns
        land, the values of a missing column may be there under another name.

        Raises:
            FormatError: they do.
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
        """The key as it is to be written.

        Raises:
            FormatError: it has other columns, or nothing stands for one of its values.
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
        """Refuse a key that is not made of the columns that the config names as the key's.

        In: both as they were sent.  One of others could bring a value to the lake as it is.

        Raises:
            FormatError: it is not.
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
        """The standard of a column; None if its values may land as they are."""
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
        """Whether some rule hides values."""
        return any(hides_values(rule.standards) for rule in self.rules)

    def of(self, table: str | None) -> TableStandards | None:
        """Those of *table*; None if all of its columns stay as they are, or it is no table."""
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
        """The columns of *table* that are written by one, sorted."""
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
    """Whether one of the named *standards* does."""
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
    """``DECODED`` as it may be written to the change log.

    In: ``DECODED``, and the table of each row, null for none.  Out: ``DECODED``, as many rows, in
    their order.
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
    """``ROWS`` that were read again, with keys of the columns *key*, as they may be written.

    Raises:
        FormatError: a value has no answer; names the column.
        ConfigError: the table has another key than the config says.
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
        return row  # it has no value of a row
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
    """*old* with the values of *new*, one after the other, where *mine* is true."""
    here = mine.to_numpy(zero_copy_only=False)
    places = np.arange(len(old))
    places[here] = len(old) + np.arange(len(new))
    return pa.concat_arrays([old, new]).take(pa.array(places))


@dataclass(frozen=True, slots=True)
class StandardColumn:
    """The source's column, and the standard by which its values are written."""

    sent: Column
    standard: Standard

    @property
    def name(self) -> str:
        """As its source has it."""
        return self.sent.name

    @property
    def dialect(self) -> "StandardDialect":
        """What knows its type."""
        return StandardDialect(self.sent.dialect)

    def __str__(self) -> str:
        """Render for people."""
        return f"{self.sent}, by its standard"


@dataclass(frozen=True, slots=True)
class StandardDialect:
    """A source's own dialect, but for columns that have a standard."""

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
        """As the source's, of its own columns."""
        return self.own.compare(source_schema(old), source_schema(new))

    def remembered(self, known: TableSchema, new: TableSchema) -> TableSchema:
        """As the source's, of its own columns."""
        return self.own.remembered(source_schema(known), source_schema(new))

    def merge(self, schemas: Sequence[TableSchema]) -> TableSchema | Incompatible:
        """As the source's, of its own columns."""
        return self.own.merge([source_schema(one) for one in schemas])

    def lake_type(self, column: Column) -> str:
        """That of the standard's answers."""
        if isinstance(column, StandardColumn):
            return column.standard.lake_type
        return self.own.lake_type(column)

    def digest_form(self, column: Column) -> Form | str:
        if isinstance(column, StandardColumn):
            return "a standard writes it"
        return self.own.digest_form(column)

    def whole(self, column: Column) -> bool:
        """Never: the source orders its values, the mirror the answers."""
        return not isinstance(column, StandardColumn) and self.own.whole(column)

    def spellings(self, column: Column, number: int) -> tuple[str, ...]:
        """As the source's; of a column with a standard, that of the answers."""
        if isinstance(column, StandardColumn):
            return (str(number),)
        return self.own.spellings(column, number)

    def reads(self, column: Column, text: str) -> bool:
        """As the source's; of a column with a standard any answer."""
        return isinstance(column, StandardColumn) or self.own.reads(column, text)

    def spelled_alike(self, column: Column) -> bool:
        """As the source's: two spellings would have two answers."""
        return self.own.spelled_alike(source_column(column))

    def sent(self, column: Column) -> SentAs:
        """As a text."""
        return SentAs.WORD if isinstance(column, StandardColumn) else self.own.sent(column)

    def values(self, column: Column, wire: pa.Array) -> pa.Array:
        """The answers."""
        if not isinstance(column, StandardColumn):
            return self.own.values(column, wire)
        return (
            parse_whole_numbers(wire)
            if column.standard.lake_type == "bigint"
            else as_sent(column, wire)
        )

    def altered_by_snapshot(self, column: Column, typed: pa.Array) -> pa.BooleanArray | None:
        """None of the answers shows it."""
        if isinstance(column, StandardColumn):
            return None
        return self.own.altered_by_snapshot(column, typed)

    def default(self, column: Column) -> pa.Scalar:
        """The answer to what the source put into old rows.

        Raises:
            FormatError: nothing stands for it, or how it would have been sent is not sure.
        """
        if not isinstance(column, StandardColumn):
            return self.own.default(column)
        return answer_value(self.own.default(column.sent), column)

    def differences(self, schema: TableSchema, server: Sequence[Column]) -> tuple[str, ...]:
        """As the source's, of its own columns."""
        return self.own.differences(source_schema(schema), [source_column(one) for one in server])


def written_column(column: Column, standard: Standard | None) -> Column:
    """The column as a mirror has it, by its *standard* if it has one."""
    return column if standard is None else StandardColumn(column, standard)


def source_column(column: Column) -> Column:
    """The column as its source has it."""
    return column.sent if isinstance(column, StandardColumn) else column


def source_schema(schema: TableSchema) -> TableSchema:
    """The columns as their source has them."""
    columns = tuple(source_column(one) for one in schema.columns)
    return replace(schema, columns=columns)


def default_of(column: Column) -> pa.Scalar:
    """As the column's dialect says.

    Raises:
        HeldError: ``standards``, nothing stands for what the source put into old rows.
    """
    try:
        return column.dialect.default(column)
    except FormatError as error:
        detail = f"older rows have a default, and {error}"
        raise HeldError("standards", f"{detail}; take a new base") from error


def answer_value(value: pa.Scalar, column: StandardColumn) -> pa.Scalar:
    """What stands for a *value* of the source's own type; null for null.

    Raises:
        FormatError: nothing stands for it, or it is of a type that may be sent in many ways.
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
