"""What do heartbeats, collectors, change log and mirrors say now?  One look, upstream first.

A part that does not answer is `Missing` with its error; a look itself never fails, and sources, and
mirrors, are asked side by side, so that none waits for another.  The watching round and every gate
decision share the newest look, and the batches that all looks so far have seen.
"""

import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from monitor.observe.foreign_writes import ForeignWrites
from monitor.observe.heartbeats import FenceBook
from monitor.observe.tables import TableRegistry
from pipeline.apply.foreign_commits import Intrusion
from pipeline.build import every_topic
from pipeline.checkpoint import Checkpoint, is_rolled_back
from pipeline.collectors.collector import Collector, CollectorState
from pipeline.collectors.mirrormaker import Mirrored, behind_mirror
from pipeline.copies.copy import CopyPosition
from pipeline.errors import HeldError, SluiceError
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
from pipeline.model import Acknowledged, Fence, Missing, Table
from pipeline.parallel import Answer, DeadlinePool
from pipeline.settings import SourceSettings
from pipeline.sources.positions import has_reached
from pipeline.tables.lake import Lake

FEWEST = 500  # mirrors at rest that a round looks at
ROUNDS = 4  # in which all of them are looked at
NOT_LANDED = "nothing has landed yet"
NO_MIRROR = "there is no mirror"
NOT_ASKED = Missing("the mirror was not asked: too many others do not answer")
SILENT_MIRRORS = 4  # that hang at a time; more are not asked
T = TypeVar("T")
AskCopy = Callable[[], Mapping[str, CopyPosition | Missing]]
"""Asks a copy how far each of its tables is; Missing where that is not compared yet."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """All that was sampled at once; ``at`` is when it began, ``number`` rises from look to look.

    ``copies`` are what each copy says of its tables.
    ``troubles`` holds collectors that do not run, ``intrusions`` mirrors others have written to,
    ``unreadable`` mirrors that were looked at and are not there or cannot be read, each with why.
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
        """What is known before the first look: nothing, since ever."""
        return cls(datetime.fromtimestamp(0, UTC), {}, Missing("nothing was sampled yet"), {})

    def samples(self, table: Table) -> Samples:
        """The part that concerns *table*."""
        nothing = Missing("the mirror was not sampled")
        mirror = self.mirrors.get(table.name, nothing)
        return Samples(self.sources, self.checkpoint, mirror, self.steps, self.worked)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What *make* gives, which must not rest on mirrors: once for all who have this look."""
        mirror = Missing("it is the source of no mirror")
        return Samples(self.sources, self.checkpoint, mirror, self.steps, self.worked).once(
            key, make
        )


@dataclass(eq=False)
class Sampler:
    """Asks everyone once; ``budget`` is how long an answer may be used.

    ``heartbeat_budget`` is that of the fences, and so how old the newest heartbeat may be.
    ``synced`` asks for those of sources with a SYNC hop: the number of the newest that has passed
    it; ``copies`` asks each copy how far it is.  ``upstreams`` puts the questions to all of them at
    once, ``looks`` to one mirror at a time.
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
        """Connect to nothing yet."""
        self.upstreams = DeadlinePool(self.clock, self.budget)
        self.looks = DeadlinePool(self.clock, self.budget, at_once=1, most=SILENT_MIRRORS)

    def upstream(self) -> Sampling:
        """Sample what all tables rest on: fences, acknowledged, synced, checkpoint; no mirror."""
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
        """How far landing has come."""
        return self._sample(
            self.upstreams.ask({"the change log": self._checkpoint})["the change log"]
        )

    def _copies(self) -> Mapping[str, Sample[Mapping[str, CopyPosition | Missing]] | Missing]:
        """What each says of itself; one that hangs delays only the first look."""
        whose = {name: f"copy {name}" for name in self.copies}
        said = self.upstreams.ask({whose[name]: ask for name, ask in self.copies.items()})
        return {name: self._sample(said[one]) for name, one in whose.items()}

    def mirrors(self, tables: Iterable[Table]) -> dict[str, Sample[MirrorPosition] | Missing]:
        """Where the mirrors of *tables* stand; ``NOT_ASKED`` where too many are silent."""
        names = {table.name: f"mirror {table.name}" for table in tables}
        said = self.looks.ask({one: partial(self._mirror, name) for name, one in names.items()})
        return {name: self._sample(said.get(one, NOT_ASKED)) for name, one in names.items()}

    def with_mirrors(
        self, look: Sampling, mirrors: Mapping[str, Sample[MirrorPosition] | Missing]
    ) -> Sampling:
        """*look* with *mirrors*, and all that is known of what others have written there."""
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
        """An answer with when it was asked for: its age is never underestimated."""
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
        self.foreign.inspect(table, found.version, found.mirror)
        return found


@dataclass(eq=False)
class Watcher:
    """The newest look, taken again when it is older than who asks can bear.

    Samples are taken once for all who ask at the same time.  Their own age budgets decide whether
    an answer may rest on them; this only keeps a thousand questions from becoming a thousand looks.
    A job asks for its own mirrors; a round for those that lag behind what has landed, and in turn
    for those that do not: a few thousand mirrors at rest are looked at within a few rounds.
    """

    sampler: Sampler
    roster: TableRegistry
    clock: Callable[[], datetime]
    _look: Sampling = field(default_factory=Sampling.nothing)
    _checkpoint: Checkpoint | None = None
    _steps: tuple[LandedBatch, ...] = ()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def look(self, patience: timedelta, tables: Collection[str] | None = None) -> Sampling:
        """A look that began at most *patience* ago; otherwise it is taken now.

        Only mirrors of *tables* are that new, where they are named.
        """
        with self._lock:
            taken = not timedelta() <= self.clock() - self._look.at <= patience
            if taken:
                self._look = self._take()
            due = self._due(taken=taken) if tables is None else self._old(tables, patience)
        found = self.sampler.mirrors(due) if due else {}  # only the caller waits for that
        with self._lock:
            if found:
                self._look = self._merged(found)
            if _outrun(self._look.checkpoint, found):
                self._look = self._marked(replace(self._look, checkpoint=self.sampler.checkpoint()))
            return self._look

    def _merged(self, found: Mapping[str, Sample[MirrorPosition] | Missing]) -> Sampling:
        """The newest look with what was found of mirrors, unless another has seen them since."""
        known, now = dict(self._look.mirrors), self.clock()
        for name, one in found.items():
            before = known.get(name)
            if one is NOT_ASKED:
                known.setdefault(name, one)  # what is known counts until it is too old
            elif (
                isinstance(one, Missing)
                or not isinstance(before, Sample)
                or not one.at < before.at <= now
            ):
                known[name] = one
        look = self.sampler.with_mirrors(self._look, known)
        return replace(look, number=look.number + 1)

    def _old(self, tables: Collection[str], patience: timedelta) -> list[Table]:
        """Those of *tables* that are known, and whose mirrors were not just read."""
        now = self.clock()
        named = [table for name in tables if (table := self.roster.table(name)) is not None]
        samples = self._look.mirrors
        return [t for t in named if not _younger(samples.get(t.name), now, patience)]

    def _due(self, *, taken: bool) -> list[Table]:
        """Mirrors that may have moved, and of the others those seen longest ago."""
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
        """*look*, and all that is known by the checkpoint in it."""
        if isinstance(look.checkpoint, Missing):
            return replace(look, steps=self._steps)
        checkpoint, known = look.checkpoint.value, self._checkpoint
        if known is not None and is_rolled_back(known, checkpoint):
            self._steps = ()  # of batches that the log has lost, though others have their numbers
        self._checkpoint = checkpoint
        fences = {name: one.known() for name, one in look.sources.items()}
        steps = extend_batches(self._steps, to_landed_batch(checkpoint, fences))
        self._steps = drop_disproved(steps, self.sampler.fences.fallen())
        self.roster.update(checkpoint)
        return replace(look, steps=self._steps)


def _collected(one: Collector) -> tuple[Acknowledged | Missing, CollectorState]:
    """What a collector has handed over, and how it fares; it may tell only one of them."""
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
    """Whether a mirror holds batches above *checkpoint*: it may be amid a base."""
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
    """Source -> what asks for the number of its newest heartbeat that has come through."""
    pairs = (
        (source.name, behind_mirror(source, collectors[source.name], every_topic(source)))
        for source in sources
    )
    return {name: partial(_number, one, fences, name) for name, one in pairs if one is not None}


def newest_below(fences: tuple[Fence, ...], arrived: Acknowledged) -> Fence | None:
    """The newest of *fences*, ascending, of the server written to now, at or below *arrived*."""
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
