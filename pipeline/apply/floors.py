"""Which rows has a truncate or a settle of their shard outlived?  Pure.

A shard's floor is the order of its highest truncate or settle.  Below it nothing stands, and
nothing is inserted, ever; a row at the floor's own place is not below it.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.apply.provenance import Mask, Owned, above, ranked, same
from pipeline.model import Order, Origin, Shard

Floors = Mapping[Shard, Order]


def highest(*floors: Floors) -> dict[Shard, Order]:
    """The highest floor of each shard."""
    found: dict[Shard, Order] = {}
    for shard, order in (pair for some in floors for pair in some.items()):
        found[shard] = max(order, found.get(shard, order))
    return found


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
