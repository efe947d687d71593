"""Samples heartbeats, collectors, change log and mirrors in one look, upstream first.

A part that does not answer is `Missing` with its error, and a look itself never fails. Sources are
asked in parallel, and so are mirrors, so that none waits for another.  The monitoring round and all
gate decisions share the newest look, and the batches that all looks so far have seen.
"""

import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from monitor.observe.foreign_writes import ForeignWrites
from monitor.observe.heartbeats import FenceBook
from monitor.observe.losses import find_losses, loses_changes, spell_topics
from monitor.observe.tables import TableRegistry
from pipeline.apply.foreign_commits import Intrusion
from pipeline.build import every_topic
from pipeline.checkpoint import Checkpoint, is_rolled_back
from pipeline.collectors.collector import Collector, CollectorState
from pipeline.collectors.mirrormaker import Mirrored, behind_mirror
from pipeline.copies.copy import CopyPosition
from pipeline.errors import HeldError, SluiceError, UnreachableError
from pipeline.lags.samples import (
    LandedBatch,
    MirrorPosition,
    Sample,
    Samples,
    SourceSamples,
    WorkedOut,
    drop_disproved,
    extend_batches,
    to_landed_batch,
)
from pipeline.model import Acknowledged, Fence, Missing, Shard, Table
from pipeline.parallel import Answer, DeadlinePool
from pipeline.settings import SourceSettings
from pipeline.sources.positions import has_reached
from pipeline.tables.lake import Lake

FEWEST = 500  # fewest unchanged mirrors that a round reads, if there are as many
ROUNDS = 4  # number of rounds in which all unchanged mirrors are read
NOT_LANDED = "nothing has landed yet"
NO_MIRROR = "there is no mirror"
NOT_ASKED = Missing("the mirror was not asked: too many others do not answer")
SILENT_MIRRORS = 4  # most mirrors that may hang at a time; further ones are not asked
T = TypeVar("T")
AskCopy = Callable[[], Mapping[str, CopyPosition | Missing]]
"""Returns the position of each table of a copy; Missing if it is not compared yet."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """The samples of one look; ``at`` is when it began, and ``number`` ascends with each look.

    ``copies`` has the positions of the tables of each copy.
    ``troubles`` has the collectors that do not run, and ``intrusions`` the mirrors with foreign
    writes. ``unreadable`` has mirrors that do not exist or cannot be read, each with the reason.
    """

    at: datetime
    sources: Mapping[str, SourceSamples]
    checkpoint: Sample[Checkpoint] | Missing
    mirrors: Mapping[str, Sample[MirrorPosition] | Missing]
    troubles: Mapping[str, CollectorState] = field(default_factory=dict)
    intrusions: Mapping[str, Intrusion] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[LandedBatch, ...] = ()
    copies: Mapping[str, Sample[Mapping[str, CopyPosition | Missing]] | Missing] = field(
        default_factory=dict
    )
    number: int = 0
    worked: WorkedOut = field(default_factory=WorkedOut, compare=False, repr=False)

    @classmethod
    def nothing(cls) -> "Sampling":
        """Return the sampling before the first look, in which everything is missing."""
        return cls(datetime.fromtimestamp(0, UTC), {}, Missing("nothing was sampled yet"), {})

    def samples(self, table: Table) -> Samples:
        """Return the samples that concern *table*."""
        nothing = Missing("the mirror was not sampled")
        mirror = self.mirrors.get(table.name, nothing)
        return Samples(self.sources, self.checkpoint, mirror, self.steps, self.worked)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the result of *make*, computed once per look; it must not depend on mirrors."""
        mirror = Missing("it is the source of no mirror")
        return Samples(self.sources, self.checkpoint, mirror, self.steps, self.worked).once(
            key, make
        )

    def losses(self, table: Table, waived: Iterable[str]) -> Mapping[str, frozenset[Shard]]:
        """Return the open and *waived* losses of *table*, each with the shards it may concern.

        Raises:
            UnreachableError: there is no checkpoint.
        """
        if isinstance(self.checkpoint, Missing):
            raise UnreachableError(self.checkpoint.why)
        checkpoint = self.checkpoint.value
        spelled = partial(self.once, "topics", partial(spell_topics, checkpoint.shards))
        return find_losses(table, checkpoint, waived, spelled)

    def loses_changes(self, table: Table) -> bool:
        """Return whether the collector may still leave out changes of *table*.

        Raises:
            UnreachableError: there is no checkpoint.
        """
        if isinstance(self.checkpoint, Missing):
            raise UnreachableError(self.checkpoint.why)
        return loses_changes(table, self.checkpoint.value)


@dataclass(eq=False)
class Sampler:
    """Takes samples; ``budget`` is how long a sample may be used.

    ``heartbeat_budget`` is the same for fences, so it limits the age of the newest heartbeat.
    ``synced`` returns, for sources with a SYNC hop, the newest heartbeat number that has passed it.
    ``copies`` returns the positions of each copy.  ``upstreams`` runs queries in parallel, and
    ``looks`` reads one mirror at a time.
    """

    collectors: Mapping[str, Collector]
    lake: Lake
    fences: FenceBook
    clock: Callable[[], datetime]
    budget: timedelta
    heartbeat_budget: timedelta
    foreign: ForeignWrites
    synced: Mapping[str, Callable[[], int | Missing]] = field(default_factory=dict)
    copies: Mapping[str, AskCopy] = field(default_factory=dict)
    upstreams: DeadlinePool[Any] = field(init=False)
    looks: DeadlinePool[MirrorPosition | Missing] = field(init=False)
    _unreadable: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Create the thread pools, without connecting."""
        self.upstreams = DeadlinePool(self.clock, self.budget)
        self.looks = DeadlinePool(self.clock, self.budget, at_once=1, most=SILENT_MIRRORS)

    def upstream(self) -> Sampling:
        """Sample all but mirrors: fences, acknowledged and synced positions, checkpoint, copies."""
        at = self.clock()
        fences = {
            name: Sample(self.fences.of(name), self.clock(), self.heartbeat_budget)
            for name in self.collectors
        }
        answers = self._ask_collectors()
        return Sampling(
            at=at,
            sources={name: SourceSamples(fences[name], *answers[name][:2]) for name in fences},
            checkpoint=self.checkpoint(),
            mirrors={},
            copies=self._copies(),
            troubles={name: one for name, (*_, one) in answers.items() if not one.running},
        )

    def checkpoint(self) -> Sample[Checkpoint] | Missing:
        """Sample the landing checkpoint."""
        return self._sample(
            self.upstreams.ask({"the change log": self._checkpoint})["the change log"]
        )

    def _copies(self) -> Mapping[str, Sample[Mapping[str, CopyPosition | Missing]] | Missing]:
        """Sample the positions of all copies; a copy that hangs delays only the first look."""
        whose = {name: f"copy {name}" for name in self.copies}
        said = self.upstreams.ask({whose[name]: ask for name, ask in self.copies.items()})
        return {name: self._sample(said[one]) for name, one in whose.items()}

    def mirrors(self, tables: Iterable[Table]) -> dict[str, Sample[MirrorPosition] | Missing]:
        """Sample the mirrors of *tables*; ``NOT_ASKED`` if too many others do not answer."""
        names = {table.name: f"mirror {table.name}" for table in tables}
        said = self.looks.ask({one: partial(self._mirror, name) for name, one in names.items()})
        return {name: self._sample(said.get(one, NOT_ASKED)) for name, one in names.items()}

    def with_mirrors(
        self, look: Sampling, mirrors: Mapping[str, Sample[MirrorPosition] | Missing]
    ) -> Sampling:
        """Return *look* with *mirrors*, all known foreign writes, and all unreadable mirrors."""
        found, unreadable = self.foreign.found(), dict(self._unreadable)
        return replace(look, mirrors=mirrors, intrusions=found, unreadable=unreadable)

    def _ask_collectors(self) -> dict[str, tuple[Any, Any, CollectorState]]:
        who = {name: f"the collector of {name}" for name in self.collectors}
        how = {name: f"the mirror of the topics of {name}" for name in self.synced}
        asked: dict[str, Callable[[], Any]] = {
            **{who[name]: partial(_collected, one) for name, one in self.collectors.items()},
            **{how[name]: ask for name, ask in self.synced.items()},
        }
        said = self.upstreams.ask(asked)
        found = dict[str, tuple[Any, Any, CollectorState]]()
        for name, one in who.items():
            carried = self._sample(said[how[name]]) if name in how else None
            answer = said[one]
            if isinstance(answer, Missing):
                found[name] = answer, carried, CollectorState("unreachable", answer.why)
            else:
                come, state = answer.value
                found[name] = self._sample(replace(answer, value=come)), carried, state
        return found

    def _sample(self, said: Answer[T | Missing] | Missing) -> Sample[T] | Missing:
        """Return a sample dated by the start of its query, so its age is never underestimated."""
        if isinstance(said, Missing):
            return said
        if isinstance(said.value, Missing):
            return said.value
        return Sample(said.value, said.asked, self.budget)

    def _checkpoint(self) -> Checkpoint | Missing:
        return self.lake.checkpoint() or Missing(NOT_LANDED)

    def _mirror(self, table: str) -> MirrorPosition | Missing:
        try:
            found = self.lake.applied(table)
        except HeldError as error:
            self._unreadable[table] = str(error)
            raise
        if found is None:
            self._unreadable[table] = NO_MIRROR
            return Missing(f"{NO_MIRROR} yet")
        self._unreadable.pop(table, None)
        return self.foreign.inspect(table, found, self.clock())


@dataclass(eq=False)
class Watcher:
    """Holds the newest look, and takes a new one if it is older than the caller accepts.

    Callers at the same time share one look, so a thousand requests do not cause a thousand looks.
    The age budgets of the samples decide whether an answer may rest on them.
    A gate request reads the mirrors of its tables. A round reads all mirrors that lag behind the
    landed batches, and the unchanged ones in rotation, within a few rounds.
    """

    sampler: Sampler
    roster: TableRegistry
    clock: Callable[[], datetime]
    _look: Sampling = field(default_factory=Sampling.nothing)
    _checkpoint: Checkpoint | None = None
    _steps: tuple[LandedBatch, ...] = ()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def look(self, patience: timedelta, tables: Collection[str] | None = None) -> Sampling:
        """Return a look that began at most *patience* ago, or take one now.

        If *tables* are named, only their mirrors are as new as that.
        """
        with self._lock:
            taken = not timedelta() <= self.clock() - self._look.at <= patience
            if taken:
                self._look = self._take()
            due = self._due(taken=taken) if tables is None else self._old(tables, patience)
        found = self.sampler.mirrors(due) if due else {}  # without the lock: only the caller waits
        with self._lock:
            if found:
                self._look = self._merged(found)
            if _outrun(self._look.checkpoint, found):
                self._look = self._marked(replace(self._look, checkpoint=self.sampler.checkpoint()))
            return self._look

    def _merged(self, found: Mapping[str, Sample[MirrorPosition] | Missing]) -> Sampling:
        """Return the newest look with the samples *found*, unless it has newer ones."""
        known, now = dict(self._look.mirrors), self.clock()
        for name, one in found.items():
            before = known.get(name)
            if one is NOT_ASKED:
                known.setdefault(name, one)  # an earlier sample is used until it is too old
            elif (
                isinstance(one, Missing)
                or not isinstance(before, Sample)
                or not one.at < before.at <= now
            ):
                known[name] = one
        look = self.sampler.with_mirrors(self._look, known)
        return replace(look, number=look.number + 1)

    def _old(self, tables: Collection[str], patience: timedelta) -> list[Table]:
        """Return those of *tables* that are known and whose samples are older than *patience*."""
        now = self.clock()
        named = [table for name in tables if (table := self.roster.table(name)) is not None]
        samples = self._look.mirrors
        return [t for t in named if not _younger(samples.get(t.name), now, patience)]

    def _due(self, *, taken: bool) -> list[Table]:
        """Return mirrors that may have changed, and those of the others read longest ago."""
        tables, samples, checkpoint = (
            self.roster.tables(),
            self._look.mirrors,
            self._look.checkpoint,
        )
        if not taken:
            return [table for table in tables if table.name not in samples]
        due, resting = list[Table](), list[tuple[datetime, Table]]()
        landed = {} if isinstance(checkpoint, Missing) else checkpoint.value.tables
        for table in tables:
            sample = samples.get(table.name)
            if not isinstance(sample, Sample) or sample.value.batch < landed.get(table.name, -1):
                due.append(table)
            else:
                resting.append((sample.at, table))
        resting.sort(key=lambda one: (one[0], one[1].name))
        some, now = max(FEWEST, len(tables) // ROUNDS + 1), self.clock()
        fresh = self.sampler.budget / 3
        return due + [
            table
            for number, (at, table) in enumerate(resting)
            if number < some or not timedelta() <= now - at < fresh
        ]

    def _take(self) -> Sampling:
        number, named = self._look.number + 1, {table.name for table in self.roster.tables()}
        mirrors = {name: one for name, one in self._look.mirrors.items() if name in named}
        look = self.sampler.with_mirrors(self.sampler.upstream(), mirrors)
        return self._marked(replace(look, number=number))

    def _marked(self, look: Sampling) -> Sampling:
        """Return *look* with the steps up to its checkpoint; also updates the table registry."""
        if isinstance(look.checkpoint, Missing):
            return replace(look, steps=self._steps)
        checkpoint, known = look.checkpoint.value, self._checkpoint
        if known is not None and is_rolled_back(known, checkpoint):
            self._steps = ()  # the log has lost these batches, and others may have their numbers
        self._checkpoint = checkpoint
        fences = {name: one.known() for name, one in look.sources.items()}
        steps = extend_batches(self._steps, to_landed_batch(checkpoint, fences))
        self._steps = drop_disproved(steps, self.sampler.fences.fallen())
        self.roster.update(checkpoint)
        return replace(look, steps=self._steps)


def _collected(one: Collector) -> tuple[Acknowledged | Missing, CollectorState]:
    """Return the acknowledged position and the state of a collector; one of them may fail."""
    come: Acknowledged | Missing
    try:
        come = one.acknowledged()
    except SluiceError as error:
        come = Missing(str(error))
    try:
        return come, one.state()
    except SluiceError as error:
        return come, CollectorState("unreachable", str(error))


def _outrun(
    checkpoint: Sample[Checkpoint] | Missing,
    mirrors: Mapping[str, Sample[MirrorPosition] | Missing],
) -> bool:
    """Whether a mirror has batches above *checkpoint*, so that the checkpoint must be read again.

    Otherwise a base that such a batch began would not be known.
    """
    if isinstance(checkpoint, Missing):
        return False
    known = (one.value.batch for one in mirrors.values() if isinstance(one, Sample))
    return any(batch > checkpoint.value.batch for batch in known)


def _younger(sample: Sample[Any] | Missing | None, now: datetime, age: timedelta) -> bool:
    return isinstance(sample, Sample) and timedelta() <= now - sample.at <= age


def sync_positions(
    sources: Iterable[SourceSettings],
    collectors: Mapping[str, Collector],
    fences: FenceBook,
) -> dict[str, Callable[[], int | Missing]]:
    """Return, by source with a SYNC hop, a function for the newest heartbeat that passed it."""
    pairs = (
        (source.name, behind_mirror(source, collectors[source.name], every_topic(source)))
        for source in sources
    )
    return {name: partial(_number, one, fences, name) for name, one in pairs if one is not None}


def newest_below(fences: tuple[Fence, ...], arrived: Acknowledged) -> Fence | None:
    """Return the newest of *fences* at or below *arrived*, of the current server; else None.

    *fences* ascend.
    """
    for fence in reversed(fences):
        same = fence.head.identity == fences[-1].head.identity
        if same and has_reached(arrived.position, fence.head.position):
            return fence
    return None


def _number(mirrored: Mirrored, fences: FenceBook, name: str) -> int | Missing:
    arrived = mirrored.acknowledged()
    if isinstance(arrived, Missing):
        return arrived
    if arrived.snapshot:
        return Missing("the collector is reading its initial snapshot")
    fence = newest_below(fences.of(name), arrived)
    return fence.number if fence else Missing("no heartbeat has come through the mirror yet")
