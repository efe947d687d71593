"""Updates a copy to its mirror: loads it once, then follows commit by commit.

It reads only the changes of commits: rows added since the version of the copy, and keys of
removed rows. A copy never holds more than its mirror. It waits while the newest commit that
changed the mirror's rows is a foreign one. After a foreign commit that was waived or undone, or
if commits can no longer be read, the copy is loaded again.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from shlex import quote
from typing import Any
from uuid import uuid4

import pyarrow as pa

from pipeline.apply.mirror import Commit, MirrorSnapshot, RowChanges, RowPart, batch_of
from pipeline.apply.row_metadata import SLUICE, Adoption
from pipeline.apply.table_format import Mirrors
from pipeline.changelog.table import build_app_id
from pipeline.copies.copy import (
    CopiedTable,
    CopiedVersion,
    CopyPosition,
    CopyStep,
    CopyTarget,
    RankedRows,
)
from pipeline.errors import HeldError, ProofError, UnreachableError
from pipeline.minute_counts import NO_MINUTE, MinuteCounts, add_counts, bounded, count_origins
from pipeline.model import Op, Table

AT_A_STRETCH = 200  # commits of one table before other tables are updated
DAMAGED = ("file_damaged", "vector_damaged")
ROWS = 5_000  # written at a time; other threads wait while rows are converted to text


@dataclass(eq=False)
class CopySync:
    """Updates the tables of one copy to their mirrors; for one thread at a time.

    If ``stopping`` returns true between steps, the rest is left to a later run.  ``count`` is
    called after each step with the table and the version; if it fails, no further step is done.
    ``note_load`` is called with the table and the load's position, before the load can end.
    """

    target: CopyTarget
    mirrors: Mirrors[Any]
    stopping: Callable[[], bool] = lambda: False
    count: Callable[[str, CopiedVersion], None] = lambda _table, _done: None
    note_load: Callable[[str, CopyPosition], None] = lambda _table, _at: None
    _shaped: dict[str, CopiedTable] = field(default_factory=dict)

    def bring(
        self,
        table: Table,
        was: CopyPosition | None,
        *,
        counted: bool = True,
        reload: bool = False,
    ) -> CopyPosition | None:
        """Update the copy of *table* from position *was* (None: no copy); return the new position.

        If the commit that led to *was* is not *counted*, it is followed again. That changes no
        row: it is written as after a crash. With *reload* all rows are loaded again.

        Raises:
            HeldError: the copy cannot be updated; the message has the cause and the fix.
            UnreachableError: the lake or the copy does not answer.
            LostRaceError: another process writes this copy.
        """
        snapshot = self.mirrors.look(table.name)
        if snapshot is None or batch_of(snapshot, self.mirrors.settings.lane) < 0:
            return was
        if not table.key:
            raise HeldError("no_key", f"{table.name} has no key to copy by; name one by `key:`")
        try:
            known = None if reload else was
            brought = self._continued(table, snapshot, known, counted=counted)
        except ProofError:  # a version that it needs was removed meanwhile
            brought = None
        except HeldError as error:  # or one of its files, which the mirror no longer uses
            if error.reason not in DAMAGED or was is None or was.version >= snapshot.version:
                raise
            brought = None
        return self._loaded(table, snapshot, was) if brought is None else brought

    def _continued(
        self, table: Table, snapshot: MirrorSnapshot, was: CopyPosition | None, *, counted: bool
    ) -> CopyPosition | None:
        """Continue an unfinished load, or follow the commits since *was*; None if neither works."""
        if was is not None and (parts := self._rest(snapshot, was)) is not None:
            return self._parts(table, self._shaped_as_is(table, was.version), was, parts)
        if not self._follows(table.name, snapshot, was) or was is None or not was.whole:
            return None
        return self._followed(table, snapshot, was, counted=counted)

    def _rest(self, snapshot: MirrorSnapshot, was: CopyPosition) -> tuple[RowPart, ...] | None:
        """All parts of the version whose load is unfinished; None if it cannot be continued."""
        if was.whole or was.mirror != snapshot.id or was.version > snapshot.version:
            return None
        if self._entry(snapshot, was.version) != was.entry:
            return None
        try:
            return self.mirrors.table_format.contents(snapshot.uri, was.version)
        except UnreachableError:
            if was.version == snapshot.version:
                raise
            return None

    def _follows(self, table: str, snapshot: MirrorSnapshot, was: CopyPosition | None) -> bool:
        """Whether only commits of Sluice changed the mirror's rows since *was*.

        Raises:
            HeldError: ``foreign_write``, the newest commit that changed rows is a foreign one.
        """
        ours, follows = False, was is not None and was.mirror == snapshot.id
        for commit in self.mirrors.commits(table, snapshot.version):
            if was is not None and follows and commit.version <= was.version:
                return (commit.version, commit.entry) == (was.version, was.entry)
            foreign = commit.after is None and commit.data_changing
            if foreign and not ours:
                what = f"the copy is stopped: version {commit.version} of mirror {table} is"
                fix = "restore the mirror, or waive its foreign_write:ID (see `sluice explain`)"
                raise HeldError("foreign_write", f"{what} a foreign write; {fix}")
            ours, follows = ours or commit.after is not None, follows and not foreign
            if ours and not follows:
                break
        return False

    def _entry(self, snapshot: MirrorSnapshot, version: int) -> str:
        commits = self.mirrors.table_format.commits(snapshot.uri, version)
        return next((one.entry for one in commits), "")

    def _loaded(
        self, table: Table, snapshot: MirrorSnapshot, was: CopyPosition | None
    ) -> CopyPosition:
        """Load all rows of the newest version, which replace the copy's rows."""
        self._shaped.pop(table.name, None)  # the copy's table may have been dropped
        begun = CopyPosition(
            mirror=snapshot.id,
            version=snapshot.version,
            batch=batch_of(snapshot, self.mirrors.settings.lane),
            entry=self._entry(snapshot, snapshot.version),
            load=1 if was is None else was.load + 1,
            parts=0,
            load_id=uuid4().hex,
        )
        parts = self.mirrors.table_format.contents(snapshot.uri, snapshot.version)
        made = self._shaped_as_is(table, snapshot.version)
        self.target.write(made, CopyStep(was, begun))
        return self._parts(table, made, begun, parts)

    def _parts(
        self, table: Table, made: CopiedTable, at: CopyPosition, parts: tuple[RowPart, ...]
    ) -> CopyPosition:
        self.note_load(table.name, at)
        for number, part in enumerate(parts[at.parts or 0 :], (at.parts or 0) + 1):
            if self.stopping():
                return at
            now = replace(at, parts=number)
            self.target.write(made, CopyStep(at, now, self._ranked(table, part())))
            at = now
        whole = replace(at, parts=None)
        self.target.write(made, CopyStep(at, whole))
        self.count(table.name, CopiedVersion.loaded(whole))
        return whole

    def _followed(
        self, table: Table, snapshot: MirrorSnapshot, was: CopyPosition, *, counted: bool
    ) -> CopyPosition:
        since = was.version if counted else was.version - 1
        steps = self.mirrors.table_format.changes(snapshot, since, table.key)
        for number, step in enumerate(steps, 1):
            again = step.commit.version == was.version
            now = was if again else _after(was, step.commit, self.mirrors.settings.lane)
            self._follow(table, CopyStep(was, now), step)
            was = now
            if number >= AT_A_STRETCH or self.stopping():
                break
        return was

    def _follow(self, table: Table, step: CopyStep, changes: RowChanges) -> None:
        came = chain.from_iterable(part() for part in changes.came)
        went = chain.from_iterable(part() for part in changes.went)
        if (first := next(came, None)) is not None:
            self._shape(table, first.schema)
            came = chain([first], came)
        made = self._shaped.get(table.name)
        if made is None:  # this run has not seen the mirror's columns yet
            made = self._shaped_as_is(table, step.now.version)
        taken = list[MinuteCounts | None]()
        ranked = self._ranked(table, _count_groups(came, taken)), self._ranked(table, went)
        gone = self.target.write(made, replace(step, came=ranked[0], went=ranked[1]))
        taken.append(None if gone is None else {NO_MINUTE: {str(Op.DELETE): gone}} if gone else {})
        known = [one for one in taken if one is not None]
        counted = bounded(add_counts(known)) if len(known) == len(taken) else None
        commit = changes.commit
        done = CopiedVersion(
            commit.version, commit.at, commit.written, counted, lineage=step.now.lineage
        )
        self.count(table.name, done)

    def _shaped_as_is(self, table: Table, version: int) -> CopiedTable:
        """Prepare the copy for the columns of *version* of the mirror; return the copied table."""
        rows = self.mirrors.table_format.rows(self.mirrors.settings.mirror(table.name), version)
        if (first := next(rows, None)) is None:
            detail = f"{table.name}: version {version} of its mirror has no readable columns"
            raise HeldError("schema", f"{detail}; run `sluice explain {quote(table.name)}`")
        return self._shape(table, first.schema)

    def _shape(self, table: Table, schema: pa.Schema) -> CopiedTable:
        """Return the copied table for *schema*; prepare the copy only if it has changed."""
        columns = pa.schema([one.remove_metadata() for one in schema if one.name != SLUICE])
        sharded = len(table.shards) > 1 and not table.unique_across_shards
        made = CopiedTable(table.name, columns, table.key, sharded)
        if self._shaped.get(table.name) != made:
            self.target.shaped(made)
            self._shaped[table.name] = made
        return made

    def _ranked(self, table: Table, rows: Iterable[pa.Table]) -> Iterator[RankedRows]:
        adoption = Adoption.of(table)
        for group in rows:
            plain = [name for name in group.column_names if name != SLUICE]
            for first in range(0, len(group), ROWS):
                some = group.slice(first, ROWS)
                yield RankedRows(some.select(plain), adoption.owners(some))


def _count_groups(
    groups: Iterable[pa.Table], into: list[MinuteCounts | None]
) -> Iterator[pa.Table]:
    """Yield each of *groups*; then append the counts by what wrote its rows to *into*.

    The counts are None if that is unknown.
    """
    for group in groups:
        yield group
        known = SLUICE in group.column_names
        into.append(count_origins(group[SLUICE]) if known else None)


def _after(was: CopyPosition, commit: Commit, lane: str) -> CopyPosition:
    batch = commit.txns.get(build_app_id(lane), was.batch)
    return replace(was, version=commit.version, batch=batch, entry=commit.entry)
