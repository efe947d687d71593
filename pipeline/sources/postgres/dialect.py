"""What does Postgres say of columns?  Its log shows no statement: all is told by its rows.

What is not shown: a DROP, a RENAME, and a table made anew.  A renamed table looks like a new one
and an old one that stands still; a renamed column like one that went and another that came.  Pure.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import pyarrow as pa

from pipeline.model import ShardId
from pipeline.schema.model import (
    Column,
    ColumnTold,
    Compatible,
    Dialect,
    Effect,
    Incompatible,
    Keep,
    KnownTables,
    TableSchema,
    Told,
    arrow_type,
)
from pipeline.schema.wire import SentAs
from pipeline.sources.postgres import differences, evolution, values
from pipeline.sources.postgres.column import PostgresColumn, sized
from pipeline.sources.postgres.typemap import WHOLE, lake_type

UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@dataclass(frozen=True, slots=True)
class PostgresDialect:
    """Each method as :class:`pipeline.schema.model.Dialect` says."""

    def column(self, told: ColumnTold, statement: str) -> Column:
        """The type is told as ``NAME as WAY``: what the server calls it, and how it is sent."""
        kind, _, way = told.type.rpartition(" as ")
        length, scale = sized(kind, told.length, told.scale)
        return PostgresColumn(
            name=told.name,
            type=kind,
            sent=way,
            length=length,
            scale=scale,
            nullable=told.nullable,
            has_default=told.default is not None,
            position=told.position,
            values=told.values,
        )

    def renamed_from(self, statement: str, shard: ShardId) -> ShardId | None:
        """No statement is told."""
        return None

    def follow(
        self, told: Sequence[Told], known: KnownTables
    ) -> tuple[tuple[Effect, ...], KnownTables]:
        """Rows stay: that columns are told says nothing of older rows, which stand as they did."""
        schemas, found = dict(known.schemas), dict[tuple[object, ShardId], Effect]()
        for one in told:
            for shard, schema in one.tables:
                if schema is not None:
                    found[one.order, shard] = Keep(shard, one.order, schema)
                    schemas[shard] = schema
        return tuple(found.values()), replace(known, schemas=schemas)

    def makes_anew(self, statement: str, *, there: bool | None) -> bool:
        """No statement is told."""
        return False

    def database_dropped(self, statement: str) -> str | None:
        """No statement is told."""
        return None

    def compare(self, old: TableSchema, new: TableSchema) -> Compatible | Incompatible:
        """See :mod:`pipeline.sources.postgres.evolution`."""
        return evolution.compare(old, new)

    def remembered(self, known: TableSchema, new: TableSchema) -> TableSchema:
        """Each schema tells all."""
        return new

    def merge(self, schemas: Sequence[TableSchema]) -> TableSchema | Incompatible:
        """See :mod:`pipeline.sources.postgres.evolution`."""
        return evolution.merge(schemas)

    def lake_type(self, column: Column) -> str:
        """See :mod:`pipeline.sources.postgres.typemap`."""
        return lake_type(_own(column))

    def whole(self, column: Column) -> bool:
        """Integers of any width."""
        return _own(column).kind in WHOLE

    def spellings(self, column: Column, number: int) -> tuple[str, ...]:
        """Its digits."""
        return (str(number),)

    def reads(self, column: Column, text: str) -> bool:
        """A text that is kept as it was sent may be anything, but for a UUID."""
        if _own(column).kind == "UUID":
            return UUID.fullmatch(text) is not None
        return bool(values.values(_own(column), pa.array([text], pa.string()))[0].is_valid)

    def spelled_alike(self, column: Column) -> bool:
        """A snapshot and the log tell a value alike."""
        return True

    def sent(self, column: Column) -> SentAs:
        """See :mod:`pipeline.sources.postgres.values`."""
        return values.sent(_own(column))

    def values(self, column: Column, wire: pa.Array) -> pa.Array:
        """See :mod:`pipeline.sources.postgres.values`."""
        return values.values(_own(column), wire)

    def altered_by_snapshot(self, column: Column, typed: pa.Array) -> pa.BooleanArray | None:
        """See :mod:`pipeline.sources.postgres.values`."""
        return values.altered_by_snapshot(_own(column), typed)

    def default(self, column: Column) -> pa.Scalar:
        """NULL: no column is followed that may have held anything else."""
        return pa.scalar(None, arrow_type(_own(column)))

    def differences(self, schema: TableSchema, server: Sequence[Column]) -> tuple[str, ...]:
        """See :mod:`pipeline.sources.postgres.differences`."""
        return differences.differences(schema, [_own(column) for column in server])


def _own(column: Column) -> PostgresColumn:
    return cast("PostgresColumn", column)


POSTGRES: Dialect = PostgresDialect()
