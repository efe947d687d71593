"""Runs backfills while landing goes on: sets a fence, reads in parts, hands rows to landing.

Progress is stored in the landing checkpoint only. After a crash the next process continues from
there, and rows that were read but not landed are read again. One round runs at a time. Landing
takes what is ready at any time.

Two threads share the offer. Rows stay in it until the landing checkpoint shows that they landed.
Rows that the checkpoint has overtaken are dropped.

A backfill that starts over keeps nothing of its earlier reads. So a table that is altered all the
time would be read forever, at the cost of its server. The runner refuses a backfill that started
over too often.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

import structlog

from pipeline.apply.landed_state import LandedState
from pipeline.backfill.dry_run import MirrorIds
from pipeline.backfill.readers import RowReaders
from pipeline.backfill.task import (
    BackfillFailure,
    BackfillResult,
    BackfillTask,
    ReadLimits,
    find_key_ranges,
    require_few,
    stretch_rows,
)
from pipeline.backfill_state import Backfill, BackfillRequest, BackfillState
from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.table import Stamp
from pipeline.checkpoint import Checkpoint
from pipeline.errors import ConfigError, ProofError, SluiceError, SparedError
from pipeline.landing.backfill import BackfilledRows, BackfillNews
from pipeline.landing.listing import LandingSource
from pipeline.model import Order, Origin, Shard, Table
from pipeline.schema.model import TableSchema
from pipeline.settings import PipelineSettings
from pipeline.sources.condition import parse_condition
from pipeline.sources.positions import locate_position
from pipeline.sources.row_reader import OpenRows, ReadFence, RowsAsked
from pipeline.sources.source import read_limits
from pipeline.standards.table_standards import TableStandards

ANEW = 10  # restarts after which an operator must look for the cause


def require_few_beginnings(wish: BackfillRequest, shard: Shard, known: Backfill | None) -> None:
    """Reject a backfill that restarts too often.

    Raises:
        ConfigError: names the number of restarts and the reason of the last one.
    """
    if known is not None and known.former == wish.id and known.begun >= ANEW:
        msg = f"{shard.name} was started {known.begun} times and never ended"
        raise ConfigError(f"{msg}; last cause: {known.void}; request it again when this is fixed")


def begun_anew(known: Backfill) -> str:
    """How often it was started, as a text; empty if once, or if it is done."""
    if known.done is not None or known.begun < 2:
        return ""
    return f"it was started {known.begun} times; last cause: {known.void}"


@dataclass(eq=False)
class Offer:
    """What the reader's thread offers to landing; landing's thread calls only ``news``."""

    begun: dict[Shard, Backfill] = field(default_factory=dict)
    ready: list[BackfilledRows] = field(default_factory=list)
    closing: dict[Shard, tuple[str, Order]] = field(default_factory=dict)
    cancelled: dict[Shard, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def news(self) -> BackfillNews:
        """Return a copy of the current offer."""
        with self._lock:
            begun, closing, cancelled = self.begun, self.closing, self.cancelled
            return BackfillNews(dict(begun), tuple(self.ready), dict(closing), dict(cancelled))

    def begin(self, shard: Shard, begun: Backfill) -> None:
        """Offer landing the state *begun* or cut of *shard*."""
        with self._lock:
            self.begun[shard] = begun

    def read(self, rows: Sequence[BackfilledRows]) -> None:
        """Offer *rows* to landing, after those that already wait."""
        with self._lock:
            self.ready += rows

    def end(self, shard: Shard, id_: str, order: Order) -> None:
        """Note that all rows of *shard* were read when the log ended at *order*."""
        with self._lock:
            self.closing[shard] = (id_, order)

    def cancel(self, checkpoint: Checkpoint, wanted: Set[str]) -> None:
        """Withdraw the offers of requests that are not *wanted*; landing then forgets them."""
        every = [*self.begun.items(), *checkpoint.backfills.items()]
        known = {shard: one.id for shard, one in every if one.done is None}
        with self._lock:
            self.cancelled = {shard: id_ for shard, id_ in known.items() if id_ not in wanted}
            self.ready[:] = [one for one in self.ready if one.id in wanted]
            self.closing = {n: one for n, one in self.closing.items() if one[0] in wanted}

    def forget(self, checkpoint: Checkpoint, is_there: Callable[[BackfilledRows], bool]) -> None:
        """Drop offers that the checkpoint contains or has passed, and those whose file is gone."""
        there = [one for one in self.ready if is_there(one)]
        with self._lock:
            for shard in [n for n, one in self.begun.items() if _is_known(checkpoint, n, one)]:
                del self.begun[shard]
            self.ready[:] = there
            self.ready[:] = [one for one in self.ready if self._awaited(checkpoint, one)]
            for shard, (wanted, _) in list(self.closing.items()):
                known = checkpoint.backfills.get(shard)
                if known is None or known.id != wanted or known.closing is not None:
                    del self.closing[shard]

    def _awaited(self, checkpoint: Checkpoint, rows: BackfilledRows) -> bool:
        """Whether landing may still take *rows*, now or after others of their stretch."""
        known = checkpoint.backfills.get(rows.shard)
        if known is None or known.id != rows.id or known.order != rows.order:
            return False
        if rows.stretch >= len(known.stretches) or known.stretches[rows.stretch].ended:
            return False
        at = known.stretches[rows.stretch].read
        return any(
            one.after == at
            for one in self.ready
            if (one.shard, one.stretch) == (rows.shard, rows.stretch)
        )


def _is_known(checkpoint: Checkpoint, shard: Shard, one: Backfill) -> bool:
    """Whether landing has taken it, or has rejected it: a batch or two have ended since."""
    known = checkpoint.backfills.get(shard)
    if one.key:  # it is an update that splits the shard into stretches
        return known is None or (known.id, known.order, known.key) != (one.id, one.order, ())
    return (known is not None and known.order >= one.order) or checkpoint.batch > one.since + 1


AT_ONCE = 4  # tasks of a round, which load the source at the same time
SOME = 2.0  # seconds in which a round reads further requested rows: each range is a stretch
AHEAD = 1_000_000  # rows that may wait for landing before reading pauses
OPEN = 16  # shards that are read at once: the checkpoint stores the position of each stretch
ROUND = 20.0  # seconds after which the other requests wait for the next round
RARELY = 32  # rounds between two retries after many failures
GIVEN_UP = "it was cancelled"
QUEUED = "it starts when fewer tables are read at the same time"
NOT_YET = "it is read when all earlier changes have landed"
ALL_READ = "all rows are read; earlier changes must still land, from topics that can be listed"
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class BackfillRunner:
    """Runs requested backfills; ``work`` runs tasks, in the driver or with Spark.

    ``_fences`` belong to this process: the next one sets new fences, and reads at the same orders.
    """

    settings: PipelineSettings
    feeds: tuple[LandingSource, ...]
    log: ChangeLog
    open_rows: OpenRows
    work: Callable[[Sequence[BackfillTask]], Sequence[BackfillResult | BackfillFailure]]
    clock: Callable[[], datetime]
    limits: ReadLimits = field(default_factory=ReadLimits)
    mirror_ids: MirrorIds = field(default_factory=lambda: MirrorIds(lambda _: None))
    offer: Offer = field(default_factory=Offer)
    _fences: dict[Shard, ReadFence] = field(default_factory=dict)
    _paces: dict[Shard, int] = field(default_factory=dict)
    _brakes: dict[Shard, str] = field(default_factory=dict)
    _failed: dict[tuple[Shard, int], tuple[int, SluiceError]] = field(default_factory=dict)
    _round: int = 0
    _next: str = ""
    readers: RowReaders = field(init=False)

    def __post_init__(self) -> None:
        self.readers = RowReaders(self.feeds, self.open_rows, self.clock)

    def run(
        self, landed: LandedState, wishes: Sequence[BackfillRequest]
    ) -> tuple[BackfillState, ...]:
        """Start new requests, continue open ones, and return the state of each.

        An open backfill that is in none of *wishes* is cancelled. Its state is returned until
        landing has recorded that.
        """
        self.offer.forget(landed.checkpoint, self._is_there)
        self.offer.cancel(landed.checkpoint, {one.id for one in wishes})
        self.mirror_ids.keep(frozenset(one.id for one in wishes))
        wanted = self.tables(landed, wishes)
        self._round += 1
        troubles = dict(self._advanced(wanted, landed))
        going = (
            self._state(one, shard, landed.checkpoint, troubles.get(one.id))
            for one, table in wanted
            for shard in table.shards or (None,)
        )
        gone = (
            BackfillState(id_, "", str(shard), why=GIVEN_UP)
            for shard, id_ in self.offer.cancelled.items()
        )
        return (*going, *gone)

    def tables(
        self, landed: LandedState, wishes: Sequence[BackfillRequest]
    ) -> list[tuple[BackfillRequest, Table]]:
        """Return each of *wishes* with its table and all known shards of it."""
        folding = self.readers.folding(wishes, landed.checkpoint, landed.catalog.router)
        return [(one, landed.catalog.table(one.table, folding)) for one in wishes]

    def close(self) -> None:
        """Close all connections."""
        self.readers.close()

    def _advanced(
        self, wanted: Sequence[tuple[BackfillRequest, Table]], landed: LandedState
    ) -> Iterator[tuple[str, SluiceError | None]]:
        """Work on requests until the round's time is over; one left out is first next time."""
        until = time.monotonic() + ROUND
        first = next((at for at, (one, _) in enumerate(wanted) if one.id == self._next), 0)
        for number, (wish, table) in enumerate((*wanted[first:], *wanted[:first])):
            if number and time.monotonic() > until:
                self._next = wish.id
                return
            yield wish.id, self._advance(wish, table, landed)

    def _has_room(self, checkpoint: Checkpoint) -> bool:
        """Whether one more shard may be read at the same time."""
        every = checkpoint.backfills.items()
        going = {shard for shard, one in every if one.done is None and one.closing is None}
        return len(going | self.offer.begun.keys()) < OPEN

    def _is_there(self, rows: BackfilledRows) -> bool:
        """Return whether its file exists: after a long hold, maintenance may have removed it."""
        return rows.file is None or self.log.store.exists(rows.file.path)

    def _advance(
        self, wish: BackfillRequest, table: Table, landed: LandedState
    ) -> SluiceError | None:
        """Begin, continue and end what is possible; return the reason if something is not."""
        if not table.shards:
            return ProofError(f"no shard of {wish.table} is known: nothing of it has landed")
        steps = [partial(self._step, wish, table, shard, landed) for shard in table.shards]
        steps.append(partial(self._read_on, wish, table, landed))
        found = [why for step in steps if (why := _failure(wish, step)) is not None]
        return found[0] if found else None

    def _step(self, wish: BackfillRequest, table: Table, shard: Shard, landed: LandedState) -> None:
        known = landed.checkpoint.backfills.get(shard)
        key = _sent_key(table, landed.catalog.newest(shard.source, shard.name))
        if known is None or known.id != wish.id or _is_other(known, key):
            require_few_beginnings(wish, shard, known)
            if self._has_room(landed.checkpoint):
                self._begin(wish, shard, landed.checkpoint)
        elif known.done is None and known.closing is None:
            require_few(
                wish, sum(o.rows for o in landed.checkpoint.backfills.values() if o.id == wish.id)
            )
            self._go_on(wish, shard, table, landed)

    def _begin(self, wish: BackfillRequest, shard: Shard, checkpoint: Checkpoint) -> None:
        """Record the order of the rows in the checkpoint, before all below it has landed."""
        epoch, lists = checkpoint.epochs.get(shard.source), checkpoint.lists.get(shard.source)
        if shard in self.offer.begun:
            return
        if epoch is None or (lists is not None and lists.since is not None):
            why = "its server is not known yet" if epoch is None else "its lists were just changed"
            raise ProofError(f"source:{shard.source}: {why}; it begins when that has settled")
        self.readers.require_comparable(shard, wish.origin, checkpoint)
        self.readers.require_sent_as_it_is(shard)
        self.readers.describe(shard)
        fence = self.readers.fence(shard.source, checkpoint, epoch.identity)
        place_of = self.readers.begins_at(shard, checkpoint, fence)
        begun = Backfill(wish.id, wish.origin, place_of, fence.head.identity, checkpoint.batch + 1)
        self._failed = {at: one for at, one in self._failed.items() if at[0] != shard}
        self.offer.begin(shard, begun)
        self._fences[shard] = fence

    def _go_on(
        self, wish: BackfillRequest, shard: Shard, table: Table, landed: LandedState
    ) -> None:
        """Take the next due step: split into stretches when all below has landed, or end."""
        known = landed.checkpoint.backfills[shard]
        if known.key and known.read:
            self._end(shard, known, landed.checkpoint)
        elif not known.key and self.readers.has_landed(shard, known.order, landed.checkpoint):
            self._cut(wish, shard, table, landed)

    def _cut(self, wish: BackfillRequest, shard: Shard, table: Table, landed: LandedState) -> None:
        """Split the shard into stretches along its key, as the key was at the recorded order."""
        known = landed.checkpoint.backfills[shard]
        declared = self.readers.schema(shard, landed.catalog, landed.checkpoint)
        key = _sent_key(table, declared)
        _require_key(shard, key, declared)
        _require_shown(shard, key, wish, landed.catalog.standards.of(table.name))
        if shard in self.offer.begun:
            return
        bounds = partial(self.readers.of(shard.source).bounds, shard, key, AT_ONCE)
        cut = replace(known, key=key, stretches=find_key_ranges(wish, shard, table, bounds))
        self.offer.begin(shard, cut)

    def _end(self, shard: Shard, known: Backfill, checkpoint: Checkpoint) -> None:
        """Record the end of the log after the last read: every row that was read is below it."""
        noted = self._fences.get(shard)
        fence = self.readers.fence(shard.source, checkpoint, known.identity, noted)
        end = Order(known.order.epoch, *locate_position(fence.needed))
        self.offer.end(shard, known.id, end)

    def _tasks(
        self, wish: BackfillRequest, table: Table, landed: LandedState
    ) -> Iterator[BackfillTask]:
        for shard in table.shards:
            known = landed.checkpoint.backfills.get(shard)
            if known is None or known.id != wish.id or known.done is not None or not known.key:
                continue
            waiting = [one for one in self.offer.ready if one.shard == shard]
            for number, stretch in enumerate(known.stretches):
                own = [one for one in waiting if one.stretch == number]
                if stretch.ended or any(one.ended for one in own) or self._rests(shard, number):
                    continue
                after = own[-1].read if own else stretch.read
                where = parse_condition(wish.rows.where) if wish.rows.where else None
                declared = landed.catalog.newest(shard.source, shard.name)
                asked = RowsAsked(
                    shard, known.key, after, stretch.until, 0, where, declared=declared
                )
                yield self._task(wish, table, landed, asked, number)

    def _task(
        self,
        wish: BackfillRequest,
        table: Table,
        landed: LandedState,
        asked: RowsAsked,
        number: int,
    ) -> BackfillTask:
        now = self.clock()
        shard, source = asked.shard, asked.shard.source
        known = landed.checkpoint.backfills[shard]
        rows, there = stretch_rows(wish, shard, number), tuple[int, ...]()
        if rows.span is not None and known.origin is Origin.REPAIR:
            ids, fence = self.mirror_ids, known.order
            there = ids.of(wish, shard, table, rows.span, landed.checkpoint, fence=fence)
        if shard not in self._fences:  # of an earlier process; a new fence covers everything, too
            self._fences[shard] = self.readers.fence(source, landed.checkpoint, known.identity)
        return BackfillTask(
            changes=self.log.store.uri,
            metadata=self.log.opened(now).metadata,
            stamp=Stamp(self.settings.lane, -1, now),
            router=landed.catalog.router,
            settings=self.readers.settings(source),
            open_rows=self.open_rows,
            fence=self._fences[shard],
            asked=replace(asked, keys=rows.keys),
            origin=known.origin,
            order=known.order,
            id=known.id,
            table=wish.table,
            stretch=number,
            limits=replace(
                self.limits,
                select=self._paces.get(shard, self.limits.select),
                rate=self._rate(wish, source),
            ),
            there=there,
            at=wish.at,
            standards=landed.catalog.standards,
        )

    def _read_on(self, wish: BackfillRequest, table: Table, landed: LandedState) -> None:
        """Read the next rows of each stretch; the error of one stretch does not stop the others.

        Raises:
            SluiceError: why a stretch could not be read, now or at its last attempt.
        """
        until = time.monotonic() + SOME
        while sum(one.rows for one in self.offer.ready) < AHEAD:
            tasks = tuple(self._tasks(wish, table, landed))
            rated = tasks[:1] and tasks[0].limits.rate  # the rate holds for one task only
            done = self.work(tasks[: 1 if rated else AT_ONCE])
            self._keep([one for one in done if isinstance(one, BackfillResult)])
            for one in done:
                if isinstance(one, BackfillFailure):
                    before, _ = self._failed.get((one.shard, one.stretch), (0, one.error))
                    count = 1 if one.brake else before + 1  # a brake is retried soon
                    self._failed[one.shard, one.stretch] = (count, one.error)
            smooth = all(isinstance(one, BackfillResult) and not one.brake for one in done)
            few = len(tasks) <= AT_ONCE or not wish.rows.some
            if rated or few or not smooth or time.monotonic() > until:
                break
        for (shard, _), (_, error) in self._failed.items():
            if shard in table.shards:
                raise error

    def _keep(self, done: Sequence[BackfillResult]) -> None:
        """Offer the rows to landing, and adapt the rows per statement to each server's speed."""
        self.offer.read([one.rows for one in done])
        fewest: dict[Shard, int] = {}
        for one in done:
            shard = one.rows.shard
            self._failed.pop((shard, one.rows.stretch), None)
            fewest[shard] = min(one.select, fewest.get(shard, one.select))
            self._brakes[shard] = one.brake
        for shard, select in fewest.items():
            asked = self._paces.get(shard, self.limits.select)
            faster = min(2 * asked, self.limits.select)
            self._paces[shard] = select if select < asked else faster

    def _rate(self, wish: BackfillRequest, source: str) -> int:
        """Rows per second that may be read: the lower limit of request and source; 0: no limit."""
        given = (wish.rate, read_limits(self.readers.settings(source).options).rate)
        return min(filter(None, given), default=0)

    def _rests(self, shard: Shard, stretch: int) -> bool:
        """Whether the stretch failed and waits for a retry; each wait is twice as long."""
        count, _ = self._failed.get((shard, stretch), (0, None))
        return self._round % min(1 << count, RARELY) != 0

    def _state(
        self,
        wish: BackfillRequest,
        shard: Shard | None,
        checkpoint: Checkpoint,
        trouble: SluiceError | None,
    ) -> BackfillState:
        """Return the state of a *shard*; None if no shard of the table is known."""
        known = None if shard is None else checkpoint.backfills.get(shard)
        state = BackfillState(wish.id, wish.table, "" if shard is None else str(shard))
        if known is not None and known.id == wish.id:
            state = replace(state, rows=known.rows, done=known.done, why=begun_anew(known))
        if state.done is None and trouble is None and known is not None and known.closing:
            return replace(state, why=ALL_READ)
        if state.done is None and trouble is None and (known is None or known.id != wish.id):
            return replace(state, why=NOT_YET if shard in self.offer.begun else QUEUED)
        if state.done is None and trouble is None and known is not None and not known.key:
            return replace(state, why=NOT_YET)
        if state.done is not None:
            return state
        if trouble is None:
            return replace(state, brake="" if shard is None else self._brakes.get(shard, ""))
        brake = trouble.brake if isinstance(trouble, SparedError) else ""
        refused = isinstance(trouble, ConfigError)
        return replace(state, why=str(trouble), refused=refused, brake=brake)


def _failure(wish: BackfillRequest, step: Callable[[], None]) -> SluiceError | None:
    try:
        step()
    except SluiceError as error:
        log.warning("backfill_waits", table=wish.table, why=str(error))
        return error
    except Exception as error:  # the boundary of one request: the others continue
        log.exception("backfill_failed", table=wish.table)
        return ProofError(f"{type(error).__name__}: {error}; see the log")
    return None


def _sent_key(table: Table, declared: TableSchema | None) -> tuple[str, ...]:
    """The key's columns in the order of the shard's own key, if they are the same columns."""
    if declared is not None and (not table.key or set(declared.key) == set(table.key)):
        return declared.key
    return table.key


def _require_key(shard: Shard, key: tuple[str, ...], declared: TableSchema | None) -> None:
    why = "declares no key" if not key else "has no schema here"
    if key and declared is not None:
        if len(key) == 1 or key == declared.key:
            return
        why = f"is keyed by {', '.join(key)}, and the order of their values is unknown"
    raise ConfigError(f"{shard.name} {why}, so it cannot be read in parts")


def _require_shown(
    shard: Shard, key: tuple[str, ...], wish: BackfillRequest, own: TableStandards | None
) -> None:
    """Refuse a hidden key column: the progress of the backfill would show its values."""
    standards = {name: None if own is None else own.of(name) for name in key}
    hidden = [name for name, one in standards.items() if one is not None and one.hides]
    if hidden and (wish.rows.ranges or not wish.rows.some):
        msg = f"{shard.name}: the progress would show values of key column {hidden[0]}"
        advice = (
            "name rows by their keys, or request a snapshot from the collector (execute-snapshot)"
        )
        raise ConfigError(f"{msg}, which its standard hides; {advice}")


def _is_other(known: Backfill, key: tuple[str, ...]) -> bool:
    """Whether the table's key differs from the key along which the backfill reads."""
    return known.done is None and bool(known.key and key) and known.key != key
