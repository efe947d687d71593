"""What a check asked to be remembered between its rounds."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import delete, insert, select

from monitor.store.database import Database
from monitor.store.schema import memory


@dataclass(eq=False)
class CheckMemory:
    """One JSON object per table and check; the newest replaces the one before."""

    database: Database

    def recall(self, table: str, check: str) -> Mapping[str, Any] | None:
        """What was kept last; None at first."""
        same = (memory.c.table == table) & (memory.c.check == check)
        with self.database.read() as connection:
            kept: Mapping[str, Any] | None = connection.scalar(select(memory.c.kept).where(same))
        return kept

    def remember(self, table: str, check: str, kept: Mapping[str, Any], at: datetime) -> None:
        """Keep *kept* (JSON values only)."""
        same = (memory.c.table == table) & (memory.c.check == check)
        values = {"table": table, "check": check, "kept": dict(kept), "at": at}
        with self.database.write() as connection:
            connection.execute(delete(memory).where(same))
            connection.execute(insert(memory).values(values))
