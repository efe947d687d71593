"""Which records lie in these spans of a log?  Read by one consumer, and few.

Spans are half open, ``(first, until)``.  Offsets may be missing inside one (compaction, markers of
transactions), even at its end: a span is read once the consumer's position has reached ``until``.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from pipeline.errors import UnreachableError

MOST = 256 * 2**20  # bytes of keys and values in one read
POLL = timedelta(milliseconds=20)  # a span that ends in a hole has no record to wake up for
WIDEST_STEP = 65_536

Spans = Mapping[tuple[str, int], tuple[int, int]]  # topic and partition: first, until


class Record(Protocol):
    """One message as a client hands it over; a tombstone has no value."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


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
    """The newest data record of a partition with a value, or without one where none has any.

    ``timestamp`` in milliseconds; -1 where none was written.  Neither it nor the headers tell one
    record from another.
    """

    key: bytes | None
    value: bytes | None
    offset: int
    timestamp: int = field(default=-1, compare=False)
    headers: tuple[tuple[str, bytes | None], ...] = field(default=(), compare=False)


def drain(
    consumer: Consumer, spans: Mapping[Any, tuple[int, int]], within: timedelta
) -> list[Record]:
    """Every record in *spans*, ascending within a partition; empty spans cost nothing.

    Raises:
        UnreachableError: if they were not read to their ends *within* that time, or hold too much.
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
        if size > MOST:
            msg = f"more than {MOST} bytes in {len(spans)} partitions"
            raise UnreachableError(msg)
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

    A step starts at one offset: in most logs the record before the end is the answer.  A tombstone
    follows its delete and does not tell whose it is, so one with a value goes before it.
    """
    found: dict[tuple[str, int], LastRecord] = {}
    first = {at: low for at, (low, _) in spans.items()}
    open_ends = {at: until for at, (low, until) in spans.items() if low < until}
    step = 1
    while open_ends:
        steps = {at: (max(first[at], end - step), end) for at, end in open_ends.items()}
        records = list(read(steps))  # ascending: the last one stays
        seen = {(r.topic, r.partition): _last(r) for r in records if r.value is not None}
        dead = {(r.topic, r.partition): _last(r) for r in records if r.value is None}
        found = {**dead, **found, **seen}
        open_ends = {
            at: low for at, (low, _) in steps.items() if low > first[at] and at not in seen
        }
        step = min(step * 8, WIDEST_STEP)
    return found


def _last(record: Record) -> LastRecord:
    headers = tuple(record.headers)
    return LastRecord(record.key, record.value, record.offset, record.timestamp, headers)


def _aim(consumer: Consumer, spans: Mapping[Any, tuple[int, int]]) -> None:
    consumer.assign(list(spans))
    for at, (first, _) in spans.items():
        consumer.seek(at, first)
