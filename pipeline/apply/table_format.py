"""What must a table format do, so that mirrors may be laid out in it?

A mirror goes from version to version.  Each is one commit: whoever has seen version v makes v + 1,
or learns that somebody else has.  What Sluice remembers of a mirror stands in its commits and
nowhere else: the number of the batch it is applied through, and some short texts (``remembered``).
Without Spark's session a format is for readers, in the process that watches.
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
    """What upkeep is to do with a mirror.

    Rows are sorted by ``key``, where that is known.  What has left it longer ago than ``keep`` is
    removed; nothing is where that is None, because it is not due or somebody still reads it.
    """

    stamp: CommitStamp
    key: tuple[str, ...] = ()
    keep: timedelta | None = None


S = TypeVar("S", bound=MirrorSnapshot)
W = TypeVar("W")


class TableFormat(Protocol[S, W]):
    """Reads and writes mirrors, each told by its address.

    One thread at a time writes and looks; whoever else reads has a format of his own.
    """

    def look(self, uri: str, known: S | None) -> S | None:
        """The newest version, read on from *known*; None: there is no mirror.

        Raises:
            HeldError: ``table_replaced``, *known* is gone or another's; or it cannot be read whole.
            UnreachableError: nobody knows what is there.
        """
        ...

    def count(self, snapshot: S) -> int:
        """Its rows; opens files where nothing else tells."""
        ...

    def commits(self, uri: str, until: int) -> Iterator[Commit]:
        """What was committed up to version *until*, newest first, as far as that is still told."""
        ...

    def rows(self, uri: str, version: int) -> Iterator[pa.RecordBatch]:
        """The rows of an older version, without what Sluice keeps with them; a few at a time.

        Raises:
            UnreachableError: that version, or a file of it, cannot be read.
        """
        ...

    def contents(self, uri: str, version: int) -> tuple[RowPart, ...]:
        """All rows of an older version with what Sluice keeps with them, in parts.

        As many and the same parts each time, so that whoever has taken some may go on.

        Raises:
            UnreachableError: that version cannot be read any more.
            HeldError: nor can it ever, by us; the reason says why.
        """
        ...

    def changes(self, snapshot: S, since: int, key: tuple[str, ...]) -> Iterator[RowChanges]:
        """What each commit after version *since* did to rows, up to *snapshot*, oldest first.

        Rows are told in the columns of *snapshot*.  What only moved them is told as a commit
        without any.

        Raises:
            ProofError: nobody can tell any more what one of them did.
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

        *correct* tells of a turn that they have been through then.  The table may lean on the
        mirror's files, for as long as these are kept.

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
            LostRaceError: somebody else has that version; nothing of ours is in the mirror.
            UnreachableError: whether ours is in the mirror is not known; looking again tells.
            HeldError: the mirror or a file is not as it was read.
        """
        ...

    def worn(self, snapshot: S) -> bool:
        """Whether its files or its log are to be put in order; asks nobody."""
        ...

    def kept(self, snapshot: S, chores: MaintenanceWork) -> S:
        """The mirror after its chores; what readers see of its rows stays the same.

        Raises:
            LostRaceError: somebody else committed meanwhile; next time.
            HeldError: it is none that is written here.
        """
        ...
