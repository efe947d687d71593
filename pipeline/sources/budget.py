"""Limits what checks read from one source per second: rows, and time of queries.

All workers of a source's checks share one `SourceBudget`. All their queries go through
`BudgetedQueries`. A query is never interrupted: it may put the budget into debt, and the next
query waits until the debt is small again. So the mean holds for queries of any cost. Unused budget
is saved for `SAVED` seconds, so small tables never wait.

The pace falls as the server approaches its limits: many statements run, or its replica is late.

Cannot detect: rows that a server reads and does not count, such as those of a sum without an index.
The time of such a query counts.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TypeVar

from pipeline.aggregates import AggregatedColumn, RangeAggregate, TimeSpan
from pipeline.errors import UnreachableError
from pipeline.model import Shard
from pipeline.row_digest import Bucketing, DigestColumn, KeyedRow, KeyValues, RangeDigest
from pipeline.schema.model import Column
from pipeline.sources.source import Limits, Range, TableQueries, read_strain

T = TypeVar("T")
SAVED = 10.0
"""Seconds of a budget that are saved while it is unused, and the debt in seconds without a wait."""
EASY = 0.5
"""Up to this strain of a server the whole budget is available."""
LEAST = 0.1
"""The share of the budget for a server at its limits."""
PERIOD = 60.0
"""Seconds over which waits are added up to report that a budget is too small."""
CROWDED = 0.25
"""A budget is reported as too small if its queries waited for at least this share of the time."""
BLINK, NAP = 0.001, 1.0
"""Seconds of the shortest and the longest wait before the pace is computed again."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What may be read from a source per second: rows, and seconds of queries; 0: no limit."""

    rows: float
    busy: float

    def eased(self, strain: float) -> "Pace":
        """The pace for a server under *strain*, from 0 (idle) to 1 (at its limits)."""
        share = min(max((1 - strain) / (1 - EASY), LEAST), 1.0)
        return Pace(self.rows * share, self.busy * share)


@dataclass(frozen=True, slots=True)
class Balance:
    """Rows and seconds that are left at ``at``, seconds of the clock; a negative value is debt."""

    rows: float
    busy: float
    at: float

    def refilled(self, pace: Pace, now: float) -> "Balance":
        """The balance at *now*, limited to `SAVED` seconds of *pace*."""
        passed = max(now - self.at, 0.0)
        rows = min(self.rows + passed * pace.rows, SAVED * pace.rows)
        busy = min(self.busy + passed * pace.busy, SAVED * pace.busy)
        return Balance(rows, busy, max(now, self.at))

    def wait(self, pace: Pace, owed: float) -> float:
        """Seconds until the debt is at most *owed* seconds of *pace*."""
        times = [0.0]
        if pace.rows:
            times.append(-self.rows / pace.rows - owed)
        if pace.busy:
            times.append(-self.busy / pace.busy - owed)
        return max(times)


@dataclass(frozen=True, slots=True)
class Spending:
    """The cost of the queries of one check so far: rows, seconds, and number of queries."""

    rows: int = 0
    seconds: float = 0.0
    queries: int = 0


@dataclass(frozen=True, slots=True)
class Allowance:
    """``rows`` that may be read from a source now without debt; None means no limit of rows.

    ``pressed`` reports with figures that checks wait for the budget; it is empty if they do not.
    """

    rows: int | None = None
    pressed: str = ""


@dataclass(eq=False)
class SourceBudget:
    """The budget of one source, for all threads; ``sleep`` waits for a number of seconds.

    ``waited`` is the seconds that queries and checks have waited.
    """

    name: str
    limits: Limits
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep
    strain: float = 0.0
    waited: float = 0.0
    _spent: dict[str, Spending] = field(default_factory=dict)
    _scans: dict[Shard, int] = field(default_factory=dict)
    _balance: Balance = field(init=False)
    _periods: tuple[tuple[float, float], ...] = ()
    _noted: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        """Begin with the budget of `SAVED` seconds."""
        pace = self._pace()
        self._balance = Balance(SAVED * pace.rows, SAVED * pace.busy, self.clock())

    @property
    def spent(self) -> Mapping[str, Spending]:
        """The cost so far, by check."""
        with self._lock:
            return dict(self._spent)

    def admit(self, owed: float = 0.0) -> None:
        """Wait until the debt is at most *owed* seconds of the pace."""
        while (wait := self._wait(owed)) > 0:
            nap = max(min(wait, NAP), BLINK)  # the strain may end meanwhile
            self.sleep(nap)
            with self._lock:
                self._note_wait(nap)

    def note_strain(self, strain: float) -> None:
        """Change to the pace for a server under *strain*."""
        with self._lock:
            self._balance = self._balance.refilled(self._pace(), self.clock())
            self.strain, self._noted = strain, self.clock()

    def charge(self, check: str, rows: int, seconds: float, *, sent: bool) -> None:
        """Charge the cost of a query; a query that was not *sent* to the server costs nothing.

        A failed query costs its time, because the server may have worked until then.
        """
        with self._lock:
            known = self._spent.get(check, Spending())
            self._spent[check] = Spending(
                known.rows + rows, known.seconds + seconds, known.queries + 1
            )
            if sent:
                left = self._balance.refilled(self._pace(), self.clock())
                self._balance = replace(left, rows=left.rows - rows, busy=left.busy - seconds)

    def count_scan(self, shard: Shard, rows: int, *, whole: bool) -> int:
        """Return the number of rows that a scan of *shard* read, which returned *rows*.

        A *whole* scan returns all rows.  Another scan returns few, but reads as many as the last
        whole one.
        """
        with self._lock:
            if whole:
                self._scans[shard] = rows
            return max(self._scans.get(shard, 0), rows)

    def allowance(self) -> Allowance:
        """The rows that may be read now without debt."""
        with self._lock:
            pace, now = self._pace(), self.clock()
            left = self._balance.refilled(pace, now)
            rows: int | None = None
            if pace.rows:
                rows = max(int(left.rows), 0)
            if pace.busy and left.busy <= 0:
                rows = 0
            return Allowance(rows, self._describe_pressure(now))

    def _wait(self, owed: float) -> float:
        with self._lock:
            pace = self._pace()
            self._balance = self._balance.refilled(pace, self.clock())
            return self._balance.wait(pace, owed)

    def _note_wait(self, seconds: float) -> None:
        now = self.clock()
        self.waited += seconds
        begun = now - PERIOD
        self._periods = (*(one for one in self._periods if one[0] > begun), (now, seconds))

    def _describe_pressure(self, now: float) -> str:
        waited = sum(seconds for at, seconds in self._periods if at > now - PERIOD)
        if waited < CROWDED * PERIOD:
            return ""
        limits, busy = self.limits, self.limits.busy / timedelta(milliseconds=1)
        said = f"checks of source {self.name} waited {waited:.0f} s in the last {PERIOD:.0f} s"
        said += f" for limits.rows_per_second ({limits.rows_per_second})"
        said += f" and limits.busy ({busy:.0f}ms)"
        share = self._pace().busy / self._usual().busy if self._usual().busy else 1.0
        if share < 1:
            said += f"; a loaded server leaves {share:.0%} of them"
        return f"{said}. Raise them, or compare fewer tables"

    def _usual(self) -> Pace:
        return Pace(float(self.limits.rows_per_second), self.limits.busy.total_seconds())

    def _pace(self) -> Pace:
        old = self.clock() - self._noted > PERIOD  # the next query reads the strain again
        return self._usual().eased(0.0 if old else self.strain)


@dataclass(eq=False)
class BudgetedQueries(TableQueries):
    """Queries on the tables of one source, charged to its ``budget``.

    ``primary`` describes columns.  ``choose`` returns the server for all other queries, a replica
    if there is one; the time in ``choose`` costs nothing.  ``check`` names the check that queries.
    """

    primary: TableQueries
    choose: Callable[[], TableQueries]
    budget: SourceBudget
    check: str = ""

    def columns(self, shard: Shard) -> Sequence[Column]:
        return self._ask(lambda: self.primary, lambda server: server.columns(shard), _nothing)

    def max_id(self, shard: Shard, column: str) -> int | None:
        return self._read(lambda server: server.max_id(shard, column), _one)

    def min_id(self, shard: Shard, column: str) -> int | None:
        return self._read(lambda server: server.min_id(shard, column), _one)

    def count_ids(self, shard: Shard, column: str, ranges: Sequence[Range]) -> tuple[int, ...]:
        return self._read(lambda server: server.count_ids(shard, column, ranges), sum)

    def tallies(
        self,
        shard: Shard,
        column: str,
        spans: Sequence[TimeSpan],
        fields: Sequence[AggregatedColumn],
    ) -> tuple[RangeAggregate, ...]:
        return self._read(lambda server: server.tallies(shard, column, spans, fields), _sum_rows)

    def digests(
        self, shard: Shard, column: str, ranges: Sequence[Range], columns: Sequence[DigestColumn]
    ) -> tuple[RangeDigest, ...]:
        return self._read(lambda server: server.digests(shard, column, ranges, columns), _sum_rows)

    def row_digests(
        self, shard: Shard, column: str, span: Range, columns: Sequence[DigestColumn], limit: int
    ) -> tuple[tuple[int, int], ...]:
        return self._read(
            lambda server: server.row_digests(shard, column, span, columns, limit), len
        )

    def id_digests(
        self, shard: Shard, column: str, ids: Sequence[int], columns: Sequence[DigestColumn]
    ) -> tuple[RangeDigest, ...]:
        return self._read(lambda server: server.id_digests(shard, column, ids, columns), _sum_rows)

    def column_digests(
        self, shard: Shard, column: str, ids: Sequence[int], columns: Sequence[DigestColumn]
    ) -> tuple[tuple[RangeDigest, ...], ...]:
        return self._read(lambda server: server.column_digests(shard, column, ids, columns), len)

    def bucket_digests(
        self, shard: Shard, by: Bucketing, columns: Sequence[DigestColumn]
    ) -> dict[int, RangeDigest]:
        return self._read(
            lambda server: server.bucket_digests(shard, by, columns),
            lambda found: self.budget.count_scan(shard, _sum_rows(found.values()), whole=True),
        )

    def bucket_rows(
        self,
        shard: Shard,
        by: Bucketing,
        columns: Sequence[DigestColumn],
        chosen: Collection[int],
        limit: int,
    ) -> tuple[KeyedRow, ...]:
        return self._read(
            lambda server: server.bucket_rows(shard, by, columns, chosen, limit),
            lambda found: self.budget.count_scan(shard, len(found), whole=False) if chosen else 0,
        )

    def keyed_columns(
        self,
        shard: Shard,
        by: Bucketing,
        columns: Sequence[DigestColumn],
        keys: Collection[int],
        limit: int,
    ) -> tuple[KeyedRow, ...]:
        return self._read(
            lambda server: server.keyed_columns(shard, by, columns, keys, limit),
            lambda found: self.budget.count_scan(shard, len(found), whole=False) if keys else 0,
        )

    def rows_by_key(
        self,
        shard: Shard,
        by: Bucketing,
        columns: Sequence[DigestColumn],
        keys: Mapping[int, KeyValues],
    ) -> tuple[KeyedRow, ...]:
        return self._read(lambda server: server.rows_by_key(shard, by, columns, keys), len)

    def ids(self, shard: Shard, column: str, span: Range, limit: int) -> tuple[int, ...]:
        return self._read(lambda server: server.ids(shard, column, span, limit), len)

    def _read(self, ask: Callable[[TableQueries], T], rows: Callable[[T], int]) -> T:
        return self._ask(self.choose, ask, rows)

    def _ask(
        self,
        choose: Callable[[], TableQueries],
        ask: Callable[[TableQueries], T],
        rows: Callable[[T], int],
    ) -> T:
        """Wait for the budget, query the server, and charge the cost."""
        budget = self.budget
        budget.admit(SAVED)
        called = budget.clock()
        try:
            server = choose()
        except UnreachableError:
            budget.note_strain(1.0)  # the replica is too late, or does not answer
            raise
        begun, read, sent = budget.clock(), 0, True
        try:
            found = ask(server)
            read = rows(found)
            return found
        except UnreachableError as error:
            sent = error.sent
            raise
        finally:
            late = (begun - called) / budget.limits.statement.total_seconds()
            budget.note_strain(max(read_strain(server), min(late, 1.0)))
            budget.charge(self.check, read, budget.clock() - begun, sent=sent)


def _nothing(_: object) -> int:
    return 0


def _one(found: int | None) -> int:
    return 0 if found is None else 1


def _sum_rows(found: "Collection[RangeDigest] | Collection[RangeAggregate]") -> int:
    return sum(one.rows for one in found)
