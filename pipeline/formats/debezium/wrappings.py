"""Which messages have a schema around them that was seen before, and what is inside?

Connect's JSON converter writes ``{"schema":...,"payload":{...}}``, with a schema of some kilobytes
that is the same in every message of a table.  So what stands before a payload is judged once, as
in `keys`: if it is right with null for a payload, it is right with any object.  Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pyarrow as pa
from msgspec import Raw
from numpy.typing import NDArray

from pipeline.formats import json_text

BEGIN, PAYLOAD, END = b'{"schema":{', b'},"payload":{', b"}}"


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """``payloads`` of those messages that are ``known``, and the ``schemas`` around them.

    One schema is one object, so who compares them need not look at all of it.
    """

    known: NDArray[np.bool_]
    payloads: pa.BinaryArray
    schemas: list[Raw]


def unwrapped(value: pa.BinaryArray) -> Unwrapped:
    """Look at every message, none null; a payload that is found begins and ends with a brace."""
    count = len(value)
    _, offsets, data = value.buffers()
    bounds = np.frombuffer(offsets, np.int32)[value.offset : value.offset + count + 1].tolist()
    text = memoryview(data)[: bounds[-1]].tobytes() if data is not None else b""
    found = list(_found(text, bounds))
    known = np.array([schema is not None for _, schema in found], np.bool_)
    rows = np.flatnonzero(known)
    edges = np.empty(2 * len(rows), np.int32)
    edges[0::2] = np.array([at for at, _ in found], np.int32)[rows]
    edges[1::2] = np.array(bounds[1:], np.int32)[rows] - 1
    return Unwrapped(known, _slices(edges, data), [one for _, one in found if one is not None])


def _found(text: bytes, bounds: list[int]) -> Iterator[tuple[int, Raw | None]]:
    """Where each payload begins, and its schema."""
    before, schema = b"", None
    for first, until in pairwise(bounds):
        if not (text.startswith(BEGIN, first) and text.endswith(END, first, until)):
            yield first, None
            continue
        if schema is None or not text.startswith(before, first):
            at = text.find(PAYLOAD, first, until)
            before = text[first : at + len(PAYLOAD) - 1]
            schema = _schema(before) if at >= 0 else None
        yield first + len(before), schema


def _slices(edges: NDArray[np.int32], data: pa.Buffer) -> pa.BinaryArray:
    """Slices and what lies between them are one array of Arrow's; the slices are every other."""
    if not len(edges):
        return pa.array([], pa.binary())
    both = pa.BinaryArray.from_buffers(
        pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), data]
    )
    return both.take(pa.array(np.arange(0, len(edges), 2)))


@lru_cache(maxsize=1024)  # tables that are written to at the same time; one is some 10 kB
def _schema(before: bytes) -> Raw | None:
    """The schema in what stands before a payload; None if that is no wrapping."""
    fields = json_text.read(before + b"null}")
    if fields is None or [name for name, _ in fields] != ["schema", "payload"]:
        return None
    return Raw(fields[0][1].encode())
