"""Decodes whole batches of Debezium JSON, in a few microseconds per message.

msgspec reads all envelopes of a batch in one call, and leaves rows, schemas and keys as slices
of the sent bytes. Values that repeat (operation, table, file, snapshot) are judged once for
each combination. A message that is not plainly a row, a tombstone or a transaction marker goes
to `envelope`, alone. So both modules give the same result for every message, including rows of
Postgres. A batch is held in memory two to three times while it is read.

Connect's JSON converter writes `{"schema":...,"payload":{...}}`. The schema has some kilobytes
and is the same in every message of a table. So the text before a payload is judged once: if it
is valid with null as payload, it is valid with any object.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress, pairwise
from typing import TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw
from numpy.typing import NDArray

from pipeline.formats import json_text
from pipeline.formats.debezium import envelope
from pipeline.formats.debezium.connector import (
    Connector,
    Mask,
    Placeholder,
    SourceBlock,
    to_int64,
    to_mask,
)
from pipeline.formats.debezium.schema_changes import add_schema_events
from pipeline.formats.format import DECODED, TIME, Decoded, Tx, build_batch
from pipeline.model import LOG_PARTS, Op, Origin

BEGIN, PAYLOAD, END = b'{"schema":{', b'},"payload":{', b"}}"


@dataclass(frozen=True, slots=True)
class UnwrappedPayloads:
    """``payloads`` of the messages that are ``known``, and the ``schemas`` around them.

    Equal schemas are one object, so that they can be compared by identity.
    """

    known: NDArray[np.bool_]
    payloads: pa.BinaryArray
    schemas: list[Raw]


def unwrap_payloads(value: pa.BinaryArray) -> UnwrappedPayloads:
    """Unwrap messages, none null; a payload that is found begins and ends with a brace."""
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
    return UnwrappedPayloads(
        known, _slices(edges, data), [one for _, one in found if one is not None]
    )


def _found(text: bytes, bounds: list[int]) -> Iterator[tuple[int, Raw | None]]:
    """Yield where each payload begins, and its schema."""
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
    """Return the slices, as every second value of one Arrow array."""
    if not len(edges):
        return pa.array([], pa.binary())
    both = pa.BinaryArray.from_buffers(
        pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), data]
    )
    return both.take(pa.array(np.arange(0, len(edges), 2)))


@lru_cache(maxsize=1024)  # tables that are written to at the same time; one is some 10 kB
def _schema(before: bytes) -> Raw | None:
    """Return the schema in the text before a payload; None if that is no wrapping."""
    fields = json_text.read_fields(before + b"null}")
    if fields is None or [name for name, _ in fields] != ["schema", "payload"]:
        return None
    return Raw(fields[0][1].encode())


NULL_TEXT = b"null"
NULL = Raw(NULL_TEXT)
E = TypeVar("E")


class TransactionBlock(msgspec.Struct, gc=False):
    """The transaction block."""

    id: str | None = None
    total_order: int | None = None


class Envelope(msgspec.Struct, gc=False):
    """A row's envelope or a transaction's; other kinds have none of these fields."""

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
    """Envelopes of the messages that could be read (mask ``read``), and their schemas.

    A schema is null if none was around the message.
    """

    envelopes: list[Envelope]
    schemas: list[Raw]
    read: Mask

    def long(self) -> "ReadEnvelopes":
        """Return those whose integers have 64 bits; its ``read`` is a mask of the present ones."""
        fits = [is_long(one) for one in self.envelopes]
        found = list(compress(self.envelopes, fits)), list(compress(self.schemas, fits))
        return ReadEnvelopes(*found, np.array(fits, np.bool_))


def find_framed(value: pa.BinaryArray) -> Mask:
    """Return which rows are UTF-8 from brace to brace."""
    framed = pc.and_(pc.starts_with(value, b"{"), pc.ends_with(value, b"}"))
    fits = to_mask(pc.fill_null(framed, False))
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


def read_envelopes(value: pa.BinaryArray) -> ReadEnvelopes:
    """Read every framed message; with a known schema only the payload."""
    inside = unwrap_payloads(value)
    if not inside.known.any():
        return _whole(value)
    payloads = _each(inside.payloads, _PAYLOADS)
    found = _kept(payloads, inside.schemas)
    if inside.known.all():
        return found
    return _merged(inside.known, found, _whole(value.filter(pa.array(~inside.known))))


def _whole(value: pa.BinaryArray) -> ReadEnvelopes:
    """Read messages with or without a schema."""
    messages = _each(value, _DECODER)
    schemas = [NULL if one is None or one.payload is None else one.schema for one in messages]
    return _kept([one and (one.payload or one) for one in messages], schemas)


def _kept(found: Sequence[Envelope | None], schemas: Sequence[Raw]) -> ReadEnvelopes:
    """Keep those that could be read."""
    fits = [one is not None for one in found]
    kept = [one for one in found if one is not None]
    return ReadEnvelopes(kept, list(compress(schemas, fits)), np.array(fits, np.bool_))


def _merged(first: Mask, one: ReadEnvelopes, other: ReadEnvelopes) -> ReadEnvelopes:
    """Merge the rows in order: from *one* where *first* is true, else from *other*."""
    read = np.empty(len(first), np.bool_)
    read[first], read[~first] = one.read, other.read
    parts = [iter(zip(part.envelopes, part.schemas, strict=True)) for part in (other, one)]
    pairs = [next(parts[its]) for its in first[read].tolist()]
    return ReadEnvelopes([one for one, _ in pairs], [schema for _, schema in pairs], read)


def _each(value: pa.BinaryArray, decoder: msgspec.json.Decoder[E]) -> Sequence[E | None]:
    """Read every value, each an object; None for one that cannot be read.

    All are read as lines of one text. A value begins and ends with a brace, and no string holds a
    line end. An object follows another without a comma only where no object is open. So every line
    holds whole objects, and one each if there are as many objects as lines.
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
    """Return a message's payload as it was sent, ``null`` without one; None if it cannot be read.

    An earlier read of the payload proves neither the schema around it nor the depth of nesting
    here.
    """
    try:
        return bytes(_WRAPPED.decode(value).payload)
    except _REFUSALS:
        return None


def _lines(value: pa.BinaryArray) -> memoryview:
    """Return all values with a line end between them."""
    whole = pa.ListArray.from_arrays(pa.array([0, len(value)], pa.int32()), value)
    (lines,) = pc.binary_join(whole, b"\n")
    return memoryview(lines.as_buffer())


def _one(value: bytes, decoder: msgspec.json.Decoder[E]) -> E | None:
    try:
        return decoder.decode(value)
    except _REFUSALS:
        return None


def is_long(one: Envelope) -> bool:
    """Return whether every integer of a message has 64 bits; the exact decoder judges others."""
    its, block = one.source or NO_SOURCE, one.transaction or NO_BLOCK
    found = (its.pos, its.row, its.lsn, its.ts_us, its.ts_ms, one.ts_ms, block.total_order)
    return all(value is None or value in json_text.LONG for value in found)


_DECODER, _WRAPPED = msgspec.json.Decoder(WrappedEnvelope), msgspec.json.Decoder(Wrapped)
_PAYLOADS = msgspec.json.Decoder(Envelope)
_REFUSALS = (msgspec.MsgspecError, ValueError, RecursionError)
NO_SOURCE, NO_BLOCK = SourceBlock(), TransactionBlock()


BRACE, LETTER_N = b"{n"
MOST = 2**31 - 1  # bytes an Arrow column of texts can hold
MOST_OF_KEYS = MOST // 8  # escapes may make a key's text longer, at worst by this factor

Numbers = NDArray[np.intp]
# connector, operation, db, schema, table, snapshot
Combination = tuple[str | None, str | None, str | None, str | None, str | None, str | bool | None]


@dataclass(frozen=True, slots=True)
class RowKind:
    """The meaning of the connector, operation, table and snapshot of a row."""

    connector: Connector
    op: str | None
    shard: str | None
    snapshot: str | None
    origin: int
    with_after: bool

    @property
    def fine(self) -> bool:
        """Return whether the exact decoder would accept them."""
        return None not in (self.op, self.shard)


@dataclass(frozen=True, slots=True)
class TextSlices:
    """Slices as a column, null where ``null`` was sent; ``broken`` marks those without object."""

    column: pa.StringArray
    broken: Mask

    @property
    def absent(self) -> Mask:
        """Return which rows hold null."""
        return to_mask(self.column.is_null())


def decode_batch(
    batch: pa.RecordBatch, unavailable: Placeholder = envelope.AS_IT_IS
) -> pa.RecordBatch:
    """Decode ``RAW`` to ``DECODED``: one row per message, and schema events where columns change.

    Raises:
        ValueError: the batch holds more text than one column can.
    """
    _refuse_too_much(batch)
    found = envelope.read_key_column(batch.column("key"))
    value = batch.column("value")
    numbers = np.flatnonzero(found.known & find_framed(value))
    whole = len(numbers) == batch.num_rows
    read = read_envelopes(value if whole else value.take(pa.array(numbers)))
    numbers, envelopes = numbers[read.read], read.envelopes
    try:
        plain, fine = _rows(envelopes, numbers, found.values, unavailable)
    except OverflowError:
        read = read.long()
        numbers, envelopes = numbers[read.read], read.envelopes
        plain, fine = _rows(envelopes, numbers, found.values, unavailable)
    if len(numbers) == batch.num_rows and fine.all():
        return add_schema_events(plain, batch, _schemas(read, numbers, fine))
    dead = _tombstones(batch, np.flatnonzero(found.known & to_mask(value.is_null())), found.values)
    ends = _ends(batch, zip(numbers.tolist(), envelopes, strict=True), found.values)
    parts = (plain.filter(pa.array(fine)), dead, ends)
    decoded = np.concatenate([part.column("message").to_numpy() for part in parts])
    odd = np.setdiff1d(np.arange(batch.num_rows), decoded)
    known = _schemas(read, numbers, fine) | dict.fromkeys(odd.tolist())
    return add_schema_events(_joined((*parts, _exact(batch, odd, unavailable))), batch, known)


def _refuse_too_much(batch: pa.RecordBatch) -> None:
    for name, most in (("key", MOST_OF_KEYS), ("value", MOST - batch.num_rows)):
        size = pc.sum(pc.binary_length(batch.column(name))).as_py() or 0
        if size > most:
            msg = f"{batch.num_rows} messages hold {size} bytes of {name}s; split them below {most}"
            raise ValueError(msg)


def _rows(
    found: Sequence[Envelope],
    numbers: Numbers,
    key_values: pa.StringArray,
    unavailable: Placeholder,
) -> tuple[pa.RecordBatch, Mask]:
    """Return columns of ``DECODED`` as if all were rows, and a mask of the whole rows."""
    sources = [one.source or NO_SOURCE for one in found]
    blocks = [one.transaction or NO_BLOCK for one in found]
    codes, kinds = _kinds(found, sources)
    before, after = _texts([one.before for one in found]), _texts([one.after for one in found])
    messages = pa.array(numbers, pa.int32())
    given: dict[str, pa.Array] = {
        "message": messages,
        "key_values": key_values if len(found) == len(key_values) else key_values.take(messages),
        "before": before.column,
        "after": after.column,
        "at": _source_times(found, sources),
        "tx": _tx(blocks),
    }
    for name in ("op", "shard", "snapshot", "origin"):
        few = [getattr(kind, name) for kind in kinds]
        given[name] = pa.array(few, DECODED.field(name).type).take(pa.array(codes))
    fine = np.array([kind.fine for kind in kinds], np.bool_)[codes]
    with_after = np.array([kind.with_after for kind in kinds], np.bool_)[codes]
    fine = fine & ~before.broken & ~after.broken & ~(with_after & after.absent)
    for connector in {kind.connector for kind in kinds}:
        its = np.array([kind.connector is connector for kind in kinds], np.bool_)[codes]
        fine = fine & connector.fill_columns(given, sources, its, unavailable)
    columns = pa.RecordBatch.from_arrays(_filled(given, len(found)), schema=DECODED)
    placed = [to_mask(columns[name].is_valid()) for name in LOG_PARTS]
    return columns, fine & np.all(placed, axis=0)


def _kinds(
    found: Sequence[Envelope], sources: Sequence[SourceBlock]
) -> tuple[NDArray[np.int32], list[RowKind]]:
    """Judge each combination once; return each row's combination, and what each means."""
    known = _Numbered()
    codes = [
        known[its.connector, one.op, its.db, its.schema, its.table, its.snapshot]
        for one, its in zip(found, sources, strict=True)
    ]
    return np.array(codes, np.int32), [_kind(combination) for combination in known]


class _Numbered(dict[Combination, int]):
    """Numbers combinations in the order of their first use."""

    def __missing__(self, combination: Combination) -> int:
        return self.setdefault(combination, len(self))


@lru_cache(maxsize=2**16)  # a batch of many tables has as many, and the next batch has the same
def _kind(combination: Combination) -> RowKind:
    name, op_name, db, schema, table, sent = combination
    connector = envelope.connector_of(name)
    database = {"db": db, "schema": schema}[connector.database_field]
    snapshot = str(sent).lower() if isinstance(sent, bool) else sent
    live = snapshot in envelope.LIVE
    op = envelope.ROW_OPS.get(op_name or "")
    return RowKind(
        connector=connector,
        op=op,
        shard=envelope.name_shard(connector, database, table),
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


def _source_times(found: Sequence[Envelope], sources: Sequence[SourceBlock]) -> pa.Array:
    """Return times of the source from microseconds, else milliseconds; null if out of range."""
    micros = to_int64([one.ts_us for one in sources])
    if micros.null_count:
        millis = to_int64([one.ts_ms for one in sources])
        millis = pc.coalesce(millis, to_int64([one.ts_ms for one in found]))
        micros = pc.coalesce(
            micros, pc.multiply(_within(millis, envelope.END_OF_TIME // 1000), 1000)
        )
    return _within(micros, envelope.END_OF_TIME).cast(TIME)


def _within(values: pa.Int64Array, end: int) -> pa.Int64Array:
    fits = pc.and_(pc.greater_equal(values, 0), pc.less(values, end))
    return pc.if_else(fits, values, pa.scalar(None, pa.int64()))


def _tx(blocks: Sequence[TransactionBlock]) -> pa.StructArray:
    names = pa.array([one.id for one in blocks], pa.string())
    orders = to_int64([one.total_order for one in blocks])
    mask = names.is_null() if names.null_count else None
    return pa.StructArray.from_arrays(
        [names, orders], fields=list(DECODED.field("tx").type), mask=mask
    )


def _tombstones(batch: pa.RecordBatch, dead: Numbers, key_values: pa.StringArray) -> pa.RecordBatch:
    """Return rows of the messages without a value; there is one after every delete."""
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
    """Return columns of ``DECODED``; all null if not given."""
    return [given[f.name] if f.name in given else pa.nulls(count, f.type) for f in DECODED]


def _ends(
    batch: pa.RecordBatch, found: Iterable[tuple[int, Envelope]], key_values: pa.StringArray
) -> pa.RecordBatch:
    """Decode markers of transactions; small transactions send two for every row."""
    value, known = batch.column("value"), envelope.TX_OPS
    ends = (
        (number, _end(one, value[number].as_py(), key_values[number].as_py()))
        for number, one in found
        if one.op is None and one.id is not None and one.status in known
    )
    return build_batch((number, end) for number, end in ends if end is not None)


def _end(found: Envelope, value: bytes, key_values: str | None) -> Decoded | None:
    if not is_long(found):
        return None
    payload = payload_of(value)
    if payload is None:
        return None
    return Decoded(
        envelope.TX_OPS[found.status or ""],
        key_values=key_values,
        after=(value if payload == NULL_TEXT else payload).decode("utf-8"),
        at=envelope.to_time(None, found.ts_ms),
        tx=Tx(envelope.marker_id(found.id or "")),
    )


def _schemas(read: ReadEnvelopes, numbers: Numbers, fine: Mask) -> dict[int, Raw]:
    """Return schemas by message, for rows of connectors without schema changes."""
    if all(schema is NULL for schema in read.schemas):
        return {}
    plainly = zip(numbers.tolist(), read.envelopes, read.schemas, fine.tolist(), strict=True)
    return {
        number: schema
        for number, one, schema, is_fine in plainly
        if is_fine and envelope.connector_of((one.source or NO_SOURCE).connector).describes_rows
    }


def _exact(batch: pa.RecordBatch, odd: Numbers, unavailable: Placeholder) -> pa.RecordBatch:
    some = batch.select(["key", "value", "topic"]).take(pa.array(odd))
    messages = zip(*(column.to_pylist() for column in some.columns), strict=True)
    return build_batch(
        (int(number), envelope.decode_message(key, value, topic, unavailable))
        for number, (key, value, topic) in zip(odd, messages, strict=True)
    )


def _joined(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Join rows of all parts, in the order of their messages."""
    table = pa.Table.from_batches(parts)
    order = np.argsort(table.column("message").to_numpy(), kind="stable")
    (batch,) = table.take(pa.array(order)).combine_chunks().to_batches() or [_EMPTY]
    return batch


_EMPTY = build_batch(())
