"""Which rows has a truncate or a settle of their shard outlived?  Pure.

A shard's floor is the order of its highest truncate or settle, or of its base.  Below it nothing
stands, and nothing is inserted, ever; a row at the floor's own place is not below it.
"""

from collections.abc import Hashable, Mapping
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.apply.provenance import Mask, Owned, above, ranked, same
from pipeline.checkpoint import Mark
from pipeline.image import Image
from pipeline.model import Order, Origin, Shard, Table

Floors = Mapping[Shard, Order]
K = TypeVar("K", bound=Hashable)


def highest(*orders: Mapping[K, Order]) -> dict[K, Order]:
    """The highest order of each shard, or of whatever they are of."""
    found: dict[K, Order] = {}
    for of, order in (pair for some in orders for pair in some.items()):
        found[of] = max(order, found.get(of, order))
    return found


def of_bases(table: Table, mark: Mark, image: Image | None) -> dict[Shard, Order]:
    """Below its shards' bases nothing counts, also in a turn that does not come to their settles.

    Such changes may be of columns that are no longer there.  For an image only bases from before
    its cut count.  Where keys span shards, one that left another shard must be seen to.
    """
    if table.unique_across_shards:
        return {}
    known = {shard: mark.bases.get(str(shard)) for shard in table.shards}
    return {
        shard: order
        for shard, order in known.items()
        if order is not None and (image is None or image.belongs(shard, order))
    }


def below(rows: Owned, floors: Floors) -> Mask:
    """Which *rows* stand below the floor of their own shard."""
    gone = np.zeros(len(rows.source), np.bool_)
    present = set(pc.unique(rows.shard).to_pylist()) if floors else ()
    for shard, order in floors.items():
        if shard.name in present:
            own = same(rows.source, pa.scalar(shard.source))
            own &= same(rows.shard, pa.scalar(shard.name))
            gone |= own & above(ranked(order, Origin.SNAPSHOT)[:-1], rows.rank[:-1])
    return gone
