"""Defines what a table format does, so that mirrors can be stored in it.

Each version of a mirror is one commit. A writer that has read version v commits v + 1, or learns
that another writer has. All state of a mirror is in its commits: the number of the applied batch,
and some short properties (``remembered``). The service reads mirrors without a Spark session.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

import pyarrow as pa

from pipeline.apply.merge import MergeFunction, MergeResult, MergeTask
from pipeline.apply.merge_job import MergeJob
from pipeline.apply.mirror import (
    Commit,
    CommitStamp,
    MirrorSide,
    MirrorSnapshot,
    RowChanges,
    RowPart,
)
from pipeline.apply.schema_evolution import TargetSchema
from pipeline.model import Table


@dataclass(frozen=True, slots=True)
class MaintenanceWork:
    """What maintenance does with one mirror.

    Rows are sorted by ``key``, if it is known. Files that left the mirror longer ago than ``keep``
    are removed. Nothing is removed if ``keep`` is None: it is not due, or a reader needs it.
    """

    stamp: CommitStamp
    key: tuple[str, ...] = ()
    keep: timedelta | None = None


S = TypeVar("S", bound=MirrorSnapshot)
W = TypeVar("W")


class TableFormat(Protocol[S, W]):
    """Reads and writes mirrors by their addresses.

    One thread at a time uses an instance; each other reader opens its own.
    """

    def look(self, uri: str, known: S | None) -> S | None:
        """The newest version, read on from *known*; None: there is no mirror.

        Raises:
            HeldError: ``table_replaced``, *known* is gone or another's; or it cannot be read whole.
            UnreachableError: the mirror does not answer.
        """
        ...

    def count(self, snapshot: S) -> int:
        """Count its rows; opens files only if the log does not have their number."""
        ...

    def commits(self, uri: str, until: int) -> Iterator[Commit]:
        """Yield the commits up to version *until*, newest first, as far as the log has them."""
        ...

    def rows(self, uri: str, version: int) -> Iterator[pa.RecordBatch]:
        """The rows of an older version, without what Sluice keeps with them; a few at a time.

        Raises:
            UnreachableError: that version, or a file of it, cannot be read.
        """
        ...

    def contents(self, uri: str, version: int) -> tuple[RowPart, ...]:
        """All rows of an older version with what Sluice keeps with them, in parts.

        The parts are the same each time, so a reader can continue after some of them.

        Raises:
            UnreachableError: that version cannot be read any more.
            HeldError: nor can it ever, by us; the reason says why.
        """
        ...

    def changes(self, snapshot: S, since: int, key: tuple[str, ...]) -> Iterator[RowChanges]:
        """What each commit after version *since* did to rows, up to *snapshot*, oldest first.

        Rows have the columns of *snapshot*.  A commit that only moved rows has none.

        Raises:
            ProofError: the row changes of one commit are no longer known.
            HeldError: a file cannot be read.
        """
        ...

    def cloned(
        self,
        uri: str,
        version: int,
        where: str,
        at: datetime,
        correct: Callable[[S], MergeTask[S]] | None = None,
    ) -> int:
        """Make *where* a table of its own with the rows of an older version; how many there are.

        *correct* returns a merge to run on them. The clone may refer to files of the mirror, as
        long as these are kept.

        Raises:
            HeldError: ``table_exists``, or the turn cannot be done; the reason says why.
            UnreachableError: that version, or a file of it, cannot be read.
            LostRaceError: somebody else made it meanwhile.
        """
        ...

    def reader(self, uri: str, table: Table, lane: str) -> MirrorSide | None:
        """The newest version as probes read it, of *table*; None: there is no mirror."""
        ...

    def shaped(self, uri: str, known: S | None, shape: TargetSchema, stamp: CommitStamp) -> S:
        """The mirror with the columns of today; made, empty, where none is *known*.

        What it remembers then are the schemas that it follows, see
        :func:`pipeline.apply.schema_evolution.find_delta`.

        Raises:
            HeldError: a change cannot be followed; names it and the statement that solves it.
            LostRaceError: somebody else committed meanwhile.
        """
        ...

    def worker(self) -> MergeFunction:
        """What works a turn out, pickled, where a task runs; it commits nothing."""
        ...

    def engine(self, snapshot: S) -> MergeFunction | None:
        """How another engine works out turns of such a mirror; None: the worker does.

        They run here, each right before its commit, which is looked at in the log afterwards.
        """
        ...

    def commit(self, job: MergeJob[S], written: MergeResult[W], stamp: CommitStamp) -> S:
        """Make what a turn came to the version after that of *job*; nothing is rebased.

        The number of the batch, its life, the floors and the note go with it: see
        :func:`pipeline.apply.merge_job.describe_commit`.  In more commits than one, those of
        :func:`pipeline.apply.merge_job.early_floors` may come before the rows, others after.

        Raises:
            LostRaceError: another writer has that version; nothing of ours is in the mirror.
            UnreachableError: it is not known whether ours is in the mirror; look it up again.
            HeldError: the mirror or a file is not as it was read.
        """
        ...

    def worn(self, snapshot: S) -> bool:
        """Whether its files or its log need maintenance; reads nothing."""
        ...

    def kept(self, snapshot: S, chores: MaintenanceWork) -> S:
        """Maintain the mirror; its rows do not change.

        Raises:
            LostRaceError: another commit came between; try again in the next run.
            HeldError: this format does not write such a mirror.
        """
        ...
