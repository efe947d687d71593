"""Records that have come, until they are worth a batch.

They wait as the client's own values: arrays are made once for all of them, not at each asking.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import Message

from pipeline.formats.format import OPTIONAL, RAW
from pipeline.transports.offset_ranges import OffsetRange

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class Gathering:
    """Records of *ranges*, in the order they came; ``size`` is the bytes of keys and values.

    ``columns`` are those of ``OPTIONAL`` that are kept of each besides.
    """

    ranges: Sequence[OffsetRange]
    columns: Sequence[str] = ()
    size: int = 0
    _keys: list[bytes | None] = field(default_factory=list, repr=False)
    _values: list[bytes | None] = field(default_factory=list, repr=False)
    _others: dict[str, list[Any]] = field(default_factory=dict, repr=False)
    _offsets: list[Ints] = field(default_factory=list, repr=False)
    _numbers: list[Ints] = field(default_factory=list, repr=False)

    def __len__(self) -> int:
        """How many records wait."""
        return len(self._values)

    def add(self, messages: Sequence[Message], offsets: Ints, numbers: Ints) -> int:
        """Keep *messages*; *numbers* say which of ``ranges`` each belongs to. How many bytes."""
        keys, values = [m.key() for m in messages], [m.value() for m in messages]
        size = sum(map(len, filter(None, keys))) + sum(map(len, filter(None, values)))
        self._keys += keys
        self._values += values
        for name in self.columns:
            self._others.setdefault(name, []).extend(_READ[name](messages))
        self._offsets.append(offsets)
        self._numbers.append(numbers)
        self.size += size
        return size

    def emptied(self) -> pa.RecordBatch:
        """All of them as one batch, at least one: ``RAW``, then ``columns``; none is kept."""
        numbers = np.concatenate(self._numbers)
        topics = pa.array([one.topic for one in self.ranges], pa.string())
        partitions = np.array([one.partition for one in self.ranges], np.int32)
        arrays = [
            pa.array(self._keys, pa.binary()),
            pa.array(self._values, pa.binary()),
            topics.take(pa.array(numbers)),
            pa.array(partitions[numbers]),
            pa.array(np.concatenate(self._offsets)),
            *(pa.array(self._others[name], OPTIONAL[name]) for name in self.columns),
        ]
        fields = [*RAW, *(pa.field(name, OPTIONAL[name]) for name in self.columns)]
        for kept in (self._keys, self._values, self._others, self._offsets, self._numbers):
            kept.clear()
        self.size = 0
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _times(messages: Sequence[Message]) -> list[int | None]:
    """Milliseconds to microseconds; kind 0 means that the record has no time."""
    return [at * 1_000 if kind else None for kind, at in (m.timestamp() for m in messages)]


def _headers(messages: Sequence[Message]) -> list[Any]:
    told: list[Any] = [m.headers() for m in messages]
    return [h and [{"name": name, "value": value} for name, value in h] for h in told]


_READ: Mapping[str, Callable[[Sequence[Message]], list[Any]]] = {
    "timestamp": _times,
    "headers": _headers,
}
