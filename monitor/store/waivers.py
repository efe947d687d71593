"""What a person has closed by name: gaps, holds, quarantined changes."""

import threading
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import insert, select

from monitor.store.database import Database
from monitor.store.schema import waivers


@dataclass(frozen=True, slots=True)
class Waiver:
    """Who closed *id*, when, and why; kept for ever."""

    id: str
    reason: str
    who: str
    at: datetime


@dataclass(eq=False)
class Waivers:
    """Waivers of every lane; one is never taken back.

    Only this object adds any, so their ids are read back once.
    """

    database: Database
    _waived: frozenset[str] | None = None
    _turn: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, waiver: Waiver) -> bool:
        """Record *waiver*; False if it was waived before: the first one stands."""
        known = select(waivers.c.id).where(waivers.c.id == waiver.id)
        with self.database.write() as connection:
            if connection.scalar(known) is not None:
                return False
            row = {"id": waiver.id, "reason": waiver.reason, "who": waiver.who, "at": waiver.at}
            connection.execute(insert(waivers).values(row))
        with self._turn:
            self._waived = None
        return True

    def waived(self) -> frozenset[str]:
        """Every id that was ever waived."""
        with self._turn:
            if self._waived is None:
                with self.database.read() as connection:
                    self._waived = frozenset(connection.scalars(select(waivers.c.id)))
            return self._waived

    def list(self) -> tuple[Waiver, ...]:
        """All of them, newest first."""
        with self.database.read() as connection:
            rows = connection.execute(select(waivers).order_by(waivers.c.at.desc())).all()
        return tuple(Waiver(row.id, row.reason, row.who, row.at) for row in rows)
