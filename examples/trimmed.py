"""An invariant: no text in these columns begins or ends with a blank.  Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow.compute as pc

from pipeline.invariants.invariant import Breach, IntendedRows, Invariant


@dataclass(frozen=True, slots=True)
class Trimmed:
    """``columns`` are of text; the fields are the settings in `sluice.yaml`."""

    columns: tuple[str, ...]

    def breaches(self, intended: IntendedRows) -> Iterator[Breach]:
        """Column by column; reports on rows contain none of their values."""
        for name in self.columns:
            text = intended.column(name)
            odd = pc.fill_null(pc.not_equal(text, pc.utf8_trim_whitespace(text)), False)
            if pc.any(odd).as_py():
                yield Breach(f"{name} has blanks around it", odd.to_numpy(zero_copy_only=False))


INVARIANT: type[Invariant] = Trimmed
