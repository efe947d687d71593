"""Writes heartbeats to the server that the collector reads, and stores each as a fence.

After a failover the collector may read another server. A heartbeat that it never sees would
prove nothing, so heartbeats follow the collector. After any failure the next heartbeat tries
again.

A fence is stored before it is used, so no proof rests on a lost fence. If both clocks went back,
fences with wrong times are dropped.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import structlog

from monitor.store.certificates import Fences
from pipeline.clocks import ClockStep, in_order, step_back
from pipeline.errors import SluiceError
from pipeline.lags.samples import thin_history
from pipeline.model import Fence
from pipeline.settings import SourceSettings
from pipeline.sources.source import HeartbeatTable, Source

FOLLOW = timedelta(seconds=10)
MICROSECOND = timedelta(microseconds=1)
ALL = 200_000  # more fences than are kept for any source
LOOKED_BACK = (timedelta(hours=1), timedelta(days=1), timedelta(days=43))
log = structlog.get_logger(__name__)


def _nobody(step: ClockStep) -> None:
    """Ignore a step back."""


def _none(source: str) -> ClockStep | None:
    """Return None: no step back is known."""


@dataclass(eq=False)
class FenceBook:
    """The heartbeats in memory, by source, ascending in number and time.

    Thread-safe; one thread adds the heartbeats of a source.
    ``on_step`` is called when a heartbeat shows that the clocks went back, before misdated fences
    are dropped.
    Work on that which a full store did not take is done before the next fence is stored.
    """

    store: Fences
    on_step: Callable[[ClockStep], object] = _nobody
    _known: dict[str, tuple[Fence, ...]] = field(default_factory=dict)
    _fallen: dict[str, range] = field(default_factory=dict)
    _unfinished: dict[str, list[ClockStep]] = field(default_factory=dict)
    _firsts: dict[tuple[str, datetime], Fence] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def load(
        self,
        sources: Iterable[str],
        since: datetime,
        step_of: Callable[[str], ClockStep | None] = _none,
    ) -> None:
        """Load the fences that an earlier run stored.

        *step_of* returns the last step back of a source's clock.  The earlier run may have ended
        before it dropped all heartbeats of that step, and later times would not reveal them.
        """
        for source in sources:
            known, step = self.store.since(source, since, ALL), step_of(source)
            if step is not None and any(map(step.fells, known)):
                self._fall(step)
                known = tuple(one for one in known if not step.fells(one))
            self._known[source] = thin_fences(in_order(known))

    def add(self, fence: Fence, later: datetime | None = None) -> None:
        """Add *fence*: first to the store, so that no proof rests on a lost fence.

        *later* is the time of the later of both clocks, if it differs from ``fence.at``.  If only
        one clock went back, everything committed before *later* is below this fence too.  Then the
        fence gets the instant after the last one, so it replaces none.  If both clocks went back,
        fences whose times are shown to be wrong are dropped.
        """
        known = self.of(fence.source)
        if known and fence.at <= known[-1].at:
            if (shown := later or fence.at) >= known[-1].at:
                fence = replace(fence, at=min(shown, known[-1].at + MICROSECOND))
            elif step := self._step(fence):
                self._fall(step)
        self._finish(fence.source)
        self.store.add(fence)
        with self._lock:
            self._known[fence.source] = thin_fences((*self.of(fence.source), fence))

    def known(self) -> Mapping[str, tuple[Fence, ...]]:
        """Return the heartbeats of every source."""
        return dict(self._known)

    def of(self, source: str) -> tuple[Fence, ...]:
        """Return the heartbeats of *source*; empty before the first."""
        return self._known.get(source, ())

    def first(self, source: str, instant: datetime) -> Fence | None:
        """Return the first fence of *source* at or after *instant* that was ever written, or None.

        Reads the store, because old fences in memory are thinned out, and the first one left may be
        later.  The store keeps the first fence after each full minute for ten days.
        """
        known = self.of(source)
        if not known or known[-1].at < instant:
            return None
        with self._lock:
            if (source, instant) not in self._firsts:
                found = self._stored(source, instant, 1)
                self._firsts.update(((source, instant), one) for one in found)
            return self._firsts.get((source, instant))

    def fallen(self) -> Mapping[str, range]:
        """Return, by source, a range that has all numbers found misdated in this run."""
        return dict(self._fallen)

    def _fall(self, step: ClockStep) -> None:
        before = self._fallen.get(step.source, range(step.first, step.number))
        self._fallen[step.source] = range(min(before.start, step.first), step.number)
        self._unfinished.setdefault(step.source, []).append(step)
        try:
            self._finish(step.source)
        finally:
            with self._lock:
                left = tuple(one for one in self.of(step.source) if not step.fells(one))
                self._known[step.source] = left
                self._firsts = {k: one for k, one in self._firsts.items() if k[0] != step.source}

    def _finish(self, source: str) -> None:
        """Announce each step back of *source*, and delete its misdated fences from the store."""
        steps = self._unfinished.get(source, [])
        while steps:
            self.on_step(steps[0])
            self.store.fell(steps[0])
            del steps[0]

    def _stored(self, source: str, since: datetime, limit: int) -> tuple[Fence, ...]:
        """Return stored fences of *source* at or after *since*, without misdated ones."""
        steps = tuple(self._unfinished.get(source, ()))
        found = self.store.since(source, since, ALL if steps else limit)
        return tuple(one for one in found if not any(step.fells(one) for step in steps))[:limit]

    def _step(self, fence: Fence) -> ClockStep | None:
        """Return the step back that *fence* shows; reads stored fences as far back as needed."""
        step = None
        for length in LOOKED_BACK:
            history = self._stored(fence.source, fence.at - length, ALL)
            before = [one for one in in_order(history) if one.number < fence.number]
            step = step_back(before or self.of(fence.source), fence)
            if step is not None and before and step.first > before[0].number:
                break
        return step


@dataclass(eq=False)
class HeartbeatWriter:
    """Writes the heartbeats of one source; ``problem`` is why the last one failed, else empty.

    A store that cannot keep the fence is not a problem of the source, because problems of a source
    are also blamed for failures of its collector.
    ``collected_from`` asks the collector for host and port of the server that it reads. ``newest``
    returns the highest number ever landed, so that numbers never go back.  ``compared`` is called
    with how far the source's clock is behind Sluice's.
    """

    settings: SourceSettings
    collected_from: Callable[[], tuple[str, int]]
    connect: Callable[[SourceSettings], Source]
    fences: FenceBook
    newest: Callable[[], int]
    clock: Callable[[], datetime]
    compared: Callable[[timedelta, datetime], object]
    problem: str = ""
    _server: Source | None = None
    _table: HeartbeatTable | None = None
    _address: tuple[str, int] | None = None
    _asked: datetime | None = field(default=None)

    def write_heartbeat(self) -> None:
        """Write the next heartbeat and add it as a fence."""
        try:
            table = self._ready()
            fence = table.write_heartbeat(self.clock)
        except SluiceError as error:
            self._asked = None
            self.problem = str(error)
            raise
        self.problem = ""
        if table.reading is not None:
            self.compared(table.reading.skew, fence.at)
            self.fences.add(fence, table.reading.later)

    def followed(self) -> SourceSettings:
        """Return the settings with the address that receives the heartbeats now."""
        if self._address is None:
            return self.settings
        return replace(self.settings, host=self._address[0], port=self._address[1])

    def close(self) -> None:
        """Close the connection."""
        if self._server is not None:
            self._server.close()

    def _ready(self) -> HeartbeatTable:
        address = self._where()
        if self._table is None or address != self._address:
            self.close()
            host, port = address
            server = self.connect(replace(self.settings, host=host, port=port))
            server.prepare_heartbeat()
            known = self.fences.of(self.settings.name)
            highest = max(self.newest(), known[-1].number if known else -1)
            self._server, self._table = server, HeartbeatTable(server, highest)
            self._address = address
            log.info("heartbeats go to", source=self.settings.name, host=host, port=port)
        return self._table

    def _where(self) -> tuple[str, int]:
        """Return the address of the collector's server, asked every `FOLLOW`.

        If the collector does not answer, it is the last known address, at first the configured one.
        """
        known = self._address or (self.settings.host, self.settings.port)
        now = self.clock()
        if not self.settings.follow_collector:
            return known
        if self._asked is not None and timedelta() <= now - self._asked < FOLLOW:
            return known
        self._asked = now
        try:
            host, port = self.collected_from()
        except SluiceError:
            return known
        found = self.settings.at(host, port)
        return found.host, found.port


@dataclass(eq=False)
class HeartbeatReader:
    """Turns the heartbeats that a service writes to one source into fences.

    A heartbeat whose number is two above the newest one at an instant was begun after that instant.
    """

    source: Source
    fences: FenceBook
    clock: Callable[[], datetime]
    _seen: list[tuple[int, datetime]] = field(default_factory=list)

    def read(self) -> None:
        """Read the newest heartbeat, and add a fence if it proves one."""
        now, name = self.clock(), self.source.name
        newest = self.source.newest_heartbeat()
        passed = [at for number, at in self._seen if number <= newest - 2]
        self._seen = [one for one in self._seen if newest - 2 < one[0] <= newest]
        self._seen.append((newest, now))
        known = self.fences.of(name)
        if passed and (not known or passed[-1] > known[-1].at):
            self.fences.add(Fence(name, newest, passed[-1], self.source.head()))


def thin_fences(fences: Sequence[Fence], limit: int = 4096) -> tuple[Fence, ...]:
    """Return at most *limit* fences, ascending.

    For each cut, one is left that is later by at most 1 % of the cut's age.
    """
    return thin_history(fences, lambda fence: fence.at.timestamp(), share=100, limit=limit)
