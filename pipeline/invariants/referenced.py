"""An invariant: the values of these columns exist in a row of another table (a foreign key).

A row waits until its parent has landed.  The parent is known to be missing once everything has
landed that the source committed before the row.  A parent counts if it is in the other mirror, or
has landed and is not merged, or was deleted after the row arrived.  A row with a NULL among the
columns refers to nothing.  Texts are compared byte by byte.  Cannot detect: parents that are
deleted while rows refer to them, and references to another shard's row where several shards fold
into one table.  Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import ConfigError
from pipeline.invariants.invariant import Breach, IntendedRows, Invariant


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """The values of ``columns`` exist in the columns ``to`` of ``table``, in this order."""

    columns: tuple[str, ...]
    table: str
    to: tuple[str, ...]

    def __post_init__(self) -> None:
        """Reject lists of different lengths, empty lists, and a column named twice in ``to``."""
        if not self.columns or len(self.columns) != len(self.to):
            raise ConfigError("columns and to must be lists of as many columns, at least one")
        if len({*self.to}) != len(self.to):
            raise ConfigError("to names a column twice")


@dataclass(frozen=True, slots=True)
class Referenced:
    """``keys`` are the foreign keys, each checked separately."""

    keys: tuple[ForeignKey, ...]

    def __post_init__(self) -> None:
        """Reject a config without keys: it would check nothing."""
        if not self.keys:
            raise ConfigError("keys: names none; write [{columns: [...], table: ..., to: [...]}]")

    @property
    def others(self) -> frozenset[str]:
        return frozenset(key.table for key in self.keys)

    def breaches(self, intended: IntendedRows) -> Iterator[Breach]:
        """Check key by key; values that are not known yet are a separate breach, not ``sure``."""
        for key in self.keys:
            pairs = zip(key.to, key.columns, strict=True)
            values = pa.table({there: intended.column(own) for there, own in pairs})
            found = intended.elsewhere(key.table, values)
            own, there = ", ".join(key.columns), f"{key.table} ({', '.join(key.to)})"
            absent = pc.fill_null(pc.invert(found), False).to_numpy(zero_copy_only=False)
            if absent.any():
                yield Breach(f"{own} refers to no row of {there}", absent)
            unknown = found.is_null().to_numpy(zero_copy_only=False)
            if unknown.any():
                what = (
                    f"{own} refers to rows of {there} that do not exist yet, and may still arrive,"
                )
                yield Breach(what, unknown, sure=False)


INVARIANT: type[Invariant] = Referenced
