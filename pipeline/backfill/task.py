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
FEWEST = 10  # rows of a SELECT: if the server is too slow for these, it is the server's matter


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """What one task may read: ``rows`` in sum, ``select`` in one statement, for about ``time``.

    And about so many ``bytes``: after them, fewer rows are asked for at once.  ``rate``: at most so
    many rows a second; 0: as many as come.
    """

    rows: int = 200_000
    select: int = 10_000
    time: timedelta = timedelta(seconds=5)
    bytes: int = 64 * 2**20
    rate: int = 0


@dataclass(frozen=True, slots=True)
class BackfillTask:
    """All that a task needs, to be sent to where it runs; *asked*'s limit is not looked at.

    If it asks for keys, those are read one by one.  ``there`` are ids that the mirror has of what
    is asked for.  A key or id that the source has not is deleted.
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

    ``brake`` as of a `BackfillState`.
    """

    rows: BackfilledRows
    select: int
    brake: str = ""


@dataclass(frozen=True, slots=True)
class BackfillFailure:
    """Why a task of the stretch failed; ``refused`` if a retry cannot succeed.

    ``brake`` as of a `BackfillState`.
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
        log.exception("reread_failed", table=task.table)
        why = f"{type(error).__name__}: {error}; see the log"
        return BackfillFailure(task.asked.shard, task.stretch, why, refused=False)


def run_task(task: BackfillTask) -> BackfillResult:
    """Read, shape, write.

    Raises:
        UnreachableError: the server did not answer, is loaded, or the lake could not be written.
        ProofError: it is another server, or the table is not there.
        ConfigError: it may not be read, or has no key.
        FormatError: as ``shaped``; it is tried again.
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
    """Columns of all rows that are read, for sources without schema events."""

    declared: TableSchema | None
    table: TableDescription | None = None

    def learn(self, description: TableDescription | None) -> None:
        """Take those of one read.

        Raises:
            ProofError: they are others than those of the read before.
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
        """The columns, unless the log has described the same."""
        if self.table is None or self.declared is None or not self.declared.columns:
            return self.table
        dialect = self.declared.columns[0].dialect
        columns = [dialect.column(one, "") for one in self.table.columns]
        return self.table if dialect.differences(self.declared, columns) else None


@dataclass(eq=False)
class ReadPace:
    """How many rows the next statement asks for, and when; halved where the server is too slow.

    ``brake`` as of a `BackfillState`.
    """

    limits: ReadLimits
    select: int = 0
    begun: float = 0.0
    size: int = 0
    rows: int = 0
    brake: str = ""

    def __post_init__(self) -> None:
        """The clock runs from now on; under a rate no statement asks for more than a second's."""
        self.select = self.limits.select
        self.begun = time.monotonic()

    @property
    def limit(self) -> int:
        """Rows of the next statement."""
        return min(self.select, self.limits.rate or self.select)

    @property
    def until(self) -> float:
        """When the task has had its time."""
        return self.begun + self.limits.time.total_seconds()

    def slower(self) -> bool:
        """Halve the rows of a statement; return False if that is too few."""
        self.brake = TIME
        self.select //= 2
        return self.select >= FEWEST

    def took(self, read: RowsRead) -> None:
        """Count what was read; ask for fewer where so many would come to most of a share."""
        self.size += read.rows.nbytes
        self.rows += len(read.rows)
        if 2 * read.rows.nbytes > self.limits.bytes:
            self.select = max(self.select // 2, min(self.select, FEWEST))

    def over(self, rows: int) -> bool:
        """Return whether the task has read its share; wait first, as its rate demands."""
        if self.limits.rate and (early := self._early()) > 0:
            self.brake = RATE
            time.sleep(early)
        late = time.monotonic() > self.until
        return rows >= self.limits.rows or self.size >= self.limits.bytes or late

    def _early(self) -> float:
        """Seconds by which its rows came before their time."""
        return self.begun + self.rows / self.limits.rate - time.monotonic()


_Read = tuple[RowsRead, pa.RecordBatch]
"""Rows, and those that were asked for and are not there: their keys, and the keys' columns."""


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
    """The rows of some keys after the others; ``last`` is how many were asked for by then."""
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
    """Rows of ``CHANGES`` of ``ROWS``, all at the order of the fence, their batch left blank.

    Raises:
        FormatError: a value is to be written by a standard that has no answer for it.
        ConfigError: the standards are those of another key.
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
    """The rows of one stretch: those under ``keys``, those of ``span``, or all if both are None."""

    keys: tuple[str, ...] = ()
    span: tuple[int, int] | None = None


def find_key_ranges(
    wish: BackfillRequest, shard: Shard, table: Table, bounds: Callable[[], Sequence[KeyTexts]]
) -> tuple[KeyRange, ...]:
    """Where reading begins and ends; none if no row of *shard* is wished for.

    Raises:
        ConfigError: ranges are asked for of a table whose key is not one integer.
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
        ConfigError: says how many, and what now.
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
