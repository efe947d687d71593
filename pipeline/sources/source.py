"""What does Sluice ask of a database server?  One protocol, a file or folder for each kind.

A source is built from its settings and dials when it is first asked.  Every method may raise
UnreachableError (it did not answer, or is loaded), ConfigError (its user may not do this) or
ProofError (it answered, but the question cannot be decided).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar, Protocol

from pipeline.aggregates import SpanTally, TalliedField, TimeSpan
from pipeline.finding import Finding
from pipeline.model import Capture, Head, Missing, Shard
from pipeline.schema.model import Column, Dialect
from pipeline.sources.positions import PositionRules
from pipeline.sources.scope import ExaminationScope

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
class Beat:
    """A heartbeat that is committed: its ``number``, and a ``head`` that was read after that.

    ``told`` is what the source's own clock said before the commit: aware, and never ours.
    """

    number: int
    head: Head
    told: datetime


class Source(Protocol):
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

    def beat(self, at_least: int, at: datetime) -> Beat:
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

    def columns(self, shard: Shard) -> Sequence[Column]:
        """The shard's columns as the server describes them, in order; empty if it is not there."""
        ...

    def key_columns(self, shard: Shard) -> tuple[str, ...]:
        """Columns of the primary key, in its order; empty if there is none."""
        ...

    def max_id(self, shard: Shard, column: str) -> int | None:
        """Highest id now; None for an empty table."""
        ...

    def min_id(self, shard: Shard, column: str) -> int | None:
        """Lowest id now; None for an empty table."""
        ...

    def count_ids(self, shard: Shard, column: str, ranges: Sequence[Range]) -> tuple[int, ...]:
        """Rows in each half-open range, all counted in one snapshot.

        Raises:
            TooManyRowsError: a range is too large to be counted without harm.
        """
        ...

    def tallies(
        self, shard: Shard, column: str, spans: Sequence[TimeSpan], fields: Sequence[TalliedField]
    ) -> tuple[SpanTally, ...]:
        """Rows and sums of *fields* in each span of *column*, all in one snapshot.

        Raises:
            TooManyRowsError: a span is too large to be read without harm.
            ProofError: a column is not there, or of a kind that is not added up.
        """
        ...

    def ids(self, shard: Shard, column: str, span: Range, limit: int) -> tuple[int, ...]:
        """Ids in *span*, ascending, at most *limit*."""
        ...

    def examine(self, scope: ExaminationScope) -> Iterable[Finding]:
        """What must be put right, or is good to know, before its tables are mirrored."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...
