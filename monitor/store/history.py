"""Stores verdicts, accounts, table states and check memory, and thins old rows.

Thousands of tables are checked every few seconds, and each check remembers something. One
transaction for each would cost more than the checks. So check memory waits in process memory for a
few seconds at most. It is written with the next transaction of the store, or in one of its own. A
verdict is therefore never on disk before the memory of its check. Written memory stays cached,
because this process is its only writer.

Old rows are thinned: by default to the first of each minute, then of each quarter hour, then none.
The first row of a bucket is kept, so the query 'first at or after' still has its answer. The newest
row of all is kept at any age, so 'the newest' has an answer after a week of silence too.
"""

import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    Row,
    Select,
    Table,
    Text,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal,
    select,
    type_coerce,
    update,
)

from checks.blocks import StateSince, TableState
from checks.model import Outcome, Ruling, Verdict
from monitor.store.database import Database, stored_text
from monitor.store.schema import (
    Instant,
    account_totals,
    accounts,
    decode_value,
    encode_value,
    fail_ends,
    memory,
    table_states,
    verdicts,
)
from pipeline.errors import ProofError, UnreachableError
from pipeline.model import Account, Fence

FEWEST, AT_ONCE = 10, 200  # rows deleted in one transaction
MOST_FOUND = 50_000  # rows that are found before any of them is deleted
LONG = 0.025  # seconds; after a longer transaction the next is shorter
HISTORY = timedelta(days=42)
"""Cuts of the last 40 days stay answerable; two more days cover other time zones."""


@dataclass(frozen=True, slots=True)
class ThinningStep:
    """Of rows older than *age*, the first one per *bucket* is kept."""

    age: timedelta
    bucket: timedelta


MINUTES_THEN_QUARTERS = (
    ThinningStep(timedelta(days=1), timedelta(minutes=1)),
    ThinningStep(timedelta(days=10), timedelta(minutes=15)),
)


def delete_rows(database: Database, table: Table, *which: ColumnElement[bool]) -> int:
    """Delete the rows of *table* for which all of *which* holds; return how many.

    Rows are found while others may write. They are deleted in small batches, and in smaller ones if
    a batch takes long, so that writers wait briefly. After each batch it pauses for as long as the
    batch took: the lock is not fair, and a waiting writer would not get it otherwise. At most
    `MOST_FOUND` keys are in memory.
    """
    gone, found = 0, MOST_FOUND
    while found == MOST_FOUND:
        with database.read() as connection:
            key = table.primary_key.columns
            keys = connection.execute(select(*key).where(*which).limit(MOST_FOUND)).all()
        deleted = _delete_keys(database, table, keys)
        gone, found = gone + deleted, len(keys) if deleted else 0
    return gone


def _delete_keys(database: Database, table: Table, keys: Sequence[Row[Any]]) -> int:
    key = table.primary_key.columns
    # one by one by index, because with a list SQLite would read the whole table
    one = delete(table).where(*(column == bindparam(f"the_{column.name}") for column in key))
    gone, first, few = 0, 0, AT_ONCE
    while first < len(keys):
        began = time.monotonic()
        rows = [
            {f"the_{name}": value for name, value in row._mapping.items()}
            for row in keys[first : first + few]
        ]
        with database.write() as connection:
            gone += connection.execute(one, rows).rowcount
        spent = time.monotonic() - began
        first, few = first + few, next_batch_size(few, spent)
        time.sleep(min(spent, LONG))
    return gone


def next_batch_size(few: int, spent: float) -> int:
    """Return how many rows to delete next, after the last *few* took *spent* seconds."""
    return max(few // 2, FEWEST) if spent > LONG else min(few * 2, AT_ONCE)


def downsample(
    database: Database,
    table: Table,
    by: Sequence[str],
    now: datetime,
    steps: Sequence[ThinningStep] = MINUTES_THEN_QUARTERS,
) -> int:
    """Thin *table* by ``at``, separately for each value of *by*; return the deleted rows."""
    newer = table.alias("newer")
    later = exists().where(_same(table, newer, by), newer.c.at > table.c.at)
    gone = delete_rows(database, table, table.c.at < now - HISTORY, later)
    for step in steps:
        older = table.alias("older")
        start = _bucket(table.c.at, step.bucket)
        first = exists().where(
            _same(table, older, by), older.c.at < table.c.at, _micros(older.c.at) >= start
        )
        gone += delete_rows(database, table, table.c.at < now - step.age, later, first)
    return gone


def _same(one: FromClause, other: FromClause, by: Sequence[str]) -> ColumnElement[bool]:
    return and_(*(one.c[name] == other.c[name] for name in by))


def _micros(at: ColumnElement[datetime]) -> ColumnElement[int]:
    return type_coerce(at, BigInteger)


def _bucket(at: ColumnElement[datetime], size: timedelta) -> ColumnElement[int]:
    """Return the start of the bucket of *at*, in microseconds."""
    width = size // timedelta(microseconds=1)
    return (_micros(at) // width) * width


_DAY = timedelta(days=1)
_STEPS = (
    ThinningStep(_DAY, timedelta(minutes=10)),
    ThinningStep(timedelta(days=7), timedelta(hours=1)),
)


@dataclass(eq=False)
class Verdicts:
    """Every verdict of the last day, and the changes of the last 42 days.

    Of consecutive equal verdicts, only the first and the last are kept, so thousands of healthy
    tables add few rows.
    """

    database: Database

    def add(self, many: Sequence[Verdict]) -> None:
        """Store *many* in one transaction."""
        if not many:
            return
        with self.database.write() as connection:
            connection.execute(insert(verdicts), [_row(verdict) for verdict in many])

    def end_fails(self, passed: Sequence[Verdict]) -> None:
        """Record that the last FAIL of each check ended, at the PASS in *passed* that followed it.

        ``at`` of a verdict is when it was recorded; its mirror was read before that.
        """
        with self.database.write() as connection:
            for one in passed:
                own = (fail_ends.c.table == one.table) & (fail_ends.c.check == one.check)
                connection.execute(delete(fail_ends).where(own))
                row = {"table": one.table, "check": one.check, "at": one.at}
                connection.execute(insert(fail_ends).values(row))

    def fail_ends(self) -> Mapping[tuple[str, str], datetime]:
        """Return when the last FAIL of each table and check ended; absent if none has."""
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
        """Return the newest verdict of each table, check and outcome, in the order of the rulings.

        The order is that of the row ids, because a clock that was set back makes times useless. An
        unreadable verdict counts as a FAIL without rows, unless its outcome is readable and not
        FAIL. It cannot be waived, and the next PASS ends it.
        """
        each = (verdicts.c.table, verdicts.c.check, verdicts.c.outcome)
        newest = select(func.max(verdicts.c.id)).group_by(*each)
        query = select(verdicts).where(verdicts.c.id.in_(newest)).order_by(verdicts.c.id)
        return tuple(self.database.decoded(query, verdicts, _verdict, _salvaged))

    def history(
        self, table: str, check: str, limit: int = 1000, since: datetime | None = None
    ) -> tuple[tuple[datetime, float], ...]:
        """Return the newest *limit* values of a check, oldest first; skip verdicts without one."""
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
        """Return at most *limit* matching verdicts, newest first."""
        query = select(verdicts).order_by(verdicts.c.at.desc(), verdicts.c.id.desc()).limit(limit)
        if table is not None:
            query = query.where(verdicts.c.table == table)
        if check is not None:
            query = query.where(verdicts.c.check == check)
        if since is not None:
            query = query.where(verdicts.c.at >= since)
        return self._all(query)

    def prune(self, now: datetime, looked_back_on: Collection[str] = ()) -> int:
        """Thin out old verdicts; return how many were deleted.

        All numbers of the checks *looked_back_on* stay, also in repeated verdicts.
        """
        repeated = _repeated(now - _DAY, looked_back_on)
        gone = delete_rows(self.database, verdicts, verdicts.c.id.in_(repeated))
        by = ["table", "check", "outcome"]
        return gone + downsample(self.database, verdicts, by, now, _STEPS)

    def _all(self, query: Any) -> tuple[Verdict, ...]:
        return tuple(self.database.decoded(query, verdicts, _verdict))


def _repeated(before: datetime, looked_back_on: Collection[str]) -> Select[tuple[int]]:
    """Select verdicts older than *before* whose neighbours have the same ruling."""
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
        "as_of": encode_value(tuple[Fence, ...], verdict.as_of),
        "more": ruling.more,
    }


def _salvaged(stored: Mapping[str, bytes | None]) -> Verdict | None:
    """Return the worst ruling that an unreadable row may have; None if it was a PASS."""
    outcome = stored_text(stored["outcome"])
    if outcome == Outcome.PASS:
        return None
    ruled = Outcome.UNKNOWN if outcome == Outcome.UNKNOWN else Outcome.FAIL
    reason = f"stored verdict {stored_text(stored['id'])} is unreadable; it ends with the next PASS"
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
        as_of=decode_value(tuple[Fence, ...], row.as_of),
        value=row.value,
        cause=row.cause,
        run=row.run,
    )


BALANCED = timedelta(hours=6)  # how long a merge may be reported again


@dataclass(eq=False)
class Accounts:
    """Accounts of the last hours, unbalanced ones of 42 days, and totals for ever.

    Only this object adds accounts, so the newest residuals are read from the store once.
    """

    database: Database
    _residuals: dict[str, int] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, lane: str, table: str, batch: int, account: Account, at: datetime) -> bool:
        """Record the counts of one merge; False if that merge was recorded before."""
        same = (accounts.c.lane == lane) & (accounts.c.table == table) & (accounts.c.batch == batch)
        row = {"lane": lane, "table": table, "batch": batch, "at": at}
        with self.database.write() as connection:
            if connection.scalar(select(accounts.c.batch).where(same)) is not None:
                return False
            values = {**row, "terms": _plain(account), "residual": account.residual}
            connection.execute(insert(accounts).values(values))
            for term, count in nonzero_terms(account).items():
                _count(connection, table, term, count)
        with self._lock:  # never around a write, because a writer may ask for residuals
            if self._residuals is not None:
                self._residuals = {**self._residuals, table: account.residual}
        return True

    def totals(self) -> Mapping[tuple[str, str], int]:
        """Return (table, term) -> changes; an ignored change counts under ``ignored:RULE``."""
        return {(table, term): count for table, term, count in self._totals(select(account_totals))}

    def ignored(self, rule: str) -> Mapping[str, int]:
        """Return table -> changes ignored by *rule* so far; tables without one are absent."""
        own = select(account_totals).where(account_totals.c.term == f"ignored:{rule}")
        found = self._totals(own.where(account_totals.c.changes > 0))
        return {table: count for table, _, count in found}

    def residuals(self) -> Mapping[str, int]:
        """Return table -> residual of its newest account; any value but 0 is an error.

        An unreadable account counts as 1, until a later merge of its table is recorded.
        """
        with self._lock:
            if self._residuals is None:
                self._residuals = self._newest_residuals()
            return self._residuals

    def prune(self, now: datetime) -> int:
        """Delete old accounts, and balanced ones sooner; the newest of each table stays."""
        count = delete_rows(self.database, accounts, accounts.c.at < now - HISTORY)
        if count:
            with self._lock:
                self._residuals = None
        newer = accounts.alias("newer")
        later = exists().where(
            newer.c.lane == accounts.c.lane,
            newer.c.table == accounts.c.table,
            newer.c.batch > accounts.c.batch,
            newer.c.at > accounts.c.at,
        )
        balanced = accounts.c.residual == 0
        return count + delete_rows(
            self.database, accounts, accounts.c.at < now - BALANCED, balanced, later
        )

    def together(self) -> AbstractContextManager[Connection]:
        """Begin one transaction for the accounts of many merges."""
        return self.database.write()

    def _newest_residuals(self) -> dict[str, int]:
        dated = func.typeof(accounts.c.at) == "integer"
        mine = select(accounts.c.table, func.max(accounts.c.at).label("at")).where(dated)
        newest = mine.group_by(accounts.c.table).subquery()
        last = (accounts.c.table == newest.c.table) & (accounts.c.at == newest.c.at)
        later = accounts.alias("later")
        over = exists().where(
            later.c.table == accounts.c.table,
            later.c.lane == accounts.c.lane,
            later.c.batch > accounts.c.batch,
            func.typeof(later.c.at) == "integer",
        )
        query = select(accounts.c.table, accounts.c.residual, accounts.c.at).where(
            exists().where(last) | (~dated & ~over)
        )
        found = self.database.decoded(query.order_by(~dated), accounts, _residual, _unread)
        return dict(found)

    def _totals(self, query: Select[Any]) -> list[tuple[str, str, int]]:
        return self.database.decoded(query, account_totals, _total)


def _residual(row: Row[Any]) -> tuple[str, int]:
    return row.table, _whole(row.residual)


def _unread(stored: Mapping[str, bytes | None]) -> tuple[str, int]:
    return stored_text(stored["table"]), 1


def _total(row: Row[Any]) -> tuple[str, str, int]:
    return row.table, row.term, _whole(row.changes)


def _whole(stored: object) -> int:
    """Require an integer, because SQLite stores any value in any column."""
    if not isinstance(stored, int):
        raise TypeError(f"{type(stored).__name__} for a number")
    return stored


_NO_TERMS = ("ignored", "minutes", "explained")


def nonzero_terms(account: Account) -> Mapping[str, int]:
    """Return the nonzero terms of the account, by name."""
    own = {name: n for name, n in asdict(account).items() if name not in _NO_TERMS}
    ignored = {f"ignored:{rule}": count for rule, count in (account.ignored or {}).items()}
    return {name: count for name, count in {**own, **ignored}.items() if count}


def _plain(account: Account) -> dict[str, object]:
    terms = {name: n for name, n in asdict(account).items() if name not in _NO_TERMS}
    return {**terms, "ignored": dict(account.ignored or {})}


def _count(connection: Connection, table: str, term: str, by: int) -> None:
    same = (account_totals.c.table == table) & (account_totals.c.term == term)
    change = update(account_totals).where(same)
    sum_of = account_totals.c.changes + by
    if connection.execute(change.values(changes=sum_of)).rowcount == 0:
        connection.execute(insert(account_totals).values(table=table, term=term, changes=by))


KEPT = 100  # transitions per table, so that a flapping table does not fill the disk


@dataclass(eq=False)
class TableStates:
    """The newest transitions of each table. The newest one of a table is kept for ever."""

    database: Database

    def add(self, entered: Iterable[StateSince]) -> None:
        """Record transitions, all or nothing; delete the oldest of a table above ``KEPT``."""
        with self.database.write() as connection:
            for one in entered:
                own = table_states.c.table == one.table
                connection.execute(delete(table_states).where(own, _from(one.since)))
                row = {"table": one.table, "since": one.since, "state": one.state, "why": one.why}
                connection.execute(insert(table_states).values(row))
                times = select(table_states.c.since).where(own)
                oldest = times.order_by(table_states.c.since.desc()).offset(KEPT - 1).limit(1)
                if (first := connection.scalar(oldest)) is not None:
                    old = table_states.c.since < first
                    connection.execute(delete(table_states).where(own, old))

    def newest(self) -> Mapping[str, StateSince]:
        """Return the last transition of each table."""
        last = (
            select(table_states.c.table, func.max(table_states.c.since).label("since"))
            .group_by(table_states.c.table)
            .subquery()
        )
        same = (table_states.c.table == last.c.table) & (table_states.c.since == last.c.since)
        with self.database.read() as connection:
            rows = connection.execute(select(table_states).join(last, same)).all()
        return {row.table: _read(row) for row in rows}

    def list(self, table: str) -> tuple[StateSince, ...]:
        """Return all stored transitions of *table*, newest first."""
        own = select(table_states).where(table_states.c.table == table)
        with self.database.read() as connection:
            rows = connection.execute(own.order_by(table_states.c.since.desc())).all()
        return tuple(map(_read, rows))


def _from(since: datetime) -> Any:
    """Select transitions at or after *since*: after a clock step they are recorded again."""
    return table_states.c.since >= since


def _read(row: Row[Any]) -> StateSince:
    return StateSince(row.table, TableState(row.state), row.since, row.why)


LONGEST = timedelta(seconds=1)
SHORT, MOST = 10_000, 50_000  # characters of a cached text, and number of cached texts
Place = tuple[str, str]  # table, check
Kept = tuple[str, datetime]  # JSON and its time

_OLD = (memory.c.table == bindparam("of")) & (memory.c.check == bindparam("by"))
_NEW = {
    "table": bindparam("of"),
    "check": bindparam("by"),
    "kept": bindparam("text", type_=Text()),
    "at": bindparam("then"),
}


def unreadable_memory(table: str, check: str) -> ProofError:
    """Return the error for an unreadable row, which may contain a finding; a person deletes it."""
    what = f"the stored memory of check {check} for {table} is unreadable"
    return ProofError(f"{what}; delete that row of the store (docs/runbooks/unknown.md)")


@dataclass(eq=False)
class CheckMemory:
    """One JSON object per table and check; a newer one replaces it."""

    database: Database
    _waiting: dict[Place, Kept] = field(default_factory=dict)
    _known: dict[Place, str] = field(default_factory=dict)  # stored values
    _since: datetime | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Register this object, so that the next transaction writes its values."""
        self.database.first.append(self)

    def recall(self, table: str, check: str) -> Mapping[str, Any] | None:
        """Return the last stored value; None without any.

        Raises:
            ProofError: its row in the store is unreadable; ignoring it could hide a finding.
        """
        place = table, check
        with self._lock:
            waiting = self._waiting.get(place)
            text = self._known.get(place) if waiting is None else waiting[0]
        if text is None:
            return self._stored(table, check)
        return dict(json.loads(text))

    def _stored(self, table: str, check: str) -> Mapping[str, Any] | None:
        own = (memory.c.table == table) & (memory.c.check == check)
        found: list[Mapping[str, Any] | ProofError] = self.database.decoded(
            select(type_coerce(memory.c.kept, Text()).label("kept")).where(own),
            memory,
            lambda row: dict(json.loads(row.kept)),
            lambda _: unreadable_memory(table, check),
        )
        for one in found:
            if isinstance(one, ProofError):
                raise one
            return one
        return None

    def remember(self, table: str, check: str, kept: Mapping[str, Any], at: datetime) -> None:
        """Keep *kept* (JSON values only).

        While the store accepts nothing, the value waits in memory. An error here would make the
        check lose its finding, because its next run starts after it.
        """
        text = json.dumps(dict(kept))
        with self._lock:
            self._since = self._since or at
            self._waiting[table, check] = (text, at)
            due = not timedelta(0) <= at - self._since < LONGEST
        if self.database.writing:
            with self.database.write() as connection:
                self.write(connection)
        elif due:
            self.flush()

    def flush(self) -> None:
        """Write waiting values without another write; they stay if the store accepts nothing."""
        if self.waits:
            with suppress(UnreachableError), self.database.write():
                pass

    @property
    def waits(self) -> bool:
        return bool(self._waiting)

    def write(self, connection: Connection) -> Callable[[], None]:
        with self._lock:
            rows = dict(self._waiting)
        values = [
            {"of": table, "by": check, "text": text, "then": at}
            for (table, check), (text, at) in rows.items()
        ]
        connection.execute(delete(memory).where(_OLD), values)
        connection.execute(insert(memory).values(_NEW), values)
        return lambda: self._forget(rows)

    def _forget(self, written: Mapping[Place, Kept]) -> None:
        """Drop written values from the waiting ones, except those that changed since."""
        with self._lock:
            for place, kept in written.items():
                self._known.pop(place, None)
                if len(kept[0]) <= SHORT and len(self._known) < MOST:
                    self._known[place] = kept[0]
                if self._waiting.get(place) is kept:
                    del self._waiting[place]
            self._since = min((at for _, at in self._waiting.values()), default=None)
