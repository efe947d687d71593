"""Implements the dialect of files, whose column types are those of the mirror.

The columns are reported before the first row. A file may add columns. A column that disappears
or changes its type is incompatible.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.model import ShardId
from pipeline.row_digest import Form
from pipeline.schema.decode import (
    ColumnReading,
    as_integer,
    as_sent,
    cast_or_null,
    decode_bytes,
    keep_fitting,
    parse_booleans,
    parse_decimals,
    parse_floats,
    parse_instants,
)
from pipeline.schema.model import (
    ARROW,
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

_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_LOCAL = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?$"
_DECIMAL = re.compile(r"decimal\(([0-9]{1,2}),([0-9]{1,2})\)")
_DIGITS = 38  # of a decimal
_WHOLE = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column of a log; ``type`` is its type in the mirror."""

    name: str
    type: str

    @property
    def dialect(self) -> Dialect:
        return FILES


Reading = ColumnReading[FileColumn]


@dataclass(frozen=True, slots=True)
class FileDialect:
    """The dialect with the mirror's types; no statement has an effect."""

    def column(self, description: ColumnDescription, statement: str) -> Column:
        return FileColumn(description.name, description.type)

    def renamed_from(self, statement: str, shard: ShardId) -> ShardId | None:
        """Return None: a log with another name is another log."""
        return None

    def follow(
        self, events: Sequence[SchemaEvent], known: KnownTables
    ) -> tuple[tuple[Effect, ...], KnownTables]:
        """The first description of a log is `Empty`; later ones add columns and `Keep` the rows."""
        schemas, based, found = dict(known.schemas), set(known.based), list[Effect]()
        for one in events:
            for shard, schema in one.tables:
                if schema is not None:
                    found.append((Keep if shard in schemas else Empty)(shard, one.order, schema))
                    schemas[shard] = schema
                    if known.captured(shard):
                        based.add(shard)
        return tuple(found), replace(known, schemas=schemas, based=frozenset(based))

    def makes_anew(self, statement: str, *, there: bool | None) -> bool:
        return not there

    def leaves_values(self, statement: str) -> bool:
        return True

    def database_dropped(self, statement: str) -> str | None:
        return None

    def compare(self, old: TableSchema, new: TableSchema) -> Compatible | Incompatible:
        """Compatible if *new* has all columns of *old* unchanged."""
        for column in old.columns:
            if (now := new.column(column.name)) != column:
                why = f"column {column.name} was {_type(column)} and is {now and _type(now)}"
                return Incompatible(why, "name its type in `columns` of the log as it was")
        return Compatible(tuple(c for c in new.columns if old.column(c.name) is None))

    def remembered(self, known: TableSchema, new: TableSchema) -> TableSchema:
        return new

    def merge(self, schemas: Sequence[TableSchema]) -> TableSchema | Incompatible:
        """The columns of all logs; columns with the same name must have the same type."""
        found = dict[str, Column]()
        for schema in schemas:
            for column in schema.columns:
                if found.setdefault(column.name, column) != column:
                    types = f"{_type(found[column.name])} and {_type(column)}"
                    why = f"column {column.name} is {types} in logs of one table"
                    return Incompatible(why, "name one type in `columns` of both logs")
        return replace(schemas[0], columns=tuple(found.values()))

    def lake_type(self, column: Column) -> str:
        """The described type; text if it is unknown."""
        return _type(column)

    def digest_form(self, column: Column) -> Form | str:
        return "a file has no rows to query"

    def whole(self, column: Column) -> bool:
        return _type(column) in _WHOLE

    def spellings(self, column: Column, number: int) -> tuple[str, ...]:
        return (str(number),)

    def reads(self, column: Column, text: str) -> bool:
        return bool(self.values(column, pa.array([text], pa.string()))[0].is_valid)

    def spelled_alike(self, column: Column) -> bool:
        """Whole numbers, texts, dates and booleans; others can be written in several ways."""
        return self.whole(column) or _type(column) in ("string", "date", "boolean")

    def sent(self, column: Column) -> SentAs:
        """As text or whole number, or for decimals, floats and booleans in any spelling."""
        return _reading(column).sent

    def values(self, column: Column, wire: pa.Array) -> pa.Array:
        return _reading(column).values(cast("FileColumn", column), wire)

    def altered_by_snapshot(self, column: Column, typed: pa.Array) -> pa.BooleanArray | None:
        pass

    def default(self, column: Column) -> pa.Scalar:
        """NULL, because older files do not have the column."""
        return pa.scalar(None, arrow_type(column))

    def differences(self, schema: TableSchema, server: Sequence[Column]) -> tuple[str, ...]:
        """Columns that only the schema or only the ledger has, sorted."""
        here = {str(column) for column in schema.columns}
        return tuple(sorted(here ^ {str(column) for column in server}))


def is_type(text: str) -> bool:
    """Whether *text* names a type of the mirror; an unknown type would silently become text."""
    plain = text.replace(" ", "").lower()
    if (found := _DECIMAL.fullmatch(plain)) is None:
        return plain in ARROW
    return 1 <= int(found[1]) <= _DIGITS and int(found[2]) <= int(found[1])


def _type(column: Column) -> str:
    description = cast("FileColumn", column).type.replace(" ", "").lower()
    return description if description in ARROW or description.startswith("decimal(") else "string"


def _reading(column: Column) -> Reading:
    kind = _type(column)
    return DECIMAL if kind.startswith("decimal(") else READINGS[kind]


def _float(column: FileColumn, wire: pa.StringArray) -> pa.Array:
    return parse_floats(wire, arrow_type(column))


def _decimal(column: FileColumn, wire: pa.StringArray) -> pa.Array:
    kind = arrow_type(column)
    return parse_decimals(wire, kind, kind.precision, kind.scale)


def _flag(_: FileColumn, wire: pa.StringArray) -> pa.BooleanArray:
    return parse_booleans(wire)


def _bytes(_: FileColumn, wire: pa.StringArray) -> pa.BinaryArray:
    return decode_bytes(wire)


def _day(column: FileColumn, wire: pa.StringArray) -> pa.Array:
    return cast_or_null(
        keep_fitting(pc.match_substring_regex(wire, _DAY), wire), arrow_type(column)
    )


def _instant(column: FileColumn, wire: pa.StringArray) -> pa.Array:
    return parse_instants(
        pc.replace_substring_regex(wire, r"^(\S{10}) ", r"\1T"), arrow_type(column)
    )


def _moment(column: FileColumn, wire: pa.StringArray) -> pa.Array:
    return cast_or_null(
        keep_fitting(pc.match_substring_regex(wire, _LOCAL), wire), arrow_type(column)
    )


DECIMAL: Reading = ColumnReading(SentAs.ANY, _decimal)
READINGS: Mapping[str, Reading] = {
    **dict.fromkeys(_WHOLE, ColumnReading(SentAs.WHOLE, as_integer)),
    **dict.fromkeys(("float", "double"), ColumnReading(SentAs.ANY, _float)),
    "boolean": ColumnReading(SentAs.ANY, _flag),
    "date": ColumnReading(SentAs.WORD, _day),
    "timestamp": ColumnReading(SentAs.WORD, _instant),
    "timestamp_ntz": ColumnReading(SentAs.WORD, _moment),
    "string": ColumnReading(SentAs.WORD, as_sent),
    "binary": ColumnReading(SentAs.WORD, _bytes),
}
FILES: Dialect = FileDialect()
