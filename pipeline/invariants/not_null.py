"""An invariant: these columns are never NULL.  Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.invariants.invariant import Breach, IntendedRows, Invariant


@dataclass(frozen=True, slots=True)
class NotNull:
    """``columns`` hold a value in every row."""

    columns: tuple[str, ...]

    def breaches(self, intended: IntendedRows) -> Iterator[Breach]:
        """Check column by column."""
        for name in self.columns:
            column = intended.column(name)
            if column.null_count:
                yield Breach(f"{name} is NULL", column.is_null().to_numpy(zero_copy_only=False))


INVARIANT: type[Invariant] = NotNull
