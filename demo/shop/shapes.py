"""Defines kinds of transactions of a shop, one function each, drawn by their weights.

A shape that finds no row to work on changes nothing; the writer then draws another.
"""

import random
from collections.abc import Callable

from demo.shop import values
from demo.shop.ledger import Key
from demo.shop.schema import (
    ITEMS_SHELF,
    ORDER_SHELVES,
    PAYMENTS_SHELF,
    SHELVES,
    USERS_SHELF,
    Shelf,
)
from demo.shop.transaction import DriftError, Transaction
from demo.shop.values import Row

Shape = Callable[[Transaction, random.Random], None]

PAID = 0.7
"""Share of new orders that come with their payment."""

FRESH = 0.4
"""Share of upserts that insert a new row."""

ENOUGH = 12
"""A writer with fewer own rows of a table deletes none of them."""


def place_order(tx: Transaction, rng: random.Random) -> None:
    """Insert an order, its items in one statement, and often its payment: three tables."""
    tx.insert(rng.choice(ORDER_SHELVES), tx.fresh("shop.orders", rng))
    lines = range(1, rng.randint(1, 4) + 1)
    tx.insert(ITEMS_SHELF, *(_item(tx, rng, line) for line in lines))
    if rng.random() < PAID:
        tx.insert(PAYMENTS_SHELF, tx.fresh("shop.payments", rng))


def register(tx: Transaction, rng: random.Random) -> None:
    """Insert one to three users in one statement."""
    tx.insert(USERS_SHELF, *(tx.fresh("shop.users", rng) for _ in range(rng.randint(1, 3))))


def edit(tx: Transaction, rng: random.Random) -> None:
    """Update some columns of one to four rows of one table by one statement."""
    shelf = rng.choice(SHELVES)
    keys = _pick(tx, rng, shelf, rng.choice((1, 1, 1, 2, 4)))
    if keys:
        row = tx.fresh(shelf.mirror, rng)
        names = rng.sample(sorted(row), rng.randint(1, min(6, len(row))))
        tx.update(shelf, keys, {name: row[name] for name in names if name != "email"})


def cancel_order(tx: Transaction, rng: random.Random) -> None:
    """Delete rows of three tables."""
    for shelf in (rng.choice(ORDER_SHELVES), ITEMS_SHELF, PAYMENTS_SHELF):
        _delete_some(tx, rng, shelf, 2)


def leave(tx: Transaction, rng: random.Random) -> None:
    """Delete one to three users by one statement."""
    _delete_some(tx, rng, USERS_SHELF, 3)


def move(tx: Transaction, rng: random.Random) -> None:
    """Change a primary key, to a formerly used one if there is any."""
    shelf = rng.choice(SHELVES)
    new = _free(tx, rng, shelf)
    for old in _pick(tx, rng, shelf, 1):
        if not shelf.numbered:
            new = new or (old[0], old[1] + 100)
        if new and new not in tx.stock[shelf.name].live:
            tx.move(shelf, old, new)


def replace_same(tx: Transaction, rng: random.Random) -> None:
    """REPLACE a row under its own key: the log has a delete and an insert, or an update."""
    shelf = rng.choice((ITEMS_SHELF, PAYMENTS_SHELF, USERS_SHELF))
    for key in _pick(tx, rng, shelf, 1):
        tx.replace(shelf, tx.fresh(shelf.mirror, rng) | _keyed(shelf, key))


def replace_rival(tx: Transaction, rng: random.Random) -> None:
    """REPLACE by a unique column: the row with the same email is replaced by one with a new id."""
    for key in _pick(tx, rng, USERS_SHELF, 1):
        row = tx.fresh("shop.users", rng) | {"email": _email(tx, key)}
        tx.replace(USERS_SHELF, row, key)


def upsert(tx: Transaction, rng: random.Random) -> None:
    """INSERT ... ON DUPLICATE KEY UPDATE, by primary key, that inserts or updates."""
    shelf = rng.choice((ITEMS_SHELF, PAYMENTS_SHELF, USERS_SHELF))
    row = tx.fresh(shelf.mirror, rng)
    if rng.random() < FRESH:
        fresh = {} if shelf.numbered else _keyed(shelf, (tx.number, 1))
        tx.upsert(shelf, row | fresh, None)
        return
    for key in _pick(tx, rng, shelf, 1):
        tx.upsert(shelf, row | _keyed(shelf, key), key)


def upsert_email(tx: Transaction, rng: random.Random) -> None:
    """INSERT ... ON DUPLICATE KEY UPDATE that finds a row by its unique email."""
    for key in _pick(tx, rng, USERS_SHELF, 1):
        row = tx.fresh("shop.users", rng) | {"email": _email(tx, key)}
        tx.upsert(USERS_SHELF, row, key)


def revive(tx: Transaction, rng: random.Random) -> None:
    """Insert a row under a key that was deleted before."""
    shelf = rng.choice(SHELVES)
    key = _free(tx, rng, shelf)
    if key:
        tx.insert(shelf, tx.fresh(shelf.mirror, rng) | _keyed(shelf, key))


def churn(tx: Transaction, rng: random.Random) -> None:
    """Write the same rows several times in one transaction: only the last state may remain."""
    (first, second) = tx.insert(USERS_SHELF, *(tx.fresh("shop.users", rng) for _ in range(2)))
    tx.update(USERS_SHELF, [first, second], {"points": rng.randint(0, 9)})
    tx.delete(USERS_SHELF, [second])
    for key in _pick(tx, rng, PAYMENTS_SHELF, 1):
        tx.delete(PAYMENTS_SHELF, [key])
        again = tx.fresh("shop.payments", rng) | _keyed(PAYMENTS_SHELF, key)
        tx.insert(PAYMENTS_SHELF, again)
        tx.update(PAYMENTS_SHELF, [key], {"memo": values.text(rng)})


WEIGHTS: dict[Shape, int] = {
    place_order: 24,
    register: 10,
    edit: 34,
    cancel_order: 7,
    leave: 5,
    move: 5,
    replace_same: 4,
    replace_rival: 3,
    upsert: 6,
    upsert_email: 3,
    revive: 5,
    churn: 4,
}


def draw(rng: random.Random) -> Shape:
    """Draw a shape by its weight."""
    return rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]


def _pick(tx: Transaction, rng: random.Random, shelf: Shelf, count: int) -> list[Key]:
    """Draw existing keys that this transaction has not touched yet."""
    keys = tx.stock[shelf.name].sample(rng, count)
    return [key for key in keys if not tx.has_touched(shelf, key)]


def _free(tx: Transaction, rng: random.Random, shelf: Shelf) -> Key | None:
    """Draw a key of a deleted row; None without any."""
    free = sorted(tx.stock[shelf.name].free)
    key = rng.choice(free) if free else None
    return None if key and tx.has_touched(shelf, key) else key


def _delete_some(tx: Transaction, rng: random.Random, shelf: Shelf, most: int) -> None:
    """Delete up to *most* rows, unless few are left."""
    if len(tx.stock[shelf.name].live) > ENOUGH:
        keys = _pick(tx, rng, shelf, rng.randint(1, most))
        if keys:
            tx.delete(shelf, keys)


def _item(tx: Transaction, rng: random.Random, line: int) -> Row:
    """Return an item of the transaction's order, with its key."""
    return tx.fresh(ITEMS_SHELF.mirror, rng) | _keyed(ITEMS_SHELF, (tx.number, line))


def _keyed(shelf: Shelf, key: Key) -> Row:
    """Return the key as columns."""
    return dict(zip(shelf.key, key, strict=True))


def _email(tx: Transaction, key: Key) -> str:
    """Read a user's email without changing the row."""
    tx.cursor.execute("SELECT email FROM shop.users WHERE id = %s FOR UPDATE", key)
    found = tx.cursor.fetchone()
    if found is None:
        raise DriftError(USERS_SHELF, [key])
    return str(found[0])
