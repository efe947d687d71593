"""Compares positions in a folder of files: a sweep, and the end offset of the ledger at that time.

Text of a position: `sweep 7 at offset 1234`. A collector that has completed a sweep has recorded
every file that was in the folder when the sweep began.
"""

import re
from dataclasses import dataclass

from pipeline.errors import ProofError
from pipeline.model import Head, Order, Position
from pipeline.sources.positions import PositionRules

KIND = "files"
_WORDS = re.compile(r"sweep (\d+) at offset (\d+)")


def sweep_position(sweep: int, end: int) -> Position:
    """The position that includes every file that existed when *sweep* began."""
    return Position(KIND, f"sweep {sweep} at offset {end}")


@dataclass(frozen=True, slots=True)
class FilePositions:
    """Sweeps decide whether a position was reached; offsets are the order of changes."""

    def locate(self, position: Position) -> tuple[int, int]:
        return 0, _read(position)[1]

    def has_reached(self, passed: Position, wanted: Position) -> bool:
        return _read(passed)[0] >= _read(wanted)[0]

    def explain_reset(self, known: Position, now: Position) -> str | None:
        (sweep, end), (known_sweep, known_end) = _read(now), _read(known)
        if sweep >= known_sweep and end >= known_end:
            return None
        return f"the ledger went back from {known} to {now}"

    def explain_missing_log(self, known: Head, now: Head, landed: Order | None) -> str | None:
        """Explain a ledger that went back, or was replaced by another one."""
        if known.identity == now.identity:
            return self.explain_reset(known.position, now.position)
        return f"ledger {now.identity} replaced ledger {known.identity}, which was lost"

    def explain_overrun(self, said: Position, end: Position) -> str | None:
        return None if self.has_reached(end, said) else f"{said} has not begun"

    def names_transactions(self, position: Position) -> bool:
        return False

    def may_contain(self, position: Position, transaction: str) -> bool:
        return True

    def compares_replicas(self, position: Position) -> bool:
        return False

    def explain_behind(self, source: Head, replica: Head) -> str | None:
        raise ProofError(f"{replica.identity} is no replica: a ledger has none")


def _read(position: Position) -> tuple[int, int]:
    found = _WORDS.fullmatch(position.words)
    if found is None:
        raise ValueError(f"{position!r} is no position in a ledger of files")
    return int(found[1]), int(found[2])


POSITIONS: PositionRules = FilePositions()
