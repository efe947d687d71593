"""Defines columns, schema events, row effects and the dialect protocol of a source kind.

A dialect reads no clock and has no state, so any two instances of one dialect are equivalent. Only
the dialect of a column knows its type; other code uses the column's name and `str`.

* Effects: all effects of one order start from the state before that order, so two tables can swap
  names.
* Compatible: no old row changes its meaning. Any other change is a hold until an operator decides.
  The answer names the cause and the statement that solves it.
* Notation: a dialect converts every notation of a value into one.
* Arrow types: one map only, from the Spark type in the mirror.
* Merging: the dialect compares two columns; the rules here build one schema for all shards.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import reduce
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from pipeline.model import Order, ShardId
from pipeline.row_digest import Form
from pipeline.schema.wire import SentAs


class Column(Protocol):
    """A column as its source's dialect describes it; compared by ``==``, shown by str."""

    @property
    def name(self) -> str:
        """Its name, as in messages and in the mirror."""
        ...

    @property
    def dialect(self) -> "Dialect":
        """The dialect that knows its type."""
        ...


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns of one shard from *order* on, in their order, and the names of the key columns.

    ``statement`` is the text of the statement that made them, if known. ``altered`` is the order of
    the newest statement that may have changed columns, key or values of rows; None: *order*.
    """

    shard: str
    order: Order
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    statement: str = field(default="", compare=False)
    altered: Order | None = field(default=None, compare=False)

    @property
    def valid_from(self) -> Order:
        """The order since which no statement has changed columns, key or values."""
        return self.order if self.altered is None else self.altered

    def column(self, name: str) -> Column | None:
        """The column with that name; None without one."""
        return next((column for column in self.columns if column.name == name), None)


class Notation(StrEnum):
    """How the values of rows are written.

    CONNECT: Connect's converters: days and microseconds since 1970, bytes in base64.

    TEXTS: the server's own texts, all as strings; one character per byte (ISO 8859-1), BIT and SET
    as a number of bits, ENUM as the number of its label, from 1 on.

    PLAIN: JSON's own numbers and lists, dates and times as the server writes them, bytes in base64,
    ENUM and SET by their labels.
    """

    CONNECT = "connect"
    TEXTS = "texts"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class ColumnDescription:
    """A column as a message describes it; only the source's dialect knows what the type means.

    ``length`` and ``scale`` are the numbers after the type's name, ``default`` the text of the
    default, None without one; ``values`` are the labels that an enumeration allows. ``notation`` is
    that of its values in rows.
    """

    name: str
    type: str
    length: int | None = None
    scale: int | None = None
    nullable: bool = True
    default: str | None = None
    position: int = 0
    values: tuple[str, ...] = ()
    notation: Notation = Notation.CONNECT


@dataclass(frozen=True, slots=True)
class TableDescription:
    """A table that a message describes; ``kind`` is ``create``, ``alter`` or ``drop``.

    ``columns`` and ``key`` are those from then on; empty for a dropped table.
    """

    shard: ShardId
    kind: str
    columns: tuple[ColumnDescription, ...] = ()
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaMessage:
    """A schema change as a format reads it; ``tables`` may be empty."""

    text: str
    database: str | None = None
    tables: tuple[TableDescription, ...] = ()
    snapshot: bool = False


@dataclass(frozen=True, slots=True)
class SchemaEvent:
    """A schema message with typed columns; ``database`` may be None.

    ``tables`` are those it describes, with their columns from then on, or None for a dropped one.
    ``snapshot`` if it only describes tables that are about to be read.
    """

    order: Order
    text: str
    database: str | None
    tables: tuple[tuple[ShardId, TableSchema | None], ...] = ()
    snapshot: bool = False


@dataclass(frozen=True, slots=True)
class Keep:
    """Rows stay; the changes from the previous schema to *schema* are those a mirror may follow."""

    shard: ShardId
    order: Order
    schema: TableSchema | None


@dataclass(frozen=True, slots=True)
class Empty:
    """No row older than *order* remains; *schema* may be unknown (None)."""

    shard: ShardId
    order: Order
    schema: TableSchema | None


@dataclass(frozen=True, slots=True)
class Replace:
    """Rows older than *order* are those of *rows_of* as they were just before *order*."""

    shard: ShardId
    order: Order
    rows_of: ShardId
    schema: TableSchema | None


@dataclass(frozen=True, slots=True)
class Drop:
    """No table of that name remains."""

    shard: ShardId
    order: Order


@dataclass(frozen=True, slots=True)
class BaseNeeded:
    """A base later than *order* is needed; *detail* has the cause and the fix."""

    shard: ShardId
    order: Order
    reason: str
    detail: str
    schema: TableSchema | None = None


Effect = Keep | Empty | Replace | Drop | BaseNeeded


@dataclass(frozen=True, slots=True)
class KnownTables:
    """The existing tables of one source, as of some order.

    ``based``: shards whose rows are known from the first on, by their CREATE or by a snapshot that
    begins; the change log must show that the snapshot ended. ``captured`` returns whether the
    collector sends a shard's rows.
    """

    captured: Callable[[ShardId], bool]
    schemas: Mapping[ShardId, TableSchema] = field(default_factory=dict)
    based: AbstractSet[ShardId] = frozenset()


@dataclass(frozen=True, slots=True)
class Compatible:
    """Columns that the mirror gets; may be empty."""

    added: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class Incompatible:
    """Why the mirror cannot follow, and what a person can do about it.

    ``filled`` if a base that was read since is a fix: the only obstacle is values that old rows do
    not have.
    """

    why: str
    statement: str
    filled: bool = False


def compare_schemas(old: TableSchema, new: TableSchema) -> Compatible | Incompatible:
    """Compare two schemas of one shard; return the first obstacle if there is one."""
    return new.columns[0].dialect.compare(old, new)


def merge_schemas(schemas: Sequence[TableSchema]) -> TableSchema | Incompatible:
    """One schema that rows of every shard fit into; shards may be at different steps.

    It has the shard and order of the first.
    """
    kinds = {column.dialect for schema in schemas for column in schema.columns[:1]}
    if len(kinds) > 1:
        shards = " and ".join(sorted(schema.shard for schema in schemas))
        why = f"{shards} are described by sources of different kinds"
        return Incompatible(why, "fold only shards of one kind of source into a table")
    return schemas[0].columns[0].dialect.merge(schemas)


class Dialect(Protocol):
    """The types of one kind of source, its statements, and its own rule on changed columns."""

    def column(self, description: ColumnDescription, statement: str) -> Column:
        """The column that a schema change with that *statement* describes."""
        ...

    def renamed_from(self, statement: str, shard: ShardId) -> ShardId | None:
        """The name *shard* had before the statement; None if the statement does not rename it."""
        ...

    def follow(
        self, events: Sequence[SchemaEvent], known: KnownTables
    ) -> tuple[tuple[Effect, ...], KnownTables]:
        """Effects on rows, and the tables after them; *events* is in log order.

        Returns at most one effect per shard and order.
        """
        ...

    def makes_anew(self, statement: str, *, there: bool | None) -> bool:
        """Whether the statement creates a table that begins empty.

        *there*: whether a table of its name existed, None if unknown.
        """
        ...

    def leaves_values(self, statement: str) -> bool:
        """Whether it leaves each row as it was, if columns and key are described as before."""
        ...

    def database_dropped(self, statement: str) -> str | None:
        """The database that a statement drops, with all its tables; None if it drops none."""
        ...

    def compare(self, old: TableSchema, new: TableSchema) -> Compatible | Incompatible:
        """Compare two schemas of one shard; return the first obstacle, if any."""
        ...

    def remembered(self, known: TableSchema, new: TableSchema) -> TableSchema:
        """*new* with column details that only an earlier statement has."""
        ...

    def merge(self, schemas: Sequence[TableSchema]) -> TableSchema | Incompatible:
        """One schema that rows of every shard fit into, with the first one's shard and order."""
        ...

    def lake_type(self, column: Column) -> str:
        """Spark type of *column* in a mirror."""
        ...

    def digest_form(self, column: Column) -> Form | str:
        """The form of its values in a digest, or why they are not compared."""
        ...

    def whole(self, column: Column) -> bool:
        """Whether it holds integers, which source and mirror order alike."""
        ...

    def spellings(self, column: Column, number: int) -> tuple[str, ...]:
        """All texts by which a change may represent *number* in a column that is `whole`."""
        ...

    def reads(self, column: Column, text: str) -> bool:
        """Whether the log of any collector may write a value of *column* as *text*."""
        ...

    def spelled_alike(self, column: Column) -> bool:
        """Whether equal values of *column* arrive as equal texts, as those of a key must."""
        ...

    def sent(self, column: Column) -> SentAs:
        """How the values of *column* arrive."""
        ...

    def values(self, column: Column, wire: pa.Array) -> pa.Array:
        """Values of *column*'s Arrow type; null where a *wire* value does not fit.

        In: texts; int64 is accepted, too, if whole numbers are expected.
        """
        ...

    def altered_by_snapshot(self, column: Column, typed: pa.Array) -> pa.BooleanArray | None:
        """Which typed values a collector's snapshot may also send in place of other values.

        None if there are no such values.
        """
        ...

    def default(self, column: Column) -> pa.Scalar:
        """The value that the source gave old rows when it added the column; null for NULL."""
        ...

    def differences(self, schema: TableSchema, server: Sequence[Column]) -> tuple[str, ...]:
        """The differences between the *server*'s own columns, in order, and the log's schema."""
        ...


ARROW = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}


def arrow_type(column: Column) -> pa.DataType:
    """Arrow type of *column* in a mirror."""
    lake = column.dialect.lake_type(column)
    if lake.startswith("decimal("):
        digits, fraction = lake.removeprefix("decimal(").removesuffix(")").split(",")
        return pa.decimal128(int(digits), int(fraction))
    return ARROW[lake]


class NullableColumn(Column, Protocol):
    """A column that knows whether it may be NULL."""

    @property
    def nullable(self) -> bool:
        """Whether a row may have NULL in it."""
        ...


C = TypeVar("C", bound=NullableColumn)


@dataclass(frozen=True, slots=True)
class MergeRules(Generic[C]):
    """The rules of one dialect for merging columns.

    ``wider``         whether every value of the first means the same in the second.
    ``unknown_fill``  why the value of rows without the column is unknown; None if it is known.
    ``loosened``      the column, with NULL allowed.
    ``listed``        names of columns, for people.
    ``retyped``       the statement that gives the column of a shard its type.
    """

    columns: Callable[[TableSchema], Sequence[C]]
    wider: Callable[[C, C], bool]
    unknown_fill: Callable[[C], str | None]
    loosened: Callable[[C], C]
    listed: Callable[[Sequence[str]], str]
    retyped: Callable[[str, C], str]

    def merge(self, schemas: Sequence[TableSchema]) -> TableSchema | Incompatible:
        """One schema that rows of every shard fit into; shards may be at different steps.

        A column that only some shards have must be one that the others could be given. It has the
        shard and order of the first.
        """
        merged: TableSchema | Incompatible = schemas[0]
        for schema in schemas[1:]:
            if isinstance(merged, Incompatible):
                break
            merged = self._both(merged, schema)
        return merged

    def _both(self, one: TableSchema, other: TableSchema) -> TableSchema | Incompatible:
        if one.key != other.key:
            here, there = self.listed(one.key), self.listed(other.key)
            why = f"{one.shard} has the key ({here}), {other.shard} ({there})"
            return Incompatible(why, f"give {other.shard} the same PRIMARY KEY")
        found: list[C] = []
        later = [column for column in self.columns(other) if one.column(column.name) is None]
        for column in (*self.columns(one), *later):
            pair = [c for s in (one, other) for c in self.columns(s) if c.name == column.name]
            widest = reduce(lambda a, b: b if self.wider(a, b) else a, pair)
            if not all(self.wider(part, widest) for part in pair):
                why = f"{column.name} is {pair[0]} in {one.shard} and {pair[1]} in {other.shard}"
                step = self.retyped(other.shard, pair[0])
                return Incompatible(why, f"make them alike, for example: {step}")
            alone = len(pair) == 1
            if alone and (why_not := self.unknown_fill(column)) is not None:
                return Incompatible(why_not, "give every shard this column")
            loose = alone or any(c.nullable for c in pair)
            found.append(self.loosened(widest) if loose else widest)
        return replace(one, columns=tuple(found))
