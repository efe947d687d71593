"""Where do the fields of one Avro body stand?  As `avro_bodies` reads them of many.  Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipeline.formats.debezium.avro_bodies import INSIDE, TOO_LONG, TOO_WIDE, DamagedError

MORE, LAST = 0x80, 63  # the tenth byte of an integer holds its 64th bit, and no other


@dataclass(slots=True)
class Body:
    """How far a body has been read: ``at`` moves on to the end of ``data``."""

    data: bytes
    at: int = 0

    @property
    def left(self) -> int:
        """Bytes that were not read."""
        return len(self.data) - self.at

    def damaged(self, why: str) -> DamagedError:
        """To be raised: it does not fit."""
        return DamagedError(np.zeros(1, np.intp), why)

    def long(self) -> int:
        """An integer in zigzag, seven bits a byte."""
        byte = self.data[self.at]
        self.at += 1
        if byte < MORE:
            return (byte >> 1) ^ -(byte & 1)
        value, shift = byte & 0x7F, 7
        while byte >= MORE and shift <= LAST:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
        if shift > LAST and byte > 1:
            raise self.damaged(TOO_WIDE)
        return (value >> 1) ^ -(value & 1)

    def take(self, size: int) -> bytes:
        """The next *size* bytes."""
        if not 0 <= size <= self.left:
            raise self.damaged(INSIDE)
        self.at += size
        return self.data[self.at - size : self.at]

    def slice(self) -> bytes:
        """Bytes behind their length."""
        return self.take(self.long())

    def items(self) -> Iterator[None]:
        """Come once for each item of a list; behind a negative count stands its size in bytes."""
        while count := self.long():
            if count < 0:
                self.long()
            if abs(count) > self.left:
                raise self.damaged(TOO_LONG)
            for _ in range(abs(count)):
                yield
