"""Keeps the rows that one writer owns; only it changes them, so its numbers rise along every key.

Thanks to that rule a row's ``touched`` can be compared with the ledger: of two transactions that
wrote one key, the later one has the higher number.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from demo.shop.ledger import Key, RowState


@dataclass(eq=False)
class Keys:
    """The keys of one physical table that a writer owns.

    ``live`` maps a key to the number in its row. ``free`` are keys without a row that no other
    writer will use: deleted ones, and those of a rolled-back insert.
    """

    live: dict[Key, int] = field(default_factory=dict)
    free: set[Key] = field(default_factory=set)
    _order: list[Key] = field(default_factory=list)

    def sample(self, rng: random.Random, count: int) -> list[Key]:
        """Draw up to *count* different existing keys; it may return fewer."""
        drawn: dict[Key, None] = {}
        for _ in range(4 * count):
            if not self._order or len(drawn) == count:
                break
            place = rng.randrange(len(self._order))
            key = self._order[place]
            if key in self.live:
                drawn[key] = None
            else:  # drop deleted keys here, so that deletes need no search
                self._order[place] = self._order[-1]
                self._order.pop()
        return list(drawn)

    def put(self, key: Key, touched: int) -> None:
        """Own *key*, whose row has the number *touched*."""
        if key not in self.live:
            self._order.append(key)
        self.live[key] = touched
        self.free.discard(key)

    def drop(self, key: Key) -> None:
        """Note that the row of *key* was deleted."""
        self.live.pop(key, None)
        self.free.add(key)

    def forget(self, key: Key) -> None:
        """Stop owning *key*, because another writer may change it."""
        self.live.pop(key, None)


@dataclass(eq=False)
class Stock:
    """All rows that one writer owns, per physical table."""

    shelves: dict[str, Keys] = field(default_factory=dict)

    def __getitem__(self, shard: str) -> Keys:
        """Return the keys of *shard*; empty before the first row."""
        return self.shelves.setdefault(shard, Keys())

    def apply(self, rows: Iterable[RowState]) -> None:
        """Apply the row states of a committed transaction."""
        for row in rows:
            if row.touched is None:
                self[row.shard].drop(row.key)
            else:
                self[row.shard].put(row.key, row.touched)

    def release(self, rows: Iterable[RowState]) -> None:
        """Free the keys that a rolled-back transaction would have created."""
        for row in rows:
            if row.key not in self[row.shard].live:
                self[row.shard].free.add(row.key)

    def forget_free(self) -> None:
        """Stop owning keys without a row: after a crash, a server may hand out their ids again."""
        for keys in self.shelves.values():
            keys.free.clear()
