"""Which offsets is a task to read, how far has it come, and what was read of them in the end?

Pure.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np
import numpy.typing as npt

USUAL = 2**10  # bytes of a record, as long as nobody knows better


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``[first, until)`` of one partition.

    ``leader_epoch`` is that of the last record read before ``first``; -1 if nobody knows.
    ``size`` is about how many bytes its records have uncompressed; 0 if nobody knows.
    """

    topic: str
    partition: int
    first: int
    until: int
    leader_epoch: int = -1
    size: int = 0

    @property
    def expected(self) -> int:
        """Bytes to count with."""
        return self.size or (self.until - self.first) * USUAL

    def __str__(self) -> str:
        """Render for messages."""
        return f"{self.topic}:{self.partition} [{self.first}, {self.until})"


@dataclass(frozen=True, slots=True)
class RangeRead:
    """What was read of a range: ``first`` and ``last`` offset, None where it held no record.

    ``leader_epochs`` holds each epoch that differs from the record's before it, in log order; they
    rise in any true log.
    """

    asked: OffsetRange
    first: int | None = None
    last: int | None = None
    count: int = 0
    leader_epochs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadBounds:
    """How much is held at once, and how long nothing may come.

    A batch ends at ``rows`` or ``size`` bytes.  Ranges are assigned together up to ``assigned``
    bytes uncompressed: one fetch may unpack all of what is assigned, whatever the other settings.
    """

    rows: int = 10_000
    size: int = 32 * 2**20
    assigned: int = 256 * 2**20
    patience: timedelta = timedelta(seconds=30)


@dataclass(slots=True)
class Cursor:
    """How far one range has been read; ``end`` is where its partition was last seen to end."""

    range: OffsetRange
    next: int
    first: int | None = None
    count: int = 0
    epochs: list[int] = field(default_factory=list)
    end: int | None = None
    done: bool = False

    @property
    def told(self) -> RangeRead:
        """What was read so far."""
        last = self.next - 1 if self.count else None
        return RangeRead(self.range, self.first, last, self.count, tuple(self.epochs))

    def advance(self, offsets: npt.NDArray[np.int64], epochs: npt.NDArray[np.int64]) -> int:
        """Take a run of rising offsets (not empty); how many of them lie in the range."""
        kept = int(np.searchsorted(offsets, self.range.until))
        self.done = self.done or int(offsets[-1]) >= self.range.until - 1
        if kept:
            self.first = int(offsets[0]) if self.first is None else self.first
            self.next = int(offsets[kept - 1]) + 1
            self.count += kept
            changes = np.flatnonzero(np.diff(epochs[:kept])) + 1
            for epoch in (int(epochs[0]), *(int(epochs[at]) for at in changes)):
                if self.epochs[-1:] != [epoch]:
                    self.epochs.append(epoch)
        return kept

    def reach(self, end: int) -> None:
        """Learn where the partition ends now: an answer only from ``until`` on."""
        self.end = end
        self.done = self.done or end >= self.range.until


def assignments(cursors: Sequence[Cursor], most: int) -> Iterator[list[Cursor]]:
    """Cut the ranges that may hold anything into groups of *most* bytes, or of one range.

    A partition stands once in a group, so that nothing of one range is taken for another's.
    """
    group: list[Cursor] = []
    size, places = 0, set[tuple[str, int]]()
    for cursor in cursors:
        one = cursor.range
        if one.first >= one.until:
            continue
        place = (one.topic, one.partition)
        if group and (size + one.expected > most or place in places):
            yield group
            group, size, places = [], 0, set()
        group.append(cursor)
        places.add(place)
        size += one.expected
    if group:
        yield group
