"""Defines the merge jobs that are sent to workers, and runs them in the driver or with Spark.

Jobs are sent in groups, so that a file of the change log is opened once for all mirrors of a group.
A mirror that fails is reported and does not affect the others. Up to 24 mirrors and 100,000 rows
run in the driver. A mirror with far more rows than all others runs last, so that the others are
committed before it.

A worker that dies while it merges one mirror, for example out of memory, fails the whole Spark job.
Then the groups run one by one, and each mirror of a failed group runs alone.

A base can continue in batches after those of the merge. A change newer than the base may land
before the base's row. If that change is partial, it would take old values from the mirror. So the
base rows of such keys are read ahead. Their own merge later finds nothing to do for them.

The rows of a mirror do not say through which batch it is applied. Only the transaction number in
the commit does. The commit of an image has no account: the next merge takes the same changes and
accounts for all of them.

A merge also finds changes that are late for an image: they are below its cut, and landed after it
was proven. A repair or a replay read them before the cut and sent them after it, or a source sent
them although it had acknowledged more. A redelivered change was in the image and does not count.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from pipeline.apply.archive_evidence import LandedArchives
from pipeline.apply.decide import Floors, highest_orders
from pipeline.apply.fold import ROW_OPS
from pipeline.apply.merge import MergeFunction, MergeResult, MergeTask, require_valid_late
from pipeline.apply.mirror import (
    WRITTEN,
    CommitStamp,
    MirrorSnapshot,
    archived_property,
    floors_property,
    following_note,
    images_of,
    incarnation_property,
    table_property,
)
from pipeline.apply.partial_rows import find_moved_deletes, is_partial
from pipeline.apply.renames import TableRename, move_rows
from pipeline.apply.row_metadata import flat_column
from pipeline.changelog.scan import (
    APPLIED_COLUMNS,
    Part,
    TableRows,
    WantedBatches,
    read_tables,
    scan_files,
)
from pipeline.changelog.table import CHANGES, build_app_id
from pipeline.checkpoint import Checkpoint
from pipeline.delta.store import Store, open_store
from pipeline.errors import SluiceError, UnreachableError
from pipeline.image import Image, LateChanges, add_image, images_property
from pipeline.minute_counts import bounded, count_minutes
from pipeline.model import ORDER_PARTS, Op, Order, Table
from pipeline.reports import MergeFailure
from pipeline.schema.decode import type_rows
from pipeline.schema.model import Column


@dataclass(frozen=True, slots=True)
class RemainingSnapshot:
    """Reads rows of bases in later ``batches`` from ``files`` of the change log at ``changes``."""

    changes: str
    files: tuple[Part, ...]
    table: str
    batches: WantedBatches

    def with_rows(self, rows: pa.Table) -> pa.Table:
        """Add to *rows* the base's rows of keys whose rows are partial.

        Raises:
            HeldError: ``file_damaged``.
        """
        keys = _keys(rows)
        if not keys:
            return rows
        store, columns = open_store(self.changes), rows.column_names
        wanted = tuple(dict.fromkeys([*columns, "table", "batch"]))
        found = scan_files(store, self.files, among=("key", keys), ops=(Op.READ,), columns=wanted)
        own = self.batches.of(found.filter(pc.equal(found["table"], self.table)))
        return pa.concat_tables([rows, own.select(columns)])


def remaining_batches(
    table: Table, checkpoint: Checkpoint, merge: WantedBatches, until: int
) -> WantedBatches | None:
    """Return the batches after *merge*, up to *until*, in which the table's bases continue."""
    end = min(_base_end(table, checkpoint, merge), until)
    return WantedBatches(merge.until, end) if end > merge.until else None


def _keys(rows: pa.Table) -> Sequence[str]:
    """The keys of partial rows, and of rows whose key changed at the same position."""
    short = rows.filter(pa.array(is_partial(rows)))
    if not len(short):
        return ()
    keys = pa.concat_tables([one.select(["key"]) for one in (short, find_moved_deletes(rows))])[
        "key"
    ]
    found: list[str] = pc.unique(keys.drop_null()).to_pylist()
    return found


def _base_end(table: Table, checkpoint: Checkpoint, merge: WantedBatches) -> int:
    """The last batch of the bases that begin in *merge*; for a new mirror, of all bases."""
    begun = [
        shard
        for shard in table.shards
        if merge.after < 0 or checkpoint.based.get(shard, -1) <= merge.until
    ]
    return max((checkpoint.complete.get(shard, -1) for shard in begun), default=-1)


S = TypeVar("S", bound=MirrorSnapshot)
DELETE_COLUMNS = ("key", "source", "shard", "order", "origin")
TOGETHER = 1_000_000  # rows of the change log that are held in memory at once
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LandedDeletes:
    """Finds landed deletes of keys, in the batches that a mirror has applied."""

    changes: str
    files: tuple[Part, ...]
    table: str
    until: int

    def __call__(self, keys: pa.StringArray) -> pa.Table:
        """Return key, source, shard, order and origin of the landed deletes of *keys*."""
        columns = ("table", "batch", *DELETE_COLUMNS)
        near = [part for part in self.files if part.low <= self.until]
        found = scan_files(
            open_store(self.changes),
            near,
            among=("table", (self.table,)),
            ops=(Op.DELETE,),
            columns=columns,
        )
        own = pc.and_(pc.is_in(found["key"], keys), pc.less_equal(found["batch"], self.until))
        return found.filter(own).select(list(DELETE_COLUMNS))


@dataclass(frozen=True, slots=True)
class MergeJob(Generic[S]):
    """One merge: its ``task`` without changes, and what a worker needs to read them.

    ``moves`` bring rows of other shards. ``history`` are all files of the change log, without the
    batches up to ``dropped``. ``rest`` finds rows of a base in later batches.

    ``image`` is the image that the merge makes: it takes only changes below the cut, and the next
    merge takes all of the batches. A change may be late for one of the ``images`` made before; late
    changes are counted by the column ``day`` in time ``zone``.
    """

    task: MergeTask[S]
    wanted: WantedBatches
    moves: tuple[TableRename, ...] = ()
    history: tuple[Part, ...] = ()
    dropped: int = -1
    image: Image | None = None
    images: tuple[Image, ...] = ()
    day: Column | None = None
    zone: str = "UTC"
    archive: LandedArchives | None = None
    rest: RemainingSnapshot | None = None

    @property
    def name(self) -> str:
        """The name of its table."""
        return self.task.table.name

    @property
    def reached(self) -> int:
        """The batch that the mirror is applied through after the merge."""
        return self.wanted.until if self.image is None else self.wanted.after


@dataclass(frozen=True, slots=True)
class JobGroup:
    """Jobs that run one after the other, and the ``files`` of the change log that they read.

    ``merge`` runs each job.
    """

    changes: str
    files: tuple[Part, ...]
    jobs: tuple[MergeJob[Any], ...]
    merge: MergeFunction


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """The outcome of one job; ``topics`` are those of its changes.

    ``late``: cut -> the changes that are late for its image.
    """

    result: MergeResult[Any] | MergeFailure
    topics: frozenset[str] = field(default_factory=frozenset)
    late: Mapping[datetime, LateChanges] = field(default_factory=dict)


def run_group(group: JobGroup) -> dict[str, MergeOutcome]:
    """Run each job and return its outcome by table; a failed job yields a `MergeFailure`."""
    store = open_store(group.changes)
    try:
        portions = tuple(_portions(group, store))
    except SluiceError:
        portions = tuple((one,) for one in group.jobs)
    found: dict[str, MergeOutcome] = {}
    for portion in portions:
        found |= _together(replace(group, jobs=portion), store)
    return found


def _portions(group: JobGroup, store: Store) -> Iterator[tuple[MergeJob[Any], ...]]:
    """Yield the jobs whose rows are read together: all, unless that is too much for memory."""
    if sum(part.rows for part in group.files) <= TOGETHER:
        yield group.jobs
        return
    rows, held = TableRows(store), 0
    portion: list[MergeJob[Any]] = []
    for one in group.jobs:
        most = sum(rows.of(part, one.name) for part in group.files if one.wanted.meets(part))
        if portion and held + most > TOGETHER:
            yield tuple(portion)
            portion, held = [], 0
        portion.append(one)
        held += most
    yield tuple(portion)


def _together(group: JobGroup, store: Store) -> dict[str, MergeOutcome]:
    wanted = {one.name: one.wanted for one in group.jobs}
    try:
        rows = read_tables(store, group.files, wanted, columns=_columns(group.jobs))
    except SluiceError:
        return {one.name: _run_alone(one, group, store) for one in group.jobs}
    return {one.name: _done(one, group.changes, rows, group.merge) for one in group.jobs}


def _run_alone(job: MergeJob[S], group: JobGroup, store: Store) -> MergeOutcome:
    """Run one job alone: it may not need the file that could not be read."""
    try:
        rows = read_tables(store, group.files, {job.name: job.wanted}, columns=_columns([job]))
    except SluiceError as error:
        return MergeOutcome(MergeFailure.of(error))
    return _done(job, group.changes, rows, group.merge)


def _columns(jobs: Sequence[MergeJob[Any]]) -> tuple[str, ...]:
    """The columns to read; the transaction only if it may contain a marker."""
    marked = any(one.archive is not None and one.archive.markers for one in jobs)
    return (*APPLIED_COLUMNS, "tx") if marked else APPLIED_COLUMNS


def _done(
    job: MergeJob[S], changes: str, rows: Mapping[str, pa.Table], merge: MergeFunction
) -> MergeOutcome:
    own = rows.get(job.name)
    if own is None:
        own = pa.schema([CHANGES.field(column) for column in _columns([job])]).empty_table()
    topics, read = frozenset(pc.unique(own["topic"]).drop_null().to_pylist()), own
    try:
        came = [
            move_rows(move, open_store(changes), job.history, job.dropped) for move in job.moves
        ]
        own = pa.concat_tables([own, *came], promote_options="default") if came else own
        own = own if job.archive is None else job.archive.with_rows(own)
        own = own if job.image is None else below_cut(own, job.image.positions)
        late = _late(job, changes, own) if job.images else {}
        own = own if job.rest is None else job.rest.with_rows(own)
        evidence = None if job.archive is None else job.archive.evidence
        result = merge(replace(job.task, changes=own, archive=evidence))
        return MergeOutcome(_with_minutes(result, read, len(own)), topics, late)
    except SluiceError as error:
        return MergeOutcome(MergeFailure.of(error), topics)
    except Exception as error:  # the boundary of one mirror's merge: it does not block the others
        log.exception("merge_failed", table=job.name)
        return MergeOutcome(MergeFailure.unforeseen(error), topics)


def _with_minutes(result: MergeResult[S], read: pa.Table, merged: int) -> MergeResult[S]:
    """Add counts by minute: of the rows *read*, and of all changes if none came from elsewhere.

    *merged* is the number of rows in the merge, including those from elsewhere.
    """
    counts = bounded(next(iter(count_minutes(read).values()), {}))
    explained = result.account.explained if merged == len(read) else None
    account = replace(result.account, minutes=counts, explained=bounded(explained))
    return replace(result, account=account)


def _late(job: MergeJob[S], changes: str, rows: pa.Table) -> dict[datetime, LateChanges]:
    def landed(some: pa.Table) -> pa.Table:
        """Read one file after the other, because a table may have many changes."""
        found = [
            scan_files(
                open_store(changes),
                (part,),
                among=("table", (job.name,)),
                ops=ACTING,
                columns=("table", "batch", *SAME),
            )
            for part in job.history
        ]
        keys = some["key"].combine_chunks()
        return pa.concat_tables([one.filter(pc.is_in(one["key"], keys)) for one in found])

    found = [*select_late(job.images, rows, landed)]
    for image, late in found:
        require_valid_late(job.task, late, image.cut)
    return {image.cut: _count_late(late, job.day, job.zone) for image, late in found}


def split_group(group: JobGroup, count: int) -> tuple[JobGroup, ...]:
    """Split a group into at most *count*, each of tables that are neighbours in sorted files."""
    jobs = sorted(group.jobs, key=lambda one: one.name)
    size = max(1, -(-len(jobs) // max(1, count)))
    parts: list[Sequence[MergeJob[Any]]] = [jobs[i : i + size] for i in range(0, len(jobs), size)]
    return tuple(replace(group, jobs=tuple(part)) for part in parts)


HERE = 100_000  # rows to read in the driver; more are worth a Spark job
HERE_MIRRORS = 24
FAR_MORE = 4  # times as many rows as the next mirror has
GROUPS = 8  # for each worker, so that one large mirror does not leave the others idle

Outcomes = Mapping[str, MergeOutcome]
Run = Callable[[Sequence[JobGroup]], Sequence[Outcomes]]


@dataclass(eq=False)
class ParallelMerges:
    """Runs groups of merges in parallel with ``spread``.

    ``_fatal`` are mirrors whose last merge ended a worker; they run alone.
    """

    spread: Run
    workers: int
    _fatal: set[str] = field(default_factory=set)

    def __call__(self, group: JobGroup, rows: TableRows) -> Outcomes:
        """Return the outcomes by table; *rows* counts the rows of the files.

        Raises:
            UnreachableError: no group could be run.
        """
        if not group.jobs:
            return {}
        if len(group.jobs) <= HERE_MIRRORS and _are_few(group, rows):
            return run_group(group)
        alone = [job for job in group.jobs if job.name in self._fatal]
        others = tuple(job for job in group.jobs if job.name not in self._fatal)
        found: dict[str, MergeOutcome] = {}
        for part in self._together(split_group(replace(group, jobs=others), GROUPS * self.workers)):
            found |= part
        for job in alone:
            found |= self._single(replace(group, jobs=(job,)))
        return found

    def run_stepwise(self, group: JobGroup, rows: TableRows) -> Iterator[Outcomes]:
        """Yield the outcomes in steps: the mirror with by far the most changes comes last.

        The caller commits each step before the next, so no mirror waits for the largest.

        Raises:
            UnreachableError: no group could be run.
        """
        large = _largest(group, rows)
        others = tuple(job for job in group.jobs if job is not large)
        if large is None or not others:
            yield self(group, rows)
            return
        try:
            small = self(replace(group, jobs=others), rows)
        except UnreachableError:
            yield self(group, rows)  # if the large one runs, Spark works
            return
        yield small
        yield self._single(replace(group, jobs=(large,)))

    def _together(self, groups: Sequence[JobGroup]) -> Sequence[Outcomes]:
        try:
            return self.spread(groups) if groups else ()
        except UnreachableError as error:
            log.warning("merges_run_apart", groups=len(groups), why=str(error))
            return self._apart(groups, error)

    def _apart(self, groups: Sequence[JobGroup], error: UnreachableError) -> Sequence[Outcomes]:
        found: list[Outcomes] = []
        failed: list[JobGroup] = []
        for one in groups:
            try:
                found += self.spread([one])
            except UnreachableError:
                failed.append(one)
        if not found:
            raise error  # no group ran, so the cause is not one mirror
        singles = [replace(one, jobs=(job,)) for one in failed for job in one.jobs]
        return [*found, *map(self._single, singles)]

    def _single(self, group: JobGroup) -> Outcomes:
        """Run one mirror alone; if its worker dies, the mirror fails and is remembered as fatal."""
        (job,) = group.jobs
        name = job.name
        try:
            (found,) = self.spread([group])
        except UnreachableError as error:
            self._fatal.add(name)
            return {name: MergeOutcome(MergeFailure.of(error))}
        self._fatal.discard(name)
        return found


def _largest(group: JobGroup, rows: TableRows) -> MergeJob[Any] | None:
    """The mirror with far more changes than any other; None if no mirror has."""
    if len(group.jobs) < 2 or sum(part.rows for part in group.files) <= HERE:
        return None
    try:
        counts = [_rows(rows, group, job) for job in group.jobs]
    except SluiceError:
        return None  # the merge itself reports the file
    most, next_ = sorted(counts, reverse=True)[:2]
    return group.jobs[counts.index(most)] if most > max(HERE, FAR_MORE * next_) else None


def _rows(rows: TableRows, group: JobGroup, job: MergeJob[Any]) -> int:
    return sum(rows.of(part, job.name) for part in group.files if job.wanted.meets(part))


def _are_few(group: JobGroup, rows: TableRows) -> bool:
    """Return whether there are so few rows that the driver is faster than a Spark job.

    Files also hold rows of other tables. If all rows together are many, the footers are read.
    """
    if sum(part.rows for part in group.files) <= HERE:
        return True
    left = HERE
    try:
        for part in group.files:
            near = (job for job in group.jobs if job.wanted.meets(part))
            left -= sum(rows.of(part, job.name) for job in near)
            if left < 0:
                return False
    except SluiceError:
        return False  # the merge itself reports the file
    return True


@dataclass(frozen=True, slots=True)
class MergeCommit:
    """The commit's metadata: the number of the applied batch, properties, and a note."""

    application: str
    batch: int
    remembered: Mapping[str, str]
    note: Mapping[str, object]


def describe_commit(job: MergeJob[S], written: MergeResult[Any], stamp: CommitStamp) -> MergeCommit:
    """Describe the commit of *written*, with only those properties that change."""
    reached, floors = job.reached, highest_orders(written.floors)
    images = _images(job, written)
    return MergeCommit(
        application=build_app_id(stamp.lane),
        batch=reached,
        remembered={
            **(floors_property(floors) if floors else {}),
            **incarnation_property(stamp.life),
            **table_property(job.task.snapshot, job.name),
            **(archived_property() if job.archive is not None else {}),
            **(images_property(images) if images else {}),
        },
        note=following_note(job.task.snapshot, reached, stamp.lane, **describe_merge(job, written)),
    )


def _images(job: MergeJob[S], written: MergeResult[Any]) -> tuple[Image, ...]:
    """The images to store: with the one that the merge makes, else those with late changes."""
    if job.image is None:
        return job.images
    before, counts = job.task.snapshot.rows, written.counts
    gained = counts.inserted - counts.deleted - counts.floored
    made = replace(job.image, rows=None if before is None else before + gained)
    return add_image(images_of(job.task.snapshot), made)


def early_floors(job: MergeJob[S], written: MergeResult[Any]) -> Floors:
    """Return the floors that may be committed before the rows of the merge.

    Nothing below a floor is ever inserted, so it stays correct if the merge fails. The floor of a
    table rename is left out: without the moved rows it would hide that they are missing.
    """
    came = {move.shard: move.order for move in job.moves}
    own = {shard: order for shard, order in written.floors.items() if came.get(shard) != order}
    return highest_orders(job.task.floors or {}, own)


def describe_merge(job: MergeJob[S], written: MergeResult[Any]) -> Mapping[str, object]:
    """Return what the note of a merge contains, apart from the version that it follows.

    The note of an image has no account: the next merge accounts for the same changes. Counts of the
    written rows are in the note of the commit that writes them.
    """
    rows = {} if written.written is None else {WRITTEN: written.written}
    if job.image is not None:
        known = job.image.cut.isoformat()
        return {"since": job.wanted.after, "known": known, "image": True, **rows}
    known = job.task.at.isoformat()
    return {"since": job.wanted.after, "known": known, "account": asdict(written.account), **rows}


UNKNOWN_DAY = ""
ACTING = (*ROW_OPS, Op.TRUNCATE, Op.SETTLE)
SAME = ("source", "key", "op", "order")
Landed = Callable[[pa.Table], pa.Table]
"""Changes -> at least the landed changes of their keys, with the columns SAME and batch."""


def below_cut(changes: pa.Table, positions: Mapping[str, Order]) -> pa.Table:
    """The *changes* below the position of their source; those without an order are excluded."""
    orders, source = flat_column(changes["order"]).combine_chunks(), flat_column(changes["source"])
    parts = {part: pc.struct_field(orders, part) for part in ORDER_PARTS}
    kept = pa.array([False] * len(changes), pa.bool_())
    for name, position in positions.items():
        under = pa.array([False] * len(changes), pa.bool_())
        for part in reversed(parts):  # least significant first
            bound = getattr(position, part)
            same = pc.and_(pc.equal(parts[part], bound), under)
            under = pc.fill_null(pc.or_(pc.less(parts[part], bound), same), fill_value=False)
        kept = pc.or_(kept, pc.and_(under, pc.equal(source, name)))
    return changes.filter(kept)


def select_late(
    images: Sequence[Image], changes: pa.Table, landed: Landed
) -> Iterator[tuple[Image, pa.Table]]:
    """Yield each image with those of *changes* that are late for it, if any.

    It calls *landed* only if some may be.
    """
    acting = changes.filter(
        pc.is_in(flat_column(changes["op"]), pa.array([str(op) for op in ACTING]))
    )
    for image in images:
        new = acting.filter(pc.greater(acting["batch"], image.batch))
        late = below_cut(new, image.positions)
        if len(late):
            late = _first_sent(late, landed(late), image.batch)
        if len(late):
            yield image, late


def _count_late(late: pa.Table, day: Column | None, zone: str) -> LateChanges:
    """Count *late* changes by the days of the column *day*, if there is one."""
    return LateChanges(pc.max(late["batch"]).as_py(), len(late), _days(late, day, zone))


def add_late_changes(
    images: Iterable[Image], late: Mapping[datetime, LateChanges]
) -> Iterator[Image]:
    """The *images*, each with its late changes added."""
    for one in images:
        more = (late[one.cut],) if one.cut in late else ()
        yield replace(one, late=(*one.late, *more))


def _first_sent(late: pa.Table, landed: pa.Table, batch: int) -> pa.Table:
    """Those of *late* that do not repeat a change in a batch up to *batch*."""
    before = landed.filter(pc.less_equal(landed["batch"], batch))
    known = set(_identify_rows(before))
    return late.filter(pa.array([one not in known for one in _identify_rows(late)], pa.bool_()))


def _identify_rows(changes: pa.Table) -> Iterator[tuple[object, ...]]:
    for one in changes.select(list(SAME)).to_pylist():
        yield (one["source"], one["key"], one["op"], *one["order"].values())


def _days(late: pa.Table, day: Column | None, zone: str) -> dict[str, int]:
    if day is None:
        return {}
    texts = pc.coalesce(flat_column(late["after"]), flat_column(late["before"]))
    values = flat_column(type_rows(texts, (day,)).rows[day.name])
    if pa.types.is_timestamp(values.type) and values.type.tz:
        values = pc.local_timestamp(values.cast(pa.timestamp("us", zone)))
    if pa.types.is_temporal(values.type):
        values = values.cast(pa.date32())
    names = (UNKNOWN_DAY if one is None else str(one)[:10] for one in values.to_pylist())
    counted: dict[str, int] = {}
    for name in names:
        counted[name] = counted.get(name, 0) + 1
    return dict(sorted(counted.items()))
