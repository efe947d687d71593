"""How does a table get a new base while all goes on?  Fence, read in parts, hand over to landing.

What is done stands in the mark alone: whoever comes after a kill goes on from there, and rows that
were read and not landed are read again.  One round at a time; landing takes what is ready whenever
it comes by.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import starmap

import structlog

from pipeline.apply.landed_state import LandedState
from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.table import Stamp
from pipeline.errors import ConfigError, ProofError, SluiceError
from pipeline.landing.rereading import RereadNews, RowsAgain
from pipeline.landing.source_feed import Feed
from pipeline.living import is_there
from pipeline.mark import Mark
from pipeline.model import Order, Shard, Table
from pipeline.reread.task import ReadLimits, RereadDone, RereadTask
from pipeline.rereads import KeyStretch, Reread, RereadOrder, RereadState
from pipeline.settings import PipelineSettings, SourceSettings
from pipeline.sources.positions import place, reset
from pipeline.sources.row_reader import OpenRows, ReadFence, RowReader, RowsAsked

AT_ONCE = 4  # tasks of a round, which the source has to bear at the same time
AHEAD = 1_000_000  # rows that wait for landing before more are read
ALL_READ = "all is read; all before must have landed, by lists and in topics that let it through"
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class Rereading:
    """Works off orders; ``work`` runs tasks, here or spread by Spark.

    ``_fences`` belong to this life: another one reads behind a fence at the same place.
    """

    settings: PipelineSettings
    feeds: tuple[Feed, ...]
    log: ChangeLog
    open_rows: OpenRows
    work: Callable[[Sequence[RereadTask]], Sequence[RereadDone]]
    clock: Callable[[], datetime]
    limits: ReadLimits = field(default_factory=ReadLimits)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _begun: dict[str, Reread] = field(default_factory=dict)
    _ready: list[RowsAgain] = field(default_factory=list)
    _closing: dict[str, tuple[str, Order]] = field(default_factory=dict)
    _fences: dict[str, ReadFence] = field(default_factory=dict)
    _readers: dict[str, tuple[SourceSettings, RowReader]] = field(default_factory=dict)

    def offered(self) -> RereadNews:
        """What landing may take; for its own thread."""
        with self._lock:
            return RereadNews(dict(self._begun), tuple(self._ready), dict(self._closing))

    def run(self, landed: LandedState, orders: Sequence[RereadOrder]) -> tuple[RereadState, ...]:
        """One round: begin what is new, read on in what is open; tell how far each order is."""
        self._forget(landed.mark)
        wanted = [(one, _table(one, landed)) for one in orders]
        troubles = {one.id: self._trouble(one, table, landed) for one, table in wanted}
        for one, table in wanted:
            if troubles[one.id] is None:
                troubles[one.id] = self._read_on(one, table, landed)
        return tuple(
            self._state(one, name, landed.mark, troubles[one.id])
            for one, table in wanted
            for name in map(str, table.shards or ("",))
        )

    def close(self) -> None:
        """Hang up."""
        for _, reader in self._readers.values():
            reader.close()

    def _forget(self, mark: Mark) -> None:
        """What the mark tells of needs no more telling, nor what it has passed by."""
        with self._lock:
            for name in [n for n, one in self._begun.items() if _is_known(mark, n, one)]:
                del self._begun[name]
            self._ready[:] = [one for one in self._ready if self._awaited(mark, one)]
            for name, (wanted, _) in list(self._closing.items()):
                known = mark.rereads.get(name)
                if known is None or known.id != wanted or known.closing is not None:
                    del self._closing[name]

    def _awaited(self, mark: Mark, rows: RowsAgain) -> bool:
        """Whether landing may still take it, now or after others of its stretch."""
        known = mark.rereads.get(rows.name)
        if known is None or known.id != rows.id or known.order != rows.order:
            return False
        if rows.stretch >= len(known.stretches) or known.stretches[rows.stretch].ended:
            return False
        at = known.stretches[rows.stretch].read
        return any(
            one.after == at
            for one in self._ready
            if (one.name, one.stretch) == (rows.name, rows.stretch)
        )

    def _trouble(self, order: RereadOrder, table: Table, landed: LandedState) -> SluiceError | None:
        """Begin, or end, what can be; why not, if something stands in the way."""
        if not table.shards:
            return ProofError(f"no shard of {order.table} is known: nothing of it has landed")
        try:
            for shard in table.shards:
                known = landed.mark.rereads.get(str(shard))
                if known is None or known.id != order.id:
                    self._begin(order, table, shard, landed)
                elif known.done is None and known.read and known.closing is None:
                    self._end(shard, known, landed.mark)
        except SluiceError as error:
            log.warning("reread_waits", table=order.table, why=str(error))
            return error
        return None

    def _begin(self, order: RereadOrder, table: Table, shard: Shard, landed: LandedState) -> None:
        name, mark = str(shard), landed.mark
        epoch, lists = mark.epochs.get(shard.source), mark.lists.get(shard.source)
        if name in self._begun:
            return
        if epoch is None or (lists is not None and lists.since is not None):
            why = "its server is not known yet" if epoch is None else "its lists were just changed"
            raise ProofError(f"source:{shard.source}: {why}; it begins when that has settled")
        if not table.key or landed.catalog.newest(shard.source, shard.name) is None:
            why = "declares no key" if table.shards and table.key == () else "has no schema here"
            raise ConfigError(f"{shard.name} {why}, so it cannot be read in parts")
        reader = self._reader(shard.source)
        bounds = reader.bounds(shard, table.key, AT_ONCE)
        fence = reader.fence(mark.heartbeats.get(shard.source, -1) + 1, self.clock())
        _same_server(shard.source, fence, epoch.identity)
        begun = Reread(
            order.id,
            order.origin,
            Order(epoch.number, *place(fence.head.position)),
            fence.head.identity,
            mark.batch + 1,
            tuple(starmap(KeyStretch, zip((*bounds, None), (None, *bounds), strict=True))),
        )
        with self._lock:
            self._begun[name] = begun
        self._fences[name] = fence

    def _end(self, shard: Shard, known: Reread, mark: Mark) -> None:
        """Note where the log ends now that all was read: what the reads saw stands below it."""
        reader = self._reader(shard.source)
        fence = reader.fence(mark.heartbeats.get(shard.source, -1) + 1, self.clock())
        before = self._fences.get(str(shard))
        gone = before is not None and reset(before.head.position, fence.head.position)
        _same_server(shard.source, fence, "" if gone else known.identity)
        with self._lock:
            order = Order(known.order.epoch, *place(fence.needed))
            self._closing[str(shard)] = (known.id, order)

    def _tasks(self, order: RereadOrder, table: Table, landed: LandedState) -> Iterator[RereadTask]:
        for shard in table.shards:
            known = landed.mark.rereads.get(str(shard))
            if known is None or known.id != order.id or known.done is not None:
                continue
            waiting = [one for one in self._ready if one.name == str(shard)]
            for number, stretch in enumerate(known.stretches):
                own = [one for one in waiting if one.stretch == number]
                if stretch.ended or any(one.ended for one in own):
                    continue
                after = own[-1].read if own else stretch.read
                asked = RowsAsked(shard, table.key, after, stretch.until, 0)
                yield self._task(order, landed, known, asked, number)

    def _task(
        self,
        order: RereadOrder,
        landed: LandedState,
        known: Reread,
        asked: RowsAsked,
        number: int,
    ) -> RereadTask:
        now = self.clock()
        name, source = str(asked.shard), asked.shard.source
        if name not in self._fences:  # of a life before: behind a new fence all of it is seen, too
            reader = self._reader(source)
            fence = reader.fence(landed.mark.heartbeats.get(source, -1) + 1, now)
            self._fences[name] = _same_server(source, fence, known.identity)
        return RereadTask(
            changes=self.log.store.uri,
            metadata=self.log.opened(now).metadata,
            stamp=Stamp(self.settings.lane, -1, now),
            router=landed.catalog.router,
            settings=self._settings(source),
            open_rows=self.open_rows,
            fence=self._fences[name],
            asked=asked,
            origin=known.origin,
            order=known.order,
            id=known.id,
            table=order.table,
            stretch=number,
            limits=self.limits,
        )

    def _read_on(self, order: RereadOrder, table: Table, landed: LandedState) -> SluiceError | None:
        """Read the next rows of each stretch; why not, if it fails."""
        if sum(one.rows for one in self._ready) >= AHEAD:
            return None
        try:
            done = self.work(tuple(self._tasks(order, table, landed))[:AT_ONCE])
        except SluiceError as error:
            log.warning("reread_waits", table=order.table, why=str(error))
            return error
        with self._lock:
            self._ready += [one.rows for one in done]
        fewest = min((one.select for one in done), default=self.limits.select)
        self.limits = replace(self.limits, select=max(fewest, 1))
        return None

    def _state(
        self, order: RereadOrder, name: str, mark: Mark, trouble: SluiceError | None
    ) -> RereadState:
        known = mark.rereads.get(name)
        told = RereadState(order.id, order.table, name)
        if known is not None and known.id == order.id:
            told = replace(told, rows=known.rows, done=known.done)
        if told.done is None and trouble is None and known is not None and known.closing:
            return replace(told, why=ALL_READ)
        if told.done is not None or trouble is None:
            return told
        return replace(told, why=str(trouble), refused=isinstance(trouble, ConfigError))

    def _settings(self, source: str) -> SourceSettings:
        """Where its server is now: it is the one that the collector is connected to."""
        feed = next(one for one in self.feeds if one.settings.name == source)
        return feed.connected()

    def _reader(self, source: str) -> RowReader:
        settings = self._settings(source)
        known = self._readers.get(source)
        if known is None or known[0] != settings:
            if known is not None:
                known[1].close()
            self._readers[source] = (settings, self.open_rows(settings))
        return self._readers[source][1]


def _same_server(source: str, fence: ReadFence, identity: str) -> ReadFence:
    if fence.head.identity != identity:
        raise ProofError(f"source:{source}: the server has changed; a new epoch begins")
    return fence


def _table(order: RereadOrder, landed: LandedState) -> Table:
    """The table with its shards as far as anything tells of them, with rows or without."""
    mark, router = landed.mark, landed.catalog.router
    names = (name for name in {*mark.shards, *mark.existing} if is_there(mark, name))
    folding = {name: router.table(Shard.parse(name).name) for name in names}
    return landed.catalog.table(order.table, folding)


def _is_known(mark: Mark, name: str, one: Reread) -> bool:
    """Whether landing has taken it, or did not want it: a batch or two have ended since."""
    known = mark.rereads.get(name)
    return (known is not None and known.order >= one.order) or mark.batch > one.since + 1
