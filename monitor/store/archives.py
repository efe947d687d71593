"""In which windows did people say that rows go to an archive, and which did they take back?"""

import threading
import uuid
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Insert, Row, insert, select

from monitor.store.database import Database
from monitor.store.schema import archive_windows, archive_withdrawals
from pipeline.archive import ArchiveWindow, RegisteredWindow
from pipeline.errors import ConfigError, UnknownNameError


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """Who took a window back, when and why."""

    who: str
    at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class ArchiveRecord:
    """A window as it was registered ``at`` a time; ``withdrawn`` if it counts no more."""

    id: str
    registered: RegisteredWindow
    at: datetime
    withdrawn: Withdrawal | None = None


@dataclass(eq=False)
class Archives:
    """Kept for ever.  Only this object adds any, so they are read back once."""

    database: Database
    _known: tuple[ArchiveRecord, ...] | None = None
    _turn: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _writing: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, one: RegisteredWindow, at: datetime) -> tuple[ArchiveRecord, bool]:
        """Record it; False, and what stands, if the same was registered before."""
        with self._writing:  # two who ask at one moment are told one after the other
            return self._added(one, at)

    def _added(self, one: RegisteredWindow, at: datetime) -> tuple[ArchiveRecord, bool]:
        for there in self.list():
            if there.registered == one and there.withdrawn is None:
                return there, False
        made = ArchiveRecord(uuid.uuid4().hex[:12], one, at)
        window = one.window
        row = {"table": one.table, "since": window.since, "until": window.until, "at": at}
        row |= {"column": window.column, "before": window.before}
        row |= {"reason": window.reason, "who": window.who, "id": made.id}
        self._write(insert(archive_windows).values(**row))
        return made, True

    def withdraw(self, number: str, word: Withdrawal) -> ArchiveRecord:
        """Let the window *number* count no more; what it has kept stays.

        Raises:
            ConfigError: there is none, or it was withdrawn before.
        """
        with self._writing:
            return self._withdrawn(number, word)

    def _withdrawn(self, number: str, word: Withdrawal) -> ArchiveRecord:
        for one in self.list():
            if one.id == number and one.withdrawn is None:
                row = {"id": number, "who": word.who, "at": word.at, "reason": word.reason}
                self._write(insert(archive_withdrawals).values(**row))
                return replace(one, withdrawn=word)
        known = ", ".join(one.id for one in self.list() if one.withdrawn is None) or "none"
        kind = ConfigError if any(one.id == number for one in self.list()) else UnknownNameError
        raise kind(f"no window {number!r} counts; nothing was recorded; known: {known}")

    def registered(self) -> tuple[RegisteredWindow, ...]:
        """All that count, newest first."""
        return tuple(one.registered for one in self.list() if one.withdrawn is None)

    def _write(self, statement: Insert) -> None:
        with self.database.write() as connection:
            connection.execute(statement)
        with self._turn:
            self._known = None

    def list(self) -> tuple[ArchiveRecord, ...]:
        """All that ever were, newest first."""
        with self._turn:
            if self._known is None:
                its = archive_withdrawals.c
                more = (its.who.label("taken_by"), its.at.label("taken"), its.reason.label("why"))
                both = archive_windows.outerjoin(archive_withdrawals)
                query = select(archive_windows, *more).select_from(both)
                query = query.order_by(archive_windows.c.at.desc())
                with self.database.read() as connection:
                    self._known = tuple(map(_record, connection.execute(query).all()))
            return self._known


def _record(row: Row[Any]) -> ArchiveRecord:
    window = ArchiveWindow(row.since, row.until, row.column, row.before, row.reason, row.who)
    taken = None if row.taken is None else Withdrawal(row.taken_by, row.taken, row.why)
    return ArchiveRecord(row.id, RegisteredWindow(row.table, window), row.at, taken)
