"""Stores the ledger: rows by minute, table, op and hop, and what is still on its way.

Batches wait in ``ledger_open`` until a merge has reached them. Then they are compared, once, and
only the minutes stay. Each report is stored in one transaction. A report that is missing leaves
its batches UNKNOWN: nothing counts it as a loss.

Balanced and unknown minutes stay for some hours, minutes that were made good for 42 days. Residuals
stay until they are made good, so that none ends by its age. What was proven stays proven: the proof
is stored with the minute, and is not asked for again.

The hop of a copy is stored by its place, not by its name: what a store misses stays with it,
though the config renames it. Earlier versions stored it by name.
"""

import json
import threading
import time
from collections import deque
from collections.abc import (
    Callable,
    Collection,
    ItemsView,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    and_,
    case,
    delete,
    exists,
    func,
    insert,
    literal,
    or_,
    select,
    true,
    tuple_,
    update,
)

from checks.ledger import (
    COUNTING_CHECK,
    LANDING_HOP,
    LEDGER_HOPS,
    NO_LOSSES,
    LandedBatch,
    LedgerEntry,
    MergedBatches,
    Recorded,
    Residual,
    TableLosses,
    add_entries,
    copy_hop,
    count_in_flight,
    group_residuals,
    inherit_missing,
    is_copy_hop,
    is_loaded,
    leave_unknown,
    minute_of,
    place_hop,
    settle_copied,
    settle_landing,
    settle_merge,
)
from checks.model import Outcome, Verdict
from monitor.store.database import Database
from monitor.store.history import HISTORY, LONG, delete_rows
from monitor.store.received import Received, find_tables
from monitor.store.schema import ledger_minutes, ledger_open, ledger_reach
from pipeline.copies.copy import CopiedVersion, CopyPosition
from pipeline.errors import UnreachableError
from pipeline.minute_counts import MINUTES, NO_MINUTE, is_minute
from pipeline.model import Hop
from pipeline.reports import LandingReport, MergeReport

KEPT = timedelta(hours=6)  # of minutes without a residual
MOST_WAITING = 100_000  # batches that wait for a merge; older ones are given up and unknown
_AT_ONCE = 500  # tables that one statement names
_LOST_AT_ONCE = 100  # tables and hops of which one statement reads residuals
_TOGETHER = 20  # merges that are compared in one transaction
_REMOVED = copy_hop("")  # of all copies that the config does not name any more
_COMPARED = 500  # batches after which a transaction compares no other merge
MOST_COUNTED = 1_000  # minutes of a table that wait for a store that takes nothing
MOST_RESIDUAL = 2**40  # rows of a minute that are stored as its residual
MOST_LOST = 1_000  # minutes with a residual that are read of a table and hop
EVERY_TABLE = ""  # the row of ``ledger_reach`` of the batches that landing has reported
_TOPICS = f"{LANDING_HOP}:"  # rows of ``ledger_reach``: by lane, batches whose topics were counted
_LOADS = "load:"  # rows of ``ledger_reach``: by hop, the load of a copy that has not been counted
UNREADABLE = "unreadable"  # op of missing rows whose counts cannot be read
UNREAD = Recorded(2**62, 2**62)  # above each batch: so none is known to be recorded

Residuals = Mapping[tuple[str, str], int | None]
"""(Table, hop) -> rows; None while that is unknown."""


@dataclass(frozen=True, slots=True)
class CountedHop:
    """Minutes of a table that a check has counted; ``proven``: nothing is missing any more."""

    at: datetime
    entries: tuple[LedgerEntry, ...] = ()
    proven: bool = False


@dataclass(frozen=True, slots=True)
class CopyReach:
    """The version through which a copy was compared, and the lineage of its rows; -1 before any.

    The lineage is empty if an earlier version of Sluice stored none: then it may be any.
    ``highest`` is above ``last`` while a copy that was set back follows versions again: it was
    compared through that one before.  ``load`` is the (lineage, version, number) of a load that has
    not been counted: it may have ended.
    """

    last: int = -1
    lineage: str = ""
    highest: int = -1
    load: tuple[str, int, int] | None = None

    def covers(self, at: CopyPosition) -> bool:
        """Whether a copy that is *at* this position took over nothing that was not compared."""
        return self.lineage == at.lineage and self.last >= at.version and not self.awaits(at)

    def exceeds(self, at: CopyPosition) -> bool:
        """Whether a copy that is *at* this position was compared further before: it was set back.

        Only if this reach is not newer than the position.
        """
        return self.lineage == at.lineage and self.last > at.version

    def needs_load(self, at: CopyPosition) -> bool:
        """Whether a copy that is *at* this position was restored from a backup of another load.

        A copy that was set back may be that, too, if its load has no id.
        """
        if not at.whole or self.last < 0 or not self.lineage or self.awaits(at):
            return False
        return self.lineage != at.lineage or (not at.load_id and self.exceeds(at))

    def awaits(self, at: CopyPosition) -> bool:
        """Whether a copy that is *at* this position has ended a load that was not counted."""
        return at.whole and self.load == _load_of(at)

    def precedes(self, one: CopiedVersion) -> bool:
        """Whether a copy that has come to hold *one* took over nothing in between."""
        known = self.last >= 0 and self.lineage in {"", one.lineage}
        return known and one.version <= self.last + 1


@dataclass(eq=False)
class Ledger:
    """The ledger of one lane; ``_early`` are merges of batches that landing has not reported yet.

    They are in memory only, because each process reports the newest merge of a table again.
    ``_copies`` has by name the hops of the copies that there are, once they are known.
    ``_residuals`` and ``_losses`` are as stored but for those of the ``_changed`` tables; None: of
    all tables. ``_reached`` has by hop of a copy and table what was compared, never before its
    residuals can be read.
    """

    database: Database
    _early: dict[str, MergeReport] = field(default_factory=dict)
    _residuals: Residuals = field(default_factory=dict, repr=False)
    _losses: Mapping[tuple[str, str], TableLosses] = field(default_factory=dict, repr=False)
    _changed: set[str] | None = None
    _lane: str | None = None  # of this service, once it has landed
    _reading: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _merging: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _receiving: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _received: Received = field(init=False, repr=False)
    _counted: dict[str, CountedHop] = field(default_factory=dict, repr=False)
    _copies: Mapping[str, str] | None = None
    _reached: dict[str, dict[str, CopyReach]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Read what topics brought that waits to be stored."""
        self._received = Received(self.database)

    def know_copies(self, places: Mapping[str, str]) -> None:
        """Count what a copy does at its place; *places* are by the names that the config has.

        What an earlier version stored by name goes to the place of this name. What was missing then
        is kept beside that, because the name may have had another place.
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
            self._copies, self._reached, self._changed = hops, {}, None

    def _hop(self, copy: str) -> str:
        """Return the hop under which what a copy of this name does is stored."""
        return (self._copies or {}).get(copy, copy_hop(copy))

    def _names(self) -> Mapping[str, str]:
        """Return the hop by which what a copy does is stored -> the one that has its name."""
        return {hop: copy_hop(name) for name, hop in (self._copies or {}).items()}

    def note_counts(self, verdict: Verdict, at: datetime) -> None:
        """Keep what the check of a hop counted until the next transaction, with others' counts.

        A PASS of it proves that what was missing has landed, or that a new base has it.
        """
        if verdict.check != COUNTING_CHECK:
            return
        key, passed = (verdict.table, Hop.COLLECTION.value), verdict.ruling.outcome is Outcome.PASS
        proven = passed and bool(self._residuals.get(key))  # as read last: the next PASS says more
        if not verdict.counted and not proven:
            return
        with self._lock:
            known = self._counted.get(verdict.table, CountedHop(at))
            entries = (*known.entries, *verdict.counted)[-MOST_COUNTED:]
            self._counted[verdict.table] = CountedHop(at, entries, proven=proven)

    @property
    def waits(self) -> bool:
        """Tell whether counts of checks wait for a transaction."""
        return bool(self._counted)

    def write(self, connection: Connection) -> Callable[[], None]:
        """Write counts of checks, of few tables at once; call the result after the commit."""
        with self._lock:
            some = dict(islice(self._counted.items(), _TOGETHER))
        odd = {table: self._add_counted(connection, table, one) for table, one in some.items()}

        def forget() -> None:
            with self._lock:
                for table, one in some.items():
                    if self._counted.get(table) is one:
                        del self._counted[table]
                    else:  # more was counted meanwhile
                        more, written = self._counted[table], set(map(id, one.entries))
                        left = tuple(each for each in more.entries if id(each) not in written)
                        self._counted[table] = replace(more, entries=left)
            self._note_added(Hop.COLLECTION, odd)

        return forget

    def add_landing(self, report: LandingReport) -> None:
        """Record the rows that a batch landed; a round without a batch changes nothing."""
        if report.batch is None:
            return
        lane, batch, at = report.lane, report.batch, report.started
        self._lane = lane
        rows = [
            {"lane": lane, "table": table, "batch": batch, "at": at, "counts": counts}
            for table, counts in report.minutes.items()
        ]
        with self._receiving:
            counted = self._recorded(_TOPICS, lane)
            received = self._settle_topics(report, counted)
            wrong = [(table, one) for table, one in received if one.missing]
            with self.database.write() as connection:
                known = self._recorded(lane)
                if batch <= known.last:
                    _forget_from(connection, lane, batch)
                now, counted = known.with_batch(batch), counted.with_batch(batch)
                _reach(connection, lane, EVERY_TABLE, now.first, now.last)
                if rows:
                    connection.execute(insert(ledger_open), rows)
                _reach(connection, _TOPICS, lane, counted.first, counted.last)
                self._add_to_tables(connection, LANDING_HOP, wrong, at + report.took)
                whole = [(table, one) for table, one in received if not one.missing]
                added = self._received.add(connection, whole)
            added()
        self._note_changed({table for table, _ in wrong})
        with suppress(UnreachableError):  # the next report tries again
            self._store_received(at)

    def _settle_topics(
        self, report: LandingReport, counted: Recorded
    ) -> list[tuple[str, LedgerEntry]]:
        """Compare what topics brought in a batch.

        If the batch before it was not counted, it may be of this minute or of the newest one: those
        are unknown. It was lost, or an earlier version reported it without its topics.
        """
        landed, batch = report.started, report.batch or 0
        at = landed + report.took
        new = [
            (table, settle_landing(one, batch, landed, at)) for table, one in report.topics.items()
        ]
        return new if batch == counted.last + 1 else [*new, *self._unreported(report)]

    def _unreported(self, report: LandingReport) -> list[tuple[str, LedgerEntry]]:
        """Entries of the minutes in which a batch may have landed that was not reported."""
        minute, here = ledger_minutes.c.minute, minute_of(report.started)
        own = and_(ledger_minutes.c.hop == LANDING_HOP, minute.between(*MINUTES))
        with self.database.read() as connection:
            newest = connection.scalar(select(func.max(minute)).where(own))
        waiting = [*self._received.entries()]
        minutes = [one.minute for _, one in waiting] + ([] if newest is None else [int(newest)])
        tables = {*report.topics, *report.minutes, *(table for table, _ in waiting)}
        tables |= find_tables(self.database)
        return [
            (table, LedgerEntry(minute, unknown=True, batch=report.batch or 0))
            for table in sorted(tables)
            for minute in {here, max(minutes, default=here)}
        ]

    def _store_received(self, now: datetime) -> None:
        """Store what topics brought in other minutes than that of *now*, a part at once."""
        for key in [key for key in self._received.parts if key[0] != minute_of(now)]:
            began = time.monotonic()
            with self._receiving:
                part = self._received.parts.get(key)
                if part is None:
                    continue
                with self.database.write() as connection:
                    self._add_to_tables(connection, LANDING_HOP, part.entries.items(), part.at(now))
                    forget = self._received.delete(connection, key)
                unknown = {table: one.unknown for table, one in part.entries.items()}
                self._note_added(LANDING_HOP, unknown)
                forget()
            time.sleep(min(time.monotonic() - began, LONG))

    def _add_to_tables(
        self,
        connection: Connection,
        hop: str,
        new: Collection[tuple[str, LedgerEntry]],
        at: datetime,
    ) -> None:
        """Add entries of many tables to those of their minutes."""
        there = self._of_tables(hop, new)
        for table, one in new:
            key = (table, one.minute)
            there[key] = there[key].with_more(one) if key in there else one
        written = {(table, one.minute) for table, one in new}
        _replace(connection, [_row(key[0], hop, there[key], at) for key in sorted(written)])

    def add_merges(self, lane: str, merges: Iterable[MergeReport], at: datetime) -> None:
        """Compare each merge with the batches it covers; one that was compared changes nothing.

        Few tables are one transaction, and one alone that had many batches to wait for, so that
        other writers wait for a moment only.  Never call it inside a transaction: a reader would
        miss what is not committed yet.
        """
        new = [one for one in merges if one.since is not None and one.hold is None]
        if not new and not self._early:
            return
        with self._merging:
            early: dict[str, MergeReport] = {}
            waiting = deque((*self._early.values(), *new))
            while waiting:
                began, tables, compared = time.monotonic(), dict[str, bool](), 0
                with self.database.write() as connection:
                    recorded = self._recorded(lane)
                    while waiting and len(tables) < _TOGETHER and compared < _COMPARED:
                        one = waiting.popleft()
                        tables.setdefault(one.table, False)
                        if one.batch > recorded.last or one.table in early:
                            early[one.table] = one  # of two, the one before becomes unknown
                        else:
                            batches, odd = self._settle(connection, lane, one, recorded, at)
                            compared += batches
                            tables[one.table] |= odd
                self._note_added(Hop.MERGE, tables)
                if waiting:  # the lock is not fair, and a waiting writer would not get it otherwise
                    time.sleep(min(time.monotonic() - began, LONG))
            self._early = early

    def add_copied(
        self, copy: str, table: str, done: Sequence[CopiedVersion], at: datetime
    ) -> None:
        """Compare what a copy has followed, oldest first.

        Of a version that it follows again, only what is missing counts. A version that was loaded
        makes good what was missing before it.  Versions of another lineage are not compared with
        those before: what came between was not reported, so it is unknown. If what it holds came
        neither by a load nor by versions that were compared, its place may be a removed one by
        another address: it misses what those lacked.
        """
        if not done:
            return
        hop = self._hop(copy)
        before = self.copy_reach(copy).get(table, CopyReach())  # as it was stored
        with self.database.write() as connection:
            reach, new, odd = self._copied(hop, table), list[LedgerEntry](), False
            for one in done:
                if one.at is not None and not reach.precedes(one):
                    odd |= self._inherit(connection, table, hop, at)
                known = reach if one.lineage == reach.lineage else CopyReach()
                highest = one.version if one.at is None else max(known.highest, one.version)
                if one.at is None:
                    odd |= self._add(connection, table, hop, new, at)
                    odd |= self._add_load(connection, table, hop, one, at)
                    new = []
                else:
                    again = one.version <= known.highest
                    new += settle_copied(one, known.last, at, again=again)
                reach = CopyReach(one.version, one.lineage, highest)
            odd |= self._add(connection, table, hop, new, at)
            _reach_copy(connection, hop, table, reach)
            if before.load is not None:
                connection.execute(delete(ledger_reach).where(_reach_of(_LOADS + hop, table)))
        self._note_added(hop, {table: odd})
        with self._lock:
            self._reached.setdefault(hop, {})[table] = reach

    def note_load(self, copy: str, table: str, at: CopyPosition) -> None:
        """Store that *copy* is being loaded, so that the end of the load is known as that."""
        known, hop = self.copy_reach(copy).get(table, CopyReach()), self._hop(copy)
        if known.load == _load_of(at):
            return
        with self.database.write() as connection:
            _reach(connection, _LOADS + hop, table, at.load, at.version, lineage=at.lineage)
        with self._lock:
            self._reached.setdefault(hop, {})[table] = replace(known, load=_load_of(at))

    def set_back(self, copy: str, table: str, at: CopyPosition) -> None:
        """Compare again what *copy* follows from *at* on, if it was compared further before."""
        known, hop = self.copy_reach(copy).get(table, CopyReach()), self._hop(copy)
        if not known.exceeds(at):
            return
        reach = replace(known, last=at.version)
        with self.database.write() as connection:
            _reach_copy(connection, hop, table, reach)
        with self._lock:
            self._reached.setdefault(hop, {})[table] = reach

    def copy_reach(self, copy: str) -> Mapping[str, CopyReach]:
        """Return table -> through which version *copy* was compared; absent if that is unknown.

        Residuals that are read later have all that it misses until there.
        """
        hop = self._hop(copy)
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

    def entries(
        self, table: str, since: int, until: int, copies: Iterable[str] = ()
    ) -> Mapping[str, tuple[LedgerEntry, ...]]:
        """Return hop -> entries of *table* in minutes ``[since, until)``, ascending."""
        own = ledger_minutes.c.table == table
        when = and_(own, ledger_minutes.c.minute >= since, ledger_minutes.c.minute < until)
        flying = count_in_flight(self._open(ledger_open.c.table == table))
        found = dict[str, list[LedgerEntry]]()
        stored = {hop: str(hop) for hop in LEDGER_HOPS}
        stored |= {copy_hop(copy): self._hop(copy) for copy in copies}
        with self._receiving:  # no minute that waits is stored meanwhile
            for hop, own_hop in stored.items():
                found[hop] = self._minutes(and_(when, ledger_minutes.c.hop == own_hop))
            waiting = self._received.of_table(table)
        found[LANDING_HOP] += [one for one in waiting if since <= one.minute < until]
        found[Hop.MERGE] += [one for one in flying if since <= one.minute < until]
        return {hop: add_entries(own) for hop, own in found.items() if own}

    def residuals(self) -> Residuals:
        """Return (table, hop) -> rows that are missing or too many, of the kept minutes.

        None where none is known of, and a minute is unknown; absent where no minute is kept.  Only
        minutes of tables that have changed since it was asked last are read.
        """
        self._read_changed()
        stored = self._residuals
        found = {**stored, **self._waiting_residuals(stored)}
        names = self._names()
        return {
            (table, names.get(hop, hop)): rows
            for (table, hop), rows in found.items()
            if not self._is_removed(hop)
        }

    def residual_minutes(self, table: str) -> Mapping[str, tuple[int, int]]:
        """Return hop -> first and last minute of *table* with a residual; absent without any.

        The hop of a copy is by its name, as in :meth:`residuals`.
        """
        hop, minute = ledger_minutes.c.hop, ledger_minutes.c.minute
        own = and_(ledger_minutes.c.table == table, ledger_minutes.c.residual != 0)
        known = and_(own, minute.between(*MINUTES))  # no unreadable one
        query = select(hop, func.min(minute), func.max(minute)).where(known).group_by(hop)
        with self.database.read() as connection:
            found = connection.execute(query).all()
        names = self._names()
        return {
            names.get(hop, str(hop)): (int(first), int(last))
            for hop, first, last in found
            if not self._is_removed(hop)
        }

    def _waiting_residuals(self, stored: Residuals) -> Residuals:
        """Residuals at the hop from the topics, with minutes that are not stored yet."""
        found = dict[tuple[str, str], int | None]()
        for table, one in self._received.entries():
            key = (table, LANDING_HOP)
            rows = found.get(key, stored.get(key, 0))
            found[key] = rows or (None if rows is None or one.unknown else 0)
        return found

    def losses(self) -> Mapping[str, TableLosses]:
        """Return table -> its residuals that are not made good; read as :meth:`residuals`.

        Without those of its copies.
        """
        self._read_changed()
        return {table: one for (table, hop), one in self._losses.items() if not hop}

    def copy_losses(self, table: str, copy: str) -> TableLosses:
        """Return the residuals of a *copy* of *table*, as :meth:`losses`.

        Until its first report, those of removed copies of *table* too: its place may be one of
        those by another address.
        """
        hop = self._hop(copy)
        known = self._reached.get(hop)
        reach = self.copy_reach(copy) if known is None else known
        reported = reach.get(table, CopyReach()).last >= 0  # before its residuals are read
        self._read_changed()
        losses = self._losses
        own, removed = losses.get((table, hop), NO_LOSSES), losses.get((table, _REMOVED))
        if removed is not None and not reported:
            own += removed
        return own.at_hop(copy_hop(copy))

    def _is_removed(self, hop: str) -> bool:
        """Whether it is the hop of a copy that the config does not have any more."""
        known = self._copies
        return known is not None and is_copy_hop(hop) and hop not in known.values()

    def make_good(self, table: str, *proven: tuple[Residual, str]) -> None:
        """Store that residuals of *table* are made good, and by what; not what was found since.

        All are one transaction.
        """
        with self.database.write() as connection:
            for residual, proof in proven:
                self._prove(connection, table, residual, proof)
        self._note_changed({table})

    def _prove(self, connection: Connection, table: str, residual: Residual, proof: str) -> None:
        minutes = sorted(residual.missing)
        for start in range(0, len(minutes), _AT_ONCE):
            own = and_(*_of_hop(table, residual.hop))
            some = ledger_minutes.c.minute.in_(minutes[start : start + _AT_ONCE])
            query = select(ledger_minutes).where(own, some)
            for row in self.database.decoded(query, ledger_minutes, _entry_at):
                one, at = row
                if one.found == residual.at and one.missing:
                    _store_entries(connection, table, residual.hop, [one.with_proof(proof)], at)

    def _read_changed(self) -> None:
        """Read again what changed since it was read last; no writer waits for that."""
        with self._reading, ExitStack() as failed:
            with self._lock:
                changed, self._changed = self._changed, set()
            failed.callback(self._note_changed, None)  # then all are read next time
            if changed is None:
                self._residuals = self._sum_residuals(true())
                self._losses = dict(self._find_losses({table for table, _ in self._residuals}))
            elif changed:
                self._read_tables(sorted(changed))
            failed.pop_all()

    def _read_tables(self, tables: Sequence[str]) -> None:
        changed = {*tables}
        kept = {key: rows for key, rows in self._residuals.items() if key[0] not in changed}
        for start in range(0, len(tables), _AT_ONCE):
            some = ledger_minutes.c.table.in_(tables[start : start + _AT_ONCE])
            kept |= self._sum_residuals(some)
        self._residuals = kept
        losses = {key: one for key, one in self._losses.items() if key[0] not in changed}
        self._losses = losses | dict(self._find_losses(changed))

    def _find_losses(
        self, tables: Collection[str]
    ) -> Iterator[tuple[tuple[str, str], TableLosses]]:
        """Of the hops that no check speaks for, by table and the hop of a copy, else nothing.

        Those of copies that the config does not have any more are together.
        """
        some = ((key, rows) for key, rows in self._residuals.items() if key[0] in tables)
        lost = {key: rows for key, rows in some if rows and key[1] != Hop.COLLECTION.value}
        found = dict[tuple[str, str], TableLosses]()
        for (table, hop), read in self._read_lost(sorted(lost)):
            rows = lost[table, hop]
            entries = [one for one in read if isinstance(one, LedgerEntry)]
            unread = sum(one for one in read if isinstance(one, int))
            own = group_residuals(_known_hop(hop), entries) if entries else ()
            if own and len(read) == MOST_LOST:  # the newest may go on
                own = (*own[:-1], replace(own[-1], whole=False))
            known = unread + sum(one.rows for one in own)
            more = max(rows - known, 0)  # a merge may have come between
            whose = _REMOVED if self._is_removed(hop) else hop if is_copy_hop(hop) else ""
            losses = TableLosses(own, more, unread)
            found[table, whose] = found.get((table, whose), NO_LOSSES) + losses
        yield from found.items()

    def _read_lost(
        self, keys: Sequence[tuple[str, str]]
    ) -> Iterator[tuple[tuple[str, str], list[LedgerEntry | int]]]:
        """Yield the oldest minutes with a residual of each table and hop, many at once.

        An unreadable row is found by halves. Of it there are the rows that are missing.
        """
        if not 0 < len(keys) <= _LOST_AT_ONCE:
            for start in range(0, len(keys), _LOST_AT_ONCE):
                yield from self._read_lost(keys[start : start + _LOST_AT_ONCE])
            return
        own = (ledger_minutes.c.table, ledger_minutes.c.hop)
        oldest = (ledger_minutes.c.found, ledger_minutes.c.minute)
        wrong = and_(tuple_(*own).in_(keys), ledger_minutes.c.residual != 0)
        place = func.row_number().over(partition_by=own, order_by=oldest).label("place")
        ranked = select(ledger_minutes, place).where(wrong).subquery()
        query = select(ranked).where(ranked.c.place <= MOST_LOST)
        read = self.database.readable(
            query.order_by(ranked.c.table, ranked.c.hop, ranked.c.place),
            lambda row: ((row.table, row.hop), _entry(row)),
        )
        if read is not None:
            found: dict[tuple[str, str], list[LedgerEntry | int]] = {key: [] for key in keys}
            for key, one in read:
                found[key].append(one)
            yield from found.items()
        elif len(keys) > 1:
            yield from self._read_lost(keys[: len(keys) // 2])
            yield from self._read_lost(keys[len(keys) // 2 :])
        else:
            few = select(ledger_minutes).where(wrong).order_by(*oldest).limit(MOST_LOST)
            yield keys[0], self.database.decoded(few, ledger_minutes, _entry, _lost_rows)

    def _sum_residuals(self, which: ColumnElement[bool]) -> dict[tuple[str, str], int | None]:
        columns = (ledger_minutes.c.table, ledger_minutes.c.hop)
        residual = ledger_minutes.c.residual
        rows = case((func.typeof(residual) == "integer", residual), else_=1)  # one if unreadable
        total = func.total(rows)  # a sum fails above 2**63
        sums = (total, func.max(ledger_minutes.c.unknown))
        with self.database.read() as connection:
            query = select(*columns, *sums).where(which).group_by(*columns)
            found = connection.execute(query).all()
        return {
            (table, hop): int(rows) if rows or not unknown else None
            for table, hop, rows, unknown in found
        }

    def _note_changed(self, tables: Collection[str] | None) -> None:
        """Let the next question read *tables* again; None: all."""
        with self._lock:
            known = self._changed
            self._changed = None if known is None or tables is None else known | {*tables}

    def _note_added(self, hop: str, added: Mapping[str, bool]) -> None:
        """Read again tables whose minutes of *hop* were written: if any is odd, or it is new.

        Minutes that balance change no other residual than one that is not known yet.
        """
        known = self._residuals
        self._note_changed(
            {table for table, odd in added.items() if odd or (table, hop) not in known}
        )

    def _find_ended(self) -> set[str]:
        """Return the tables whose residuals may be others without the minutes that were deleted.

        At a hop that missed nothing, that is so if no minute is left, and at one that is unknown,
        if no minute is that any more. Minutes with a residual may have been repaired by a person.
        """
        with self._reading:  # what is being read may have been there before
            known = self._residuals
        found = {table for (table, _), rows in known.items() if rows}
        balanced, unknown = ledger_minutes.c.residual == 0, ledger_minutes.c.unknown > 0
        for rows, left in ((0, true()), (None, and_(balanced, unknown))):
            keys = json.dumps([key for key, own in known.items() if own == rows])
            one = func.json_each(keys).table_valued("value")
            table, hop = (func.json_extract(one.c.value, f"$[{place}]") for place in range(2))
            same = and_(ledger_minutes.c.table == table, ledger_minutes.c.hop == hop, left)
            with self.database.read() as connection:
                found |= {*connection.scalars(select(table).where(~exists().where(same)))}
        return found

    def prune(self, now: datetime) -> int:
        """Delete old minutes without a residual, and batches that nothing merged.

        Batches are old by their numbers, because a clock that is ahead makes all of them old.
        Nothing merges those of a lane that this service does not land in any more.
        """
        self._store_received(now)
        old = ledger_minutes.c.at < now - HISTORY
        quiet = and_(ledger_minutes.c.at < now - KEPT, ledger_minutes.c.made_good.is_(None))
        whole = and_(ledger_minutes.c.residual == 0, old | quiet)
        gone = delete_rows(self.database, ledger_minutes, whole)
        with self.database.read() as connection:
            lanes = connection.scalars(select(ledger_open.c.lane).distinct()).all()
        gone += sum(map(self._give_up, lanes))
        if self._lane is not None:
            row = ledger_reach.c.lane
            copied = or_(
                *(row.startswith(each, autoescape=True) for each in (copy_hop(""), _LOADS))
            )
            other = and_(row.not_in((self._lane, _TOPICS)), ~copied)
            delete_rows(self.database, ledger_reach, other)
            gone += delete_rows(self.database, ledger_open, ledger_open.c.lane != self._lane)
        self._note_changed(self._find_ended())
        return gone

    def give_up_removed(self, lane: str, kept: Collection[str], through: int, at: datetime) -> int:
        """Give up batches up to *through* of tables that are not *kept*: nothing merges them.

        Their minutes are unknown, and so is what a merge reads again of them, if a table comes
        back.  What is missing stays.  Returns how many batches there were.
        """
        old = and_(ledger_open.c.lane == lane, ledger_open.c.batch <= through)
        with self.database.read() as connection:
            waiting = {*connection.scalars(select(ledger_open.c.table).where(old).distinct())}
        removed, gone = sorted(waiting - {*kept}), 0
        for table in removed:
            while some := self._give_up_table(lane, table, through, at):
                gone += some
        self._note_changed(removed)
        return gone

    def _give_up_table(self, lane: str, table: str, through: int, at: datetime) -> int:
        """Give up the oldest batches of *table*, few at once; return how many."""
        own = and_(ledger_open.c.lane == lane, ledger_open.c.table == table)
        batch = ledger_open.c.batch
        with self.database.write() as connection:
            oldest = select(batch).where(own, batch <= through).order_by(batch).limit(_COMPARED)
            numbers = connection.scalars(oldest).all()
            if not numbers:
                return 0
            some = and_(own, batch <= numbers[-1])
            self._add(connection, table, Hop.MERGE, leave_unknown(self._open(some)), at)
            connection.execute(delete(ledger_open).where(some))
            settled = max(self._recorded(lane, table).last, numbers[-1])
            _reach(connection, lane, table, -1, settled)
        return len(numbers)

    def _give_up(self, lane: str) -> int:
        with self.database.write() as connection:
            known = self._recorded(lane)
            if known == UNREAD:  # until the next landing
                return 0
            first = known.last - MOST_WAITING + 1
            old = and_(ledger_open.c.lane == lane, ledger_open.c.batch < first)
            if connection.scalar(select(func.count()).where(old)):
                _reach(connection, lane, EVERY_TABLE, max(known.first, first), known.last)
        return delete_rows(self.database, ledger_open, old)

    def _recorded(self, lane: str, table: str = EVERY_TABLE) -> Recorded:
        """Return what was recorded of *table*, or of the lane; `UNREAD` if that is unreadable."""
        query = select(ledger_reach).where(_reach_of(lane, table))
        found = self.database.decoded(query, ledger_reach, _recorded_in, lambda _: UNREAD)
        return found[0] if found else Recorded()

    def _copied(self, hop: str, table: str) -> CopyReach:
        """Return through which version a copy was compared; none if that is unreadable."""
        query = select(ledger_reach).where(_reach_of(hop, table))
        found = self.database.decoded(query, ledger_reach, _copied_in)
        return found[0] if found else CopyReach()

    def _settle(
        self,
        connection: Connection,
        lane: str,
        merge: MergeReport,
        recorded: Recorded,
        at: datetime,
    ) -> tuple[int, bool]:
        """Compare *merge* with its batches; return how many there were, and as :meth:`_add`."""
        table, account = merge.table, merge.account
        settled = self._recorded(lane, table).last
        if settled > recorded.last or recorded == UNREAD:  # which batches it had is not known
            settled, recorded = -1, UNREAD
        if merge.since is None or merge.batch <= settled:
            return 0, False  # a merge is reported again after a restart
        merged = MergedBatches(merge.since, merge.batch, at, account.minutes, account.explained)
        own = and_(ledger_open.c.lane == lane, ledger_open.c.table == table)
        passed = and_(own, ledger_open.c.batch <= merge.batch)
        unread = and_(own, func.typeof(ledger_open.c.batch) != "integer")  # it may be any
        landed = self._open(or_(passed, unread), merge.batch)
        new = settle_merge(merged, landed, recorded, settled)
        odd = self._add(connection, table, Hop.MERGE, new, at)
        connection.execute(delete(ledger_open).where(passed))
        _reach(connection, lane, table, -1, merge.batch)
        return len(landed), odd

    def _add(
        self,
        connection: Connection,
        table: str,
        hop: str,
        new: Sequence[LedgerEntry],
        at: datetime,
    ) -> bool:
        """Add *new* entries to those of their minutes; return whether one of them is odd."""
        if not new:
            return False
        there = self._of_minutes(table, hop, {one.minute for one in new})
        every = add_entries([*there.values(), *new])
        _store_entries(connection, table, hop, every, at)
        return _are_odd([*there.values(), *every])

    def _missing(self, table: str, hop: str) -> list[LedgerEntry]:
        lost = self._minutes(and_(*_of_hop(table, hop), ledger_minutes.c.residual != 0))
        return [one for one in lost if one.missing]

    def _add_load(
        self, connection: Connection, table: str, hop: str, load: CopiedVersion, at: datetime
    ) -> bool:
        """Store what the *load* makes good; return whether that is anything."""
        lost = (one for one in self._missing(table, hop) if is_loaded(one, load))
        good = [one.with_proof(f"load of version {load.version}") for one in lost]
        _store_entries(connection, table, hop, good, at)
        return bool(good)

    def _inherit(self, connection: Connection, table: str, hop: str, at: datetime) -> bool:
        """Count what removed copies of *table* miss as what the copy of *hop* misses, too.

        They may have moved on by this hop, so how far they were compared is not known any more.
        Return whether they miss anything else.
        """
        if self._copies is None:
            return False
        lost = and_(ledger_minutes.c.table == table, ledger_minutes.c.residual != 0)
        theirs = and_(lost, _of_other_copies(ledger_minutes.c.hop, self._copies))
        query = select(ledger_minutes).where(theirs)
        salvage = partial(_unread_minute, otherwise=1)
        found = self.database.decoded(query, ledger_minutes, _entry, salvage)
        there = self._of_minutes(table, hop, {one.minute for one in found}) if found else {}
        new = dict[int, LedgerEntry]()
        for one in found:
            own = new.get(one.minute) or there.get(one.minute, LedgerEntry(one.minute))
            more = inherit_missing(one, own)
            if more.missing:
                new[one.minute] = own.with_more(more)
        _store_entries(connection, table, hop, [*new.values()], at)
        reach = _of_other_copies(ledger_reach.c.lane, self._copies)
        connection.execute(delete(ledger_reach).where(ledger_reach.c.table == table, reach))
        return bool(new)

    def _add_counted(self, connection: Connection, table: str, counted: CountedHop) -> bool:
        """Add what was not added before, as :meth:`_add`: a check counts again after a restart."""
        hop, at, every = Hop.COLLECTION, counted.at, tuple[LedgerEntry, ...]()
        if counted.entries:
            there = self._of_minutes(table, hop, {one.minute for one in counted.entries})
            news = [
                one
                for one in counted.entries
                if one.minute not in there or there[one.minute].batch < one.batch
            ]
            every = add_entries([*there.values(), *news])
            _store_entries(connection, table, hop, every, at)
        if counted.proven:
            proof = f"{COUNTING_CHECK} passes"
            good = [one.with_proof(proof) for one in self._missing(table, hop)]
            if good:
                _store_entries(connection, table, hop, good, at)
        return counted.proven or _are_odd(every)

    def _of_minutes(self, table: str, hop: str, wanted: Set[int]) -> dict[int, LedgerEntry]:
        """Return the stored entries of the *wanted* minutes (at least one)."""
        minute = ledger_minutes.c.minute
        near = and_(*_of_hop(table, hop), minute >= min(wanted), minute <= max(wanted))
        return {one.minute: one for one in self._minutes(near) if one.minute in wanted}

    def _open(self, which: ColumnElement[bool], unread: int = 0) -> list[LandedBatch]:
        """Return open batches; *unread* is the number of one whose own is unreadable."""
        query = select(ledger_open).where(which).order_by(ledger_open.c.batch)
        salvage = partial(_unread_batch, otherwise=unread)
        return self.database.decoded(query, ledger_open, _landed, salvage)

    def _of_tables(
        self, hop: str, new: Collection[tuple[str, LedgerEntry]]
    ) -> dict[tuple[str, int], LedgerEntry]:
        """Return the stored entries of the tables and minutes of *new*, few tables at once."""
        tables, minutes = sorted({table for table, _ in new}), {one.minute for _, one in new}
        found = dict[tuple[str, int], LedgerEntry]()
        for start in range(0, len(tables), _AT_ONCE):
            some = ledger_minutes.c.table.in_(tables[start : start + _AT_ONCE])
            own = and_(some, ledger_minutes.c.hop == hop, ledger_minutes.c.minute.in_(minutes))
            entries = self.database.decoded(
                select(ledger_minutes).where(own),
                ledger_minutes,
                lambda row: (row.table, _entry(row)),
                lambda stored: (str(stored["table"] or b"", "utf-8"), _unread_minute(stored)),
            )
            found |= {(table, one.minute): one for table, one in entries}
        return found

    def _minutes(self, which: ColumnElement[bool]) -> list[LedgerEntry]:
        query = select(ledger_minutes).where(which)
        return self.database.decoded(query, ledger_minutes, _entry, _unread_minute)


def _are_odd(entries: Iterable[LedgerEntry]) -> bool:
    """Whether a sum of residuals may be another with one of *entries*: else all balance."""
    return any(one.missing or one.unknown for one in entries)


def _of_hop(table: str, hop: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return ledger_minutes.c.table == table, ledger_minutes.c.hop == str(hop)


def _of_other_copies(hop: ColumnElement[str], kept: Mapping[str, str]) -> ColumnElement[bool]:
    """Whether a *hop* is that of a copy that is not among those *kept*."""
    return and_(hop.startswith(copy_hop(""), autoescape=True), hop.not_in(kept.values()))


def _place(connection: Connection, named: str, hop: str) -> None:
    """Count at *hop*, of a place, what the hop *named* has of tables that are new to this place."""
    lane, table = ledger_reach.c.lane, ledger_reach.c.table
    known = select(table).where(lane == hop)
    new = and_(lane == named, table.not_in(known))
    own = and_(ledger_minutes.c.hop == named, ledger_minutes.c.table.in_(select(table).where(new)))
    columns = [literal(hop) if one.name == "hop" else one for one in ledger_minutes.c]
    copied = insert(ledger_minutes).from_select([*ledger_minutes.c], select(*columns).where(own))
    connection.execute(copied.prefix_with("OR REPLACE"))
    connection.execute(update(ledger_reach).where(new).values(lane=hop))


def _store_entries(
    connection: Connection, table: str, hop: str, entries: Sequence[LedgerEntry], at: datetime
) -> None:
    """Write *entries* in place of those of their minutes."""
    _replace(connection, [_row(table, hop, one, at) for one in entries])


def _replace(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        connection.execute(insert(ledger_minutes).prefix_with("OR REPLACE"), rows)


def _row(table: str, hop: str, one: LedgerEntry, at: datetime) -> dict[str, Any]:
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


def _entry(row: Row[Any]) -> LedgerEntry:
    _known_hop(row.hop)
    return LedgerEntry(
        _minute(row.minute),
        _counts(row.went_in),
        _counts(row.came_out),
        _counts(row.explained),
        unknown=bool(row.unknown),
        batch=_integer(row.batch),
        made_good={} if row.made_good is None else _counts(row.made_good),
        proof=str(row.proof or ""),
        found=row.found,
    )


def _known_hop(hop: str) -> str:
    """Require a hop that has a ledger, or nothing knows what a row counts."""
    return hop if is_copy_hop(hop) or hop == LANDING_HOP else Hop(hop)


def _entry_at(row: Row[Any]) -> tuple[LedgerEntry, datetime]:
    return _entry(row), row.at


def _landed(row: Row[Any]) -> LandedBatch:
    counts = row.counts
    if counts is not None:
        counts = {minute: _counts(own) for minute, own in _items(counts)}
        for minute in counts.keys() - {NO_MINUTE}:
            _minute(int(minute))
    return LandedBatch(_integer(row.batch), row.at, counts)


def _counts(stored: Any) -> dict[str, int]:
    """Require names that can be shown, and numbers."""
    if not all(name.isprintable() for name, _ in _items(stored)):
        raise ValueError("a name cannot be shown")
    return {name: _integer(rows) for name, rows in stored.items()}


def _minute(stored: Any) -> int:
    if not is_minute(_integer(stored)):
        raise ValueError("a minute of no calendar")
    return int(stored)


def _integer(stored: Any) -> int:
    """Require a number, because SQLite stores any value in any column."""
    if not isinstance(stored, int):
        raise TypeError(f"{type(stored).__name__} for a number")
    return stored


def _items(stored: Any) -> ItemsView[str, Any]:
    if not isinstance(stored, dict):
        raise TypeError(f"{type(stored).__name__} for counts")
    return stored.items()


def _unread_batch(stored: Mapping[str, bytes | None], otherwise: int) -> LandedBatch:
    """An unreadable batch is unknown: without it, rows would seem to come from nowhere."""
    return LandedBatch(_number(stored["batch"], otherwise), datetime.now(UTC), None)


def _unread_minute(stored: Mapping[str, bytes | None], otherwise: int = 0) -> LedgerEntry:
    """An unreadable minute is unknown, and keeps the number of rows that were missing."""
    minute, lost = _number(stored["minute"]), _number(stored["residual"], otherwise)
    counts, found = ({UNREADABLE: lost}, datetime.now(UTC)) if lost else ({}, None)
    return LedgerEntry(minute if is_minute(minute) else 0, counts, unknown=True, found=found)


def _lost_rows(stored: Mapping[str, bytes | None]) -> LedgerEntry | int:
    """Of an unreadable minute, the rows that are missing."""
    return _number(stored["residual"], 1)


def _number(stored: bytes | None, otherwise: int = 0) -> int:
    return int(stored) if stored is not None and stored.isdigit() else otherwise


def _recorded_in(row: Row[Any]) -> Recorded:
    return Recorded(_integer(row.first), _integer(row.last))


def _copied_in(row: Row[Any]) -> CopyReach:
    last = _integer(row.last)
    return CopyReach(last, str(row.mirror or ""), max(last, _integer(row.first)))


def _loaded_in(row: Row[Any]) -> CopyReach:
    return CopyReach(load=(str(row.mirror or ""), _integer(row.last), _integer(row.first)))


def _load_of(at: CopyPosition) -> tuple[str, int, int]:
    return at.lineage, at.version, at.load


def _reach_of(lane: str, table: str) -> ColumnElement[bool]:
    return and_(ledger_reach.c.lane == lane, ledger_reach.c.table == table)


def _reach_copy(connection: Connection, hop: str, table: str, reach: CopyReach) -> None:
    _reach(connection, hop, table, reach.highest, reach.last, lineage=reach.lineage)


def _reach(
    connection: Connection, lane: str, table: str, first: int, last: int, *, lineage: str = ""
) -> None:
    connection.execute(delete(ledger_reach).where(_reach_of(lane, table)))
    values = {"lane": lane, "table": table, "first": first, "last": last, "mirror": lineage or None}
    connection.execute(insert(ledger_reach).values(values))


def _forget_from(connection: Connection, lane: str, batch: int) -> None:
    """Forget batches from *batch* on: the change log lost them, and uses their numbers again."""
    lost = and_(ledger_open.c.lane == lane, ledger_open.c.batch >= batch)
    connection.execute(delete(ledger_open).where(lost))
    above = and_(ledger_reach.c.lane == lane, ledger_reach.c.last >= batch)
    connection.execute(update(ledger_reach).where(above).values(last=batch - 1))
