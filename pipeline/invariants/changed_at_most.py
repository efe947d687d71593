"""An invariant: one slice replaces or deletes at most a given share of the mirror's rows.

New rows do not count: a growing table loses nothing.  A TRUNCATE breaks any share, unless the
mirror is empty.  Rows that a new base leaves out are not counted.  Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.errors import ConfigError
from pipeline.invariants.invariant import Breach, IntendedRows, Invariant


@dataclass(frozen=True, slots=True)
class ChangedAtMost:
    """``share`` (0 to below 1) of the rows before the slice; checked from ``rows`` changes on.

    A TRUNCATE is always checked.
    """

    share: float
    rows: int = 100

    def __post_init__(self) -> None:
        """Reject a ``share`` outside 0 to below 1."""
        if not 0 <= self.share < 1:
            raise ConfigError(
                f"share: {self.share} must be from 0 to below 1; write 0.2 for a fifth"
            )

    def breaches(self, intended: IntendedRows) -> Iterator[Breach]:
        """Yield at most one breach, by the slice as a whole."""
        if intended.emptied and intended.there:
            yield Breach(f"a TRUNCATE takes the rows of a shard, {intended.there} are there in all")
        elif intended.changed >= self.rows and intended.changed > self.share * intended.there:
            share = f"{intended.changed} of {intended.there} rows change or are deleted"
            yield Breach(f"{share}, more than {self.share:g} of them")


INVARIANT: type[Invariant] = ChangedAtMost
