"""Runs one transaction of a writer: changes rows and records their states.

Statements go to the server at once. The states of the rows are kept here until the ledger takes
them. The caller decides which keys may be changed (see ``stock``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from demo.shop.ledger import Key, RowState
from demo.shop.schema import Shelf
from demo.shop.server import Cursor, ShopServer
from demo.shop.stock import Stock
from demo.shop.values import Row


class DriftError(Exception):
    """A row is missing, or there twice: another writer changed what this writer owns."""

    def __init__(self, shelf: Shelf, keys: Sequence[Key]) -> None:
        """Name the rows that were not as expected."""
        super().__init__(f"rows of {shelf.name} are not as remembered: {list(keys)}")
        self.shelf, self.keys = shelf, tuple(keys)


@dataclass(eq=False)
class Transaction:
    """One open transaction numbered *number*, or the part of one behind a savepoint."""

    server: ShopServer
    cursor: Cursor
    number: int
    stock: Stock
    outer: "Transaction | None" = None
    changes: int = 0
    _rows: dict[tuple[str, Key], RowState] = field(default_factory=dict)

    @property
    def rows(self) -> tuple[RowState, ...]:
        """Return the touched rows, each once, as this transaction leaves them."""
        return tuple(self._rows.values())

    def has_touched(self, shelf: Shelf, key: Key) -> bool:
        """Tell whether this transaction, or the one around it, changed the row before."""
        around = self.outer is not None and self.outer.has_touched(shelf, key)
        return around or (shelf.name, key) in self._rows

    def fresh(self, mirror: str, rng: Random) -> Row:
        """Return new values for every column of *mirror* but its key."""
        return self.server.row(mirror, rng, self.number)

    def insert(self, shelf: Shelf, *rows: Row) -> list[Key]:
        """Insert *rows* in one statement; return their keys, which the server may choose."""
        ids = self.server.insert(self.cursor, shelf, [self._signed(row) for row in rows])
        keys: list[Key] = [(one,) for one in ids] or [_key(shelf, row) for row in rows]
        for key in keys:
            self._left(shelf, key, self.number)
        return keys

    def update(self, shelf: Shelf, keys: Sequence[Key], values: Row) -> None:
        """Set *values* in all of *keys* by one statement."""
        names = [*values, "touched"]
        sets = ", ".join(f"{name} = %s" for name in names)
        where, bound = _where(shelf, keys)
        self._run(
            f"UPDATE {shelf.name} SET {sets} {where}", [*values.values(), self.number, *bound]
        )
        self._expect(shelf, keys)
        for key in keys:
            self._left(shelf, key, self.number)

    def delete(self, shelf: Shelf, keys: Sequence[Key]) -> None:
        """Delete *keys* by one statement."""
        where, bound = _where(shelf, keys)
        self._run(f"DELETE FROM {shelf.name} {where}", bound)
        self._expect(shelf, keys)
        for key in keys:
            self._left(shelf, key, None)

    def move(self, shelf: Shelf, old: Key, new: Key) -> None:
        """Change the primary key of a row."""
        sets = ", ".join(f"{name} = %s" for name in (*shelf.key, "touched"))
        where, bound = _where(shelf, [old])
        self._run(f"UPDATE {shelf.name} SET {sets} {where}", [*new, self.number, *bound])
        self._expect(shelf, [old])
        self._left(shelf, old, None)
        self._left(shelf, new, self.number)

    def replace(self, shelf: Shelf, row: Row, *gone: Key) -> Key:
        """REPLACE a row; *gone* are other rows that it replaces by a unique column."""
        ids = self.server.replace(self.cursor, shelf, self._signed(row))
        for other in gone:
            self._left(shelf, other, None)
        key = (ids[0],) if ids else _key(shelf, row)
        self._left(shelf, key, self.number, passing=(None,))
        return key

    def upsert(self, shelf: Shelf, row: Row, existing: Key | None) -> Key:
        """Insert a row, or update *existing*, the row with which it conflicts, if any."""
        ids = self.server.upsert(self.cursor, shelf, self._signed(row))
        key = existing or ((ids[0],) if ids else _key(shelf, row))
        self._left(shelf, key, self.number)
        return key

    def _signed(self, row: Row) -> Row:
        return {**row, "touched": self.number}

    def _run(self, statement: str, bound: Sequence[object]) -> None:
        """Send one statement."""
        self.cursor.execute(statement, bound)

    def _expect(self, shelf: Shelf, keys: Sequence[Key]) -> None:
        """Check that the last statement matched every row of *keys*."""
        if self.cursor.rowcount != len(keys):
            raise DriftError(shelf, keys)

    def _left(
        self, shelf: Shelf, key: Key, touched: int | None, passing: tuple[int | None, ...] = ()
    ) -> None:
        """Record the state of one row; the stock knows its number before the transaction."""
        self.changes += 1
        if earlier := self._rows.get((shelf.name, key)):
            passing = (*earlier.passing, earlier.touched, *passing)
        before = self.stock[shelf.name].live.get(key)
        if touched is None and self.has_touched(shelf, key):
            before = self.number  # the delete's before image shows this transaction's own write
        self._rows[shelf.name, key] = RowState(shelf.name, key, touched, before, passing)


def _key(shelf: Shelf, row: Mapping[str, object]) -> Key:
    """Return the key values in *row*."""
    return tuple(int(str(row[name])) for name in shelf.key)


def _where(shelf: Shelf, keys: Sequence[Key]) -> tuple[str, list[int]]:
    """Return the condition that selects *keys*, and its parameters."""
    group = "(" + ", ".join(["%s"] * len(shelf.key)) + ")"
    names = ", ".join(shelf.key)
    where = f"WHERE ({names}) IN ({', '.join([group] * len(keys))})"
    return where, [part for key in keys for part in key]
