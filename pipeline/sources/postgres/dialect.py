"""Implements the Postgres dialect: all schema information comes from rows, not statements.

Cannot detect: a DROP, a RENAME, or a table that was created again. A renamed table looks like a
new table and an idle one. A renamed column looks like a dropped column and an added one.

* Evolution: a mirror follows an added nullable column without a default, and a wider type. A
  default may have been set after the column was added, so old rows may not have it. Such a column
  is a hold until an operator decides.
* Differences: the columns of the rows are compared with those of the server.

Cannot detect: a computed default of a nullable column, which rows do not report. The catalog
does (`SourceDescription.filled`), and the table is not READY until it has a new base.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import pyarrow as pa

from pipeline.model import ShardId
from pipeline.row_digest import Form
from pipeline.schema.model import (
    Column,
    ColumnDescription,
    Compatible,
    Dialect,
    Effect,
    Incompatible,
    Keep,
    KnownTables,
    MergeRules,
    SchemaEvent,
    TableSchema,
    arrow_type,
)
from pipeline.schema.wire import SentAs
from pipeline.sources.postgres import digest, values
from pipeline.sources.postgres.types import (
    KNOWN,
    WHOLE,
    PostgresColumn,
    is_decimal,
    lake_type,
    normalize_size,
    postgres_columns,
)


def find_differences(schema: TableSchema, server: Sequence[PostgresColumn]) -> tuple[str, ...]:
    """Differences between the columns of the rows and those of the server; empty if they agree.

    These are ignored, because no value changes: NOT NULL, the order of columns (rows have names),
    and types that Sluice does not know.

    *server* are the table's columns as the server describes them.
    """
    there = {column.name: column for column in server}
    here = {column.name: column for column in postgres_columns(schema)}
    missing = [
        f"{name}: the server has it, no row has described it yet"
        for name in there
        if name not in here
    ]
    found = [
        f"{name}: {why}"
        for name, column in here.items()
        if (why := _difference(column, there.get(name)))
    ]
    return (*found, *missing)


def _difference(column: PostgresColumn, there: PostgresColumn | None) -> str | None:
    if there is None:
        return "rows have it, the server does not"
    known = column.kind in KNOWN and there.kind in KNOWN
    if known and column.shape != there.shape:
        return f"rows say {column}, the server {there}"
    return None


INTEGERS = ("INT2", "INT4", "INT8")


def compare_schemas(old: TableSchema, new: TableSchema) -> Compatible | Incompatible:
    """The columns added from *old* to *new*, or the first change that a mirror cannot follow."""
    here = {column.name: column for column in postgres_columns(old)}
    names = {column.name for column in new.columns}
    again = f"take a new base of {new.shard}, and rebuild its mirror"
    added = tuple(column for column in postgres_columns(new) if column.name not in here)
    gone = next((column for column in postgres_columns(old) if column.name not in names), None)
    if gone is not None:
        return Incompatible(_lost(gone, added), again)
    if old.key != new.key:
        why = f"the key changed from {_list(old.key)} to {_list(new.key)}"
        return Incompatible(why, f"give it the key ({_list(old.key)}) again, or {again}")
    for after in postgres_columns(new):
        before = here.get(after.name)
        if before is not None and not is_wider(before, after):
            why = f"column {after.name} changed from {before} to {after}"
            return Incompatible(why, f"undo it: {_retyped(new.shard, before)}; or {again}")
        if before is None and (why_not := _unknown_fill(after)) is not None:
            return Incompatible(why_not, again)
    return Compatible(added)


def merge_schemas(schemas: Sequence[TableSchema]) -> TableSchema | Incompatible:
    """One schema that fits the rows of every shard; see :class:`MergeRules`."""
    return _MERGING.merge(schemas)


def is_wider(old: PostgresColumn, new: PostgresColumn) -> bool:
    """Whether every value of *old* means the same in *new*; true for equal types too."""
    if old.shape == new.shape:
        return True
    if old.kind in INTEGERS and new.kind in INTEGERS:
        return INTEGERS.index(new.kind) > INTEGERS.index(old.kind)
    if old.kind in ("VARCHAR", "TEXT") and new.kind in ("VARCHAR", "TEXT"):
        return new.length is None or (old.length is not None and new.length >= old.length)
    if old.kind == new.kind == "NUMERIC" and is_decimal(old) and is_decimal(new):
        return old.fraction == new.fraction and (new.digits or 0) >= (old.digits or 0)
    return False


def _lost(gone: PostgresColumn, added: Sequence[PostgresColumn]) -> str:
    twin = next((c for c in added if c.position == gone.position and c.shape == gone.shape), None)
    if twin is not None:
        return f"column {gone.name} is gone, and {twin.name} is at its position"
    return f"column {gone.name} is gone"


def _unknown_fill(column: PostgresColumn) -> str | None:
    """Why the values of old rows in an added column are unknown; None if they are known."""
    if column.nullable and not column.has_default:
        return None
    held = "has a default" if column.has_default else "may not be NULL"
    return f"column {column.name} was added and {held}: the values in older rows are unknown"


def _quoted(shard: str) -> str:
    own = ShardId.read(shard)
    return f'"{own.database}"."{own.relation}"'


def _list(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names) or "none"


def _loosened(column: PostgresColumn) -> PostgresColumn:
    return replace(column, nullable=True)


def _retyped(shard: str, column: PostgresColumn) -> str:
    return f'ALTER TABLE {_quoted(shard)} ALTER COLUMN "{column.name}" TYPE {column}'


_MERGING = MergeRules(postgres_columns, is_wider, _unknown_fill, _loosened, _list, _retyped)


UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@dataclass(frozen=True, slots=True)
class PostgresDialect:
    """The rules of Postgres; all are pure.  No statement arrives, so none has an effect."""

    compare = staticmethod(compare_schemas)
    merge = staticmethod(merge_schemas)

    def column(self, description: ColumnDescription, statement: str) -> Column:
        """The column; its described type is ``NAME as WAY``: the server's, and the one sent."""
        kind, _, way = description.type.rpartition(" as ")
        length, scale = normalize_size(kind, description.length, description.scale)
        return PostgresColumn(
            name=description.name,
            type=kind,
            sent=way,
            length=length,
            scale=scale,
            nullable=description.nullable,
            has_default=description.default is not None,
            position=description.position,
            values=description.values,
        )

    def renamed_from(self, statement: str, shard: ShardId) -> ShardId | None:
        return None

    def follow(
        self, events: Sequence[SchemaEvent], known: KnownTables
    ) -> tuple[tuple[Effect, ...], KnownTables]:
        """Return `Keep` for each description: it changes no older row."""
        schemas, found = dict(known.schemas), dict[tuple[object, ShardId], Effect]()
        for one in events:
            for shard, schema in one.tables:
                if schema is not None:
                    found[one.order, shard] = Keep(shard, one.order, schema)
                    schemas[shard] = schema
        return tuple(found.values()), replace(known, schemas=schemas)

    def makes_anew(self, statement: str, *, there: bool | None) -> bool:
        return False

    def leaves_values(self, statement: str) -> bool:
        return True

    def database_dropped(self, statement: str) -> str | None:
        return None

    def remembered(self, known: TableSchema, new: TableSchema) -> TableSchema:
        return new

    def lake_type(self, column: Column) -> str:
        return lake_type(_own(column))

    def digest_form(self, column: Column) -> Form | str:
        return digest.value_form(_own(column))

    def whole(self, column: Column) -> bool:
        return _own(column).kind in WHOLE

    def spellings(self, column: Column, number: int) -> tuple[str, ...]:
        return (str(number),)

    def reads(self, column: Column, text: str) -> bool:
        """Whether *text* can be decoded; types kept as sent accept any text, except UUID."""
        if _own(column).kind == "UUID":
            return UUID.fullmatch(text) is not None
        return bool(values.decode_values(_own(column), pa.array([text], pa.string()))[0].is_valid)

    def spelled_alike(self, column: Column) -> bool:
        return True

    def sent(self, column: Column) -> SentAs:
        return values.wire_kind(_own(column))

    def values(self, column: Column, wire: pa.Array) -> pa.Array:
        return values.decode_values(_own(column), wire)

    def altered_by_snapshot(self, column: Column, typed: pa.Array) -> pa.BooleanArray | None:
        return values.find_altered_by_snapshot(_own(column), typed)

    def default(self, column: Column) -> pa.Scalar:
        """NULL: a mirror follows only added columns that are NULL in old rows."""
        return pa.scalar(None, arrow_type(_own(column)))

    def differences(self, schema: TableSchema, server: Sequence[Column]) -> tuple[str, ...]:
        return find_differences(schema, [_own(column) for column in server])


def _own(column: Column) -> PostgresColumn:
    return cast("PostgresColumn", column)


POSTGRES: Dialect = PostgresDialect()
