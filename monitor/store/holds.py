"""Keeps the holds and gaps of a lane, in memory and in the store.

The hold of a table lasts until a merge of that table returns without one. A table without work
is not in a report, so its absence ends nothing. Each hold has an id that ends with it. Holds
are stored, so a restart does not forget what blocks.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, delete, insert, select

from monitor.store.database import Database, stored_text
from monitor.store.schema import standstills
from pipeline.checkpoint import Gap
from pipeline.reports import Hold, LandingReport, MergeReport

GAP, HOLD = "gap", "hold"


@dataclass(frozen=True, slots=True)
class StoredHold:
    """A stored gap or hold; ``subject`` is a table, ``source:NAME`` or, for a gap, its partition.

    ``tables`` are the affected tables of a gap; empty for a hold, whose subject names it.
    """

    id: str
    kind: str
    subject: str
    reason: str
    detail: str
    since: datetime
    tables: tuple[str, ...] = ()


@dataclass(eq=False)
class Holds:
    """The gaps and holds of the newest report."""

    database: Database

    def replace(self, gaps: Sequence[Gap], holds: Sequence[Hold], at: datetime) -> None:
        """Replace all stored gaps and holds; unchanged ones keep their ``since``."""
        found = [_of_gap(gap, at) for gap in gaps] + [_of_hold(hold, at) for hold in holds]
        now = {(one.kind, one.id): one for one in found}
        with self.database.write() as connection:
            since = {(one.kind, one.id): one.since for one in self.list()}
            connection.execute(delete(standstills))
            if rows := [_hold_row(one, since.get(key, at)) for key, one in now.items()]:
                connection.execute(insert(standstills), rows)

    def list(self) -> tuple[StoredHold, ...]:
        """Return all, oldest first; an unreadable one still holds its subject."""
        query = select(standstills).order_by(standstills.c.since, standstills.c.id)
        return tuple(self.database.decoded(query, standstills, _hold, _salvaged_hold))


def _hold(row: Row[Any]) -> StoredHold:
    texts = (row.id, row.kind, row.subject, row.reason, row.detail)
    return StoredHold(*texts, row.since, tuple(row.tables))


def _salvaged_hold(stored: Mapping[str, bytes | None]) -> StoredHold:
    id_, kind, subject, reason = (
        stored_text(stored[name]) for name in ("id", "kind", "subject", "reason")
    )
    detail = "its row in the store is unreadable; it ends with the next merge or landing"
    return StoredHold(id_, kind, subject, reason or HOLD, detail, datetime.now(UTC))


def _of_gap(gap: Gap, at: datetime) -> StoredHold:
    where = f"{gap.topic}:{gap.partition}"
    detail = f"offsets [{gap.first}, {gap.until}) of {where}: {gap.why}"
    return StoredHold(gap.id, GAP, where, "gap", detail, at, gap.tables)


def _of_hold(hold: Hold, at: datetime) -> StoredHold:
    return StoredHold(hold.id, HOLD, hold.subject, hold.reason, hold.detail, at)


def _hold_row(one: StoredHold, since: datetime) -> dict[str, object]:
    return {
        "id": one.id,
        "kind": one.kind,
        "subject": one.subject,
        "reason": one.reason,
        "detail": one.detail,
        "tables": list(one.tables),
        "since": since,
    }


@dataclass(eq=False)
class HoldRegistry:
    """Holds of the last landing, and of each table's last merge; thread-safe.

    Collections are replaced, never changed, so that a concurrent reader sees a consistent state.
    """

    store: Holds
    _sources: tuple[Hold, ...] = ()
    _gaps: tuple[Gap, ...] = ()
    _tables: Mapping[str, Hold] = field(default_factory=dict)
    _named: dict[str, dict[str, Hold]] = field(default_factory=dict)
    _kept: tuple[tuple[Gap, ...], tuple[Hold, ...]] | None = None  # what is stored
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def load(self) -> None:
        """Load the holds that an earlier run stored."""
        holds = [
            Hold(one.id, one.subject, one.reason, one.detail)
            for one in self.store.list()
            if one.kind == "hold"
        ]
        self._sources = tuple(hold for hold in holds if hold.subject.startswith("source:"))
        self._tables = {hold.subject: hold for hold in holds if hold not in self._sources}
        for table, hold in self._tables.items():
            self._named[table] = {hold.reason: hold}

    def holds(self) -> tuple[Hold, ...]:
        """Return all current holds."""
        return (*self._sources, *self._tables.values())

    def why_held(self, table: str) -> str:
        """Return why the mirror of *table* is not merged; empty if it is not held."""
        hold = self._tables.get(table)
        return "" if hold is None else hold.detail

    def landed(self, landed: LandingReport, at: datetime) -> None:
        """Take over the holds and gaps of one landing."""
        with self._lock:
            self._sources, self._gaps = landed.holds, landed.gaps
            self._keep(at)

    def applied(self, merges: Iterable[MergeReport], at: datetime) -> None:
        """Take over the holds of merges, each for its own table."""
        with self._lock:
            holds = {merge.table: self._named_once(merge.table, merge.hold, at) for merge in merges}
            tables = {**self._tables, **holds}
            self._tables = {name: hold for name, hold in tables.items() if hold is not None}
            self._keep(at)

    def lane_held(self, hold: Hold, sources: Iterable[str], at: datetime) -> None:
        """Hold every source, because the whole lane is blocked."""
        with self._lock:
            self._sources = tuple(
                Hold(hold.id, f"source:{source}", hold.reason, hold.detail) for source in sources
            )
            self._keep(at)

    def _named_once(self, table: str, hold: Hold | None, at: datetime) -> Hold | None:
        """Return *hold* with the second of its start in its id, unless its id is specific already.

        So a waiver ends with the hold: after a merge of the table, the next hold has another id.
        Another hold in between, such as an unreachable lake, does not change the id.
        """
        if hold is None:
            self._named.pop(table, None)
            return None
        if hold.id != f"{hold.reason}:{table}":
            return hold
        known = self._named.setdefault(table, {})
        named = known.get(hold.reason, replace(hold, id=f"{hold.id}@{int(at.timestamp())}"))
        known[hold.reason] = replace(named, detail=hold.detail)
        return known[hold.reason]

    def _keep(self, at: datetime) -> None:
        """Store gaps and holds if they changed; usually they are unchanged."""
        now = self._gaps, self.holds()
        if now != self._kept or self.store.database.unreadable:  # the row may be one of these
            self._kept = None
            self.store.replace(*now, at)
            self._kept = now
