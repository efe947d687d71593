"""What do collectors, change log and mirrors say now?  One look, upstream first.

Whoever does not answer is `Missing` with his words; a look itself never fails.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol, TypeVar

from monitor.observe.fence_book import FenceBook
from pipeline.apply.foreign import Intrusion, accepted, find
from pipeline.errors import HeldError, ProofError, SluiceError
from pipeline.lags.samples import MirrorPosition, Sample, Samples, SourceSamples
from pipeline.lags.steps import LandedBatch
from pipeline.lake.commits import Commit
from pipeline.mark import Mark
from pipeline.model import Acknowledged, Missing, Table

T = TypeVar("T")
FIRST_LOOK = 100  # versions read back at the start; the lane has judged those before


class WatchedState(Protocol):
    """How a collector fares."""

    @property
    def state(self) -> str:
        """One word."""
        ...

    @property
    def detail(self) -> str:
        """The error, if there is one."""
        ...


class WatchedCollector(Protocol):
    """What reads a source's log into topics."""

    def acknowledged(self) -> Acknowledged | Missing:
        """What it has durably handed over."""
        ...

    def state(self) -> WatchedState:
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

    def history(self, table: str, since: int) -> Sequence[Commit]:
        """Commits after version *since*, ascending."""
        ...


@dataclass(frozen=True, slots=True)
class CollectorFailure:
    """A collector that does not work, and what it says."""

    state: str
    detail: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """All that was sampled at once; ``at`` is when it began.

    ``troubles`` holds collectors that do not run, ``intrusions`` mirrors others have written to,
    ``unreadable`` mirrors that were looked at and are not there or cannot be read, each with why.
    """

    at: datetime
    sources: Mapping[str, SourceSamples]
    mark: Sample[Mark] | Missing
    mirrors: Mapping[str, Sample[MirrorPosition] | Missing]
    troubles: Mapping[str, CollectorFailure] = field(default_factory=dict)
    intrusions: Mapping[str, Intrusion] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[LandedBatch, ...] = ()

    @classmethod
    def nothing(cls) -> "Sampling":
        """What is known before the first look: nothing, since ever."""
        return cls(datetime(1970, 1, 1, tzinfo=UTC), {}, Missing("nothing was sampled yet"), {})

    def samples(self, table: Table) -> Samples:
        """The part that concerns *table*."""
        nothing = Missing("the mirror was not sampled")
        mirror = self.mirrors.get(table.name, nothing)
        return Samples(self.sources, self.mark, mirror, self.steps)


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
    waived: Callable[[], frozenset[str]] = frozenset
    synced: Mapping[str, Callable[[], int | Missing]] = field(default_factory=dict)
    _seen: dict[str, int] = field(default_factory=dict)
    _intruded: dict[str, Intrusion] = field(default_factory=dict)
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
            intrusions=dict(self._intruded),
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
            self._unreadable[table] = "there is no mirror"
            return Missing("there is no mirror yet")
        self._unreadable.pop(table, None)
        self._inspect(table, found.version)
        return found

    def _inspect(self, table: str, version: int) -> None:
        """Look through the commits since the last look for one that is not ours."""
        since = self._seen.get(table, max(version - FIRST_LOOK, 0))
        if version == since:
            return
        try:
            commits = self.lake.history(table, since)
        except ProofError:
            if table in self._seen:
                raise
            commits = ()  # too old to be told by anyone
        intrusion = find(commits, since, accepted(table, self.waived()))
        if intrusion is not None:
            self._intruded[table] = intrusion
            return  # what follows is judged from here again, until it is taken back
        self._intruded.pop(table, None)
        self._seen[table] = version

    def _troubles(self) -> dict[str, CollectorFailure]:
        found = {}
        for name, collector in self.collectors.items():
            try:
                state = collector.state()
            except SluiceError as error:
                found[name] = CollectorFailure("unreachable", str(error))
                continue
            if state.state != "running":
                found[name] = CollectorFailure(state.state, state.detail)
        return found
