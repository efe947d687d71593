"""What a person has closed by name: gaps, holds, quarantined changes."""

from dataclasses import dataclass
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
    """Waivers of every lane; one is never taken back."""

    database: Database

    def add(self, waiver: Waiver) -> bool:
        """Record *waiver*; False if it was waived before: the first one stands."""
        known = select(waivers.c.id).where(waivers.c.id == waiver.id)
        with self.database.write() as connection:
            if connection.scalar(known) is not None:
                return False
            row = {"id": waiver.id, "reason": waiver.reason, "who": waiver.who, "at": waiver.at}
            connection.execute(insert(waivers).values(row))
        return True

    def waived(self) -> frozenset[str]:
        """Every id that was ever waived."""
        with self.database.read() as connection:
            return frozenset(connection.scalars(select(waivers.c.id)))

    def list(self) -> tuple[Waiver, ...]:
        """All of them, newest first."""
        with self.database.read() as connection:
            rows = connection.execute(select(waivers).order_by(waivers.c.at.desc())).all()
        return tuple(Waiver(row.id, row.reason, row.who, row.at) for row in rows)
