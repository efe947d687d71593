"""Keeps the counts of topics in memory until their minute is over, so that each is stored once.

Nearly every batch has rows of most tables, and each minute of a table is a separate row of the
store. So counts that balance are added up in memory. Until they are stored, each batch writes a few
rows to ``ledger_received``, which are adjacent in the file: a kill loses nothing. Tables are
divided into parts, so that one short transaction stores the minutes of a part and deletes its rows.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select

from checks.ledger import LedgerEntry
from monitor.store.database import Database
from monitor.store.schema import (
    decode_value,
    encode_value,
    ledger_minutes,
    ledger_open,
    ledger_received,
)
from pipeline.minute_counts import is_minute

PARTS = 32
_Counts = dict[str, int]
_KIND = dict[str, tuple[_Counts, _Counts, bool]]
"""Table -> equal counts of what went in and came out, its explanation, and if a part is unknown."""
_UNREADABLE = -1  # the part of unreadable rows
Key = tuple[int, int]
"""Minute and part."""


@dataclass(frozen=True, slots=True)
class ReceivedPart:
    """One minute of several tables: the sum of the stored rows with the ids ``rows``."""

    entries: Mapping[str, LedgerEntry]
    rows: tuple[int, ...]

    def at(self, now: datetime) -> datetime:
        """Return the time from which the minute is kept: *now* if it is unknown, else its start.

        An unreadable row has no entries if no table is known.
        """
        if not self.entries or any(one.unknown for one in self.entries.values()):
            return now
        first = min(one.minute for one in self.entries.values())
        return datetime.fromtimestamp(0, UTC) + timedelta(minutes=first)

    def __add__(self, other: "ReceivedPart") -> "ReceivedPart":
        """Return the sum of both parts."""
        entries = dict(self.entries)
        for table, one in other.entries.items():
            entries[table] = entries[table].with_more(one) if table in entries else one
        return ReceivedPart(entries, (*self.rows, *other.rows))


@dataclass(eq=False)
class Received:
    """Entries without missing rows whose minute is not in the store yet.

    ``parts`` is replaced and never changed, so that any thread may read it.
    """

    database: Database
    parts: Mapping[Key, ReceivedPart] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Load what waited when the last service ended; an unreadable row may be of any table."""
        found = self.database.decoded(select(ledger_received), ledger_received, _part, _unread)
        self._take((key, one) for key, one in found if key[1] != _UNREADABLE)
        lost = [(key, one) for key, one in found if key[1] == _UNREADABLE]
        tables = (
            {*find_tables(self.database), *(table for table, _ in self.entries())} if lost else ()
        )
        for key, one in lost:
            unknown = dict.fromkeys(tables, LedgerEntry(key[0], unknown=True))
            self._take([(key, ReceivedPart(unknown, one.rows))])

    def entries(self) -> Iterator[tuple[str, LedgerEntry]]:
        """Yield (table, entry) for each waiting minute."""
        for part in self.parts.values():
            yield from part.entries.items()

    def of_table(self, table: str) -> list[LedgerEntry]:
        """Return the waiting minutes of *table*."""
        return [part.entries[table] for part in self.parts.values() if table in part.entries]

    def add(
        self, connection: Connection, new: Iterable[tuple[str, LedgerEntry]]
    ) -> Callable[[], None]:
        """Write the balanced entries of one batch; call the result after the commit."""
        found = dict[Key, dict[str, LedgerEntry]]()
        for table, one in new:
            part = found.setdefault((one.minute, _part_of(table)), {})
            part[table] = part[table].with_more(one) if table in part else one
        last = connection.scalar(select(func.max(ledger_received.c.id))) or 0
        parts = [
            (key, ReceivedPart(part, (last + place,)))
            for place, (key, part) in enumerate(sorted(found.items()), 1)
        ]
        if parts:
            connection.execute(insert(ledger_received), [_row(*one) for one in parts])
        return lambda: self._take(parts)

    def _take(self, parts: Iterable[tuple[Key, ReceivedPart]]) -> None:
        taken = dict(self.parts)
        for key, one in parts:
            taken[key] = taken[key] + one if key in taken else one
        self.parts = taken

    def delete(self, connection: Connection, key: Key) -> Callable[[], None]:
        """Delete the rows of a part whose minutes are stored; call the result after the commit."""
        own = ledger_received.c.id.in_(self.parts[key].rows)
        connection.execute(delete(ledger_received).where(own))

        def forget() -> None:
            self.parts = {other: one for other, one in self.parts.items() if other != key}

        return forget


def find_tables(database: Database) -> set[str]:
    """Return the tables in the ledger; it reads an index of all minutes."""
    known = select(ledger_minutes.c.table).union(select(ledger_open.c.table))
    with database.read() as connection:
        return {*connection.scalars(known)}


def _part_of(table: str) -> int:
    return zlib.crc32(table.encode(errors="replace")) % PARTS


def _row(key: Key, part: ReceivedPart) -> dict[str, Any]:
    counts = {
        table: (one.went_in, one.explained, one.unknown) for table, one in part.entries.items()
    }
    return {
        "id": part.rows[0],
        "minute": key[0],
        "part": key[1],
        "batch": max(one.batch for one in part.entries.values()),
        "counts": encode_value(_KIND, counts),
    }


def _part(row: Row[Any]) -> tuple[Key, ReceivedPart]:
    if not (isinstance(row.minute, int) and is_minute(row.minute) and isinstance(row.batch, int)):
        raise ValueError("a minute of no calendar")
    counts = decode_value(_KIND, row.counts)
    entries = {
        table: LedgerEntry(row.minute, went, went, terms, unknown=unknown, batch=row.batch)
        for table, (went, terms, unknown) in counts.items()
    }
    return (row.minute, int(row.part)), ReceivedPart(entries, (row.id,))


def _unread(stored: Mapping[str, bytes | None]) -> tuple[Key, ReceivedPart]:
    """Return a part without entries, because its tables are unknown."""
    minute = int(text) if (text := stored["minute"] or b"").isdigit() else 0
    key = minute if is_minute(minute) else 0, _UNREADABLE
    return key, ReceivedPart({}, (int(stored["id"] or 0),))
