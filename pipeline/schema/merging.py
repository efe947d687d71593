"""Which one schema do rows of all shards fit into?  As a dialect says of two columns.  Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Generic, Protocol, TypeVar

from pipeline.schema.column import Column, TableSchema
from pipeline.schema.evolution import Incompatible


class NullableColumn(Column, Protocol):
    """A column that says whether it may be NULL."""

    @property
    def nullable(self) -> bool:
        """Whether a row may have NULL in it."""
        ...


C = TypeVar("C", bound=NullableColumn)


@dataclass(frozen=True, slots=True)
class MergeRules(Generic[C]):
    """What one dialect says.

    ``wider``         whether every value of the first means the same in the second.
    ``unknown_fill``  why nobody knows what rows without a column hold in it; None if it is known.
    ``loosened``      the column, if it may be NULL.
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

        A column that only some shards have must be one the others could be given.  The shard and
        order are those of the first.
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
