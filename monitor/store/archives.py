"""In which windows did people say that rows go to an archive?"""

import threading
import uuid
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Row, insert, select

from monitor.store.database import Database
from monitor.store.schema import archive_windows
from pipeline.archive import ArchiveWindow, RegisteredWindow


@dataclass(frozen=True, slots=True)
class ArchiveRecord:
    """A window as it was registered ``at`` a time."""

    registered: RegisteredWindow
    at: datetime


@dataclass(eq=False)
class Archives:
    """Kept for ever.  Only this object adds any, so they are read back once."""

    database: Database
    _known: tuple[ArchiveRecord, ...] | None = None
    _turn: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, one: RegisteredWindow, at: datetime) -> bool:
        """Record it; False if the same was registered before: that stands."""
        if one in self.registered():
            return False
        window = one.window
        row = {"table": one.table, "since": window.since, "until": window.until, "at": at}
        row |= {"column": window.column, "before": window.before}
        row |= {"reason": window.reason, "who": window.who, "id": uuid.uuid4().hex[:12]}
        with self.database.write() as connection:
            connection.execute(insert(archive_windows).values(**row))
        with self._turn:
            self._known = None
        return True

    def registered(self) -> tuple[RegisteredWindow, ...]:
        """All of them, newest first."""
        return tuple(one.registered for one in self.list())

    def list(self) -> tuple[ArchiveRecord, ...]:
        """The same, with when each was registered."""
        with self._turn:
            if self._known is None:
                query = select(archive_windows).order_by(archive_windows.c.at.desc())
                with self.database.read() as connection:
                    self._known = tuple(map(_record, connection.execute(query).all()))
            return self._known


def _record(row: Row[Any]) -> ArchiveRecord:
    window = ArchiveWindow(row.since, row.until, row.column, row.before, row.reason, row.who)
    return ArchiveRecord(RegisteredWindow(row.table, window), row.at)
