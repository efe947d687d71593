"""An invariant: no two rows of the mirror hold the same values in these columns.

Beyond the key, which is always unique; where keys are not unique across shards, these columns must
be.  A row with a NULL among them is like no other.  Texts are compared byte by byte.  Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipeline.errors import ConfigError
from pipeline.invariants.invariant import Breach, IntendedRows, Invariant, Mask, number_values


@dataclass(frozen=True, slots=True)
class Unique:
    """``sets`` are lists of columns: among the rows of the slice, and against the mirror's."""

    sets: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        """Refuse a set without columns."""
        if not all(self.sets):
            raise ConfigError("a set without columns; write lists of columns: [[email], [a, b]]")

    def breaches(self, intended: IntendedRows) -> Iterator[Breach]:
        """Set by set."""
        for names in self.sets:
            columns = {name: intended.column(name) for name in names}
            doubled = _doubled(pa.table(columns), intended)
            if doubled.any():
                yield Breach(f"{', '.join(names)} not unique", doubled)


def _doubled(values: pa.Table, intended: IntendedRows) -> Mask:
    """Rows with the values of another row, of the slice or of the mirror."""
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
