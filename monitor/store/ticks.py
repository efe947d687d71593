"""Stores which ticks ran, how they ended, and which were missed.

Consecutive missed ticks are one row with first, last and number. A tick that ran is one row with
the ticks that passed while it ran.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, func, insert, select, update

from monitor.store.database import Database
from monitor.store.history import HISTORY, delete_rows
from monitor.store.schema import tick_totals, ticks

RUNNING, FAILED, MISSED = "running", "failed", "missed"
_DULL = ("done", "ok")
_DULL_KEPT = timedelta(days=1)

# Built once: each job executes them every second, and building one costs as much as executing it.
_KNOWN = (
    select(ticks.c.job)
    .where(ticks.c.job == bindparam("of"))
    .where(ticks.c.planned <= bindparam("at"), ticks.c.until >= bindparam("at"))
    .limit(1)
)
_ADD, _ADD_TOTAL = insert(ticks), insert(tick_totals)
_END = update(ticks).where(
    ticks.c.job == bindparam("of"),
    ticks.c.planned == bindparam("at"),
    ticks.c.result == bindparam("was"),
)
_COUNT = (
    update(tick_totals)
    .where(tick_totals.c.job == bindparam("of"), tick_totals.c.result == bindparam("ended"))
    .values(ticks=tick_totals.c.ticks + bindparam("by"))
)


@dataclass(frozen=True, slots=True)
class Tick:
    """One tick, or ``many`` from ``planned`` to ``until`` (inclusive) with one result."""

    job: str
    planned: datetime
    until: datetime
    many: int
    started: datetime | None
    finished: datetime | None
    result: str
    detail: str


@dataclass(eq=False)
class Ticks:
    """Successful ticks of a day, all others of 42 days; totals for ever."""

    database: Database

    def start(self, job: str, planned: datetime, at: datetime) -> bool:
        """Accept a tick; False if it was accepted or missed before."""
        row = _row(job, planned, result=RUNNING, started=at)
        with self.database.write() as connection:
            if self._known(job, planned):
                return False
            connection.execute(_ADD, row)
        return True

    def finish(
        self,
        job: str,
        planned: datetime,
        at: datetime,
        result: str,
        detail: str = "",
        *,
        through: Sequence[datetime] = (),
    ) -> None:
        """Record the end of a started tick; a second end changes nothing.

        A tick that failed before its start is recorded, too. It counts as one, although it also
        covers the later ticks *through* which it ran.
        """
        with self.database.write() as connection:
            values = {
                "finished": at,
                "result": result,
                "detail": detail,
                "until": max((planned, *through)),
                "many": 1 + len(through),
            }
            tick = {"of": job, "at": planned, "was": RUNNING}
            if connection.execute(_END, {**tick, **values}).rowcount == 0:
                if self._known(job, planned):
                    return
                connection.execute(_ADD, _row(job, planned, **values))
            _count(connection, job, result, 1)

    def miss_many(self, job: str, planneds: Sequence[datetime], at: datetime) -> None:
        """Record consecutive ticks that did not run; noticed at *at*."""
        if not planneds:
            return
        first, last = min(planneds), max(planneds)
        row = _row(job, first, result=MISSED, finished=at)
        with self.database.write() as connection:
            if self._known(job, first):
                return
            connection.execute(_ADD, {**row, "until": last, "many": len(planneds)})
            _count(connection, job, MISSED, len(planneds))

    def forget(self, job: str, since: datetime, every: timedelta) -> None:
        """Delete ticks at or after *since*, which a fast clock has used up.

        They run again, but their totals stay.
        """
        mine, before = ticks.c.job == job, since - every
        with self.database.write() as connection:
            connection.execute(delete(ticks).where(mine, ticks.c.planned >= since))
            astride = mine & (ticks.c.until >= since)
            for row in connection.execute(select(ticks).where(astride)).all():
                many = (before - row.planned) // every + 1
                same = mine & (ticks.c.planned == row.planned)
                change = update(ticks).where(same).values(until=before, many=many)
                connection.execute(change)

    def last(self, job: str) -> datetime | None:
        """Return the newest recorded tick, run or missed; None before the first."""
        with self.database.read() as connection:
            newest: datetime | None = connection.scalar(
                select(func.max(ticks.c.until)).where(ticks.c.job == job)
            )
        return newest

    def lasts(self) -> Mapping[str, datetime]:
        """Return job -> its newest recorded tick."""
        query = select(ticks.c.job, func.max(ticks.c.until).label("newest")).group_by(ticks.c.job)
        with self.database.read() as connection:
            return {row.job: row.newest for row in connection.execute(query).all()}

    def interrupted(self, at: datetime) -> tuple[Tick, ...]:
        """Mark ticks that an earlier run left open as failed; call it at the start."""
        left = select(ticks).where(ticks.c.result == RUNNING).order_by(ticks.c.planned)
        with self.database.write() as connection:
            found = tuple(_tick(row) for row in connection.execute(left).all())
            for tick in found:
                self.finish(
                    tick.job, tick.planned, at, FAILED, ("the service ended during this tick")
                )
        return found

    def last_success(self) -> Mapping[str, datetime]:
        """Return job -> when it last succeeded."""
        query = select(ticks.c.job, func.max(ticks.c.finished).label("ended"))
        query = query.where(ticks.c.result.in_(_DULL)).group_by(ticks.c.job)
        with self.database.read() as connection:
            return {row.job: row.ended for row in connection.execute(query).all()}

    def totals(self) -> Mapping[tuple[str, str], int]:
        """Return (job, result) -> ticks since the store was created."""
        with self.database.read() as connection:
            rows = connection.execute(select(tick_totals)).all()
        return {(row.job, row.result): row.ticks for row in rows}

    def list(
        self, job: str | None = None, result: str | None = None, limit: int = 100
    ) -> tuple[Tick, ...]:
        """Return at most *limit* matching rows, newest first."""
        query = select(ticks).order_by(ticks.c.planned.desc()).limit(limit)
        if job is not None:
            query = query.where(ticks.c.job == job)
        if result is not None:
            query = query.where(ticks.c.result == result)
        with self.database.read() as connection:
            return tuple(_tick(row) for row in connection.execute(query).all())

    def prune(self, now: datetime) -> int:
        """Delete old ticks, but never the newest of a job; return their number."""
        newest = select(func.max(ticks.c.planned)).group_by(ticks.c.job)
        dull = ticks.c.result.in_(_DULL) & (ticks.c.until < now - _DULL_KEPT)
        old = dull | (ticks.c.until < now - HISTORY)
        return delete_rows(self.database, ticks, old, ticks.c.planned.not_in(newest))

    def _known(self, job: str, planned: datetime) -> bool:
        with self.database.read() as connection:
            return connection.scalar(_KNOWN, {"of": job, "at": planned}) is not None


def _row(job: str, planned: datetime, **rest: object) -> dict[str, object]:
    return {"job": job, "planned": planned, "until": planned, "many": 1, "detail": "", **rest}


def _count(connection: Connection, job: str, result: str, by: int) -> None:
    if connection.execute(_COUNT, {"of": job, "ended": result, "by": by}).rowcount == 0:
        connection.execute(_ADD_TOTAL, {"job": job, "result": result, "ticks": by})


def _tick(row: Row[Any]) -> Tick:
    return Tick(
        row.job, row.planned, row.until, row.many, row.started, row.finished, row.result, row.detail
    )
