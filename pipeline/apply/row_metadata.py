"""Reads the origin of rows, the column `_sluice`: source, shard, and rank in the source log.

The rank of a change is (order, origin), compared left to right. It decides between two changes of
one key. Ranks of different sources must not be compared; callers of `is_above` ensure that.

Rows of an adopted mirror have no `_sluice`. They count as read at the order of the adoption, or,
without such an order, as older than any change. Their shard is known only if the table has one
shard.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import HeldError
from pipeline.model import ORDER_PARTS, Op, Order, Origin, Shard, Table

SLUICE = "_sluice"
ORDER = pa.struct([(part, pa.int64()) for part in ORDER_PARTS])
META = pa.struct(
    [
        ("source", pa.string()),
        ("shard", pa.string()),
        ("order", ORDER),
        ("op", pa.string()),
        ("origin", pa.int32()),
        ("at", pa.timestamp("us", "UTC")),
        ("batch", pa.int64()),
    ]
)
Mask = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class RowOrigins:
    """The origins of rows, in the order of the rows.

    ``source`` and ``shard`` are plain strings. ``rank`` has a line for each of epoch, log, pos, row
    and origin. ``adopted`` rows have no ``_sluice``: their rank is that of the table's adoption, or
    the lowest possible, and source and shard are null unless the table has one shard. ``archived``
    rows of a mirror are no longer in their source, see :mod:`pipeline.archive`.
    """

    source: pa.Array
    shard: pa.Array
    rank: Integers
    adopted: Mask
    archived: Mask

    def take(self, rows: Integers) -> "RowOrigins":
        """The origins at the indexes *rows*."""
        at = pa.array(rows)
        parts = self.source.take(at), self.shard.take(at)
        return RowOrigins(*parts, self.rank[:, rows], self.adopted[rows], self.archived[rows])


NO_ORIGINS = RowOrigins(
    pa.nulls(0, pa.string()),  # an array of a list would import pandas
    pa.nulls(0, pa.string()),
    np.zeros((len(ORDER_PARTS) + 1, 0), np.int64),
    np.zeros(0, np.bool_),
    np.zeros(0, np.bool_),
)


def join_origins(parts: Sequence[RowOrigins]) -> RowOrigins:
    """Concatenate *parts*; there must be at least one."""
    return RowOrigins(
        pa.concat_arrays([part.source for part in parts]),
        pa.concat_arrays([part.shard for part in parts]),
        np.concatenate([part.rank for part in parts], axis=1),
        np.concatenate([part.adopted for part in parts]),
        np.concatenate([part.archived for part in parts]),
    )


def row_origins(rows: pa.Table) -> RowOrigins:
    """The origins of changes; no change is adopted.

    In: source, shard, order (struct) and origin.

    Raises:
        HeldError: a change has no order, so it cannot be compared.
    """
    return RowOrigins(
        flat_column(rows["source"]).combine_chunks(),
        flat_column(rows["shard"]).combine_chunks(),
        rank_rows(rows),
        np.zeros(len(rows), np.bool_),
        np.zeros(len(rows), np.bool_),
    )


def rank_rows(rows: pa.Table) -> Integers:
    """The ranks of *rows* (order, origin): one line each for epoch, log, pos, row, origin.

    Raises:
        HeldError: a change has no order.
    """
    columns = [pc.struct_field(rows["order"], part) for part in ORDER_PARTS]
    columns.append(rows["origin"].cast(pa.int64()))
    if any(column.null_count for column in columns):
        detail = "a change has no order, so it cannot be compared with others; report this"
        raise HeldError("no_order", detail)
    return np.stack([column.to_numpy() for column in columns])


def rank_order(order: Order, origin: Origin) -> Integers:
    """The rank of one order, as a column that is compared with many."""
    return np.array([[part] for part in (*order.parts, origin)], np.int64)


def is_above(left: Integers, right: Integers) -> Mask:
    """Where the rank *left* is above *right*; both have the same number of lines."""
    higher, equal = np.zeros(1, np.bool_), np.ones(1, np.bool_)
    for ours, theirs in zip(left, right, strict=True):
        higher = higher | (equal & (ours > theirs))
        equal = equal & (ours == theirs)
    return higher


def is_same(left: pa.Array, right: pa.Array | pa.Scalar) -> Mask:
    """Where two values are equal; two nulls are equal."""
    both = pc.and_(pc.is_null(left), pc.is_null(right))
    equal = pc.or_(pc.fill_null(pc.equal(left, right), False), both)
    found: Mask = equal.to_numpy(zero_copy_only=False)
    return found


def flat_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A text or binary column without views, which many Arrow functions do not support."""
    if pa.types.is_string_view(column.type):
        return column.cast(pa.string())
    return column.cast(pa.binary()) if pa.types.is_binary_view(column.type) else column


SOURCE, SHARD = (SLUICE, "source"), (SLUICE, "shard")
OP = (SLUICE, "op")
RANK = (*((SLUICE, "order", part) for part in ORDER_PARTS), (SLUICE, "origin"))
_BEFORE_ALL = Order(np.iinfo(np.int64).min, 0, 0)


@dataclass(frozen=True, slots=True)
class Adoption:
    """The origin of rows without ``_sluice``: the order at which they were read, and their shard.

    Without an order they are older than any change. ``shard`` is None if the table has several.
    """

    order: Order | None = None
    shard: Shard | None = None

    @classmethod
    def of(cls, table: Table, order: Order | None = None) -> "Adoption":
        """The origin of such rows in the mirror of *table*."""
        return cls(order, table.shards[0] if len(table.shards) == 1 else None)

    def owners(self, rows: pa.Table) -> RowOrigins:
        """The origins of whole *rows*, which have the table's column names."""
        if SLUICE not in rows.column_names:
            nobody = pa.nulls(len(rows), META)
            rows = rows.append_column(SLUICE, nobody)
        paths = (OP, SOURCE, SHARD, *RANK)
        columns = (pc.struct_field(rows[SLUICE], list(path[1:])) for path in paths)
        op, source, shard, *rank = (column.combine_chunks() for column in columns)
        return self.owned(source, shard, rank, op)

    def owned(
        self, source: pa.Array, shard: pa.Array, rank: Sequence[pa.Array], op: pa.Array | None
    ) -> RowOrigins:
        """Return the origins of rows from their ``_sluice``; *rank* is as ``RANK``.

        Without *op* no row counts as archived.
        """
        order, origin = rank[:-1], rank[-1]
        adopted = np.zeros(len(source), np.bool_)
        for part in order:
            adopted |= pc.is_null(part).to_numpy(zero_copy_only=False)
        lines = [pc.fill_null(part.cast(pa.int64()), 0).to_numpy() for part in (*order, origin)]
        found = np.stack(lines)
        found[:, adopted] = rank_order(self.order or _BEFORE_ALL, Origin.SNAPSHOT)
        if (own := self.shard) is not None and adopted.any():
            source, shard = pc.fill_null(source, own.source), pc.fill_null(shard, own.name)
        archived = np.zeros(len(source), np.bool_)
        if op is not None:
            archived = is_same(op.cast(pa.string()), pa.scalar(str(Op.DELETE)))
        return RowOrigins(source, shard, found, adopted, archived)
