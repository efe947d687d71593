"""Are columns that rows tell of themselves news?  Not if they are in force already.

A format without schema changes tells them with the first row of each batch that it decodes: landed
each time, they would be many, and say nothing.  What comes below the newest is kept, whatever it
says: a partition that is behind tells columns that were others then.  Statements tell no number of
a schema, and all of them stay.  Pure.
"""

from collections.abc import Iterable, Mapping, MutableMapping
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.landing.inversions import order_of
from pipeline.mark import ToldSchema
from pipeline.model import Op, Order, Shard

_SIZE = 16  # bytes of a digest


def unrepeated(rows: pa.RecordBatch, known: MutableMapping[str, ToldSchema]) -> pa.RecordBatch:
    """*rows* of ``CHANGES`` without schemas that say nothing new; *known* learns the others.

    *known*: ``source/shard`` -> the newest.
    """
    told = pc.and_(pc.equal(rows["op"], str(Op.DDL)), pc.is_valid(rows["schema_id"]))
    if not told.true_count:
        return rows
    kept = np.ones(len(rows), np.bool_)
    for at in np.flatnonzero(told.to_numpy(zero_copy_only=False)).tolist():
        row = rows.slice(at, 1).select(["source", "shard", "order", "after"]).to_pylist()[0]
        one = ToldSchema(Order(**row["order"]), _digest(row["after"]))
        kept[at] = _learned(known, str(Shard(row["source"], row["shard"])), one)
    return rows if kept.all() else rows.filter(pa.array(kept))


def newest(statements: Iterable[Mapping[str, Any]]) -> dict[str, ToldSchema]:
    """``source/shard`` -> the newest schema that rows told, of *statements* (of ``SLIM``)."""
    found: dict[str, ToldSchema] = {}
    for row in statements:
        if row["schema_id"] is not None and row["log"] is not None:
            name = str(Shard(row["source"], row["shard"]))
            _learned(found, name, ToldSchema(order_of(row), _digest(row["note"])))
    return found


def after(known: Mapping[str, ToldSchema], told: Mapping[str, ToldSchema]) -> dict[str, ToldSchema]:
    """The newest of both."""
    found = dict(known)
    for name, one in told.items():
        _learned(found, name, one)
    return found


def _learned(known: MutableMapping[str, ToldSchema], name: str, one: ToldSchema) -> bool:
    """Whether *one* is news; it is the newest from then on, unless it is older."""
    before = known.get(name)
    if before is None or one.order >= before.order:
        known[name] = one
        return before is None or before.digest != one.digest
    return True


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=_SIZE).hexdigest()
