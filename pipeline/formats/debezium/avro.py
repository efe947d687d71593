"""What would these Avro messages be as JSON, and which of them are none?

In a message of Confluent's wire format stand a zero, a schema's number in four bytes, the highest
first, and the body in Avro's binary encoding.  Messages of one schema are read together, or one by
one where they are few; one that does not fit is left out by itself, with its reason.  Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw
from numpy.typing import NDArray

from pipeline.errors import FormatError
from pipeline.formats.debezium.avro_bodies import ENDS, Bodies, DamagedError
from pipeline.formats.debezium.avro_body import Body
from pipeline.formats.debezium.avro_columns import row_schema
from pipeline.formats.debezium.avro_schema import value_reader
from pipeline.formats.debezium.avro_values import ValueReader

HEADER = 5
MAGIC = 0
FEW = 100  # messages of a schema: reading these together would cost more than one by one
LEFT = "bytes are left over"
UNFRAMED = "it does not begin with a zero and a schema's number: it is not in Confluent's format"
UNKNOWN = (
    "the registry knows no schema {number}: find out who wrote it and with which registry;"
    " once that knows it, it is read again, or the table needs a new base"
)

Schemas = Mapping[int, str | None]  # by number, None where the registry knows none


@dataclass(eq=False)
class JsonTexts:
    """One text for each message, null where none was sent; ``wrong`` says why one is none."""

    column: pa.BinaryArray
    wrong: dict[int, str] = field(default_factory=dict)


def numbers(messages: pa.BinaryArray) -> frozenset[int]:
    """Of which schemas *messages* are."""
    found = _numbers(messages)
    return frozenset(np.unique(found[found >= 0]).tolist())


def json_texts(messages: pa.BinaryArray, schemas: Schemas, *, unicode_names: bool) -> JsonTexts:
    """Read every message; *schemas* holds all of ``numbers``."""
    found = _numbers(messages)
    given = messages.is_valid().to_numpy(zero_copy_only=False)
    told = JsonTexts(pa.nulls(len(messages), pa.binary()))
    told.wrong = dict.fromkeys(np.flatnonzero(given & (found < 0)).tolist(), UNFRAMED)
    parts, rows = [], []
    for number in np.unique(found[found >= 0]).tolist():
        mine = np.flatnonzero(found == number)
        texts, read, wrong = _group(messages, mine, number, schemas, unicode_names=unicode_names)
        told.wrong |= wrong
        parts.append(texts)
        rows.append(read)
    if parts:
        places = np.full(len(messages), -1, np.int64)
        places[np.concatenate(rows)] = np.arange(sum(map(len, rows)))
        order = pa.array(places, mask=places < 0)
        told.column = pa.concat_arrays(parts).cast(pa.binary()).take(order)
    return told


def row_schemas(
    messages: pa.BinaryArray, schemas: Schemas, *, unicode_names: bool
) -> dict[int, Raw]:
    """Of those that are rows whose columns nothing else tells, what would be around them as JSON.

    By their numbers in *messages*.
    """
    found = _numbers(messages)
    told: dict[int, Raw] = {}
    for number in np.unique(found[found >= 0]).tolist():
        schema = schemas.get(number)
        columns = schema and row_schema(schema, unicode_names=unicode_names)
        if columns:
            told |= dict.fromkeys(np.flatnonzero(found == number).tolist(), columns)
    return told


def representatives(messages: pa.BinaryArray, texts: pa.BinaryArray) -> pa.BinaryArray:
    """For each message the text of the first of the same schema that has one: its names are all.

    ``texts`` are the JSON of *messages*.
    """
    found = _numbers(messages)
    given = texts.is_valid().to_numpy(zero_copy_only=False)
    first = np.full(len(messages), -1, np.int64)
    for number in np.unique(found[found >= 0]).tolist():
        mine = np.flatnonzero((found == number) & given)
        if len(mine):
            first[found == number] = mine[0]
    return texts.take(pa.array(first, mask=first < 0))


def _numbers(messages: pa.BinaryArray) -> NDArray[np.int64]:
    """Number of each message's schema; -1 without a frame, and without a message."""
    count = len(messages)
    if not count:
        return np.empty(0, np.int64)
    heads = pc.binary_slice(messages, 0, HEADER) if messages.null_count == 0 else _heads(messages)
    framed = pc.equal(pc.binary_length(heads), HEADER).to_numpy(zero_copy_only=False)
    found = np.full(count, -1, np.int64)
    rows = np.flatnonzero(framed)
    _, offsets, data = heads.buffers()
    first = np.frombuffer(offsets, np.int32)[heads.offset : heads.offset + count][rows]
    if len(rows):
        head = np.frombuffer(data, np.uint8)[first[:, None] + np.arange(HEADER)]
        number = head[:, 1:].copy().view(">i4").reshape(-1).astype(np.int64)
        found[rows] = np.where((head[:, 0] == MAGIC) & (number >= 0), number, -1)
    return found


def _heads(messages: pa.BinaryArray) -> pa.BinaryArray:
    return pc.binary_slice(pc.fill_null(messages, b""), 0, HEADER)


def _group(
    messages: pa.BinaryArray,
    mine: NDArray[np.intp],
    number: int,
    schemas: Schemas,
    *,
    unicode_names: bool,
) -> tuple[pa.StringArray, NDArray[np.intp], dict[int, str]]:
    """Texts of those that fit schema *number*, which these are, and why the others do not."""
    schema = schemas.get(number)
    if schema is None:
        return _none(mine, UNKNOWN.format(number=number))
    try:
        made = value_reader(schema, unicode_names=unicode_names)
    except FormatError as error:
        return _none(mine, f"schema {number}: {error}")
    if len(mine) < FEW:
        return _one_by_one(messages, mine, number, made)
    wrong: dict[int, str] = {}
    while len(mine):
        some = messages if len(mine) == len(messages) else messages.take(pa.array(mine))
        try:
            return _read(made, Bodies.of(some, HEADER)), mine, wrong
        except DamagedError as error:
            odd = mine[error.rows]
            wrong |= dict.fromkeys(odd.tolist(), f"it does not fit schema {number}: {error.why}")
            mine = np.setdiff1d(mine, odd)
    return pa.array([], pa.string()), mine, wrong


def _one_by_one(
    messages: pa.BinaryArray, mine: NDArray[np.intp], number: int, made: ValueReader
) -> tuple[pa.StringArray, NDArray[np.intp], dict[int, str]]:
    texts, read, wrong = list[str](), list[int](), dict[int, str]()
    sent = messages.take(pa.array(mine)).to_pylist()
    for row, one in zip(mine.tolist(), sent, strict=True):
        try:
            texts.append(_text(made, Body(one, HEADER)))
        except DamagedError as error:
            wrong[row] = f"it does not fit schema {number}: {error.why}"
        else:
            read.append(row)
    return pa.array(texts, pa.string()), np.array(read, np.intp), wrong


def _text(made: ValueReader, body: Body) -> str:
    try:
        text = made.one(body)
    except IndexError as error:
        raise body.damaged(ENDS) from error
    if body.left:
        raise body.damaged(LEFT)
    return text


def _none(
    mine: NDArray[np.intp], why: str
) -> tuple[pa.StringArray, NDArray[np.intp], dict[int, str]]:
    return pa.array([], pa.string()), mine[:0], dict.fromkeys(mine.tolist(), why)


def _read(made: ValueReader, bodies: Bodies) -> pa.StringArray:
    """Every byte of each must be read, or it was written with another schema."""
    texts = made.read(bodies).whole(len(bodies.rows))
    bodies.refuse(bodies.at != bodies.end, LEFT)
    return texts
