"""Defines the protocol of a source, its limits and the heartbeat.

A source is built from its settings and connects on first use. Every method may raise three
errors: UnreachableError (no answer, or the server is loaded), ConfigError (the user is missing
a right) and ProofError (it answered, but the question is undecidable).

* Limits: the session of each source kind enforces them.
* Arrivals: a source whose rows come in partitions has a class named `ARRIVALS` in its module,
  beside `SOURCE`. A window is `[after, until)` in the source's own offsets. Two consecutive
  windows share no row and leave none out, regardless of the clocks.
* Retained log: a source kind that retains its log for its collector has a class named
  `RETAINED_LOG` beside `SOURCE`. It compares what two checks of the source reported.
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
from pipeline.errors import ProofError, SparedError, TooManyRowsError, UnreachableError
from pipeline.finding import Finding
from pipeline.model import Capture, Fence, Head, Missing, RetainedLog, Shard, ShardId
from pipeline.schema.model import Column, Dialect
from pipeline.sources.positions import PositionRules


@dataclass(frozen=True, slots=True)
class FoldedTable:
    """The table that a shard folds into, and the key that its rule names, if any."""

    table: str
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExaminationScope:
    """Without a word on ``captured``, every table is collected.

    ``fold`` is asked of a ``database.table``; None for a shard that the rules ignore.  ``named``
    are those that topics are named for: a server may hide them.  ``own_keys``: the collector may
    send other keys than those that tables declare.  ``outage`` is how long the pipeline may stand
    still without losing a change, ``clock_skew`` how far the source's clock may be from ours.
    ``largest`` is the size in bytes of the largest record that gets through to the topics.
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
    """What a server keeps of its log, by size, for the one collector called ``name``; in bytes.

    ``written`` grows with all that is written.  ``held`` is kept for it now; ``left`` may be
    written until some of that is lost, None where nothing but the disk sets a limit.
    """

    name: str
    written: int
    held: int
    left: int | None


@dataclass(frozen=True, slots=True)
class SourceDescription:
    """A source in its own words; shards are ``database.table``, of those it was asked about.

    ``kept`` is for how long it keeps its log: None without end, Missing if it does not tell.
    ``hidden`` may be there, but its user may not see them.
    ``unlogged``: shard -> why its log does not show all of the shard's changes.
    ``rows``: shard -> about how many rows it has, of those it keeps an estimate of.
    ``backlog``: of a log that is kept for its collector by size; None if it is kept otherwise.
    ``filled``: shard -> which columns it may have filled in old rows without a word in its log
    when they were added, which counts of those that were added after the shard's base.
    """

    kept: timedelta | Missing | None
    hidden: frozenset[str] = frozenset()
    unlogged: Mapping[str, str] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    backlog: LogBacklog | None = None
    filled: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat that is committed: its ``number``, and a ``head`` that was read after that.

    ``told`` is what the source's own clock said before the commit: aware, and never ours.
    """

    number: int
    head: Head
    told: datetime


class TableQueries(Protocol):
    """What a probe may ask a source about a table, through indexes and within the source's limits.

    Every query may raise ``UnreachableError`` (no answer in time, or the server is loaded) or
    ``ProofError`` (no such table or column, or the question cannot be decided); both make the
    verdict UNKNOWN. The message of an ``UnreachableError`` starts with ``source:NAME: ``, so that
    all tables of a silent source share one alert. A source that inherits a query without
    answering it raises ``ProofError``.
    """

    def columns(self, shard: Shard) -> Sequence[Column]:
        """The shard's columns as the server describes them, in order; empty if it is not there."""
        ...

    def max_id(self, shard: Shard, column: str) -> int | None:
        """Highest id now; None for an empty table."""
        raise _unanswerable(shard)

    def min_id(self, shard: Shard, column: str) -> int | None:
        """Lowest id now; None for an empty table."""
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
            ProofError: a column is not there, or of a kind that is not added up.
        """
        raise _unanswerable(shard)

    def ids(self, shard: Shard, column: str, span: Range, limit: int) -> tuple[int, ...]:
        """Ids in *span*, ascending, at most *limit*."""
        raise _unanswerable(shard)


def _unanswerable(shard: Shard) -> ProofError:
    return ProofError(f"source {shard.source} has no index to query rows of {shard.name}")


class Source(TableQueries, Protocol):
    """One database server; a class of this kind stands as ``SOURCE`` in its module."""

    dialect: ClassVar[Dialect]
    positions: ClassVar[PositionRules]

    @property
    def name(self) -> str:
        """The source's name in the settings."""
        ...

    def head(self) -> Head:
        """Identity and end of the log of the server that answers."""
        ...

    def prepare_heartbeat(self) -> None:
        """Make sure the heartbeat's table is there."""
        ...

    def beat(self, at_least: int, at: datetime) -> Heartbeat:
        """Commit the next heartbeat number, *at_least* this one, written down with our time *at*.

        A row of the heartbeat's table that arrives as a change has ``source``, this one's name,
        and ``n``, the number.
        """
        ...

    def newest_heartbeat(self) -> int:
        """The highest number of its own that is committed now; -1 before there is one."""
        ...

    def sends(self) -> Capture | None:
        """Of which tables it lets changes be sent; None if of all.  No catalogue of all is read."""
        ...

    def describe(self, shards: Collection[str]) -> SourceDescription:
        """What it says of itself and of *shards*; no row of a table is read."""
        ...

    def shards(self, pattern: str) -> tuple[Shard, ...]:
        """Tables whose whole ``database.table`` matches *pattern*, sorted; no views."""
        ...

    def key_columns(self, shard: Shard) -> tuple[str, ...]:
        """Columns of the primary key, in its order; empty if there is none."""
        ...

    def examine(self, scope: ExaminationScope) -> Iterable[Finding]:
        """What must be put right, or is good to know, before its tables are mirrored."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...


RUNNING, LAG, RATE, TIME = "running", "lag", "rate", "time"
"""Brakes of a re-reading, by the limit that they keep: as in metrics."""
_Time = Annotated[timedelta, Field(ge=timedelta(milliseconds=100))]
"""Servers count milliseconds, and take 0 for no limit."""
_CALL = timedelta(seconds=20)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one source is spared: time per statement and call, rows read, and load.

    ``rows`` is compared with the server's own estimate before rows are counted.
    ``call`` is as long as ``statement`` where only that is given, and longer.
    ``running`` is the number of statements at work there above which nothing is asked.
    A re-reading reads at most ``rate`` rows a second (0: as many as come), and none of a replica
    that is ``lag`` behind.
    """

    statement: _Time = timedelta(seconds=5)
    """How long one statement may take."""
    call: _Time = _CALL
    """How long one call may take, which may be several statements."""
    connect: _Time = timedelta(seconds=5)
    """How long a connection may take to open."""
    rows: Annotated[int, Field(ge=1)] = 5_000_000
    running: Annotated[int, Field(ge=1)] = 64
    rate: Annotated[int, Field(ge=0)] = 0
    """The most rows a second that a backfill reads; 0: no limit."""
    lag: Annotated[timedelta, Field(ge=timedelta())] = timedelta(seconds=30)
    """A replica that is further behind is not read for a backfill."""

    def __post_init__(self) -> None:
        """Let the default of a call follow its statements."""
        if self.call == _CALL:
            object.__setattr__(self, "call", max(_CALL, self.statement))

    @property
    def answer(self) -> timedelta:
        """Time for one answer to come: the server's own limit on the statement comes first."""
        return self.statement + timedelta(seconds=2)

    def refuse_load(self, running: int, where: str) -> None:
        """Raise SparedError, ``loaded``, for a server where so many statements run."""
        if running > self.running:
            msg = f"{where}: loaded: {running} threads run, limits.running is {self.running}"
            raise SparedError(RUNNING, msg)

    def refuse_lag(self, behind: timedelta, where: str) -> None:
        """Raise SparedError for a replica that is so far *behind*."""
        if behind > self.lag:
            far, most = round(behind.total_seconds()), self.lag.total_seconds()
            msg = f"{where}: what is read is {far} s behind, limits.lag is {most:g} s"
            raise SparedError(LAG, msg)

    def refuse_rows(self, estimated: int, table: str) -> None:
        """Raise TooManyRowsError where one range of *table* holds more than may be counted."""
        if estimated > self.rows:
            msg = f"about {estimated} rows of {table} in one range, {self.rows} may be counted"
            raise TooManyRowsError(msg)

    def deadline(self) -> float:
        """When a call that starts now must have ended, on the monotonic clock."""
        return time.monotonic() + self.call.total_seconds()

    def check_deadline(self, deadline: float, where: str) -> None:
        """Raise UnreachableError, ``slow``, once *deadline* has passed."""
        if time.monotonic() > deadline:
            raise UnreachableError(f"{where}: slow: took more than {self.call}")


def read_limits(options: Mapping[str, Any]) -> Limits:
    """Those that a source's *options* set, which are checked where the source is made."""
    return with_durations(TypeAdapter[Limits](Limits).validate_python, options.get("limits", {}))


@dataclass(frozen=True, slots=True)
class PartitionArrivals:
    """What a window brought to one partition of a shard; ``late`` of its ``rows`` came late.

    ``first`` and ``last`` are when it came, by Sluice's clock.
    """

    shard: str
    partition: str
    files: int
    rows: int
    late: int
    first: datetime
    last: datetime


class SourceArrivals(Protocol):
    """What a source tells of its partitions; UnreachableError where it cannot be asked."""

    def end(self) -> int:
        """The offset that the next row will have."""
        ...

    def between(self, after: int, until: int) -> Sequence[PartitionArrivals]:
        """Of each partition what its rows with offsets ``[after, until)`` were, sorted."""
        ...

    def late(self, since: datetime | None) -> Sequence[PartitionArrivals]:
        """Of each partition what came late, *since* then."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...


class RetainedLogRules(Protocol):
    """How a kind of source knows again what keeps its log."""

    def explain_replaced(self, known: str, now: str) -> str | None:
        """Why what has the words *now* may be another than had the words *known*, earlier.

        None if it is the same, or if nothing shows that it is not.
        """
        ...


@cache
def find_retained_log_rules(kind: str) -> RetainedLogRules:
    """The rules of *kind*; ConfigError if it has none."""
    return cast("RetainedLogRules", plugins.find(sources, "RETAINED_LOG", kind)())


def explain_replaced_log(known: RetainedLog, now: RetainedLog) -> str | None:
    """Why *now* may not keep what *known* kept, when that was looked at; None if it does."""
    if known.kind != now.kind:
        return f"the source was of kind {known.kind} and is of kind {now.kind}"
    return find_retained_log_rules(now.kind).explain_replaced(known.words, now.words)


@contextmanager
def name_heartbeat_lock(table: str) -> Iterator[None]:
    """Name the *table* where somebody else's lock keeps it from being written."""
    try:
        yield
    except UnreachableError as error:
        if re.search("lock|statement timeout", str(error), re.IGNORECASE):
            error.args = (f"{error}; another session locks heartbeat table {table}: end it",)
        raise


@dataclass(eq=False)
class HeartbeatTable:
    """The heartbeat of one source; ``known`` is the highest number seen of it, -1 for none.

    ``reading`` is what both clocks showed at the last beat.
    """

    source: Source
    known: int = -1
    reading: ClockReading | None = None

    def beat(self, clock: Callable[[], datetime]) -> Fence:
        """Write the next heartbeat, with the earlier of both clocks' times."""
        before = clock()
        made = self.source.beat(self.known + 1, before)
        self.known, self.reading = made.number, ClockReading(before, made.told, clock())
        return Fence(self.source.name, made.number, self.reading.earlier, made.head)
