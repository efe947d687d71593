"""Computes statistics of a batch from its rows, per run in the tasks and added up in the driver.

Statistics are computed where the rows are made, so that no row is sent to the driver. They are
added up before the batch is committed.

Column descriptions that come with rows land only if they are new. A format without schema
events repeats them with the first row of each decoded batch. What is new is decided by order,
once all rows of the batch were seen. A partition that is behind, or another task, may describe
columns that were in force in between. Statements have no schema number, and all of them land.

Cannot detect: columns that return after others, if only a partition that is behind describes
the others, in a later batch. The next batch of rows describes them again.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from itertools import chain
from operator import add
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.changelog.table import MIRROR_OPS
from pipeline.checkpoint import DescribedSchema
from pipeline.errors import FormatError
from pipeline.formats.format import AROUND, INCREMENTAL
from pipeline.heartbeats import HeartbeatRow, LandedHeartbeat
from pipeline.landing.order_check import (
    NO_FLOORS,
    Ints,
    OrderStretch,
    find_highest_orders,
    find_stretches,
    group_rows,
    order_of,
    read_places,
)
from pipeline.minute_counts import MinuteCounts, add_tables, bounded, count_groups, count_minutes
from pipeline.model import (
    ORDER_PARTS,
    Op,
    Order,
    OrderSpan,
    Origin,
    Shard,
    SourcePartition,
    TopicPartition,
)
from pipeline.schema.history import SchemaChange, SchemaReader
from pipeline.schema.model import SchemaEvent

NAMED = 1_000  # quarantined changes of a subject that are kept by name, and so can be corrected
_ENDS = ("last", "last_in_data_collection")
_MIRRORED = pa.array([str(op) for op in MIRROR_OPS])

Place = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclass(frozen=True, slots=True)
class SnapshotRows:
    """Rows of one shard's snapshot, all of one order; ``ended`` if the last row is among them.

    ``torn`` is True if other rows of it are of the epoch before, because the server was replaced
    meanwhile.
    """

    order: Order
    rows: int
    ended: bool
    topics: frozenset[str] = frozenset()
    torn: bool = False

    def with_rows(self, other: "SnapshotRows") -> "SnapshotRows":
        """Return both if they are of one snapshot, else the newer one."""
        if self.order != other.order:
            before, newer = sorted((self, other), key=lambda one: one.order)
            return replace(newer, torn=newer.torn or newer.goes_on(before.order))
        ended, topics = self.ended or other.ended, self.topics | other.topics
        torn = self.torn or other.torn
        return SnapshotRows(self.order, self.rows + other.rows, ended, topics, torn)

    def goes_on(self, before: Order) -> bool:
        """Return whether rows at *before* are of the same snapshot, in a lower epoch."""
        return before.epoch < self.order.epoch and before.parts[1:] == self.order.parts[1:]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Unreadable changes of one shard or topic: their number, and the positions of the first.

    ``table`` is None if the shard is unknown.
    """

    source: str
    table: str | None
    count: int
    first: tuple[Place, ...]

    def with_more(self, other: "Unreadable") -> "Unreadable":
        """Return both together; the first ``NAMED`` positions are kept."""
        first = sorted((*self.first, *other.first))[:NAMED]
        return Unreadable(self.source, self.table, self.count + other.count, tuple(first))


@dataclass(frozen=True, slots=True)
class AroundRows:
    """Live rows of one shard that may have an order below the snapshot before them.

    ``order`` is the lowest; ``rows`` names them as if they could not be read.
    """

    order: Order
    rows: Unreadable

    def with_more(self, other: "AroundRows") -> "AroundRows":
        """Return both together."""
        return AroundRows(min(self.order, other.order), self.rows.with_more(other.rows))


@dataclass(frozen=True, slots=True)
class RunStats:
    """Counts and bounds of some rows; keys as in :class:`pipeline.checkpoint.Checkpoint`.

    ``tables``      table -> rows that change its mirror.
    ``shards``      ``source/shard`` -> its table, of every shard with such a row.
    ``firsts``      ``source/shard`` -> lowest order of such a row.
    ``heartbeats``  source -> highest number.
    ``landed_heartbeats``  source -> each of its heartbeats that has an order.
    ``heartbeat_rows``  source -> all rows of its heartbeat table, except replayed ones.
    ``wholes``      source -> order of its newest snapshot that read the heartbeat table, too.
    ``snapshots``   ``source/shard`` -> its newest snapshot's rows.
    ``statements``  schema changes of any kind, as rows of ``SLIM``.
    ``errors``      ``source/shard`` (or ``topic:NAME`` if that is unknown) -> unreadable changes.
    ``stretches``   the orders of each partition.
    ``around``      ``source/shard`` -> its rows of ``AROUND``.
    ``minutes``     table -> its rows by minute and op.
    ``landed``      partition -> its rows by table (empty: none) and op; no column descriptions.
    """

    rows: int
    tables: Mapping[str, int]
    shards: Mapping[str, str]
    firsts: Mapping[str, Order]
    heartbeats: Mapping[str, int]
    snapshots: Mapping[str, SnapshotRows]
    statements: tuple[Mapping[str, Any], ...]
    errors: Mapping[str, Unreadable]
    stretches: tuple[OrderStretch, ...]
    around: Mapping[str, AroundRows]
    wholes: Mapping[str, Order]
    landed_heartbeats: Mapping[str, tuple[LandedHeartbeat, ...]]
    heartbeat_rows: Mapping[str, tuple[HeartbeatRow, ...]] = field(default_factory=dict)
    minutes: Mapping[str, MinuteCounts] = field(default_factory=dict)
    landed: Mapping[TopicPartition, Mapping[tuple[str, str], int]] = field(default_factory=dict)


def tally_rows(rows: pa.Table) -> RunStats:
    """Sum up *rows* of ``SLIM``."""
    mirrored = _filter_rows(
        rows, pc.and_(pc.is_in(rows["op"], _MIRRORED), pc.is_valid(rows["table"]))
    )
    codes, firsts = group_rows(mirrored, ["source", "shard", "table"])
    shards = mirrored.select(["source", "shard", "table"]).take(pa.array(firsts)).to_pylist()
    names = [str(Shard(one["source"], one["shard"])) for one in shards]
    tables = [one["table"] for one in shards]
    return RunStats(
        rows=rows.num_rows,
        tables=_counts(tables, codes),
        shards=dict(zip(names, tables, strict=True)),
        firsts=_firsts(mirrored, codes, names),
        heartbeats=_heartbeats(_rows_of(rows, Op.HEARTBEAT)),
        snapshots=_snapshots(_rows_of(rows, Op.READ)),
        statements=tuple(_rows_of(rows, Op.DDL).to_pylist()),
        errors=_errors(_rows_of(rows, Op.ERROR)),
        stretches=find_stretches(rows),
        around=_around(
            mirrored.filter(pc.fill_null(pc.equal(mirrored["snapshot"], AROUND), False))
        ),
        wholes=_wholes(_rows_of(rows, Op.HEARTBEAT)),
        landed_heartbeats=_find_landed_heartbeats(_rows_of(rows, Op.HEARTBEAT)),
        heartbeat_rows=_heartbeat_rows(_rows_of(rows, Op.HEARTBEAT)),
        minutes=count_minutes(rows),
        landed=_count_landed(rows),
    )


def describes_columns(rows: pa.Table | pa.RecordBatch) -> Any:
    """Return which rows are column descriptions; these land with changes, and only if they are new.

    In: op, schema_id of ``DECODED`` or ``CHANGES``.
    """
    return pc.and_(pc.equal(rows["op"], str(Op.DDL)), pc.is_valid(rows["schema_id"]))


def _count_landed(rows: pa.Table) -> dict[TopicPartition, dict[tuple[str, str], int]]:
    """Count the rows that came through a topic, by partition, table and op."""
    some = rows.select(["topic", "partition", "table", "op"])
    own = _filter_rows(some, pc.and_not(pc.is_valid(rows["topic"]), describes_columns(rows)))
    found: dict[TopicPartition, dict[tuple[str, str], int]] = {}
    tables = pc.fill_null(own["table"], "")
    groups = count_groups(own["topic"], own["partition"], tables, own["op"])
    for topic, partition, table, op, number in groups:
        found.setdefault(TopicPartition(topic, partition), {})[table, op] = number
    return found


def _filter_rows(rows: pa.Table, mask: pa.ChunkedArray) -> pa.Table:
    """Return the rows of *mask*; *rows* itself if the mask is True for all."""
    return rows if pc.all(mask, min_count=0).as_py() else rows.filter(mask)


def _rows_of(rows: pa.Table, op: Op) -> pa.Table:
    return rows.filter(pc.equal(rows["op"], str(op)))


def _counts(tables: list[str], codes: Ints) -> dict[str, int]:
    counts: dict[str, int] = {}
    for table, count in zip(tables, np.bincount(codes).tolist(), strict=True):
        counts[table] = counts.get(table, 0) + count
    return counts


def _firsts(rows: pa.Table, codes: Ints, names: list[str]) -> dict[str, Order]:
    """Return the lowest order of each group of *codes* that has any.

    The parts of the order are compared one after the other, each among the rows that are left.
    """
    placed = np.asarray(pc.is_valid(rows["log"]))
    left, columns = codes[placed], [column[placed] for column in read_places(rows)]
    found, parts = np.unique(left), []
    for number, column in enumerate(columns):
        lowest = np.full(len(names), np.iinfo(np.int64).max)
        np.minimum.at(lowest, left, column)
        parts.append(lowest[found].tolist())
        keep = column == lowest[left]
        left, columns[number + 1 :] = left[keep], [one[keep] for one in columns[number + 1 :]]
    orders = (Order(*place) for place in zip(*parts, strict=True))
    return {names[code]: order for code, order in zip(found.tolist(), orders, strict=True)}


def _heartbeats(heartbeats: pa.Table) -> dict[str, int]:
    """Return source -> highest heartbeat number, without heartbeats that were read beside the log.

    Those may be far ahead of the log.
    """
    result: dict[str, int] = {}
    beside = pc.equal(pc.fill_null(heartbeats["snapshot"], ""), INCREMENTAL)
    beside = pc.or_(beside, pc.equal(heartbeats["origin"], int(Origin.REPLAY)))
    for heartbeat in heartbeats.filter(pc.invert(beside)).select(["source", "note"]).to_pylist():
        number = int(heartbeat["note"]) if (heartbeat["note"] or "").isdigit() else -1
        result[heartbeat["source"]] = max(number, result.get(heartbeat["source"], -1))
    return result


def _find_landed_heartbeats(heartbeats: pa.Table) -> dict[str, tuple[LandedHeartbeat, ...]]:
    """Return source -> the heartbeats that came from the log."""
    result: dict[str, list[LandedHeartbeat]] = {}
    live = pc.and_(pc.is_valid(heartbeats["log"]), pc.equal(heartbeats["origin"], int(Origin.LIVE)))
    for heartbeat in heartbeats.filter(live).to_pylist():
        if (heartbeat["note"] or "").isdigit():
            place = (heartbeat["topic"], heartbeat["partition"], heartbeat["offset"])
            one = LandedHeartbeat(int(heartbeat["note"]), *place, order_of(heartbeat))
            result.setdefault(heartbeat["source"], []).append(one)
    return {source: tuple(own) for source, own in result.items()}


def _heartbeat_rows(heartbeats: pa.Table) -> dict[str, tuple[HeartbeatRow, ...]]:
    result: dict[str, list[HeartbeatRow]] = {}
    for row in heartbeats.to_pylist():
        if row["origin"] == int(Origin.REPLAY):
            continue
        beside = row["snapshot"] == INCREMENTAL
        number = int(row["note"]) if (row["note"] or "").isdigit() and not beside else -1
        order = None if row["log"] is None else order_of(row)
        at = (row["topic"], row["partition"], row["offset"])
        one = HeartbeatRow(number, *at, order, read=row["origin"] != int(Origin.LIVE))
        result.setdefault(row["source"], []).append(one)
    return {source: tuple(own) for source, own in result.items()}


def _wholes(heartbeats: pa.Table) -> dict[str, Order]:
    result: dict[str, Order] = {}
    read = pc.and_(
        pc.is_valid(heartbeats["snapshot"]), pc.not_equal(heartbeats["snapshot"], AROUND)
    )
    read = pc.and_(
        pc.and_(read, pc.not_equal(heartbeats["snapshot"], INCREMENTAL)),
        pc.is_valid(heartbeats["log"]),
    )
    for heartbeat in heartbeats.filter(read).to_pylist():
        name, order = heartbeat["source"], order_of(heartbeat)
        result[name] = max(order, result.get(name, order))
    return result


def _snapshots(reads: pa.Table) -> dict[str, SnapshotRows]:
    reads = reads.filter(pc.not_equal(pc.fill_null(reads["snapshot"], ""), INCREMENTAL))
    found: dict[str, SnapshotRows] = {}
    names = ["source", "shard", *ORDER_PARTS, "snapshot", "topic"]
    for group in reads.group_by(names).aggregate([([], "count_all")]).to_pylist():
        name = str(Shard(group["source"], group["shard"]))
        ended, topics = group["snapshot"] in _ENDS, frozenset({group["topic"]})
        one = SnapshotRows(order_of(group), group["count_all"], ended, topics)
        found[name] = one.with_rows(found[name]) if name in found else one
    return found


def _around(rows: pa.Table) -> dict[str, AroundRows]:
    """Return the rows by shard; they are only those of a collector's first transaction."""
    found: dict[str, AroundRows] = {}
    for row in rows.to_pylist() if rows.num_rows else ():
        name = str(Shard(row["source"], row["shard"]))
        where = (row["topic"], row["partition"], row["offset"])
        one = AroundRows(order_of(row), Unreadable(row["source"], row["table"], 1, (where,)))
        found[name] = found[name].with_more(one) if name in found else one
    return found


def _errors(errors: pa.Table) -> dict[str, Unreadable]:
    """Return unreadable changes by shard if it and its table are known, else by topic."""
    known = pc.and_(pc.is_valid(errors["table"]), pc.is_valid(errors["shard"]))
    shard = pc.binary_join_element_wise(errors["source"], errors["shard"], "/")
    topic = pc.binary_join_element_wise("topic", errors["topic"], ":")
    errors = errors.append_column("subject", pc.if_else(known, shard, topic))
    by_place = [(name, "ascending") for name in ("subject", "topic", "partition", "offset")]
    errors = errors.sort_by(by_place)
    counts = errors.group_by("subject", use_threads=False).aggregate([([], "count_all")])
    found: dict[str, Unreadable] = {}
    start = 0
    for subject, count in zip(*(column.to_pylist() for column in counts.columns), strict=True):
        first = errors.slice(start, min(count, NAMED)).to_pylist()
        table = None if subject == f"topic:{first[0]['topic']}" else first[0]["table"]
        where = tuple((row["topic"], row["partition"], row["offset"]) for row in first)
        found[subject] = Unreadable(first[0]["source"], table, count, where)
        start += count
    return found


T = TypeVar("T")
_SIZE = 16  # bytes of a digest


@dataclass(eq=False, slots=True)
class _Stretch(Generic[T]):
    """A run of equal descriptions of a shard's columns: the first and the last, with their rows.

    A description that was known before this batch has no row.
    """

    digest: str
    first: tuple[Order, T | None]
    last: tuple[Order, T | None]


@dataclass(eq=False)
class SchemaSteps(Generic[T]):
    """Described columns of shards by order, without repetitions.

    *known*: ``source/shard`` -> the newest description before this batch.
    """

    known: Mapping[str, DescribedSchema]
    _steps: dict[str, list[_Stretch[T]]] = field(default_factory=dict)

    def note(self, name: str, schema: DescribedSchema, row: T) -> None:
        """Note that *row* describes these columns of the shard *name*."""
        steps, here = self._of(name), (schema.order, row)
        at = bisect_right(steps, schema.order, key=lambda one: one.first[0])
        before, after = steps[at - 1] if at else None, steps[at] if at < len(steps) else None
        if before is not None and before.digest == schema.digest:
            before.last = max(before.last, here, key=_place)
        elif before is not None and before.last[0] > schema.order:  # it comes between
            left = _Stretch(before.digest, before.last, before.last)
            before.last = before.first
            steps[at:at] = [_Stretch(schema.digest, here, here), left]
        elif after is not None and after.digest == schema.digest:
            after.first = here
        else:
            steps.insert(at, _Stretch(schema.digest, here, here))

    def news(self) -> Iterator[T]:
        """Yield the rows that describe other columns than the row before, by shard and order."""
        for steps in self._steps.values():
            yield from (one.first[1] for one in steps if one.first[1] is not None)

    def ends(self) -> Iterator[T]:
        """Yield the rows of ``news``, and the last repetition of each.

        Between them another task may have read other columns.
        """
        for steps in self._steps.values():
            for one in steps:
                both = (one.first,) if one.first[0] == one.last[0] else (one.first, one.last)
                yield from (row for _, row in both if row is not None)

    def _of(self, name: str) -> list[_Stretch[T]]:
        if name not in self._steps:
            self._steps[name] = []
            if (one := self.known.get(name)) is not None:
                self._steps[name].append(_Stretch(one.digest, (one.order, None), (one.order, None)))
        return self._steps[name]


@dataclass(eq=False)
class SchemaDeduplicator:
    """Drops repeated column descriptions from the rows of ``CHANGES`` that one task reads.

    *known* as in :class:`SchemaSteps`; empty if other tasks read the same tables. Then the driver
    must judge their descriptions together, and the last repetition of each counts, too.
    """

    known: Mapping[str, DescribedSchema]
    _steps: SchemaSteps[pa.RecordBatch] = field(init=False)

    def __post_init__(self) -> None:
        """Start from the known schemas."""
        self._steps = SchemaSteps(self.known)

    def among(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield *batches* without column descriptions, then the descriptions that are new."""
        yield from (rows for rows in map(self._parted, batches) if len(rows))
        if news := list(self._steps.news() if self.known else self._steps.ends()):
            yield pa.Table.from_batches(news).combine_chunks().to_batches()[0]

    def _parted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return *rows* without column descriptions, and note those."""
        describes = describes_columns(rows)
        if not describes.true_count:
            return rows
        for at in np.flatnonzero(describes.to_numpy(zero_copy_only=False)).tolist():
            alone = rows.take(pa.array([at]))  # a slice would keep all other rows in memory
            row = alone.select(["source", "shard", "order", "after"]).to_pylist()[0]
            one = described_schema(Order(**row["order"]), row["after"])
            self._steps.note(str(Shard(row["source"], row["shard"])), one, alone)
        return rows.filter(pc.invert(describes))


def drop_repeated(
    statements: Iterable[Mapping[str, Any]], known: Mapping[str, DescribedSchema]
) -> list[Mapping[str, Any]]:
    """Return *statements* (of ``SLIM``) of all tasks of a batch, without repeated descriptions.

    They are judged by order: columns that return are found only if all earlier descriptions are
    known.
    """
    steps: SchemaSteps[Mapping[str, Any]] = SchemaSteps(known)
    every = list(statements)
    for row in sorted(filter(_describes_columns, every), key=order_of):
        steps.note(_name(row), _schema(row), row)
    return [*(row for row in every if not _describes_columns(row)), *steps.news()]


def find_newest_schemas(statements: Iterable[Mapping[str, Any]]) -> dict[str, DescribedSchema]:
    """Return ``source/shard`` -> the newest schema that rows of *statements* describe."""
    found: dict[str, DescribedSchema] = {}
    for row in statements:
        if _describes_columns(row):
            _learn(found, _name(row), _schema(row))
    return found


def described_schema(order: Order, payload: str) -> DescribedSchema:
    """Return the schema that *payload* describes from *order* on."""
    return DescribedSchema(order, _digest(payload))


def merge_schemas(
    known: Mapping[str, DescribedSchema], newer: Mapping[str, DescribedSchema]
) -> dict[str, DescribedSchema]:
    """Return the newer of both for each shard."""
    found = dict(known)
    for name, one in newer.items():
        _learn(found, name, one)
    return found


def _learn(known: dict[str, DescribedSchema], name: str, one: DescribedSchema) -> None:
    before = known.get(name)
    if before is None or one.order >= before.order:
        known[name] = one


def _place(one: tuple[Order, object]) -> Order:
    return one[0]


def _describes_columns(row: Mapping[str, Any]) -> bool:
    return row["schema_id"] is not None and row["log"] is not None


def _name(row: Mapping[str, Any]) -> str:
    return str(Shard(row["source"], row["shard"]))


def _schema(row: Mapping[str, Any]) -> DescribedSchema:
    return described_schema(order_of(row), row["note"])


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=_SIZE).hexdigest()


@dataclass(frozen=True, slots=True)
class SchemaNews:
    """A schema change of a source; ``snapshot`` if it describes a table about to be read.

    ``captured`` if the collector sends the table's rows: schema events name other tables, too. The
    next three state whether a CREATE makes an empty table: ``empty`` where no table existed,
    ``over`` where one existed, ``new`` where that is unknown. ``signalled`` if a signal requested
    the snapshot.
    """

    source: str
    change: SchemaChange
    snapshot: bool
    captured: bool = True
    empty: bool = True
    over: bool = False
    new: bool = True
    signalled: bool = False

    @property
    def shard(self) -> Shard:
        """Return the shard that it is about."""
        return Shard(self.source, self.change.shard)

    @property
    def name(self) -> str:
        """Return the text of that shard."""
        return str(self.shard)

    @property
    def former(self) -> Shard | None:
        """Return the shard's earlier name, if it was renamed."""
        before = self.change.previous
        return None if before is None else Shard(self.source, before)


@dataclass(frozen=True, slots=True)
class DroppedDatabase:
    """A database that was dropped at ``order``, with all its tables; no event names the tables."""

    source: str
    order: Order
    database: str
    text: str


@dataclass(frozen=True, slots=True)
class UnreadChanges:
    """Unreadable changes of one shard or topic: their number, and the names of the first.

    ``table`` is None if the shard is unknown. An id is ``topic:partition:offset``.
    """

    source: str
    table: str | None
    count: int
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BatchStats:
    """Counts and maxima of one batch; keys as in :class:`pipeline.checkpoint.Checkpoint`.

    ``tables``      table -> rows that change its mirror.
    ``shards``      ``source/shard`` -> its table, of every shard with such a row.
    ``heartbeats``  source -> highest number.
    ``landed_heartbeats``  source -> each of its heartbeats that has an order.
    ``heartbeat_rows``  source -> all rows of its heartbeat table, except replayed ones.
    ``wholes``      source -> order of its newest snapshot that read the heartbeat table, too.
    ``high``        partition of a source -> highest LIVE order.
    ``snapshots``   ``source/shard`` -> its newest snapshot's rows.
    ``news``        schema changes, in log order; one that cannot be read is an error.
    ``initial``     source -> orders of its snapshots that were taken of all tables.
    ``statements``  number of schema changes of any kind, including those about no table.
    ``databases``   dropped databases, in log order.
    ``schemas``     ``source/shard`` -> the newest columns that its rows describe.
    ``texts``       (source, text) of the statements that are not part of a snapshot.
    ``firsts``      ``source/shard`` -> lowest order of a row, for shards created in the batch.
    ``errors``      ``source/shard`` (or ``topic:NAME`` if that is unknown) -> unreadable changes.
    ``around``      ``source/shard`` -> live rows whose order may be below the snapshot before them.
    ``doubted``     partitions with rows whose order may be too low.
    ``hidden``      ``source/shard`` that is captured, and whose topic Sluice may not see.
    ``late``        ``source/shard`` with rows below the landed order, which the broker refused when
                    they came first, or which a waiver accepts.
    ``let_pass``    ``source/shard`` with rows that a waiver accepts -> their lowest order in the
                    old epoch, and the highest order of the rows behind them.
    ``minutes``     table -> its rows by minute and op.
    """

    rows: int = 0
    tables: Mapping[str, int] = field(default_factory=dict)
    shards: Mapping[str, str] = field(default_factory=dict)
    heartbeats: Mapping[str, int] = field(default_factory=dict)
    high: Mapping[SourcePartition, Order] = field(default_factory=dict)
    snapshots: Mapping[str, SnapshotRows] = field(default_factory=dict)
    news: tuple[SchemaNews, ...] = ()
    initial: Mapping[str, frozenset[Order]] = field(default_factory=dict)
    statements: int = 0
    databases: tuple[DroppedDatabase, ...] = ()
    schemas: Mapping[str, DescribedSchema] = field(default_factory=dict)
    texts: tuple[tuple[str, str], ...] = ()
    firsts: Mapping[str, Order] = field(default_factory=dict)
    errors: Mapping[str, UnreadChanges] = field(default_factory=dict)
    around: Mapping[str, AroundRows] = field(default_factory=dict)
    doubted: frozenset[TopicPartition] = frozenset()
    hidden: frozenset[str] = frozenset()
    late: frozenset[str] = frozenset()
    let_pass: Mapping[str, OrderSpan] = field(default_factory=dict)
    wholes: Mapping[str, Order] = field(default_factory=dict)
    landed_heartbeats: Mapping[str, tuple[LandedHeartbeat, ...]] = field(default_factory=dict)
    heartbeat_rows: Mapping[str, tuple[HeartbeatRow, ...]] = field(default_factory=dict)
    minutes: Mapping[str, MinuteCounts] = field(default_factory=dict)

    @property
    def reported_minutes(self) -> dict[str, MinuteCounts | None]:
        """Return ``minutes`` in the reported form; None for a table with too many of them."""
        return {table: bounded(counts) for table, counts in self.minutes.items()}


def gather_stats(
    runs: Sequence[RunStats],
    high: Mapping[SourcePartition, Order],
    readings: Mapping[str, SchemaReader],
    schemas: Mapping[str, DescribedSchema] | None = None,
    floors: Mapping[SourcePartition, Order] = NO_FLOORS,
) -> BatchStats:
    """Add up the statistics of a batch's runs; *high* is the highest LIVE order landed before.

    *readings*: source -> how its schema changes are read. *schemas* are the newest columns that
    rows described before. *floors* as of :func:`pipeline.landing.order_check.find_highest_orders`.
    """
    statements = drop_repeated((row for tally in runs for row in tally.statements), schemas or {})
    reached, doubted = find_highest_orders(
        (one for tally in runs for one in tally.stretches), high, floors
    )
    read = _read_statements(statements, readings)
    texts = [(source, one) for source, one in read.events if not one.snapshot]
    errors = _joined([*(one.errors for one in runs), *read.unread], Unreadable.with_more)
    return BatchStats(
        rows=sum(one.rows for one in runs),
        tables=_joined([one.tables for one in runs], add),
        shards={name: table for one in runs for name, table in one.shards.items()},
        heartbeats=_joined([one.heartbeats for one in runs], max),
        high=reached,
        snapshots=_joined([one.snapshots for one in runs], SnapshotRows.with_rows),
        news=read.news,
        initial=_initial(read.events, readings),
        statements=sum(len(one.statements) for one in runs),
        databases=tuple(_databases(texts, readings)),
        schemas=find_newest_schemas(statements),
        texts=tuple((source, one.text) for source, one in texts if one.text),
        firsts=_joined_firsts(runs, read.news),
        errors={name: unread_changes(one) for name, one in errors.items()},
        around=_joined([one.around for one in runs], AroundRows.with_more),
        doubted=doubted,
        wholes=_joined([one.wholes for one in runs], max),
        landed_heartbeats=_join_heartbeats(runs),
        heartbeat_rows=_joined([one.heartbeat_rows for one in runs], add),
        minutes=add_tables(one.minutes for one in runs),
    )


def _join_heartbeats(runs: Iterable[RunStats]) -> dict[str, tuple[LandedHeartbeat, ...]]:
    found: dict[str, list[LandedHeartbeat]] = {}
    for source, own in chain.from_iterable(one.landed_heartbeats.items() for one in runs):
        found.setdefault(source, []).extend(own)
    return {source: tuple(own) for source, own in found.items()}


def _joined(parts: Iterable[Mapping[str, T]], join: Callable[[T, T], T]) -> dict[str, T]:
    found: dict[str, T] = {}
    for one in parts:
        for name, value in one.items():
            found[name] = join(found[name], value) if name in found else value
    return found


@dataclass(frozen=True, slots=True)
class _Statements:
    """Schema changes in log order, their statements, and unreadable ones by topic."""

    news: tuple[SchemaNews, ...]
    events: tuple[tuple[str, SchemaEvent], ...]
    unread: tuple[Mapping[str, Unreadable], ...]


def _read_statements(
    statements: Sequence[Mapping[str, Any]], readings: Mapping[str, SchemaReader]
) -> _Statements:
    news: list[SchemaNews] = []
    every: list[tuple[str, SchemaEvent]] = []
    unread: list[Mapping[str, Unreadable]] = []
    placed = [row for row in statements if row["log"] is not None]
    for row in sorted(placed, key=lambda row: (row["topic"], row["offset"])):
        try:
            reading = readings[row["source"]]
            event, parsed = reading.read(row["note"], order_of(row))
        except FormatError:
            where = (row["topic"], row["partition"], row["offset"])
            unread.append({f"topic:{row['topic']}": Unreadable(row["source"], None, 1, (where,))})
            continue
        every.append((row["source"], replace(event, snapshot=row["snapshot"] is not None)))
        for change in parsed:
            news.append(_make_news(row, change, reading))
    return _Statements(tuple(news), tuple(every), tuple(unread))


def _initial(
    events: Iterable[tuple[str, SchemaEvent]], readings: Mapping[str, SchemaReader]
) -> dict[str, frozenset[Order]]:
    """Return source -> orders of its snapshots of all tables: these recreate their databases.

    Measured on Debezium 3.5: a snapshot of single tables, which a signal requests, does not.
    """
    found: dict[str, frozenset[Order]] = {}
    for source, one in events:
        if one.snapshot and not one.tables and readings[source].dialect.database_dropped(one.text):
            found[source] = found.get(source, frozenset()) | {one.order}
    return found


def _databases(
    texts: Sequence[tuple[str, SchemaEvent]], readings: Mapping[str, SchemaReader]
) -> Iterator[DroppedDatabase]:
    for source, event in texts:
        database = readings[source].dialect.database_dropped(event.text)
        if database is not None:
            yield DroppedDatabase(source, event.order, database, event.text)


def _make_news(row: Mapping[str, Any], change: SchemaChange, reading: SchemaReader) -> SchemaNews:
    read, signalled = row["snapshot"] is not None, row["snapshot"] == INCREMENTAL
    news = SchemaNews(row["source"], change, snapshot=read, signalled=signalled)
    if news.snapshot or change.kind != "create":
        return news  # no new table
    anew = partial(reading.dialect.makes_anew, change.statement)
    return replace(news, empty=anew(there=False), over=anew(there=True), new=anew(there=None))


def _joined_firsts(runs: Sequence[RunStats], news: Sequence[SchemaNews]) -> dict[str, Order]:
    """Return the lowest row order of each created shard, which shows whether it existed before."""
    created = {one.change.shard for one in news if one.change.kind == "create" and not one.snapshot}
    firsts = _joined([one.firsts for one in runs], min)
    return {name: one for name, one in firsts.items() if Shard.parse(name).name in created}


def unread_changes(one: Unreadable) -> UnreadChanges:
    """Return the changes as a checkpoint names them."""
    ids = tuple(f"{topic}:{partition}:{offset}" for topic, partition, offset in one.first)
    return UnreadChanges(one.source, one.table, one.count, ids)
