"""Which tables' merges did people pause, why and until when?"""

import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, insert, select, update

from checks.blocks import Pause
from monitor.store.database import Database, stored_text
from monitor.store.schema import pauses

_ALWAYS = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PauseRecord:
    """A pause as it was asked for ``at`` a time, when it ``ended`` and by whom: "" for its time."""

    pause: Pause
    at: datetime
    ended: datetime | None = None
    ended_by: str = ""


@dataclass(eq=False)
class Pauses:
    """Kept for ever.  Only this object writes them, so those that go on are read back once."""

    database: Database
    _open: tuple[Pause, ...] | None = None
    _turn: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def begin(self, asked: Pause) -> Pause:
        """Pause a table; one that is paused gets the new reason and end, and keeps its beginning.

        So no cut after the first moment of it can be called ready.
        """
        with self.database.write() as connection:
            known = self.standing(asked.since).get(asked.table)
            since = known.since if known is not None else asked.since
            made = Pause(asked.table, asked.reason, asked.who, since, asked.until)
            self._end(asked.table, asked.who if known is not None else "", asked.since)
            row = {"id": uuid.uuid4().hex[:12], "table": made.table, "reason": made.reason}
            row |= {"who": made.who}
            times = {"since": since, "at": asked.since, "until": made.until}
            connection.execute(insert(pauses).values(**row, **times, ended_by=""))
        self._forget()
        return made

    def resume(self, table: str, who: str, at: datetime) -> bool:
        """End it; false if it is not paused."""
        if table not in self.standing(at):
            return False
        self._end(table, who, at)
        self._forget()
        return True

    def standing(self, at: datetime) -> Mapping[str, Pause]:
        """Those that go on, by table; one whose time has come goes on no more.

        One that cannot be read goes on, as if it had always been there, until it is resumed.
        """
        with self._turn:
            if self._open is None:
                query = select(pauses).where(pauses.c.ended.is_(None))
                found = self.database.decoded(query, pauses, _pause, _salvaged)
                self._open = tuple(found)
            known = self._open
        return {one.table: one for one in known if one.until is None or at < one.until}

    def list(self, at: datetime, *, limit: int = 100) -> tuple[PauseRecord, ...]:
        """Newest first; one whose time has come by *at* has ended then."""
        query = select(pauses).order_by(pauses.c.at.desc()).limit(limit)
        return tuple(self.database.decoded(query, pauses, lambda row: _record(row, at)))

    def _end(self, table: str, who: str, at: datetime) -> None:
        going = (pauses.c.table == table) & pauses.c.ended.is_(None)
        with self.database.write() as connection:
            over = going & pauses.c.until.is_not(None) & (pauses.c.until <= at)
            connection.execute(update(pauses).where(over).values(ended=pauses.c.until))
            connection.execute(update(pauses).where(going).values(ended=at, ended_by=who))

    def _forget(self) -> None:
        with self._turn:
            self._open = None


def _pause(row: Row[Any]) -> Pause:
    return Pause(row.table, row.reason, row.who, row.since, row.until)


def _salvaged(stored: Mapping[str, bytes | None]) -> Pause:
    reason = f"pause {stored_text(stored['id'])} in the store cannot be read"
    return Pause(stored_text(stored["table"]), reason, "an unknown person", _ALWAYS)


def _record(row: Row[Any], at: datetime) -> PauseRecord:
    over = row.ended is None and row.until is not None and row.until <= at
    return PauseRecord(_pause(row), row.at, row.until if over else row.ended, row.ended_by)
