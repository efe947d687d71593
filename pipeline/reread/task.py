"""One task of a re-reading: read on along a key for a while, leave one file, tell of it.

It runs in a Spark worker or in the driver, twice or never to its end: it commits nothing, and what
it leaves is a file that nobody names.  Landing takes it into a batch, which it has no number of.
"""

import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pyarrow as pa
import structlog

from pipeline.changelog.sorted_file import SortedFile
from pipeline.changelog.table import CHANGES, ORDER_TYPE, Stamp
from pipeline.errors import ConfigError, SluiceError, TooManyRowsError, UnreachableError
from pipeline.formats import key as keys
from pipeline.lake.log import Metadata
from pipeline.lake.store import open_store
from pipeline.landing.rereading import RowsAgain
from pipeline.landing.shape import Routes
from pipeline.model import Op, Order, Origin
from pipeline.route import Router
from pipeline.settings import SourceSettings
from pipeline.sources.row_reader import (
    KeyTexts,
    OpenRows,
    ReadFence,
    RowReader,
    RowsAsked,
    RowsRead,
)

log = structlog.get_logger(__name__)
FEWEST = 10  # rows of a SELECT: if the server is too slow for these, it is the server's matter


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """What one task may read: ``rows`` in sum, ``select`` in one statement, for about ``time``."""

    rows: int = 200_000
    select: int = 10_000
    time: timedelta = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class RereadTask:
    """All that a task needs, to be sent to where it runs; *asked*'s limit is not looked at."""

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


@dataclass(frozen=True, slots=True)
class RereadDone:
    """What a task tells; ``select`` is how many rows a statement could be asked for in time."""

    rows: RowsAgain
    select: int


@dataclass(frozen=True, slots=True)
class RereadFailed:
    """Why a task of the stretch told nothing; ``refused`` if it never will."""

    name: str
    stretch: int
    why: str
    refused: bool

    @property
    def error(self) -> SluiceError:
        """To be raised where it is told."""
        return ConfigError(self.why) if self.refused else UnreachableError(self.why)


def attempt(task: RereadTask) -> RereadDone | RereadFailed:
    """Run *task*; what stands in its way is a value, so others of its round keep their rows."""
    try:
        return run(task)
    except SluiceError as error:
        refused = isinstance(error, ConfigError)
        return RereadFailed(str(task.asked.shard), task.stretch, str(error), refused)
    except Exception as error:  # the boundary of one task
        log.exception("reread_failed", table=task.table)
        why = f"{type(error).__name__}: {error}; see the log"
        return RereadFailed(str(task.asked.shard), task.stretch, why, refused=False)


def run(task: RereadTask) -> RereadDone:
    """Read, shape, write.

    Raises:
        UnreachableError: the server did not answer, is loaded, or the lake could not be written.
        ProofError: it is another server, or the table is not there.
        ConfigError: it may not be read, or has no key.
    """
    pace = ReadPace(task.limits)
    name = f"part-{uuid.uuid4()}.parquet"
    count, last, ended = 0, task.asked.after, False
    with (
        closing(task.open_rows(task.settings)) as server,
        SortedFile(open_store(task.changes), task.metadata, name, task.stamp.received) as file,
    ):
        for read in _reads(server, task, pace):
            ended = read.ended
            if len(read.rows):
                file.add([shaped(read.rows, task)])
                count, last = count + len(read.rows), read.last
    rows = RowsAgain(
        name=str(task.asked.shard),
        table=task.table,
        id=task.id,
        order=task.order,
        stretch=task.stretch,
        after=task.asked.after,
        read=last,
        ended=ended,
        rows=count,
        file=file.written,
    )
    return RereadDone(rows, pace.select)


@dataclass(eq=False)
class ReadPace:
    """How many rows the next statement asks for; halved where the server is too slow."""

    limits: ReadLimits
    select: int = 0
    until: float = 0.0

    def __post_init__(self) -> None:
        """The clock runs from now on."""
        self.select = self.limits.select
        self.until = time.monotonic() + self.limits.time.total_seconds()

    def slower(self) -> bool:
        """Ask for half as many; false where that is too few."""
        self.select //= 2
        return self.select >= FEWEST

    def over(self, rows: int) -> bool:
        """Whether the task has had its share."""
        return rows >= self.limits.rows or time.monotonic() > self.until


def _reads(server: RowReader, task: RereadTask, pace: ReadPace) -> Iterator[RowsRead]:
    after: KeyTexts | None = task.asked.after
    count = 0
    while not pace.over(count):
        asked = replace(task.asked, after=after, limit=pace.select)
        try:
            read = server.read(task.fence, asked)
        except TooManyRowsError:
            if not pace.slower():
                raise
            continue
        yield read
        if read.ended:
            return
        after, count = read.last, count + len(read.rows)


def shaped(rows: pa.RecordBatch, task: RereadTask) -> pa.RecordBatch:
    """Rows of ``CHANGES`` of ``ROWS``, all at the order of the fence."""
    count, shard = len(rows), task.asked.shard
    source, name = pa.repeat(shard.source, count), pa.repeat(shard.name, count)
    table, unique = Routes(task.router).of(name)
    order = [pa.repeat(pa.scalar(part, pa.int64()), count) for part in task.order.parts]
    columns = {
        "lane": pa.repeat(task.stamp.lane, count),
        "batch": pa.repeat(pa.scalar(task.stamp.batch, pa.int64()), count),
        "source": source,
        "shard": name,
        "table": table,
        "op": pa.repeat(str(Op.READ), count),
        "key": keys.column(rows["key_values"], source, name, unique=unique),
        "after": rows["after"],
        "order": pa.StructArray.from_arrays(order, fields=list(ORDER_TYPE)),
        "origin": pa.repeat(pa.scalar(int(task.origin), pa.int32()), count),
        "received": pa.repeat(
            pa.scalar(task.stamp.received, CHANGES.field("received").type), count
        ),
        "dt": pa.repeat(pa.scalar(task.stamp.received.date(), pa.date32()), count),
    }
    arrays = [columns.get(one.name, pa.nulls(count, one.type)) for one in CHANGES]
    return pa.RecordBatch.from_arrays(arrays, schema=CHANGES)
