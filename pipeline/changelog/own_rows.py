"""The rows that a batch adds of its own.

That a shard's base is complete; which columns rows have that were read again; its marker.  Pure.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipeline.changelog.table import CHANGES, Stamp
from pipeline.model import Op, Order, Origin


@dataclass(frozen=True, slots=True)
class Settle:
    """A shard's base is complete as of ``order``: rows of it that are older are gone."""

    source: str
    shard: str
    table: str | None
    order: Order


@dataclass(frozen=True, slots=True)
class ColumnsTold:
    """Columns that rows of a shard have from ``order`` on; ``payload`` as its format tells them."""

    source: str
    shard: str
    table: str | None
    order: Order
    payload: str


def columns_rows(told: Sequence[ColumnsTold], stamp: Stamp) -> pa.RecordBatch:
    """One row of ``CHANGES`` for each."""
    rows = [
        _row(one, Op.DDL)
        | {"after": one.payload, "schema_id": zlib.crc32(one.payload.encode()) >> 1}
        for one in told
    ]
    return _rows(rows, stamp)


def settle_rows(settles: Sequence[Settle], stamp: Stamp) -> pa.RecordBatch:
    """One row of ``CHANGES`` for each."""
    return _rows([_row(one, Op.SETTLE) for one in settles], stamp)


def mark_row(text: str, stamp: Stamp) -> pa.RecordBatch:
    """The marker of a batch, as a row of ``CHANGES``."""
    return _rows([{"op": str(Op.MARK), "after": text}], stamp)


def _row(one: ColumnsTold | Settle, op: Op) -> dict[str, Any]:
    place = {part: getattr(one.order, part) for part in ("epoch", "log", "pos", "row")}
    about = {"source": one.source, "shard": one.shard, "table": one.table}
    return {**about, "op": str(op), "order": place}


def _rows(rows: Sequence[Mapping[str, Any]], stamp: Stamp) -> pa.RecordBatch:
    shared = {
        "lane": stamp.lane,
        "batch": stamp.batch,
        "origin": int(Origin.SNAPSHOT),
        "received": stamp.received,
        "dt": stamp.received.date(),
    }
    full = [{**shared, **row} for row in rows]
    arrays = [pa.array([row.get(field.name) for row in full], field.type) for field in CHANGES]
    return pa.RecordBatch.from_arrays(arrays, schema=CHANGES)
