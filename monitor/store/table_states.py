"""Which states was each table in, since when and why?"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, func, insert, select

from checks.table_state import StateSince, TableState
from monitor.store.database import Database
from monitor.store.schema import table_states

KEPT = 100  # transitions of a table: one that is held every minute fills no disk


@dataclass(eq=False)
class TableStates:
    """The newest transitions of each table; what has never been in another state stays for ever."""

    database: Database

    def add(self, entered: Iterable[StateSince]) -> None:
        """Record transitions, all or nothing; the oldest of a table go when they are too many."""
        with self.database.write() as connection:
            for one in entered:
                own = table_states.c.table == one.table
                connection.execute(delete(table_states).where(own, _from(one.since)))
                row = {"table": one.table, "since": one.since, "state": one.state, "why": one.why}
                connection.execute(insert(table_states).values(row))
                times = select(table_states.c.since).where(own)
                oldest = times.order_by(table_states.c.since.desc()).offset(KEPT - 1).limit(1)
                if (first := connection.scalar(oldest)) is not None:
                    old = table_states.c.since < first
                    connection.execute(delete(table_states).where(own, old))

    def newest(self) -> Mapping[str, StateSince]:
        """The last transition of each table."""
        last = (
            select(table_states.c.table, func.max(table_states.c.since).label("since"))
            .group_by(table_states.c.table)
            .subquery()
        )
        same = (table_states.c.table == last.c.table) & (table_states.c.since == last.c.since)
        with self.database.read() as connection:
            rows = connection.execute(select(table_states).join(last, same)).all()
        return {row.table: _read(row) for row in rows}

    def list(self, table: str) -> tuple[StateSince, ...]:
        """All that are kept of *table*, newest first."""
        own = select(table_states).where(table_states.c.table == table)
        with self.database.read() as connection:
            rows = connection.execute(own.order_by(table_states.c.since.desc())).all()
        return tuple(map(_read, rows))


def _from(since: datetime) -> Any:
    """Those of that instant or later: a clock that went back tells the rest anew."""
    return table_states.c.since >= since


def _read(row: Row[Any]) -> StateSince:
    return StateSince(row.table, TableState(row.state), row.since, row.why)
