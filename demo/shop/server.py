"""Defines what a database server must offer to keep a shop and a correct ledger."""

import random
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol

from demo.shop.ledger import Entry
from demo.shop.schema import SHELVES, Shelf
from demo.shop.values import Row


class Cursor(Protocol):
    """Runs statements and returns their rows, as in PEP 249."""

    @property
    def rowcount(self) -> int:
        """Return how many rows the last statement matched."""
        ...

    def execute(self, statement: str, bound: Sequence[object] = ..., /) -> object:
        """Run one statement."""
        ...

    def fetchone(self) -> Sequence[Any] | None:
        """Return the next row."""
        ...

    def fetchall(self) -> Sequence[Sequence[Any]]:
        """Return all remaining rows."""
        ...


class Link(Protocol):
    """A connection; a transaction begins with its first statement."""

    def cursor(self) -> AbstractContextManager[Cursor]:
        """Return a cursor."""
        ...

    def commit(self) -> object:
        """End the transaction."""
        ...

    def rollback(self) -> object:
        """Roll the transaction back."""
        ...


class ShopServer(Protocol):
    """One server; ``errors`` are the exceptions of a conflict or a lost connection."""

    errors: ClassVar[tuple[type[Exception], ...]]

    def connect(self) -> Link:
        """Open a connection whose session is in UTC."""
        ...

    def hang_up(self, link: Link) -> None:
        """Close *link*, even if it is broken."""
        ...

    def is_clash(self, error: Exception) -> bool:
        """Tell whether another transaction was in conflict."""
        ...

    def is_loss(self, error: Exception) -> bool:
        """Tell whether the server is gone or shutting down."""
        ...

    def creation(self) -> Sequence[str]:
        """Return statements that create an empty shop, and drop an existing one."""
        ...

    def row(self, mirror: str, rng: random.Random, number: int) -> Row:
        """Return new values for every column of *mirror* but its key."""
        ...

    def insert(self, cursor: Cursor, shelf: Shelf, rows: Sequence[Row]) -> Sequence[int]:
        """Insert *rows*, which share their columns, by one statement; return generated ids."""
        ...

    def replace(self, cursor: Cursor, shelf: Shelf, row: Row) -> Sequence[int]:
        """Insert *row*; replace rows with its key, or with another of its unique values."""
        ...

    def upsert(self, cursor: Cursor, shelf: Shelf, row: Row) -> Sequence[int]:
        """Insert *row*, or set all its values in the row with which it conflicts."""
        ...


def into(verb: str, shelf: Shelf, rows: Sequence[Row]) -> tuple[str, list[object]]:
    """Return the inserting statement, and its parameters."""
    group = "(" + ", ".join(["%s"] * len(rows[0])) + ")"
    groups = ", ".join([group] * len(rows))
    statement = f"{verb} {shelf.name} ({', '.join(rows[0])}) VALUES {groups}"
    return statement, [value for row in rows for value in row.values()]


def chosen(shelf: Shelf, row: Mapping[str, object]) -> bool:
    """Tell whether the server chooses the key of *row*."""
    return shelf.numbered and "id" not in row


def stands(link: Link, entry: Entry) -> bool:
    """Tell whether *entry* was committed; FOR UPDATE waits for a transaction that still runs."""
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
