"""Defines what a table format does, so that mirrors can be stored in it.

Each version of a mirror is one commit. A writer that has read version v commits v + 1, or learns
that another writer has. All state of a mirror is in its commits: the number of the applied batch,
and some short properties (``remembered``). The service reads mirrors without a Spark session.

`Mirrors` caches the newest version that was seen of each mirror. A look reads on from that version,
which is cheap if nothing was committed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from pipeline.apply.merge import MergeFunction, MergeResult, MergeTask
from pipeline.apply.merge_job import MergeJob
from pipeline.apply.mirror import (
    TABLE,
    Commit,
    CommitStamp,
    MirrorSide,
    MirrorSnapshot,
    RowChanges,
    RowPart,
    batch_of,
    incarnation_of,
)
from pipeline.apply.schema_evolution import TargetSchema
from pipeline.checkpoint import Incarnations
from pipeline.errors import HeldError
from pipeline.model import Table
from pipeline.settings import PipelineSettings


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
        """The newest version, read on from *known*; None if there is no mirror.

        Raises:
            HeldError: ``table_replaced``, *known* is gone or of another table; or the log is
                incomplete.
            UnreachableError: the mirror does not answer.
        """
        ...

    def count(self, snapshot: S) -> int:
        """Count the rows; opens files only if the log does not have the number."""
        ...

    def commits(self, uri: str, until: int) -> Iterator[Commit]:
        """Yield the commits up to version *until*, newest first, as far as the log has them."""
        ...

    def rows(self, uri: str, version: int) -> Iterator[pa.RecordBatch]:
        """The rows of an older version, without ``_sluice``; a few at a time.

        Raises:
            UnreachableError: that version, or a file of it, cannot be read.
        """
        ...

    def frame(self, uri: str, version: int) -> Any | None:
        """The rows of an older version as a Spark frame, with ``_sluice``, for checks.

        None without a session, or if Spark cannot read the format.
        """
        ...

    def contents(self, uri: str, version: int) -> tuple[RowPart, ...]:
        """All rows of an older version with ``_sluice``, in parts.

        The parts are the same each time, so a reader can continue after some of them.

        Raises:
            UnreachableError: that version can no longer be read.
            HeldError: Sluice can never read it; the reason says why.
        """
        ...

    def changes(self, snapshot: S, since: int, key: tuple[str, ...]) -> Iterator[RowChanges]:
        """The row changes of each commit after version *since*, up to *snapshot*, oldest first.

        Rows have the columns of *snapshot*. A commit that only moved rows has none.

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
        """Create a table at *where* with the rows of an older version; return their number.

        *correct* returns a merge to run on them. The clone may refer to files of the mirror, as
        long as these are kept.

        Raises:
            HeldError: ``table_exists``, or the merge cannot be done; the reason says why.
            UnreachableError: that version, or a file of it, cannot be read.
            LostRaceError: another writer has created it meanwhile.
        """
        ...

    def reader(self, uri: str, table: Table, lane: str) -> MirrorSide | None:
        """The newest version of the mirror of *table* for probes; None if there is no mirror."""
        ...

    def shaped(self, uri: str, known: S | None, shape: TargetSchema, stamp: CommitStamp) -> S:
        """The mirror with the columns of *shape*; created empty if none is *known*.

        The commit stores the schemas that the mirror then follows, see
        :func:`pipeline.apply.schema_evolution.find_delta`.

        Raises:
            HeldError: a change cannot be followed; names it and the statement that fixes it.
            LostRaceError: another writer has committed meanwhile.
        """
        ...

    def worker(self) -> MergeFunction:
        """Return a picklable function that runs a merge task; it commits nothing."""
        ...

    def engine(self, snapshot: S) -> MergeFunction | None:
        """The function by which another engine merges such a mirror; None if the worker does.

        It runs in the driver, right before the commit, which is then checked in the log.
        """
        ...

    def commit(self, job: MergeJob[S], written: MergeResult[W], stamp: CommitStamp) -> S:
        """Commit the result of a merge as the version after that of *job*; it is never rebased.

        The commit contains the batch number, its incarnation, the floors and the note: see
        :func:`pipeline.apply.merge_job.describe_commit`. If it takes several commits, the floors of
        :func:`pipeline.apply.merge_job.early_floors` may come before the rows, others after.

        Raises:
            LostRaceError: another writer has that version; nothing of ours is in the mirror.
            UnreachableError: it is unknown whether ours is in the mirror; look it up again.
            HeldError: the mirror or a file is not as it was read.
        """
        ...

    def worn(self, snapshot: S) -> bool:
        """Whether the mirror's files or log need maintenance; reads nothing."""
        ...

    def kept(self, snapshot: S, work: MaintenanceWork) -> S:
        """Maintain the mirror; its rows do not change.

        Raises:
            LostRaceError: another writer has committed; try again in the next run.
            HeldError: this format does not write such a mirror.
        """
        ...


@dataclass(eq=False)
class Mirrors(Generic[S]):
    """Snapshots by table, cached between looks."""

    settings: PipelineSettings
    table_format: TableFormat[S, Any]
    _known: dict[str, S] = field(default_factory=dict)
    _others: dict[str, S] = field(default_factory=dict)  # mirrors of other tables in the folders
    _absent: set[str] = field(default_factory=set)

    def look(self, table: str) -> S | None:
        """The newest version; None if there is no mirror yet.

        Raises:
            HeldError: the mirror's log cannot be read; ``table_replaced``, another table's mirror
                is in its folder.
        """
        uri, known = self.settings.mirror(table), self._known.get(table, self._others.get(table))
        try:
            found = self.table_format.look(uri, known)
        except HeldError:
            self._known.pop(table, None)
            if self._others.pop(table, None) is None:
                raise
            found = self.table_format.look(uri, None)
        if found is None:
            self._others.pop(table, None)
            self._absent.add(table)
            return None
        self._require_own(table, found)
        self.remember(table, found)
        return found

    def _require_own(self, table: str, found: S) -> None:
        """Refuse a mirror that names another table; it may name none, as an adopted one does."""
        named = found.remembered.get(TABLE, table)
        if named == table:
            return
        self._known.pop(table, None)
        self._absent.discard(table)
        self._others[table] = found
        folder, own = self.settings.mirror(table), self.settings.mirror(named)
        detail = (
            f"folder {folder} has the mirror of table {named}, not of {table}; move it to {own} "
            f"and restore the mirror of {table}, or rebuild the mirror of {table}"
        )
        raise HeldError("table_replaced", detail)

    def remember(self, table: str, snapshot: S) -> None:
        """Store *snapshot*, which was committed here, as the version seen last."""
        self._known[table] = snapshot
        self._others.pop(table, None)
        self._absent.discard(table)

    def is_absent(self, table: str) -> bool:
        """Whether there was no mirror at the last look."""
        return table in self._absent

    def seen(self, table: str) -> S | None:
        """The version seen last; None if there was no look, or the mirror does not exist."""
        return self._known.get(table)

    def applied(self, table: str) -> int:
        """The batch through which it was applied at the last look; -1 before the first."""
        known = self._known.get(table)
        if known is None and not self.is_absent(table):
            known = self.look(table)
        return -1 if known is None else batch_of(known, self.settings.lane)

    def applied_batch(self, table: str, last: int, incarnations: Incarnations) -> int:
        """Like ``applied``, and checks it against a change log that ends at batch *last*.

        Raises:
            HeldError: ``log_lost``; that batch is gone, or another has its number.
        """
        applied, seen = self.applied(table), self._known.get(table)
        incarnation = None if seen is None else incarnation_of(seen)
        known = incarnations.at(applied)
        if applied > last or (
            incarnation is not None and known is not None and incarnation != known
        ):
            detail = (
                f"its mirror is applied through batch {applied}, which is not in the change log "
                f"(it ends at {last}): the log's newest entries were lost; restore it, or take a "
                "new base and rebuild the mirror"
            )
            raise HeldError("log_lost", detail)
        return applied

    def commits(self, table: str, until: int) -> Iterator[Commit]:
        """The commits up to version *until*, newest first, as far as the log has them."""
        return self.table_format.commits(self.settings.mirror(table), until)
