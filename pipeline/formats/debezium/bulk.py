"""How are all envelopes of a batch read in one call, and which messages are none?

A row, a schema and a key stay slices of what was sent.  Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw
from numpy.typing import NDArray

from pipeline.formats import json_text
from pipeline.formats.debezium import wrappings

NULL_TEXT = b"null"
NULL = Raw(NULL_TEXT)
Mask = NDArray[np.bool_]
E = TypeVar("E")


class SourceBlock(msgspec.Struct, gc=False):
    """The source block, as far as it is asked."""

    connector: str | None = None
    db: str | None = None
    schema: str | None = None
    table: str | None = None
    file: str | None = None
    snapshot: str | bool | None = None
    pos: int | None = None
    row: int | None = None
    lsn: int | None = None
    server_id: int | None = None
    sequence: str | None = None
    ts_ms: int | None = None
    ts_us: int | None = None


class TransactionBlock(msgspec.Struct, gc=False):
    """The transaction block."""

    id: str | None = None
    total_order: int | None = None


class Envelope(msgspec.Struct, gc=False):
    """A row's envelope or a transaction's; of other kinds nothing but that they are others."""

    op: str | None = None
    before: Raw = NULL
    after: Raw = NULL
    source: SourceBlock | None = None
    transaction: TransactionBlock | None = None
    ts_ms: int | None = None
    status: str | None = None
    id: str | None = None


class Wrapped(msgspec.Struct, gc=False):
    """A message's payload as a slice."""

    payload: Raw = NULL


class WrappedEnvelope(Envelope, gc=False):
    """A message: an envelope, or its schema and one in ``payload``."""

    payload: Envelope | None = None
    schema: Raw = NULL


@dataclass(frozen=True, slots=True)
class ReadEnvelopes:
    """Envelopes of the messages that could be read, which are ``read``, and their schemas.

    A schema is null where none was around the message.
    """

    envelopes: list[Envelope]
    schemas: list[Raw]
    read: Mask

    def long(self) -> "ReadEnvelopes":
        """Those whose integers have 64 bits; ``read`` says which of these they are."""
        fits = [is_long(one) for one in self.envelopes]
        found = list(compress(self.envelopes, fits)), list(compress(self.schemas, fits))
        return ReadEnvelopes(*found, np.array(fits, np.bool_))


def framed(value: pa.BinaryArray) -> Mask:
    """Rows of UTF-8 from brace to brace."""
    framed = pc.and_(pc.starts_with(value, b"{"), pc.ends_with(value, b"}"))
    fits = mask(pc.fill_null(framed, False))
    try:
        value.cast(pa.string())
    except pa.ArrowInvalid:
        fits = fits & np.fromiter(map(_is_text, value.to_pylist()), np.bool_, len(value))
    return fits


def _is_text(value: bytes | None) -> bool:
    try:
        (value or b"").decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def envelopes(value: pa.BinaryArray) -> ReadEnvelopes:
    """Read every framed message; of one with a schema that is known, the payload alone."""
    inside = wrappings.unwrapped(value)
    if not inside.known.any():
        return _whole(value)
    payloads = _each(inside.payloads, _PAYLOADS)
    found = _kept(payloads, inside.schemas)
    if inside.known.all():
        return found
    return _merged(inside.known, found, _whole(value.filter(pa.array(~inside.known))))


def _whole(value: pa.BinaryArray) -> ReadEnvelopes:
    """Messages with or without a schema."""
    messages = _each(value, _DECODER)
    schemas = [NULL if one is None or one.payload is None else one.schema for one in messages]
    return _kept([one and (one.payload or one) for one in messages], schemas)


def _kept(found: Sequence[Envelope | None], schemas: Sequence[Raw]) -> ReadEnvelopes:
    """Those that could be read."""
    fits = [one is not None for one in found]
    kept = [one for one in found if one is not None]
    return ReadEnvelopes(kept, list(compress(schemas, fits)), np.array(fits, np.bool_))


def _merged(first: Mask, one: ReadEnvelopes, other: ReadEnvelopes) -> ReadEnvelopes:
    """Of those that are *first* what *one* says, in their order."""
    read = np.empty(len(first), np.bool_)
    read[first], read[~first] = one.read, other.read
    parts = [iter(zip(part.envelopes, part.schemas, strict=True)) for part in (other, one)]
    pairs = [next(parts[its]) for its in first[read].tolist()]
    return ReadEnvelopes([one for one, _ in pairs], [schema for _, schema in pairs], read)


def _each(value: pa.BinaryArray, decoder: msgspec.json.Decoder[E]) -> Sequence[E | None]:
    """Read every value, which are objects; None for one that cannot be.

    All are read as lines of one text.  A value begins and ends with a brace, no string holds a
    line's end, and an object follows another without a comma only where no object is open: so
    every line holds whole objects, and one each if there are as many objects as lines.
    """
    if not len(value):
        return []
    try:
        found = decoder.decode_lines(_lines(value))
    except _REFUSALS:
        found = []
    if len(found) == len(value):
        return found
    return [_one(each, decoder) for each in value.to_pylist()]


def payload_of(value: bytes) -> bytes | None:
    """A message's payload as it was sent, ``null`` without one; None where it cannot be read.

    That it was read before says nothing of the schema around it, nor of how deep it may be here.
    """
    try:
        return bytes(_WRAPPED.decode(value).payload)
    except _REFUSALS:
        return None


def _lines(value: pa.BinaryArray) -> memoryview:
    """All values with a line's end between them."""
    whole = pa.ListArray.from_arrays(pa.array([0, len(value)], pa.int32()), value)
    (lines,) = pc.binary_join(whole, b"\n")
    return memoryview(lines.as_buffer())


def _one(value: bytes, decoder: msgspec.json.Decoder[E]) -> E | None:
    try:
        return decoder.decode(value)
    except _REFUSALS:
        return None


def is_long(one: Envelope) -> bool:
    """Whether every integer of a message has 64 bits; others are the exact decoder's to judge."""
    its, block = one.source or NO_SOURCE, one.transaction or NO_BLOCK
    found = (its.pos, its.row, its.lsn, its.ts_us, its.ts_ms, one.ts_ms, block.total_order)
    return all(value is None or value in json_text.LONG for value in found)


def longs(values: Sequence[int | None]) -> pa.Int64Array:
    """Integers of 64 bits.

    Raises:
        OverflowError: one is longer.
    """
    return pa.array(values, pa.int64())


def mask(array: pa.BooleanArray) -> Mask:
    """A column without nulls for numpy."""
    found: Mask = array.to_numpy(zero_copy_only=False)
    return found


_DECODER, _WRAPPED = msgspec.json.Decoder(WrappedEnvelope), msgspec.json.Decoder(Wrapped)
_PAYLOADS = msgspec.json.Decoder(Envelope)
_REFUSALS = (msgspec.MsgspecError, ValueError, RecursionError)
NO_SOURCE, NO_BLOCK = SourceBlock(), TransactionBlock()
