"""Runs one backfill task: reads rows along a key for a while and writes one file.

A task runs in a Spark worker or in the driver, possibly twice or not to its end. It commits
nothing, and its file is an orphan until landing commits it. Landing adds the file to a batch,
whose number the task does not know.

Requested rows are read in stretches: one for each range, then one for all keys. Without ranges
and keys, the whole shard is read along its key. The rows of a task are computed again each
time, because the landing checkpoint stores no keys.
"""

import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import blake2b
from itertools import starmap
from shlex import quote

import pyarrow as pa
import structlog

from pipeline.backfill_state import (
    BackfillRequest,
    KeyRange,
    RowSelection,
    SelectedKey,
    SelectedRange,
)
from pipeline.changelog.data_file import Blank, SortedFile
from pipeline.changelog.table import CHANGES, ORDER_TYPE, Stamp
from pipeline.delta.log import Metadata
from pipeline.delta.store import open_store
from pipeline.errors import (
    ConfigError,
    ProofError,
    SluiceError,
    SparedError,
    TooManyRowsError,
    UnreachableError,
)
from pipeline.formats import json_text as keys
from pipeline.landing.backfill import BackfilledRows
from pipeline.landing.task import TableRouter
from pipeline.model import Op, Order, Origin, Shard, Table
from pipeline.schema.model import TableDescription, TableSchema
from pipeline.settings import Router, SourceSettings
from pipeline.sources.row_reader import (
    ROWS,
    KeyTexts,
    OpenRows,
    ReadFence,
    RowReader,
    RowsAsked,
    RowsRead,
)
from pipeline.sources.source import RATE, TIME
from pipeline.standards.table_standards import NO_STANDARDS, Standards, rows_again

log = structlog.get_logger(__name__)
FEWEST = 10  # rows of a SELECT: if even these take too long, the server is overloaded


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """What one task may read: ``rows`` in total, ``select`` in one statement, for about ``time``.

    After about ``bytes`` bytes it stops, and large rows lower the rows per statement. ``rate``: at
    most so many rows per second; 0: no limit.
    """

    rows: int = 200_000
    select: int = 10_000
    time: timedelta = timedelta(seconds=5)
    bytes: int = 64 * 2**20
    rate: int = 0


@dataclass(frozen=True, slots=True)
class BackfillTask:
    """All that a task needs where it runs; the limit in *asked* is ignored.

    If *asked* has keys, those are read one by one. ``there`` are the mirror's ids in the requested
    range. A key or id that the source does not have is deleted.
    """

    changes: str
    metadata: Metadata
    stamp: Stamp
    router: Router
    settings: SourceSettings
    open_rows: OpenRows
    fence: ReadFence
    asked: RowsAsked
    origin: Origin
    order: Order
    id: str
    table: str
    stretch: int
    limits: ReadLimits = field(default_factory=ReadLimits)
    there: tuple[int, ...] = ()
    at: datetime | None = None
    standards: Standards = NO_STANDARDS


@dataclass(frozen=True, slots=True)
class BackfillResult:
    """The result of one task; ``select`` is the number of rows that a statement reads in time.

    ``brake`` is that of `BackfillState`.
    """

    rows: BackfilledRows
    select: int
    brake: str = ""


@dataclass(frozen=True, slots=True)
class BackfillFailure:
    """Why a task of the stretch failed; ``refused`` if a retry cannot succeed.

    ``brake`` is that of `BackfillState`.
    """

    shard: Shard
    stretch: int
    why: str
    refused: bool
    brake: str = ""

    @property
    def error(self) -> SluiceError:
        """Return the error to raise for this failure."""
        if self.brake:
            return SparedError(self.brake, self.why)
        return ConfigError(self.why) if self.refused else UnreachableError(self.why)


def try_task(task: BackfillTask) -> BackfillResult | BackfillFailure:
    """Run *task*; return a failure as a value, so that other tasks of the round keep their rows."""
    try:
        return run_task(task)
    except SluiceError as error:
        refused = isinstance(error, ConfigError)
        brake = error.brake if isinstance(error, SparedError) else ""
        return BackfillFailure(task.asked.shard, task.stretch, str(error), refused, brake)
    except Exception as error:  # the boundary of one task
        log.exception("backfill_failed", table=task.table)
        why = f"{type(error).__name__}: {error}; see the log"
        return BackfillFailure(task.asked.shard, task.stretch, why, refused=False)


def run_task(task: BackfillTask) -> BackfillResult:
    """Read the rows, shape them and write the file.

    Raises:
        UnreachableError: the server did not answer, is loaded, or the lake could not be written.
        ProofError: it is another server, or the table does not exist.
        ConfigError: it may not be read, or has no key.
        FormatError: see `shape_rows`; it is tried again.
    """
    pace = ReadPace(task.limits)
    name = f"part-{uuid.uuid4()}.parquet"
    count, last, ended = 0, task.asked.after, False
    described = _DescribedColumns(task.asked.declared)
    blank = Blank.drawn()
    with (
        closing(task.open_rows(task.settings)) as server,
        SortedFile(open_store(task.changes), task.metadata, name, task.stamp.received) as file,
    ):
        reads = _keyed(server, task, pace) if task.asked.keys else _reads(server, task, pace)
        for read, gone in reads:
            ended, last = read.ended, read.last or last
            described.learn(read.description)
            for rows, op in ((read.rows, Op.READ), (gone, Op.DELETE)):
                if len(rows):
                    count += len(rows)
                    file.add([shape_rows(rows, task, blank, op)])
    rows_again = BackfilledRows(
        shard=task.asked.shard,
        table=task.table,
        id=task.id,
        order=task.order,
        stretch=task.stretch,
        after=task.asked.after,
        read=last,
        ended=ended,
        rows=count,
        file=file.written,
        columns=described.digest,
        description=described.news,
    )
    return BackfillResult(rows_again, pace.select, pace.brake)


@dataclass(eq=False)
class _DescribedColumns:
    """The columns of all rows read, for sources without schema events."""

    declared: TableSchema | None
    table: TableDescription | None = None

    def learn(self, description: TableDescription | None) -> None:
        """Store the columns of one read.

        Raises:
            ProofError: they differ from those of the read before.
        """
        if self.table is not None and description != self.table:
            raise ProofError(f"the columns of {self.table.shard} changed while it was read")
        self.table = description

    @property
    def digest(self) -> str:
        """A digest of the columns; empty where statements describe them."""
        return (
            ""
            if self.table is None
            else blake2b(repr(self.table).encode(), digest_size=8).hexdigest()
        )

    @property
    def news(self) -> TableDescription | None:
        """The columns, unless the log has described the same ones."""
        if self.table is None or self.declared is None or not self.declared.columns:
            return self.table
        dialect = self.declared.columns[0].dialect
        columns = [dialect.column(one, "") for one in self.table.columns]
        return self.table if dialect.differences(self.declared, columns) else None


@dataclass(eq=False)
class ReadPace:
    """How many rows the next statement asks for, and when; halved if the server is too slow.

    ``brake`` is that of `BackfillState`.
    """

    limits: ReadLimits
    select: int = 0
    begun: float = 0.0
    size: int = 0
    rows: int = 0
    brake: str = ""

    def __post_init__(self) -> None:
        """Start the clock."""
        self.select = self.limits.select
        self.begun = time.monotonic()

    @property
    def limit(self) -> int:
        """Rows of the next statement; at most those of one second if there is a rate."""
        return min(self.select, self.limits.rate or self.select)

    @property
    def until(self) -> float:
        """When the time of the task is over."""
        return self.begun + self.limits.time.total_seconds()

    def slower(self) -> bool:
        """Halve the rows of a statement; return False if that is too few."""
        self.brake = TIME
        self.select //= 2
        return self.select >= FEWEST

    def took(self, read: RowsRead) -> None:
        """Count what was read; ask for fewer rows if they took over half of the task's bytes."""
        self.size += read.rows.nbytes
        self.rows += len(read.rows)
        if 2 * read.rows.nbytes > self.limits.bytes:
            self.select = max(self.select // 2, min(self.select, FEWEST))

    def over(self, rows: int) -> bool:
        """Return whether the task has read its share; waits first if it is faster than its rate."""
        if self.limits.rate and (early := self._early()) > 0:
            self.brake = RATE
            time.sleep(early)
        late = time.monotonic() > self.until
        return rows >= self.limits.rows or self.size >= self.limits.bytes or late

    def _early(self) -> float:
        """Seconds by which the task is ahead of its rate."""
        return self.begun + self.rows / self.limits.rate - time.monotonic()


_Read = tuple[RowsRead, pa.RecordBatch]
"""Rows, and those that were asked for but do not exist: their keys, and the keys' columns."""


def _reads(server: RowReader, task: BackfillTask, pace: ReadPace) -> Iterator[_Read]:
    after: KeyTexts | None = task.asked.after
    count = 0
    while not pace.over(count):
        asked = replace(task.asked, after=after, limit=pace.limit)
        try:
            read = server.read(task.fence, asked)
        except TooManyRowsError:
            if not pace.slower():
                raise
            continue
        pace.took(read)
        yield read, _rows_of_deleted(_ids(server, task, after, read), read, task)
        if read.ended:
            return
        after, count = read.last, count + len(read.rows)


def _keyed(server: RowReader, task: BackfillTask, pace: ReadPace) -> Iterator[_Read]:
    """Read the rows of the requested keys; ``last`` counts the keys asked for so far."""
    at, first = (int(task.asked.after[0]) if task.asked.after else 0,) * 2
    while not pace.over(at - first):
        some = task.asked.keys[at : at + pace.limit]
        asked = replace(task.asked, after=None, until=None, keys=some, limit=2 * len(some))
        try:
            read = server.read(task.fence, asked)
        except TooManyRowsError:
            if not pace.slower():
                raise
            continue
        at += len(some)
        pace.took(read)
        share = replace(read, last=(str(at),), ended=at >= len(task.asked.keys))
        yield share, _rows_of_deleted(some, read, task)
        if share.ended:
            return


def _ids(
    server: RowReader, task: BackfillTask, after: KeyTexts | None, read: RowsRead
) -> tuple[str, ...]:
    """Return keys of the mirror's rows from *after*, exclusive, to the end of *read*."""
    end = task.asked.until if read.ended else read.last
    if not task.there or after is None or end is None:
        return ()
    ids = [one for one in task.there if int(after[0]) < one <= int(end[0])]
    return server.keys_of(task.asked.shard, task.asked.key, ids) if ids else ()


def _rows_of_deleted(asked: Sequence[str], read: RowsRead, task: BackfillTask) -> pa.RecordBatch:
    """Return ``ROWS`` of the keys without a row in *read*, as a delete has them."""
    found = set(read.rows["key_values"].to_pylist()) if asked else set()
    keys = [key for key in dict.fromkeys(asked) if key not in found]
    texts = [json.dumps(dict(zip(task.asked.key, json.loads(key), strict=True))) for key in keys]
    return pa.RecordBatch.from_arrays(
        [pa.array(keys, pa.string()), pa.array(texts, pa.string())], schema=ROWS
    )


def shape_rows(
    rows: pa.RecordBatch, task: BackfillTask, blank: Blank, op: Op = Op.READ
) -> pa.RecordBatch:
    """Convert ``ROWS`` to rows of ``CHANGES``, all at the order of the fence, with a blank batch.

    Raises:
        FormatError: a standard has no result for a value.
        ConfigError: the standards belong to another key.
    """
    count, shard = len(rows), task.asked.shard
    source, name = pa.repeat(shard.source, count), pa.repeat(shard.name, count)
    table, unique = TableRouter(task.router, task.standards).of(name)
    if (own := task.standards.of(task.router.table(shard.name))) is not None:
        rows = rows_again(rows, task.asked.key, own)
    order = [pa.repeat(pa.scalar(part, pa.int64()), count) for part in task.order.parts]
    columns = blank.columns(count) | {
        "lane": pa.repeat(task.stamp.lane, count),
        "source": source,
        "shard": name,
        "table": table,
        "op": pa.repeat(str(op), count),
        "key": keys.key_column(rows["key_values"], source, name, unique=unique),
        "before" if op is Op.DELETE else "after": rows["after"],
        "order": pa.StructArray.from_arrays(order, fields=list(ORDER_TYPE)),
        "origin": pa.repeat(pa.scalar(int(task.origin), pa.int32()), count),
        "at": pa.repeat(pa.scalar(task.at, CHANGES.field("at").type), count),
        "dt": pa.repeat(pa.scalar(task.stamp.received.date(), pa.date32()), count),
    }
    arrays = [columns.get(one.name, pa.nulls(count, one.type)) for one in CHANGES]
    return pa.RecordBatch.from_arrays(arrays, schema=CHANGES)


@dataclass(frozen=True, slots=True)
class StretchRows:
    """The rows of one stretch: those with ``keys``, those in ``span``, or all if neither is set."""

    keys: tuple[str, ...] = ()
    span: tuple[int, int] | None = None


def find_key_ranges(
    wish: BackfillRequest, shard: Shard, table: Table, bounds: Callable[[], Sequence[KeyTexts]]
) -> tuple[KeyRange, ...]:
    """The stretches to read; empty if no row of *shard* is requested.

    Raises:
        ConfigError: ranges are requested of a table whose key is not one integer.
    """
    rows = wish.rows
    if not rows.some:
        cuts = tuple(bounds())
        return tuple(starmap(KeyRange, zip((*cuts, None), (None, *cuts), strict=True)))
    if rows.ranges and table.key != (table.id_column,):
        msg = f"the key of {table.name} is not one integer column, so it has no ranges"
        raise ConfigError(f"{msg}; name the keys (--keys)")
    found = [KeyRange((str(one.last),), (str(one.first - 1),)) for one in _ranges(rows, shard)]
    return (*found, KeyRange()) if _keys(rows, shard) else tuple(found)


def stretch_rows(wish: BackfillRequest, shard: Shard, number: int) -> StretchRows:
    """Return what to read in stretch *number*."""
    ranges = _ranges(wish.rows, shard)
    if not wish.rows.some:
        return StretchRows()
    if number < len(ranges):
        return StretchRows(span=(ranges[number].first, ranges[number].last))
    return StretchRows(tuple(one.values for one in _keys(wish.rows, shard)))


def require_few(wish: BackfillRequest, rows: int) -> None:
    """Refuse a backfill that has more rows than its request allows.

    Raises:
        ConfigError: with the number of rows and the fix.
    """
    most = wish.rows.most
    if most is not None and rows > most:
        msg = f"the request selects at least {rows} rows of {wish.table}, more than --most {most}"
        fix = f"sluice bootstrap {quote(wish.table)} --reason ..."
        raise ConfigError(f"{msg}; select fewer, or run `{fix}`")


def _ranges(rows: RowSelection, shard: Shard) -> tuple[SelectedRange, ...]:
    return tuple(one for one in rows.ranges if one.shard in ("", str(shard)))


def _keys(rows: RowSelection, shard: Shard) -> tuple[SelectedKey, ...]:
    return tuple(one for one in rows.keys if one.shard in ("", str(shard)))
