"""One task of a landing batch: read these offsets, make rows of them, leave one file, tell of it.

It runs in a Spark worker or in the driver, twice or never to its end: it commits nothing, and what
it leaves is a file that nobody names.  The driver judges by what is told here, and by nothing else.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.changelog.data_file import SortedFile, WrittenFile
from pipeline.changelog.table import Stamp
from pipeline.checkpoint import ToldSchema
from pipeline.delta.log import Metadata
from pipeline.delta.store import open_store
from pipeline.formats.format import RAW, Format
from pipeline.formats.schema_registry import SchemaRegistry, decoded
from pipeline.landing.shape import (
    Provenance,
    Routes,
    shape,
    slim,
    without_empty_transactions,
)
from pipeline.landing.tally import RunTally, tally
from pipeline.landing.told_schemas import Unrepeated
from pipeline.settings import Router
from pipeline.standards.table_standards import NO_STANDARDS, Standards
from pipeline.transports.transport import OffsetRange, RangeRead, ReadBounds, RecordReader

RUN = 64 * 2**20  # bytes of rows sorted at once; with what is read meanwhile, some 256 MiB


@dataclass(frozen=True, slots=True)
class Intake:
    """What is read of one source, and how.

    ``schemas`` as in :class:`pipeline.checkpoint.Mark`, none where other tasks read this source,
    too;
    ``registry`` tells those that its format needs.
    """

    came: Provenance
    format: Format
    ranges: tuple[OffsetRange, ...]
    schemas: Mapping[str, ToldSchema] = field(default_factory=dict)
    registry: SchemaRegistry | None = None


@dataclass(frozen=True, slots=True)
class LandingTask:
    """All that a task needs, to be sent to where it runs.

    ``changes`` is the change log's folder, ``metadata`` its columns and properties, ``reader``
    reads records where the task runs.  A topic belongs to one intake.  ``standards``: before any of
    its rows is written.
    """

    changes: str
    metadata: Metadata
    stamp: Stamp
    router: Router
    intakes: tuple[Intake, ...]
    reader: RecordReader
    bounds: ReadBounds = field(default_factory=ReadBounds)
    run: int = RUN
    standards: Standards = NO_STANDARDS


@dataclass(frozen=True, slots=True)
class Done:
    """What a task tells: its file (None if the ranges held no row) and each range's offsets.

    ``tallies`` are what its rows say, run by run: all that the batch is judged by.
    """

    file: WrittenFile | None
    ranges: tuple[RangeRead, ...]
    tallies: tuple[RunTally, ...]


def run(task: LandingTask) -> Done:
    """Read, decode, shape, sort, write.

    Raises:
        UnreachableError: not all of a range could be read; no file is left.
        NoSchemasError: a source's registry does not tell what its messages mean; no file is left.
        ConfigError: a setting of the transport's or the lake's that cannot be.
    """
    wanted = {name for intake in task.intakes for name in intake.format.columns}
    ranges = [one for intake in task.intakes for one in intake.ranges]
    reading = task.reader.consume(ranges, bounds=task.bounds, columns=sorted(wanted))
    with closing(iter(reading)) as batches:
        file, tallies = write(batches, task)
    return Done(file, reading.read, tallies)


def write(
    batches: Iterable[pa.RecordBatch], task: LandingTask
) -> tuple[WrittenFile | None, tuple[RunTally, ...]]:
    """Make one file of these messages, and `Done.tallies`; no file without a row.

    In: ``RAW``, then the columns that any of the formats asks for.
    """
    name = f"part-{uuid.uuid4()}.parquet"
    tallies = []
    with SortedFile(open_store(task.changes), task.metadata, name, task.stamp.received) as file:
        known = {name: one for intake in task.intakes for name, one in intake.schemas.items()}
        for rows in _runs(Unrepeated(known).among(_shaped(batches, task)), task.run):
            tallies.append(tally(pa.Table.from_batches(map(slim, rows))))
            file.add(rows)
    return file.written, tuple(tallies)


def _shaped(batches: Iterable[pa.RecordBatch], task: LandingTask) -> Iterator[pa.RecordBatch]:
    """Rows of ``CHANGES``, intake by intake of each batch; none of what says nothing."""
    routes = Routes(task.router, task.standards)
    for batch in batches:
        for intake in task.intakes:
            raw = _share(batch, intake, alone=len(task.intakes) == 1)
            changes = without_empty_transactions(decoded(intake.format, intake.registry, raw))
            if len(changes):
                yield shape(changes, raw, intake.came, routes=routes, stamp=task.stamp)


def _share(batch: pa.RecordBatch, intake: Intake, *, alone: bool) -> pa.RecordBatch:
    """The messages that are this intake's."""
    mine = batch.select([*RAW.names, *intake.format.columns])
    if alone:
        return mine
    topics = pa.array(sorted({one.topic for one in intake.ranges}), pa.string())
    return mine.filter(pc.is_in(mine["topic"], topics))


def _runs(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[list[pa.RecordBatch]]:
    """Gather batches up to *size* bytes; one that is larger comes alone."""
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
