"""Columns of the toy database: numbers and words, and a rule of its own on changed columns."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.model import ShardId
from pipeline.row_digest import Form
from pipeline.schema.model import (
    Column,
    ColumnDescription,
    Compatible,
    Dialect,
    Effect,
    Empty,
    Incompatible,
    Keep,
    KnownTables,
    SchemaEvent,
    TableSchema,
    arrow_type,
)
from pipeline.schema.wire import SentAs

LAKE = {"number": "bigint", "word": "string"}


@dataclass(frozen=True, slots=True)
class ToyColumn:
    """A name, and ``number`` or ``word``."""

    name: str
    type: str

    @property
    def dialect(self) -> Dialect:
        return TOY


@dataclass(frozen=True, slots=True)
class ToyDialect:
    """A table may only get more columns; it holds NULL in them for the rows it had."""

    def column(self, told: ColumnDescription, statement: str) -> Column:
        return ToyColumn(told.name, told.type)

    def renamed_from(self, statement: str, shard: ShardId) -> ShardId | None:
        return None

    def follow(
        self, told: Sequence[SchemaEvent], known: KnownTables
    ) -> tuple[tuple[Effect, ...], KnownTables]:
        schemas, based, found = dict(known.schemas), set(known.based), list[Effect]()
        for one in told:
            for shard, schema in one.tables:
                if schema is not None:
                    found.append((Keep if shard in schemas else Empty)(shard, one.order, schema))
                    schemas[shard] = schema
                    if known.captured(shard):  # or rows may be missing that nobody sent
                        based.add(shard)
        return tuple(found), KnownTables(known.captured, schemas, frozenset(based))

    def makes_anew(self, statement: str, *, there: bool | None) -> bool:
        return not there

    def leaves_values(self, statement: str) -> bool:
        return True

    def database_dropped(self, statement: str) -> str | None:
        return None

    def compare(self, old: TableSchema, new: TableSchema) -> Compatible | Incompatible:
        for column in old.columns:
            if new.column(column.name) != column:
                return Incompatible(f"{column.name} is not what it was", "define it as before")
        return Compatible(tuple(c for c in new.columns if old.column(c.name) is None))

    def remembered(self, known: TableSchema, new: TableSchema) -> TableSchema:
        return new

    def merge(self, schemas: Sequence[TableSchema]) -> TableSchema | Incompatible:
        return max(schemas, key=lambda schema: len(schema.columns))

    def lake_type(self, column: Column) -> str:
        return LAKE[_type(column)]

    def digest_form(self, column: Column) -> Form | str:
        return Form.INTEGER if self.whole(column) else Form.TEXT

    def whole(self, column: Column) -> bool:
        return _type(column) == "number"

    def spellings(self, column: Column, number: int) -> tuple[str, ...]:
        return (str(number),)

    def reads(self, column: Column, text: str) -> bool:
        return bool(self.values(column, pa.array([text], pa.string()))[0].is_valid)

    def spelled_alike(self, column: Column) -> bool:
        return True

    def sent(self, column: Column) -> SentAs:
        return SentAs.WHOLE if self.whole(column) else SentAs.WORD

    def values(self, column: Column, wire: pa.Array) -> pa.Array:
        if not (self.whole(column) and pa.types.is_string(wire.type)):
            return wire
        number = pc.match_substring_regex(wire, "^-?[0-9]{1,18}$")
        return pc.if_else(number, wire, pa.scalar(None, pa.string())).cast(pa.int64())

    def altered_by_snapshot(self, column: Column, typed: pa.Array) -> pa.BooleanArray | None:
        """None."""

    def default(self, column: Column) -> pa.Scalar:
        return pa.scalar(None, arrow_type(column))

    def differences(self, schema: TableSchema, server: Sequence[Column]) -> tuple[str, ...]:
        here = {str(column) for column in schema.columns}
        return tuple(sorted(here ^ {str(column) for column in server}))


def _type(column: Column) -> str:
    return column.type if isinstance(column, ToyColumn) else "word"


TOY: Dialect = ToyDialect()
