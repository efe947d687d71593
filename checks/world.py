"""What one probe may see of a table in one round: source, mirror, change log and its own memory.

Every method may raise ``UnreachableError`` (no answer in time, or the server is loaded) or
``ProofError`` (it answered, but the question cannot be decided). Both make the verdict UNKNOWN.
Id ranges are half open: ``(low, high)`` includes ``low`` and excludes ``high``.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol
from zoneinfo import ZoneInfo

from checks.mirror_state import MirrorLogs, MirrorState, MirrorTrail
from checks.model import NotYet
from pipeline.apply.mirror import Commit, MirrorSide, Range
from pipeline.changelog.reader import LogReader
from pipeline.model import CaptureScope, Fence, Missing, Ordering, Shard, Table
from pipeline.readings import ChangedRow, KeyTimes, LastChange, LogKey, ShardBase, Transaction
from pipeline.schema.model import TableSchema
from pipeline.sources.budget import Allowance
from pipeline.sources.source import TableQueries

if TYPE_CHECKING:
    from pipeline.suites import SuiteAnswer, SuiteLook

__all__ = [
    "Allowance",
    "ChangedRow",
    "Commit",
    "KeyTimes",
    "LargeLooks",
    "LastChange",
    "LogKey",
    "LogReader",
    "MirrorSide",
    "MirrorState",
    "MirrorTrail",
    "Range",
    "ShardBase",
    "TableQueries",
    "Transaction",
    "World",
]


class LargeLooks(Protocol):
    """Requests that read more rows than a probe may; Spark answers each in a later round."""

    def answer(self, key: tuple[str, str, int | None]) -> "SuiteAnswer | NotYet | None":
        """Return the answer for *key*, only once; None if *key* was not asked for.

        Raises:
            UnreachableError: Spark could not answer; the request is discarded.
        """
        ...

    def ask(self, look: "SuiteLook") -> None:
        """Ask for *look*."""
        ...


class World(MirrorLogs, Protocol):
    """Everything one probe may look at in one round, for one table."""

    @property
    def now(self) -> datetime:
        """The instant of the round, timezone-aware, UTC."""
        ...

    @property
    def zone(self) -> ZoneInfo:
        """The time zone of the pipeline, which decides when a day begins."""
        ...

    def begin(self, check: str) -> None:
        """Attribute the queries of sources from now on to *check*."""
        ...

    def source(self, name: str) -> TableQueries:
        """The source *name*; each query waits for the source's budget and is charged to it."""
        ...

    def allowance(self, source: str) -> Allowance:
        """How much the budget of *source* allows to read now without debt."""
        ...

    def collected(self, source: str) -> CaptureScope:
        """What the source's collector sends now, and which of its settings alter values."""
        ...

    def dated(self, shard: Shard) -> tuple[str, ...] | Missing:
        """Date and time columns that are the first column of an index at the source, in order.

        They are never NULL, and the server does not set them on an update. Returns the last known
        answer of the source, without a query.
        """
        ...

    def mirror(self, table: Table) -> MirrorSide:
        """The newest version of the mirror, pinned for the whole round."""
        ...

    def log(self) -> LogReader:
        """The change log, pinned for the whole round."""
        ...

    def large_looks(self) -> LargeLooks:
        """Looks that Spark makes."""
        ...

    def end_keys(self, table: Table) -> tuple[LogKey, ...]:
        """The row key of the last data message of each partition of the table's topics."""
        ...

    def schema(self, shard: Shard) -> TableSchema | None:
        """The shard's newest landed schema; None if none has landed, or if it was dropped."""
        ...

    def clock(self) -> datetime:
        """The current time, to stamp the end of a reading of the source."""
        ...

    def fence_after(self, source: str, instant: datetime) -> Fence | None:
        """The first heartbeat at or after *instant*; None if it is not written yet."""
        ...

    def reached(self, table: Table, fences: Sequence[Fence]) -> bool:
        """Whether the pinned mirror holds everything below every one of *fences*."""
        ...

    def held_until(self, table: Table) -> datetime | None:
        """Time up to which the pinned mirror holds every change; None if it is not known."""
        ...

    def losses(self, table: Table) -> Mapping[str, frozenset[Shard]]:
        """Open and waived losses of *table*, by id, with the shards that each may concern.

        They are gaps and quarantines: the log does not name their rows.

        Raises:
            UnreachableError: they are not known now.
        """
        ...

    def loses_changes(self, table: Table) -> bool:
        """Whether *table* has an open gap whose cause lasts, such as a setting of its collector.

        More changes may be lost, and no log names their rows. `losses` has that gap only once its
        cause has ended or it is waived.

        Raises:
            UnreachableError: that is not known now.
        """
        ...

    def ordering(self, table: Table) -> Ordering:
        """What the order of the table's changes rests on; the weakest if its sources differ."""
        ...

    def landed_batch(self) -> int:
        """The newest landed batch of the table's lane; -1 before the first.

        It was read before any query of this round.
        """
        ...

    def incarnation(self, batch: int) -> int | None:
        """Number of the incarnation of the change log that landed *batch*; None if not known."""
        ...

    def bases(self, table: Table) -> Mapping[str, ShardBase]:
        """By ``source/shard``: the newest base of each shard of *table* that its mirror has."""
        ...

    def runs(self, table: Table, check: str) -> bool:
        """Whether *check* is enabled for *table*."""
        ...

    def recall(
        self, table: Table, check: str, *, lasting: bool = False
    ) -> Mapping[str, Any] | None:
        """The memory that *check* stored in an earlier round; None before the first.

        Also None if the change log has lost the batches of that round, because their numbers may
        now belong to other batches. A *lasting* memory is returned nevertheless.
        """
        ...

    def remember(self, table: Table, check: str, memory: Mapping[str, Any]) -> None:
        """Store *memory* (JSON values only) for the next round; it replaces the stored one."""
        ...
