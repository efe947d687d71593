"""Stores issued certificates with their revocations, and heartbeats as fences.

Certificates are kept for 42 days, and those of a passing instant for seven. A passing instant is a
cut that is not at a full quarter of an hour. If the whole store has more certificates than a limit,
the oldest valid ones are deleted earlier. All fences of the last day are kept, and fewer
of 42 days.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import structlog
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    bindparam,
    delete,
    exists,
    func,
    insert,
    select,
    type_coerce,
    update,
)

from checks.certificate import Certificate, Evidence
from monitor.config.model import CertificateSettings
from monitor.store.database import Database
from monitor.store.history import HISTORY, delete_rows, downsample
from monitor.store.schema import certificates, decode_value, encode_value, fences
from pipeline.clocks import ClockStep
from pipeline.errors import UnreachableError
from pipeline.model import Fence, Head, Position, Stage, stage_name

MICROSECOND, QUARTER = timedelta(microseconds=1), timedelta(minutes=15)
PASSING = timedelta(days=7)  # how long certificates of a passing instant are kept
MOST_PASSING = 12_000  # valid ones per table: more than one per minute of those days
_REMEMBERED = 8  # cached cuts and stages per table
MOST_CUTS = 10_000  # cached cuts; with more cuts the store is read
MOST_REMOVED = 100_000  # per run, above the limit of the whole store: ids in memory
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class Certificates:
    """Certificates issued in the last 42 days.

    Only this object writes certificates. The newest of a few cuts of each table are cached until a
    certificate of the table is issued or revoked. A writer that adds them inside a larger
    transaction blocks readers until it ends.

    A revocation that the store does not take holds at once, and the next transaction stores it.
    """

    database: Database
    most_passing: int = MOST_PASSING
    limit: CertificateSettings | None = None
    stored: int | None = None  # number in the store when it was last pruned
    _newest: dict[str, dict[tuple[str, datetime], Certificate | None]] = field(
        default_factory=dict, repr=False
    )
    _writes: int = 0
    _read_whole: datetime | None = None  # the cut of which every certificate was read
    _cuts: set[datetime] | None = field(default=None, repr=False)  # all known cuts; None: unknown
    _since: set[str] = field(default_factory=set, repr=False)  # tables dropped from the cache since
    doubted: set[str] = field(default_factory=set)  # tables whose revocation is not stored yet
    _revoked: dict[str, Certificate] = field(default_factory=dict, repr=False)  # not stored yet
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        """Register this object, so that the next transaction stores the revocations that wait."""
        self.database.first.append(self)

    def add(self, *many: Certificate) -> int:
        """Store *many* in one transaction; return how many are new.

        An issued certificate is never rewritten. Without a certificate, the store is not read.
        """
        if not many:
            return 0
        ids = [one.id for one in many]
        with self.database.write() as connection:
            query = select(certificates.c.id).where(certificates.c.id.in_(ids))
            known = set(connection.scalars(query))
            fresh = [one for one in many if one.id not in known]
            if fresh:
                connection.execute(insert(certificates), [_row(one) for one in fresh])
        self._forget({one.table for one in many} - {one.table for one in fresh})
        with self._lock:
            self._writes += 1
            for one in fresh:
                self._remember(one.table, (_about(one), one.cut), one)
                if self._cuts is not None:
                    self._cuts.add(one.cut)
            self._cuts = _few(self._cuts)
        return len(fresh)

    def get(self, number: str) -> Certificate | None:
        """Return the certificate with that id; None if it is unknown or was deleted."""
        found = self._all(select(certificates).where(certificates.c.id == number))
        return found[0] if found else None

    def newest(self, table: str, stage: Stage, cut: datetime, copy: str = "") -> Certificate | None:
        """Return the last certificate issued for that cut, also a revoked one; None without any.

        None also for a table whose revocation could not be stored: no certificate is valid for it.
        """
        if table in self.doubted:
            return None
        about = stage_name(stage, copy)
        with self._lock:
            own, writes = self._newest.get(table, {}), self._writes
            if (about, cut) in own:
                return own[about, cut]
            if cut == self._read_whole and table not in self._since:
                return None
            if self._cuts is not None and cut not in self._cuts:
                return None
        found = self._read_newest(table, about, cut)
        with self._lock:
            if writes == self._writes:  # otherwise it may have been revoked during the read
                self._remember(table, (about, cut), found)
        return found

    def read_whole(self, cut: datetime) -> None:
        """Cache the newest certificate of every table for one *cut*, and the other known cuts."""
        with self._lock:
            if cut == self._read_whole:
                return
            writes = self._writes
        found = self._all(
            select(certificates).where(certificates.c.cut == cut).order_by(certificates.c.issued)
        )
        with self.database.read() as connection:
            cuts = set(
                connection.scalars(select(certificates.c.cut).distinct().limit(MOST_CUTS + 1))
            )
        with self._lock:
            if writes != self._writes:
                return
            self._cuts = _few(cuts)
            self._read_whole, self._newest, self._since = cut, {}, set()
            for one in found:
                self._newest.setdefault(one.table, {})[_about(one), cut] = one

    def _read_newest(self, table: str, about: str, cut: datetime) -> Certificate | None:
        same = (
            (certificates.c.table == table)
            & (certificates.c.stage == about)
            & (certificates.c.cut == cut)
        )
        newest_first = select(certificates).where(same).order_by(certificates.c.issued.desc())
        found = self._all(newest_first.limit(1))
        return found[0] if found else None

    def holding(self, table: str, since: datetime | None = None) -> tuple[Certificate, ...]:
        """Return valid certificates of *table* issued at or after *since*, oldest first.

        Afterwards certificates of the table are read from the store, because an unreadable
        certificate cannot be revoked.
        """
        self._forget((table,))
        query = select(certificates).where(
            certificates.c.table == table, certificates.c.revoked.is_(None)
        )
        if since is not None:
            query = query.where(certificates.c.issued >= since)
        return self._valid(query)

    def holding_since(self, since: datetime) -> tuple[Certificate, ...]:
        """Return valid certificates of all tables issued at or after *since*, oldest first."""
        valid = certificates.c.revoked.is_(None) & (certificates.c.issued >= since)
        return self._valid(select(certificates).where(valid))

    def revoke(self, revoked: Sequence[Certificate]) -> int:
        """Record when and why each was revoked; return how many. An earlier revocation is kept."""
        if not revoked:
            return 0
        try:
            with self.database.write() as connection:
                count = _store_revoked(connection, revoked)
        except UnreachableError:
            count = len(revoked)
            with self._lock:
                self._revoked = {**{one.id: one for one in revoked}, **self._revoked}
        self._forget(one.table for one in revoked)
        return count

    @property
    def waits(self) -> bool:
        return bool(self._revoked)

    def write(self, connection: Connection) -> Callable[[], None]:
        revoked = self._revoked
        _store_revoked(connection, [*revoked.values()])
        return lambda: self._wrote(revoked)

    def _wrote(self, revoked: Mapping[str, Certificate]) -> None:
        with self._lock:
            self._revoked = {id_: one for id_, one in self._revoked.items() if id_ not in revoked}

    def list(
        self, table: str | None = None, stage: Stage | None = None, limit: int = 100
    ) -> tuple[Certificate, ...]:
        """Return at most *limit* certificates, newest first."""
        query = select(certificates).order_by(certificates.c.issued.desc()).limit(limit)
        if table is not None:
            query = query.where(certificates.c.table == table)
        if stage is not None:
            query = query.where(certificates.c.stage == stage.value)
        return self._all(query)

    def prune(self, now: datetime) -> int:
        """Delete old certificates, those of a passing instant sooner; return their number.

        A business day ends at a full quarter of an hour, in every time zone. Each table keeps its
        newest ``MOST_PASSING`` valid certificates of passing instants, so that no client fills the
        disk. A revoked certificate and others of its cut do not count: they keep the reason of the
        revocation.
        """
        cut, quarter = type_coerce(certificates.c.cut, BigInteger), QUARTER // MICROSECOND
        passing = cut - (cut // quarter) * quarter != 0
        gone = delete_rows(self.database, certificates, certificates.c.issued < now - HISTORY)
        gone += delete_rows(
            self.database, certificates, certificates.c.issued < now - PASSING, passing
        )
        for table, issued in self._beyond(passing & _unneeded()):
            older = (certificates.c.table == table) & (certificates.c.issued <= issued)
            gone += delete_rows(self.database, certificates, older, passing & _unneeded())
        gone += self._remove_above_limit(now, passing)
        if gone:
            self._forget(list(self._newest))
        return gone

    def _remove_above_limit(self, now: datetime, passing: ColumnElement[bool]) -> int:
        """Remove the oldest valid ones above the limit, those of passing instants first.

        Revoked ones stay, and so do others of their cuts. Without the revoked one, a cut could be
        READY from the same rows. Without a later one, the revoked one would be the newest again.
        Any other cut is decided again when it is asked for.
        """
        with self.database.read() as connection:
            count = connection.scalar(select(func.count()).select_from(certificates)) or 0
        gone = 0
        if self.limit is not None:
            above = min(count - self.limit.most, MOST_REMOVED)
            old = (certificates.c.issued < now - self.limit.keep) & _unneeded()
            for which in (old & passing, old):
                gone += self._remove_oldest(which, above - gone)
            fields = {"stored": count - gone, "most": self.limit.most, "keep": str(self.limit.keep)}
            if gone:
                log.info("old certificates are removed", removed=gone, **fields)
            elif above > 0:
                log.warning("more certificates than `certificates.most`, none old", **fields)
        self.stored = count - gone
        return gone

    def _remove_oldest(self, which: ColumnElement[bool], most: int) -> int:
        """Delete the *most* oldest of *which*, and all others of the last deleted instant."""
        if most <= 0:
            return 0
        oldest = select(certificates.c.issued).where(which).order_by(certificates.c.issued)
        with self.database.read() as connection:
            issued = connection.scalars(oldest.limit(most)).all()
        if not issued:
            return 0
        return delete_rows(self.database, certificates, which, certificates.c.issued <= issued[-1])

    def _beyond(self, counted: ColumnElement[bool]) -> Sequence[tuple[str, datetime]]:
        """Return tables with too many certificates, each with the newest surplus instant."""
        many = (
            select(certificates.c.table)
            .where(counted)
            .group_by(certificates.c.table)
            .having(func.count() > self.most_passing)
        )
        with self.database.read() as connection:
            found = []
            for table in connection.scalars(many).all():
                own = counted & (certificates.c.table == table)
                newest = select(certificates.c.issued).where(own)
                newest = newest.order_by(certificates.c.issued.desc()).offset(self.most_passing)
                found += [(table, issued) for issued in connection.scalars(newest.limit(1))]
        return found

    def _remember(self, table: str, key: tuple[str, datetime], one: Certificate | None) -> None:
        """Cache the newest cuts of a table; the store keeps the others."""
        own = self._newest.setdefault(table, {})
        if len(own) >= _REMEMBERED and key not in own:
            own.clear()
            self._since.add(table)
        own[key] = one

    def _forget(self, tables: Iterable[str]) -> None:
        with self._lock:
            self._writes += 1
            for table in tables:
                self._newest.pop(table, None)
                self._since.add(table)

    def _valid(self, query: Any) -> tuple[Certificate, ...]:
        found = self._all(query.order_by(certificates.c.issued))
        return tuple(one for one in found if one.revoked is None)

    def _all(self, query: Any) -> tuple[Certificate, ...]:
        revoked, found = self._revoked, self.database.decoded(query, certificates, _certificate)
        return tuple(revoked.get(one.id, one) for one in found)


def _store_revoked(connection: Connection, revoked: Sequence[Certificate]) -> int:
    """Store the revocations in one statement, because the gate waits for it."""
    mine = (certificates.c.id == bindparam("the_id")) & certificates.c.revoked.is_(None)
    rows = [{"the_id": one.id, "when": one.revoked, "reason": one.why} for one in revoked]
    change = update(certificates).where(mine)
    change = change.values(revoked=bindparam("when"), why=bindparam("reason"))
    return connection.execute(change, rows).rowcount


def _unneeded() -> ColumnElement[bool]:
    """Select valid certificates whose removal makes no older, revoked one the newest of its cut."""
    other = certificates.alias("other")
    same = [other.c[name] == certificates.c[name] for name in ("table", "stage", "cut")]
    revoked = exists().where(*same, other.c.revoked.is_not(None))
    return certificates.c.revoked.is_(None) & ~revoked


def _about(one: Certificate) -> str:
    """Return the stage as it is stored; the stage of a copy contains the copy's name."""
    return stage_name(one.stage, one.evidence.copy)


def _few(cuts: set[datetime] | None) -> set[datetime] | None:
    return cuts if cuts is not None and len(cuts) <= MOST_CUTS else None


def _row(one: Certificate) -> dict[str, object]:
    return {
        "id": one.id,
        "table": one.table,
        "stage": _about(one),
        "cut": one.cut,
        "issued": one.issued,
        "evidence": encode_value(Evidence, one.evidence),
        "unknown": list(one.unknown),
        "revoked": one.revoked,
        "why": one.why,
    }


def _certificate(row: Row[Any]) -> Certificate:
    return Certificate(
        id=row.id,
        table=row.table,
        stage=Stage(row.stage.partition(":")[0]),
        cut=row.cut,
        issued=row.issued,
        evidence=decode_value(Evidence, row.evidence),
        unknown=tuple(row.unknown),
        revoked=row.revoked,
        why=row.why,
    )


@dataclass(eq=False)
class Fences:
    """Every fence of the last day, and fewer of the last 42 days."""

    database: Database

    def add(self, fence: Fence) -> None:
        """Store *fence*; it replaces one of the same source and instant."""
        same = (fences.c.source == fence.source) & (fences.c.at == fence.at)
        with self.database.write() as connection:
            connection.execute(delete(fences).where(same))
            connection.execute(insert(fences).values(_fence_row(fence)))

    def fell(self, step: ClockStep) -> None:
        """Delete fences whose times are wrong, as *step* has shown."""
        gone = (
            (fences.c.source == step.source)
            & (fences.c.number >= step.first)
            & (fences.c.number < step.number)
        )
        with self.database.write() as connection:
            connection.execute(delete(fences).where(gone))

    def since(self, source: str, instant: datetime, limit: int = 10_000) -> tuple[Fence, ...]:
        """Return at most *limit* fences at or after *instant*, oldest first."""
        query = select(fences).where(fences.c.source == source, fences.c.at >= instant)
        query = query.order_by(fences.c.at).limit(limit)
        return tuple(self.database.decoded(query, fences, _fence))

    def prune(self, now: datetime) -> int:
        """Thin out old fences; return how many were deleted."""
        return downsample(self.database, fences, ["source"], now)


def _fence_row(fence: Fence) -> dict[str, object]:
    head = fence.head
    return {
        "source": fence.source,
        "at": fence.at,
        "number": fence.number,
        "identity": head.identity,
        "kind": head.position.kind,
        "position": head.position.words,
    }


def _fence(row: Row[Any]) -> Fence:
    head = Head(row.identity, Position(row.kind, row.position))
    return Fence(row.source, row.number, row.at, head)
