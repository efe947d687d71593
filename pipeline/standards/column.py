"""What is a column of which the mirror holds the answers of a standard?  Text, whatever it was.

The log's own columns stay as they are told, so that statements are followed as ever; only what is
typed and laid out for the mirror is another.  Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from pipeline.errors import FormatError, HeldError
from pipeline.model import ShardId
from pipeline.schema.decode import as_sent, whole
from pipeline.schema.model import (
    Column,
    ColumnTold,
    Compatible,
    Dialect,
    Effect,
    Incompatible,
    KnownTables,
    TableSchema,
    Told,
)
from pipeline.schema.wire import SentAs
from pipeline.standards.standard import Standard


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

    def column(self, told: ColumnTold, statement: str) -> Column:
        """As the source's."""
        return self.own.column(told, statement)

    def renamed_from(self, statement: str, shard: ShardId) -> ShardId | None:
        """As the source's."""
        return self.own.renamed_from(statement, shard)

    def follow(
        self, told: Sequence[Told], known: KnownTables
    ) -> tuple[tuple[Effect, ...], KnownTables]:
        """As the source's."""
        return self.own.follow(told, known)

    def makes_anew(self, statement: str, *, there: bool | None) -> bool:
        """As the source's."""
        return self.own.makes_anew(statement, there=there)

    def database_dropped(self, statement: str) -> str | None:
        """As the source's."""
        return self.own.database_dropped(statement)

    def compare(self, old: TableSchema, new: TableSchema) -> Compatible | Incompatible:
        """As the source's, of its own columns."""
        return self.own.compare(plain(old), plain(new))

    def remembered(self, known: TableSchema, new: TableSchema) -> TableSchema:
        """As the source's, of its own columns."""
        return self.own.remembered(plain(known), plain(new))

    def merge(self, schemas: Sequence[TableSchema]) -> TableSchema | Incompatible:
        """As the source's, of its own columns."""
        return self.own.merge([plain(one) for one in schemas])

    def lake_type(self, column: Column) -> str:
        """That of the standard's answers."""
        if isinstance(column, StandardColumn):
            return column.standard.lake_type
        return self.own.lake_type(column)

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
        return whole(wire) if column.standard.lake_type == "bigint" else as_sent(column, wire)

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
        return answered(self.own.default(column.sent), column)

    def differences(self, schema: TableSchema, server: Sequence[Column]) -> tuple[str, ...]:
        """As the source's, of its own columns."""
        return self.own.differences(plain(schema), [source_column(one) for one in server])


def written(column: Column, standard: Standard | None) -> Column:
    """The column as a mirror has it, by its *standard* if it has one."""
    return column if standard is None else StandardColumn(column, standard)


def source_column(column: Column) -> Column:
    """The column as its source has it."""
    return column.sent if isinstance(column, StandardColumn) else column


def plain(schema: TableSchema) -> TableSchema:
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


def answered(value: pa.Scalar, column: StandardColumn) -> pa.Scalar:
    """What stands for a *value* of the source's own type; null for null.

    Raises:
        FormatError: nothing stands for it, or it is of a type that may be sent in many ways.
    """
    kind = pa.int64() if column.standard.lake_type == "bigint" else pa.string()
    if not value.is_valid:
        return pa.scalar(None, kind)
    told = value.as_py()
    if isinstance(told, bool) or not isinstance(told, str | int):
        raise FormatError(f"column {column.name}: a default of {value.type} has no standard")
    text = str(told)
    answer = column.standard.value(text)
    if answer is None or kind == pa.string():
        return pa.scalar(answer, pa.string() if kind == pa.string() else kind)
    return pa.scalar(int(answer), kind)
