"""Plans the merge of one mirror, or raises why the table is held.

The columns of a mirror follow its source before its rows do. One merge takes at most 2,000,000
rows, older batches first; the merge of an image takes everything below its cut. Batches that a
person waived get a merge of their own, except in an image.

A table is held if its changes were lost before landing, are no longer kept, or were written by
other standards than the current ones. Only a new base releases it.

Rows of a renamed table move only when everything below the RENAME or DROP has landed. Only the
collector's acknowledged position proves that. It usually takes seconds, and the table has no merge
meanwhile. After 5 minutes the table is held as `unacknowledged`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from pipeline.apply.archive_evidence import LandedDays, find_archives
from pipeline.apply.catalog import Catalog
from pipeline.apply.decide import AppliedBefore, base_floors, highest_orders
from pipeline.apply.fold import ROW_OPS
from pipeline.apply.invariants import Demands, ReferredTable, short_name, waived_until
from pipeline.apply.landed_state import HighestOrders, LandedState
from pipeline.apply.merge import MergeTask
from pipeline.apply.merge_job import LandedDeletes, MergeJob, RemainingSnapshot, remaining_batches
from pipeline.apply.mirror import (
    CommitStamp,
    MirrorSnapshot,
    batch_of,
    floors_of,
    images_of,
    schemas_of,
)
from pipeline.apply.renames import TableRename
from pipeline.apply.schema_evolution import TargetSchema, may_rewrite
from pipeline.apply.table_format import Mirrors, TableFormat
from pipeline.archive import NO_WORD, ArchiveRules, ArchiveWord, rules_of
from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.scan import (
    APPLIED_COLUMNS,
    Part,
    TableRows,
    WantedBatches,
    find_parts,
    limit_batches,
)
from pipeline.changelog.table import CHANGES, DROPPED
from pipeline.checkpoint import NO_STANDARDS, Checkpoint, shard_exists
from pipeline.clocks import has_passed
from pipeline.errors import HeldError, UnreachableError
from pipeline.image import Image
from pipeline.invariants.invariant import Recalling, Referring
from pipeline.model import Op, Table
from pipeline.settings import PipelineSettings

PATIENCE = timedelta(minutes=5)
NO_CHANGES = pa.schema([CHANGES.field(name) for name in APPLIED_COLUMNS]).empty_table()


@dataclass(eq=False)
class RenameBarrier:
    """Delays a merge until all below its table's renames has landed; a restart waits again."""

    _since: dict[str, datetime] = field(default_factory=dict)

    def complete(
        self, table: str, moves: Sequence[TableRename], checkpoint: Checkpoint, now: datetime
    ) -> bool:
        """Return whether everything below *moves* has landed.

        Raises:
            HeldError: ``unacknowledged``; the table has waited for too long.
        """
        late = [move for move in moves if not checkpoint.passed(move.shard.source, move.order)]
        if not late:
            self._since.pop(table, None)
            return True
        if not has_passed(self._since.setdefault(table, now), PATIENCE, now):
            return False
        shard, order = late[0].shard, late[0].order
        detail = (
            f"{shard.source}: {shard.name} was renamed or dropped at {order}, and the "
            f"collector has acknowledged nothing since then for minutes; fix or restart the "
            f"collector, and the table continues automatically"
        )
        raise HeldError("unacknowledged", detail)


def require_no_gap(
    table: Table,
    checkpoint: Checkpoint,
    moves: Sequence[TableRename],
    gaps: Mapping[str, Sequence[str]],
) -> None:
    """Refuse a table with an open gap in its own shards, or in those that its rows come from.

    Quarantined changes of the shards that its rows come from hold it, too; the gate reports the
    table's own. Gaps of a dropped shard do not matter. *gaps*: ``source/shard`` -> ids of its open
    gaps.

    Raises:
        HeldError: ``gap``, ``quarantine``.
    """
    others = {str(one.shard) for move in moves for one in move.names}
    names = {str(one) for one in table.shards if shard_exists(checkpoint, one)} | others
    lost = sorted(gap for name in names for gap in gaps.get(name, ()))
    if lost:
        raise HeldError("gap", f"changes were lost before landing ({lost[0]}); take a new base")
    open_ = checkpoint.quarantine.items() if others else ()
    unread = [subject for subject, one in open_ if others & {*one.shards}]
    if unread:
        detail = f"its rows came from a renamed table, which has undecoded changes ({unread[0]})"
        raise HeldError("quarantine", f"{detail}; take a new base of {table.name}")


def require_same_standards(
    table: Table, checkpoint: Checkpoint, moves: Sequence[TableRename], catalog: Catalog
) -> None:
    """Refuse a table whose rows would be written by two different `standards`.

    Raises:
        HeldError: ``standards``.
    """
    wanted = catalog.standards.digest(table.name)
    for other in sorted({one.shard.name for move in moves for one in move.names}):
        if catalog.standards.digest(catalog.router.table(other)) != wanted:
            detail = f"its rows came from table {other}, which has other `standards`"
            raise HeldError("standards", f"{detail}; take a new base of {table.name}")
    for shard in sorted(table.shards, key=str):
        known = checkpoint.standards.get(shard, NO_STANDARDS)
        if not shard_exists(checkpoint, shard) or (
            shard not in checkpoint.shards and known is NO_STANDARDS
        ):
            continue
        if known.digest != wanted:
            detail = f"`standards` changed: new rows of {shard} have other values"
            raise HeldError("standards", f"{detail}; the next batch records the change")
        if known.since >= 0 and checkpoint.based.get(shard, -1) <= known.since:
            detail = f"`standards` changed: older rows of {shard} have other values"
            raise HeldError("standards", f"{detail}; take a new base")


def require_kept_base(table: Table, checkpoint: Checkpoint, dropped: int) -> None:
    """Refuse a new mirror if batches since its base, up to *dropped*, are no longer kept.

    Raises:
        HeldError: ``no_base``.
    """
    lost = sorted(
        str(shard) for shard in table.shards if checkpoint.based.get(shard, dropped + 1) <= dropped
    )
    if lost:
        detail = f"changes of {lost[0]} since its base are no longer kept; take a new base"
        raise HeldError("no_base", detail)


def require_archived_rows(table: Table, kept: int, waived: Collection[str]) -> None:
    """Refuse to rebuild the mirror of a table that had *kept* archived rows.

    Raises:
        HeldError: ``archived_rows``; a person must waive their loss, or restore the mirror.
    """
    name = f"archived_rows:{table.name}:{kept}"
    if name not in waived:
        detail = f"its mirror is gone, with {kept} archived rows that no source has;"
        detail += " a new mirror will not have them"
        advice = "restore the mirror, or waive this and insert the rows from a backup"
        raise HeldError("archived_rows", f"{detail}; {advice}", name)


MOST_ROWS = 2_000_000  # of one mirror in one merge; older batches first if there are more


@dataclass(frozen=True, slots=True)
class PendingFiles:
    """The files that a merge run reads; found once for all its mirrors.

    ``files`` are the pending ones, ``deletes`` may hold deletes of any batch. ``every`` are all
    files if images are published, else none.
    """

    files: tuple[Part, ...]
    deletes: tuple[Part, ...]
    rows: TableRows
    every: tuple[Part, ...] = ()

    def of(self, wanted: WantedBatches) -> list[Part]:
        """Return the files that may hold one of these batches."""
        return [one for one in self.files if wanted.meets(one)]

    def most(self, job: MergeJob[Any], room: int) -> int:
        """An upper bound of the rows that *job* reads; 0 if all pending rows are within *room*."""
        if sum(part.rows for part in self.files) <= room:
            return 0
        return sum(self.rows.of(part, job.name) for part in self.of(job.wanted))


@dataclass(eq=False)
class MergePlanner:
    """Plans the merges of a run; the columns of a mirror follow its source before its rows do."""

    settings: PipelineSettings
    changes: ChangeLog
    mirrors: Mirrors[Any]
    table_format: TableFormat[Any, Any]
    archived: ArchiveWord = NO_WORD
    _arrivals: RenameBarrier = field(default_factory=RenameBarrier)

    def find_pending(self, ready: Sequence[Table], landed: LandedState) -> PendingFiles:
        """Find the files that some of these mirrors have not applied."""
        if not ready:
            return PendingFiles((), (), TableRows(self.changes.store))
        self.changes.look()
        first, until = min(self.mirrors.applied(one.name) for one in ready), landed.checkpoint.batch
        return PendingFiles(
            files=find_parts(self.changes.snapshot, first, until),
            deletes=find_parts(self.changes.snapshot, -1, until, (Op.DELETE,)),
            rows=TableRows(self.changes.store),
            every=find_parts(self.changes.snapshot, -1, until) if self.settings.publish else (),
        )

    def plan_job(
        self,
        table: Table,
        landed: LandedState,
        pending: PendingFiles,
        highs: HighestOrders,
        stamp: CommitStamp,
        *,
        image: Image | None = None,
    ) -> MergeJob[Any] | None:
        """Plan a merge of *table*; None while it waits for changes that have not landed.

        The merge of an *image* reads all its batches; first check it with :meth:`fits_one_merge`.

        Raises:
            HeldError: the table must be held; see its reason.
            LostRaceError: another writer has committed to its mirror.
        """
        checkpoint, name = landed.checkpoint, table.name
        moves = self._moves(table, landed, stamp.at)
        if moves is None:
            return None
        shape = _shape(table, landed, image)
        snapshot = self._shaped(name, shape, stamp)
        after = batch_of(snapshot, self.settings.lane)
        deletes = pending.deletes if after >= 0 else ()
        task = MergeTask(
            table=table,
            snapshot=snapshot,
            columns=shape.schema.columns,
            changes=NO_CHANGES,
            at=stamp.at,
            deletes=LandedDeletes(self.changes.store.uri, deletes, name, after),
            known=_known_before(name, after, highs, checkpoint),
            floors=highest_orders(floors_of(snapshot), base_floors(table, checkpoint, image)),
            fills=tuple(fill for one in shape.newest for fill in landed.catalog.fills(one)),
        )
        job = MergeJob(
            task,
            _wanted(table, _waiting(name, after, landed), pending, image),
            moves=tuple(m for m in moves if image is None or image.belongs(m.shard, m.order)),
            history=self._history(moves, pending, checkpoint),
            dropped=self._dropped(),
        )
        return self._imaged(self._with_rest(job, landed), image)

    def _with_rest(self, job: MergeJob[Any], landed: LandedState) -> MergeJob[Any]:
        """Return *job* with the rest of a base that continues in batches after the merge's."""
        until = _waiting(job.name, job.wanted.after, landed).until
        batches = remaining_batches(job.task.table, landed.checkpoint, job.wanted, until)
        if batches is None:
            return replace(job, rest=None)
        files = find_parts(self.changes.snapshot, batches.after, batches.until, (Op.READ,))
        rest = RemainingSnapshot(self.changes.store.uri, files, job.name, batches)
        return replace(job, rest=rest)

    def require_archived(self, table: Table, waived: frozenset[str]) -> None:
        """Refuse to rebuild a mirror that kept rows which no source has any more.

        Raises:
            HeldError: ``archived_rows``.
        """
        kept = self.archived.kept.get(table.name, 0)
        if kept and self.mirrors.applied(table.name) < 0:
            require_archived_rows(table, kept, waived)

    def archive_of(self, table: str) -> ArchiveRules | None:
        """Return the archive rules of *table*; empty ones if it only has rows archived earlier."""
        found = rules_of(table, self.settings.archive, self.archived.windows)
        return ArchiveRules() if found is None and self.archived.kept.get(table) else found

    def fits_one_merge(self, table: Table, landed: LandedState, pending: PendingFiles) -> bool:
        """Return whether one merge may read all that *table* has not applied."""
        wanted = _waiting(table.name, self.mirrors.applied(table.name), landed)
        return _wanted(table, wanted, pending, None) == wanted

    def count_rewritten(self, table: Table, landed: LandedState) -> int:
        """Count the rows that a merge of *table* may rewrite first, to follow its schema.

        0 if it rewrites none, and if its plan is refused anyway: the plan reports why.
        """
        seen, newest = self.mirrors.seen(table.name), landed.catalog.newest_of(table)
        known = {} if seen is None else schemas_of(seen)
        if seen is None or all(known.get(name) == one.order for name, one in newest.items()):
            return 0
        try:
            rewrites = may_rewrite(seen, _shape(table, landed, None))
            return self.table_format.count(seen) if rewrites else 0
        except (HeldError, UnreachableError):
            return 0

    def add_invariants(
        self, job: MergeJob[Any], landed: LandedState, waived: frozenset[str]
    ) -> MergeJob[Any]:
        """Return *job* with its table's invariants, and the evidence that rows were archived.

        Waived batches get a merge of their own. An image's merge is an exception: it takes all
        below its cut.

        Raises:
            HeldError: the table must be held; see its reason.
            UnreachableError: the rows of its mirror cannot be counted.
        """
        task, after, archive = job.task, job.wanted.after, self.archive_of(job.name)
        _refuse_answers(task.table, archive)
        its = find_archives(task.table, archive, self.changes, landed.checkpoint, after)
        job = replace(job, archive=its)
        named = self.settings.demanded(job.name)
        if not named:
            return job
        mirror = short_name(task.snapshot.id)
        let = waived_until(job.name, mirror, after, waived)
        there, floors = self.table_format.count(task.snapshot), floors_of(task.snapshot)
        recalling = any(isinstance(one, Recalling) and one.recalls for _, one in named)
        days = self._landed_days(job) if recalling else None
        demands = Demands(named, mirror, after, there, let, floors, days)
        names = {n for _, one in named if isinstance(one, Referring) for n in one.others}
        others = tuple(self._referred(name, landed) for name in sorted(names))
        made = replace(job, task=replace(task, demands=demands, others=others))
        if let is None or job.image is not None:
            return made
        cut = WantedBatches(after, min(let, job.wanted.until))
        return self._with_rest(replace(made, wanted=cut), landed)

    def _landed_days(self, job: MergeJob[Any]) -> LandedDays:
        snapshot, after = self.changes.snapshot, job.wanted.after
        return LandedDays(
            changes=self.changes.store.uri,
            files=find_parts(snapshot, -1, after, ROW_OPS),
            table=job.name,
            columns=job.task.columns,
            until=after,
            rules=None if job.archive is None else job.archive.rules,
        )

    def _referred(self, name: str, landed: LandedState) -> ReferredTable[Any]:
        """Describe a table that an invariant refers to, as of its last merge."""
        checkpoint, seen = landed.checkpoint, self.mirrors.seen(name)
        table = landed.catalog.table(name, checkpoint.shards)
        reached = {one.source: checkpoint.reached(one.source) for one in table.shards}
        try:
            columns = landed.catalog.schema(table).columns
        except HeldError:
            columns = ()
        return ReferredTable(
            table=table,
            columns=columns,
            snapshot=seen,
            applied=-1 if seen is None else batch_of(seen, self.settings.lane),
            changes=self.changes.store.uri,
            files=find_parts(self.changes.snapshot, -1, checkpoint.batch),
            reached={source: place for source, place in reached.items() if place is not None},
            whole=_is_whole(table, landed),
        )

    def _history(
        self, moves: tuple[TableRename, ...], pending: PendingFiles, checkpoint: Checkpoint
    ) -> tuple[Part, ...]:
        """Return all files if rows of other shards are moved in, or a change may be late."""
        if pending.every or not moves:
            return pending.every
        return find_parts(self.changes.snapshot, -1, checkpoint.batch)

    def _imaged(self, job: MergeJob[Any], image: Image | None) -> MergeJob[Any]:
        """Return *job* with its *image*, or with earlier ones that may get late changes."""
        rule, task = self.settings.published(job.name), job.task
        if image is not None:
            return replace(job, image=replace(image, version=task.snapshot.version + 1))
        if rule is None:
            return job
        day = next((one for one in task.columns if one.name == rule.day), None)
        images = tuple(one for one in images_of(task.snapshot) if one.held(task.at))
        return replace(job, images=images, day=day, zone=self.settings.time_zone)

    def _moves(
        self, table: Table, landed: LandedState, now: datetime
    ) -> tuple[TableRename, ...] | None:
        """The table's renames and drops to apply; None while changes below them may still land."""
        checkpoint, seen = landed.checkpoint, self.mirrors.seen(table.name)
        floors = floors_of(seen) if seen is not None else {}
        landed.catalog.require_rows(table, checkpoint.bases, floors)
        moves = landed.catalog.moves(table, checkpoint, floors)
        if not self._arrivals.complete(table.name, moves, checkpoint, now):
            return None
        require_same_standards(table, checkpoint, moves, landed.catalog)
        require_no_gap(table, checkpoint, moves, landed.holding)
        if self.mirrors.applied(table.name) < 0:
            require_kept_base(table, checkpoint, self._dropped())
        return moves

    def _dropped(self) -> int:
        """The newest batch whose changes are no longer kept."""
        return int(self.changes.snapshot.metadata.configuration.get(DROPPED, "-1"))

    def _shaped(self, name: str, shape: TargetSchema, stamp: CommitStamp) -> MirrorSnapshot:
        """The mirror with the current columns, created if it does not exist.

        Commits on the version that was checked for foreign commits, or not at all.
        """
        known, uri = self.mirrors.seen(name), self.settings.mirror(name)
        made: MirrorSnapshot = self.table_format.shaped(uri, known, shape, stamp)
        self.mirrors.remember(name, made)
        return made


def _refuse_answers(table: Table, archive: ArchiveRules | None) -> None:
    """Refuse an archive window on a column that a standard rewrites: it needs source values."""
    columns = () if archive is None else (one.column for one in archive.windows)
    if odd := sorted(name for name in {*columns} if table.restates(name)):
        detail = f"an archive window uses column {odd[0]}, whose values a standard changes"
        raise HeldError("archive", f"{detail}; name another under `archive`, or register another")


def _shape(table: Table, landed: LandedState, image: Image | None) -> TargetSchema:
    """Return the columns of the mirror; for an *image* only with bases below its cut."""
    catalog, every = landed.catalog, landed.checkpoint.bases
    bases = {
        str(shard): order
        for shard in table.shards
        if (order := every.get(shard)) is not None
        and (image is None or image.belongs(shard, order))
    }
    digest = catalog.standards.digest(table.name)
    newest = catalog.newest_of(table)
    return TargetSchema(table, catalog.schema(table), newest, catalog.at, bases, digest)


def _is_whole(table: Table, landed: LandedState) -> bool:
    """Return whether *table* has all its rows, apart from those that have yet to land."""
    checkpoint = landed.checkpoint
    there = {shard for shard in table.shards if shard_exists(checkpoint, shard)}
    unread = any(subject.startswith("topic:") for subject in checkpoint.quarantine)
    lost = unread or any(landed.gaps.get(str(shard)) for shard in there)
    open_ = any(
        str(shard) in checkpoint.quarantine or shard in checkpoint.snaps for shard in table.shards
    )
    return bool(there) and there <= checkpoint.bases.keys() and not lost and not open_


def _waiting(table: str, after: int, landed: LandedState) -> WantedBatches:
    """Return all batches that a mirror applied through *after* may read."""
    return WantedBatches(after, max(after, landed.target_batches[table]))


def _wanted(
    table: Table, wanted: WantedBatches, pending: PendingFiles, image: Image | None
) -> WantedBatches:
    """Return the older batches if all have too many rows for one merge."""
    near = pending.of(wanted)
    if image is not None or sum(part.rows for part in near) <= MOST_ROWS:
        return wanted
    return limit_batches(pending.rows, near, table.name, wanted, MOST_ROWS)


def _known_before(
    name: str, after: int, highs: HighestOrders, checkpoint: Checkpoint
) -> AppliedBefore | None:
    """What the mirror has applied by batch *after*; None if nothing."""
    grown = bool(highs.topics(name) & set(checkpoint.grown))
    return None if after < 0 else AppliedBefore(highs.find_orders(name, after), grown)
