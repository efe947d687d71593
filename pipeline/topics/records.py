"""Which records lie in these spans of a log?  Read by one consumer, as one bounded table.

Spans are half open, ``(first, until)``.  Offsets may be missing inside one (compaction, markers of
transactions), even at its end: a span is read once the consumer's position has reached ``until``.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import pyarrow as pa

from pipeline.errors import UnreachableError

RECORDS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
MAX_BYTES = 256 * 2**20  # of keys and values in one read; what is more is work for Spark
POLL = timedelta(milliseconds=20)  # a span that ends in a hole has no record to wake up for
WIDEST_STEP = 65_536

Spans = Mapping[tuple[str, int], tuple[int, int]]  # topic and partition: first, until


class UnfitError(UnreachableError):
    """Not for one consumer: too many bytes for its process, or a codec it lacks; Spark can."""


class Record(Protocol):
    """One message as a client hands it over; a tombstone has no value."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class Consumer(Protocol):
    """What is asked of a client that reads; ``Any`` is the client's own word for a partition."""

    def assign(self, partitions: Sequence[Any]) -> None:
        """Read these from now on, and no others."""
        ...

    def seek(self, partition: Any, offset: int) -> None:
        """Go on at *offset*."""
        ...

    def poll(self, timeout_ms: int) -> Mapping[Any, Sequence[Record]]:
        """Records at the positions, which move past them."""
        ...

    def position(self, partition: Any) -> int:
        """Offset that is read next; it moves past holes, too."""
        ...

    def pause(self, *partitions: Any) -> None:
        """Fetch no more of these."""
        ...


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The newest data record of a partition; a tombstone has no value."""

    key: bytes | None
    value: bytes | None
    offset: int


def drain(
    consumer: Consumer, spans: Mapping[Any, tuple[int, int]], within: timedelta
) -> list[Record]:
    """Every record in *spans*, ascending within a partition; empty spans cost nothing.

    Raises:
        UnfitError: if they hold more than `MAX_BYTES`.
        UnreachableError: if they were not read to their ends *within* that time.
    """
    deadline = time.monotonic() + within.total_seconds()
    left = {at: span for at, span in spans.items() if span[0] < span[1]}
    _aim(consumer, left)
    kept: list[Record] = []
    size = 0
    while left:
        if time.monotonic() > deadline:
            msg = f"{len(left)} partitions not read within {within}, {next(iter(left))} is one"
            raise UnreachableError(msg)
        for at, records in consumer.poll(timeout_ms=POLL // timedelta(milliseconds=1)).items():
            taken = [r for r in records if at in left and r.offset < left[at][1]]
            size += sum(len(r.key or b"") + len(r.value or b"") for r in taken)
            kept += taken
        if size > MAX_BYTES:
            msg = f"more than {MAX_BYTES} bytes in {len(spans)} partitions"
            raise UnfitError(msg)
        done = [at for at, (_, until) in left.items() if consumer.position(at) >= until]
        consumer.pause(*done)
        left = {at: span for at, span in left.items() if at not in done}
    consumer.assign([])  # or it would go on fetching what nobody has asked for
    return kept


def newest(
    read: Callable[[Spans], Iterable[Record]],
    spans: Spans,
) -> dict[tuple[str, int], LastRecord]:
    """Last record in each span by topic and partition, found in growing steps from the end.

    A step starts at one offset: in most logs the record before the end is the answer.
    """
    found: dict[tuple[str, int], LastRecord] = {}
    first = {at: low for at, (low, _) in spans.items()}
    open_ends = {at: until for at, (low, until) in spans.items() if low < until}
    step = 1
    while open_ends:
        steps = {at: (max(first[at], end - step), end) for at, end in open_ends.items()}
        seen = {
            (r.topic, r.partition): LastRecord(r.key, r.value, r.offset) for r in read(steps)
        }  # ascending, so the last one stays
        found |= seen
        open_ends = {
            at: low for at, (low, _) in steps.items() if low > first[at] and at not in seen
        }
        step = min(step * 8, WIDEST_STEP)
    return found


def table(records: Iterable[Record]) -> pa.Table:
    """The records as `RECORDS`, by topic, partition and offset; a missing time is null."""
    rows = sorted(records, key=lambda r: (r.topic, r.partition, r.offset))
    columns: list[Any] = [
        [r.key for r in rows],
        [r.value for r in rows],
        [r.topic for r in rows],
        [r.partition for r in rows],
        [r.offset for r in rows],
        [r.timestamp * 1_000 if r.timestamp >= 0 else None for r in rows],
    ]
    return pa.table(columns, schema=RECORDS)


def _aim(consumer: Consumer, spans: Mapping[Any, tuple[int, int]]) -> None:
    consumer.assign(list(spans))
    for at, (first, _) in spans.items():
        consumer.seek(at, first)
