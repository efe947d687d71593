"""Runs due probes, with one view of the data per table and one verdict per probe.

Tables of one source share a queue, and tables with shards in several sources have one queue per
combination. A few workers take tables from a queue, so several tables are probed in parallel, but
each table by one worker. A table with a suspicion comes first, then the one that waits longest. No
queue waits for another, and a round does not wait for a slow one. If a probe hangs, all due checks
of its table are UNKNOWN, and the reason names that probe. If all workers of a queue hang, all due
checks in it are UNKNOWN.

`ProbeWorld` is what a probe may see in one round: pinned readers, heartbeats and check memory.
`certified_versions` lists mirror versions that may still be read, because certificates of the last
day name them.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import structlog

from checks.counting import CLAIMS
from checks.model import NotYet, Outcome, Ruling, Verdict
from checks.ordering import SourceOrdering, weakest_ordering
from checks.run import Check, looks_back, run_probe
from checks.world import (
    Commit,
    LargeLooks,
    LogKey,
    MirrorSide,
    MirrorState,
    MirrorTrail,
    World,
)
from monitor.clients import LakeClient
from monitor.config.plans import CheckPlan, is_planned
from monitor.observe.heartbeats import FenceBook
from monitor.observe.recorder import VerdictRecorder
from monitor.observe.sampler import Sampling
from monitor.observe.tables import TableRegistry
from monitor.store.certificates import Certificates
from monitor.store.history import CheckMemory, Verdicts, unreadable_memory
from pipeline.changelog.reader import LogReader
from pipeline.checkpoint import Incarnations
from pipeline.clocks import first_fence, has_passed, is_behind, redate
from pipeline.collectors.collector import Collector
from pipeline.errors import HeldError, ProofError, UnreachableError
from pipeline.lags.samples import LandedBatch, MirrorPosition, Sample
from pipeline.model import CaptureScope, Fence, Missing, Ordering, Origin, Shard, Stage, Table
from pipeline.parallel import DeadlinePool
from pipeline.readings import NO_BASES, ShardBase
from pipeline.schema.model import TableSchema
from pipeline.sources.budget import Allowance, BudgetedQueries
from pipeline.sources.source import TableQueries

JOB = "job:probe"
Due = tuple[CheckPlan, Any, Table]
REPEATED = timedelta(minutes=1)  # how often a hanging check is reported
NOT_ASKED = Missing("it was not asked yet")
UNABLE = ("unreachable", "unprovable", "not_reached", "over_time", "check_broken")
"""Codes of an UNKNOWN that ends once the probe can run again."""
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ProbeAtWork:
    """A running probe; ``limit`` is how long it may take.

    ``began`` is its start in seconds of a timer that clock steps do not affect.
    """

    check: str
    table: str
    since: datetime
    began: float
    limit: timedelta


@dataclass(frozen=True, slots=True)
class Visit:
    """The checks of one table that one worker runs in one world, in this order."""

    table: Table
    checks: tuple[tuple[CheckPlan, Any], ...]


@dataclass(eq=False)
class ProbeQueue:
    """The due checks of the tables of some sources; two workers never have the same table.

    ``name`` is for messages.  ``workers`` is their number.  ``at_work`` is what each of them runs.
    """

    name: str
    workers: int
    at_work: dict[int, ProbeAtWork] = field(default_factory=dict)
    _urgent: dict[str, Visit] = field(default_factory=dict)
    _waiting: dict[str, Visit] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def line_up(self, urgent: Sequence[Visit], others: Sequence[Visit]) -> None:
        """Replace the queued visits; tables that were queued before keep their positions.

        Tables that a worker has taken are left out; the next round queues what is then due.
        """
        with self._lock:
            self._urgent = self._kept(self._urgent, urgent)
            self._waiting = self._kept(self._waiting, others)

    def take(self) -> Visit | None:
        """Take the next visit, reserved until `give_back`; None if no visit can be taken."""
        with self._lock:
            for line in (self._urgent, self._waiting):
                for name in line:
                    if name not in self._taken:
                        self._taken.add(name)
                        return line.pop(name)
            return None

    def give_back(self, visit: Visit) -> None:
        """Release the table of *visit*."""
        with self._lock:
            self._taken.discard(visit.table.name)

    def wanted(self) -> range:
        """Return the numbers of the workers that have something to do."""
        with self._lock:
            tables = {*self._taken, *self._urgent, *self._waiting}
            return range(min(self.workers, len(tables)))

    def worker(self, number: int) -> str:
        """Return the name of a worker, for threads and messages."""
        return f"{self.name} ({number + 1})" if number else self.name

    def _kept(self, line: Mapping[str, Visit], visits: Sequence[Visit]) -> dict[str, Visit]:
        new = {v.table.name: v for v in visits if v.table.name not in self._taken}
        return {name: new.pop(name) for name in line if name in new} | new


@dataclass(eq=False)
class Probing:
    """Runs each probe on each of its tables at its own interval, tier 0 first.

    A probe with a suspicion runs again in the next round, even after a verdict.
    A probe that had nothing new to rule on is asked again in the next round. If its last verdict
    was that it could not run, a new verdict says that it can, so the old reason does not remain.
    A mirror whose merges are ``paused`` is not probed, because it does not change.
    ``workers_of`` returns how many tables of the given sources are probed in parallel.
    ``open_world`` is called with the sources of the queue and the number of the worker. Workers
    share nothing that would make them wait.
    """

    plans: tuple[CheckPlan, ...]
    roster: TableRegistry
    history: Verdicts
    recorder: VerdictRecorder
    open_world: Callable[[tuple[str, ...], int], World]
    clock: Callable[[], datetime]
    run: Callable[[], str] = str
    paused: Callable[[], Collection[str]] = tuple
    workers_of: Callable[[tuple[str, ...]], int] = lambda _: 1
    elapsed: Callable[[], float] = time.monotonic
    lines: DeadlinePool[None] = field(init=False)
    _queues: dict[tuple[str, ...], ProbeQueue] = field(default_factory=dict)
    _ran: dict[tuple[str, str], datetime] = field(default_factory=dict)
    _suspicions: set[tuple[str, str]] = field(default_factory=set)
    _failed: dict[str, Exception] = field(default_factory=dict)
    _reported: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    _waits: dict[tuple[str, str], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Create the thread pool, without running anything."""
        self.lines = DeadlinePool(self.clock, timedelta())

    def round(self) -> None:
        """Queue the due checks and start to run them; probes that still run continue.

        Each verdict is recorded at once, so a slow probe does not delay others.
        """
        due = self._due_by_sources()
        for sources in due.keys() - self._queues.keys():
            name = f"probes of {' and '.join(sources)}"
            self._queues[sources] = ProbeQueue(name, self.workers_of(sources))
        for sources, queue in self._queues.items():
            queue.line_up(*self._visits(due.get(sources, ())))
        self.lines.ask(
            {
                queue.worker(number): partial(self._work, queue, number)
                for queue in self._queues.values()
                for number in queue.wanted()
            }
        )
        for sources, items in due.items():
            self._tell_hanging(self._queues[sources], items)
        for error in tuple(self._failed.values()):
            raise error

    def waits(self, table: str) -> Mapping[str, str]:
        """Return, by check, why its last run on *table* had no verdict; absent if it had one."""
        known = ((plan.name, self._waits.get((plan.name, table))) for plan in self.plans)
        return {check: why for check, why in known if why is not None}

    def _due_by_sources(self) -> dict[tuple[str, ...], list[Due]]:
        found: dict[tuple[str, ...], list[Due]] = {}
        for one in self._due():
            found.setdefault(one[2].sources, []).append(one)
        return found

    def _visits(self, due: Sequence[Due]) -> tuple[list[Visit], list[Visit]]:
        """Return visits with suspicious checks, and visits with the others; one each per table."""
        lines: tuple[dict[str, Visit], dict[str, Visit]] = {}, {}
        for plan, probe, table in due:
            line = lines[(plan.name, table.name) not in self._suspicions]
            before = line[table.name].checks if table.name in line else ()
            line[table.name] = Visit(table, (*before, (plan, probe)))
        return [*lines[0].values()], [*lines[1].values()]

    def _work(self, queue: ProbeQueue, number: int) -> None:
        """Run queued visits, one after the other; the next round raises an error of this one."""
        worker = queue.worker(number)
        self._failed.pop(worker, None)
        try:
            while (visit := queue.take()) is not None:
                try:
                    self._run(queue, number, visit)
                finally:
                    queue.at_work.pop(number, None)
                    queue.give_back(visit)
        except Exception as error:
            self._failed[worker] = error
            raise

    def _run(self, queue: ProbeQueue, number: int, visit: Visit) -> None:
        table, world = visit.table, self.open_world(visit.table.sources, number)
        for plan, probe in visit.checks:
            started, key = self.clock(), (plan.name, table.name)
            queue.at_work[number] = ProbeAtWork(
                plan.name, table.name, started, self.elapsed(), probe.limit
            )
            past = self._past(plan, probe, table)
            world.begin(plan.name)
            check = Check(plan.name, probe, table)
            verdict = run_probe(check, world, past, self.run(), self.elapsed)
            (self._suspicions.add if verdict.suspicious else self._suspicions.discard)(key)
            if isinstance(verdict, NotYet):
                self._waits[key] = verdict.why
                log.debug("nothing new", check=plan.name, table=table.name, why=verdict.why)
                self._able_again(plan.name, table.name, verdict.why)
                if verdict.rests:
                    self._ran[key] = started
                continue
            self._waits.pop(key, None)
            if not verdict.suspicious:
                self._ran[key] = started
            self._tell(verdict, whole=looks_back(probe) > 0)

    def _tell_hanging(self, queue: ProbeQueue, due: Sequence[Due]) -> None:
        """Record UNKNOWN for each check that waits for a hanging probe, naming that probe.

        It is repeated every minute, because an incident advances only by verdicts.
        """
        now, seconds = self.clock(), self.elapsed()
        hanging = [
            one
            for one in tuple(queue.at_work.values())
            if seconds - one.began > one.limit.total_seconds()
        ]
        if not hanging:
            return
        by_table = {one.table: one for one in hanging}
        stuck = len(hanging) >= queue.workers
        verdicts = list[Verdict]()
        for plan, _, table in due:
            one, key = (
                by_table.get(table.name, hanging[0] if stuck else None),
                (plan.name, table.name),
            )
            if one is None:
                continue
            began, reported = self._reported.get(key, (None, 0.0))
            if began == one.began and seconds - reported < REPEATED.total_seconds():
                continue
            self._reported[key] = one.began, seconds
            what = f"check {one.check} of {one.table} has not ended since {one.since:%H:%M:%S} UTC"
            whose = queue.name if stuck else f"checks of {one.table}"
            ruling = Ruling(Outcome.UNKNOWN, f"{what}; {whose} wait for it", UNABLE[0])
            verdicts.append(Verdict(table.name, plan.name, ruling, now, cause=JOB, run=self.run()))
        if verdicts:
            self.recorder.tell(verdicts, kept=self.recorder.changed(verdicts))

    def _past(self, plan: CheckPlan, probe: Any, table: Table) -> list[float]:
        """Return earlier values for a probe that looks back, which few probes do."""
        if not (many := looks_back(probe)):
            return []
        return [value for _, value in self.history.history(table.name, plan.name, many)]

    def _able_again(self, check: str, table: str, why: str) -> None:
        newest = self.recorder.rulings.newest(table, check)
        if newest is not None and newest.ruling.code in UNABLE:
            ruling = Ruling(Outcome.UNKNOWN, why, "not_yet")
            self._tell(Verdict(table, check, ruling, self.clock(), run=self.run()))

    def _tell(self, verdict: Verdict, *, whole: bool = False) -> None:
        """Record *verdict*; store it if it is news, or has a value and *whole* history is kept."""
        kept = whole and verdict.value is not None
        self.recorder.tell([verdict], kept=[verdict] if kept else self.recorder.changed([verdict]))

    def _due(self) -> Iterator[Due]:
        tables = sorted(self.roster.tables(), key=lambda table: (table.tier, table.name))
        paused = self.paused()
        for table in tables:
            if table.name in paused:
                continue
            for plan in self.plans:
                probe = plan.probe_for(table.name)
                if probe is not None and self._old(plan, table):
                    yield plan, probe, table

    def _old(self, plan: CheckPlan, table: Table) -> bool:
        ran = self._ran.get((plan.name, table.name))
        return ran is None or has_passed(
            ran, plan.every - timedelta(milliseconds=500), self.clock()
        )


@dataclass(eq=False)
class ProbeWorld:
    """Implements :class:`checks.world.World` for one table and round: all probes see one version.

    ``names`` are the sources of the probe queue, ``worker`` is the number of the worker, and
    ``plans`` are the plans of all probes. ``waived`` returns all ids that were ever waived.
    """

    look: Sampling
    sources: Mapping[str, BudgetedQueries]
    lake: LakeClient
    names: tuple[str, ...]
    fences: FenceBook
    memory: CheckMemory
    clock_now: Callable[[], datetime]
    now: datetime
    zone: ZoneInfo
    orderings: Mapping[str, SourceOrdering]
    looks: LargeLooks
    collectors: Mapping[str, Collector] = field(default_factory=dict)
    worker: int = 0
    dated_columns: Callable[[Shard], tuple[str, ...] | Missing] = lambda _: NOT_ASKED
    plans: Sequence[CheckPlan] = ()
    waived: Callable[[], frozenset[str]] = frozenset
    _mirrors: dict[str, MirrorSide] = field(default_factory=dict)
    _log: LogReader | None = None

    def begin(self, check: str) -> None:
        """Attribute the queries of sources from now on to *check*."""
        for one in self.sources.values():
            one.check = check

    def source(self, name: str) -> TableQueries:
        """Return the source *name*."""
        return self.sources[name]

    def allowance(self, source: str) -> Allowance:
        """Return what the budget of *source* allows now."""
        return self.sources[source].budget.allowance()

    def collected(self, source: str) -> CaptureScope:
        """Return what the source's collector sends; it is asked once per look, for all tables."""
        found = self.look.once(("collected", source), partial(_scope, self.collectors[source]))
        if isinstance(found, Missing):
            raise UnreachableError(f"collector:{source}: {found.why}")
        return found

    def dated(self, shard: Shard) -> tuple[str, ...] | Missing:
        """Return the shard's date columns from the last answer of its source."""
        return self.dated_columns(shard)

    def mirror(self, table: Table) -> MirrorSide:
        """Return the mirror at the version that was newest when it was first requested."""
        if table.name not in self._mirrors:
            found = self._mirrors[table.name] = self.lake.lake.mirror(table)
            if self._log is not None and self._log.batch < found.batch:
                self._log = None  # the log must have all changes that the mirror has
        return self._mirrors[table.name]

    @property
    def trails(self) -> MutableMapping[str, MirrorTrail]:
        """Return what the probes of this process have read of mirrors' logs."""
        return self.lake.trails

    def mirror_state(self, table: Table, since: MirrorState | None) -> MirrorState:
        """Return the state of the pinned mirror; if none is pinned, of the newest one.

        Then that of the look is used if it may continue *since*, because it costs nothing.
        """
        pinned, sample = self._mirrors.get(table.name), self.look.mirrors.get(table.name)
        if pinned is None and since is not None and isinstance(sample, Sample):
            seen = _state_at(sample.value)
            if seen.may_continue(since):
                return seen
        try:
            found = self.lake.lake.applied(table.name)
        except HeldError as error:
            raise UnreachableError(str(error)) from error
        if found is None:
            raise ProofError(f"{table.name} has no mirror yet; wait for its first merge")
        if pinned is None or (found.mirror, found.version) == (pinned.id, pinned.version):
            return _state_at(found)
        commits = self.mirror_commits(table, pinned.version - 1, pinned.version)
        entry = commits[-1].entry if commits else ""
        return MirrorState(pinned.id, pinned.version, pinned.batch, entry)

    def mirror_commits(self, table: Table, since: int, until: int) -> Sequence[Commit]:
        """Return the commits of the mirror up to version *until*, as its log has them now."""
        try:
            return self.lake.lake.history(table.name, since, until)
        except HeldError as error:
            raise UnreachableError(str(error)) from error

    def log(self) -> LogReader:
        """Return the change log, pinned when first requested; never older than the mirrors."""
        if self._log is None:
            self._log = self.lake.changes(self.names, self.worker, self.incarnation)
        return self._log

    def large_looks(self) -> LargeLooks:
        """Return the requests that Spark answers."""
        return self.looks

    def end_keys(self, table: Table) -> tuple[LogKey, ...]:
        """Return the row key of the last data message of each partition of the table's topics."""
        return self.lake.end_keys(self.names, table, self.worker)

    def schema(self, shard: Shard) -> TableSchema | None:
        """Return the shard's newest landed schema, from the log of this round."""
        return self.lake.schemas(self.names, self.worker).newest(shard, self.log())

    def clock(self) -> datetime:
        """Return the current time."""
        return self.clock_now()

    def fence_after(self, source: str, instant: datetime) -> Fence | None:
        """Return the first heartbeat at or after *instant*; None if it is not written yet."""
        return first_fence(self.fences.of(source), instant)

    def reached(self, table: Table, fences: Sequence[Fence]) -> bool:
        """Whether a batch that covers all *fences* is applied to the pinned mirror.

        False while the first base of a shard is being read, or the newest base is not merged.
        """
        covering = self._covering(fences)
        if not covering:  # do not open the mirror if it does not matter: there may be many
            return False
        applied = self.mirror(table).batch
        return not self._awaits_base(table, applied) and any(
            step.holds(table.name, applied) for step in covering
        )

    def held_until(self, table: Table) -> datetime | None:
        """Return the time of the newest heartbeats whose batch is applied to the pinned mirror."""
        applied = self.mirror(table).batch
        if self._awaits_base(table, applied):
            return None
        for step in reversed(self.look.steps):
            fences = [step.passed.get(source) for source in table.sources]
            known = [fence.at for fence in fences if fence is not None]
            if step.holds(table.name, applied) and len(known) == len(fences):
                return min(known)
        return None

    def losses(self, table: Table) -> Mapping[str, frozenset[Shard]]:
        """Return the table's open and waived losses at the look of this round, with their shards.

        Raises:
            UnreachableError: the look has no checkpoint. Without losses, known ones would be new to
                the next look.
        """
        return self.look.losses(table, self.waived())

    def loses_changes(self, table: Table) -> bool:
        """Return whether more changes of *table* may be lost, at the look of this round."""
        return self.look.loses_changes(table)

    def _covering(self, fences: Sequence[Fence]) -> Sequence[LandedBatch]:
        """Return the steps that have passed all *fences*; computed once per look for all tables."""

        def covering() -> tuple[LandedBatch, ...]:
            steps = self.look.steps
            return tuple(one for one in steps if all(_past(one.passed, f) for f in fences))

        asked = tuple((one.source, one.number, one.head.identity) for one in fences)
        return self.look.once(("passed", asked), covering)

    def _awaits_base(self, table: Table, applied: int) -> bool:
        """Whether a newest base is not merged, or the first base of a shard is being read."""
        if isinstance(self.look.checkpoint, Missing):
            return False
        checkpoint = self.look.checkpoint.value
        bare = (shard for shard in table.shards if shard not in checkpoint.bases)
        read = (checkpoint.backfills.get(shard) for shard in bare)
        first = any(r and r.done is None and r.origin is Origin.SNAPSHOT for r in read)
        return first or any(checkpoint.complete.get(shard, -1) > applied for shard in table.shards)

    def ordering(self, table: Table) -> Ordering:
        """Return the weakest ordering that the formats of the table's sources give."""
        return weakest_ordering(table, self.orderings)

    def landed_batch(self) -> int:
        """Return the newest batch of the lane when the round began; -1 before the first."""
        checkpoint = self.look.checkpoint
        return -1 if isinstance(checkpoint, Missing) else checkpoint.value.batch

    def bases(self, table: Table) -> Mapping[str, ShardBase]:
        """Return bases that were complete when the round began and that the mirror has merged."""
        if isinstance(self.look.checkpoint, Missing):
            return NO_BASES
        checkpoint, applied = self.look.checkpoint.value, self.mirror(table).batch
        return {
            str(shard): ShardBase(checkpoint.bases[shard], checkpoint.based[shard])
            for shard in table.shards
            if shard in checkpoint.bases and shard in checkpoint.based
            if checkpoint.complete.get(shard, applied + 1) <= applied
        }

    def runs(self, table: Table, check: str) -> bool:
        """Whether the config enables *check* for *table*."""
        return is_planned(self.plans, table.name, check)

    def recall(
        self, table: Table, check: str, *, lasting: bool = False
    ) -> Mapping[str, Any] | None:
        """Return the memory of *check* if the change log still has its batches, or if *lasting*.

        Raises:
            UnreachableError: Sluice's clock went back.  A reading would seem to be older than
                heartbeats that were written before it.
        """
        self._require_clock()
        found = self.memory.recall(table.name, check)
        if found is None or "kept" not in found:
            return None
        try:
            found = self._redated(table.name, check, found)
            kept = dict(found["kept"])
            return kept if lasting or self._is_log_of(found["batch"], found["life"]) else None
        except (LookupError, OverflowError, TypeError, ValueError) as error:
            raise unreadable_memory(table.name, check) from error

    def remember(self, table: Table, check: str, memory: Mapping[str, Any]) -> None:
        """Store *memory* for the next round."""
        batch, at = self.landed_batch(), self.clock().isoformat()
        stamp = {"kept": memory, "batch": batch, "life": self.incarnation(batch), "at": at}
        self.memory.remember(table.name, check, stamp, self.now)

    def _redated(self, table: str, check: str, stamp: Mapping[str, Any]) -> Mapping[str, Any]:
        """Replace times that are in the future, because Sluice's clock was ahead, by now."""
        now, at = self.clock(), stamp.get("at")
        until = now if at is None else datetime.fromisoformat(at)
        if until <= now:
            return stamp
        known = {**stamp, "kept": redate(stamp["kept"], until, now, CLAIMS), "at": now.isoformat()}
        self.memory.remember(table, check, known, self.now)
        return known

    def _require_clock(self) -> None:
        now = self.clock()
        for name in self.names:
            if is_behind(now, fences := self.fences.of(name)):
                behind = (fences[-1].at - now).total_seconds()
                raise UnreachableError(
                    f"clock:{name}: Sluice's clock is {behind:.1f} s behind a heartbeat of {name}; "
                    "set the clocks of both right"
                )

    def _is_log_of(self, batch: int, life: int | None) -> bool:
        if isinstance(self.look.checkpoint, Missing) or batch < 0:
            return True
        now = self.incarnation(batch)
        return batch <= self.landed_batch() and (None in (life, now) or life == now)

    def incarnation(self, batch: int) -> int | None:
        """Return the incarnation of the change log that landed *batch*; None if not known."""
        checkpoint = self.look.checkpoint
        if isinstance(checkpoint, Missing):
            return None
        incarnations = checkpoint.value.incarnations
        return self.look.once("lives", lambda: Incarnations.of(incarnations)).at(batch)


def _scope(collector: Collector) -> CaptureScope | Missing:
    try:
        return collector.captures()
    except UnreachableError as error:
        return Missing(str(error))


def _state_at(position: MirrorPosition) -> MirrorState:
    return MirrorState(position.mirror, position.version, position.batch, position.entry)


def _past(passed: Mapping[str, Fence], fence: Fence) -> bool:
    found = passed.get(fence.source)
    if found is None or found.head.identity != fence.head.identity:
        return False
    return found.number >= fence.number


READING = timedelta(days=1)  # a client that got READY has read its tables within this time
MOST = 10_000


def certified_versions(
    certificates: Certificates, clock: Callable[[], datetime]
) -> Mapping[str, int]:
    """Return, by table, the oldest version in a valid certificate of the last day."""
    since, oldest = clock() - READING, dict[str, int]()
    for one in certificates.list(stage=Stage.MIRROR, limit=MOST):
        version = one.evidence.version
        if one.revoked is None and one.issued >= since and version is not None:
            oldest[one.table] = min(version, oldest.get(one.table, version))
    return oldest
