"""Finds changes that belong in an image that was made without them.

They stand below its cut and landed after it was proven: what a repair or a replay read before the
cut and sent after it, or what a source sent though it had acknowledged more.  A change that was
sent again was in the image, so it does not count.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.apply.fold import ROW_OPS
from pipeline.apply.row_metadata import flat_column
from pipeline.image import Image, LateChanges
from pipeline.model import ORDER_PARTS, Op, Order
from pipeline.schema.decode import type_rows
from pipeline.schema.model import Column

UNKNOWN_DAY = ""
ACTING = (*ROW_OPS, Op.TRUNCATE, Op.SETTLE)
SAME = ("source", "key", "op", "order")
Landed = Callable[[pa.Table], pa.Table]
"""Changes -> those of SAME and batch that landed of their keys; or more."""


def below_cut(changes: pa.Table, positions: Mapping[str, Order]) -> pa.Table:
    """The *changes* whose order is below that of their source; those without an order are not."""
    orders, source = flat_column(changes["order"]).combine_chunks(), flat_column(changes["source"])
    parts = {part: pc.struct_field(orders, part) for part in ORDER_PARTS}
    kept = pa.array([False] * len(changes), pa.bool_())
    for name, position in positions.items():
        under = pa.array([False] * len(changes), pa.bool_())
        for part in reversed(parts):  # the last counts least
            bound = getattr(position, part)
            same = pc.and_(pc.equal(parts[part], bound), under)
            under = pc.fill_null(pc.or_(pc.less(parts[part], bound), same), fill_value=False)
        kept = pc.or_(kept, pc.and_(under, pc.equal(source, name)))
    return changes.filter(kept)


def find_late_changes(
    images: Sequence[Image], changes: pa.Table, landed: Landed, day: Column | None, zone: str
) -> dict[datetime, LateChanges]:
    """Cut -> what of *changes* is late for its image; *landed* is asked only if some may be.

    They are counted by the days of the column *day*, if there is one.
    """
    found: dict[datetime, LateChanges] = {}
    acting = changes.filter(
        pc.is_in(flat_column(changes["op"]), pa.array([str(op) for op in ACTING]))
    )
    for image in images:
        new = acting.filter(pc.greater(acting["batch"], image.batch))
        late = below_cut(new, image.positions)
        if len(late):
            late = _first_sent(late, landed(late), image.batch)
        if len(late):
            batch, days = pc.max(late["batch"]).as_py(), _days(late, day, zone)
            found[image.cut] = LateChanges(batch, len(late), days)
    return found


def add_late_changes(
    images: Iterable[Image], late: Mapping[datetime, LateChanges]
) -> Iterator[Image]:
    """The *images*, each with what is late for it."""
    for one in images:
        more = (late[one.cut],) if one.cut in late else ()
        yield replace(one, late=(*one.late, *more))


def _first_sent(late: pa.Table, landed: pa.Table, batch: int) -> pa.Table:
    """Those of *late* that are no repetition of one in a batch up to *batch*."""
    before = landed.filter(pc.less_equal(landed["batch"], batch))
    known = set(_said(before))
    return late.filter(pa.array([one not in known for one in _said(late)], pa.bool_()))


def _said(changes: pa.Table) -> Iterator[tuple[object, ...]]:
    for one in changes.select(list(SAME)).to_pylist():
        yield (one["source"], one["key"], one["op"], *one["order"].values())


def _days(late: pa.Table, day: Column | None, zone: str) -> dict[str, int]:
    if day is None:
        return {}
    texts = pc.coalesce(flat_column(late["after"]), flat_column(late["before"]))
    values = flat_column(type_rows(texts, (day,)).rows[day.name])
    if pa.types.is_timestamp(values.type) and values.type.tz:
        values = pc.local_timestamp(values.cast(pa.timestamp("us", zone)))
    if pa.types.is_temporal(values.type):
        values = values.cast(pa.date32())
    names = (UNKNOWN_DAY if one is None else str(one)[:10] for one in values.to_pylist())
    counted: dict[str, int] = {}
    for name in names:
        counted[name] = counted.get(name, 0) + 1
    return dict(sorted(counted.items()))
