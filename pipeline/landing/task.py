"""Runs one landing task: reads offset ranges, makes change log rows and writes one file.

A task runs in a Spark worker or in the driver, possibly twice or not to its end. It commits
nothing, and its file is an orphan until the driver commits it. The driver judges the batch only
by what the task returns.

Each decoded change becomes one row, except markers of empty transactions and repeated column
descriptions. A row gets three values from outside its message: the source of its topic, the
epoch at its offset, and the table of its shard. Rows of the heartbeat table belong to no table.
A shard that the rules ignore is landed, too, without a table.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.changelog.data_file import SortedFile, WrittenFile
from pipeline.changelog.table import CHANGES, ORDER_TYPE, TIME, Stamp
from pipeline.checkpoint import DescribedSchema
from pipeline.delta.log import Metadata
from pipeline.delta.store import open_store
from pipeline.formats import json_text
from pipeline.formats.format import RAW, Format, heartbeat_number, split_skipped
from pipeline.formats.schema_registry import SchemaRegistry, decode_all_messages
from pipeline.landing.batch_stats import RunStats, SchemaDeduplicator, tally_rows
from pipeline.landing.epochs import EpochBounds
from pipeline.landing.topic_counts import EMPTY_TRANSACTION, DecodeCounter, PartitionCounts
from pipeline.model import ORDER_PARTS, Op, Ordering, TopicPartition
from pipeline.settings import Router
from pipeline.standards.table_standards import NO_STANDARDS, Standards, standardise_batch
from pipeline.transports.transport import OffsetRange, RangeRead, ReadBounds, RecordReader

_ROWS = pa.array([Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ], pa.string())
_MARKERS = pa.array([Op.BEGIN, Op.END], pa.string())
SLIM = pa.schema(
    [
        *(CHANGES.field(name) for name in ("source", "topic", "partition", "offset")),
        *(CHANGES.field(name) for name in ("table", "shard", "op", "origin", "at")),
        *((part, pa.int64()) for part in ORDER_PARTS),
        CHANGES.field("snapshot"),
        CHANGES.field("schema_id"),
        ("note", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class SourceContext:
    """The source of some messages, and what its rows need.

    ``heartbeat`` is the shard that Sluice writes to. ``epoch`` is the source's newest, and is valid
    in every partition that ``bounds`` does not name. ``ordering`` is that of the format.
    """

    source: str
    heartbeat: str
    epoch: int = 1
    bounds: Mapping[TopicPartition, EpochBounds] = field(default_factory=dict)
    ordering: Ordering = Ordering.LOG


@dataclass(eq=False)
class TableRouter:
    """Finds the tables of shards; the rules are applied once per shard, as rows are many.

    ``standards`` are those of the tables' columns.
    """

    router: Router
    standards: Standards
    _known: dict[str, tuple[str | None, bool]] = field(default_factory=dict)

    def of(self, shards: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return table (null: ignored, or no shard) and key uniqueness of each shard."""
        few = shards.dictionary_encode()
        routes = [self._of(shard) for shard in few.dictionary.to_pylist()]
        tables = pa.array([table for table, _ in routes], pa.string()).take(few.indices)
        unique = pa.array([unique for _, unique in routes], pa.bool_()).take(few.indices)
        return tables, pc.fill_null(unique, False)

    def _of(self, shard: str) -> tuple[str | None, bool]:
        if shard not in self._known:
            self._known[shard] = (self.router.table(shard), self.router.unique(shard))
        return self._known[shard]


def shape_rows(
    decoded: pa.RecordBatch,
    raw: pa.RecordBatch,
    came: SourceContext,
    *,
    routes: TableRouter,
    stamp: Stamp,
) -> pa.RecordBatch:
    """Return rows of ``CHANGES``, in the order of *decoded* (``DECODED``), which was made of *raw*.

    All messages pass here, so this function applies the standards to their values.
    """
    count = len(decoded)
    placed = _placed(decoded, raw)
    table, unique = routes.of(decoded["shard"])
    decoded = standardise_batch(decoded, table, routes.standards)
    row = pc.is_in(decoded["op"], _ROWS)
    heartbeat = pc.fill_null(pc.and_(row, pc.equal(decoded["shard"], came.heartbeat)), False)
    op = decoded["op"]
    if heartbeat.true_count:
        table, op = pc.if_else(heartbeat, None, table), pc.if_else(heartbeat, str(Op.HEARTBEAT), op)
    source = pa.repeat(came.source, count)
    columns: Mapping[str, pa.Array] = {
        "lane": pa.repeat(stamp.lane, count),
        "batch": pa.repeat(pa.scalar(stamp.batch, pa.int64()), count),
        "source": source,
        "table": table,
        "op": op,
        "key": json_text.key_column(
            _keys(decoded, routes), source, decoded["shard"], unique=unique
        ),
        "order": _order(decoded, placed, came),
        "received": pa.repeat(pa.scalar(stamp.received, TIME), count),
        "dt": pa.repeat(pa.scalar(stamp.received.date(), pa.date32()), count),
        **{name: placed[name] for name in ("topic", "partition", "offset")},
    }
    arrays = [columns[name] if name in columns else decoded[name] for name in CHANGES.names]
    return pa.RecordBatch.from_arrays(arrays, schema=CHANGES)


def split_empty_transactions(changes: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Split *changes* (``DECODED``) from markers of transactions that changed no captured table.

    Measured on Debezium 3.5: a collector of one database of a shared server sends BEGIN and END of
    every transaction of all databases. An END that counts no event shows that nothing of its
    transaction was sent, so no check waits for it. A BEGIN is kept if its END comes in another
    batch of messages. Both markers are kept if an END cannot be read.
    """
    ends = pc.equal(changes["op"], str(Op.END))
    if not pc.any(ends, min_count=0).as_py():
        return changes, changes.slice(0, 0)
    names = pc.struct_field(changes["tx"], ["id"])
    counted = pa.array(
        [_counts_no_event(text) for text in changes["after"].filter(ends).to_pylist()]
    )
    own = names.filter(ends)
    uncounted, others = (set(own.filter(one).to_pylist()) for one in (counted, pc.invert(counted)))
    left_out = pa.array(
        sorted(name for name in uncounted - others if name is not None), pa.string()
    )
    marker = pc.is_in(changes["op"], _MARKERS)
    empty = pc.and_(marker, pc.is_in(names, left_out))
    return changes.filter(pc.invert(empty)), changes.filter(empty)


class _End(msgspec.Struct):
    """The counts in an END of a transaction that are needed here."""

    event_count: int | None = None
    data_collections: tuple[msgspec.Raw, ...] | None = None


_END = msgspec.json.Decoder(_End)


def _counts_no_event(text: str | None) -> bool:
    try:
        end = _END.decode(text or "null")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return end.event_count == 0 and not end.data_collections


def slim_columns(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns by which a batch is judged; payloads only of heartbeats and DDL.

    In: ``CHANGES``. Out: `SLIM`; ``note`` is the heartbeat's number, or the schema change's
    payload. Heartbeats of other sources have no note; they share the table if two collectors read
    one server.
    """
    order = rows["order"]
    parts = {part: pc.struct_field(order, [part]) for part in ORDER_PARTS}
    made = {**parts, "note": _notes(rows)}
    arrays = [made[name] if name in made else rows[name] for name in SLIM.names]
    return pa.RecordBatch.from_arrays(arrays, schema=SLIM)


def _placed(decoded: pa.RecordBatch, raw: pa.RecordBatch) -> pa.RecordBatch:
    """Return topic, partition and offset of each change."""
    places = raw.select(["topic", "partition", "offset"])
    message = decoded["message"].to_numpy()
    if np.array_equal(message, np.arange(len(raw))):
        return places
    return places.take(decoded["message"])


def _keys(decoded: pa.RecordBatch, routes: TableRouter) -> pa.Array:
    """Return keys; null for a tombstone if values are hidden, as no row shows its columns."""
    values = decoded["key_values"]
    if not routes.standards.hides:
        return values
    return pc.if_else(pc.equal(decoded["op"], str(Op.TOMBSTONE)), None, values)


def _order(decoded: pa.RecordBatch, placed: pa.RecordBatch, came: SourceContext) -> pa.Array:
    epoch = pa.array(_epochs(placed, came))
    if came.ordering is not Ordering.OFFSET:
        row = pc.fill_null(decoded["row"], 0)
        parts, unknown = [epoch, decoded["log"], decoded["pos"], row], decoded["log"].is_null()
        return pa.StructArray.from_arrays(parts, fields=list(ORDER_TYPE), mask=unknown)
    log, row = pa.repeat(pa.scalar(0, pa.int64()), len(decoded)), pa.array(_ranks(decoded))
    return pa.StructArray.from_arrays([epoch, log, placed["offset"], row], fields=list(ORDER_TYPE))


def _epochs(placed: pa.RecordBatch, came: SourceContext) -> npt.NDArray[np.int64]:
    """Return each row's epoch; partitions in a single epoch take no extra work."""
    epochs = np.full(len(placed), came.epoch, np.int64)
    offsets = placed["offset"].to_numpy()
    for at, bounds in came.bounds.items():
        if bounds.steps != ((0, came.epoch),):
            here = pc.and_(
                pc.equal(placed["topic"], at.topic), pc.equal(placed["partition"], at.partition)
            ).to_numpy(zero_copy_only=False)
            epochs[here] = bounds.epochs(offsets[here])
    return epochs


def _ranks(decoded: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return each change's rank in its message, from 0 on; a column description has its row's rank.

    Descriptions land only if they are new, so they must not shift the rows after them.
    """
    message = decoded["message"].to_numpy()
    counted = decoded["schema_id"].is_null().to_numpy(zero_copy_only=False)
    before = np.cumsum(counted, dtype=np.int64) - counted
    first = np.searchsorted(message, message, side="left")
    ranks: npt.NDArray[np.int64] = before - before[first]
    return ranks


def _notes(rows: pa.RecordBatch) -> pa.Array:
    few = pc.indices_nonzero(pc.is_in(rows["op"], pa.array([Op.HEARTBEAT, Op.DDL], pa.string())))
    notes = np.full(len(rows), None, object)
    noted = rows.select(["op", "source", "after"]).take(few).to_pylist()
    for index, one in zip(few.to_pylist(), noted, strict=True):
        notes[index] = one["after"] if one["op"] == Op.DDL else _number(one)
    return pa.array(notes, pa.string())


def _number(heartbeat: Mapping[str, str]) -> str | None:
    number = heartbeat_number(heartbeat["after"], heartbeat["source"])
    return None if number is None else str(number)


RUN = 64 * 2**20  # bytes of rows sorted at once; some 256 MiB with what is read meanwhile


@dataclass(frozen=True, slots=True)
class TaskSource:
    """The ranges to read of one source, and how to decode them.

    ``schemas`` as in `Checkpoint`; empty if other tasks read this source, too. ``registry`` returns
    the schemas that its format needs.
    """

    came: SourceContext
    format: Format
    ranges: tuple[OffsetRange, ...]
    schemas: Mapping[str, DescribedSchema] = field(default_factory=dict)
    registry: SchemaRegistry | None = None


@dataclass(frozen=True, slots=True)
class LandingTask:
    """All that a task needs, in a form that can be sent to where it runs.

    ``changes`` is the change log's folder, ``metadata`` its columns and properties. ``reader``
    reads the records. A topic belongs to one of ``intakes``. ``standards`` are applied before a row
    is written.
    """

    changes: str
    metadata: Metadata
    stamp: Stamp
    router: Router
    intakes: tuple[TaskSource, ...]
    reader: RecordReader
    bounds: ReadBounds = field(default_factory=ReadBounds)
    run: int = RUN
    standards: Standards = NO_STANDARDS


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of a task: its file (None if the ranges held no row) and each range's offsets.

    ``tallies`` are the statistics of its rows, per run: all that the batch is judged by. ``counts``
    are the numbers of what it read, by partition.
    """

    file: WrittenFile | None
    ranges: tuple[RangeRead, ...]
    tallies: tuple[RunStats, ...]
    counts: Mapping[TopicPartition, PartitionCounts] = field(default_factory=dict)


def run_task(task: LandingTask) -> TaskResult:
    """Read, decode, shape, sort, and write.

    Raises:
        UnreachableError: not all of a range could be read; no file is left.
        NoSchemasError: a registry does not have the schemas of its messages; no file is left.
        ConfigError: a setting of the transport or the lake is invalid.
    """
    wanted = {name for intake in task.intakes for name in intake.format.columns}
    ranges = [one for intake in task.intakes for one in intake.ranges]
    reading = task.reader.consume(ranges, bounds=task.bounds, columns=sorted(wanted))
    counter = DecodeCounter()
    with closing(iter(reading)) as batches:
        file, tallies = write_file(batches, task, counter)
    return TaskResult(file, reading.read, tallies, counter.with_returned(reading.read))


def write_file(
    batches: Iterable[pa.RecordBatch], task: LandingTask, counter: DecodeCounter | None = None
) -> tuple[WrittenFile | None, tuple[RunStats, ...]]:
    """Write one file from these messages, and return it with `TaskResult.tallies`.

    No file is written without a row. *counter* counts what is decoded.

    In: ``RAW``, then the columns that any of the formats requests.
    """
    name = f"part-{uuid.uuid4()}.parquet"
    tallies = []
    with SortedFile(open_store(task.changes), task.metadata, name, task.stamp.received) as file:
        shaped = _shaped(batches, task, counter or DecodeCounter())
        known = {name: one for intake in task.intakes for name, one in intake.schemas.items()}
        for rows in _runs(SchemaDeduplicator(known).among(shaped), task.run):
            tallies.append(tally_rows(pa.Table.from_batches(map(slim_columns, rows))))
            file.add(rows)
    return file.written, tuple(tallies)


def _shaped(
    batches: Iterable[pa.RecordBatch], task: LandingTask, counter: DecodeCounter
) -> Iterator[pa.RecordBatch]:
    """Yield rows of ``CHANGES`` by intake, without skipped events and empty transactions."""
    routes = TableRouter(task.router, task.standards)
    for batch in batches:
        for intake in task.intakes:
            raw = _share(batch, intake, alone=len(task.intakes) == 1)
            decoded = decode_all_messages(intake.format, intake.registry, raw)
            counter.add_decoded(decoded, raw)
            some, skipped = split_skipped(decoded)
            counter.add_left_out(str(Op.SKIPPED), skipped, raw)
            changes, empty = split_empty_transactions(some)
            counter.add_left_out(EMPTY_TRANSACTION, empty, raw)
            if len(changes):
                yield shape_rows(changes, raw, intake.came, routes=routes, stamp=task.stamp)


def _share(batch: pa.RecordBatch, intake: TaskSource, *, alone: bool) -> pa.RecordBatch:
    """Return the messages of this intake."""
    mine = batch.select([*RAW.names, *intake.format.columns])
    if alone:
        return mine
    topics = pa.array(sorted({one.topic for one in intake.ranges}), pa.string())
    return mine.filter(pc.is_in(mine["topic"], topics))


def _runs(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[list[pa.RecordBatch]]:
    """Group batches up to *size* bytes; a larger batch is a group of its own."""
    kept: list[pa.RecordBatch] = []
    held = 0
    for batch in batches:
        if kept and held + batch.nbytes > size:
            yield kept
            kept, held = [], 0
        kept.append(batch)
        held += batch.nbytes
    if kept:
        yield kept
