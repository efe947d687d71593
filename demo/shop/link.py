"""Keeps a shop on MySQL."""

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, cast

import pymysql
from pymysql.constants import CLIENT, CR, ER
from pymysql.err import InterfaceError, OperationalError

from demo.shop import values
from demo.shop.schema import DATABASES, SHELVES, Shelf
from demo.shop.server import Cursor, Link, chosen, into
from demo.shop.values import Row

LOST = {
    CR.CR_CONN_HOST_ERROR,
    CR.CR_SERVER_GONE_ERROR,
    CR.CR_SERVER_LOST,
    ER.SERVER_SHUTDOWN,
    ER.NORMAL_SHUTDOWN,
    ER.CON_COUNT_ERROR,
}
CLASHES = {ER.LOCK_DEADLOCK, ER.LOCK_WAIT_TIMEOUT}


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a MySQL server, and the login."""

    host: str
    port: int
    user: str = "root"
    password: str = ""
    errors: ClassVar[tuple[type[Exception], ...]] = (OperationalError, InterfaceError)

    def connect(self) -> Link:
        """Open a connection whose session is in UTC and whose row counts are of matched rows."""
        made = pymysql.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            charset="utf8mb4",
            client_flag=CLIENT.FOUND_ROWS,
            init_command="SET time_zone = '+00:00'",
            connect_timeout=5,
            read_timeout=60,
        )
        return cast("Link", made)

    def hang_up(self, link: Link) -> None:
        """Close *link*, even if it is broken."""
        with suppress(pymysql.err.Error):
            cast("pymysql.Connection[pymysql.cursors.Cursor]", link).close()

    def is_clash(self, error: Exception) -> bool:
        """Tell whether another transaction was in conflict."""
        return error.args[0] in CLASHES

    def is_loss(self, error: Exception) -> bool:
        """Tell whether the server is gone or shutting down."""
        return isinstance(error, InterfaceError) or error.args[0] in LOST

    def creation(self) -> Sequence[str]:
        """Return statements that create an empty shop, and drop an existing one."""
        databases = (
            statement
            for name in DATABASES
            for statement in (f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name}")
        )
        return (*databases, *(shelf.ddl for shelf in SHELVES))

    def row(self, mirror: str, rng: random.Random, number: int) -> Row:
        """Return new values for every column of *mirror* but its key."""
        return values.MAKERS[mirror](rng, number)

    def insert(self, cursor: Cursor, shelf: Shelf, rows: Sequence[Row]) -> Sequence[int]:
        """Insert *rows* by one statement; return the ids that it chooses, which are consecutive."""
        cursor.execute(*into("INSERT INTO", shelf, rows))
        return range(first := _last(cursor), first + len(rows)) if chosen(shelf, rows[0]) else ()

    def replace(self, cursor: Cursor, shelf: Shelf, row: Row) -> Sequence[int]:
        """REPLACE a row; return the id that it chooses."""
        cursor.execute(*into("REPLACE INTO", shelf, [row]))
        return (_last(cursor),) if chosen(shelf, row) else ()

    def upsert(self, cursor: Cursor, shelf: Shelf, row: Row) -> Sequence[int]:
        """INSERT ... ON DUPLICATE KEY UPDATE."""
        statement, bound = into("INSERT INTO", shelf, [row])
        again = ", ".join(f"{name} = VALUES({name})" for name in row)
        cursor.execute(f"{statement} ON DUPLICATE KEY UPDATE {again}", bound)
        return (_last(cursor),) if chosen(shelf, row) else ()


def _last(cursor: Cursor) -> int:
    """Return the first id that the last statement chose."""
    return int(cast("pymysql.cursors.Cursor", cursor).lastrowid or 0)
