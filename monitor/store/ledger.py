"""Stores the ledger: rows by minute, table, op and hop, and batches that still wait for a merge.

Batches wait in ``ledger_open`` until a merge has covered them. Then they are compared, once, and
only the minutes stay. Each report is stored in one transaction. If a report is missing, its batches
are UNKNOWN: they never count as a loss.

Balanced and unknown minutes stay for some hours, minutes that were made good for 42 days. Residuals
stay until they are made good; none expires. A proof is stored with its minute, and is never asked
for again.
"""

import json
import threading
import time
from collections import deque
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
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
    is_copy_hop,
    leave_unknown,
    minute_of,
    settle_landing,
    settle_merge,
)
from checks.model import Outcome, Verdict
from monitor.store.copy_ledger import CopyLedger, is_reach_of_copy
from monitor.store.database import Database
from monitor.store.history import HISTORY, LONG, delete_rows
from monitor.store.ledger_rows import (
    AT_ONCE,
    Minutes,
    are_odd,
    of_hop,
    reach_of,
    read_counts,
    read_dated_entry,
    read_entry,
    read_integer,
    read_items,
    read_minute,
    require_hop,
    salvage_number,
    salvage_rows,
    store_entries,
    store_of_tables,
    store_reach,
)
from monitor.store.received import Received, find_tables
from monitor.store.schema import ledger_minutes, ledger_open, ledger_reach
from pipeline.errors import UnreachableError
from pipeline.minute_counts import MINUTES, NO_MINUTE
from pipeline.model import Hop
from pipeline.reports import LandingReport, MergeReport

KEPT = timedelta(hours=6)  # how long minutes without a residual are kept
MOST_WAITING = 100_000  # batches that wait for a merge; older ones are given up and unknown
_LOST_AT_ONCE = 100  # tables and hops whose residuals one statement reads
_TOGETHER = 20  # merges compared in one transaction
_COMPARED = 500  # after so many batches a transaction compares no further merge
MOST_COUNTED = 1_000  # minutes of a table that wait while the store accepts no writes
MOST_LOST = 1_000  # minutes with a residual that are read per table and hop
EVERY_TABLE = ""  # row of ``ledger_reach`` for the batches that landing has reported
_TOPICS = f"{LANDING_HOP}:"  # rows of ``ledger_reach``: by lane, batches whose topics were counted
UNREAD = Recorded(2**62, 2**62)  # above every batch, so no batch counts as recorded

Residuals = Mapping[tuple[str, str], int | None]
"""(Table, hop) -> rows; None while unknown."""


@dataclass(frozen=True, slots=True)
class CountedHop:
    """Minutes of a table that a check has counted; ``proven``: nothing is missing any more."""

    at: datetime
    entries: tuple[LedgerEntry, ...] = ()
    proven: bool = False


@dataclass(eq=False)
class Ledger:
    """The ledger of one lane; ``_early`` are merges of batches that landing has not reported yet.

    Early merges are in memory only, because each process reports the newest merge of a table again.
    ``copies`` is the ledger of the copies. ``_residuals`` and ``_losses`` are as stored, except for
    the ``_changed`` tables; None: all tables have changed.
    """

    database: Database
    _early: dict[str, MergeReport] = field(default_factory=dict)
    _residuals: Residuals = field(default_factory=dict, repr=False)
    _losses: Mapping[tuple[str, str], TableLosses] = field(default_factory=dict, repr=False)
    _changed: set[str] | None = None
    _lane: str | None = None  # the lane of this service, once it has landed
    _reading: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _merging: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _receiving: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _received: Received = field(init=False, repr=False)
    _counted: dict[str, CountedHop] = field(default_factory=dict, repr=False)
    _minutes: Minutes = field(init=False, repr=False)
    copies: CopyLedger = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Load the counts from topics that wait to be stored."""
        self._received, self._minutes = Received(self.database), Minutes(self.database)
        self.copies = CopyLedger(self.database, self._note_added)

    def know_copies(self, places: Mapping[str, str]) -> None:
        """Set the *places* of the existing copies, by their names in the config."""
        self.copies.know_places(places)
        self._note_changed(None)  # residuals of moved places

    def note_counts(self, verdict: Verdict, at: datetime) -> None:
        """Keep the counts of a hop from its check until the next transaction.

        A PASS of this check proves that missing rows have landed, or that a new base contains them.
        """
        if verdict.check != COUNTING_CHECK:
            return
        key, passed = (verdict.table, Hop.COLLECTION.value), verdict.ruling.outcome is Outcome.PASS
        proven = passed and bool(self._residuals.get(key))  # as last read: the next PASS says more
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
        """Write counts of checks, for a few tables at once; call the result after the commit."""
        with self._lock:
            some = dict(islice(self._counted.items(), _TOGETHER))
        odd = {table: self._add_counted(connection, table, one) for table, one in some.items()}

        def forget() -> None:
            with self._lock:
                for table, one in some.items():
                    if self._counted.get(table) is one:
                        del self._counted[table]
                    else:  # more was counted since the write began
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
                store_reach(connection, lane, EVERY_TABLE, now.first, now.last)
                if rows:
                    connection.execute(insert(ledger_open), rows)
                store_reach(connection, _TOPICS, lane, counted.first, counted.last)
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
        """Compare the counts of a batch's topics with its rows.

        If the batch before it was not counted, it belongs to this minute or to the newest stored
        one: both become unknown. Its report was lost, or an earlier version sent it without topics.
        """
        landed, batch = report.started, report.batch or 0
        at = landed + report.took
        new = [
            (table, settle_landing(one, batch, landed, at)) for table, one in report.topics.items()
        ]
        return new if batch == counted.last + 1 else [*new, *self._unreported(report)]

    def _unreported(self, report: LandingReport) -> list[tuple[str, LedgerEntry]]:
        """Return unknown entries for the minutes in which an unreported batch may have landed."""
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
        """Store the counts of all minutes except that of *now*, one part per transaction."""
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
        """Add entries of many tables to the stored entries of their minutes."""
        there = self._minutes.of_tables(hop, new)
        for table, one in new:
            key = (table, one.minute)
            there[key] = there[key].with_more(one) if key in there else one
        written = {(table, one.minute) for table, one in new}
        store_of_tables(connection, hop, [(key[0], there[key]) for key in sorted(written)], at)

    def add_merges(self, lane: str, merges: Iterable[MergeReport], at: datetime) -> None:
        """Compare each merge with the batches it covers; a merge that was compared changes nothing.

        One transaction compares a few tables, or one table with many waiting batches, so that other
        writers wait only briefly. Never call it inside a transaction: a reader would miss
        uncommitted rows.
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
                            early[one.table] = one  # replaces an earlier one, which becomes unknown
                        else:
                            batches, odd = self._settle(connection, lane, one, recorded, at)
                            compared += batches
                            tables[one.table] |= odd
                self._note_added(Hop.MERGE, tables)
                if waiting:  # the lock is not fair, and a waiting writer would not get it otherwise
                    time.sleep(min(time.monotonic() - began, LONG))
            self._early = early

    def entries(
        self, table: str, since: int, until: int, copies: Iterable[str] = ()
    ) -> Mapping[str, tuple[LedgerEntry, ...]]:
        """Return hop -> entries of *table* in minutes ``[since, until)``, ascending."""
        own = ledger_minutes.c.table == table
        when = and_(own, ledger_minutes.c.minute >= since, ledger_minutes.c.minute < until)
        flying = count_in_flight(self._open(ledger_open.c.table == table))
        found = dict[str, list[LedgerEntry]]()
        stored = {hop: str(hop) for hop in LEDGER_HOPS}
        stored |= {copy_hop(copy): self.copies.hop(copy) for copy in copies}
        with self._receiving:  # no waiting minute is stored meanwhile
            for hop, own_hop in stored.items():
                found[hop] = self._minutes.select(and_(when, ledger_minutes.c.hop == own_hop))
            waiting = self._received.of_table(table)
        found[LANDING_HOP] += [one for one in waiting if since <= one.minute < until]
        found[Hop.MERGE] += [one for one in flying if since <= one.minute < until]
        return {hop: add_entries(own) for hop, own in found.items() if own}

    def residuals(self) -> Residuals:
        """Return (table, hop) -> rows that are missing or too many, over the kept minutes.

        The value is None if none is known and a minute is unknown. A hop without a kept minute is
        absent. Only minutes of tables that have changed since the last call are read.
        """
        self._read_changed()
        stored = self._residuals
        found = {**stored, **self._waiting_residuals(stored)}
        names = self.copies.names()
        return {
            (table, names.get(hop, hop)): rows
            for (table, hop), rows in found.items()
            if not self.copies.is_removed(hop)
        }

    def residual_minutes(self, table: str) -> Mapping[str, tuple[int, int]]:
        """Return hop -> first and last minute of *table* with a residual; absent without any.

        The hop of a copy has the copy's name, as in :meth:`residuals`.
        """
        hop, minute = ledger_minutes.c.hop, ledger_minutes.c.minute
        own = and_(ledger_minutes.c.table == table, ledger_minutes.c.residual != 0)
        known = and_(own, minute.between(*MINUTES))  # without unreadable minutes
        query = select(hop, func.min(minute), func.max(minute)).where(known).group_by(hop)
        with self.database.read() as connection:
            found = connection.execute(query).all()
        names = self.copies.names()
        return {
            names.get(hop, str(hop)): (int(first), int(last))
            for hop, first, last in found
            if not self.copies.is_removed(hop)
        }

    def _waiting_residuals(self, stored: Residuals) -> Residuals:
        """Return the residuals at the landing hop, including minutes that are not stored yet."""
        found = dict[tuple[str, str], int | None]()
        for table, one in self._received.entries():
            key = (table, LANDING_HOP)
            rows = found.get(key, stored.get(key, 0))
            found[key] = rows or (None if rows is None or one.unknown else 0)
        return found

    def losses(self) -> Mapping[str, TableLosses]:
        """Return table -> its residuals that are not made good; cached as in :meth:`residuals`.

        Residuals of its copies are not included.
        """
        self._read_changed()
        return {table: one for (table, hop), one in self._losses.items() if not hop}

    def copy_losses(self, table: str, copy: str) -> TableLosses:
        """Return the residuals of a *copy* of *table*, as :meth:`losses`."""
        self._read_changed()
        own = self._losses.get((table, self.copies.hop(copy)), NO_LOSSES)
        return own.at_hop(copy_hop(copy))

    def make_good(self, table: str, *proven: tuple[Residual, str]) -> None:
        """Store in one transaction that residuals of *table* are made good, each with its proof.

        Residuals that were found later stay.
        """
        with self.database.write() as connection:
            for residual, proof in proven:
                self._prove(connection, table, residual, proof)
        self._note_changed({table})

    def _prove(self, connection: Connection, table: str, residual: Residual, proof: str) -> None:
        minutes = sorted(residual.missing)
        for start in range(0, len(minutes), AT_ONCE):
            own = and_(*of_hop(table, residual.hop))
            some = ledger_minutes.c.minute.in_(minutes[start : start + AT_ONCE])
            query = select(ledger_minutes).where(own, some)
            for row in self.database.decoded(query, ledger_minutes, read_dated_entry):
                one, at = row
                if one.found == residual.at and one.missing:
                    store_entries(connection, table, residual.hop, [one.with_proof(proof)], at)

    def _read_changed(self) -> None:
        """Read again the tables that changed since the last read; no writer waits for that."""
        with self._reading, ExitStack() as failed:
            with self._lock:
                changed, self._changed = self._changed, set()
            failed.callback(self._note_changed, None)  # so after an error all are read next time
            if changed is None:
                self._residuals = self._sum_residuals(true())
                self._losses = dict(self._find_losses({table for table, _ in self._residuals}))
            elif changed:
                self._read_tables(sorted(changed))
            failed.pop_all()

    def _read_tables(self, tables: Sequence[str]) -> None:
        changed = {*tables}
        kept = {key: rows for key, rows in self._residuals.items() if key[0] not in changed}
        for start in range(0, len(tables), AT_ONCE):
            some = ledger_minutes.c.table.in_(tables[start : start + AT_ONCE])
            kept |= self._sum_residuals(some)
        self._residuals = kept
        losses = {key: one for key, one in self._losses.items() if key[0] not in changed}
        self._losses = losses | dict(self._find_losses(changed))

    def _find_losses(
        self, tables: Collection[str]
    ) -> Iterator[tuple[tuple[str, str], TableLosses]]:
        """Yield the losses at hops without a check, by table and the hop of a copy, else ""."""
        some = ((key, rows) for key, rows in self._residuals.items() if key[0] in tables)
        lost = {key: rows for key, rows in some if rows and key[1] != Hop.COLLECTION.value}
        found = dict[tuple[str, str], TableLosses]()
        for (table, hop), read in self._read_lost(sorted(lost)):
            rows = lost[table, hop]
            entries = [one for one in read if isinstance(one, LedgerEntry)]
            unread = sum(one for one in read if isinstance(one, int))
            own = group_residuals(require_hop(hop), entries) if entries else ()
            if own and len(read) == MOST_LOST:  # the newest residual may be longer
                own = (*own[:-1], replace(own[-1], whole=False))
            known = unread + sum(one.rows for one in own)
            more = max(rows - known, 0)  # a merge may have been stored in between
            whose = hop if is_copy_hop(hop) else ""
            losses = TableLosses(own, more, unread)
            found[table, whose] = found.get((table, whose), NO_LOSSES) + losses
        yield from found.items()

    def _read_lost(
        self, keys: Sequence[tuple[str, str]]
    ) -> Iterator[tuple[tuple[str, str], list[LedgerEntry | int]]]:
        """Yield the oldest minutes with a residual of each table and hop, many keys per statement.

        Keys are halved until an unreadable row is isolated. Such a row yields its number of missing
        rows.
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
            lambda row: ((row.table, row.hop), read_entry(row)),
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
            yield keys[0], self.database.decoded(few, ledger_minutes, read_entry, salvage_rows)

    def _sum_residuals(self, which: ColumnElement[bool]) -> dict[tuple[str, str], int | None]:
        columns = (ledger_minutes.c.table, ledger_minutes.c.hop)
        residual = ledger_minutes.c.residual
        rows = case((func.typeof(residual) == "integer", residual), else_=1)  # 1 if unreadable
        total = func.total(rows)  # SQL `sum` fails above 2**63
        sums = (total, func.max(ledger_minutes.c.unknown))
        with self.database.read() as connection:
            query = select(*columns, *sums).where(which).group_by(*columns)
            found = connection.execute(query).all()
        return {
            (table, hop): int(rows) if rows or not unknown else None
            for table, hop, rows, unknown in found
        }

    def _note_changed(self, tables: Collection[str] | None) -> None:
        """Read *tables* again on the next call; None: all tables."""
        with self._lock:
            known = self._changed
            self._changed = None if known is None or tables is None else known | {*tables}

    def _note_added(self, hop: str, added: Mapping[str, bool]) -> None:
        """Read a table again if its new minutes of *hop* are odd, or if the hop is new to it.

        Minutes that balance change a residual only if it was unknown.
        """
        known = self._residuals
        self._note_changed(
            {table for table, odd in added.items() if odd or (table, hop) not in known}
        )

    def _find_ended(self) -> set[str]:
        """Return the tables whose residuals may have changed because minutes were deleted.

        At a hop without a residual, this is so if no minute is left. At an unknown hop, it is so if
        no unknown minute is left. Minutes with a residual may have been edited by a person.
        """
        with self._reading:  # a read that still runs may have seen the deleted minutes
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

        The age of a batch is its number, because a fast clock would make all batches old. Batches
        of a lane in which this service no longer lands are deleted, because nothing merges them.
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
            other = and_(row.not_in((self._lane, _TOPICS)), ~is_reach_of_copy(row))
            delete_rows(self.database, ledger_reach, other)
            gone += delete_rows(self.database, ledger_open, ledger_open.c.lane != self._lane)
        self._note_changed(self._find_ended())
        return gone

    def give_up_removed(self, lane: str, kept: Collection[str], through: int, at: datetime) -> int:
        """Give up batches up to *through* of tables not in *kept*, because nothing merges them.

        Their minutes become unknown, and so does what a merge reads of them if a table comes back.
        Residuals stay. Returns the number of these batches.
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
        """Give up the oldest batches of *table*, a few at once; return how many."""
        own = and_(ledger_open.c.lane == lane, ledger_open.c.table == table)
        batch = ledger_open.c.batch
        with self.database.write() as connection:
            oldest = select(batch).where(own, batch <= through).order_by(batch).limit(_COMPARED)
            numbers = connection.scalars(oldest).all()
            if not numbers:
                return 0
            some = and_(own, batch <= numbers[-1])
            self._minutes.add(connection, table, Hop.MERGE, leave_unknown(self._open(some)), at)
            connection.execute(delete(ledger_open).where(some))
            settled = max(self._recorded(lane, table).last, numbers[-1])
            store_reach(connection, lane, table, -1, settled)
        return len(numbers)

    def _give_up(self, lane: str) -> int:
        with self.database.write() as connection:
            known = self._recorded(lane)
            if known == UNREAD:  # until the next landing
                return 0
            first = known.last - MOST_WAITING + 1
            old = and_(ledger_open.c.lane == lane, ledger_open.c.batch < first)
            if connection.scalar(select(func.count()).where(old)):
                store_reach(connection, lane, EVERY_TABLE, max(known.first, first), known.last)
        return delete_rows(self.database, ledger_open, old)

    def _recorded(self, lane: str, table: str = EVERY_TABLE) -> Recorded:
        """Return what is recorded of *table*, or of the lane; `UNREAD` if that is unreadable."""
        query = select(ledger_reach).where(reach_of(lane, table))
        found = self.database.decoded(query, ledger_reach, _recorded_in, lambda _: UNREAD)
        return found[0] if found else Recorded()

    def _settle(
        self,
        connection: Connection,
        lane: str,
        merge: MergeReport,
        recorded: Recorded,
        at: datetime,
    ) -> tuple[int, bool]:
        """Compare *merge* with its batches; return their number, and if a new minute is odd."""
        table, account = merge.table, merge.account
        settled = self._recorded(lane, table).last
        if settled > recorded.last or recorded == UNREAD:  # its batches are unknown
            settled, recorded = -1, UNREAD
        if merge.since is None or merge.batch <= settled:
            return 0, False  # a merge is reported again after a restart
        merged = MergedBatches(merge.since, merge.batch, at, account.minutes, account.explained)
        own = and_(ledger_open.c.lane == lane, ledger_open.c.table == table)
        passed = and_(own, ledger_open.c.batch <= merge.batch)
        unread = and_(own, func.typeof(ledger_open.c.batch) != "integer")  # it may be any batch
        landed = self._open(or_(passed, unread), merge.batch)
        new = settle_merge(merged, landed, recorded, settled)
        odd = self._minutes.add(connection, table, Hop.MERGE, new, at)
        connection.execute(delete(ledger_open).where(passed))
        store_reach(connection, lane, table, -1, merge.batch)
        return len(landed), odd

    def _add_counted(self, connection: Connection, table: str, counted: CountedHop) -> bool:
        """Add minutes that are not stored yet, as `Minutes.add`: a restarted check counts again."""
        hop, at, every = Hop.COLLECTION, counted.at, tuple[LedgerEntry, ...]()
        if counted.entries:
            there = self._minutes.of_minutes(table, hop, {one.minute for one in counted.entries})
            news = [
                one
                for one in counted.entries
                if one.minute not in there or there[one.minute].batch < one.batch
            ]
            every = add_entries([*there.values(), *news])
            store_entries(connection, table, hop, every, at)
        if counted.proven:
            proof = f"{COUNTING_CHECK} passes"
            good = [one.with_proof(proof) for one in self._minutes.missing(table, hop)]
            store_entries(connection, table, hop, good, at)
        return counted.proven or are_odd(every)

    def _open(self, which: ColumnElement[bool], unread: int = 0) -> list[LandedBatch]:
        """Return open batches; *unread* is the number for a batch with an unreadable number."""
        query = select(ledger_open).where(which).order_by(ledger_open.c.batch)
        salvage = partial(_unread_batch, otherwise=unread)
        return self.database.decoded(query, ledger_open, _landed, salvage)


def _landed(row: Row[Any]) -> LandedBatch:
    counts = row.counts
    if counts is not None:
        counts = {minute: read_counts(own) for minute, own in read_items(counts)}
        for minute in counts.keys() - {NO_MINUTE}:
            read_minute(int(minute))
    return LandedBatch(read_integer(row.batch), row.at, counts)


def _unread_batch(stored: Mapping[str, bytes | None], otherwise: int) -> LandedBatch:
    """Return an unknown batch: without it, its rows would seem to come from nowhere."""
    return LandedBatch(salvage_number(stored["batch"], otherwise), datetime.now(UTC), None)


def _recorded_in(row: Row[Any]) -> Recorded:
    return Recorded(read_integer(row.first), read_integer(row.last))


def _forget_from(connection: Connection, lane: str, batch: int) -> None:
    """Forget batches from *batch* on: the change log lost them, and uses their numbers again."""
    lost = and_(ledger_open.c.lane == lane, ledger_open.c.batch >= batch)
    connection.execute(delete(ledger_open).where(lost))
    above = and_(ledger_reach.c.lane == lane, ledger_reach.c.last >= batch)
    connection.execute(update(ledger_reach).where(above).values(last=batch - 1))
