"""What a person has closed by name: gaps, holds, quarantined changes, keys that a check found."""

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sqlalchemy import Row, delete, insert, select, update

from monitor.store.database import Database
from monitor.store.schema import waivers

SERVICE = "sluice"  # who ends a waiver of what was seen to be right again


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Waiver:
    """Who closed *id*, when, and why, until when at most; and who withdrew it, when and why."""

    id: str
    reason: str
    who: str
    at: datetime
    until: datetime | None = None
    withdrawn: datetime | None = None
    withdrawn_by: str = ""
    withdrawn_why: str = ""

    def is_open(self, now: datetime) -> bool:
        """Whether it covers anything at *now*."""
        return self.withdrawn is None and (self.until is None or now < self.until)

    def lasts(self, other: "Waiver") -> bool:
        """Whether it goes on for as long as *other*."""
        return self.until is None or (other.until is not None and other.until <= self.until)


@dataclass(eq=False)
class Waivers:
    """Waivers of every lane, until each is withdrawn or its time is over.

    Only this object writes any, so they are read back once.
    """

    database: Database
    clock: Callable[[], datetime] = _now
    _known: tuple[Waiver, ...] | None = None
    _ids: tuple[frozenset[str], datetime | None] | None = None  # and until when they are right
    _turn: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, waiver: Waiver) -> bool:
        """Record *waiver*; False if the same is waived already for as long: the first one stays.

        One that was withdrawn, is over, or would be over sooner is replaced.
        """
        with self.database.write() as connection:
            if any(one.is_open(waiver.at) and one.lasts(waiver) for one in self._read(waiver.id)):
                return False
            connection.execute(delete(waivers).where(waivers.c.id == waiver.id))
            row = {"id": waiver.id, "reason": waiver.reason, "who": waiver.who, "at": waiver.at}
            connection.execute(insert(waivers).values({**row, "until": waiver.until}))
        self._forget()
        return True

    def withdraw(self, id_: str, *, who: str, why: str, at: datetime) -> bool:
        """End the waiver of *id_*; False if none is open."""
        ended = {"withdrawn": at, "withdrawn_by": who, "withdrawn_why": why}
        with self.database.write() as connection:
            if not any(one.is_open(at) for one in self._read(id_)):
                return False
            connection.execute(update(waivers).where(waivers.c.id == id_).values(ended))
        self._forget()
        return True

    def end(
        self, prefix: str, *, why: str, at: datetime, but: Collection[str] = frozenset()
    ) -> int:
        """End the waivers, given up to *at*, of ids that begin with *prefix*; return how many.

        Those of *but* go on.  Not inside another write: who reads meanwhile must not keep what
        was not committed.
        """
        if not any(id_.startswith(prefix) and id_ not in but for id_ in self.waived()):
            return 0
        own = [one.id for one in self.list() if one.id.startswith(prefix) and one.at <= at]
        ended = (self.withdraw(id_, who=SERVICE, why=why, at=at) for id_ in own if id_ not in but)
        return sum(ended)

    def waived(self) -> frozenset[str]:
        """Every id whose waiver is open now."""
        with self._turn:
            now = self.clock()
            if self._ids is None or (self._ids[1] is not None and now >= self._ids[1]):
                if self._known is None:
                    self._known = self._read()
                active = [one for one in self._known if one.is_open(now)]
                ends = [one.until for one in active if one.until is not None]
                self._ids = frozenset(one.id for one in active), min(ends, default=None)
            return self._ids[0]

    def list(self) -> tuple[Waiver, ...]:
        """All of them, newest first, also those that are over."""
        return self._read()

    def _read(self, id_: str | None = None) -> tuple[Waiver, ...]:
        """Newest first, all or that of *id_*; one that cannot be read waives nothing."""
        query = select(waivers).order_by(waivers.c.at.desc())
        query = query if id_ is None else query.where(waivers.c.id == id_)
        return tuple(self.database.decoded(query, waivers, _waiver))

    def _forget(self) -> None:
        with self._turn:
            self._known = self._ids = None


def _waiver(row: Row[tuple[object, ...]]) -> Waiver:
    return Waiver(
        id=row.id,
        reason=row.reason,
        who=row.who,
        at=row.at,
        until=row.until,
        withdrawn=row.withdrawn,
        withdrawn_by=row.withdrawn_by or "",
        withdrawn_why=row.withdrawn_why or "",
    )
