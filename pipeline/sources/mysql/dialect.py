"""Implements the dialect of MySQL and MariaDB: types, statements and schema evolution.

Names, types and keys come from schema events. Only the text of a statement shows computed columns
and some sizes, so they are kept from one schema to the next. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import pyarrow as pa

from pipeline.row_digest import Form
from pipeline.schema.model import (
    Column,
    ColumnDescription,
    Dialect,
    Notation,
    TableSchema,
    arrow_type,
)
from pipeline.schema.wire import SentAs
from pipeline.sources.mysql import ddl_effects, ddl_parser, digest, types, values
from pipeline.sources.mysql.ddl_effects import default_scalar
from pipeline.sources.mysql.ddl_parser import DatabaseDropped, parse_statement
from pipeline.sources.mysql.types import WHOLE, MySqlColumn, lake_type, mysql_columns
from pipeline.sources.mysql.values import to_wire_text

_INTEGERS = (*WHOLE, "BIGINT")


@dataclass(frozen=True, slots=True)
class MySqlDialect:
    """The rules of MySQL and MariaDB; all are pure."""

    renamed_from = staticmethod(ddl_parser.find_previous_name)
    follow = staticmethod(ddl_effects.follow_statements)
    compare = staticmethod(ddl_effects.compare_schemas)
    merge = staticmethod(ddl_effects.merge_schemas)

    def column(self, description: ColumnDescription, statement: str) -> Column:
        """The column; the statement is read too, because only it shows computed columns."""
        name, length, scale = description.name, description.length, description.scale
        nullable = description.nullable
        if description.notation is Notation.PLAIN and statement:
            nullable = nullable or ddl_parser.may_be_null(statement, name)
            if length is None:
                length, scale = ddl_parser.read_sizes(statement, name)
        return MySqlColumn(
            name=name,
            type=description.type,
            length=length,
            scale=scale,
            nullable=nullable,
            default=description.default,
            has_default=description.default is not None or nullable,
            generated=ddl_parser.is_generated(statement, name)
            or ddl_parser.has_computed_default(statement, name),
            position=description.position,
            values=description.values,
            notation=description.notation,
        )

    def makes_anew(self, statement: str, *, there: bool | None) -> bool:
        return ddl_effects.creates_empty_table(parse_statement(statement), there=there)

    def leaves_values(self, statement: str) -> bool:
        return ddl_effects.leaves_values(parse_statement(statement))

    def database_dropped(self, statement: str) -> str | None:
        """The database that the statement drops, in its case; None if it drops none."""
        if "drop" not in statement.casefold():
            return None
        said = parse_statement(statement)
        return said.database if isinstance(said, DatabaseDropped) else None

    def remembered(self, known: TableSchema, new: TableSchema) -> TableSchema:
        """Add details that only an earlier statement has: computed columns, and some sizes."""
        new = _sized(mysql_columns(known), new)
        computed = {(c.name, c.shape) for c in mysql_columns(known) if c.generated}
        kept = (
            replace(c, generated=c.generated or (c.name, c.shape) in computed)
            for c in mysql_columns(new)
        )
        return replace(new, columns=tuple(kept))

    def lake_type(self, column: Column) -> str:
        return lake_type(_own(column))

    def digest_form(self, column: Column) -> Form | str:
        return digest.value_form(_own(column))

    def whole(self, column: Column) -> bool:
        return _own(column).kind in _INTEGERS

    def spellings(self, column: Column, number: int) -> tuple[str, ...]:
        """The digits; a BIGINT UNSIGNED may also arrive as base64 (mode ``precise``)."""
        own = _own(column)
        plain = own.notation is not Notation.CONNECT
        if plain or number < 0 or not (own.kind == "BIGINT" and own.unsigned):
            return (str(number),)
        return (str(to_wire_text(own, str(number))), str(number))

    def reads(self, column: Column, text: str) -> bool:
        """Whether *text* is valid in any notation; the server does not know the collector's."""
        wire = pa.array([text], pa.string())
        notations = (replace(_own(column), notation=one) for one in Notation)
        return any(values.decode_values(one, wire).null_count == 0 for one in notations)

    def spelled_alike(self, column: Column) -> bool:
        """False for JSON, for FLOAT (a snapshot has six digits), and for ambiguous labels."""
        own = _own(column)
        return own.kind not in ("JSON", "FLOAT") and types.has_one_spelling(own)

    def sent(self, column: Column) -> SentAs:
        return values.wire_kind(_own(column))

    def values(self, column: Column, wire: pa.Array) -> pa.Array:
        return values.decode_values(_own(column), wire)

    def altered_by_snapshot(self, column: Column, typed: pa.Array) -> pa.BooleanArray | None:
        return values.find_altered_by_snapshot(_own(column), typed)

    def default(self, column: Column) -> pa.Scalar:
        """The constant default; null also for a computed column, whose old values are unknown."""
        own = _own(column)
        if own.generated or own.default is None:
            return pa.scalar(None, arrow_type(own))
        return default_scalar(own)

    def differences(self, schema: TableSchema, server: Sequence[Column]) -> tuple[str, ...]:
        return ddl_effects.find_differences(schema, [_own(column) for column in server])


def _sized(known: Sequence[MySqlColumn], new: TableSchema) -> TableSchema:
    """*new* with the sizes and NULLs of *known* that its statement did not repeat."""
    before = {column.name: column for column in known}
    made = []
    for column in mysql_columns(new):
        old = before.get(column.name)
        if column.notation is Notation.PLAIN and old is not None and old.kind == column.kind:
            description = column if column.length is not None else old
            kept = replace(column, length=description.length, scale=description.scale)
            made.append(replace(kept, nullable=column.nullable or old.nullable))
        else:
            made.append(column)
    return replace(new, columns=tuple(made))


def _own(column: Column) -> MySqlColumn:
    return cast("MySqlColumn", column)


MYSQL: Dialect = MySqlDialect()
