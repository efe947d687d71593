"""Old rows, kept ever more thinly: the first of each minute, then of each quarter, then none.

The first of a bucket is kept, so what is left still answers "the first at or after".  The newest
row of all stays however old it is: "the newest" has an answer after a week of silence too.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    FromClause,
    Table,
    and_,
    bindparam,
    delete,
    exists,
    select,
    type_coerce,
)

from monitor.store.database import Database

FEWEST, AT_ONCE = 10, 200  # rows of one transaction that forgets
LONG = 0.025  # s: one that takes longer is followed by a shorter one
HISTORY = timedelta(days=42)
"""Cuts of the last 40 days stay answerable; two more for days of another time zone."""


@dataclass(frozen=True, slots=True)
class ThinningStep:
    """Of rows older than *age*, one per *bucket* stays."""

    age: timedelta
    bucket: timedelta


MINUTES_THEN_QUARTERS = (
    ThinningStep(timedelta(days=1), timedelta(minutes=1)),
    ThinningStep(timedelta(days=10), timedelta(minutes=15)),
)


def forget(database: Database, table: Table, *which: ColumnElement[bool]) -> int:
    """Delete the rows of *table* for which all of *which* holds; return how many.

    They are found while others may write, and go a few at a time, fewer where that takes long:
    nobody waits for more.  In between nothing is done for as long: the lock knows no order, and who
    waits to write would not get it from one that asks for it again at once.
    """
    key = table.primary_key.columns
    with database.read() as connection:
        found = connection.execute(select(*key).where(*which)).all()
    rows = [{f"the_{name}": value for name, value in row._mapping.items()} for row in found]
    # one by one by their index: for a list of them SQLite would read the whole table
    one = delete(table).where(*(column == bindparam(f"the_{column.name}") for column in key))
    gone, first, few = 0, 0, AT_ONCE
    while first < len(rows):
        began = time.monotonic()
        with database.write() as connection:
            gone += connection.execute(one, rows[first : first + few]).rowcount
        spent = time.monotonic() - began
        first, few = first + few, paced(few, spent)
        time.sleep(min(spent, LONG))
    return gone


def paced(few: int, spent: float) -> int:
    """How many rows go next, when *few* took so many seconds."""
    return max(few // 2, FEWEST) if spent > LONG else min(few * 2, AT_ONCE)


def thin(
    database: Database,
    table: Table,
    by: Sequence[str],
    now: datetime,
    steps: Sequence[ThinningStep] = MINUTES_THEN_QUARTERS,
) -> int:
    """Thin *table* by its ``at``, apart for each value of the columns *by*; return what went."""
    newer = table.alias("newer")
    later = exists().where(_same(table, newer, by), newer.c.at > table.c.at)
    gone = forget(database, table, table.c.at < now - HISTORY, later)
    for step in steps:
        older = table.alias("older")
        start = _bucket(table.c.at, step.bucket)
        first = exists().where(
            _same(table, older, by), older.c.at < table.c.at, _micros(older.c.at) >= start
        )
        gone += forget(database, table, table.c.at < now - step.age, later, first)
    return gone


def _same(one: FromClause, other: FromClause, by: Sequence[str]) -> ColumnElement[bool]:
    return and_(*(one.c[name] == other.c[name] for name in by))


def _micros(at: ColumnElement[datetime]) -> ColumnElement[int]:
    return type_coerce(at, BigInteger)


def _bucket(at: ColumnElement[datetime], size: timedelta) -> ColumnElement[int]:
    """The instant, in microseconds, at which the bucket of *at* starts."""
    width = size // timedelta(microseconds=1)
    return (_micros(at) // width) * width
