"""What do heartbeats, collectors, change log and mirrors say now?  One look, upstream first.

Whoever does not answer is `Missing` with his words; a look itself never fails.  The watching round
and every gate decision share the newest look, and the batches that all looks so far have seen.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol, TypeVar

from monitor.observe.foreign_writes import ForeignWrites
from monitor.observe.heartbeat import FenceBook
from monitor.observe.roster import Roster
from pipeline.apply.foreign import Intrusion
from pipeline.build import every_topic
from pipeline.collectors.collector import Collector, CollectorState
from pipeline.collectors.mirrored import Mirrored, behind_mirror
from pipeline.errors import HeldError, SluiceError
from pipeline.lags.samples import (
    LandedBatch,
    MirrorPosition,
    Sample,
    Samples,
    SourceSamples,
    WorkedOut,
    believed,
    extended,
    step,
)
from pipeline.lives import is_set_back
from pipeline.mark import Mark
from pipeline.model import Acknowledged, Fence, Missing, Table
from pipeline.settings import SourceSettings
from pipeline.sources.positions import reaches

NO_MIRROR = "there is no mirror"
T = TypeVar("T")


class WatchedCollector(Protocol):
    """What reads a source's log into topics."""

    def acknowledged(self) -> Acknowledged | Missing:
        """What it has durably handed over."""
        ...

    def state(self) -> CollectorState:
        """How it fares."""
        ...


class WatchedLake(Protocol):
    """The change log and the mirrors, without Spark."""

    def mark(self) -> Mark | None:
        """The newest marker; None before the first batch."""
        ...

    def applied(self, table: str) -> MirrorPosition | None:
        """Where a mirror stands; None where there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Sampling:
    """All that was sampled at once; ``at`` is when it began, ``number`` rises from look to look.

    ``troubles`` holds collectors that do not run, ``intrusions`` mirrors others have written to,
    ``unreadable`` mirrors that were looked at and are not there or cannot be read, each with why.
    """

    at: datetime
    sources: Mapping[str, SourceSamples]
    mark: Sample[Mark] | Missing
    mirrors: Mapping[str, Sample[MirrorPosition] | Missing]
    troubles: Mapping[str, CollectorState] = field(default_factory=dict)
    intrusions: Mapping[str, Intrusion] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[LandedBatch, ...] = ()
    number: int = 0
    worked: WorkedOut = field(default_factory=WorkedOut, compare=False, repr=False)

    @classmethod
    def nothing(cls) -> "Sampling":
        """What is known before the first look: nothing, since ever."""
        return cls(datetime(1970, 1, 1, tzinfo=UTC), {}, Missing("nothing was sampled yet"), {})

    def samples(self, table: Table) -> Samples:
        """The part that concerns *table*."""
        nothing = Missing("the mirror was not sampled")
        mirror = self.mirrors.get(table.name, nothing)
        return Samples(self.sources, self.mark, mirror, self.steps, self.worked)


@dataclass(eq=False)
class Sampler:
    """Asks everyone once; ``budget`` is how long an answer may be used.

    ``beat_budget`` is that of the fences, and so how old the newest heartbeat may be.  ``synced``
    asks for those of sources with a SYNC hop: the number of the newest that has passed it.
    """

    collectors: Mapping[str, WatchedCollector]
    lake: WatchedLake
    fences: FenceBook
    clock: Callable[[], datetime]
    budget: timedelta
    beat_budget: timedelta
    foreign: ForeignWrites
    synced: Mapping[str, Callable[[], int | Missing]] = field(default_factory=dict)
    _unreadable: dict[str, str] = field(default_factory=dict)

    def look(self, tables: Iterable[Table]) -> Sampling:
        """Sample what *tables* rest on: fences, acknowledged, synced, mark, mirrors, in order."""
        at = self.clock()
        fences = {
            name: Sample(self.fences.of(name), self.clock(), self.beat_budget)
            for name in self.collectors
        }
        acknowledged = {
            name: self._sample(one.acknowledged) for name, one in self.collectors.items()
        }
        synced = {name: self._sample(ask) for name, ask in self.synced.items()}
        mark = self._sample(self._mark)
        mirrors = {table.name: self._sample(partial(self._mirror, table.name)) for table in tables}
        return Sampling(
            at=at,
            sources={n: SourceSamples(fences[n], acknowledged[n], synced.get(n)) for n in fences},
            mark=mark,
            mirrors=mirrors,
            troubles=self._troubles(),
            intrusions=self.foreign.found(),
            unreadable=dict(self._unreadable),
        )

    def _sample(self, ask: Callable[[], T | Missing]) -> Sample[T] | Missing:
        """One answer, stamped before it was asked for: its age is never told too young."""
        at = self.clock()
        try:
            answer = ask()
        except SluiceError as error:
            return Missing(str(error))
        return answer if isinstance(answer, Missing) else Sample(answer, at, self.budget)

    def _mark(self) -> Mark | Missing:
        return self.lake.mark() or Missing("nothing is landed yet")

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
        self.foreign.inspect(table, found.version)
        return found

    def _troubles(self) -> dict[str, CollectorState]:
        found = {}
        for name, collector in self.collectors.items():
            try:
                state = collector.state()
            except SluiceError as error:
                found[name] = CollectorState("unreachable", str(error))
                continue
            if not state.running:
                found[name] = state
        return found


@dataclass(eq=False)
class Watcher:
    """The newest look, taken again when it is older than who asks can bear.

    Samples are taken once for all who ask at the same time.  Their own age budgets decide whether
    an answer may rest on them; this only keeps a thousand questions from becoming a thousand looks.
    """

    sampler: Sampler
    roster: Roster
    clock: Callable[[], datetime]
    _look: Sampling = field(default_factory=Sampling.nothing)
    _mark: Mark | None = None
    _steps: tuple[LandedBatch, ...] = ()
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def look(self, patience: timedelta) -> Sampling:
        """A look that began at most *patience* ago; it is taken now if there is none."""
        with self._turn:
            if not timedelta() <= self.clock() - self._look.at <= patience:
                self._look = self._take()
            if {table.name for table in self.roster.tables()} - self._look.mirrors.keys():
                self._look = self._take()  # tables that the look before has brought
            return self._look

    def _take(self) -> Sampling:
        number = self._look.number + 1
        look = replace(self.sampler.look(self.roster.tables()), number=number)
        if isinstance(look.mark, Missing):
            return replace(look, steps=self._steps)
        mark, known = look.mark.value, self._mark
        if known is not None and is_set_back(known, mark):
            self._steps = ()  # of batches that the log has lost, though others have their numbers
        self._mark = mark
        fences = {name: one.known() for name, one in look.sources.items()}
        steps = extended(self._steps, step(mark, fences))
        self._steps = believed(steps, self.sampler.fences.fallen())
        self.roster.update(mark)
        return replace(look, steps=self._steps)


def synced(
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
        if same and reaches(arrived.position, fence.head.position):
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
