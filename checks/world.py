"""What checks ask of the source, the lake, the log and their own past: protocols, no clients.

Every method may raise ``UnreachableError`` (nobody answered in time, or the server is loaded) or
``ProofError`` (it answered, but the question cannot be decided); both end as UNKNOWN.
Id ranges are half open: ``(low, high)`` holds ``low`` and not ``high``.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from pipeline.aggregates import SpanTally, TalliedField, TimeSpan
from pipeline.apply.mirror import MirrorSide, Range
from pipeline.model import Fence, Ordering, Shard, Table
from pipeline.readings import NO_BASES, ChangedRow, KeyTimes, LogKey, ShardBase, Touch, Transaction
from pipeline.schema.model import Column, TableSchema

__all__ = [
    "ChangedRow",
    "KeyTimes",
    "LogKey",
    "LogSide",
    "MirrorSide",
    "Range",
    "ShardBase",
    "SourceSide",
    "Touch",
    "Transaction",
    "World",
]


class SourceSide(Protocol):
    """One source, read through its indexes, within time and row limits."""

    def max_id(self, shard: Shard, column: str) -> int | None:
        """Highest id now; None for an empty table."""
        ...

    def min_id(self, shard: Shard, column: str) -> int | None:
        """Lowest id now; None for an empty table."""
        ...

    def count_ids(self, shard: Shard, column: str, ranges: Sequence[Range]) -> tuple[int, ...]:
        """Rows in each range, all counted in one snapshot."""
        ...

    def tallies(
        self, shard: Shard, column: str, spans: Sequence[TimeSpan], fields: Sequence[TalliedField]
    ) -> tuple[SpanTally, ...]:
        """Rows and sums of *fields* in each span of *column*, all in one snapshot."""
        ...

    def ids(self, shard: Shard, column: str, span: Range, limit: int) -> tuple[int, ...]:
        """Ids in *span*, ascending, at most *limit*."""
        ...

    def columns(self, shard: Shard) -> Sequence[Column]:
        """The shard's columns, in order; empty if it is not there."""
        ...


class LogSide(Protocol):
    """The change log and the topics."""

    def last_touches(self, table: Table, keys: Sequence[LogKey]) -> tuple[Touch | None, ...]:
        """Newest landed change of each key, in the order asked; None if none is kept."""
        ...

    def touched(
        self, table: Table, keys: Sequence[tuple[Shard, str]], after: int
    ) -> tuple[bool, ...]:
        """Whether a change of each key landed in a batch above *after*, in the order asked.

        One that emptied the key's whole shard counts too.  Keys are canonical JSON texts.
        """
        ...

    def end_keys(self, table: Table) -> tuple[LogKey, ...]:
        """The row key of the last data message of each partition of the table's topics."""
        ...

    def transactions(
        self,
        table: Table,
        after: int,
        until: int,
        bases: Mapping[str, ShardBase] = NO_BASES,
    ) -> tuple[Transaction, ...]:
        """Transactions of *table* whose END is in a batch in ``(after, until]``.

        Rows of shards with one of *bases* (by ``source/shard``) above a transaction are not missed.
        """
        ...

    def schema(self, shard: Shard) -> TableSchema | None:
        """The shard's newest landed columns; None if none has landed, or a DROP has."""
        ...

    def change_counts(self, table: Table, after: int, until: int) -> int:
        """Changes (c, u, d) of *table* landed in batches in ``(after, until]``."""
        ...

    def changes_without_transaction(self, table: Table, after: int, until: int) -> int:
        """Those of them that are live and name no transaction."""
        ...

    def changed_rows(
        self, table: Table, after: int, until: int, *, most: int
    ) -> tuple[ChangedRow, ...] | None:
        """Changes of rows of *table* landed in batches in ``(after, until]``.

        None if there are more than *most*, or if a whole shard was emptied or read anew.
        """
        ...

    def key_times(
        self, table: Table, after: int, until: int, keys: Sequence[str], *, most: int
    ) -> tuple[KeyTimes, ...]:
        """Of live changes of *table* landed in batches in ``(after, until]``, at *most* so many.

        Of *keys*, and of each key whose newest change, by order, is not its latest.
        """
        ...


class World(Protocol):
    """Everything one probe may look at in one round, for one table."""

    @property
    def now(self) -> datetime:
        """The round's one instant, aware, UTC."""
        ...

    @property
    def zone(self) -> ZoneInfo:
        """The pipeline's one time zone: where a day begins."""
        ...

    def source(self, name: str) -> SourceSide:
        """The source of that name."""
        ...

    def mirror(self, table: Table) -> MirrorSide:
        """The newest version of the mirror, pinned for the whole round."""
        ...

    def log(self) -> LogSide:
        """The change log and the topics."""
        ...

    def clock(self) -> datetime:
        """Now, for stamping the end of a reading of the source."""
        ...

    def fence_after(self, source: str, instant: datetime) -> Fence | None:
        """The first heartbeat at or after *instant*; None if it is not written yet."""
        ...

    def reached(self, table: Table, fences: Sequence[Fence]) -> bool:
        """Whether the pinned mirror holds everything below every one of *fences*."""
        ...

    def ordering(self, table: Table) -> Ordering:
        """What the order of its changes rests on; the weakest, where its sources differ."""
        ...

    def landed_batch(self) -> int:
        """The newest batch of the table's lane, known before it is asked; -1 before the first."""
        ...

    def bases(self, table: Table) -> Mapping[str, ShardBase]:
        """By ``source/shard``: the newest base of each shard of *table* that its mirror has."""
        ...

    def recall(
        self, table: Table, check: str, *, lasting: bool = False
    ) -> Mapping[str, Any] | None:
        """What the check asked to be remembered in an earlier round; None at first.

        None, too, once the change log has lost the batches of that round, unless it is *lasting*:
        their numbers mean nothing any more, or something else.
        """
        ...

    def remember(self, table: Table, check: str, memory: Mapping[str, Any]) -> None:
        """Keep *memory* (JSON values only) for the next round, instead of what was kept."""
        ...
