"""The world as one probe may see it in one round: readers pinned, heartbeats and memory at hand."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from checks.ordering import SourceOrdering, weakest
from checks.world import (
    ChangedRow,
    KeyTimes,
    LogKey,
    LogSide,
    MirrorSide,
    Range,
    SourceSide,
    Touch,
    Transaction,
)
from monitor.observe.heartbeat import FenceBook
from monitor.observe.sampler import Sampling
from monitor.observe.schemas import Schemas
from monitor.store.memory import CheckMemory
from pipeline.aggregates import SpanTally, TalliedField, TimeSpan
from pipeline.changelog.reader import LogReader
from pipeline.checkpoint import Lives
from pipeline.clocks import first_fence
from pipeline.errors import UnreachableError
from pipeline.lags.samples import LandedBatch
from pipeline.model import Fence, Missing, Ordering, Origin, Shard, Table
from pipeline.readings import NO_BASES, ShardBase
from pipeline.schema.model import Column, TableSchema


class MirrorOpener(Protocol):
    """Opens mirrors at their newest version."""

    def mirror(self, table: Table) -> MirrorSide:
        """A reader pinned to the version that is newest now."""
        ...


@dataclass(frozen=True, slots=True)
class BlamedSource:
    """A source whose silence is blamed on it by name, so that its tables share one cause."""

    name: str
    side: SourceSide

    def max_id(self, shard: Shard, column: str) -> int | None:
        """As the source says."""
        with self._blamed():
            return self.side.max_id(shard, column)

    def min_id(self, shard: Shard, column: str) -> int | None:
        """As the source says."""
        with self._blamed():
            return self.side.min_id(shard, column)

    def count_ids(self, shard: Shard, column: str, ranges: Sequence[Range]) -> tuple[int, ...]:
        """As the source says."""
        with self._blamed():
            return self.side.count_ids(shard, column, ranges)

    def tallies(
        self, shard: Shard, column: str, spans: Sequence[TimeSpan], fields: Sequence[TalliedField]
    ) -> tuple[SpanTally, ...]:
        """As the source says."""
        with self._blamed():
            return self.side.tallies(shard, column, spans, fields)

    def ids(self, shard: Shard, column: str, span: Range, limit: int) -> tuple[int, ...]:
        """As the source says."""
        with self._blamed():
            return self.side.ids(shard, column, span, limit)

    def columns(self, shard: Shard) -> Sequence[Column]:
        """As the source says."""
        with self._blamed():
            return self.side.columns(shard)

    @contextmanager
    def _blamed(self) -> Iterator[None]:
        try:
            yield
        except UnreachableError as error:
            if str(error).startswith("source:"):
                raise
            raise UnreachableError(f"source:{self.name}: {error}") from error


@dataclass(frozen=True, slots=True)
class LandedLog:
    """The change log's reader, the topics' newest keys, and the landed schemas."""

    changes: LogReader
    keys: Callable[[Table], tuple[LogKey, ...]]
    schemas: Schemas

    def last_touches(self, table: Table, keys: Sequence[LogKey]) -> tuple[Touch | None, ...]:
        """As the change log says."""
        return self.changes.last_touches(table, keys)

    def touched(
        self, table: Table, keys: Sequence[tuple[Shard, str]], after: int
    ) -> tuple[bool, ...]:
        """As the change log says."""
        return self.changes.touched(table, keys, after)

    def end_keys(self, table: Table) -> tuple[LogKey, ...]:
        """As the topics say."""
        return self.keys(table)

    def transactions(
        self,
        table: Table,
        after: int,
        until: int,
        bases: Mapping[str, ShardBase] = NO_BASES,
    ) -> tuple[Transaction, ...]:
        """As the change log says."""
        return self.changes.transactions(table, after, until, bases)

    def change_counts(self, table: Table, after: int, until: int) -> int:
        """As the change log says."""
        return self.changes.change_counts(table, after, until)

    def changes_without_transaction(self, table: Table, after: int, until: int) -> int:
        """As the change log says."""
        return self.changes.changes_without_transaction(table, after, until)

    def changed_rows(
        self, table: Table, after: int, until: int, *, most: int
    ) -> tuple[ChangedRow, ...] | None:
        """As the change log says."""
        return self.changes.changed_rows(table, after, until, most=most)

    def key_times(
        self, table: Table, after: int, until: int, keys: Sequence[str], *, most: int
    ) -> tuple[KeyTimes, ...]:
        """As the change log says."""
        return self.changes.key_times(table, after, until, keys, most=most)

    def schema(self, shard: Shard) -> TableSchema | None:
        """As the change log says."""
        return self.schemas.newest(shard, self.changes)


@dataclass(eq=False)
class RoundWorld:
    """Fits :class:`checks.world.World`; one per table and round: its probes see one mirror."""

    look: Sampling
    sources: Mapping[str, SourceSide]
    mirrors: MirrorOpener
    open_log: Callable[[], LogSide]
    fences: FenceBook
    memory: CheckMemory
    clock_now: Callable[[], datetime]
    now: datetime
    zone: ZoneInfo
    orderings: Mapping[str, SourceOrdering]
    _mirrors: dict[str, MirrorSide] = field(default_factory=dict)
    _log: list[LogSide] = field(default_factory=list)

    def source(self, name: str) -> SourceSide:
        """The source of that name."""
        return BlamedSource(name, self.sources[name])

    def mirror(self, table: Table) -> MirrorSide:
        """The mirror at the version that was newest when it was first asked for."""
        if table.name not in self._mirrors:
            self._mirrors[table.name] = self.mirrors.mirror(table)
        return self._mirrors[table.name]

    def log(self) -> LogSide:
        """The change log and the topics."""
        if not self._log:
            self._log.append(self.open_log())
        return self._log[0]

    def clock(self) -> datetime:
        """Now."""
        return self.clock_now()

    def fence_after(self, source: str, instant: datetime) -> Fence | None:
        """The first heartbeat at or after *instant*; None if it is not written yet."""
        return first_fence(self.fences.of(source), instant)

    def reached(self, table: Table, fences: Sequence[Fence]) -> bool:
        """Whether a batch that covers every one of *fences* is applied to the pinned mirror.

        Not while rows of before are still read for the first time, nor before they are merged.
        """
        covering = self._covering(fences)
        if not covering:  # a mirror is opened only where its answer matters: it may be many
            return False
        applied = self.mirror(table).batch
        return not self._awaits_base(table, applied) and any(
            step.holds(table.name, applied) for step in covering
        )

    def _covering(self, fences: Sequence[Fence]) -> Sequence[LandedBatch]:
        """Steps that have passed all *fences*: looked for once a look, however many tables ask."""

        def covering() -> tuple[LandedBatch, ...]:
            steps = self.look.steps
            return tuple(one for one in steps if all(_past(one.passed, f) for f in fences))

        asked = tuple((one.source, one.number, one.head.identity) for one in fences)
        return self.look.once(("passed", asked), covering)

    def _awaits_base(self, table: Table, applied: int) -> bool:
        """Whether its newest base is not merged, or the first of a shard is being read."""
        if isinstance(self.look.mark, Missing):
            return False
        mark, names = self.look.mark.value, tuple(map(str, table.shards))
        read = (mark.rereads.get(name) for name in names if name not in mark.bases)
        first = any(r and r.done is None and r.origin is Origin.SNAPSHOT for r in read)
        return first or any(mark.complete.get(name, -1) > applied for name in names)

    def ordering(self, table: Table) -> Ordering:
        """As its sources' formats say."""
        return weakest(table, self.orderings)

    def landed_batch(self) -> int:
        """The newest batch of the lane when the round began; -1 before the first."""
        mark = self.look.mark
        return -1 if isinstance(mark, Missing) else mark.value.batch

    def bases(self, table: Table) -> Mapping[str, ShardBase]:
        """Those that were whole when the round began, and are merged into the pinned mirror."""
        if isinstance(self.look.mark, Missing):
            return NO_BASES
        mark, applied = self.look.mark.value, self.mirror(table).batch
        names = (str(shard) for shard in table.shards)
        return {
            name: ShardBase(mark.bases[name], mark.based[name])
            for name in names
            if name in mark.bases and name in mark.based
            if mark.complete.get(name, applied + 1) <= applied
        }

    def recall(
        self, table: Table, check: str, *, lasting: bool = False
    ) -> Mapping[str, Any] | None:
        """What the check asked to be remembered, if this is still the log of then."""
        found = self.memory.recall(table.name, check)
        if found is None or "kept" not in found:
            return None
        kept: Mapping[str, Any] = found["kept"]
        return kept if lasting or self._is_log_of(found["batch"], found["life"]) else None

    def remember(self, table: Table, check: str, memory: Mapping[str, Any]) -> None:
        """Keep *memory* for the next round."""
        batch = self.landed_batch()
        stamp = {"kept": memory, "batch": batch, "life": self._life(batch)}
        self.memory.remember(table.name, check, stamp, self.now)

    def _is_log_of(self, batch: int, life: int | None) -> bool:
        """Whether the log, if it can be read, holds that *batch* as it was landed then."""
        if isinstance(self.look.mark, Missing) or batch < 0:
            return True
        now = self._life(batch)
        return batch <= self.landed_batch() and (None in (life, now) or life == now)

    def _life(self, batch: int) -> int | None:
        mark = self.look.mark
        if isinstance(mark, Missing):
            return None
        told = mark.value.lives
        return self.look.once("lives", lambda: Lives.of(told)).at(batch)


def _past(passed: Mapping[str, Fence], fence: Fence) -> bool:
    found = passed.get(fence.source)
    if found is None or found.head.identity != fence.head.identity:
        return False
    return found.number >= fence.number
