"""A place in a ledger of files: a sweep, and the offset at which the ledger ended then.  Pure.

Whoever has passed a sweep has all that lay in the folder, whole, when it began.
"""

import re
from dataclasses import dataclass

from pipeline.model import Head, Order, Position

KIND = "files"
_WORDS = re.compile(r"sweep (\d+) at offset (\d+)")


def sweep_position(sweep: int, end: int) -> Position:
    """All that was there when *sweep* began."""
    return Position(KIND, f"sweep {sweep} at offset {end}")


@dataclass(frozen=True, slots=True)
class SweepNumbers:
    """Each method as :class:`pipeline.sources.positions.PositionRules` says."""

    def place(self, position: Position) -> tuple[int, int]:
        """Offsets are the order."""
        return 0, _read(position)[1]

    def reaches(self, passed: Position, wanted: Position) -> bool:
        """By the sweep alone."""
        return _read(passed)[0] >= _read(wanted)[0]

    def reset(self, known: Position, now: Position) -> str | None:
        """Both only rise."""
        (sweep, end), (known_sweep, known_end) = _read(now), _read(known)
        if sweep >= known_sweep and end >= known_end:
            return None
        return f"the ledger stood at {known}, and stands at {now}"

    def lacks(self, known: Head, now: Head, landed: Order | None) -> str | None:
        """Another ledger knows nothing of what this one has told."""
        if known.identity == now.identity:
            return self.reset(known.position, now.position)
        return f"the ledger {known.identity} was lost, and {now.identity} took its place"

    def beyond(self, said: Position, end: Position) -> str | None:
        """A sweep that was not begun."""
        return None if self.reaches(end, said) else f"there was no {said} yet"

    def proper(self, position: Position) -> bool:
        """It names no transaction."""
        return False

    def may_hold(self, position: Position, transaction: str) -> bool:
        """There are none."""
        return True


def _read(position: Position) -> tuple[int, int]:
    found = _WORDS.fullmatch(position.words)
    if found is None:
        raise ValueError(f"{position!r} is no place in a ledger of files")
    return int(found[1]), int(found[2])
