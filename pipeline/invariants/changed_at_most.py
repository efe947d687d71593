"""An invariant: one slice replaces or takes only so large a share of the mirror's rows.

New rows are no matter: a table that grows loses nothing.  A TRUNCATE takes all there are, so it
breaks any share below 1.  Rows that a new base leaves out are not counted.  Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.errors import ConfigError
from pipeline.invariants.invariant import Breach, IntendedRows, Invariant


@dataclass(frozen=True, slots=True)
class ChangedAtMost:
    """``share``, from 0 to 1, of the rows before the slice; asked from ``rows`` changed rows on."""

    share: float
    rows: int = 100

    def __post_init__(self) -> None:
        """Refuse what is no share."""
        if not 0 <= self.share < 1:
            raise ConfigError(
                f"share: {self.share} must be from 0 to below 1; write 0.2 for a fifth"
            )

    def breaches(self, intended: IntendedRows) -> Iterator[Breach]:
        """At most one breach, by the slice as a whole."""
        if intended.emptied and intended.there:
            yield Breach(f"a TRUNCATE takes the rows of a shard, {intended.there} are there in all")
        elif intended.changed >= self.rows and intended.changed > self.share * intended.there:
            share = f"{intended.changed} of {intended.there} rows change or are deleted"
            yield Breach(f"{share}, more than {self.share:g} of them")


INVARIANT: type[Invariant] = ChangedAtMost
