"""Writes and reads a batch's files before the commit, and finds their rows in the change log.

After a failover a new server may redeliver what has landed. Such rows get the order with which they
landed. Only the first batches after a failover hold such rows; other batches read nothing for this.
"""

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.data_file import SortedFile, WrittenFile, restamp_copy
from pipeline.changelog.table import CHANGES, ColumnEvent, Stamp, column_event_rows
from pipeline.checkpoint import Checkpoint, source_of
from pipeline.delta.store import Store
from pipeline.errors import SluiceError
from pipeline.landing.batch_stats import RunStats, tally_rows
from pipeline.landing.epochs import (
    EpochBounds,
    Epochs,
    find_epoch_bounds,
    find_resending,
    newest_starts,
)
from pipeline.landing.gaps import hidden_among
from pipeline.landing.listing import LandingSource, Listing, TopicShards
from pipeline.landing.plan import Plan, epochs_read, single_reader_sources, split_tasks
from pipeline.landing.redelivery import (
    COLUMNS,
    Asked,
    Between,
    PartialFrom,
    restore_orders,
    sent_again,
)
from pipeline.landing.source_holds import SourceHolds
from pipeline.landing.task import LandingTask, SourceContext, TaskResult, TaskSource, slim_columns
from pipeline.landing.topic_counts import PartitionCounts, add_partitions, compare_topics
from pipeline.model import Op, Shard, TopicPartition
from pipeline.reports import TopicCounts
from pipeline.resubmissions import parse_change_name
from pipeline.settings import PipelineSettings, Router
from pipeline.standards.table_standards import Standards
from pipeline.transports.transport import OffsetRange, Transport

PLACE = ("topic", "partition", "offset")
OF_ROWS = frozenset({Op.CREATE, Op.UPDATE, Op.DELETE})
MessagePlace = tuple[TopicPartition, int]
RESTAMPED = 65_536  # rows held in memory at once


@dataclass(frozen=True, slots=True)
class Staged:
    """Files of a batch, its statistics, and the leader epochs of the last records read.

    ``counts`` are the numbers of records read and of rows, by partition.
    """

    files: tuple[WrittenFile, ...]
    tallies: tuple[RunStats, ...]
    epochs: Mapping[TopicPartition, int]
    counts: Mapping[TopicPartition, PartitionCounts] = field(default_factory=dict)

    def compare_topics(self, shards: TopicShards, router: Router) -> dict[str, TopicCounts]:
        """Return table -> what its topics brought; *shards* as of the batch's checkpoint."""

        @cache  # topics of a source share shards: hashing those costs less than their tables
        def tables(lost: tuple[str, ...]) -> frozenset[str]:
            named = (router.table(Shard.parse(text).name) for text in lost)
            return frozenset(table for table in named if table is not None)

        return compare_topics(
            self.counts,
            self.tallies,
            shards.checkpoint.batch,
            lambda topic: tables(shards.lost_with(topic)),
        )


@dataclass(eq=False)
class BatchReader:
    """Reads a batch's messages by tasks, which write its rows as files that no commit names yet."""

    settings: PipelineSettings
    feeds: Sequence[LandingSource]
    router: Router
    transport: Transport
    log: ChangeLog
    standards: Standards
    work: Callable[[Sequence[LandingTask]], Sequence[TaskResult]]
    holds: SourceHolds

    def read(
        self, chosen: Plan, listing: Listing, epochs: Epochs, stamp: Stamp, before: Checkpoint
    ) -> Staged:
        """Read what is *chosen*; *before* is the checkpoint before the batch.

        Raises:
            NoSchemasError: the registry of a source did not answer.
        """
        parts = split_tasks(chosen.spans, self.settings.landing_tasks)
        alone = single_reader_sources(parts, listing.source_of)
        bounded: dict[str, Mapping[TopicPartition, EpochBounds]] = {}
        for name in {listing.source_of[at.topic] for at in chosen.spans}:
            own = [at for at in chosen.spans if listing.source_of[at.topic] == name]
            bounded[name] = find_epoch_bounds(
                name, own, epochs.known, epochs.starts, renewed=chosen.renewed
            )
        tasks = []
        for ranges in parts:
            intakes = []
            for feed in self.feeds:
                name = feed.settings.name
                own_ranges = tuple(one for one in ranges if listing.source_of[one.topic] == name)
                if own_ranges:
                    schemas = before.schemas if name in alone else {}
                    context = SourceContext(
                        name,
                        feed.settings.heartbeat,
                        epochs.number(name),
                        bounded[name],
                        feed.format.ordering,
                    )
                    described = {n: one for n, one in schemas.items() if source_of(n) == name}
                    registry = self.holds.registry(name, feed.registry)
                    intakes.append(
                        TaskSource(context, feed.format, own_ranges, described, registry)
                    )
            tasks.append(self._task(intakes, ranges, stamp))
        done = self.work(tasks) if tasks else ()
        read = epochs_read(reported for one in done for reported in one.ranges)
        tallies = tuple(tally for one in done for tally in one.tallies)
        files = tuple(one.file for one in done if one.file is not None)
        counts = add_partitions(one.counts for one in done)
        staged = Staged(files, tallies, read, counts)
        return with_landed_positions(staged, before, epochs, self.log, stamp)

    def read_alone(self, intake: TaskSource, stamp: Stamp) -> TaskResult:
        """Read messages of one source outside of a batch."""
        self.log.opened(stamp.received)
        return self.work((self._task((intake,), intake.ranges, stamp),))[0]

    def find_hidden(self, listing: Listing, names: Set[str]) -> frozenset[str]:
        """Return those shards of *names* whose topics Sluice may not see."""
        prefixes = {feed.settings.name: feed.settings.prefix for feed in self.feeds}
        return hidden_among(names, prefixes, listing.source_of, self.transport.hidden)

    def _task(
        self, intakes: Sequence[TaskSource], ranges: Sequence[OffsetRange], stamp: Stamp
    ) -> LandingTask:
        return LandingTask(
            changes=self.log.store.uri,
            metadata=self.log.snapshot.metadata,
            stamp=stamp,
            router=self.router,
            standards=self.standards,
            intakes=tuple(intakes),
            reader=self.transport.reader(ranges),
        )


def write_rows(log: ChangeLog, rows: pa.RecordBatch, stamp: Stamp) -> WrittenFile:
    """Write *rows* of ``CHANGES``, at least one, as a file of their own."""
    name = f"part-{uuid.uuid4()}.parquet"
    with SortedFile(log.store, log.snapshot.metadata, name, stamp.received) as file:
        file.add([rows])
    if file.written is None:
        raise SluiceError("a file without rows was requested")
    return file.written


def rows_again(
    log: ChangeLog,
    files: Iterable[WrittenFile],
    columns: Sequence[ColumnEvent],
    stamp: Stamp,
    *,
    counted_before: Collection[str] = (),
) -> tuple[WrittenFile, ...]:
    """Return files in the batch of *stamp*: of rows that were read again, and of their columns.

    *counted_before* are names of quarantined changes, several of them for a message with several
    rows. Each row of such a message gets one of the names as its ``error``.
    """
    names: dict[MessagePlace | None, list[str]] = {}
    for name in counted_before:
        names.setdefault(parse_change_name(name), []).append(name)
    found = [restamp_file(log, file, stamp, names) for file in files]
    if columns:
        found.append(write_rows(log, column_event_rows(columns, stamp), stamp))
    return tuple(found)


def restamp_file(
    log: ChangeLog, file: WrittenFile, stamp: Stamp, names: Mapping[MessagePlace | None, list[str]]
) -> WrittenFile:
    """Return a file of the same rows, which had no batch, in the batch of *stamp*.

    *names*: see :func:`rows_again`; a name that a row gets is removed.
    """
    if (made_out := restamp_copy(log.store, file, stamp)) is not None:
        return made_out
    name = f"part-{uuid.uuid4()}.parquet"
    with (
        pq.ParquetFile(log.store.source(file.path)) as parquet,
        SortedFile(log.store, log.snapshot.metadata, name, stamp.received) as made,
    ):
        for rows in parquet.iter_batches(RESTAMPED):
            made.add([_named(_stamped(rows, stamp), names)])
    if made.written is None:
        raise SluiceError("a file without rows was requested")
    return made.written


def _stamped(rows: pa.RecordBatch, stamp: Stamp) -> pa.RecordBatch:
    shared = {
        "batch": pa.scalar(stamp.batch, pa.int64()),
        "received": pa.scalar(stamp.received, CHANGES.field("received").type),
        "dt": pa.scalar(stamp.received.date(), pa.date32()),
    }
    arrays = [
        pa.repeat(shared[one.name], len(rows))
        if one.name in shared
        else rows[one.name].cast(one.type)
        for one in CHANGES
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=CHANGES)


def _named(rows: pa.RecordBatch, names: Mapping[MessagePlace | None, list[str]]) -> pa.RecordBatch:
    if not names:
        return rows
    errors: list[str | None] = []
    for op, topic, at, offset in zip(
        *(rows[name].to_pylist() for name in ("op", *PLACE)), strict=True
    ):
        left = names.get((TopicPartition(topic, at), offset)) if op in OF_ROWS else None
        errors.append(left.pop() if left else None)
    number = rows.schema.get_field_index("error")
    return rows.set_column(number, CHANGES.field("error"), pa.array(errors, pa.string()))


def staged_rows(
    store: Store, files: Sequence[WrittenFile], topics: Sequence[str], columns: Sequence[str]
) -> pa.Table:
    """Return the rows of these topics in uncommitted files; *columns* must include ``topic``."""
    return pa.concat_tables(
        [
            rows.filter(pc.is_in(rows["topic"], pa.array(topics, pa.string())))
            for rows in (read_file(store, file, columns) for file in files)
        ]
    )


def read_file(store: Store, file: WrittenFile, columns: Sequence[str]) -> pa.Table:
    """Return all rows of one file, in its order; *columns* are of ``CHANGES``, without ``dt``."""
    schema = pa.schema([CHANGES.field(name) for name in columns])
    with pq.ParquetFile(store.source(file.path)) as parquet:
        return parquet.read(columns=list(columns)).select(list(columns)).cast(schema)


def read_near(log: ChangeLog, asked: Asked) -> pa.Table:
    """Read landed rows of the change log near rows whose order is too low."""
    if isinstance(asked, PartialFrom):
        names = ("source", *PLACE, "order", "changed")
        found = log.between(asked.source, asked.topic, asked.first, None, names)
        return found.filter(pc.is_valid(found["changed"]))
    if isinstance(asked, Between):
        return log.between(asked.source, asked.topic, asked.first, asked.last, COLUMNS)
    logs = {stretch.log for stretch in asked.stretches}
    return log.near(asked.source, asked.topics, logs, COLUMNS)


def with_landed_positions(
    staged: Staged, checkpoint: Checkpoint, epochs: Epochs, log: ChangeLog, stamp: Stamp
) -> Staged:
    """Return the batch with redelivered rows at the order with which they landed.

    Nothing is read without such rows, which only the first batches after a fail-over have.
    """
    if not staged.files or not find_resending(checkpoint, epochs.known):
        return staged
    names = [name for name in CHANGES.names if name != "dt"]
    rows = pa.concat_tables([read_file(log.store, file, names) for file in staged.files])
    asked = sent_again(rows, checkpoint, epochs.known)
    if not asked:
        return staged
    log.look()
    landed = pa.concat_tables([log.sent(one.source, one.ids, one.since, COLUMNS) for one in asked])
    placed = restore_orders(rows, landed, newest_starts(epochs.known, epochs.starts))
    if placed.equals(rows):
        return staged
    dated = placed.append_column(
        CHANGES.field("dt"), pa.repeat(pa.scalar(stamp.received.date(), pa.date32()), len(placed))
    )
    (batch,) = dated.select(CHANGES.names).combine_chunks().to_batches()
    file = write_rows(log, batch, stamp)
    stats = tally_rows(pa.Table.from_batches([slim_columns(batch)]))
    return replace(staged, files=(file,), tallies=(stats,))
