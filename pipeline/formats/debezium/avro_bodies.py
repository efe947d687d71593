"""Where do the fields of many Avro bodies stand?  Read side by side, a field of all at a time.

All bodies of a group have one schema, so what follows is the same for each; only lengths differ.
The encoding is that of the Avro specification, "Binary encoding": integers in zigzag, seven bits a
byte; texts and bytes behind their length.  A body that says what cannot be is named, never read
beyond its end.  Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Places = NDArray[np.int64]
Mask = NDArray[np.bool_]

MARGIN = 32  # bytes behind the last body that may be looked at, and are not believed
MORE, ONE = np.uint8(0x80), np.uint64(1)
TOPS = np.uint64(0x8080808080808080)
NINTH, TENTH = np.uint64(56), np.uint64(63)
ENDS = "it ends inside an integer"
INSIDE = "it ends inside a value"
TOO_WIDE = "an integer has more than 64 bits"
TOO_LONG = "a list is longer than what is left"


class DamagedError(Exception):
    """Some bodies do not fit their schema: ``rows`` of the group, each ``why`` the same."""

    def __init__(self, rows: NDArray[np.intp], why: str) -> None:
        super().__init__(why)
        self.rows = rows
        self.why = why


@dataclass(eq=False)
class Bodies:
    """How far each body has been read: from ``at``, which moves on, to ``end``.

    ``data`` holds all of them, one after the other, and a margin; ``rows`` are their numbers.
    """

    data: NDArray[np.uint8]
    buffer: pa.Buffer
    at: Places
    end: Places
    rows: NDArray[np.intp]

    @classmethod
    def of(cls, messages: pa.BinaryArray, skip: int) -> "Bodies":
        """Those of *messages*, none null, without their first *skip* bytes."""
        count = len(messages)
        _, offsets, data = messages.buffers()
        bounds = np.frombuffer(offsets, np.int32)[messages.offset : messages.offset + count + 1]
        begin, end = int(bounds[0]), int(bounds[-1])
        whole = np.zeros(end - begin + MARGIN, np.uint8)
        if end > begin:
            whole[: end - begin] = np.frombuffer(data, np.uint8)[begin:end]
        places = bounds.astype(np.int64) - begin
        at, until = places[:-1] + skip, places[1:].copy()
        return cls(whole, pa.py_buffer(whole), at, until, np.arange(count))

    def only(self, mask: Mask) -> "Bodies":
        """Some of them; `follow` tells how far they were read."""
        return Bodies(self.data, self.buffer, self.at[mask], self.end[mask], self.rows[mask])

    def follow(self, some: "Bodies", mask: Mask) -> None:
        """Go on behind what was read of *some*."""
        self.at[mask] = some.at

    def refuse(self, mask: Mask, why: str) -> None:
        """Raise DamagedError if *mask* names any."""
        if mask.any():
            raise DamagedError(self.rows[mask], why)

    def longs(self) -> Places:
        """An integer of each."""
        byte = self.data[self.at]
        if not (byte & MORE).any():
            self.at = self.at + 1
            self.refuse(self.at > self.end, ENDS)
            short = byte.astype(np.int64)
            return (short >> 1) ^ -(short & 1)
        word = self._words()[self.at]
        stop = ~word & TOPS
        stop &= ~stop + ONE  # the top bit of the last byte; 0 where it is not among eight
        inside = stop - ONE
        self.at = self.at + (np.bitwise_count(inside) >> np.uint8(3)) + 1
        value = _packed(word & inside)
        if not stop.all():
            self._longest(value, np.flatnonzero(stop == 0))
        self.refuse(self.at > self.end, ENDS)
        return (value >> ONE).astype(np.int64) ^ -(value & ONE).astype(np.int64)

    def fixed(self, size: int) -> pa.BinaryArray:
        """The next *size* bytes of each."""
        return self._slices(np.full(len(self.at), size, np.int64))

    def slices(self) -> pa.BinaryArray:
        """Bytes behind their length."""
        return self._slices(self.longs())

    def pass_over(self) -> None:
        """Go behind bytes without a look at them."""
        size = self.longs()
        self._refuse_long(size)
        self.at = self.at + size

    def numbers(self, kind: "np.dtype[Any]") -> NDArray[Any]:
        """A number of a fixed size of each, in little-endian order."""
        size = kind.itemsize
        self._refuse_long(np.full(len(self.at), size, np.int64))
        found = self.data[self.at[:, None] + np.arange(size)]
        self.at = self.at + size
        numbers: NDArray[Any] = found.view(kind).reshape(-1)
        return numbers

    def _words(self) -> NDArray[np.uint64]:
        """Eight bytes from each place on, the first the lowest."""
        size = len(self.data) - 7
        return np.ndarray((size,), np.dtype("<u8"), self.data.data, 0, (1,))

    def _longest(self, value: NDArray[np.uint64], rows: NDArray[np.intp]) -> None:
        """Add the ninth and the tenth byte; `longs` is past the ninth, as if it were the last."""
        ninth = self.data[self.at[rows] - 1]
        value[rows] |= (ninth & 0x7F).astype(np.uint64) << NINTH
        more = (ninth & MORE) != 0
        rows = rows[more]
        tenth = self.data[self.at[rows]]
        odd = np.zeros(len(value), np.bool_)
        odd[rows] = tenth > 1
        self.refuse(odd, TOO_WIDE)
        value[rows] |= tenth.astype(np.uint64) << TENTH
        self.at[rows] += 1

    def _slices(self, size: Places) -> pa.BinaryArray:
        """Slices and what lies between them are one array of Arrow's: nothing is copied twice."""
        self._refuse_long(size)
        count = len(size)
        bounds = np.empty(2 * count, np.int32)
        bounds[0::2] = self.at
        self.at = self.at + size
        bounds[1::2] = self.at
        both = pa.BinaryArray.from_buffers(
            pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), self.buffer]
        )
        return both.take(pa.array(np.arange(0, 2 * count, 2)))

    def _refuse_long(self, size: Places) -> None:
        self.refuse((size < 0) | (size > self.end - self.at), INSIDE)


def blocks(bodies: Bodies) -> Iterable[tuple[Bodies, NDArray[np.intp]]]:
    """Bodies that hold one more item, and their numbers, until none does.

    An item takes a byte at least, so no count makes this longer than the bodies are.
    """
    open_ = np.ones(len(bodies.at), np.bool_)
    left = np.zeros(len(bodies.at), np.int64)
    while open_.any():
        fresh = open_ & (left == 0)
        if fresh.any():
            left[fresh] = _counts(bodies, fresh)
            open_ &= left > 0
        if open_.any():
            some = bodies.only(open_)
            yield some, np.flatnonzero(open_)
            bodies.follow(some, open_)
            left[open_] -= 1


def _counts(bodies: Bodies, mask: NDArray[np.bool_]) -> Places:
    """How many items the next block has; behind a negative count stands its size in bytes."""
    some = bodies.only(mask)
    found = some.longs()
    negative = found < 0
    if negative.any():
        sized = some.only(negative)
        sized.longs()
        some.follow(sized, negative)
    counts = np.abs(found)
    some.refuse((counts < 0) | (counts > some.end - some.at), TOO_LONG)
    bodies.follow(some, mask)
    return counts


def _packed(word: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Seven bits of each of eight bytes as one number, the first byte's the lowest."""
    for odd, even, shift in _STEPS:
        word = (word & even) | ((word & odd) >> shift)
    return word


_STEPS = tuple(
    (np.uint64(odd), np.uint64(even), np.uint64(shift))
    for odd, even, shift in (
        (0x7F007F007F007F00, 0x007F007F007F007F, 1),
        (0x3FFF00003FFF0000, 0x00003FFF00003FFF, 2),
        (0x0FFFFFFF00000000, 0x000000000FFFFFFF, 4),
    )
)
