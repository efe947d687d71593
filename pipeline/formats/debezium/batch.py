"""How do whole batches of Debezium's JSON read, in a few microseconds a message?

msgspec reads all envelopes of a batch in one call and leaves the rows as slices; what few values
repeat (operation, table, file, snapshot) is judged once for each combination.  Every message that
is not plainly a row goes to ``envelope``, alone, so both say the same of all messages.  A batch is
held two to three times over while it is read.  Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw
from numpy.typing import NDArray

from pipeline.formats import json_text
from pipeline.formats.debezium import envelope, keys
from pipeline.formats.format import DECODED, TIME, Decoded, Tx, rows
from pipeline.model import Op, Origin, ShardId

NULL_TEXT = b"null"
NULL = Raw(NULL_TEXT)
BRACE, LETTER_N = b"{n"
MOST = 2**31 - 1  # bytes an Arrow column of texts can hold
MOST_OF_KEYS = MOST // 8  # escapes may make a key's text longer, at worst so many times

Mask = NDArray[np.bool_]
Numbers = NDArray[np.intp]


class SourceBlock(msgspec.Struct, gc=False):
    """The source block, as far as it is asked."""

    db: str | None = None
    table: str | None = None
    file: str | None = None
    snapshot: str | bool | None = None
    pos: int | None = None
    row: int | None = None
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


Combination = tuple[str | None, str | None, str | None, str | None, str | bool | None]


@dataclass(frozen=True, slots=True)
class Place:
    """What the operation, database, table, file and snapshot of a row mean; ``fine`` if all do."""

    op: str | None
    shard: str | None
    log: int | None
    snapshot: str | None
    origin: int
    with_after: bool

    @property
    def fine(self) -> bool:
        """Whether the exact decoder has nothing to say against them."""
        return None not in (self.op, self.shard, self.log)


@dataclass(frozen=True, slots=True)
class TextSlices:
    """Slices as a column, null where ``null`` was sent; ``broken`` says which are no objects."""

    column: pa.StringArray
    broken: Mask

    @property
    def absent(self) -> Mask:
        """Rows that hold null."""
        return _mask(self.column.is_null())


def decode(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Decode ``RAW`` to ``DECODED``, one row a message.

    Raises:
        ValueError: the batch holds more text than one column can.
    """
    _refuse_too_much(batch)
    found = keys.column(batch.column("key"))
    value = batch.column("value")
    numbers = np.flatnonzero(found.known & _framed(value))
    whole = len(numbers) == batch.num_rows
    envelopes, read = _envelopes(value if whole else value.take(pa.array(numbers)))
    numbers = numbers[read]
    try:
        plain, fine = _rows(envelopes, numbers, found.values)
    except OverflowError:
        numbers = numbers[[_is_long(one) for one in envelopes]]
        envelopes = list(filter(_is_long, envelopes))
        plain, fine = _rows(envelopes, numbers, found.values)
    if len(numbers) == batch.num_rows and fine.all():
        return plain
    dead = _tombstones(batch, np.flatnonzero(found.known & _mask(value.is_null())), found.values)
    ends = _ends(batch, zip(numbers.tolist(), envelopes, strict=True), found.values)
    parts = (plain.filter(pa.array(fine)), dead, ends)
    told = np.concatenate([part.column("message").to_numpy() for part in parts])
    odd = np.setdiff1d(np.arange(batch.num_rows), told)
    return _joined((*parts, _exact(batch, odd)))


def _refuse_too_much(batch: pa.RecordBatch) -> None:
    for name, most in (("key", MOST_OF_KEYS), ("value", MOST - batch.num_rows)):
        size = pc.sum(pc.binary_length(batch.column(name))).as_py() or 0
        if size > most:
            msg = f"{batch.num_rows} messages hold {size} bytes of {name}s; split them below {most}"
            raise ValueError(msg)


def _framed(value: pa.BinaryArray) -> Mask:
    """Rows of UTF-8 from brace to brace."""
    framed = pc.and_(pc.starts_with(value, b"{"), pc.ends_with(value, b"}"))
    mask = _mask(pc.fill_null(framed, False))
    try:
        value.cast(pa.string())
    except pa.ArrowInvalid:
        mask = mask & np.fromiter(map(_is_text, value.to_pylist()), np.bool_, len(value))
    return mask


def _is_text(value: bytes | None) -> bool:
    try:
        (value or b"").decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _envelopes(value: pa.BinaryArray) -> tuple[list[Envelope], Mask]:
    """Read every framed message; the second says which could be.

    All are read as lines of one text.  A value begins and ends with a brace, no string holds a
    line's end, and an object follows another without a comma only where no object is open: so
    every line holds whole objects, and one each if there are as many objects as lines.
    """
    everything = np.ones(len(value), np.bool_)
    if not len(value):
        return [], everything
    try:
        found: Sequence[WrappedEnvelope] = _DECODER.decode_lines(_lines(value))
    except _REFUSALS:
        found = ()
    if len(found) != len(value):
        each = list(map(_envelope_or_none, value.to_pylist()))
        everything = np.fromiter((one is not None for one in each), np.bool_, len(each))
        found = [one for one in each if one is not None]
    return [one.payload or one for one in found], everything


def _lines(value: pa.BinaryArray) -> memoryview:
    """All values with a line's end between them."""
    whole = pa.ListArray.from_arrays(pa.array([0, len(value)], pa.int32()), value)
    (lines,) = pc.binary_join(whole, b"\n")
    return memoryview(lines.as_buffer())


def _envelope_or_none(value: bytes) -> WrappedEnvelope | None:
    try:
        return _DECODER.decode(value)
    except _REFUSALS:
        return None


def _rows(
    found: Sequence[Envelope], numbers: Numbers, key_values: pa.StringArray
) -> tuple[pa.RecordBatch, Mask]:
    """Columns of ``DECODED`` as if all were rows; the second says which are, and whole."""
    sources = [one.source or _NO_SOURCE for one in found]
    blocks = [one.transaction or _NO_BLOCK for one in found]
    codes, places = _places(found, sources)
    before, after = _texts([one.before for one in found]), _texts([one.after for one in found])
    pos, row = _longs([one.pos for one in sources]), _longs([one.row for one in sources])
    messages = pa.array(numbers, pa.int32())
    given = {
        "message": messages,
        "key_values": key_values if len(found) == len(key_values) else key_values.take(messages),
        "before": before.column,
        "after": after.column,
        "at": _at(found, sources),
        "pos": pos,
        "row": row,
        "tx": _tx(blocks),
    }
    for name in ("op", "shard", "log", "snapshot", "origin"):
        few = [getattr(place, name) for place in places]
        given[name] = pa.array(few, DECODED.field(name).type).take(pa.array(codes))
    columns = _filled(given, len(found))
    fine = np.array([place.fine for place in places], np.bool_)[codes]
    with_after = np.array([place.with_after for place in places], np.bool_)[codes]
    fine = fine & _mask(pc.and_(pos.is_valid(), row.is_valid()))
    fine = fine & ~before.broken & ~after.broken & ~(with_after & after.absent)
    return pa.RecordBatch.from_arrays(columns, schema=DECODED), fine


def _places(
    found: Sequence[Envelope], sources: Sequence[SourceBlock]
) -> tuple[NDArray[np.int32], list[Place]]:
    """Judge each combination once: which one each row has, and what each means."""
    known = _Numbered()
    codes = [
        known[one.op, its.db, its.table, its.file, its.snapshot]
        for one, its in zip(found, sources, strict=True)
    ]
    return np.array(codes, np.int32), [_place(combination) for combination in known]


class _Numbered(dict[Combination, int]):
    """Numbers whatever it is asked for, in the order of the first asking."""

    def __missing__(self, combination: Combination) -> int:
        return self.setdefault(combination, len(self))


@lru_cache(maxsize=2**16)  # a batch of many tables asks for as many, and the next asks again
def _place(combination: Combination) -> Place:
    name, database, table, file, told = combination
    snapshot = str(told).lower() if isinstance(told, bool) else told
    live = snapshot in envelope.LIVE
    op = envelope.ROW_OPS.get(name or "")
    return Place(
        op=op,
        shard=str(ShardId(database, table)) if database and table else None,
        log=envelope.log_number(file),
        snapshot=None if live else snapshot,
        origin=int(Origin.LIVE if live else Origin.SNAPSHOT),
        with_after=op in envelope.WITH_AFTER,
    )


def _texts(slices: Sequence[Raw]) -> TextSlices:
    """Put slices into one column without a string of Python's in between."""
    count, data = len(slices), b"".join(slices)
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.fromiter(map(len, slices), np.int32, count), out=offsets[1:])
    first = np.frombuffer(data, np.uint8)[offsets[:-1]]
    null = first == LETTER_N
    valid = pa.py_buffer(np.packbits(~null, bitorder="little"))
    column = pa.StringArray.from_buffers(
        count, pa.py_buffer(offsets), pa.py_buffer(data), valid, int(null.sum())
    )
    return TextSlices(column, ~null & (first != BRACE))


def _longs(values: Sequence[int | None]) -> pa.Int64Array:
    """Integers of 64 bits.

    Raises:
        OverflowError: one is longer.
    """
    return pa.array(values, pa.int64())


def _is_long(one: Envelope) -> bool:
    """Whether every integer of a message has 64 bits; others are the exact decoder's to judge."""
    its, block = one.source or _NO_SOURCE, one.transaction or _NO_BLOCK
    found = (its.pos, its.row, its.ts_us, its.ts_ms, one.ts_ms, block.total_order)
    return all(value is None or value in json_text.LONG for value in found)


def _at(found: Sequence[Envelope], sources: Sequence[SourceBlock]) -> pa.Array:
    """Times of the source: microseconds if it has them, else milliseconds; null if absurd."""
    micros = _longs([one.ts_us for one in sources])
    if micros.null_count:
        millis = _longs([one.ts_ms for one in sources])
        millis = pc.coalesce(millis, _longs([one.ts_ms for one in found]))
        micros = pc.coalesce(
            micros, pc.multiply(_within(millis, envelope.END_OF_TIME // 1000), 1000)
        )
    return _within(micros, envelope.END_OF_TIME).cast(TIME)


def _within(values: pa.Int64Array, end: int) -> pa.Int64Array:
    fits = pc.and_(pc.greater_equal(values, 0), pc.less(values, end))
    return pc.if_else(fits, values, pa.scalar(None, pa.int64()))


def _tx(blocks: Sequence[TransactionBlock]) -> pa.StructArray:
    names = pa.array([one.id for one in blocks], pa.string())
    orders = _longs([one.total_order for one in blocks])
    mask = names.is_null() if names.null_count else None
    return pa.StructArray.from_arrays(
        [names, orders], fields=list(DECODED.field("tx").type), mask=mask
    )


def _tombstones(batch: pa.RecordBatch, dead: Numbers, key_values: pa.StringArray) -> pa.RecordBatch:
    """Rows of the messages without a value; there is one after every delete."""
    topics = batch.column("topic").take(pa.array(dead)).dictionary_encode()
    shards = [envelope.shard_of_topic(topic) for topic in topics.dictionary.to_pylist()]
    given = {
        "message": pa.array(dead, pa.int32()),
        "op": pa.repeat(pa.scalar(str(Op.TOMBSTONE)), len(dead)),
        "shard": pa.array(shards, pa.string()).take(topics.indices),
        "key_values": key_values.take(pa.array(dead)),
        "origin": pa.repeat(pa.scalar(int(Origin.LIVE), pa.int32()), len(dead)),
    }
    return pa.RecordBatch.from_arrays(_filled(given, len(dead)), schema=DECODED)


def _filled(given: Mapping[str, pa.Array], count: int) -> list[pa.Array]:
    """Columns of ``DECODED``; null throughout if not given."""
    return [given[f.name] if f.name in given else pa.nulls(count, f.type) for f in DECODED]


def _ends(
    batch: pa.RecordBatch, found: Iterable[tuple[int, Envelope]], key_values: pa.StringArray
) -> pa.RecordBatch:
    """Begins and ends of transactions, of which small transactions send two for every row."""
    value, known = batch.column("value"), envelope.TX_OPS
    ends = (
        (number, _end(one, value[number].as_py(), key_values[number].as_py()))
        for number, one in found
        if one.op is None and one.id is not None and one.status in known
    )
    return rows((number, end) for number, end in ends if end is not None)


def _end(found: Envelope, value: bytes, key_values: str | None) -> Decoded | None:
    if not _is_long(found):
        return None
    try:
        payload = bytes(_WRAPPED.decode(value).payload)
    except RecursionError:  # here are some calls more above it than when it was read
        return None
    return Decoded(
        envelope.TX_OPS[found.status or ""],
        key_values=key_values,
        after=(value if payload == NULL_TEXT else payload).decode("utf-8"),
        at=envelope.instant(None, found.ts_ms),
        tx=Tx(found.id or ""),
    )


def _exact(batch: pa.RecordBatch, odd: Numbers) -> pa.RecordBatch:
    some = batch.select(["key", "value", "topic"]).take(pa.array(odd))
    messages = zip(*(column.to_pylist() for column in some.columns), strict=True)
    return rows(
        (int(number), envelope.decode(*message))
        for number, message in zip(odd, messages, strict=True)
    )


def _joined(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Join rows of all parts, in the order of their messages."""
    table = pa.Table.from_batches(parts)
    order = np.argsort(table.column("message").to_numpy(), kind="stable")
    (batch,) = table.take(pa.array(order)).combine_chunks().to_batches() or [_EMPTY]
    return batch


def _mask(array: pa.BooleanArray) -> Mask:
    mask: Mask = array.to_numpy(zero_copy_only=False)
    return mask


_DECODER, _WRAPPED = msgspec.json.Decoder(WrappedEnvelope), msgspec.json.Decoder(Wrapped)
_REFUSALS = (msgspec.MsgspecError, ValueError, RecursionError)
_NO_SOURCE, _NO_BLOCK, _EMPTY = SourceBlock(), TransactionBlock(), rows(())
