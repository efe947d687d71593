"""A small world in memory: a source, its log, a mirror that follows late, and room for harm.

Every committed change goes into one log; `land` makes batches of it, `apply` brings the mirror up
to a batch.  Nothing is lost unless a test loses it.  While a probe reads, `meanwhile` may change
the source between two of its queries, as other sessions do.
"""

import base64
import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from checks.mirror_state import MirrorState, MirrorTrail
from checks.model import Ruling, Verdict
from checks.run import Check, run_probe
from checks.world import (
    Allowance,
    ChangedRow,
    KeyTimes,
    LargeLooks,
    LastChange,
    LogKey,
    LogReader,
    Range,
    ShardBase,
    TableQueries,
    Transaction,
)
from pipeline.aggregates import AggregatedColumn, RangeAggregate, TimeSpan, add_up
from pipeline.apply.mirror import Commit
from pipeline.errors import SlowError, TooManyRowsError
from pipeline.finding import Finding
from pipeline.formats.json_text import canonical_key
from pipeline.model import (
    CaptureScope,
    Fence,
    Head,
    Missing,
    Op,
    Order,
    Ordering,
    Shard,
    Table,
    TopicPartition,
)
from pipeline.readings import NO_BASES, RowVersion
from pipeline.row_digest import (
    DigestColumn,
    ListedRows,
    RangeDigest,
    digest_row,
)
from pipeline.schema.history import History, SchemaChange
from pipeline.schema.model import TableSchema
from pipeline.sources.mysql.position import binlog_position
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.sources.mysql.types import read_column

ONE = Shard("shop", "shop_00.orders")
TWO = Shard("shop", "shop_01.orders")
TABLE = Table("shop.orders", (ONE, TWO), ("id",), "id")
TOO_MANY = TooManyRowsError("more rows than may be counted")
UTC_ZONE = ZoneInfo("UTC")
START = datetime(2026, 3, 2, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  - a wall's


Columns = Mapping[str, str]
Row = Mapping[str, Any]
BORN: Columns = {"id": "bigint"}


@dataclass
class Event:
    """One entry of the source's log; ``lost`` ones never land although they were promised.

    ``columns`` is a shard with its columns (name -> type) after the ``statement``.
    ``key`` is the key in the log, if it spells no id.
    """

    op: str
    shard: Shard | None = None
    id: int = 0
    tx: str = ""
    promised: int = 0
    lost: bool = False
    columns: tuple[Shard, Columns] | None = None
    statement: str = ""
    content: int = 0
    order: Order | None = None  # once it has landed
    key: str = ""


@dataclass
class FakeWorld:
    """See the module; a fresh one is empty and in step."""

    rows: dict[Shard, set[int]] = field(default_factory=lambda: {ONE: set(), TWO: set()})
    columns: dict[Shard, Columns] = field(default_factory=lambda: {ONE: BORN, TWO: BORN})
    log_: list[Event] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    applied: int = -1
    copy: dict[Shard, Counter[int]] = field(
        default_factory=lambda: {ONE: Counter(), TWO: Counter()}
    )
    fences: list[tuple[Fence, int]] = field(default_factory=list)
    time: datetime = START
    memory: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    meanwhile: list[Callable[[], object]] = field(default_factory=list)
    error: Exception | None = None
    zone: ZoneInfo = UTC_ZONE
    allowed: int = 1_000_000  # rows of one range that the source lets be counted
    listed: int = 1_000_000  # rows of one range that it lists
    refusal: Exception = TOO_MANY
    in_time: int = 1_000_000  # rows that it reads by their ids in time
    huge: set[tuple[Shard, int]] = field(default_factory=set)  # rows that it never reads in time
    huge_reads: int = 0  # that it was asked for them
    asked: int = 0  # ranges that it was asked to count
    metadata: bool = True  # whether changes name their transactions, and those end
    based: dict[str, ShardBase] = field(default_factory=dict)
    outdated: set[str] = field(default_factory=set)  # checks that remember another log
    off: set[str] = field(default_factory=set)  # checks that are switched off
    values: dict[int, Row] = field(default_factory=dict)  # of a row beside its id, at the source
    earlier: dict[int, Row] = field(default_factory=dict)  # of a row before its last update
    copied: dict[int, Row] = field(default_factory=dict)  # where the mirror has other ones
    untold: bool = False  # whether changes leave out what a row was before
    contents: dict[tuple[Shard, int], int] = field(default_factory=dict)  # of rows at the source
    copied_contents: dict[tuple[Shard, int], int] = field(default_factory=dict)
    alters: Callable[[str], str] | None = None  # of the collector
    hazards: tuple[Finding, ...] = ()
    versions: list["FakeMirror"] = field(default_factory=list)  # of the mirror; all can be read
    copied_orders: dict[tuple[Shard, int], Order] = field(default_factory=dict)  # of its rows
    mirror_id: str = "mirror"
    trails: dict[str, MirrorTrail] = field(default_factory=dict)
    foreign: set[int] = field(default_factory=set)  # versions of the mirror that are not Sluice's
    entries: dict[int, str] = field(default_factory=dict)  # digests in the mirror's log, by version
    allowed_now: Allowance = field(default_factory=Allowance)  # of the source's budget
    asked_rows: int = 0  # that the source was asked for one by one
    dropped: int = -1  # the newest batch whose changes the change log no longer has
    open_losses: set[str] = field(default_factory=set)  # ids of gaps and quarantines
    losing: bool = False  # whether more changes may be lost
    lossy: set[Shard] = field(default_factory=lambda: {ONE, TWO})  # the shards of these
    dated_columns: dict[Shard, tuple[str, ...] | Missing] = field(default_factory=dict)

    # what the world does

    def commit(self, *changes: tuple[str, Shard, int]) -> None:
        """One transaction of (op, shard, id) changes; those that change nothing are left out."""
        self.tick()
        done = [change for change in changes if self._change(*change)]
        tx = f"tx{len(self.log_)}" if self.metadata else ""
        self.log_ += [
            Event(op, shard, id_, tx, content=self.contents.get((shard, id_), 0))
            for op, shard, id_ in done
        ]
        if done and tx:
            self.log_.append(Event(Op.END, tx=tx, promised=len(done)))

    def truncate(self, shard: Shard) -> None:
        self.tick()
        self.rows[shard].clear()
        self.log_.append(Event(Op.TRUNCATE, shard))

    def snapshot(self, shard: Shard) -> None:
        """Give the shard a new base, landed and merged: whatever was lost is there again."""
        self.catch_up()
        order = Order(1, 1, len(self.log_))
        self.log_ += self._reads(shard)
        self.catch_up()
        self.based[str(shard)] = ShardBase(order, self.landed_batch())

    def _reads(self, shard: Shard) -> list[Event]:
        """The rows of a shard, as a snapshot has them."""
        return [
            Event(Op.READ, shard, id_, content=self.contents.get((shard, id_), 0))
            for id_ in self.rows[shard]
        ]

    def alter(self, shard: Shard, clause: str = "MODIFY id BIGINT", **columns: str) -> Event:
        """Let the shard have an id and *columns*, by one statement, of which *clause* is shown."""
        self.tick()
        self.columns[shard] = {**BORN, **columns}
        changed = (shard, self.columns[shard])
        self.log_.append(
            Event(Op.DDL, columns=changed, statement=f"ALTER TABLE {shard.name} {clause}")
        )
        return self.log_[-1]

    def write_heartbeat(self) -> None:
        self.tick()
        number = len(self.fences)
        self.log_.append(Event(Op.HEARTBEAT))
        fence = Fence("shop", number, self.time, Head("A", binlog_position(1, len(self.log_))))
        self.fences.append((fence, len(self.log_)))

    def land(self, most: int = 1_000_000) -> None:
        begin = self.ends[-1] if self.ends else 0
        self.ends.append(min(begin + most, len(self.log_)))
        for place, event in enumerate(self.log_[begin : self.ends[-1]], start=begin):
            event.order = event.order or Order(1, 1, place)

    def apply(self, batches: int = 1_000_000) -> None:
        until = min(self.applied + batches, len(self.ends) - 1)
        begin = self.ends[self.applied] if self.applied >= 0 else 0
        for event in self.log_[begin : self.ends[until] if until >= 0 else 0]:
            self._merge(event)
        self.applied = until

    def catch_up(self) -> None:
        self.write_heartbeat()
        self.land()
        self.apply()

    def replace_lake(self) -> None:
        """Begin an empty change log: what is in the source is a snapshot in it, in batch 0."""
        self.log_ = [event for shard in self.rows for event in self._reads(shard)]
        self.ends, self.applied, self.fences = [], -1, []
        self.copy = {shard: Counter() for shard in self.copy}
        self.outdated = set(self.memory)
        self.catch_up()

    def tick(self, length: timedelta = timedelta(milliseconds=5)) -> None:
        self.time += length

    def _change(self, op: str, shard: Shard, id_: int) -> bool:
        there = id_ in self.rows[shard]
        if op != Op.DELETE and there == (op == Op.UPDATE):
            self.contents[shard, id_] = self.contents.get((shard, id_), 0) + 1
        if op == Op.CREATE and not there:
            self.rows[shard].add(id_)
        elif op == Op.DELETE and there:
            self.rows[shard].remove(id_)
        else:
            return op == Op.UPDATE and there
        return True

    def resend(self, shard: Shard, id_: int) -> None:
        """Send the newest change of a row again, as a collector does after a restart."""
        newest = [one for one in self.log_ if (one.shard, one.id) == (shard, id_)][-1]
        self.log_.append(replace(newest))

    def _merge(self, event: Event) -> None:
        if event.shard is None or event.lost or event.order is None:
            return
        row = event.shard, event.id
        if event.order <= self.copied_orders.get(row, Order(0, 0, 0)):
            return
        self.copied_orders[row] = event.order
        if event.op == Op.TRUNCATE:
            self.copy[event.shard].clear()
        elif event.op == Op.DELETE:
            self.copy[event.shard].pop(event.id, None)
        else:
            self.copy[event.shard][event.id] = max(self.copy[event.shard][event.id], 1)
            self.copied_contents[event.shard, event.id] = event.content

    # checks.world.World

    @property
    def now(self) -> datetime:
        return self.time

    def clock(self) -> datetime:
        self.tick()
        return self.time

    def begin(self, check: str) -> None:
        raise AssertionError(f"{check} asks in a world of its own")

    def allowance(self, source: str) -> Allowance:
        assert source == "shop"
        return self.allowed_now

    def source(self, name: str) -> "FakeSource":
        assert name == "shop"
        return FakeSource(self)

    def collected(self, source: str) -> CaptureScope:
        return CaptureScope(lambda _: True, alters=self.alters, hazards=self.hazards)

    def dated(self, shard: Shard) -> tuple[str, ...] | Missing:
        return self.dated_columns.get(shard, ())

    def mirror(self, table: Table) -> "FakeMirror":
        assert table.name == TABLE.name
        newest = FakeMirror(
            {shard: counts.copy() for shard, counts in self.copy.items()},
            self.applied,
            len(self.versions),
            {**self.values, **self.copied},
            dict(self.copied_contents),
            self.versions,
            dict(self.copied_orders),
            id=self.mirror_id,
        )
        self.versions.append(newest)
        return newest

    def mirror_state(self, table: Table, since: MirrorState | None) -> MirrorState:
        newest = self.mirror(table)
        entry = self.entries.get(newest.version, f"entry {newest.version}")
        return MirrorState(newest.id, newest.version, newest.batch, entry)

    def mirror_commits(self, table: Table, since: int, until: int) -> Sequence[Commit]:
        return [
            Commit(
                version,
                "DELETE" if version in self.foreign else "MERGE",
                self.time,
                data_changing=True,
                note=None if version in self.foreign else {"sluice": {"after": version - 1}},
                entry=self.entries.get(version, f"entry {version}"),
            )
            for version in range(max(since + 1, 0), min(until + 1, len(self.versions)))
        ]

    def log(self) -> "FakeLog":
        return FakeLog(self)

    def large_looks(self) -> LargeLooks:
        raise AssertionError("no check makes large looks here")

    def end_keys(self, table: Table) -> tuple[LogKey, ...]:
        newest: dict[Shard, LogKey] = {}
        for offset, event in enumerate(self.log_):
            if event.shard and event.op != Op.TRUNCATE:
                place = TopicPartition(event.shard.name, 0)
                key = FakeLog(self).key_of(event.shard, event.id)
                newest[event.shard] = LogKey(event.shard, key, place, offset)
        return tuple(newest.values())

    def schema(self, shard: Shard) -> TableSchema | None:
        found = [_describe(shard, Order(1, 1, 0), BORN, "")]
        for n, (_, event) in enumerate(FakeLog(self).landed_events(), 1):
            if event.columns is not None and event.columns[0] == shard:
                found.append(_describe(shard, Order(1, 1, n), event.columns[1], event.statement))
        return History(*found).newest(shard.name)

    def fence_after(self, source: str, instant: datetime) -> Fence | None:
        assert source == "shop"
        return next((fence for fence, _ in self.fences if fence.at >= instant), None)

    def reached(self, table: Table, fences: Sequence[Fence]) -> bool:
        done = self.ends[self.applied] if self.applied >= 0 else 0
        return all(self.fences[fence.number][1] <= done for fence in fences)

    def held_until(self, table: Table) -> datetime | None:
        done = self.ends[self.applied] if self.applied >= 0 else 0
        return max((fence.at for fence, end in self.fences if end <= done), default=None)

    def losses(self, table: Table) -> Mapping[str, frozenset[Shard]]:
        return {id_: frozenset(self.lossy & {*table.shards}) for id_ in self.open_losses}

    def loses_changes(self, table: Table) -> bool:
        return self.losing

    def ordering(self, table: Table) -> Ordering:
        return Ordering.LOG

    def landed_batch(self) -> int:
        return len(self.ends) - 1

    def incarnation(self, batch: int) -> int | None:
        return None

    def bases(self, table: Table) -> Mapping[str, ShardBase]:
        return self.based

    def runs(self, table: Table, check: str) -> bool:
        return check not in self.off

    def recall(
        self, table: Table, check: str, *, lasting: bool = False
    ) -> Mapping[str, Any] | None:
        return None if check in self.outdated and not lasting else self.memory.get(check)

    def remember(self, table: Table, check: str, memory: Mapping[str, Any]) -> None:
        self.memory[check] = memory
        self.outdated.discard(check)


@dataclass
class FakeSource(ListedRows, TableQueries):
    """Every query sees one state, and the next maybe another."""

    world: FakeWorld

    def _rows(self, shard: Shard) -> list[int]:
        if self.world.error:
            raise self.world.error
        if self.world.meanwhile:
            self.world.meanwhile.pop()()
        return sorted(self.world.rows[shard])

    def columns(self, shard: Shard) -> Sequence[Column]:
        self._rows(shard)
        plain = dict.fromkeys(("numeric_precision", "character_maximum_length"))
        return [
            read_column({**plain, "column_name": name, "column_type": kind, "is_nullable": "YES"})
            for name, kind in self.world.columns[shard].items()
        ]

    def max_id(self, shard: Shard, column: str) -> int | None:
        return max(self._rows(shard), default=None)

    def min_id(self, shard: Shard, column: str) -> int | None:
        return min(self._rows(shard), default=None)

    def count_ids(self, shard: Shard, column: str, ranges: Sequence[Range]) -> tuple[int, ...]:
        assert column == TABLE.id_column
        rows = self._rows(shard)
        self.world.asked += len(ranges)
        counts = tuple(bisect_left(rows, high) - bisect_left(rows, low) for low, high in ranges)
        if max(counts, default=0) > self.world.allowed:
            raise self.world.refusal
        return counts

    def ids(self, shard: Shard, column: str, span: Range, limit: int) -> tuple[int, ...]:
        found = tuple(i for i in self._rows(shard) if span[0] <= i < span[1])[:limit]
        if len(found) > self.world.listed:
            raise TOO_MANY
        return found

    def digests(
        self, shard: Shard, column: str, ranges: Sequence[Range], columns: Sequence[DigestColumn]
    ) -> tuple[RangeDigest, ...]:
        rows = self._rows(shard)
        self.world.asked += len(ranges)
        found = tuple(_digest(shard, rows, one, columns, self.world.contents) for one in ranges)
        if max((one.rows for one in found), default=0) > self.world.allowed:
            raise self.world.refusal
        self._read(
            shard, [id_ for own, id_ in self.world.huge if own == shard and within(id_, ranges)]
        )
        return found

    def _read(self, shard: Shard, ids: Sequence[int]) -> None:
        """Read rows of *ids*; none in time if one of them is huge, and is there."""
        there = {
            id_ for own, id_ in self.world.huge if own == shard and id_ in self.world.rows[own]
        }
        if there & {*ids}:
            self.world.huge_reads += 1
            raise SlowError("source:shop: slow: maximum statement execution time exceeded (3024)")

    def id_digests(
        self, shard: Shard, column: str, ids: Sequence[int], columns: Sequence[DigestColumn]
    ) -> tuple[RangeDigest, ...]:
        rows, spans = self._rows(shard), [(id_, id_ + 1) for id_ in ids]
        self.world.asked_rows += len(ids)
        if len(ids) > self.world.in_time:
            raise SlowError("source:shop: slow")
        self._read(shard, ids)
        return tuple(_digest(shard, rows, one, columns, self.world.contents) for one in spans)

    def row_digests(
        self, shard: Shard, column: str, span: Range, columns: Sequence[DigestColumn], limit: int
    ) -> tuple[tuple[int, int], ...]:
        found = _listed(shard, self._rows(shard), span, columns, self.world.contents)[:limit]
        self._read(shard, [id_ for id_, _ in found])
        self.world.asked_rows += len(found)
        if len(found) > self.world.listed:
            raise TOO_MANY
        return found

    def list_rows(self, shard: Shard, names: Collection[str]) -> list[dict[str, Any]]:
        contents = self.world.contents
        return [{"id": id_, "v": contents.get((shard, id_))} for id_ in self._rows(shard)]

    def tallies(
        self,
        shard: Shard,
        column: str,
        spans: Sequence[TimeSpan],
        fields: Sequence[AggregatedColumn],
    ) -> tuple[RangeAggregate, ...]:
        rows = [{column: None, **self.world.values.get(one, {})} for one in self._rows(shard)]
        return tuple(add_up(rows, column, span, fields) for span in spans)


@dataclass
class FakeMirror(ListedRows):
    """checks.world.MirrorSide."""

    copy: dict[Shard, Counter[int]]
    batch: int
    version: int = 0
    values: Mapping[int, Row] = field(default_factory=dict)
    contents: Mapping[tuple[Shard, int], int] = field(default_factory=dict)
    versions: Sequence["FakeMirror"] = ()
    orders: Mapping[tuple[Shard, int], Order] = field(default_factory=dict)

    columns: tuple[str, ...] = ("id",)
    rewritten: str = "never"
    id: str = "mirror"

    def _rows(self, shard: Shard) -> list[int]:
        return sorted(self.copy[shard].elements())

    def rows_after(
        self, batch: int | None, columns: Collection[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        raise AssertionError("no row knows its batch here")

    def rows(self) -> int:
        return sum(counts.total() for counts in self.copy.values())

    def max_id(self, shard: Shard, column: str) -> int | None:
        return max(self._rows(shard), default=None)

    def count_ids(self, shard: Shard, column: str, ranges: Sequence[Range]) -> tuple[int, ...]:
        assert column == TABLE.id_column
        rows = self._rows(shard)
        return tuple(bisect_left(rows, high) - bisect_left(rows, low) for low, high in ranges)

    def ids(self, shard: Shard, column: str, span: Range, limit: int) -> tuple[int, ...]:
        return tuple(i for i in self._rows(shard) if span[0] <= i < span[1])[:limit]

    def digests(
        self, shard: Shard, column: str, ranges: Sequence[Range], columns: Sequence[DigestColumn]
    ) -> tuple[RangeDigest, ...]:
        rows = self._rows(shard)
        return tuple(_digest(shard, rows, one, columns, self.contents) for one in ranges)

    def row_digests(
        self, shard: Shard, column: str, span: Range, columns: Sequence[DigestColumn], limit: int
    ) -> tuple[tuple[int, int], ...]:
        return _listed(shard, self._rows(shard), span, columns, self.contents)[:limit]

    def id_digests(
        self,
        shard: Shard,
        column: str,
        ids: Sequence[int],
        columns: Sequence[DigestColumn],
        since: int | None = None,
    ) -> tuple[RangeDigest, ...]:
        return self.digests(shard, column, [(id_, id_ + 1) for id_ in ids], columns)

    def column_digests(
        self, shard: Shard, column: str, ids: Sequence[int], columns: Sequence[DigestColumn]
    ) -> tuple[tuple[RangeDigest, ...], ...]:
        each = [self.id_digests(shard, column, ids, [one]) for one in columns]
        return tuple(zip(*each, strict=True))

    def row_orders(self, shard: Shard, column: str, ids: Sequence[int]) -> dict[int, Order]:
        there = [(shard, id_) for id_ in ids if self.copy[shard][id_]]
        return {id_: self.orders[own, id_] for own, id_ in there if (own, id_) in self.orders}

    def list_rows(self, shard: Shard, names: Collection[str]) -> list[dict[str, Any]]:
        contents = self.contents
        return [{"id": id_, "v": contents.get((shard, id_))} for id_ in self._rows(shard)]

    def as_of(self, version: int) -> "FakeMirror":
        return self.versions[version]

    def tallies(
        self,
        shards: Sequence[Shard],
        column: str,
        spans: Sequence[TimeSpan],
        fields: Sequence[AggregatedColumn],
    ) -> dict[Shard, tuple[RangeAggregate, ...]]:
        found = {}
        for shard in shards:
            rows = [{column: None, **self.values.get(one, {})} for one in self._rows(shard)]
            found[shard] = tuple(add_up(rows, column, span, fields) for span in spans)
        return found

    def rows_of(self, shard: Shard, column: str, span: Range) -> Sequence[Mapping[str, Any]]:
        raise AssertionError("no check asks for whole rows")

    def rows_with_key(self, key: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        raise AssertionError("no check asks for whole rows")

    def has_keys(self, keys: Sequence[LogKey]) -> tuple[bool, ...]:
        return tuple(
            any(text(shard, id_) == key.key for shard in self.copy for id_ in self._rows(shard))
            for key in keys
        )

    def sample(self, limit: int) -> Sequence[Mapping[str, Any]]:
        return [{"id": id_} for shard in self.copy for id_ in self._rows(shard)][:limit]


class FakeLog(LogReader):
    """The change log of a world; one partition per shard."""

    def __init__(self, world: FakeWorld) -> None:
        self.world = world

    @property
    def dropped(self) -> int:
        return self.world.dropped

    @property
    def batch(self) -> int:
        return self.world.landed_batch()

    def key_of(self, shard: Shard, id_: int) -> str:
        """As Debezium spells it, with ``bigint.unsigned.handling.mode`` set to ``precise``."""
        if "unsigned" not in self.world.columns[shard]["id"]:
            return text(shard, id_)
        coded = base64.b64encode(id_.to_bytes(id_.bit_length() // 8 + 1, "big")).decode()
        return canonical_key([coded], shard.source, shard.name)

    def landed_events(self, after: int = -1, until: int | None = None) -> list[tuple[int, Event]]:
        events, first = list[tuple[int, Event]](), max(after + 1, 0)
        begin = self.world.ends[first - 1] if 0 < first <= len(self.world.ends) else 0
        newest = len(self.world.ends) - 1 if until is None else until
        for batch, end in enumerate(self.world.ends[first : max(newest + 1, 0)], start=first):
            kept = self.world.log_[begin:end]
            gone = batch <= self.world.dropped
            kept = [event for event in kept if not gone or event.op == Op.DDL]
            events += [(batch, event) for event in kept if not event.lost]
            begin = end
        return events

    def last_touches(self, table: Table, keys: Sequence[LogKey]) -> tuple[LastChange | None, ...]:
        return tuple(self._last_touch(key) for key in keys)

    def _last_touch(self, key: LogKey) -> LastChange | None:
        """Of the key's record and later ones: the log may have dropped it."""
        offsets = {id(event): offset for offset, event in enumerate(self.world.log_)}
        touches = [
            LastChange(event.op, batch)
            for batch, event in self.landed_events()
            if event.shard == key.shard and offsets[id(event)] >= key.offset
            if event.op == Op.TRUNCATE or self.key_of(key.shard, event.id) == key.key
        ]
        return touches[-1] if touches else None

    def touched(
        self, table: Table, keys: Sequence[tuple[Shard, str]], after: int
    ) -> tuple[bool, ...]:
        fresh = [event for _, event in self.landed_events(after) if event.shard]
        emptied = {event.shard for event in fresh if event.op == Op.TRUNCATE}
        rows = {self.key_of(event.shard, event.id) for event in fresh if event.shard}
        return tuple(key in rows or shard in emptied for shard, key in keys)

    def transactions(
        self, table: Table, after: int, until: int, bases: Mapping[str, ShardBase] = NO_BASES
    ) -> tuple[Transaction, ...]:
        log, landed = self.world.log_, self.world.ends[-1]
        counted = [(place, event) for place, event in enumerate(log) if event.shard]
        below = Counter(e.tx for place, e in counted if _is_below(place, bases.get(str(e.shard))))
        here = Counter(
            event.tx
            for place, event in counted
            if place < landed and not event.lost
            if not _is_below(place, bases.get(str(event.shard)))
        )
        return tuple(
            Transaction(event.tx, event.promised - below[event.tx], here[event.tx], batch)
            for batch, event in self.landed_events(after, until)
            if event.op == Op.END and event.promised > below[event.tx]
        )

    def limit_ends(self, after: int, until: int, most: int) -> int:
        ended = [batch for batch, event in self.landed_events(after, until) if event.op == Op.END]
        return max(ended[most] - 1, after + 1) if len(ended) > most else until

    def change_counts(self, table: Table, after: int, until: int) -> int:
        return sum(_is_change(event) for _, event in self.landed_events(after, until))

    def changed_rows(
        self, table: Table, after: int, until: int, *, most: int
    ) -> tuple[ChangedRow, ...] | None:
        landed = [event for _, event in self.landed_events(after, until)]
        if (
            after < self.dropped
            or len(landed) > most
            or any(event.op == Op.TRUNCATE for event in landed)
        ):
            return None
        return tuple(self._changed(one, one.shard) for one in landed if one.shard)

    def row_versions(
        self, table: Table, shard: Shard, after: int, until: int, *, most: int
    ) -> tuple[RowVersion, ...] | None:
        found = list[RowVersion]()
        if after < self.dropped:
            return None
        for _, event in self.landed_events(after, until):
            if event.shard == shard and event.op == Op.TRUNCATE:
                return None
            if event.shard == shard and event.order:
                row = json.dumps({"id": event.id, "v": event.content})
                told = None if event.op == Op.DELETE else row
                found.append(RowVersion(event.order, self.key_of(shard, event.id), told))
        found.sort(key=lambda one: one.order)
        return tuple(found) if len(found) <= most else None

    def changed_keys(
        self,
        table: Table,
        after: int,
        until: int,
        *,
        above: tuple[str, str, str] | None = None,
        most: int,
    ) -> tuple[tuple[Shard, str], ...]:
        events = [event for _, event in self.landed_events(after, until)]
        changes = [event for event in events if event.op not in (Op.TRUNCATE, Op.READ)]
        landed = [(e.shard, e.key or self.key_of(e.shard, e.id)) for e in changes if e.shard]
        keys = {(shard.source, shard.name, key) for shard, key in landed}
        later = sorted(one for one in keys if above is None or one > above)
        return tuple((Shard(source, name), key) for source, name, key in later[:most])

    def emptied_shards(self, table: Table, after: int, until: int) -> frozenset[Shard]:
        if after < min(self.dropped, until):
            return frozenset(table.shards)
        landed = [event for _, event in self.landed_events(after, until)]
        return frozenset(e.shard for e in landed if e.shard and e.op in (Op.TRUNCATE, Op.READ))

    def highest_order(self, table: Table, shard: Shard, until: int) -> Order | None:
        landed = self.landed_events(until=until)
        return max((e.order for _, e in landed if e.shard == shard and e.order), default=None)

    def _changed(self, event: Event, shard: Shard) -> ChangedRow:
        now = self.world.values.get(event.id, {})
        old, new = (_spell(event.id, own) for own in (self.world.earlier.get(event.id, now), now))
        before = old if event.op != Op.CREATE and not self.world.untold else None
        return ChangedRow(event.op, shard, before, None if event.op == Op.DELETE else new)

    def key_times(
        self,
        table: Table,
        after: int,
        until: int,
        keys: Sequence[str],
        *,
        fell_by: timedelta,
        most: int,
    ) -> tuple[KeyTimes, ...]:
        return ()

    def ended_sources(self, after: int, until: int) -> frozenset[str]:
        ended = any(event.op == Op.END for _, event in self.landed_events(after, until))
        return frozenset({ONE.source} if ended else ())

    def unended_sources(self, table: Table, after: int, until: int, back: int) -> frozenset[str]:
        ends = {event.tx for _, event in self.landed_events(back, until) if event.op == Op.END}
        changes = [event for _, event in self.landed_events(after, until) if _is_change(event)]
        named = {(event.shard.source, event.tx) for event in changes if event.shard and event.tx}
        ended = {source for source, tx in named if tx in ends}
        return frozenset({source for source, _ in named} - ended)

    def changes_without_transaction(self, table: Table, after: int, until: int) -> int:
        landed = self.landed_events(after, until)
        return sum(_is_change(event) and not event.tx for _, event in landed)


def within(id_: int, ranges: Sequence[Range]) -> bool:
    return any(low <= id_ < high for low, high in ranges)


def _describe(shard: Shard, at: Order, columns: Columns, statement: str) -> SchemaChange:
    if not columns:
        return SchemaChange("drop", shard.name, at, None, statement)
    own = tuple(Column(name, kind.upper()) for name, kind in columns.items())
    schema = TableSchema(shard.name, at, own, statement=statement)
    return SchemaChange("alter", shard.name, at, schema, statement)


def _spell(id_: int, row: Row) -> str:
    """A row as a message has it."""
    wire = {
        name: int((value - EPOCH) / timedelta(milliseconds=1))
        if isinstance(value, datetime)
        else value
        for name, value in row.items()
    }
    return json.dumps({"id": id_, **wire})


def _digest(
    shard: Shard,
    rows: Sequence[int],
    span: Range,
    columns: Sequence[DigestColumn],
    contents: Mapping[tuple[Shard, int], int],
) -> RangeDigest:
    listed = _listed(shard, rows, span, columns, contents)
    return sum((RangeDigest(1, digest) for _, digest in listed), RangeDigest())


def _listed(
    shard: Shard,
    rows: Sequence[int],
    span: Range,
    columns: Sequence[DigestColumn],
    contents: Mapping[tuple[Shard, int], int],
) -> tuple[tuple[int, int], ...]:
    inside = rows[bisect_left(rows, span[0]) : bisect_left(rows, span[1])]
    known, found = _known_digests(tuple(columns)), list[tuple[int, int]]()
    for id_ in inside:
        content = contents.get((shard, id_))
        if (digest := known.get((id_, content))) is None:
            row = {"id": id_, "v": content}
            digest = digest_row(columns, [row.get(one.name) for one in columns]).sum
            known[id_, content] = digest
        found.append((id_, digest))
    return tuple(found)


@lru_cache(maxsize=100)
def _known_digests(columns: tuple[DigestColumn, ...]) -> dict[tuple[int, int | None], int]:
    """Digests of rows by id and content, once they were made: laws ask for few of them often."""
    return {}


def _is_below(place: int, base: ShardBase | None) -> bool:
    return base is not None and place < base.order.pos


def _is_change(event: Event) -> bool:
    return event.op in {Op.CREATE, Op.UPDATE, Op.DELETE}


def text(shard: Shard, id_: int) -> str:
    """The canonical key of a row."""
    return canonical_key([str(id_)], shard.source, shard.name)


def in_step(name: str, probe: Any, world: FakeWorld, rounds: int) -> list[Ruling]:
    """Rulings of a probe on a world that catches up before each round."""
    found = []
    for _ in range(rounds):
        world.catch_up()
        answer = run_probe(Check(name, probe, TABLE), world)
        if isinstance(answer, Verdict):
            found.append(answer.ruling)
    return found


def read_twice(world: FakeWorld, check: Check) -> tuple[Verdict, Fence]:
    """The PASS of a row that was wrong at first and is read again, and the fence before that.

    The second reading is behind a later fence, and all other rows were not read again.
    """
    world.contents[ONE, 5] += 1
    run_probe(check, world)
    world.catch_up()
    first = world.fences[-1][0]
    run_probe(check, world)
    world.copied_contents[ONE, 5] += 1
    world.catch_up()
    verdict = run_probe(check, world)
    assert isinstance(verdict, Verdict)
    return verdict, first
