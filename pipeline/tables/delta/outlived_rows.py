"""Which rows has a truncate or a settle of their shard outlived, and where do they stand in files?

Of those that went to an archive the source tells no more: they stay, whatever is emptied.

Row groups whose bounds tell it are not read.
"""

from collections.abc import Sequence

import numpy as np
from pyroaring import BitMap64

from pipeline.apply.adoption import RANK, SHARD, SOURCE
from pipeline.apply.floors import Floors, below
from pipeline.errors import HeldError
from pipeline.model import Order
from pipeline.tables.delta.data_file import Bounds, DataFile, Footer, opened
from pipeline.tables.delta.layout import Layout
from pipeline.tables.delta.mirror_files import MirrorFiles
from pipeline.tables.delta.positions import among, bitmap


def gone_below(mirror: MirrorFiles, floors: Floors) -> dict[int, BitMap64]:
    """Positions of rows below the *floors*, by the number of their file; only rows not yet gone.

    Raises:
        HeldError: ``no_shard``: of a row without ``_sluice`` nobody knows which floor is its own;
            or a file cannot be read.
    """
    found: dict[int, BitMap64] = {}
    for number in holding(mirror, floors):
        with opened(mirror.store, mirror.files[number], mirror.footers) as data:
            gone = _gone(mirror, data, floors)
        if gone:
            found[number] = gone
    return found


def holding(mirror: MirrorFiles, floors: Floors) -> list[int]:
    """Numbers of the files that may have rows below the *floors*, as their footers tell."""
    found = []
    for number, file in enumerate(mirror.files) if floors else ():
        footer = mirror.footers.of(mirror.store, file)
        groups = range(footer.metadata.num_row_groups)
        if any(_judged(footer, mirror.layout, group, floors) is not False for group in groups):
            found.append(number)
    return found


def _gone(mirror: MirrorFiles, data: DataFile, floors: Floors) -> BitMap64:
    gone = BitMap64()
    for group, first in data.groups:
        size = data.footer.metadata.row_group(group).num_rows
        judged = _judged(data.footer, mirror.layout, group, floors)
        if judged and not mirror.keeps:
            gone |= BitMap64(range(first, first + size))
        elif judged is not False:
            alive = np.flatnonzero(~among(data.gone, np.arange(first, first + size)))
            rows = mirror.owned(data, group, alive)
            if rows.shard.null_count:
                detail = (
                    f"{data.name}: a row does not tell of which shard it is, and one was emptied"
                )
                raise HeldError("no_shard", f"{detail}; rebuild the mirror")
            gone |= bitmap(first + alive[below(rows, floors) & ~rows.archived])
    return gone - data.gone


def _judged(footer: Footer, layout: Layout, group: int, floors: Floors) -> bool | None:
    """Whether all rows of a group are below the floors, or none, as far as its bounds tell."""
    bounds = {path: footer.bounds(group, layout.path(path)) for path in (SOURCE, SHARD, *RANK)}
    if any(bound.nulls != 0 for bound in bounds.values()):
        return None
    order = [bounds[path] for path in RANK[:-1]]
    verdicts = [
        _judged_by(
            _owns(bounds[SOURCE], shard.source), _owns(bounds[SHARD], shard.name), order, top
        )
        for shard, top in floors.items()
    ]
    if True in verdicts:
        return True
    return None if None in verdicts else False


def _judged_by(
    source: bool | None, shard: bool | None, order: Sequence[Bounds], top: Order
) -> bool | None:
    if source is False or shard is False:
        return False
    floor = top.parts
    least = [bound.least for bound in order if isinstance(bound.least, int)]
    most = [bound.most for bound in order if isinstance(bound.most, int)]
    if len(least) < len(floor) or len(most) < len(floor):
        return None
    # the least of every part together are at or before each row, the most of them at or after it
    if tuple(least) >= floor:
        return False
    return True if source and shard and tuple(most) < floor else None


def _owns(bounds: Bounds, name: str) -> bool | None:
    """Whether all rows (True) or none (False) have that *name*."""
    wanted = name.encode()
    if bounds.only is not None:
        return bounds.only == wanted
    if not isinstance(bounds.least, bytes) or not isinstance(bounds.most, bytes):
        return None
    return None if bounds.least <= wanted <= bounds.most else False
