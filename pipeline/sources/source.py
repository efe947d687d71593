"""Defines the protocol of a source, its limits and the heartbeat.

A source is built from its settings and connects on first use. Every method may raise three
errors: UnreachableError (no answer, or the server is loaded), ConfigError (the user has not
enough privileges) and ProofError (it answered, but the result is undecidable).

* Limits: the session of each source kind enforces them.
* Arrivals: a source whose rows arrive in partitions has a class named `ARRIVALS` in its module,
  next to `SOURCE`. A window is `[after, until)` in the source's own offsets. Two consecutive
  windows share no row and omit none, regardless of the clocks.
* Retained log: a source kind that retains its log for its collector has a class named
  `RETAINED_LOG` next to `SOURCE`. It compares what two checks of the source reported.
* Heartbeat: one heartbeat is one fence. A number never goes back: it is above every number
  known before, even if the row was reset. No number is skipped unless the row was reset: after
  a lost answer the next number follows.
"""

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Annotated, Any, ClassVar, Protocol, cast

from pydantic import Field, TypeAdapter

from pipeline import plugins, sources
from pipeline.aggregates import AggregatedColumn, RangeAggregate, TimeSpan
from pipeline.clocks import ClockReading
from pipeline.durations import with_durations
from pipeline.errors import (
    ProofError,
    SlowError,
    SparedError,
    TooManyRowsError,
    UnreachableError,
)
from pipeline.finding import Finding
from pipeline.model import CaptureScope, Fence, Head, Missing, RetainedLog, Shard, ShardId
from pipeline.row_digest import Bucketing, DigestColumn, KeyedRow, KeyValues, RangeDigest
from pipeline.schema.model import Column, Dialect
from pipeline.sources.positions import PositionRules


@dataclass(frozen=True, slots=True)
class FoldedTable:
    """The table that a shard folds into, and the key in its rule, empty without one."""

    table: str
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExaminationScope:
    """Which tables a doctor examines, and the limits that it checks.

    ``fold`` maps a ``database.table`` to its table; None for a shard that the config ignores.
    ``captured`` returns whether the collector sends a table, by default all.  ``named`` are tables
    after which topics are named, and which a server may hide.  ``own_keys``: the collector may send
    other keys than those that tables declare.  ``outage`` is how long the pipeline must be able to
    stop without losing a change.  ``clock_skew`` is how far the source's clock may be from ours.
    ``largest`` is the size in bytes of the largest record that can reach the topics.
    """

    fold: Callable[[str], FoldedTable | None]
    outage: timedelta
    clock_skew: timedelta
    captured: Callable[[ShardId], bool] = lambda _: True
    named: frozenset[str] = frozenset()
    own_keys: bool = False
    largest: int | None = None


Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class LogBacklog:
    """The log that a server retains for the collector called ``name``, in bytes.

    ``written`` is the whole log since the server was created.  ``held`` is retained now.  ``left``
    may be written before retained log is lost; None if only the disk limits it.
    """

    name: str
    written: int
    held: int
    left: int | None


@dataclass(frozen=True, slots=True)
class SourceDescription:
    """What a source reports of itself and of some shards, named ``database.table``.

    ``kept``: how long it retains its log; None if without end, Missing if it does not retain the
    log or does not report that.
    ``hidden``: shards that may exist, but that its user may not see.
    ``unlogged``: shard -> why its log does not show all of the shard's changes.
    ``rows``: shard -> estimated number of rows, if the server has an estimate.
    ``backlog``: the log that is retained for its collector by size; None if retained otherwise.
    ``filled``: shard -> columns whose addition may have filled old rows without an event in the
    log.  This matters for columns that were added after the shard's base.
    ``dated``: shard -> date and time columns, in order, that are never NULL, and that updates do
    not set automatically.  Each is the first column of an index that serves range queries.
    """

    kept: timedelta | Missing | None
    hidden: frozenset[str] = frozenset()
    unlogged: Mapping[str, str] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    backlog: LogBacklog | None = None
    filled: Mapping[str, str] = field(default_factory=dict)
    dated: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A committed heartbeat: its ``number``, and a ``head`` that was read after the commit.

    ``source_time`` is the time before the commit by the source's clock, with a time zone.
    """

    number: int
    head: Head
    source_time: datetime


class TableQueries(Protocol):
    """Queries of probes on one table, by indexes, and within the limits of the source.

    Every query may raise ``UnreachableError`` (no answer in time, or the server is loaded) or
    ``ProofError`` (no such table or column, or the result is undecidable). Both make the verdict
    UNKNOWN. The message of an ``UnreachableError`` starts with ``source:NAME: ``, so that all
    tables of a silent source share one alert. A query that a source does not override raises
    ``ProofError``.
    """

    def columns(self, shard: Shard) -> Sequence[Column]:
        """Columns as the server describes them, in order; empty if the shard does not exist."""
        ...

    def max_id(self, shard: Shard, column: str) -> int | None:
        """The highest id; None for an empty table."""
        raise _unanswerable(shard)

    def min_id(self, shard: Shard, column: str) -> int | None:
        """The lowest id; None for an empty table."""
        raise _unanswerable(shard)

    def count_ids(self, shard: Shard, column: str, ranges: Sequence[Range]) -> tuple[int, ...]:
        """Rows in each half-open range, all counted in one snapshot.

        Raises:
            TooManyRowsError: a range is too large to be counted without harm.
        """
        raise _unanswerable(shard)

    def tallies(
        self,
        shard: Shard,
        column: str,
        spans: Sequence[TimeSpan],
        fields: Sequence[AggregatedColumn],
    ) -> tuple[RangeAggregate, ...]:
        """Rows and sums of *fields* in each span of *column*, all in one snapshot.

        Raises:
            TooManyRowsError: a span is too large to be read without harm.
            ProofError: a column does not exist, or has a type that cannot be summed.
        """
        raise _unanswerable(shard)

    def digests(
        self, shard: Shard, column: str, ranges: Sequence[Range], columns: Sequence[DigestColumn]
    ) -> tuple[RangeDigest, ...]:
        """Rows and digests in each half-open range, all read in one snapshot.

        Raises:
            TooManyRowsError: a range is too large to be read without harm.
            ProofError: a column does not exist, or its values have another form.
        """
        raise _unanswerable(shard)

    def row_digests(
        self, shard: Shard, column: str, span: Range, columns: Sequence[DigestColumn], limit: int
    ) -> tuple[tuple[int, int], ...]:
        """Id and digest of each row in *span*, ascending, at most *limit*; errors as above.

        If there are fewer than *limit*, they are all rows of *span*.
        """
        raise _unanswerable(shard)

    def id_digests(
        self, shard: Shard, column: str, ids: Sequence[int], columns: Sequence[DigestColumn]
    ) -> tuple[RangeDigest, ...]:
        """Rows and digest of each of *ids*, in their order, all read in one snapshot.

        By default it queries ranges of one id each.
        """
        return self.digests(shard, column, [(id_, id_ + 1) for id_ in ids], columns)

    def column_digests(
        self, shard: Shard, column: str, ids: Sequence[int], columns: Sequence[DigestColumn]
    ) -> tuple[tuple[RangeDigest, ...], ...]:
        """For each of *ids*, rows and the digest of each of *columns* alone, in their order.

        By default it queries one column after the other; sources may read all in one snapshot.
        """
        each = [self.id_digests(shard, column, ids, [one]) for one in columns]
        return tuple(tuple(own[place] for own in each) for place in range(len(ids)))

    def bucket_digests(
        self, shard: Shard, by: Bucketing, columns: Sequence[DigestColumn]
    ) -> dict[int, RangeDigest]:
        """Rows and digests of each bucket that has rows, all in one scan of the table.

        Raises:
            TooManyRowsError: the table is too large to be read without harm.
            ProofError: a column does not exist, or its values have another form.
        """
        raise _unanswerable(shard)

    def bucket_rows(
        self,
        shard: Shard,
        by: Bucketing,
        columns: Sequence[DigestColumn],
        chosen: Collection[int],
        limit: int,
    ) -> tuple[KeyedRow, ...]:
        """Rows of the *chosen* buckets, in any order, at most *limit*; errors as above.

        If there are fewer than *limit*, they are all rows of those buckets.
        """
        raise _unanswerable(shard)

    def keyed_columns(
        self,
        shard: Shard,
        by: Bucketing,
        columns: Sequence[DigestColumn],
        keys: Collection[int],
        limit: int,
    ) -> tuple[KeyedRow, ...]:
        """Rows whose key has one of the digests *keys*, with the digest of each of *columns* alone.

        At most *limit* rows of their buckets are read; errors as above.  If a source does not
        support it (ProofError), the differing columns of a row are not named.
        """
        raise _unanswerable(shard)

    def rows_by_key(
        self,
        shard: Shard,
        by: Bucketing,
        columns: Sequence[DigestColumn],
        keys: Mapping[int, KeyValues],
    ) -> tuple[KeyedRow, ...]:
        """Rows with one of *keys* (digest -> values), read in one snapshot by their key values.

        The digests distinguish two keys that the source considers equal.  Errors as in `digests`.
        If a source does not support it (ProofError), the table is compared only by full scans.
        """
        raise _unanswerable(shard)

    def ids(self, shard: Shard, column: str, span: Range, limit: int) -> tuple[int, ...]:
        """Ids in *span*, ascending, at most *limit*; if there are fewer, they are all.

        Raises:
            TooManyRowsError: *span* is too large to be read without harm.
        """
        raise _unanswerable(shard)


def read_strain(server: TableQueries) -> float:
    """How close *server* was to its limits at the last query: 0 (idle) to 1.

    This is the result of the source's method ``strain``, or 0 if it has no such method.
    """
    strain: Callable[[], float] | None = getattr(server, "strain", None)
    return 0.0 if strain is None else strain()


def _unanswerable(shard: Shard) -> ProofError:
    return ProofError(f"source {shard.source} has no index to query rows of {shard.name}")


class Source(TableQueries, Protocol):
    """One database server; its module names the class as ``SOURCE``."""

    dialect: ClassVar[Dialect]
    positions: ClassVar[PositionRules]

    @property
    def name(self) -> str:
        """The source's name in the settings."""
        ...

    def head(self) -> Head:
        """Identity of the server that answers, and the end of its log."""
        ...

    def prepare_heartbeat(self) -> None:
        """Create the heartbeat table if it does not exist.

        Raises:
            ConfigError: the user may not create it.
        """
        ...

    def write_heartbeat(self, at_least: int, at: datetime) -> Heartbeat:
        """Commit the next heartbeat number, at least *at_least*, with our time *at*.

        A row of the heartbeat table that arrives as a change has ``source``, the source's name, and
        ``n``, the number.
        """
        ...

    def newest_heartbeat(self) -> int:
        """The highest committed heartbeat number of this source; -1 without any."""
        ...

    def sends(self) -> CaptureScope | None:
        """The tables whose changes the source sends; None for all.  The call must be cheap."""
        ...

    def describe(self, shards: Collection[str]) -> SourceDescription:
        """Describe the source and *shards*, even on a loaded server; reads no rows.

        Raises:
            UnreachableError: it did not answer every query.
            ConfigError: its user may not log in.
        """
        ...

    def shards(self, pattern: str) -> tuple[Shard, ...]:
        """Tables whose whole ``database.table`` matches *pattern*, sorted; no views."""
        ...

    def key_columns(self, shard: Shard) -> tuple[str, ...]:
        """Columns of the primary key, in its order; empty without a primary key."""
        ...

    def examine(self, scope: ExaminationScope) -> Iterable[Finding]:
        """Findings to fix or to know before its tables are mirrored."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


RUNNING, LAG, RATE, TIME = "running", "lag", "rate", "time"
"""Names of the limits that pause a backfill, as in metrics."""
_Time = Annotated[timedelta, Field(ge=timedelta(milliseconds=100))]
"""Servers measure milliseconds, and for them 0 means no limit."""
_CALL = timedelta(seconds=20)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits that protect one source: time per statement and call, rows read, and load.

    ``rows`` is compared with the server's own estimate before rows are counted.
    The default of ``call`` is at least ``statement``.
    No query is sent while more than ``running`` statements run on the server.  Checks have
    ``connections`` connections, and check as many tables in parallel.
    All checks of the source together read at most ``rows_per_second`` on average, and run queries
    for at most ``busy`` of each second (0: no limit).  Checks read less while more than half of
    ``running`` statements run, or the replica that they read is late.
    A backfill reads at most ``rate`` rows a second (0: no limit), and nothing from a replica that
    is more than ``lag`` behind.
    """

    statement: _Time = timedelta(seconds=5)
    """How long one statement may take."""
    call: _Time = _CALL
    """How long one call may take, which may run several statements."""
    connect: _Time = timedelta(seconds=5)
    """How long a connection may take to open."""
    rows: Annotated[int, Field(ge=1)] = 5_000_000
    running: Annotated[int, Field(ge=1)] = 64
    connections: Annotated[int, Field(ge=1)] = 4
    """How many connections checks have, and so how many tables are checked in parallel."""
    rows_per_second: Annotated[int, Field(ge=0)] = 200_000
    """The most rows a second that all checks together read, on average; 0: no limit."""
    busy: Annotated[timedelta, Field(ge=timedelta())] = timedelta(milliseconds=500)
    """The most time of each second that queries of checks run, on average; 0s: no limit."""
    rate: Annotated[int, Field(ge=0)] = 0
    """The most rows a second that a backfill reads; 0: no limit."""
    lag: Annotated[timedelta, Field(ge=timedelta())] = timedelta(seconds=30)
    """A replica that is further behind is not read for a backfill."""

    def __post_init__(self) -> None:
        """Raise the default of ``call`` to at least ``statement``."""
        if self.call == _CALL:
            object.__setattr__(self, "call", max(_CALL, self.statement))

    @property
    def answer(self) -> timedelta:
        """How long one answer may take: longer than the server's time limit of a statement."""
        return self.statement + timedelta(seconds=2)

    def refuse_load(self, running: int, where: str) -> None:
        """Raise SparedError, ``loaded``, if too many statements run on the server."""
        if running > self.running:
            msg = f"{where}: loaded: {running} threads run, limits.running is {self.running}"
            raise SparedError(RUNNING, msg)

    def refuse_lag(self, behind: timedelta, where: str) -> None:
        """Raise SparedError if a replica is too far *behind*."""
        if behind > self.lag:
            far, most = round(behind.total_seconds()), self.lag.total_seconds()
            msg = f"{where}: the replica is {far} s behind, limits.lag is {most:g} s"
            raise SparedError(LAG, msg)

    def refuse_rows(self, estimated: int, table: str) -> None:
        """Raise TooManyRowsError if one range of *table* has more rows than may be counted."""
        if estimated > self.rows:
            msg = f"about {estimated} rows of {table} in one range, limits.rows is {self.rows}"
            raise TooManyRowsError(msg)

    def deadline(self) -> float:
        """The end of a call that starts now, on the monotonic clock."""
        return time.monotonic() + self.call.total_seconds()

    def check_deadline(self, deadline: float, where: str) -> None:
        """Raise SlowError once *deadline* has passed."""
        if time.monotonic() > deadline:
            raise SlowError(f"{where}: slow: took more than {self.call}")


def await_head(
    read_head: Callable[[], Head],
    explain: Callable[[Head], str | None],
    until: float,
    poll: timedelta,
) -> str | None:
    """Read the head of a log every *poll* until *explain* returns None for it; return None then.

    If it does not until *until*, in seconds of `time.monotonic`, return the last explanation.
    """
    while (missing := explain(read_head())) is not None:
        if time.monotonic() > until:
            return missing
        time.sleep(poll.total_seconds())
    return None


def read_limits(options: Mapping[str, Any]) -> Limits:
    """Read the limits of a source's *options*.

    Raises:
        ValueError: a limit is out of range.
    """
    return with_durations(TypeAdapter[Limits](Limits).validate_python, options.get("limits", {}))


@dataclass(frozen=True, slots=True)
class PartitionArrivals:
    """Rows that arrived in one partition of a shard; ``late`` of the ``rows`` were late.

    ``first`` and ``last`` are arrival times by Sluice's clock.
    """

    shard: str
    partition: str
    files: int
    rows: int
    late: int
    first: datetime
    last: datetime


class SourceArrivals(Protocol):
    """Arrivals in the partitions of a source; members raise UnreachableError."""

    def end(self) -> int:
        """The offset that the next row will have."""
        ...

    def between(self, after: int, until: int) -> Sequence[PartitionArrivals]:
        """Arrivals of each partition with offsets in ``[after, until)``, sorted."""
        ...

    def late(self, since: datetime | None) -> Sequence[PartitionArrivals]:
        """Late arrivals of each partition, *since* that time; None for all."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class RetainedLogRules(Protocol):
    """Rules by which a kind of source recognizes what retains its log."""

    def explain_replaced(self, known: str, now: str) -> str | None:
        """Why *now* may differ from *known* of an earlier check; both are texts of the kind.

        None if it is the same, or if nothing shows that it is not.
        """
        ...


@cache
def find_retained_log_rules(kind: str) -> RetainedLogRules:
    """The rules of *kind*; ConfigError if it has none."""
    return cast("RetainedLogRules", plugins.find_class(sources, "RETAINED_LOG", kind)())


def explain_replaced_log(known: RetainedLog, now: RetainedLog) -> str | None:
    """Why *now* may not retain the log that *known* retained; None if it does."""
    if known.kind != now.kind:
        return f"the source was of kind {known.kind} and is of kind {now.kind}"
    return find_retained_log_rules(now.kind).explain_replaced(known.words, now.words)


@contextmanager
def name_heartbeat_lock(table: str) -> Iterator[None]:
    """Add the heartbeat *table* to the message of an error that another session's lock causes."""
    try:
        yield
    except UnreachableError as error:
        if re.search("lock|statement timeout", str(error), re.IGNORECASE):
            error.args = (
                f"{error}; heartbeat table {table} is locked by another session: end that session",
            )
        raise


@dataclass(eq=False)
class HeartbeatTable:
    """Writes the heartbeats of one source; ``known`` is the highest number seen, -1 without any.

    ``reading`` has the times of both clocks at the last heartbeat.
    """

    source: Source
    known: int = -1
    reading: ClockReading | None = None

    def write_heartbeat(self, clock: Callable[[], datetime]) -> Fence:
        """Write the next heartbeat; its fence has the earlier of both clocks' times."""
        before = clock()
        made = self.source.write_heartbeat(self.known + 1, before)
        self.known, self.reading = made.number, ClockReading(before, made.source_time, clock())
        return Fence(self.source.name, made.number, self.reading.earlier, made.head)
