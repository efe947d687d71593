"""One copy of the config, built: which tables are sent to it?"""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from pipeline.copies.copy import Copy


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """One copy of the config: which tables are sent to it."""

    name: str
    tables: tuple[str, ...]
    copy: Copy

    def serves(self, table: str) -> bool:
        """Whether *table* is copied there."""
        return any(fnmatchcase(table, pattern) for pattern in self.tables)
