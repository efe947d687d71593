"""Runs the due merges: selects mirrors, runs their merges, and makes one commit for each mirror.

A merge runs in the driver or on Spark workers and leaves files. The driver commits one mirror after
the other, each on the version that its merge was planned from. If another writer has committed
since, the mirror is planned again in the next run. A run takes at most 1,000 mirrors of each tier,
and about 10,000,000 rows for each worker. Tier 0 comes first, and in a tier the longest waiting
table. A mirror whose rows are rewritten, for a new column with a default or a wider type, comes
after all others are committed.

A tier with a merge interval waits for it. A table that a request needs, or that becomes an image,
does not wait. After a restart all tables are due at once. A missing schema, an unknown field or an
awaited row is reported as a hold only after 1 minute.

Each commit holds the account of its merge. So the next process can report a merge that was
committed by a process that died. A run that finds unreported merges returns only those: they must
be stored before the next merges, or a kill loses both accounts. A commit without an answer is
looked up in the mirror.

The mirrors of a merge queue, and the cache of their state, are used by one owner at a time: a merge
run, or the maintenance of one mirror. No queue waits for another, so a long run in one delays no
run in another.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import structlog

from pipeline.apply.account import find_unexplained
from pipeline.apply.foreign_commits import ForeignWatch
from pipeline.apply.images import CutDelay, DueImages
from pipeline.apply.landed_state import HighestOrders, LandedState
from pipeline.apply.merge import MergeFunction, MergeResult
from pipeline.apply.merge_job import (
    JobGroup,
    MergeJob,
    MergeOutcome,
    ParallelMerges,
    Run,
    add_late_changes,
    run_group,
)
from pipeline.apply.merge_plan import MergePlanner, PendingFiles
from pipeline.apply.mirror import CommitStamp, MirrorSnapshot, batch_of
from pipeline.apply.table_format import Mirrors, TableFormat
from pipeline.archive import NO_WORD, ArchiveWord
from pipeline.changelog.change_log import ChangeLog
from pipeline.checkpoint import active_tables
from pipeline.clocks import Retries, has_passed
from pipeline.errors import HeldError, LostRaceError, UnreachableError
from pipeline.image import DueCut
from pipeline.model import Account, Table
from pipeline.reports import Hold, MergeFailure, MergeReport
from pipeline.settings import PipelineSettings


@dataclass(eq=False)
class MergeIntervals:
    """Remembers when each table was merged last; after a restart all tables are due at once."""

    settings: PipelineSettings
    clock: Callable[[], datetime]
    _merged: dict[str, datetime] = field(default_factory=dict)

    def select_due(self, tables: Iterable[Table], wanted: Collection[str]) -> list[Table]:
        """Select the *tables* whose interval has passed, and those that are *wanted*."""
        return [one for one in tables if one.name in wanted or self._due(one)]

    def note_merges(self, merges: Iterable[MergeReport], last: Mapping[str, int]) -> None:
        """Record the time of each of *merges*; *last*: table -> the last batch with a change of it.

        A table that is held, or has more rows than one merge may read, is due again at once.
        """
        for merge in merges:
            if merge.hold is None and merge.batch >= last.get(merge.table, -1):
                self._merged[merge.table] = merge.started

    def _due(self, table: Table) -> bool:
        cycle, merged = self.settings.cycle(table.tier), self._merged.get(table.name)
        return not cycle or merged is None or has_passed(merged, cycle, self.clock())


@dataclass(eq=False)
class UnreportedMerges:
    """Finds mirrors whose newest merge is not reported yet; after a restart, all of them."""

    mirrors: Mirrors[Any]
    watch: ForeignWatch
    clock: Callable[[], datetime]
    _reported: set[str] = field(default_factory=set)
    _unanswered: dict[str, int] = field(default_factory=dict)

    def note_reported(self, table: str) -> None:
        """Record that the newest merge of *table* is reported by the run that made it."""
        self._reported.add(table)

    def forget(self, tables: Iterable[str]) -> None:
        """Report the newest merges of *tables* again; the report of their run did not arrive."""
        self._reported.difference_update(tables)

    def note_unanswered(self, table: str, batch: int) -> None:
        """Record that the commit of *table* through *batch* got no answer."""
        self._unanswered[table] = batch

    def settle(self) -> None:
        """Look up the commits that got no answer; retry an unreachable mirror in the next run."""
        for table, batch in tuple(self._unanswered.items()):
            try:
                self.mirrors.look(table)
                made = self.mirrors.applied(table) >= batch
            except (HeldError, UnreachableError):
                continue
            if made:
                self._reported.discard(table)
            del self._unanswered[table]

    def reports(self, tables: Iterable[str]) -> Iterator[MergeReport]:
        """Yield the newest unreported merge of each of *tables*, and mark it as reported.

        A mirror that does not answer is tried again in the next run, and delays no other.
        """
        for table in tables:
            if table in self._reported:
                continue
            try:
                snapshot, last = self.mirrors.seen(table), self.watch.find_last_merge(table)
            except (HeldError, UnreachableError):
                continue
            self._reported.add(table)
            if snapshot is not None and last is not None:
                batch, since, account = last
                now = self.clock()
                version = snapshot.version
                yield MergeReport(table, batch, version, account, now, now - now, since=since)


MOST_MIRRORS = 1_000  # of a tier in one run, so that the first are not committed late
PASS_ROWS = 10_000_000  # for each worker: a run that takes too long is killed, and its work is lost
ON_ITS_WAY = ("no_schema", "unknown_field", "awaited")  # a row may land before what it needs
PATIENCE = timedelta(minutes=1)  # before such a failure is reported
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """What operators and the service request of one merge run.

    Images of ``cuts`` come first. Tables that are ``paused`` are not merged. A ``wanted`` table
    does not wait for its interval. ``archived``: registered archive windows, and rows kept by them.
    """

    waived: frozenset[str] = frozenset()
    cuts: Sequence[DueCut] = ()
    paused: Collection[str] = frozenset()
    wanted: Collection[str] = frozenset()
    archived: ArchiveWord = NO_WORD


@dataclass(eq=False)
class HeldMirrors:
    """Remembers which mirrors are held, and checks each at growing intervals.

    A changed waiver makes the next check of a hold due at once.
    """

    mirrors: Mirrors[Any]
    watch: ForeignWatch
    clock: Callable[[], datetime]
    _retries: Retries = field(default_factory=Retries)
    _holds: dict[str, Hold] = field(default_factory=dict)  # result of the last check of each
    _held: set[str] = field(default_factory=set)

    def is_held(self, table: str) -> bool:
        """Whether *table* is held, or its mirror has a foreign commit."""
        return table in self._held or self.watch.find_hold(table, frozenset()) is not None

    def released(self, others: Collection[str]) -> list[str]:
        """Tables that were held in the run before, except *others*."""
        return sorted(self._held.difference(others))

    def unreadable(self, table: str, waived: frozenset[str]) -> Hold | None:
        """The hold of a mirror that could not be read, until it is due to be read again.

        Without a known version it is read from its beginning, which is too slow for each run.
        """
        unread = table in self._holds and self.mirrors.seen(table) is None
        return self._holds[table] if unread and self._is_resting(table, waived) else None

    def find_foreign(
        self, due: set[str], tables: Collection[str], waived: frozenset[str]
    ) -> dict[str, Hold]:
        """The holds of mirrors with foreign commits.

        A held table is checked when it is *due*, and otherwise at growing intervals.
        """
        held = {name for name in self._held if not self.mirrors.is_absent(name)}
        idle = (self._held | self._holds.keys()) - due
        resting = {name for name in idle if self._is_resting(name, waived)}
        found = {name: self._holds[name] for name in resting if name in self._holds}
        for name in sorted(self.watch.choose_mirrors(due | held, tables) - resting):
            hold = self.watch.find_hold(name, waived)
            found.pop(name, None)
            if hold is not None:
                found[name] = hold
            if hold is not None or name in held:
                self.note_look(name, hold, waived)
        return found

    def note_look(self, table: str, hold: Hold | None, waived: frozenset[str]) -> None:
        """Record the result of a check of a mirror; the interval to the next check grows."""
        self._retries.failed(table, waived, self.clock())
        if hold is None:
            self._holds.pop(table, None)
        else:
            self._holds[table] = hold

    def note_reports(self, reports: Collection[MergeReport]) -> None:
        """Record which tables are held after a run."""
        self._held |= {one.table for one in reports if one.hold is not None}
        for table in self._held & {one.table for one in reports if one.hold is None}:
            self._held.discard(table)
            self._retries.succeeded(table)
            self._holds.pop(table, None)

    def _is_resting(self, table: str, waived: frozenset[str]) -> bool:
        return not self._retries.due(table, waived, self.clock())


@dataclass(eq=False)
class MergeRunner:
    """Brings mirrors up to date, one run at a time.

    ``spread`` runs groups of merges in parallel. ``shared`` are mirrors that another runner also
    uses, for other tables. State kept here is a cache of the lake's state.
    """

    settings: PipelineSettings
    changes: ChangeLog
    spread: Run
    clock: Callable[[], datetime]
    table_format: TableFormat[Any, Any]
    shared: InitVar[Mirrors[Any] | None] = None
    highs: HighestOrders = field(default_factory=HighestOrders)
    mirrors: Mirrors[Any] = field(init=False)
    watch: ForeignWatch = field(init=False)
    jobs: MergePlanner = field(init=False)
    parallel: ParallelMerges = field(init=False)
    images: DueImages = field(init=False)
    held: HeldMirrors = field(init=False)
    _retries: Retries = field(default_factory=Retries)
    _unreported: UnreportedMerges = field(init=False)
    _intervals: MergeIntervals = field(init=False)
    _asked: dict[str, int] = field(default_factory=dict)  # the run in which each merged last
    _number: int = 0

    def __post_init__(self, shared: Mirrors[Any] | None) -> None:
        """Create the parts of the runner; nothing is read yet."""
        self.mirrors = shared or Mirrors(self.settings, self.table_format)
        self.watch = ForeignWatch(self.mirrors)
        self.parallel = ParallelMerges(self.spread, self.settings.merge_workers)
        self.jobs = MergePlanner(self.settings, self.changes, self.mirrors, self.table_format)
        self.images = DueImages(self.settings, self.mirrors, self.clock)
        self.held = HeldMirrors(self.mirrors, self.watch, self.clock)
        self._unreported = UnreportedMerges(self.mirrors, self.watch, self.clock)
        self._intervals = MergeIntervals(self.settings, self.clock)

    def run(self, landed: LandedState, request: MergeRequest) -> tuple[MergeReport, ...]:
        """Merge every mirror with landed changes that is due, tier 0 first.

        Returns a report for each such mirror, and for each one that is held.
        """
        tables, waived = landed.checkpoint.tables, request.waived
        self.images.set_cuts(request.cuts)
        self.jobs.archived = request.archived
        self._unreported.settle()
        behind, broken = self._behind(landed, waived)
        if unreported := tuple(self._unreported.reports(sorted(tables))):
            return unreported  # to be stored before the next merges, or a kill loses both accounts
        ready, holds = self._ready(behind, broken, landed, request)
        try:
            done = again = self._run_merges(ready, landed, waived)
            while made := {merge.table for merge in again if merge.image is not None}:
                again = self._run_merges([one for one in ready if one.name in made], landed, waived)
                done += again
        except Exception:  # what was already committed is reported by the next run
            self._unreported.forget(table.name for table in ready)
            raise
        self._intervals.note_merges(done, landed.target_batches)
        left = [self._still(name, hold) for name, hold in sorted(holds.items())]
        free = self.held.released({*holds, *behind, *(merge.table for merge in done)})
        result = (*done, *left, *map(self._still, free))
        self.held.note_reports(result)
        return result

    def _ready(
        self,
        behind: Sequence[str],
        broken: Mapping[str, Hold],
        landed: LandedState,
        request: MergeRequest,
    ) -> tuple[list[Table], dict[str, Hold]]:
        """The tables to merge in this run, and the holds of those that cannot be merged."""
        checkpoint = landed.checkpoint
        going = [name for name in behind if name not in request.paused]
        wanted = {*request.wanted, *filter(self.images.has_due_cut, going)}
        ripe = self._intervals.select_due(
            (landed.catalog.table(n, checkpoint.shards) for n in going), wanted
        )
        tried = [table for table in ripe if self._due(table, landed, request.waived)]
        due = {table.name for table in tried}
        holds = {**broken, **self.held.find_foreign(due, checkpoint.tables, request.waived)}
        return self._first([table for table in tried if table.name not in holds]), holds

    def _first(self, ready: Sequence[Table]) -> list[Table]:
        """Select the tables of this run: tier 0 first, in a tier the one that waits longest."""
        self._number += 1
        found: list[Table] = []
        taken: Counter[int] = Counter()
        for table in sorted(ready, key=self._place):
            taken[table.tier] += 1
            found += [table] if taken[table.tier] <= MOST_MIRRORS else []
        return found

    def _place(self, table: Table) -> tuple[int, int, str]:
        return table.tier, self._asked.get(table.name, 0), table.name

    def applied(self, table: str) -> int:
        """The batch a mirror is applied through; -1 before the first, and if it is unknown."""
        try:
            return self.mirrors.applied(table)
        except (HeldError, UnreachableError):
            return -1

    def _behind(
        self, landed: LandedState, waived: frozenset[str]
    ) -> tuple[list[str], dict[str, Hold]]:
        """Tables with something to apply, and holds of mirrors that do not fit the change log."""
        behind: list[str] = []
        broken: dict[str, Hold] = {}
        for name in active_tables(landed.checkpoint, landed.catalog.router):
            if (hold := self.held.unreadable(name, waived)) is not None:
                broken[name] = hold
                continue
            try:
                applied = self.mirrors.applied_batch(
                    name, landed.checkpoint.batch, landed.incarnations
                )
                due = applied < landed.target_batches[name] or self.images.has_due_cut(name)
            except (HeldError, UnreachableError) as error:
                broken[name] = MergeFailure.of(error).hold(name)
                if isinstance(error, HeldError):
                    self.held.note_look(name, broken[name], waived)
                continue
            except Exception as error:  # the boundary of one mirror: it does not stop the others
                log.exception("merge_failed", table=name)
                broken[name] = MergeFailure.unforeseen(error).hold(name)
                continue
            if due:
                behind.append(name)
        return behind, broken

    def _due(self, table: Table, landed: LandedState, waived: frozenset[str]) -> bool:
        circumstances = self._circumstances(table, landed, waived)
        return self._retries.due(table.name, circumstances, self.clock())

    def _circumstances(
        self, table: Table, landed: LandedState, waived: frozenset[str]
    ) -> tuple[object, ...]:
        """Return everything whose change can end the failure of a table."""
        checkpoint, seen = landed.checkpoint, self.mirrors.seen(table.name)
        names = [str(shard) for shard in table.shards]
        bases = tuple(map(checkpoint.bases.get, table.shards))
        schemas = tuple(one.order for one in landed.catalog.newest_of(table).values())
        gaps = tuple(gap for name in names for gap in landed.gaps.get(name, ()))
        version = None if seen is None else seen.version
        given_up = self.images.is_given_up(table.name, self.clock())
        state = (landed.target_batches.get(table.name), bases, schemas, gaps, table.key)
        return (*state, waived, version, given_up, self.jobs.archive_of(table.name))

    def _run_merges(
        self, ready: Sequence[Table], landed: LandedState, waived: frozenset[str]
    ) -> tuple[MergeReport, ...]:
        """Merge *ready*; mirrors that must be rewritten come last, one by one, the smallest first.

        If a rewrite takes longer than a run may, only that mirror is not merged.
        """
        pending = self.jobs.find_pending(ready, landed)
        rewritten = {table.name: self._count_rewritten(table, landed) for table in ready}
        plain = [table for table in ready if not rewritten[table.name]]
        done = self._merge_together(plain, pending, landed, waived)
        room = PASS_ROWS
        for table in sorted(ready, key=lambda one: rewritten[one.name]):
            if rewritten[table.name] and room > 0:
                room -= rewritten[table.name]
                done += self._merge_together([table], pending, landed, waived)
        return done

    def _count_rewritten(self, table: Table, landed: LandedState) -> int:
        try:
            return self.jobs.count_rewritten(table, landed)
        except Exception:  # the boundary of one mirror: it does not stop the others
            log.exception("merge_failed", table=table.name)
            return 0

    def _merge_together(
        self,
        ready: Sequence[Table],
        pending: PendingFiles,
        landed: LandedState,
        waived: frozenset[str],
    ) -> tuple[MergeReport, ...]:
        started = self.clock()
        jobs: list[MergeJob[Any]] = []
        failed: list[MergeReport | None] = []
        room, served = PASS_ROWS * self.settings.merge_workers, set[int]()
        for table in ready:
            if room <= 0 and table.tier in served:
                continue  # it comes first in its tier in a later run
            served.add(table.tier)
            self._asked[table.name] = self._number
            try:
                job = self._job(table, landed, pending, waived)
            except LostRaceError:
                continue  # another writer committed: planned again in the next run
            except (HeldError, UnreachableError) as error:
                hold = MergeFailure.of(error).hold(table.name)
                failed.append(self._failed(table, hold, landed, waived))
            except Exception as error:  # the boundary of one mirror: it does not stop the others
                log.exception("merge_failed", table=table.name)
                hold = MergeFailure.unforeseen(error).hold(table.name)
                failed.append(self._failed(table, hold, landed, waived))
            else:
                jobs += [job] if job is not None else []
                room -= pending.most(job, room) if job is not None else 0
        done = (
            self._finished(job, outcome, started, landed, waived)
            for job, outcome in self._outcomes(jobs, pending)
        )
        return tuple(merge for merge in (*failed, *done) if merge is not None)

    def _job(
        self, table: Table, landed: LandedState, pending: PendingFiles, waived: frozenset[str]
    ) -> MergeJob[Any] | None:
        """Plan the merge of *table*; None if it has none now."""
        self.jobs.require_archived(table, waived)
        stamp = self._stamp()
        image = self.images.find_image(table, landed.checkpoint, stamp.at)
        if isinstance(image, CutDelay):
            return None
        if image is not None and not self.jobs.fits_one_merge(table, landed, pending):
            self.images.note_missed(
                table.name, image.cut, "more rows were waiting than one merge may read"
            )
            image = None
        job = self.jobs.plan_job(table, landed, pending, self.highs, stamp, image=image)
        return self.jobs.add_invariants(job, landed, waived) if job is not None else None

    def _outcomes(
        self, jobs: Sequence[MergeJob[Any]], pending: PendingFiles
    ) -> Iterator[tuple[MergeJob[Any], MergeOutcome]]:
        """Yield the outcomes of our own merges, then run those of another engine one by one."""
        ours: list[MergeJob[Any]] = []
        theirs: list[tuple[MergeJob[Any], MergeFunction]] = []
        for one in jobs:
            engine = self.table_format.engine(one.task.snapshot)
            if engine is None:
                ours.append(one)
            else:
                theirs.append((one, engine))
        log_uri, files = self.changes.store.uri, pending.files
        group = JobGroup(log_uri, files, tuple(ours), self.table_format.worker())
        for found in self.parallel.run_stepwise(group, pending.rows):
            yield from ((one, found[one.name]) for one in ours if one.name in found)
        for one, engine in theirs:
            yield one, run_group(JobGroup(log_uri, files, (one,), engine))[one.name]

    def _finished(
        self,
        job: MergeJob[Any],
        outcome: MergeOutcome,
        started: datetime,
        landed: LandedState,
        waived: frozenset[str],
    ) -> MergeReport | None:
        """Commit one merge; None if it must be retried, or if rows that it needs may still land."""
        table, result = job.task.table, outcome.result
        if isinstance(result, MergeFailure):
            return self._failed(table, result.hold(table.name), landed, waived)
        reached, job = job.reached, self._with_late(job, outcome)
        doubt = self.watch.find_hold_below(table.name, job.task.snapshot, waived)
        doubt = doubt or find_unexplained(table.name, reached, result.account)
        if doubt is not None and doubt.id not in waived:
            return self._failed(table, doubt, landed, waived)
        try:
            version = self._commit(job, result, landed.incarnations.at(reached))
        except LostRaceError:
            return self._start_over(table, landed, waived)
        except (HeldError, UnreachableError) as error:
            self._unreported.note_unanswered(table.name, reached)
            return self._failed(table, MergeFailure.of(error).hold(table.name), landed, waived)
        if self.table_format.engine(job.task.snapshot) is None:
            self.watch.note_own(table.name, version)
        elif (hold := self.watch.find_hold(table.name, waived)) is not None:
            return self._failed(table, hold, landed, waived)
        return self._succeeded(job, outcome, result.account, started)

    def _start_over(
        self, table: Table, landed: LandedState, waived: frozenset[str]
    ) -> MergeReport | None:
        """Read what another writer committed; None if the merge can be tried again on it."""
        try:
            self.mirrors.look(table.name)
        except (HeldError, UnreachableError) as error:
            return self._failed(table, MergeFailure.of(error).hold(table.name), landed, waived)
        return None

    def _with_late(self, job: MergeJob[Any], outcome: MergeOutcome) -> MergeJob[Any]:
        """The job with only those images that have late changes."""
        at = self.clock()
        late = {cut: replace(one, at=at) for cut, one in outcome.late.items()}
        for cut, one in late.items():
            fields = {"cut": cut.isoformat(), "rows": one.rows, "days": dict(one.days)}
            log.warning("changes_late", table=job.name, **fields)
        return replace(job, images=tuple(add_late_changes(job.images, late)) if late else ())

    def _succeeded(
        self, job: MergeJob[Any], outcome: MergeOutcome, account: Account, started: datetime
    ) -> MergeReport:
        """The report of a merge; the next merge accounts for the changes in an image."""
        name, reached, made = job.name, job.reached, self.mirrors.seen(job.name)
        self._unreported.note_reported(name)
        self._retries.succeeded(name)
        version, took = -1 if made is None else made.version, self.clock() - started
        if job.image is not None:
            return MergeReport(name, reached, version, Account(), started, took, image=job.image)
        self.highs.note_applied(name, reached, outcome.topics)
        since = job.wanted.after
        return MergeReport(name, reached, version, account, started, took, since=since)

    def _commit(self, job: MergeJob[Any], written: MergeResult[Any], life: int | None) -> int:
        table = job.name
        made: MirrorSnapshot = self.table_format.commit(job, written, self._stamp(life))
        self.mirrors.remember(table, made)
        return made.version

    def _stamp(self, life: int | None = None) -> CommitStamp:
        return CommitStamp(self.settings.lane, self.clock(), life)

    def _failed(
        self, table: Table, hold: Hold, landed: LandedState, waived: frozenset[str]
    ) -> MergeReport | None:
        """The report of a failed merge; None while the missing rows may still land."""
        now = self.clock()
        circumstances = self._circumstances(table, landed, waived)
        failing = self._retries.failed(table.name, circumstances, now)
        if hold.reason != "unreachable":
            self.images.note_held(table.name)
        if hold.reason in ON_ITS_WAY and failing < PATIENCE:
            return None
        return self._still(table.name, hold)

    def _still(self, name: str, hold: Hold | None = None) -> MergeReport:
        """The report of a mirror without a merge."""
        seen, now = self.mirrors.seen(name), self.clock()
        version = -1 if seen is None else seen.version
        batch = self.applied(name) if hold is None else self._batch(seen)
        return MergeReport(name, batch, version, Account(), now, now - now, hold)

    def _batch(self, seen: MirrorSnapshot | None) -> int:
        return -1 if seen is None else batch_of(seen, self.settings.lane)


TierFilter = Callable[[int], bool]


def every_tier(_: int) -> bool:
    """Accept every tier."""
    return True


def is_tier0(tier: int) -> bool:
    """Whether it is tier 0."""
    return tier == 0


def is_other_tier(tier: int) -> bool:
    """Whether it is a tier other than 0."""
    return not is_tier0(tier)


LOCK_PATIENCE = timedelta(minutes=1)  # how long a run waits for the maintenance of one mirror


@dataclass(eq=False)
class MergeQueue:
    """The merge runs of ``runner`` for tables of the accepted tiers, in Spark's pool ``name``."""

    name: str
    runner: MergeRunner
    has_tier: TierFilter = every_tier
    _mirrors: threading.Lock = field(default_factory=threading.Lock)
    _next: threading.Lock = field(default_factory=threading.Lock)
    _own: tuple[LandedState, LandedState] | None = None

    def run(self, landed: LandedState, request: MergeRequest) -> tuple[MergeReport, ...]:
        """Merge the mirrors of this queue; no reports if maintenance holds the lock too long."""
        with self.lock(LOCK_PATIENCE) as mine:
            return self.runner.run(self.own(landed), request) if mine else ()

    @contextmanager
    def lock(self, within: timedelta | None = None) -> Iterator[bool]:
        """Lock the mirrors; the caller that has waited longest gets them next.

        Yields False if they were not free *within* that time.
        """
        seconds = -1 if within is None else within.total_seconds()
        with self._next:
            mine = self._mirrors.acquire(timeout=seconds)
        try:
            yield mine
        finally:
            if mine:
                self._mirrors.release()

    def own(self, landed: LandedState) -> LandedState:
        """The part of *landed* for the tables of this queue; computed once for each batch."""
        if self.has_tier is every_tier:
            return landed
        if self._own is None or self._own[0] is not landed:
            self._own = landed, landed.for_tiers(self.has_tier)
        return self._own[1]
