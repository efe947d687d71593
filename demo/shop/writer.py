"""Writes transactions over one connection, and survives the loss of its server.

The ledger is exact: a number is committed only if the server said so, or if a later read of its
rows proved it.
"""

import random
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from demo.shop.ledger import Entry, Ledger, Outcome
from demo.shop.schema import SHELVES
from demo.shop.server import Link, ShopServer, stands
from demo.shop.shapes import Shape, draw, place_order
from demo.shop.stock import Keys, Stock
from demo.shop.transaction import DriftError, Transaction

ABANDON = 0.06
"""Share of transactions that end in ROLLBACK."""
DETOUR = 0.06
"""Share of transactions with a part that is rolled back to a savepoint."""
LINGER = 0.01
"""Share of transactions that wait before COMMIT, so that a low id becomes visible late."""


@dataclass(eq=False)
class Writer:
    """One connection with its own rows; ``share`` is (index, number of writers).

    With ``survive`` it reconnects when the server is gone; otherwise that is an error.
    """

    server: ShopServer
    ledger: Ledger
    rng: random.Random
    share: tuple[int, int]
    survive: bool
    stop: threading.Event
    tally: Counter[str] = field(default_factory=Counter)
    _stock: Stock = field(default_factory=Stock)
    _doubt: Entry | None = None
    _link: Link | None = None

    def work(self, shape: Shape | None = None) -> int:
        """Run one transaction, of *shape* or a drawn one; return how many changes it made."""
        try:
            link = self._connected()
            return self._transact(link, shape or draw(self.rng))
        except self.server.errors as error:
            if self.server.is_clash(error):
                return 0
            self._disconnect()
            if not self.survive or not self.server.is_loss(error):
                raise
            self.stop.wait(0.2)
            return 0

    def close(self) -> None:
        """Close the connection; settle an unknown outcome first, if the lost server is back."""
        if self._doubt is not None and self.survive:
            with suppress(*self.server.errors):
                self._connected()
        self._disconnect()

    def load(self) -> int:
        """Own a share of all existing rows; return the highest transaction number in them."""
        place, writers = self.share
        highest = 0
        with self._connected().cursor() as cursor:
            for shelf in SHELVES:
                self._stock.shelves[shelf.name] = keys = Keys()
                names = ", ".join(shelf.key)
                cursor.execute(f"SELECT {names}, touched FROM {shelf.name}")
                for *parts, touched in cursor.fetchall():
                    highest = max(highest, touched)
                    if parts[0] % writers == place:
                        keys.put(tuple(parts), touched)
        self._connected().rollback()
        return highest

    def _transact(self, link: Link, shape: Shape) -> int:
        """Run one transaction to its end and record it in the ledger."""
        begun = datetime.now(UTC)
        with link.cursor() as cursor:
            tx = Transaction(self.server, cursor, self.ledger.number(), self._stock)
            try:
                self._fill(tx, shape)
                if self.rng.random() >= ABANDON:
                    self._commit(link, tx, begun)
                    return tx.changes
                link.rollback()
            except DriftError as drift:
                link.rollback()
                for key in drift.keys:
                    self._stock[drift.shelf.name].forget(key)
            except self.server.errors as error:
                if self._doubt is None:
                    self._give_up(tx, begun)
                    if self.server.is_clash(error):
                        link.rollback()
                raise
            self._give_up(tx, begun)
            return 0

    def _fill(self, tx: Transaction, shape: Shape) -> None:
        """Run the statements of one transaction, with or without a detour."""
        if self.rng.random() < DETOUR:
            self._detour(tx)
        shape(tx, self.rng)
        if not tx.changes:
            place_order(tx, self.rng)
        if self.rng.random() < LINGER:
            self.stop.wait(self.rng.uniform(0.2, 2))

    def _detour(self, tx: Transaction) -> None:
        """Change rows after a savepoint under another number, and roll back to it."""
        part = Transaction(self.server, tx.cursor, self.ledger.number(), self._stock, outer=tx)
        tx.cursor.execute("SAVEPOINT detour")
        draw(self.rng)(part, self.rng)
        tx.cursor.execute("ROLLBACK TO SAVEPOINT detour")
        self._give_up(part, datetime.now(UTC))

    def _commit(self, link: Link, tx: Transaction, begun: datetime) -> None:
        """Commit, with an entry in the ledger before and after."""
        entry = Entry(tx.number, begun, datetime.now(UTC), tx.rows)
        self.ledger.intend(entry)
        self._doubt = entry
        link.commit()
        self._settle(entry, Outcome.COMMITTED, tx.changes)

    def _settle(self, entry: Entry, outcome: Outcome, changes: int = 0) -> None:
        """Record the outcome of *entry*, which was unknown."""
        committed = outcome is Outcome.COMMITTED
        self.ledger.settle(entry.number, outcome, datetime.now(UTC) if committed else None)
        self._doubt = None
        self.tally.update({outcome: 1, "changes": changes})
        if committed:
            self._stock.apply(entry.rows)

    def _give_up(self, tx: Transaction, begun: datetime) -> None:
        """Record a transaction, or a part of one, that was rolled back."""
        now = datetime.now(UTC)
        self.ledger.intend(Entry(tx.number, begun, now, tx.rows, Outcome.ROLLED_BACK))
        self.tally[Outcome.ROLLED_BACK] += 1
        self._stock.release(tx.rows)

    def _connected(self) -> Link:
        """Return the open connection, or a new one after settling the last unknown outcome."""
        if self._link is None:
            self._link = self.server.connect()
            self._stock.forget_free()
            if self._doubt is not None:
                found = stands(self._link, self._doubt)
                self._settle(self._doubt, Outcome.COMMITTED if found else Outcome.ROLLED_BACK)
        return self._link

    def _disconnect(self) -> None:
        """Drop the connection, even if it is broken."""
        if self._link is not None:
            self.server.hang_up(self._link)
        self._link = None
