"""Stores requested backfills, message corrections, merge pauses and archive windows.

Each record says why it was requested and how it ended, and is kept for ever. The keys and
conditions of a backfill of a table with hidden values are kept only until it ends. The same
holds for the body of a correction.
"""

import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Connection, Insert, Row, Select, func, insert, select, update

from checks.blocks import Pause
from monitor.store.database import Database, stored_text
from monitor.store.schema import (
    archive_windows,
    archive_withdrawals,
    pauses,
    rereads,
    resubmissions,
)
from pipeline.archive import ArchiveWindow, RegisteredWindow
from pipeline.backfill_state import BackfillRequest, BackfillState, RowSelection
from pipeline.errors import ConfigError, UnknownNameError
from pipeline.model import Origin
from pipeline.resubmissions import Resubmission, ResubmissionState

KINDS = {Origin.SNAPSHOT: "bootstrap", Origin.REPLAY: "replay", Origin.REPAIR: "repair"}
"""The verb that requests a backfill of this origin."""


@dataclass(frozen=True, slots=True)
class BackfillSpec:
    """Selected rows, and the ``checks`` that must pass again once the rows are merged.

    ``shown`` is the time that the rows show, ``incident`` the incident that named them. A ``dry``
    run only reports what would change. ``rate`` is as in `BackfillRequest`. ``automatic``: a rule
    of the config requested it, for a finding as of ``fences`` (source and number). ``automatic``
    and ``fences`` say how it was requested, not what is read, so they are not compared.
    """

    origin: Origin = Origin.SNAPSHOT
    rows: RowSelection = field(default_factory=RowSelection)
    shown: datetime | None = None
    incident: str = ""
    checks: tuple[str, ...] = ()
    dry: bool = False
    rate: int = 0
    automatic: bool = field(default=False, compare=False)
    fences: tuple[tuple[str, int], ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class CheckedAgain:
    """The result of a check at a position after the backfilled rows were merged."""

    check: str
    passed: bool
    at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class StoredBackfill:
    """Who requested a backfill of *table*, why and when; ``ended`` is empty while it runs.

    ``proofs`` are the newest results of the checks that it repairs.
    """

    id: str
    table: str
    reason: str
    who: str
    at: datetime
    ended: datetime | None = None
    states: tuple[BackfillState, ...] = ()
    wish: BackfillSpec = field(default_factory=BackfillSpec)
    proofs: tuple[CheckedAgain, ...] = ()

    @property
    def kind(self) -> str:
        """Return the verb that requests it, or `dry run`."""
        if self.wish.dry:
            return "dry run"
        return KINDS[self.wish.origin]

    @property
    def unchecked(self) -> tuple[str, ...]:
        """Return the checks that have not passed since the rows were merged."""
        passed = {one.check for one in self.proofs if one.passed}
        return tuple(one for one in self.wish.checks if one not in passed)

    @property
    def rows(self) -> int:
        """Return the number of landed rows."""
        return sum(one.rows for one in self.states)

    @property
    def done(self) -> bool:
        """Tell whether every shard is complete."""
        return bool(self.states) and all(one.done is not None for one in self.states)

    @property
    def why(self) -> str:
        """Return what it waits for, or why it ended incomplete; else empty."""
        return "; ".join(dict.fromkeys(one.why for one in self.states if one.why))


def require_same(known: StoredBackfill, wish: BackfillSpec) -> StoredBackfill:
    """Return *known*, the running backfill, if it reads the same rows as *wish*.

    Raises:
        ConfigError: *known* reads other rows.
    """
    if known.wish == wish:
        return known
    msg = f"table {known.table} has a running backfill ({known.kind} {known.id}, {known.who}: "
    verb = KINDS[known.wish.origin]
    now = f"wait until it ends, or run: sluice {verb} {known.table} --cancel"
    raise ConfigError(f"{msg}{known.reason}); {now} --reason ...")


@dataclass(eq=False)
class StoredBackfills:
    """Requested backfills. They are kept for ever, because they explain a base.

    Keys and conditions of a table that ``hides`` values are kept only until the backfill ends.
    """

    database: Database
    hides: Callable[[str], bool] = lambda _: False

    def add(self, asked: StoredBackfill) -> StoredBackfill:
        """Record *asked*; if its table has a running backfill of the same rows, return that.

        Raises:
            ConfigError: other rows of the table are being read.
        """
        same = (rereads.c.table == asked.table) & rereads.c.ended.is_(None)
        with self.database.write() as connection:
            for known in self._found(select(rereads).where(same)):
                return require_same(known, asked.wish)
            self._end_unreadable(connection, asked)
            row = {"id": asked.id, "table": asked.table, "reason": asked.reason, "who": asked.who}
            wish_json = _WISH.dump_python(asked.wish, mode="json")
            connection.execute(
                insert(rereads).values(**row, at=asked.at, states=[], wish=wish_json)
            )
        return asked

    def get(self, id_: str) -> StoredBackfill | None:
        """Return the request with that id."""
        found = self._found(select(rereads).where(rereads.c.id == id_))
        return found[0] if found else None

    def list(self, *, limit: int = 100) -> tuple[StoredBackfill, ...]:
        """Return all requests, newest first."""
        query = select(rereads).order_by(rereads.c.at.desc()).limit(limit)
        return self._found(query)

    def since(self, at: datetime) -> tuple[StoredBackfill, ...]:
        """Return requests that were made or ended after *at* or run now, oldest first."""
        lately = (rereads.c.at > at) | (rereads.c.ended > at) | rereads.c.ended.is_(None)
        return self._found(select(rereads).where(lately).order_by(rereads.c.at))

    def ended(self, since: datetime) -> tuple[StoredBackfill, ...]:
        """Return requests that were made after *since* and have ended, oldest first."""
        over = (rereads.c.at > since) & rereads.c.ended.is_not(None)
        return self._found(select(rereads).where(over).order_by(rereads.c.at))

    def open(self) -> tuple[StoredBackfill, ...]:
        """Return running requests, oldest first."""
        query = select(rereads).where(rereads.c.ended.is_(None)).order_by(rereads.c.at)
        return self._found(query)

    def wished(self) -> tuple[BackfillRequest, ...]:
        """Return the backfills that the pipeline has to read."""
        return tuple(
            BackfillRequest(one.id, one.table, w.origin, w.rows, w.shown, w.dry, w.rate)
            for one in self.open()
            for w in [one.wish]
        )

    def unchecked(self, since: datetime) -> tuple[StoredBackfill, ...]:
        """Return requests done after *since* whose checks have not all passed again."""
        named = func.json_array_length(rereads.c.wish, "$.checks") > 0  # only a few have ended
        query = select(rereads).where(rereads.c.ended > since, named).order_by(rereads.c.at)
        return tuple(one for one in self._found(query) if one.done and one.unchecked)

    def checked(self, id_: str, proofs: Sequence[CheckedAgain]) -> None:
        """Store the last results of the checks of a request."""
        proofs_json = _PROOFS.dump_python(tuple(proofs), mode="json")
        with self.database.write() as connection:
            connection.execute(
                update(rereads).where(rereads.c.id == id_).values(proofs=proofs_json)
            )

    def record_states(self, states: Iterable[BackfillState], at: datetime) -> None:
        """Store the progress of backfills; one that is done or refused has ended."""
        by_id: dict[str, list[BackfillState]] = {}
        for state in states:
            by_id.setdefault(state.id, []).append(state)
        known = {one.id: one.states for one in self.open()}
        for id_, own in by_id.items():
            ended = all(one.done is not None for one in own) or any(one.refused for one in own)
            if ended or known.get(id_) != tuple(own):
                self._keep(id_, own, at if ended else None)

    def failed(self, why: str) -> None:
        """Store *why* no backfill could run, as the reason of each waiting one."""
        for one in self.open():
            states = one.states or (BackfillState(one.id, one.table, ""),)
            updated = [
                s if s.done is not None else replace(s, why=f"it failed: {why}") for s in states
            ]
            if one.states != tuple(updated):
                self._keep(one.id, updated, None)

    def cancel(self, id_: str, why: str, at: datetime) -> bool:
        """End a request incomplete; False if no running request has that id."""
        known = self.get(id_)
        if known is None or known.ended is not None:
            return False
        states = known.states or (BackfillState(id_, known.table, ""),)
        self._keep(id_, [_ended(one, why) for one in states], at)
        return True

    def _keep(self, id_: str, states: Sequence[BackfillState], ended: datetime | None) -> None:
        states_json = [asdict(one) for one in states]
        going = (rereads.c.id == id_) & rereads.c.ended.is_(None)
        with self.database.write() as connection:
            if ended is not None:
                self._forget_rows(connection, id_)
            connection.execute(update(rereads).where(going).values(states=states_json, ended=ended))

    def _found(self, query: Select[Any]) -> tuple[StoredBackfill, ...]:
        """Return readable requests: an unreadable one does not run, and closes no gap."""
        return tuple(self.database.decoded(query, rereads, _read))

    def _end_unreadable(self, connection: Connection, asked: StoredBackfill) -> None:
        """End unreadable running requests of the table, and delete the rows they may name."""
        going = (rereads.c.table == asked.table) & rereads.c.ended.is_(None)
        hidden = {"wish": None} if self.hides(asked.table) else {}
        connection.execute(update(rereads).where(going).values(ended=asked.at, **hidden))

    def _forget_rows(self, connection: Connection, id_: str) -> None:
        found = self.get(id_)
        if found is not None and self.hides(found.table):
            wish = replace(found.wish, rows=RowSelection(most=found.wish.rows.most))
            wish_json = _WISH.dump_python(wish, mode="json")
            connection.execute(update(rereads).where(rereads.c.id == id_).values(wish=wish_json))


def _ended(state: BackfillState, why: str) -> BackfillState:
    return BackfillState(state.id, state.table, state.shard, state.rows, state.done, why)


def _read(row: Row[Any]) -> StoredBackfill:
    states = _STATES.validate_python(row.states)
    wish = _WISH.validate_python(row.wish) if row.wish else BackfillSpec()
    proofs = _PROOFS.validate_python(row.proofs or ())
    asked = (row.id, row.table, row.reason, row.who, row.at)
    return StoredBackfill(*asked, row.ended, states, wish, proofs)


_WISH = TypeAdapter(BackfillSpec)
_STATES = TypeAdapter(tuple[BackfillState, ...])
_PROOFS = TypeAdapter(tuple[CheckedAgain, ...])


@dataclass(frozen=True, slots=True)
class ResubmissionRecord:
    """Who corrected a message, why and when; ``ended`` is empty until it has landed or was refused.

    ``change`` is the message's name. The corrected body is not here, because it may be long.
    ``table`` is empty if it was unknown. ``original`` is the SHA-256 of the unreadable bytes.
    ``batch`` is the one in which it landed. Without a batch, ``why`` says what it waits for or,
    once it has ended, why it never lands.
    """

    id: str
    change: str
    table: str
    reason: str
    who: str
    at: datetime
    original: str
    ended: datetime | None = None
    batch: int | None = None
    why: str = ""


@dataclass(eq=False)
class Resubmissions:
    """Corrections of unreadable messages, kept for ever.

    The corrected body is kept only until the correction ends: it may have values that no lake has.
    """

    database: Database

    def add(self, asked: Resubmission, made: ResubmissionRecord) -> ResubmissionRecord:
        """Record *made*, the correction that *asked* sends, with who requested it.

        Raises:
            ConfigError: another correction of the message waits to land.
        """
        change = resubmissions.c.change == made.change
        with self.database.write() as connection:
            open_one = select(resubmissions).where(change & resubmissions.c.ended.is_(None))
            if (known := connection.execute(open_one).first()) is not None:
                correction = f"{known.who} at {known.at:%Y-%m-%dT%H:%M:%SZ}: {known.reason}"
                raise ConfigError(
                    f"{made.change} already has a correction that has not landed ({correction})"
                )
            body = _BODY.dump_json(asked).decode()
            row = {"id": made.id, "change": made.change, "body": body}
            whose = {"table": made.table, "reason": made.reason, "who": made.who, "why": ""}
            stands = {"at": made.at, "ended": None, "batch": None, "original": made.original}
            connection.execute(insert(resubmissions).values(**row, **whose, **stands))
        return made

    def wished(self) -> tuple[Resubmission, ...]:
        """Return corrections that wait to land, oldest first."""
        query = select(resubmissions).where(resubmissions.c.ended.is_(None))
        query = query.order_by(resubmissions.c.at)
        return tuple(
            self.database.decoded(query, resubmissions, lambda row: _BODY.validate_json(row.body))
        )

    def record_states(self, states: Iterable[ResubmissionState], at: datetime) -> None:
        """Store the progress of corrections; one that has landed or was refused has ended."""
        for one in states:
            over = one.refused or one.batch is not None
            values = {"batch": one.batch, "why": one.why, "ended": at if over else None}
            values |= {"body": ""} if over else {}
            own = (resubmissions.c.id == one.id) & resubmissions.c.ended.is_(None)
            with self.database.write() as connection:
                connection.execute(update(resubmissions).where(own).values(values))

    def get(self, id_: str) -> ResubmissionRecord | None:
        """Return the correction with that id."""
        with self.database.read() as connection:
            found = connection.execute(_records().where(resubmissions.c.id == id_)).first()
        return None if found is None else _read_resubmission(found)

    def list(self, *, limit: int = 100) -> tuple[ResubmissionRecord, ...]:
        """Return all corrections, newest first."""
        query = _records().order_by(resubmissions.c.at.desc()).limit(limit)
        with self.database.read() as connection:
            return tuple(_read_resubmission(row) for row in connection.execute(query).all())

    def of(self, changes: Collection[str]) -> tuple[ResubmissionRecord, ...]:
        """Return corrections of these *changes*, newest first."""
        query = _records().where(resubmissions.c.change.in_(changes))
        with self.database.read() as connection:
            rows = connection.execute(query.order_by(resubmissions.c.at.desc())).all()
        return tuple(_read_resubmission(row) for row in rows)


def _records() -> Select[Any]:
    """Select everything but the bodies."""
    return select(*(resubmissions.c[one.name] for one in fields(ResubmissionRecord)))


def _read_resubmission(row: Row[Any]) -> ResubmissionRecord:
    return ResubmissionRecord(**row._mapping)


_BODY = TypeAdapter(Resubmission)


_ALWAYS = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PauseRecord:
    """A pause: when and by whom it was requested and ended; "" if it expired."""

    pause: Pause
    at: datetime
    ended: datetime | None = None
    ended_by: str = ""


@dataclass(eq=False)
class Pauses:
    """Pauses of merging, kept for ever. Only this object writes them, so they are read once."""

    database: Database
    _open: tuple[Pause, ...] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def begin(self, asked: Pause) -> Pause:
        """Pause a table; a paused table gets the new reason and end, and keeps its start.

        The start is kept so that no cut after it becomes ready.
        """
        with self.database.write() as connection:
            known = self.standing(asked.since).get(asked.table)
            since = known.since if known is not None else asked.since
            made = Pause(asked.table, asked.reason, asked.who, since, asked.until)
            self._end(asked.table, asked.who if known is not None else "", asked.since)
            row = {"id": uuid.uuid4().hex[:12], "table": made.table, "reason": made.reason}
            row |= {"who": made.who}
            times = {"since": since, "at": asked.since, "until": made.until}
            connection.execute(insert(pauses).values(**row, **times, ended_by=""))
        self._forget()
        return made

    def resume(self, table: str, who: str, at: datetime) -> bool:
        """End the pause of a table; False if it is not paused."""
        if table not in self.standing(at):
            return False
        self._end(table, who, at)
        self._forget()
        return True

    def standing(self, at: datetime) -> Mapping[str, Pause]:
        """Return active pauses by table; a pause whose end has passed is over.

        An unreadable pause is active, without a start, until it is resumed.
        """
        with self._lock:
            if self._open is None:
                query = select(pauses).where(pauses.c.ended.is_(None))
                found = self.database.decoded(query, pauses, _pause, _salvaged)
                self._open = tuple(found)
            known = self._open
        return {one.table: one for one in known if one.until is None or at < one.until}

    def list(self, at: datetime, *, limit: int = 100) -> tuple[PauseRecord, ...]:
        """Return all pauses, newest first; a pause whose end is at or before *at* has ended."""
        query = select(pauses).order_by(pauses.c.at.desc()).limit(limit)
        return tuple(self.database.decoded(query, pauses, lambda row: _record(row, at)))

    def _end(self, table: str, who: str, at: datetime) -> None:
        going = (pauses.c.table == table) & pauses.c.ended.is_(None)
        with self.database.write() as connection:
            over = going & pauses.c.until.is_not(None) & (pauses.c.until <= at)
            connection.execute(update(pauses).where(over).values(ended=pauses.c.until))
            connection.execute(update(pauses).where(going).values(ended=at, ended_by=who))

    def _forget(self) -> None:
        with self._lock:
            self._open = None


def _pause(row: Row[Any]) -> Pause:
    return Pause(row.table, row.reason, row.who, row.since, row.until)


def _salvaged(stored: Mapping[str, bytes | None]) -> Pause:
    reason = f"stored pause {stored_text(stored['id'])} is unreadable"
    return Pause(stored_text(stored["table"]), reason, "an unknown person", _ALWAYS)


def _record(row: Row[Any], at: datetime) -> PauseRecord:
    over = row.ended is None and row.until is not None and row.until <= at
    return PauseRecord(_pause(row), row.at, row.until if over else row.ended, row.ended_by)


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """Who withdrew a window, when and why."""

    who: str
    at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class ArchiveRecord:
    """An archive window registered ``at`` a time; ``withdrawn`` if it no longer applies."""

    id: str
    registered: RegisteredWindow
    at: datetime
    withdrawn: Withdrawal | None = None


@dataclass(eq=False)
class Archives:
    """Archive windows, kept for ever. Only this object adds windows, so they are read once."""

    database: Database
    _known: tuple[ArchiveRecord, ...] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _writing: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, one: RegisteredWindow, at: datetime) -> tuple[ArchiveRecord, bool]:
        """Register a window; False, with the existing one, if the same was registered before."""
        with self._writing:  # two concurrent requests run one after the other
            return self._added(one, at)

    def _added(self, one: RegisteredWindow, at: datetime) -> tuple[ArchiveRecord, bool]:
        for there in self.list():
            if there.registered == one and there.withdrawn is None:
                return there, False
        made = ArchiveRecord(uuid.uuid4().hex[:12], one, at)
        window = one.window
        row = {"table": one.table, "since": window.since, "until": window.until, "at": at}
        row |= {"column": window.column, "before": window.before}
        row |= {"reason": window.reason, "who": window.who, "id": made.id}
        self.write_row(insert(archive_windows).values(**row))
        return made, True

    def withdraw(self, number: str, word: Withdrawal) -> ArchiveRecord:
        """Withdraw the window *number*; the rows that it has kept stay.

        Raises:
            ConfigError: no window has this number, or it was withdrawn before.
        """
        with self._writing:
            return self._withdrawn(number, word)

    def _withdrawn(self, number: str, word: Withdrawal) -> ArchiveRecord:
        for one in self.list():
            if one.id == number and one.withdrawn is None:
                row = {"id": number, "who": word.who, "at": word.at, "reason": word.reason}
                self.write_row(insert(archive_withdrawals).values(**row))
                return replace(one, withdrawn=word)
        known = ", ".join(one.id for one in self.list() if one.withdrawn is None) or "none"
        kind = ConfigError if any(one.id == number for one in self.list()) else UnknownNameError
        raise kind(f"unknown window {number!r}; nothing was recorded; known: {known}")

    def registered(self) -> tuple[RegisteredWindow, ...]:
        """Return windows that apply, newest first."""
        return tuple(one.registered for one in self.list() if one.withdrawn is None)

    def write_row(self, statement: Insert) -> None:
        with self.database.write() as connection:
            connection.execute(statement)
        with self._lock:
            self._known = None

    def list(self) -> tuple[ArchiveRecord, ...]:
        """Return all windows, newest first."""
        with self._lock:
            if self._known is None:
                its = archive_withdrawals.c
                more = (its.who.label("taken_by"), its.at.label("taken"), its.reason.label("why"))
                both = archive_windows.outerjoin(archive_withdrawals)
                query = select(archive_windows, *more).select_from(both)
                query = query.order_by(archive_windows.c.at.desc())
                with self.database.read() as connection:
                    self._known = tuple(map(_record_archive, connection.execute(query).all()))
            return self._known


def _record_archive(row: Row[Any]) -> ArchiveRecord:
    window = ArchiveWindow(row.since, row.until, row.column, row.before, row.reason, row.who)
    taken = None if row.taken is None else Withdrawal(row.taken_by, row.taken, row.why)
    return ArchiveRecord(row.id, RegisteredWindow(row.table, window), row.at, taken)
