"""Whose are rows of a mirror that do not say it themselves, and as of when do they count?  Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.apply.provenance import META, PARTS, SLUICE, Owned, ranked, same
from pipeline.model import Op, Order, Origin, Shard, Table

SOURCE, SHARD = (SLUICE, "source"), (SLUICE, "shard")
OP = (SLUICE, "op")
RANK = (*((SLUICE, "order", part) for part in PARTS), (SLUICE, "origin"))
_BEFORE_ALL = Order(np.iinfo(np.int64).min, 0, 0)


@dataclass(frozen=True, slots=True)
class Adoption:
    """What counts for rows without ``_sluice``: read at ``order``, and of which shard.

    Without an order they are older than any change.  ``shard`` is None where the table has several.
    """

    order: Order | None = None
    shard: Shard | None = None

    @classmethod
    def of(cls, table: Table, order: Order | None = None) -> "Adoption":
        """What counts in the mirror of *table*."""
        return cls(order, table.shards[0] if len(table.shards) == 1 else None)

    def owners(self, rows: pa.Table) -> Owned:
        """Provenance of whole *rows*, under the table's names."""
        if SLUICE not in rows.column_names:
            nobody = pa.nulls(len(rows), META)
            rows = rows.append_column(SLUICE, nobody)
        paths = (OP, SOURCE, SHARD, *RANK)
        told = (pc.struct_field(rows[SLUICE], list(path[1:])) for path in paths)
        op, source, shard, *rank = (column.combine_chunks() for column in told)
        return self.owned(source, shard, rank, op)

    def owned(
        self, source: pa.Array, shard: pa.Array, rank: Sequence[pa.Array], op: pa.Array | None
    ) -> Owned:
        """Provenance of rows by what stands in their ``_sluice``; *rank* is as ``RANK``.

        Without *op* none of them is archived.
        """
        order, origin = rank[:-1], rank[-1]
        adopted = np.zeros(len(source), np.bool_)
        for part in order:
            adopted |= pc.is_null(part).to_numpy(zero_copy_only=False)
        lines = [pc.fill_null(part.cast(pa.int64()), 0).to_numpy() for part in (*order, origin)]
        found = np.stack(lines)
        found[:, adopted] = ranked(self.order or _BEFORE_ALL, Origin.SNAPSHOT)
        if (own := self.shard) is not None and adopted.any():
            source, shard = pc.fill_null(source, own.source), pc.fill_null(shard, own.name)
        archived = np.zeros(len(source), np.bool_)
        if op is not None:
            archived = same(op.cast(pa.string()), pa.scalar(str(Op.DELETE)))
        return Owned(source, shard, found, adopted, archived)
