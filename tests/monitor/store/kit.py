"""A store in a temporary folder and small values to put into it."""

import sqlite3
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, event
from sqlalchemy.exc import OperationalError

from monitor.store.database import Database
from monitor.store.store import ServiceStore
from pipeline.model import Fence

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


def first(store: ServiceStore, instant: datetime) -> Fence | None:
    """The earliest fence kept that is not before *instant*."""
    return next(iter(store.fences.since("shop", instant, limit=1)), None)


def newest(store: ServiceStore, source: str = "shop") -> Fence | None:
    """The last fence kept."""
    return next(reversed(store.fences.since(source, datetime(1970, 1, 1, tzinfo=UTC))), None)


class Full:
    """A limit on the pages of a store, as that of a disk: real SQLite refuses what is above."""

    def __init__(self, database: Database) -> None:
        self.pages = 0
        event.listen(database.engine, "begin", self._limit)
        with database.read() as connection:
            self.pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()

    def free(self) -> None:
        """Make room."""
        self.pages = 2**30

    def _limit(self, connection: Connection) -> None:
        if self.pages:
            connection.exec_driver_sql(f"PRAGMA max_page_count={self.pages}")


class ReadOnly:
    """A store that can be read, and fails at each write until it is freed."""

    def __init__(self, database: Database) -> None:
        self.refuses = True
        event.listen(database.engine, "begin", self._refuse)

    def free(self) -> None:
        """Let it be written."""
        self.refuses = False

    def _refuse(self, connection: Connection) -> None:
        if self.refuses and connection.get_execution_options()["writes"]:
            error = sqlite3.OperationalError("attempt to write a readonly database")
            raise OperationalError("BEGIN IMMEDIATE", None, error)
