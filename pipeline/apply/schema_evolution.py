"""Plans how a mirror follows the columns of its source, or holds the table.

Only changes that cannot go wrong are followed automatically. Existing rows are rewritten where
a type becomes wider, and where a new column has a default: the source gave it to existing rows
without logging that. A key column never changes to a type in which two of its values could
become one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pipeline.apply.decide import Fill
from pipeline.apply.mirror import (
    MirrorSnapshot,
    schemas_of,
    schemas_property,
    standards_of,
    standards_property,
    table_property,
)
from pipeline.apply.row_metadata import META, SLUICE
from pipeline.errors import HeldError
from pipeline.model import Order, Shard, Table
from pipeline.schema.model import (
    Column,
    Compatible,
    Incompatible,
    TableSchema,
    arrow_type,
    compare_schemas,
)
from pipeline.standards.table_standards import StandardColumn, default_of

Find = Callable[[str, Order], TableSchema | None]
Kinds = Callable[[Sequence[str]], pa.Schema]
"""Names -> those that the mirror has as columns, with their types."""

MOST_TEXT = 200  # characters of a statement that a hold shows


@dataclass(frozen=True, slots=True)
class TargetSchema:
    """The schema that a mirror is to have.

    *newest*: ``source/shard`` -> newest landed schema; *schema* merges all of them; *at* finds an
    earlier one. *bases* has the order of each shard's base, if it has one. *standards* is the
    digest of the standards of its columns.
    """

    table: Table
    schema: TableSchema
    newest: Mapping[str, TableSchema]
    at: Find
    bases: Mapping[str, Order]
    standards: str = ""

    @property
    def orders(self) -> dict[str, Order]:
        """``source/shard`` -> order of the schema change that the mirror is to follow."""
        return {name: found.order for name, found in self.newest.items()}

    @property
    def texts(self) -> dict[str, str]:
        """Return the properties of a mirror that is created with these columns."""
        own = table_property(None, self.table.name) | standards_property(None, self.standards)
        return schemas_property(self.orders) | own


@dataclass(frozen=True, slots=True)
class SchemaDelta:
    """The columns that a mirror is to have, the properties to store, and whether rows change."""

    schema: pa.Schema
    remembered: Mapping[str, str]
    fills: tuple[Fill, ...]
    rewrites: bool


def find_delta(snapshot: MirrorSnapshot, kinds: Kinds, shape: TargetSchema) -> SchemaDelta | None:
    """The changes that the mirror needs; None if it follows the newest schema of each shard.

    Raises:
        HeldError: a change cannot be followed; names it and the statement that fixes it.
    """
    known = schemas_of(snapshot)
    moved = {name for name, order in shape.orders.items() if known.get(name) != order}
    restated = standards_of(snapshot) != shape.standards
    if not moved and not restated:
        return None
    fills = tuple(fill for name in sorted(moved) for fill in _fills(name, known, shape))
    wanted = lake_schema(shape.schema.columns)
    if restated:
        _require_same_types(kinds(sorted(set(wanted.names))), wanted)
    _require_same_keys(snapshot.uri, kinds(shape.table.key), wanted)
    reported = schemas_property({**known, **shape.orders}) | standards_property(
        snapshot, shape.standards
    )
    return SchemaDelta(
        wanted, reported, fills, bool(fills) or _widened(kinds(sorted(set(wanted.names))), wanted)
    )


def may_rewrite(snapshot: MirrorSnapshot, shape: TargetSchema) -> bool:
    """Return whether following *shape* may rewrite all rows of the mirror.

    Uses only the landed schemas. So it is true for some changes that turn out to rewrite nothing,
    such as the first schema of a shard.

    Raises:
        HeldError: a change cannot be followed.
    """
    known = schemas_of(snapshot)
    for name in sorted(name for name, order in shape.orders.items() if known.get(name) != order):
        old = shape.at(name, known[name]) if name in known else None
        if old is None or _fills(name, known, shape):
            return True
        before, now = lake_schema(old.columns), lake_schema(shape.newest[name].columns)
        if _widened(before, now):
            return True
    return False


def _require_same_types(there: pa.Schema, wanted: pa.Schema) -> None:
    """Refuse a column whose type another standard changes: its old values have the old type."""
    for field in there:
        kind = wanted.field(field.name).type
        if field.name != SLUICE and kind != field.type:
            detail = f"column {field.name} is {field.type} in the mirror, and {kind} by `standards`"
            raise HeldError("standards", f"{detail}; rebuild the mirror")


def _require_same_keys(uri: str, keys: pa.Schema, wanted: pa.Schema) -> None:
    """Refuse a key column, as of an adopted table, whose new type may change its values."""
    for field in keys:
        kind = wanted.field(field.name).type
        if not _holds_all(kind, field.type):
            detail = f"key column {field.name} is {field.type} here, and {kind} by its source"
            advice = "two of its values may become one, or none; give it that type, or rebuild"
            raise HeldError("key_kind", f"{uri}: {detail}; {advice} the mirror")


def _holds_all(kind: pa.DataType, old: pa.DataType) -> bool:
    """Whether each value of type *old* remains a distinct value in *kind*."""
    if kind.equals(old):
        return True
    if pa.types.is_integer(old) and pa.types.is_integer(kind):
        return bool(kind.bit_width >= old.bit_width)
    if pa.types.is_decimal(kind) and pa.types.is_integer(old):
        return bool(kind.precision - kind.scale >= len(str(2 ** (old.bit_width - 1))))
    if pa.types.is_decimal(kind) and pa.types.is_decimal(old):
        whole = kind.precision - kind.scale >= old.precision - old.scale
        return bool(whole and kind.scale >= old.scale)
    return False


def lake_schema(columns: Sequence[Column]) -> pa.Schema:
    """A mirror's columns and ``_sluice``, as an Arrow schema."""
    return pa.schema([*((one.name, arrow_type(one)) for one in columns), (SLUICE, META)])


def _fills(name: str, known: Mapping[str, Order], shape: TargetSchema) -> list[Fill]:
    """Defaults of columns added to a shard since the schema that the mirror follows."""
    step = _step(name, known, shape)
    found = [
        (column.name, default_of(_written(column, shape.schema)))
        for column in (step.added if step else ())
    ]
    born = shape.orders[name]
    return [Fill(n, Shard.parse(name), born, value) for n, value in found if value.is_valid]


def _written(column: Column, merged: TableSchema) -> Column:
    """A shard's column with its standard's type, as in the mirror."""
    known = merged.column(column.name)
    return StandardColumn(column, known.standard) if isinstance(known, StandardColumn) else column


def _step(name: str, known: Mapping[str, Order], shape: TargetSchema) -> Compatible | None:
    old = shape.at(name, known[name]) if name in known else None
    if old is None:
        return None  # a new shard; its schema already agrees with the others
    step = compare_schemas(old, shape.newest[name])
    base = shape.bases.get(name)
    if isinstance(step, Incompatible) and step.filled and base and base >= shape.orders[name]:
        return None  # changes below its base do not count, and those above it have all columns
    if isinstance(step, Incompatible):
        reported = " ".join(shape.newest[name].statement.split())[:MOST_TEXT]
        by = f" (as of {reported})" if reported else ""
        raise HeldError("schema", f"{name}: {step.why}{by}; {step.statement}")
    return step


def _widened(there: pa.Schema, wanted: pa.Schema) -> bool:
    return any(there.field(f.name).type != f.type for f in wanted if f.name in there.names)
