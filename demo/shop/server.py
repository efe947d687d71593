"""What a database server must offer, so that a shop can be kept on it and its ledger is true."""

import random
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol

from demo.shop.ledger import Entry
from demo.shop.schema import SHELVES, Shelf
from demo.shop.values import Row


class Cursor(Protocol):
    """What runs statements and gives their rows, as PEP 249 has it."""

    @property
    def rowcount(self) -> int:
        """How many rows the last statement met."""
        ...

    def execute(self, statement: str, bound: Sequence[object] = ..., /) -> object:
        """Run one statement."""
        ...

    def fetchone(self) -> Sequence[Any] | None:
        """The next row."""
        ...

    def fetchall(self) -> Sequence[Sequence[Any]]:
        """All rows that are left."""
        ...


class Link(Protocol):
    """A connection; a transaction begins with its first statement."""

    def cursor(self) -> AbstractContextManager[Cursor]:
        """A way to run statements."""
        ...

    def commit(self) -> object:
        """End the transaction."""
        ...

    def rollback(self) -> object:
        """Take it back."""
        ...


class ShopServer(Protocol):
    """One server; ``errors`` are what a link raises that clashes with others or is lost."""

    errors: ClassVar[tuple[type[Exception], ...]]

    def connect(self) -> Link:
        """Open a connection whose session is in UTC."""
        ...

    def hang_up(self, link: Link) -> None:
        """Close *link*, however broken it is."""
        ...

    def is_clash(self, error: Exception) -> bool:
        """Whether another transaction was in the way."""
        ...

    def is_loss(self, error: Exception) -> bool:
        """Whether the server is gone or going."""
        ...

    def creation(self) -> Sequence[str]:
        """Statements that create an empty shop, and drop an existing one."""
        ...

    def row(self, mirror: str, rng: random.Random, number: int) -> Row:
        """New values for every column of *mirror*'s but its key's."""
        ...

    def insert(self, cursor: Cursor, shelf: Shelf, rows: Sequence[Row]) -> Sequence[int]:
        """Insert *rows*, which share their columns, by one statement; ids that the server chose."""
        ...

    def replace(self, cursor: Cursor, shelf: Shelf, row: Row) -> Sequence[int]:
        """Insert *row*; rows with its key, or another unique value of it, give way."""
        ...

    def upsert(self, cursor: Cursor, shelf: Shelf, row: Row) -> Sequence[int]:
        """Insert *row*, or set all of it in the row that it meets."""
        ...


def into(verb: str, shelf: Shelf, rows: Sequence[Row]) -> tuple[str, list[object]]:
    """The inserting statement, and what to bind to it."""
    group = "(" + ", ".join(["%s"] * len(rows[0])) + ")"
    groups = ", ".join([group] * len(rows))
    statement = f"{verb} {shelf.name} ({', '.join(rows[0])}) VALUES {groups}"
    return statement, [value for row in rows for value in row.values()]


def chosen(shelf: Shelf, row: Mapping[str, object]) -> bool:
    """Whether the server chooses the key of *row*."""
    return shelf.numbered and "id" not in row


def stands(link: Link, entry: Entry) -> bool:
    """Tell whether *entry* was committed; FOR UPDATE waits for one that is still on its way."""
    keys = {shelf.name: shelf.key for shelf in SHELVES}
    with link.cursor() as cursor:
        for row in entry.rows:
            where = " AND ".join(f"{name} = %s" for name in keys[row.shard])
            cursor.execute(f"SELECT touched FROM {row.shard} WHERE {where} FOR UPDATE", row.key)
            found = cursor.fetchone()
            if (found[0] if found else None) != row.touched:
                link.rollback()
                return False
    link.rollback()
    return True
