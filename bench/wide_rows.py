"""Measures a landing task with rows of 900 columns against one with narrow rows.

    python -m bench.wide_rows --narrow 100000 --wide 7000 --nice 0 --nice 5

Messages are created first, in the batches that landing reads (10,000 rows or 32 MiB). The task then
decodes, shapes, sorts and writes them in this process, as a Spark worker does: no broker, no JVM.
``--nice`` lowers its priority first, as Spark's workers do if a table has tier 0. Pass the values
in ascending order, because a process cannot raise its priority again.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice

import click
import msgspec
import pyarrow as pa

from bench.kit.rounds import under_load
from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.table import Stamp
from pipeline.delta.store import open_store
from pipeline.formats.debezium_json import DebeziumJson
from pipeline.formats.format import RAW
from pipeline.landing.epochs import find_epoch_bounds
from pipeline.landing.task import LandingTask, SourceContext, TaskSource, write_file
from pipeline.model import Ordering, TopicPartition
from pipeline.settings import Router
from pipeline.transports.kafka import KafkaTransport
from pipeline.transports.transport import OffsetRange, ReadBounds

Row = dict[str, object]
Message = tuple[str, bytes, bytes, int]
PREFIX = "s.db"
COLUMNS = [f"column_number_{number}" for number in range(900)]
WORDS = 3  # one column of so many is a text


@click.command()
@click.option("--narrow", default=100_000, show_default=True)
@click.option("--wide", default=7_000, show_default=True)
@click.option("--nice", multiple=True, type=int, default=[0], help="Priorities, rising.")
def main(*, narrow: int, wide: int, nice: Sequence[int]) -> None:
    """Print seconds and CPU of each kind alone, and of both together."""
    kinds = ((narrow, 0), (0, wide), (narrow, wide))
    for value in nice:
        os.nice(value - os.nice(0))
        for few, many in kinds:
            measure(few, many)


def measure(narrow: int, wide: int) -> None:
    """Write the file of one task."""
    batches = list(_batches(_messages(narrow, wide)))
    rows, size = sum(map(len, batches)), sum(batch.nbytes for batch in batches)
    with tempfile.TemporaryDirectory() as home:
        task = _task(home)
        cpu, started = time.process_time(), time.monotonic()
        file, _ = write_file(iter(batches), task)
        seconds, cpu = time.monotonic() - started, time.process_time() - cpu
    if file is None or file.records != narrow + wide:
        raise AssertionError(f"{file and file.records} of {narrow + wide} rows were written")
    told = f"{narrow} narrow and {wide} wide rows, {size / 1e6:.0f} MB, nice {os.nice(0)}"
    each = f"{cpu / rows * 1e6:.1f} us a row, {cpu / size * 1e9:.1f} ns a byte"
    click.echo(f"{told}: CPU {cpu:.1f} s ({each}), {seconds:.1f} s by the clock; {under_load()}")


def _task(home: str) -> LandingTask:
    log, now = ChangeLog(open_store(home), "main"), datetime.now(UTC)
    log.opened(now)
    topics = (f"{PREFIX}.narrow", f"{PREFIX}.wide")
    ranges = tuple(OffsetRange(topic, 0, 0, 2**40) for topic in topics)
    read = [TopicPartition(topic, 0) for topic in topics]
    came = SourceContext(
        "s", "sluice.heartbeat", 1, find_epoch_bounds("s", read, {}, {}), Ordering.LOG
    )
    with KafkaTransport("127.0.0.1:1") as transport:  # no server is contacted
        reader = transport.reader(ranges)
    intakes = (TaskSource(came, DebeziumJson(), ranges),)
    stamp = Stamp("main", 0, now)
    return LandingTask(log.store.uri, log.snapshot.metadata, stamp, Router(), intakes, reader)


def _messages(narrow: int, wide: int) -> Iterator[Message]:
    """Yield both kinds mixed, as when two topics are read together."""
    every = max(1, narrow // wide) if narrow and wide else 1
    left = iter(range(wide))
    for number in range(narrow):
        yield _message("narrow", number, _narrow_row)
        if number % every == 0:
            yield from (_message("wide", one, _wide_row) for one in islice(left, 1))
    yield from (_message("wide", number, _wide_row) for number in left)


def _message(table: str, number: int, row: Callable[[int], Row]) -> Message:
    source = {
        **{"version": "3.5.0.Final", "connector": "mysql", "name": "s", "ts_ms": 17 * 10**11},
        **{"snapshot": "true", "db": "db", "table": table, "server_id": 1, "row": 0},
        **{"file": "binlog.000003", "pos": 157, "ts_us": 17 * 10**14},
    }
    told = {"before": None, "after": row(number), "source": source, "op": "r"}
    key = msgspec.json.encode({"id": number})
    return f"{PREFIX}.{table}", key, msgspec.json.encode(told), number


def _narrow_row(number: int) -> Row:
    """Return a row as sysbench makes it."""
    digits = f"{number:011}-"
    return {"id": number, "k": number * 7 % 100_000, "c": digits * 10, "pad": digits * 5}


def _wide_row(number: int) -> Row:
    row: Row = {"id": number}
    for at, name in enumerate(COLUMNS):
        row[name] = number * at % 1000 if at % WORDS else f"value {number * at % 977}"
    return row


def _batches(messages: Iterator[Message]) -> Iterator[pa.RecordBatch]:
    most, kept, size = ReadBounds(), list[Message](), 0
    for message in messages:
        kept.append(message)
        size += len(message[2])
        if len(kept) >= most.rows or size >= most.size:
            yield _batch(kept)
            kept, size = [], 0
    if kept:
        yield _batch(kept)


def _batch(messages: Sequence[Message]) -> pa.RecordBatch:
    topics, keys, values, offsets = zip(*messages, strict=True)
    columns = {"key": keys, "value": values, "topic": topics, "offset": offsets}
    columns["partition"] = (0,) * len(messages)
    arrays = [pa.array(columns[field.name], field.type) for field in RAW]
    return pa.RecordBatch.from_arrays(arrays, schema=RAW)


if __name__ == "__main__":
    main()
