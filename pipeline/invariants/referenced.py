"""An invariant: what these columns name is a row of another table; a foreign key.

A row whose parent is on its way waits for it: that none is there is known once everything has
landed that its source committed before it.  A parent counts wherever it stands: in the other's
mirror, or landed and not merged yet; so does one that was deleted later than the row came.  A NULL
among the columns names nothing.  Texts are compared byte by byte.  Cannot see: parents that go
while rows name them, and which shard's row a value means where several fold into one table.  Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import ConfigError
from pipeline.invariants.invariant import Breach, IntendedRows, Invariant


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """Values of ``columns`` stand in the columns ``to`` of ``table``, in this order."""

    columns: tuple[str, ...]
    table: str
    to: tuple[str, ...]

    def __post_init__(self) -> None:
        """Refuse columns that do not go together."""
        if not self.columns or len(self.columns) != len(self.to):
            raise ConfigError("columns and to must be lists of as many columns, at least one")
        if len({*self.to}) != len(self.to):
            raise ConfigError("to names a column twice")


@dataclass(frozen=True, slots=True)
class Referenced:
    """``keys`` are the foreign keys, each checked separately."""

    keys: tuple[ForeignKey, ...]

    def __post_init__(self) -> None:
        """Refuse what demands nothing, and looks as if it did."""
        if not self.keys:
            raise ConfigError("keys: names none; write [{columns: [...], table: ..., to: [...]}]")

    @property
    def others(self) -> frozenset[str]:
        return frozenset(key.table for key in self.keys)

    def breaches(self, intended: IntendedRows) -> Iterator[Breach]:
        """Check key by key; report what is not known yet separately."""
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
