"""Stores the ledger of copies: how far each copy was compared, and which rows it misses.

Entries are stored by the place of a copy, so they stay when the config renames the copy. Earlier
versions stored them by the name of the copy.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    and_,
    delete,
    insert,
    literal,
    or_,
    select,
    update,
)

from checks.ledger import (
    LedgerEntry,
    copy_hop,
    is_copy_hop,
    is_loaded,
    place_hop,
    settle_copied,
)
from monitor.store.database import Database
from monitor.store.ledger_rows import (
    Minutes,
    reach_of,
    read_integer,
    store_entries,
    store_reach,
)
from monitor.store.schema import ledger_minutes, ledger_reach
from pipeline.copies.copy import CopiedVersion, CopyPosition

_LOADS = "load:"  # rows of ``ledger_reach``: by hop, the load of a copy that has not been counted


@dataclass(frozen=True, slots=True)
class CopyReach:
    """The version through which a copy was compared, and the lineage of its rows; -1 before any.

    The lineage is empty if an earlier version of Sluice stored none. ``highest`` is the highest
    compared version. It is above ``last`` while a copy that was set back follows versions again.
    ``load`` is the (lineage, version, number) of a load that has not been counted; this load may
    have ended.
    """

    last: int = -1
    lineage: str = ""
    highest: int = -1
    load: tuple[str, int, int] | None = None

    def covers(self, at: CopyPosition) -> bool:
        """Tell whether every row that a copy *at* this position has taken over was compared."""
        return self.lineage == at.lineage and self.last >= at.version and not self.awaits(at)

    def exceeds(self, at: CopyPosition) -> bool:
        """Tell whether a copy *at* this position was compared further before, so was set back.

        Valid only if this reach is not newer than the position.
        """
        return self.lineage == at.lineage and self.last > at.version

    def needs_load(self, at: CopyPosition) -> bool:
        """Tell whether a copy *at* this position has rows that were never compared.

        The copy then has another load than the compared one, or was moved on meanwhile. The copy or
        this ledger was restored from a backup, or the place had another address before. A copy that
        was set back may have another load, too, if its load has no id.
        """
        if not at.whole or self.awaits(at):
            return False
        if self.lineage != at.lineage or at.version > self.last + 1:
            return True
        return not at.load_id and self.exceeds(at)

    def awaits(self, at: CopyPosition) -> bool:
        """Tell whether a copy *at* this position has ended a load that was not counted."""
        return at.whole and self.load == _load_of(at)


@dataclass(eq=False)
class CopyLedger:
    """Compares the rows that copies took over with the changes that the merges made.

    ``note_added`` takes a hop, and for each table whether its residuals may have changed. ``_hops``
    maps the names of the existing copies to their hops, once known. ``_reached`` maps hop and table
    to the compared version; it is never updated before the residuals can be read.
    """

    database: Database
    note_added: Callable[[str, Mapping[str, bool]], None]
    _hops: Mapping[str, str] | None = None
    _reached: dict[str, dict[str, CopyReach]] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def _minutes(self) -> Minutes:
        return Minutes(self.database)

    def know_places(self, places: Mapping[str, str]) -> None:
        """Store entries of copies by their place; *places* maps the names in the config to places.

        Entries that an earlier version stored by name are copied to the place of this name. They
        also stay under the name, because the name may have had another place.
        """
        hops = {name: place_hop(place) for name, place in places.items()}
        named = ledger_reach.c.lane.in_([copy_hop(name) for name in hops])
        with self.database.read() as connection:
            found = {*connection.scalars(select(ledger_reach.c.lane).where(named))}
        if found:
            with self.database.write() as connection:
                for name, hop in hops.items():
                    _place(connection, copy_hop(name), hop)
        with self._lock:
            self._hops, self._reached = hops, {}

    def hop(self, copy: str) -> str:
        """Return the hop under which the entries of this copy are stored."""
        return (self._hops or {}).get(copy, copy_hop(copy))

    def names(self) -> Mapping[str, str]:
        """Return stored hop -> the hop with the copy's current name."""
        return {hop: copy_hop(name) for name, hop in (self._hops or {}).items()}

    def is_removed(self, hop: str) -> bool:
        """Tell whether *hop* belongs to a copy that is no longer in the config."""
        known = self._hops
        return known is not None and is_copy_hop(hop) and hop not in known.values()

    def add_copied(
        self, copy: str, table: str, done: Sequence[CopiedVersion], at: datetime
    ) -> None:
        """Compare the versions that a copy has followed, oldest first.

        Of a version that it follows again, only missing rows count. A loaded version makes good
        what was missing before it. Versions of another lineage are not compared with those before:
        the versions between were not reported, so they are unknown.
        """
        if not done:
            return
        hop = self.hop(copy)
        before = self.copy_reach(copy).get(table, CopyReach())  # as stored
        with self.database.write() as connection:
            reach, new, odd = self._copied(hop, table), list[LedgerEntry](), False
            for one in done:
                known = reach if one.lineage == reach.lineage else CopyReach()
                highest = one.version if one.at is None else max(known.highest, one.version)
                if one.at is None:
                    odd |= self._minutes.add(connection, table, hop, new, at)
                    odd |= self._add_load(connection, table, hop, one, at)
                    new = []
                else:
                    again = one.version <= known.highest
                    new += settle_copied(one, known.last, at, again=again)
                reach = CopyReach(one.version, one.lineage, highest)
            odd |= self._minutes.add(connection, table, hop, new, at)
            _reach_copy(connection, hop, table, reach)
            if before.load is not None:
                connection.execute(delete(ledger_reach).where(reach_of(_LOADS + hop, table)))
        self.note_added(hop, {table: odd})
        with self._lock:
            self._reached.setdefault(hop, {})[table] = reach

    def note_load(self, copy: str, table: str, at: CopyPosition) -> None:
        """Store that *copy* is being loaded, so that the end of this load is recognised."""
        known, hop = self.copy_reach(copy).get(table, CopyReach()), self.hop(copy)
        if known.load == _load_of(at):
            return
        with self.database.write() as connection:
            store_reach(connection, _LOADS + hop, table, at.load, at.version, lineage=at.lineage)
        with self._lock:
            self._reached.setdefault(hop, {})[table] = replace(known, load=_load_of(at))

    def set_back(self, copy: str, table: str, at: CopyPosition) -> None:
        """Compare versions that *copy* follows from *at* on again, if it was compared further."""
        known, hop = self.copy_reach(copy).get(table, CopyReach()), self.hop(copy)
        if not known.exceeds(at):
            return
        reach = replace(known, last=at.version)
        with self.database.write() as connection:
            _reach_copy(connection, hop, table, reach)
        with self._lock:
            self._reached.setdefault(hop, {})[table] = reach

    def copy_reach(self, copy: str) -> Mapping[str, CopyReach]:
        """Return table -> the version through which *copy* was compared; absent if unknown.

        Residuals that are read later include all rows that it misses up to this version.
        """
        hop = self.hop(copy)
        with self._lock:
            if hop not in self._reached:
                found = self._by_table(hop, _copied_in)
                for table, one in self._by_table(_LOADS + hop, _loaded_in).items():
                    found[table] = replace(found.get(table, CopyReach()), load=one.load)
                self._reached[hop] = found
            return dict(self._reached[hop])

    def _by_table(self, lane: str, decode: Callable[[Row[Any]], CopyReach]) -> dict[str, CopyReach]:
        query = select(ledger_reach).where(ledger_reach.c.lane == lane)
        rows = self.database.decoded(query, ledger_reach, lambda row: (str(row.table), decode(row)))
        return dict(rows)

    def _copied(self, hop: str, table: str) -> CopyReach:
        """Return the version through which a copy was compared; the default reach if unreadable."""
        query = select(ledger_reach).where(reach_of(hop, table))
        found = self.database.decoded(query, ledger_reach, _copied_in)
        return found[0] if found else CopyReach()

    def _add_load(
        self, connection: Connection, table: str, hop: str, load: CopiedVersion, at: datetime
    ) -> bool:
        """Store the residuals that *load* makes good; return whether there are any."""
        lost = (one for one in self._minutes.missing(table, hop) if is_loaded(one, load))
        good = [one.with_proof(f"load of version {load.version}") for one in lost]
        store_entries(connection, table, hop, good, at)
        return bool(good)


def is_reach_of_copy(lane: ColumnElement[str]) -> ColumnElement[bool]:
    """Return the condition that *lane*, of a row of ``ledger_reach``, belongs to a copy."""
    return or_(*(lane.startswith(each, autoescape=True) for each in (copy_hop(""), _LOADS)))


def _place(connection: Connection, named: str, hop: str) -> None:
    """Copy minutes and move reach of hop *named* to *hop*, for tables that are new to *hop*."""
    lane, table = ledger_reach.c.lane, ledger_reach.c.table
    known = select(table).where(lane == hop)
    new = and_(lane == named, table.not_in(known))
    own = and_(ledger_minutes.c.hop == named, ledger_minutes.c.table.in_(select(table).where(new)))
    columns = [literal(hop) if one.name == "hop" else one for one in ledger_minutes.c]
    copied = insert(ledger_minutes).from_select([*ledger_minutes.c], select(*columns).where(own))
    connection.execute(copied.prefix_with("OR REPLACE"))
    connection.execute(update(ledger_reach).where(new).values(lane=hop))


def _copied_in(row: Row[Any]) -> CopyReach:
    last = read_integer(row.last)
    return CopyReach(last, str(row.mirror or ""), max(last, read_integer(row.first)))


def _loaded_in(row: Row[Any]) -> CopyReach:
    return CopyReach(load=(str(row.mirror or ""), read_integer(row.last), read_integer(row.first)))


def _load_of(at: CopyPosition) -> tuple[str, int, int]:
    return at.lineage, at.version, at.load


def _reach_copy(connection: Connection, hop: str, table: str, reach: CopyReach) -> None:
    store_reach(connection, hop, table, reach.highest, reach.last, lineage=reach.lineage)
