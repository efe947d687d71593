"""The account of each batch and table, and its terms added up since the store was made."""

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, Select, exists, func, insert, select, update

from monitor.store.database import Database, stored_text
from monitor.store.schema import account_totals, accounts
from monitor.store.thin import HISTORY, forget
from pipeline.model import Account

BALANCED = timedelta(hours=6)  # for so long a turn may be told once more


@dataclass(eq=False)
class Accounts:
    """Accounts of some hours, of forty days those that do not balance; totals for ever.

    Only this object adds any, so the newest residuals are read back once.
    """

    database: Database
    _residuals: dict[str, int] | None = None
    _turn: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, lane: str, table: str, batch: int, account: Account, at: datetime) -> bool:
        """Record what one turn counted; False if that turn was recorded before."""
        same = (accounts.c.lane == lane) & (accounts.c.table == table) & (accounts.c.batch == batch)
        row = {"lane": lane, "table": table, "batch": batch, "at": at}
        with self.database.write() as connection:
            if connection.scalar(select(accounts.c.batch).where(same)) is not None:
                return False
            values = {**row, "terms": _plain(account), "residual": account.residual}
            connection.execute(insert(accounts).values(values))
            for term, count in terms(account).items():
                _count(connection, table, term, count)
        with self._turn:  # never around a write: who writes may be asking for residuals
            if self._residuals is not None:
                self._residuals = {**self._residuals, table: account.residual}
        return True

    def totals(self) -> Mapping[tuple[str, str], int]:
        """(Table, term) -> changes; an ignored change counts under ``ignored:RULE``."""
        return {(table, term): count for table, term, count in self._totals(select(account_totals))}

    def ignored(self, rule: str) -> Mapping[str, int]:
        """Table -> changes that were ever ignored by *rule*, of those that have any."""
        own = select(account_totals).where(account_totals.c.term == f"ignored:{rule}")
        found = self._totals(own.where(account_totals.c.changes > 0))
        return {table: count for table, _, count in found}

    def residuals(self) -> Mapping[str, int]:
        """Table -> residual of its newest account; anything but 0 is wrong.

        One that cannot be read is 1, until a later turn of its table is told.
        """
        with self._turn:
            if self._residuals is None:
                self._residuals = self._newest_residuals()
            return self._residuals

    def prune(self, now: datetime) -> int:
        """Forget what is old, and before that what balanced and is not the newest of its table."""
        count = forget(self.database, accounts, accounts.c.at < now - HISTORY)
        if count:
            with self._turn:
                self._residuals = None
        newer = accounts.alias("newer")
        later = exists().where(
            newer.c.lane == accounts.c.lane,
            newer.c.table == accounts.c.table,
            newer.c.batch > accounts.c.batch,
            newer.c.at > accounts.c.at,
        )
        balanced = accounts.c.residual == 0
        return count + forget(
            self.database, accounts, accounts.c.at < now - BALANCED, balanced, later
        )

    def together(self) -> AbstractContextManager[Connection]:
        """One transaction for the accounts of many turns."""
        return self.database.write()

    def _newest_residuals(self) -> dict[str, int]:
        dated = func.typeof(accounts.c.at) == "integer"
        mine = select(accounts.c.table, func.max(accounts.c.at).label("at")).where(dated)
        newest = mine.group_by(accounts.c.table).subquery()
        last = (accounts.c.table == newest.c.table) & (accounts.c.at == newest.c.at)
        later = accounts.alias("later")
        over = exists().where(
            later.c.table == accounts.c.table,
            later.c.lane == accounts.c.lane,
            later.c.batch > accounts.c.batch,
            func.typeof(later.c.at) == "integer",
        )
        query = select(accounts.c.table, accounts.c.residual, accounts.c.at).where(
            exists().where(last) | (~dated & ~over)
        )
        found = self.database.decoded(query.order_by(~dated), accounts, _residual, _unread)
        return dict(found)

    def _totals(self, query: Select[Any]) -> list[tuple[str, str, int]]:
        return self.database.decoded(query, account_totals, _total)


def _residual(row: Row[Any]) -> tuple[str, int]:
    return row.table, _whole(row.residual)


def _unread(stored: Mapping[str, bytes | None]) -> tuple[str, int]:
    return stored_text(stored["table"]), 1


def _total(row: Row[Any]) -> tuple[str, str, int]:
    return row.table, row.term, _whole(row.changes)


def _whole(stored: object) -> int:
    """SQLite keeps any value in any column."""
    if not isinstance(stored, int):
        raise TypeError(f"{type(stored).__name__} for a number")
    return stored


def terms(account: Account) -> Mapping[str, int]:
    """The account's terms that are not 0, by name."""
    own = {name: n for name, n in asdict(account).items() if name != "ignored"}
    ignored = {f"ignored:{rule}": count for rule, count in (account.ignored or {}).items()}
    return {name: count for name, count in {**own, **ignored}.items() if count}


def _plain(account: Account) -> dict[str, object]:
    return {**asdict(account), "ignored": dict(account.ignored or {})}


def _count(connection: Connection, table: str, term: str, by: int) -> None:
    same = (account_totals.c.table == table) & (account_totals.c.term == term)
    change = update(account_totals).where(same)
    sum_of = account_totals.c.changes + by
    if connection.execute(change.values(changes=sum_of)).rowcount == 0:
        connection.execute(insert(account_totals).values(table=table, term=term, changes=by))
