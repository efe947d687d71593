"""Which trouble is nobody to be told about, and until when?  Pure."""

from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase

from alerts.model import Member


@dataclass(frozen=True, slots=True)
class Silence:
    """Nobody is told about what matches, from ``start`` until (excluded) ``end``.

    A maintenance window is a silence with its start in the future.  Patterns are globs.
    """

    id: str
    start: datetime
    end: datetime
    who: str
    reason: str
    tables: str = "*"
    checks: str = "*"

    def covers(self, member: Member, now: datetime) -> bool:
        """Whether *member* is silenced at *now*."""
        if not self.start <= now < self.end:
            return False
        return fnmatchcase(member.table, self.tables) and fnmatchcase(member.check, self.checks)
