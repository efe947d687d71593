"""Silences and maintenance windows, those to come included."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, insert, select

from alerts.model import Silence
from monitor.store.codec import dumps, loads
from monitor.store.database import Database
from monitor.store.schema import silences
from monitor.store.thin import HISTORY, forget


@dataclass(eq=False)
class Silences:
    """Those that have not ended for long."""

    database: Database

    def add(self, silence: Silence) -> None:
        """Keep *silence*; one of the same id is replaced, which is how one is ended early."""
        with self.database.write() as connection:
            connection.execute(delete(silences).where(silences.c.id == silence.id))
            row = {"id": silence.id, "end": silence.end, "body": dumps(Silence, silence)}
            connection.execute(insert(silences).values(row))

    def list(self, now: datetime) -> tuple[Silence, ...]:
        """Those that have not ended at *now*, the soonest end first."""
        query = (
            select(silences.c.id, silences.c.body)
            .where(silences.c.end > now)
            .order_by(silences.c.end)
        )
        return tuple(self.database.decoded(query, silences, _silence))

    def prune(self, now: datetime) -> int:
        """Forget those that ended long ago; return how many went."""
        return forget(self.database, silences, silences.c.end < now - HISTORY)


def _silence(row: Row[Any]) -> Silence:
    return loads(Silence, row.body)
