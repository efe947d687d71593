"""What a pass sends to where turns run: some mirrors, and which files of the change log to read.

Mirrors are sent in groups, so that a file of the change log is opened once for all of them.  One
that fails is told of and spoils no other.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from pipeline.apply.decide import AppliedBefore
from pipeline.apply.fills import Fill
from pipeline.apply.floors import Floors
from pipeline.apply.landed_archives import LandedArchives
from pipeline.apply.late_changes import ACTING, SAME, below_cut, late_for
from pipeline.apply.moved_rows import RowMove, moved
from pipeline.apply.references import ReferredTable
from pipeline.apply.rest_of_bases import BaseRest
from pipeline.apply.turn import Turn, TurnTask, Written
from pipeline.apply.validation import Demands
from pipeline.changelog.scan import APPLIED_COLUMNS, Part, TableRows, WantedBatches, read, scan
from pipeline.changelog.table import CHANGES
from pipeline.delta.store import Store, open_store
from pipeline.errors import SluiceError
from pipeline.image import Image, LateChanges
from pipeline.model import Op, Order, Table
from pipeline.reports import Refusal
from pipeline.schema.model import Column

S = TypeVar("S")  # a mirror as of one version, as its format tells it
DELETE_COLUMNS = ("key", "source", "shard", "order", "origin")
TOGETHER = 1_000_000  # rows of the change log that are held at once for several mirrors
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LandedDeletes:
    """Asks the change log for deletes of keys, in the batches that a mirror has applied."""

    changes: str
    files: tuple[Part, ...]
    table: str
    until: int

    def __call__(self, keys: pa.StringArray) -> pa.Table:
        """Key, source, shard, order and origin of the landed deletes of *keys*."""
        columns = ("table", "batch", *DELETE_COLUMNS)
        near = [part for part in self.files if part.low <= self.until]
        found = scan(
            open_store(self.changes),
            near,
            among=("table", (self.table,)),
            ops=(Op.DELETE,),
            columns=columns,
        )
        own = pc.and_(pc.is_in(found["key"], keys), pc.less_equal(found["batch"], self.until))
        return found.filter(own).select(list(DELETE_COLUMNS))


@dataclass(frozen=True, slots=True)
class MirrorJob(Generic[S]):
    """One mirror's turn, but for its changes; see :class:`pipeline.apply.turn.TurnTask`.

    ``deletes`` are the files of the change log that may hold deletes.  ``moves`` bring rows of
    other shards, from ``history``: all of its files, of which batches up to ``dropped`` are gone.
    ``image`` is what the turn makes: then it takes only what belongs in that, and another turn
    takes all of the batches.  ``images`` are those that were made before, to each of which a
    change may be late; ``day`` is the column by which such changes are counted.  ``archive`` tells
    which deletes only move rows to an archive, ``rest`` what a base tells in later batches.
    """

    table: Table
    snapshot: S
    columns: tuple[Column, ...]
    wanted: WantedBatches
    at: datetime
    deletes: tuple[Part, ...]
    known: AppliedBefore | None = None
    floors: Floors | None = None
    fills: tuple[Fill, ...] = ()
    adopted: Order | None = None
    moves: tuple[RowMove, ...] = ()
    history: tuple[Part, ...] = ()
    dropped: int = -1
    image: Image | None = None
    images: tuple[Image, ...] = ()
    day: Column | None = None
    zone: str = "UTC"

    @property
    def reached(self) -> int:
        """The batch that the mirror is applied through after the turn."""
        return self.wanted.until if self.image is None else self.wanted.after

    demands: Demands | None = None
    others: tuple[ReferredTable[S], ...] = ()
    archive: LandedArchives | None = None
    rest: BaseRest | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs that run one after the other; ``files`` are those of the change log to read.

    ``turn`` works out each.
    """

    changes: str
    files: tuple[Part, ...]
    jobs: tuple[MirrorJob[Any], ...]
    turn: Turn


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """What one job came to; ``topics`` its changes arrived in.

    ``late``: cut -> what of them is late for its image.
    """

    result: Written[Any] | Refusal
    topics: frozenset[str] = field(default_factory=frozenset)
    late: Mapping[datetime, LateChanges] = field(default_factory=dict)


def run(group: Group) -> dict[str, TurnOutcome]:
    """Do each job, by table; what fails is a refusal, never an exception of its own."""
    store = open_store(group.changes)
    try:
        portions = tuple(_portions(group, store))
    except SluiceError:
        portions = tuple((one,) for one in group.jobs)
    found: dict[str, TurnOutcome] = {}
    for portion in portions:
        found |= _together(replace(group, jobs=portion), store)
    return found


def _portions(group: Group, store: Store) -> Iterator[tuple[MirrorJob[Any], ...]]:
    """Jobs whose rows are read at once: all, unless that may be more than memory holds."""
    if sum(part.rows for part in group.files) <= TOGETHER:
        yield group.jobs
        return
    rows, held = TableRows(store), 0
    portion: list[MirrorJob[Any]] = []
    for one in group.jobs:
        most = sum(rows.of(part, one.table.name) for part in group.files if one.wanted.meets(part))
        if portion and held + most > TOGETHER:
            yield tuple(portion)
            portion, held = [], 0
        portion.append(one)
        held += most
    yield tuple(portion)


def _together(group: Group, store: Store) -> dict[str, TurnOutcome]:
    wanted = {one.table.name: one.wanted for one in group.jobs}
    try:
        rows = read(store, group.files, wanted, columns=_columns(group.jobs))
    except SluiceError:
        return {one.table.name: _alone(one, group, store) for one in group.jobs}
    return {one.table.name: _done(one, group.changes, rows, group.turn) for one in group.jobs}


def _alone(job: MirrorJob[S], group: Group, store: Store) -> TurnOutcome:
    """Do one job by itself: it may not need the file that could not be read."""
    try:
        rows = read(store, group.files, {job.table.name: job.wanted}, columns=_columns([job]))
    except SluiceError as error:
        return TurnOutcome(Refusal.of(error))
    return _done(job, group.changes, rows, group.turn)


def _columns(jobs: Sequence[MirrorJob[Any]]) -> tuple[str, ...]:
    """With the transaction, where a marker may stand in it."""
    marked = any(one.archive is not None and one.archive.markers for one in jobs)
    return (*APPLIED_COLUMNS, "tx") if marked else APPLIED_COLUMNS


def _done(job: MirrorJob[S], changes: str, rows: Mapping[str, pa.Table], turn: Turn) -> TurnOutcome:
    name = job.table.name
    own = rows.get(name)
    if own is None:
        own = pa.schema([CHANGES.field(column) for column in _columns([job])]).empty_table()
    topics = frozenset(pc.unique(own["topic"]).drop_null().to_pylist())
    try:
        came = [moved(move, open_store(changes), job.history, job.dropped) for move in job.moves]
        own = pa.concat_tables([own, *came], promote_options="default") if came else own
        own = own if job.archive is None else job.archive.joined(own)
        own = own if job.image is None else below_cut(own, job.image.positions)
        late = _late(job, changes, own) if job.images else {}
        own = own if job.rest is None else job.rest.joined(own)
        return TurnOutcome(turn(_task(job, changes, own)), topics, late)
    except SluiceError as error:
        return TurnOutcome(Refusal.of(error), topics)
    except Exception as error:  # the boundary of one mirror's turn: it blocks no other
        log.exception("turn_broken", table=name)
        return TurnOutcome(Refusal.unforeseen(error), topics)


def _late(job: MirrorJob[S], changes: str, rows: pa.Table) -> dict[datetime, LateChanges]:
    def landed(some: pa.Table) -> pa.Table:
        """One file after the other: a table may have been changed often."""
        found = [
            scan(
                open_store(changes),
                (part,),
                among=("table", (job.table.name,)),
                ops=ACTING,
                columns=("table", "batch", *SAME),
            )
            for part in job.history
        ]
        keys = some["key"].combine_chunks()
        return pa.concat_tables([one.filter(pc.is_in(one["key"], keys)) for one in found])

    return late_for(job.images, rows, landed, job.day, job.zone)


def _task(job: MirrorJob[S], changes: str, rows: pa.Table) -> TurnTask[S]:
    name = job.table.name
    return TurnTask(
        table=job.table,
        snapshot=job.snapshot,
        columns=job.columns,
        changes=rows,
        at=job.at,
        deletes=LandedDeletes(changes, job.deletes, name, job.wanted.after),
        known=job.known,
        floors=job.floors,
        fills=job.fills,
        adopted=job.adopted,
        demands=job.demands,
        others=job.others,
        archive=None if job.archive is None else job.archive.evidence,
    )


def grouped(group: Group, count: int) -> tuple[Group, ...]:
    """Cut a group into at most *count*, of tables that lie next to each other in sorted files."""
    jobs = sorted(group.jobs, key=lambda one: one.table.name)
    size = max(1, -(-len(jobs) // max(1, count)))
    parts: list[Sequence[MirrorJob[Any]]] = [jobs[i : i + size] for i in range(0, len(jobs), size)]
    return tuple(replace(group, jobs=tuple(part)) for part in parts)
