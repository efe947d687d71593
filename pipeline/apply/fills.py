"""Which value has a column in a row that is older than the column?  Its default, per shard; pure.

The source filled its rows without a word in its log when it added the column.  Each shard added it
at an order of its own, so a row is compared with its own shard's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.apply.provenance import Owned, above, ranked, same
from pipeline.errors import HeldError
from pipeline.model import Order, Origin, Shard


@dataclass(frozen=True, slots=True)
class Fill:
    """Rows of *shard* before *born* lack *column*, and have *default* there, never null."""

    column: str
    shard: Shard
    born: Order
    default: pa.Scalar


def filled(rows: pa.Table, owners: Owned, fills: Sequence[Fill]) -> pa.Table:
    """The same rows with the defaults where they lack columns that were born after them.

    Raises:
        HeldError: ``no_shard``, nobody knows which shard's default a row has.
    """
    present = set(pc.unique(owners.shard).to_pylist())
    if fills and None in present:
        detail = f"a row does not tell of which shard it is, and {fills[0].column} was added to one"
        raise HeldError("no_shard", f"{detail}; rebuild the mirror")
    for fill in fills:
        if fill.shard.name not in present:
            continue
        own = same(owners.source, pa.scalar(fill.shard.source))
        own &= same(owners.shard, pa.scalar(fill.shard.name))
        older = own & above(ranked(fill.born, Origin.SNAPSHOT)[:-1], owners.rank[:-1])
        if older.any():
            rows = _filled(rows, fill, pa.array(np.ascontiguousarray(older)))
    return rows


def _filled(rows: pa.Table, fill: Fill, older: pa.Array) -> pa.Table:
    number = rows.schema.get_field_index(fill.column)
    column = rows[fill.column]
    lacking = pc.and_(older, pc.is_null(column))
    default = fill.default.cast(column.type)
    return rows.set_column(number, rows.schema.field(number), pc.if_else(lacking, default, column))
