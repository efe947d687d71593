"""Stores the minutes of the ledger, and how far batches and versions were compared.

An unreadable minute is unknown, but the number of its missing rows is kept.
"""

from collections.abc import Collection, ItemsView, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, insert, select

from checks.ledger import LANDING_HOP, LedgerEntry, add_entries, is_copy_hop
from monitor.store.database import Database
from monitor.store.schema import ledger_minutes, ledger_reach
from pipeline.minute_counts import is_minute
from pipeline.model import Hop

AT_ONCE = 500  # tables per statement
MOST_RESIDUAL = 2**40  # the highest stored residual of a minute, in rows
UNREADABLE = "unreadable"  # op of missing rows whose counts are unreadable


@dataclass(eq=False)
class Minutes:
    """The minutes in *database*, by table and hop."""

    database: Database

    def select(self, which: ColumnElement[bool]) -> list[LedgerEntry]:
        """Return the entries of the minutes that match a condition."""
        query = select(ledger_minutes).where(which)
        return self.database.decoded(query, ledger_minutes, read_entry, salvage_minute)

    def of_minutes(self, table: str, hop: str, wanted: Set[int]) -> dict[int, LedgerEntry]:
        """Return the stored entries of the *wanted* minutes (at least one)."""
        minute = ledger_minutes.c.minute
        near = and_(*of_hop(table, hop), minute >= min(wanted), minute <= max(wanted))
        return {one.minute: one for one in self.select(near) if one.minute in wanted}

    def of_tables(
        self, hop: str, new: Collection[tuple[str, LedgerEntry]]
    ) -> dict[tuple[str, int], LedgerEntry]:
        """Return the stored entries for the tables and minutes of *new*, a few tables at once."""
        tables, minutes = sorted({table for table, _ in new}), {one.minute for _, one in new}
        found = dict[tuple[str, int], LedgerEntry]()
        for start in range(0, len(tables), AT_ONCE):
            some = ledger_minutes.c.table.in_(tables[start : start + AT_ONCE])
            own = and_(some, ledger_minutes.c.hop == hop, ledger_minutes.c.minute.in_(minutes))
            entries = self.database.decoded(
                select(ledger_minutes).where(own),
                ledger_minutes,
                lambda row: (row.table, read_entry(row)),
                lambda stored: (str(stored["table"] or b"", "utf-8"), salvage_minute(stored)),
            )
            found |= {(table, one.minute): one for table, one in entries}
        return found

    def missing(self, table: str, hop: str) -> list[LedgerEntry]:
        """Return the entries with rows that are missing, or too many."""
        lost = self.select(and_(*of_hop(table, hop), ledger_minutes.c.residual != 0))
        return [one for one in lost if one.missing]

    def add(
        self,
        connection: Connection,
        table: str,
        hop: str,
        new: Sequence[LedgerEntry],
        at: datetime,
    ) -> bool:
        """Add *new* entries to those of their minutes; return whether an old or new one is odd."""
        if not new:
            return False
        there = self.of_minutes(table, hop, {one.minute for one in new})
        every = add_entries([*there.values(), *new])
        store_entries(connection, table, hop, every, at)
        return are_odd([*there.values(), *every])


def are_odd(entries: Iterable[LedgerEntry]) -> bool:
    """Tell whether *entries* may change a sum of residuals: one misses rows or is unknown."""
    return any(one.missing or one.unknown for one in entries)


def of_hop(table: str, hop: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Return the conditions on the minutes of *table* at *hop*."""
    return ledger_minutes.c.table == table, ledger_minutes.c.hop == str(hop)


def store_entries(
    connection: Connection, table: str, hop: str, entries: Iterable[LedgerEntry], at: datetime
) -> None:
    """Replace the stored entries of the same minutes with *entries*."""
    store_of_tables(connection, hop, [(table, one) for one in entries], at)


def store_of_tables(
    connection: Connection, hop: str, entries: Iterable[tuple[str, LedgerEntry]], at: datetime
) -> None:
    """Replace the stored entries with *entries*, each with its table."""
    rows = [_dump_entry(table, hop, one, at) for table, one in entries]
    if rows:
        connection.execute(insert(ledger_minutes).prefix_with("OR REPLACE"), rows)


def _dump_entry(table: str, hop: str, one: LedgerEntry, at: datetime) -> dict[str, Any]:
    return {
        "table": table,
        "hop": str(hop),
        "minute": one.minute,
        "went_in": dict(one.went_in),
        "came_out": dict(one.came_out),
        "explained": dict(one.explained),
        "unknown": int(one.unknown),
        "residual": min(one.residual or 0, MOST_RESIDUAL),
        "batch": one.batch,
        "at": at,
        "made_good": dict(one.made_good) or None,
        "proof": one.proof or None,
        "found": one.found,
    }


def read_entry(row: Row[Any]) -> LedgerEntry:
    """Return the entry of a stored minute.

    Raises:
        ValueError, TypeError: a column has an invalid value.
    """
    require_hop(row.hop)
    return LedgerEntry(
        read_minute(row.minute),
        read_counts(row.went_in),
        read_counts(row.came_out),
        read_counts(row.explained),
        unknown=bool(row.unknown),
        batch=read_integer(row.batch),
        made_good={} if row.made_good is None else read_counts(row.made_good),
        proof=str(row.proof or ""),
        found=row.found,
    )


def require_hop(hop: str) -> str:
    """Return *hop*; a ValueError if it has no ledger, because its counts would mean nothing."""
    return hop if is_copy_hop(hop) or hop == LANDING_HOP else Hop(hop)


def read_dated_entry(row: Row[Any]) -> tuple[LedgerEntry, datetime]:
    """Return the entry of a stored minute, and when it was stored."""
    return read_entry(row), row.at


def read_counts(stored: Any) -> dict[str, int]:
    """Return counts by name; require printable names and integers."""
    if not all(name.isprintable() for name, _ in read_items(stored)):
        raise ValueError("a name cannot be shown")
    return {name: read_integer(rows) for name, rows in stored.items()}


def read_minute(stored: Any) -> int:
    """Return a minute; require one that a calendar has."""
    if not is_minute(read_integer(stored)):
        raise ValueError("a minute of no calendar")
    return int(stored)


def read_integer(stored: Any) -> int:
    """Return an integer; SQLite stores any value in any column."""
    if not isinstance(stored, int):
        raise TypeError(f"{type(stored).__name__} for a number")
    return stored


def read_items(stored: Any) -> ItemsView[str, Any]:
    """Return the items of a JSON object; require an object."""
    if not isinstance(stored, dict):
        raise TypeError(f"{type(stored).__name__} for counts")
    return stored.items()


def salvage_minute(stored: Mapping[str, bytes | None]) -> LedgerEntry:
    """Return an unknown entry for an unreadable minute, with the number of its missing rows."""
    minute, lost = salvage_number(stored["minute"]), salvage_number(stored["residual"])
    counts, found = ({UNREADABLE: lost}, datetime.now(UTC)) if lost else ({}, None)
    return LedgerEntry(minute if is_minute(minute) else 0, counts, unknown=True, found=found)


def salvage_rows(stored: Mapping[str, bytes | None]) -> LedgerEntry | int:
    """Return the number of missing rows of an unreadable minute."""
    return salvage_number(stored["residual"], 1)


def salvage_number(stored: bytes | None, otherwise: int = 0) -> int:
    """Return the number that the bytes of a column spell, else *otherwise*."""
    return int(stored) if stored is not None and stored.isdigit() else otherwise


def reach_of(lane: str, table: str) -> ColumnElement[bool]:
    """Return the condition on the row of *lane* and *table*."""
    return and_(ledger_reach.c.lane == lane, ledger_reach.c.table == table)


def store_reach(
    connection: Connection, lane: str, table: str, first: int, last: int, *, lineage: str = ""
) -> None:
    """Write the row of *lane* and *table*; *lineage* is set only for a copy."""
    connection.execute(delete(ledger_reach).where(reach_of(lane, table)))
    values = {"lane": lane, "table": table, "first": first, "last": last, "mirror": lineage or None}
    connection.execute(insert(ledger_reach).values(values))
