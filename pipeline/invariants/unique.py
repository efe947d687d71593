"""An invariant: no two rows of the mirror hold the same values in these columns.

The key is always unique and needs no entry.  These columns must be unique across shards, even where
keys are not.  A row with a NULL among them is never a duplicate.  Texts are compared byte by byte.
Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipeline.errors import ConfigError
from pipeline.invariants.invariant import Breach, IntendedRows, Invariant, Mask, number_values


@dataclass(frozen=True, slots=True)
class Unique:
    """``sets`` are lists of columns, checked within the slice and against the mirror's rows."""

    sets: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        """Reject a set without columns."""
        if not all(self.sets):
            raise ConfigError("a set without columns; write lists of columns: [[email], [a, b]]")

    def breaches(self, intended: IntendedRows) -> Iterator[Breach]:
        """Check set by set."""
        for names in self.sets:
            columns = {name: intended.column(name) for name in names}
            doubled = _doubled(pa.table(columns), intended)
            if doubled.any():
                yield Breach(f"{', '.join(names)} not unique", doubled)


def _doubled(values: pa.Table, intended: IntendedRows) -> Mask:
    """Which rows have the values of another row, in the slice or in the mirror."""
    found = np.ones(len(values), np.bool_)
    for column in values.columns:
        found &= column.is_valid().to_numpy()
    rows = np.flatnonzero(found)
    if not len(rows):
        return found
    own = values.take(pa.array(rows))
    _, first, of, times = np.unique(
        number_values(own), return_index=True, return_inverse=True, return_counts=True
    )
    guilty = (times > 1) | intended.standing(own.take(pa.array(first)))
    found[rows] = guilty[of]
    return found


INVARIANT: type[Invariant] = Unique
