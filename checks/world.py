"""What one probe may see of a table in one round: source, mirror, change log and its own memory.

Every question may raise ``UnreachableError`` (no answer in time, or the server is loaded) or
``ProofError`` (it answered, but the question cannot be decided). Both make the verdict UNKNOWN.
Id ranges are half open: ``(low, high)`` includes ``low`` and excludes ``high``.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol
from zoneinfo import ZoneInfo

from checks.model import NotYet
from pipeline.apply.mirror import MirrorSide, Range
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
    "KeyTimes",
    "LargeLooks",
    "LastChange",
    "LogKey",
    "LogReader",
    "MirrorSide",
    "Range",
    "ShardBase",
    "TableQueries",
    "Transaction",
    "World",
]


class LargeLooks(Protocol):
    """Looks at more rows than a probe reads itself; Spark answers each in a later round."""

    def answer(self, key: tuple[str, str, int | None]) -> "SuiteAnswer | NotYet | None":
        """What was found for the look of that key, once; None if it was not asked for.

        Raises:
            UnreachableError: Spark could not answer; the look is forgotten.
        """
        ...

    def ask(self, look: "SuiteLook") -> None:
        """Ask for *look*."""
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

    def begin(self, check: str) -> None:
        """What is asked of sources from now on is asked by *check*."""
        ...

    def source(self, name: str) -> TableQueries:
        """The source of that name; each query waits for its budget, and is paid for from it."""
        ...

    def allowance(self, source: str) -> Allowance:
        """What the budget of *source* allows to be read now without debt."""
        ...

    def collected(self, source: str) -> CaptureScope:
        """What the source's collector sends now, and which of its settings alter values."""
        ...

    def dated(self, shard: Shard) -> tuple[str, ...] | Missing:
        """Columns of dates or times with which an index of the source begins, in their order.

        None of them is ever NULL, and none is set again by the server on an update.  What the
        source said last is answered; it is not asked.
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
        """The shard's newest landed columns; None if none has landed, or a DROP has."""
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

    def held_until(self, table: Table) -> datetime | None:
        """Time up to which the pinned mirror holds every change; None where it is not known."""
        ...

    def ordering(self, table: Table) -> Ordering:
        """What the order of its changes rests on; the weakest, where its sources differ."""
        ...

    def landed_batch(self) -> int:
        """The newest batch of the table's lane, known before it is asked; -1 before the first."""
        ...

    def incarnation(self, batch: int) -> int | None:
        """Number of the incarnation of the change log that landed *batch*; None if not known."""
        ...

    def bases(self, table: Table) -> Mapping[str, ShardBase]:
        """By ``source/shard``: the newest base of each shard of *table* that its mirror has."""
        ...

    def runs(self, table: Table, check: str) -> bool:
        """Whether *check* looks at *table*: it may be switched off, or for other tables."""
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
