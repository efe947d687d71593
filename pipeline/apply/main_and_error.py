"""Is each change that was read in the main table or in the error table?  Counted.  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MainAndError:
    """Where all that was read of a table is: in its mirror, or in the error table.

    ``main`` counts changes that the mirror has taken account of, ``error`` those that stay
    quarantined.
    """

    read: int
    main: int
    error: int

    @property
    def lost(self) -> int:
        """Those that are in neither; anything but 0 is wrong."""
        return self.read - self.main - self.error


def main_and_error(totals: Mapping[str, int]) -> MainAndError:
    """Add up accounts, of which *totals* are the terms (``ignored:`` and its rule, of those).

    What was corrected has been read twice, and is in the error table no more.
    """
    corrected = totals.get("corrected", 0)
    explained = ("applied", "noop", "superseded", "redelivered")
    ignored = sum(count for term, count in totals.items() if term.startswith("ignored:"))
    return MainAndError(
        read=totals.get("read", 0) - corrected,
        main=sum(totals.get(term, 0) for term in explained) + ignored,
        error=totals.get("quarantined", 0) - corrected,
    )
