"""Rows of JSON text -> typed columns over Arrow; a value its type cannot hold is told, never lost.

One row never spoils another, and no text raises.  In a misread row the other values may be
right; the row is of no use.  Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.schema import wire
from pipeline.schema.arrow_types import arrow_type as arrow_type  # noqa: PLC0414  - also its face
from pipeline.schema.column import Column


@dataclass(frozen=True, slots=True)
class Typed:
    """Rows in the texts' order, a column for each of the table's, in its order.

    ``misread``, never null: a value was there but is null now, or the text is no JSON object.
    ``unknown``: names, sorted, of fields that no column bears.
    """

    rows: pa.Table
    misread: pa.BooleanArray
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _TypedBlock:
    columns: tuple[pa.Array, ...]
    misread: pa.BooleanArray
    unknown: frozenset[str] = frozenset()


def typed(texts: pa.StringArray | pa.ChunkedArray, columns: Sequence[Column]) -> Typed:
    """Type whole rows; a null text is a row of nulls and no misreading, as an absent field is."""
    schema = pa.schema([(column.name, arrow_type(column)) for column in columns])
    chunks = texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]
    parts = [_typed(_sound(chunk), columns) for chunk in chunks]
    batches = [pa.RecordBatch.from_arrays(list(part.columns), schema=schema) for part in parts]
    return Typed(
        rows=pa.Table.from_batches(batches, schema),
        misread=pa.concat_arrays([pa.array([], pa.bool_()), *(part.misread for part in parts)]),
        unknown=tuple(sorted(frozenset().union(*(part.unknown for part in parts)))),
    )


def _sound(texts: pa.StringArray) -> pa.StringArray:
    """Texts in Arrow's plain layout; for what is no UTF-8 the empty text, no JSON object either."""
    texts = texts.cast(pa.string())
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        sent_ = texts.cast(pa.binary()).to_pylist()
        return pa.array([None if data is None else _utf8(data) for data in sent_], pa.string())
    return texts


def _utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return ""


def _typed(texts: pa.StringArray, columns: Sequence[Column]) -> _TypedBlock:
    """Read the rows that are as expected; then put the odd ones in their places."""
    read = wire.expected(texts, tuple(wire.Field(c.name, c.dialect.sent(c)) for c in columns))
    most = _part(columns, read.columns, pa.array([False] * len(texts), pa.bool_()))
    if not read.odd:
        return most
    odd = pa.array(read.odd, pa.int64())
    told = wire.exact(texts.take(odd), [column.name for column in columns])
    rest = _part(columns, told.columns, told.broken)
    places = pc.replace_with_mask(
        pa.array(range(len(texts)), pa.int64()),
        pc.is_in(pa.array(range(len(texts)), pa.int64()), odd),
        pa.array(range(len(texts), len(texts) + len(odd)), pa.int64()),
    )
    return _TypedBlock(
        columns=tuple(
            pa.concat_arrays(pair).take(places)
            for pair in zip(most.columns, rest.columns, strict=True)
        ),
        misread=pa.concat_arrays([most.misread, rest.misread]).take(places),
        unknown=told.unknown,
    )


def _part(
    columns: Sequence[Column], sent_: Sequence[pa.Array], broken: pa.BooleanArray
) -> _TypedBlock:
    read = tuple(
        column.dialect.values(column, array) for column, array in zip(columns, sent_, strict=True)
    )
    misread = broken
    for before, after in zip(sent_, read, strict=True):
        if before.null_count != after.null_count:
            misread = pc.or_(misread, pc.and_(before.is_valid(), after.is_null()))
    return _TypedBlock(read, misread)
