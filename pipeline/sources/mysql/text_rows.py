"""Which values do the row packets of an answer hold?  Read a column at a time, not value by value.

A packet is 3 bytes of length, one of sequence, and the payload; a row's payload is its values, each
behind its length (MySQL's manual, "Protocol::ResultsetRow", "Protocol::LengthEncodedInteger").
Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Places = npt.NDArray[np.int64]
HEAD = 4  # bytes before a payload
LONGEST = 2**24 - 1  # bytes of a payload; one of so many goes on in the next packet
ENDS, ERROR = 0xFE, 0xFF  # how the payload of the last packet begins
BRIEF = 9  # bytes that no last packet has, and every row that begins so
NULL = 0xFB
WIDTHS = {0xFC: 2, 0xFD: 3, 0xFE: 8}  # first byte of a length -> how many bytes of it follow
_length = Struct("<I").unpack_from


@dataclass(eq=False)
class TextRows:
    """All packets of an answer's rows, as they come.

    ``ended`` once the last packet was there; ``error`` is its payload where that tells of one.
    """

    ended: bool = False
    error: bytes = b""
    _bytes: bytearray = field(default_factory=bytearray, repr=False)
    _starts: list[int] = field(default_factory=list, repr=False)
    _at: int = 0
    _goes_on: bool = False

    @property
    def size(self) -> int:
        """Bytes that have come."""
        return len(self._bytes)

    def take(self, data: bytes) -> None:
        """Take what was received next, however it was cut."""
        held, at, add = self._bytes, self._at, self._starts.append
        held += data
        there = len(held)
        while at + HEAD < there and not self.ended:
            length = _length(held, at)[0] & LONGEST
            if at + HEAD + length > there:
                break
            if self._goes_on:  # the row's own bytes, without a head between them
                del held[at : at + HEAD]
                at, there = at - HEAD, there - HEAD
            elif held[at + HEAD] >= ENDS and self._is_last(at + HEAD, length):
                break
            else:
                add(at + HEAD)
            at += HEAD + length
            self._goes_on = length == LONGEST
        self._at = at

    def columns(self, texts: Sequence[bool]) -> pa.RecordBatch:
        """The rows, columns named by their places: strings where *texts* says so, else binary.

        Raises:
            pa.ArrowInvalid: what should be a text is no UTF-8.
        """
        count, width = len(self._starts), len(texts)
        bounds = np.zeros((count, width, 2), np.int64)
        at, nulls = np.array(self._starts, np.int64), list[npt.NDArray[np.bool_]]()
        data = np.frombuffer(self._bytes, np.uint8)
        for number in range(width):
            starts, lengths, null = _values(data, at)
            at = starts + lengths
            bounds[:, number, 0], bounds[:, number, 1] = starts, at
            nulls.append(null)
        whole = _between(self._bytes, bounds.ravel())
        first = np.arange(count, dtype=np.int32) * 2 * width
        found = [
            whole.take(pa.array(first + 2 * number, mask=nulls[number])).cast(
                pa.string() if is_text else pa.binary()
            )
            for number, is_text in enumerate(texts)
        ]
        return pa.RecordBatch.from_arrays(found, names=[str(number) for number in range(width)])

    def _is_last(self, start: int, length: int) -> bool:
        failed = self._bytes[start] == ERROR
        if failed:
            self.error = bytes(self._bytes[start : start + length])
        self.ended = failed or length < BRIEF
        return self.ended


def _values(
    data: npt.NDArray[np.uint8], at: Places
) -> tuple[Places, Places, npt.NDArray[np.bool_]]:
    """Where the values stand whose lengths stand *at*, how long they are, and which are NULL."""
    first = data[at]
    lengths, starts, null = first.astype(np.int64), at + 1, first == NULL
    lengths[null] = 0
    for kind, width in WIDTHS.items():
        rows = np.flatnonzero(first == kind)
        if len(rows):
            parts = [data[starts[rows] + i].astype(np.int64) << (8 * i) for i in range(width)]
            lengths[rows] = np.sum(parts, axis=0)
            starts[rows] += width
    return starts, lengths, null


def _between(data: bytearray, bounds: Places) -> pa.BinaryArray:
    """Every stretch of *data* between two of *bounds*, values and what is between them."""
    ends = np.append(bounds, bounds[-1:] if len(bounds) else 0).astype(np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(bounds), buffers)
