"""What people, or the service, asked to have read again, why, and how far it is."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Connection, Row, Select, func, insert, select, update

from monitor.store.database import Database
from monitor.store.schema import rereads
from pipeline.backfill_state import RereadState, RowsWished, WishedReread
from pipeline.errors import ConfigError
from pipeline.model import Origin

KINDS = {Origin.SNAPSHOT: "bootstrap", Origin.REPLAY: "replay", Origin.REPAIR: "repair"}
"""The verb that asks for it."""


@dataclass(frozen=True, slots=True)
class RereadWish:
    """Which rows, as what they count, and which ``checks`` are to pass again once they are there.

    ``shown`` is the time that they show, ``incident`` the one that named them.  If it is ``dry`` it
    is only told what would change.  ``rate`` as of a `WishedReread`.
    """

    origin: Origin = Origin.SNAPSHOT
    rows: RowsWished = field(default_factory=RowsWished)
    shown: datetime | None = None
    incident: str = ""
    checks: tuple[str, ...] = ()
    dry: bool = False
    rate: int = 0


@dataclass(frozen=True, slots=True)
class CheckedAgain:
    """What a check said as of a position after all that was read had been merged."""

    check: str
    passed: bool
    at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class RereadRequest:
    """Who asked for *table*, why and when; ``ended`` is None as long as it goes on.

    ``proofs`` are the newest answers of the checks that it was to put right.
    """

    id: str
    table: str
    reason: str
    who: str
    at: datetime
    ended: datetime | None = None
    states: tuple[RereadState, ...] = ()
    wish: RereadWish = field(default_factory=RereadWish)
    proofs: tuple[CheckedAgain, ...] = ()

    @property
    def kind(self) -> str:
        """What it is called: as the verb that asks for it, or what that is told."""
        if self.wish.dry:
            return "dry run"
        return KINDS[self.wish.origin]

    @property
    def unchecked(self) -> tuple[str, ...]:
        """Checks that have not passed since it was done."""
        passed = {one.check for one in self.proofs if one.passed}
        return tuple(one for one in self.wish.checks if one not in passed)

    @property
    def rows(self) -> int:
        """Rows that are landed."""
        return sum(one.rows for one in self.states)

    @property
    def done(self) -> bool:
        """Whether it is complete in every shard."""
        return bool(self.states) and all(one.done is not None for one in self.states)

    @property
    def why(self) -> str:
        """What it waits for, or why it ended incomplete; empty if it moves on, or is done."""
        return "; ".join(dict.fromkeys(one.why for one in self.states if one.why))


def require_same(known: RereadRequest, wish: RereadWish) -> RereadRequest:
    """*known*, which goes on, if it asks for what *wish* does.

    Raises:
        ConfigError: it asks for something else.
    """
    if known.wish == wish:
        return known
    msg = f"{known.table} is being read again ({known.kind} {known.id}, {known.who}: "
    verb = KINDS[known.wish.origin]
    now = f"wait until it has ended, or give it up: sluice {verb} {known.table} --cancel"
    raise ConfigError(f"{msg}{known.reason}); {now} --reason ...")


@dataclass(eq=False)
class RereadRequests:
    """Kept for ever: they say why a base is what it is.

    Of a table that ``hides`` values, the keys and conditions only until it has ended.
    """

    database: Database
    hides: Callable[[str], bool] = lambda _: False

    def add(self, asked: RereadRequest) -> RereadRequest:
        """Record *asked*; the one that goes on for its table, if it asks for the same.

        Raises:
            ConfigError: other rows of the table are being read.
        """
        same = (rereads.c.table == asked.table) & rereads.c.ended.is_(None)
        with self.database.write() as connection:
            for known in self._found(select(rereads).where(same)):
                return require_same(known, asked.wish)
            self._end_unreadable(connection, asked)
            row = {"id": asked.id, "table": asked.table, "reason": asked.reason, "who": asked.who}
            told = _WISH.dump_python(asked.wish, mode="json")
            connection.execute(insert(rereads).values(**row, at=asked.at, states=[], wish=told))
        return asked

    def get(self, id_: str) -> RereadRequest | None:
        """The one of that id."""
        found = self._found(select(rereads).where(rereads.c.id == id_))
        return found[0] if found else None

    def list(self, *, limit: int = 100) -> tuple[RereadRequest, ...]:
        """Newest first."""
        query = select(rereads).order_by(rereads.c.at.desc()).limit(limit)
        return self._found(query)

    def open(self) -> tuple[RereadRequest, ...]:
        """Those that go on, oldest first."""
        query = select(rereads).where(rereads.c.ended.is_(None)).order_by(rereads.c.at)
        return self._found(query)

    def wished(self) -> tuple[WishedReread, ...]:
        """What the pipeline is to read on."""
        return tuple(
            WishedReread(one.id, one.table, w.origin, w.rows, w.shown, w.dry, w.rate)
            for one in self.open()
            for w in [one.wish]
        )

    def unchecked(self, since: datetime) -> tuple[RereadRequest, ...]:
        """Those that were done after *since* and whose checks have not all passed again."""
        named = func.json_array_length(rereads.c.wish, "$.checks") > 0  # few of many that ended
        query = select(rereads).where(rereads.c.ended > since, named).order_by(rereads.c.at)
        return tuple(one for one in self._found(query) if one.done and one.unchecked)

    def checked(self, id_: str, proofs: Sequence[CheckedAgain]) -> None:
        """Keep what the checks of that one said last."""
        told = _PROOFS.dump_python(tuple(proofs), mode="json")
        with self.database.write() as connection:
            connection.execute(update(rereads).where(rereads.c.id == id_).values(proofs=told))

    def told(self, states: Iterable[RereadState], at: datetime) -> None:
        """Keep how far each is; one that is done, or will never be, has ended."""
        by_id: dict[str, list[RereadState]] = {}
        for state in states:
            by_id.setdefault(state.id, []).append(state)
        known = {one.id: one.states for one in self.open()}
        for id_, own in by_id.items():
            ended = all(one.done is not None for one in own) or any(one.refused for one in own)
            if ended or known.get(id_) != tuple(own):
                self._keep(id_, own, at if ended else None)

    def failed(self, why: str) -> None:
        """Keep that nothing could be read again, as what each waits for."""
        for one in self.open():
            states = one.states or (RereadState(one.id, one.table, ""),)
            told = [
                s if s.done is not None else replace(s, why=f"it failed: {why}") for s in states
            ]
            if one.states != tuple(told):
                self._keep(one.id, told, None)

    def cancel(self, id_: str, why: str, at: datetime) -> bool:
        """End it as it stands; false if none of that id goes on."""
        known = self.get(id_)
        if known is None or known.ended is not None:
            return False
        states = known.states or (RereadState(id_, known.table, ""),)
        self._keep(id_, [_ended(one, why) for one in states], at)
        return True

    def _keep(self, id_: str, states: Sequence[RereadState], ended: datetime | None) -> None:
        told = [asdict(one) for one in states]
        going = (rereads.c.id == id_) & rereads.c.ended.is_(None)
        with self.database.write() as connection:
            if ended is not None:
                self._forget_rows(connection, id_)
            connection.execute(update(rereads).where(going).values(states=told, ended=ended))

    def _found(self, query: Select[Any]) -> tuple[RereadRequest, ...]:
        """Those that can be read: what cannot is read on by nobody, and closes no gap."""
        return tuple(self.database.decoded(query, rereads, _read))

    def _end_unreadable(self, connection: Connection, asked: RereadRequest) -> None:
        """End what goes on for the table and cannot be read, without rows that it may name."""
        going = (rereads.c.table == asked.table) & rereads.c.ended.is_(None)
        hidden = {"wish": None} if self.hides(asked.table) else {}
        connection.execute(update(rereads).where(going).values(ended=asked.at, **hidden))

    def _forget_rows(self, connection: Connection, id_: str) -> None:
        found = self.get(id_)
        if found is not None and self.hides(found.table):
            wish = replace(found.wish, rows=RowsWished())
            told = _WISH.dump_python(wish, mode="json")
            connection.execute(update(rereads).where(rereads.c.id == id_).values(wish=told))


def _ended(state: RereadState, why: str) -> RereadState:
    return RereadState(state.id, state.table, state.shard, state.rows, state.done, why)


def _read(row: Row[Any]) -> RereadRequest:
    states = _STATES.validate_python(row.states)
    wish = _WISH.validate_python(row.wish) if row.wish else RereadWish()
    proofs = _PROOFS.validate_python(row.proofs or ())
    asked = (row.id, row.table, row.reason, row.who, row.at)
    return RereadRequest(*asked, row.ended, states, wish, proofs)


_WISH = TypeAdapter(RereadWish)
_STATES = TypeAdapter(tuple[RereadState, ...])
_PROOFS = TypeAdapter(tuple[CheckedAgain, ...])
