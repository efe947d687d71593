"""Reads which transactions the change log shows, row by row, and from which batch on."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from demo.oracle.rows import RowId
from demo.shop.ledger import Key, RowState
from demo.shop.schema import SHELVES

KEYS = {shelf.name: shelf.key for shelf in SHELVES}
CHANGES = """
    SELECT batch, shard, op, before, after, "order" AS place, "offset" FROM changes
    WHERE op IN ('c', 'u', 'd', 'r')
"""

Sight = tuple[str, Key, int, bool]
"""A shard, a key, the number a row image carries, and whether it is the image of a delete."""


@dataclass(eq=False)
class Landed:
    """The first batch that shows each (row, number)."""

    first: dict[Sight, int] = field(default_factory=dict)

    def note(self, batch: int, sight: Sight) -> None:
        self.first[sight] = min(batch, self.first.get(sight, batch))

    def shows(self, state: RowState, batch: int) -> bool:
        """Tell whether a change up to *batch*, included, left the row in *state*.

        A delete shows the number that the row carried before.
        """
        deleted = state.touched is None
        number = state.before if deleted else state.touched
        if number is None:
            return False
        seen = self.first.get((state.shard, state.key, number, deleted))
        return seen is not None and seen <= batch


def read_landed(lake: str, keys: Mapping[str, Sequence[str]] = KEYS) -> Landed:
    query = QueryBuilder().register("changes", DeltaTable(f"{lake}/changes")).execute(CHANGES)
    landed, carried = Landed(), dict[RowId, int]()
    for change in sorted(pa.table(query.read_all()).to_pylist(), key=_place):
        _note(landed, change, keys, carried)
    return landed


def _place(change: Mapping[str, Any]) -> tuple[tuple[int, ...], int]:
    return tuple(change["place"].values()), change["offset"]


def _note(
    landed: Landed,
    change: Mapping[str, Any],
    keys: Mapping[str, Sequence[str]],
    carried: dict[RowId, int],
) -> None:
    """Note what one change shows; a table nobody asked about shows nothing.

    A log that tells only the key of a deleted row (Postgres, without REPLICA IDENTITY FULL; the
    rest is NULL, or 0 where it may not be) shows the number that the change before left there.
    """
    if change["shard"] not in keys:
        return
    deleted = change["op"] == "d"
    image = json.loads(change["before"] if deleted else change["after"])
    row = change["shard"], tuple(int(image[name]) for name in keys[change["shard"]])
    touched = int(image.get("touched") or 0)
    number = carried.get(row) if deleted and not touched else touched
    if number is not None:
        carried[row] = number
        landed.note(change["batch"], (*row, number, deleted))
