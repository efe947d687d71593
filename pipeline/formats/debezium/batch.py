"""How do whole batches of Debezium's JSON read, in a few microseconds a message?

msgspec reads all envelopes of a batch in one call and leaves the rows as slices; what few values
repeat (operation, table, file, snapshot) is judged once for each combination.  Every message that
is not plainly a row goes to ``envelope``, alone, so both say the same of all messages.  A batch is
held two to three times over while it is read.  Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw
from numpy.typing import NDArray

from pipeline.formats.debezium import bulk, envelope, keys, postgres, postgres_rows
from pipeline.formats.debezium.bulk import (
    NO_BLOCK,
    NO_SOURCE,
    NULL,
    NULL_TEXT,
    Envelope,
    Mask,
    ReadEnvelopes,
    SourceBlock,
    TransactionBlock,
    longs,
    mask,
)
from pipeline.formats.debezium.postgres import Placeholder
from pipeline.formats.debezium.schema_rows import told_with
from pipeline.formats.format import DECODED, INCREMENTAL, TIME, Decoded, Tx, rows
from pipeline.model import Op, Origin, ShardId

BRACE, LETTER_N = b"{n"
MOST = 2**31 - 1  # bytes an Arrow column of texts can hold
MOST_OF_KEYS = MOST // 8  # escapes may make a key's text longer, at worst so many times

Numbers = NDArray[np.intp]
Combination = tuple[
    str | None,
    str | None,
    str | None,
    str | None,
    str | None,
    str | None,
    str | bool | None,
    int | None,
]


@dataclass(frozen=True, slots=True)
class Place:
    """What the connector, operation, table, file and snapshot of a row mean.

    ``log`` is None where it is no file's number; ``postgres`` if each row tells it by itself.
    """

    op: str | None
    shard: str | None
    log: int | None
    snapshot: str | None
    origin: int
    with_after: bool
    postgres: bool

    @property
    def fine(self) -> bool:
        """Whether the exact decoder has nothing to say against them."""
        return None not in (self.op, self.shard)


@dataclass(frozen=True, slots=True)
class TextSlices:
    """Slices as a column, null where ``null`` was sent; ``broken`` says which are no objects."""

    column: pa.StringArray
    broken: Mask

    @property
    def absent(self) -> Mask:
        """Rows that hold null."""
        return mask(self.column.is_null())


def decode(batch: pa.RecordBatch, unavailable: Placeholder = envelope.AS_IT_IS) -> pa.RecordBatch:
    """Decode ``RAW`` to ``DECODED``: one row a message, and before it the columns it tells anew.

    Raises:
        ValueError: the batch holds more text than one column can.
    """
    _refuse_too_much(batch)
    found = keys.column(batch.column("key"))
    value = batch.column("value")
    numbers = np.flatnonzero(found.known & bulk.framed(value))
    whole = len(numbers) == batch.num_rows
    read = bulk.envelopes(value if whole else value.take(pa.array(numbers)))
    numbers, envelopes = numbers[read.read], read.envelopes
    try:
        plain, fine = _rows(envelopes, numbers, found.values, unavailable)
    except OverflowError:
        read = read.long()
        numbers, envelopes = numbers[read.read], read.envelopes
        plain, fine = _rows(envelopes, numbers, found.values, unavailable)
    if len(numbers) == batch.num_rows and fine.all():
        return told_with(plain, batch, _schemas(read, numbers, fine))
    dead = _tombstones(batch, np.flatnonzero(found.known & mask(value.is_null())), found.values)
    ends = _ends(batch, zip(numbers.tolist(), envelopes, strict=True), found.values)
    parts = (plain.filter(pa.array(fine)), dead, ends)
    told = np.concatenate([part.column("message").to_numpy() for part in parts])
    odd = np.setdiff1d(np.arange(batch.num_rows), told)
    known = _schemas(read, numbers, fine) | dict.fromkeys(odd.tolist())
    return told_with(_joined((*parts, _exact(batch, odd, unavailable))), batch, known)


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
    """Columns of ``DECODED`` as if all were rows; the second says which are, and whole."""
    sources = [one.source or NO_SOURCE for one in found]
    blocks = [one.transaction or NO_BLOCK for one in found]
    codes, places = _places(found, sources)
    before, after = _texts([one.before for one in found]), _texts([one.after for one in found])
    pos, row = longs([one.pos for one in sources]), longs([one.row for one in sources])
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
    fine = np.array([place.fine for place in places], np.bool_)[codes]
    with_after = np.array([place.with_after for place in places], np.bool_)[codes]
    fine = fine & ~before.broken & ~after.broken & ~(with_after & after.absent)
    its = np.array([place.postgres for place in places], np.bool_)[codes]
    if its.any():
        fine = fine & postgres_rows.take_over(given, sources, its & fine, unavailable)
    placed = [mask(given[name].is_valid()) for name in ("log", "pos", "row")]
    columns = _filled(given, len(found))
    return pa.RecordBatch.from_arrays(columns, schema=DECODED), fine & np.all(placed, axis=0)


def _places(
    found: Sequence[Envelope], sources: Sequence[SourceBlock]
) -> tuple[NDArray[np.int32], list[Place]]:
    """Judge each combination once: which one each row has, and what each means."""
    known = _Numbered()
    codes = [
        known[
            its.connector,
            one.op,
            its.db,
            its.schema,
            its.table,
            its.file,
            its.snapshot,
            its.server_id,
        ]
        for one, its in zip(found, sources, strict=True)
    ]
    return np.array(codes, np.int32), [_place(combination) for combination in known]


class _Numbered(dict[Combination, int]):
    """Numbers whatever it is asked for, in the order of the first asking."""

    def __missing__(self, combination: Combination) -> int:
        return self.setdefault(combination, len(self))


@lru_cache(maxsize=2**16)  # a batch of many tables asks for as many, and the next asks again
def _place(combination: Combination) -> Place:
    connector, name, database, schema, table, file, told, server = combination
    is_postgres = connector == postgres.CONNECTOR
    database = schema if is_postgres else database
    snapshot = str(told).lower() if isinstance(told, bool) else told
    live = snapshot in envelope.LIVE
    if envelope.is_signalled(server) and not is_postgres:
        snapshot = INCREMENTAL
    op = envelope.ROW_OPS.get(name or "")
    return Place(
        op=op,
        shard=str(ShardId(database, table)) if database and table else None,
        log=envelope.log_number(file),
        snapshot=None if live else snapshot,
        origin=int(Origin.LIVE if live else Origin.SNAPSHOT),
        with_after=op in envelope.WITH_AFTER,
        postgres=is_postgres,
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


def _at(found: Sequence[Envelope], sources: Sequence[SourceBlock]) -> pa.Array:
    """Times of the source: microseconds if it has them, else milliseconds; null if absurd."""
    micros = longs([one.ts_us for one in sources])
    if micros.null_count:
        millis = longs([one.ts_ms for one in sources])
        millis = pc.coalesce(millis, longs([one.ts_ms for one in found]))
        micros = pc.coalesce(
            micros, pc.multiply(_within(millis, envelope.END_OF_TIME // 1000), 1000)
        )
    return _within(micros, envelope.END_OF_TIME).cast(TIME)


def _within(values: pa.Int64Array, end: int) -> pa.Int64Array:
    fits = pc.and_(pc.greater_equal(values, 0), pc.less(values, end))
    return pc.if_else(fits, values, pa.scalar(None, pa.int64()))


def _tx(blocks: Sequence[TransactionBlock]) -> pa.StructArray:
    names = pa.array([one.id for one in blocks], pa.string())
    orders = longs([one.total_order for one in blocks])
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
    if not bulk.is_long(found):
        return None
    payload = bulk.payload_of(value)
    if payload is None:
        return None
    return Decoded(
        envelope.TX_OPS[found.status or ""],
        key_values=key_values,
        after=(value if payload == NULL_TEXT else payload).decode("utf-8"),
        at=envelope.instant(None, found.ts_ms),
        tx=Tx(postgres.tx_id(found.id or "")),
    )


def _schemas(read: ReadEnvelopes, numbers: Numbers, fine: Mask) -> dict[int, Raw]:
    """By message, of rows of a connector that has no schema changes."""
    if all(schema is NULL for schema in read.schemas):
        return {}
    plainly = zip(numbers.tolist(), read.envelopes, read.schemas, fine.tolist(), strict=True)
    return {
        number: schema
        for number, one, schema, is_fine in plainly
        if is_fine and (one.source or NO_SOURCE).connector == postgres.CONNECTOR
    }


def _exact(batch: pa.RecordBatch, odd: Numbers, unavailable: Placeholder) -> pa.RecordBatch:
    some = batch.select(["key", "value", "topic"]).take(pa.array(odd))
    messages = zip(*(column.to_pylist() for column in some.columns), strict=True)
    return rows(
        (int(number), envelope.decode(key, value, topic, unavailable))
        for number, (key, value, topic) in zip(odd, messages, strict=True)
    )


def _joined(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Join rows of all parts, in the order of their messages."""
    table = pa.Table.from_batches(parts)
    order = np.argsort(table.column("message").to_numpy(), kind="stable")
    (batch,) = table.take(pa.array(order)).combine_chunks().to_batches() or [_EMPTY]
    return batch


_EMPTY = rows(())
