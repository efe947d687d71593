"""What each check ruled: the newest per table, and the numbers it can look back on."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Row, Select, delete, func, insert, literal, select

from checks.model import Outcome, Ruling, Verdict
from monitor.store.codec import dumps, loads
from monitor.store.database import Database, stored_text
from monitor.store.instant import Instant
from monitor.store.schema import fail_ends, verdicts
from monitor.store.thin import ThinningStep, forget, thin
from pipeline.model import Fence

_DAY = timedelta(days=1)
_STEPS = (
    ThinningStep(_DAY, timedelta(minutes=10)),
    ThinningStep(timedelta(days=7), timedelta(hours=1)),
)


@dataclass(eq=False)
class Verdicts:
    """Every verdict of the last day, and of the forty before those that ruled otherwise.

    A ruling that lasts is kept when it began and when it was last the same: thousands of tables
    that are well add no more than that.
    """

    database: Database

    def add(self, many: Sequence[Verdict]) -> None:
        """Keep *many*, in one transaction."""
        if not many:
            return
        with self.database.write() as connection:
            connection.execute(insert(verdicts), [_row(verdict) for verdict in many])

    def end_fails(self, passed: Sequence[Verdict]) -> None:
        """Keep when the last FAIL of each check ended: with the PASS that followed it."""
        with self.database.write() as connection:
            for one in passed:
                own = (fail_ends.c.table == one.table) & (fail_ends.c.check == one.check)
                connection.execute(delete(fail_ends).where(own))
                row = {"table": one.table, "check": one.check, "at": one.at}
                connection.execute(insert(fail_ends).values(row))

    def fail_ends(self) -> Mapping[tuple[str, str], datetime]:
        """By table and check: when its last FAIL ended; absent where none has."""
        rows = self.database.decoded(
            select(fail_ends),
            fail_ends,
            lambda row: ((row.table, row.check), row.at),
            lambda stored: (
                (stored_text(stored["table"]), stored_text(stored["check"])),
                datetime.now(UTC),
            ),
        )
        return dict(rows)

    def latest(self) -> tuple[Verdict, ...]:
        """The newest verdict of each table, check and outcome, in the order they were ruled.

        That order is the rows' own: a clock that went back makes times of no use for it.
        One that cannot be read is a FAIL without rows, unless it is known that it was none: nobody
        can waive it, and the next PASS ends it.
        """
        each = (verdicts.c.table, verdicts.c.check, verdicts.c.outcome)
        newest = select(func.max(verdicts.c.id)).group_by(*each)
        query = select(verdicts).where(verdicts.c.id.in_(newest)).order_by(verdicts.c.id)
        return tuple(self.database.decoded(query, verdicts, _verdict, _salvaged))

    def history(
        self, table: str, check: str, limit: int = 1000, since: datetime | None = None
    ) -> tuple[tuple[datetime, float], ...]:
        """The newest *limit* values of a check, oldest first; verdicts without a value left out."""
        query = (
            select(verdicts.c.at, verdicts.c.value)
            .where(verdicts.c.table == table, verdicts.c.check == check)
            .where(func.typeof(verdicts.c.value).in_(("real", "integer")))
            .where(func.typeof(verdicts.c.at) == "integer")
            .order_by(verdicts.c.at.desc(), verdicts.c.id.desc())
            .limit(limit)
        )
        if since is not None:
            query = query.where(verdicts.c.at >= since)
        with self.database.read() as connection:
            rows = connection.execute(query).all()
        return tuple((row.at, row.value) for row in reversed(rows))

    def list(
        self,
        table: str | None = None,
        check: str | None = None,
        since: datetime | None = None,
        limit: int = 100,
    ) -> tuple[Verdict, ...]:
        """At most *limit* verdicts that match, newest first."""
        query = select(verdicts).order_by(verdicts.c.at.desc(), verdicts.c.id.desc()).limit(limit)
        if table is not None:
            query = query.where(verdicts.c.table == table)
        if check is not None:
            query = query.where(verdicts.c.check == check)
        if since is not None:
            query = query.where(verdicts.c.at >= since)
        return self._all(query)

    def prune(self, now: datetime, looked_back_on: Collection[str] = ()) -> int:
        """Thin out what is old; return how many went.

        Of the checks *looked_back_on* what was ruled again stays, for the numbers.
        """
        repeated = _repeated(now - _DAY, looked_back_on)
        gone = forget(self.database, verdicts, verdicts.c.id.in_(repeated))
        by = ["table", "check", "outcome"]
        return gone + thin(self.database, verdicts, by, now, _STEPS)

    def _all(self, query: Any) -> tuple[Verdict, ...]:
        return tuple(self.database.decoded(query, verdicts, _verdict))


def _repeated(before: datetime, looked_back_on: Collection[str]) -> Select[tuple[int]]:
    """What had ruled the same and ruled the same again, until *before*."""
    own = (verdicts.c.table, verdicts.c.check)
    ruled = verdicts.c.outcome + literal(" ") + verdicts.c.code
    neighbours = (
        select(
            verdicts.c.id,
            verdicts.c.at,
            ruled.label("own"),
            func.lag(ruled).over(partition_by=own, order_by=verdicts.c.id).label("former"),
            func.lead(ruled).over(partition_by=own, order_by=verdicts.c.id).label("latter"),
        )
        .where(verdicts.c.check.not_in(looked_back_on))
        .subquery()
    )
    same = (neighbours.c.former == neighbours.c.own) & (neighbours.c.latter == neighbours.c.own)
    return select(neighbours.c.id).where(neighbours.c.at < before, same)


def _row(verdict: Verdict) -> dict[str, object]:
    ruling = verdict.ruling
    return {
        "table": verdict.table,
        "check": verdict.check,
        "at": verdict.at,
        "outcome": ruling.outcome.value,
        "reason": ruling.reason,
        "code": ruling.code,
        "guilty": list(ruling.keys),
        "value": verdict.value,
        "cause": verdict.cause,
        "run": verdict.run,
        "as_of": dumps(tuple[Fence, ...], verdict.as_of),
        "more": ruling.more,
    }


def _salvaged(stored: Mapping[str, bytes | None]) -> Verdict | None:
    """What an unreadable row may have ruled, at worst; None where it was a PASS."""
    outcome = stored_text(stored["outcome"])
    if outcome == Outcome.PASS:
        return None
    ruled = Outcome.UNKNOWN if outcome == Outcome.UNKNOWN else Outcome.FAIL
    reason = f"verdict {stored_text(stored['id'])} in the store cannot be read; a PASS ends it"
    try:
        at = Instant().process_result_value(int(stored["at"] or b""), None)
    except (ValueError, OverflowError):
        at = None
    ruling = Ruling(ruled, reason)
    return Verdict(
        stored_text(stored["table"]), stored_text(stored["check"]), ruling, at or datetime.now(UTC)
    )


def _verdict(row: Row[Any]) -> Verdict:
    ruling = Ruling(Outcome(row.outcome), row.reason, row.code, tuple(row.guilty), row.more or 0)
    return Verdict(
        table=row.table,
        check=row.check,
        ruling=ruling,
        at=row.at,
        as_of=loads(tuple[Fence, ...], row.as_of),
        value=row.value,
        cause=row.cause,
        run=row.run,
    )
