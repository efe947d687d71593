"""Decides what each folded change does to the mirror's row under its key.

A change acts only if its rank is above the row's. A change at the row's own order is a redelivery.
A delete acts on rows of its own shard only, even if another change wins for the key. An upsert
never crosses sources on its own, because orders of two source logs cannot be compared: the key must
have left the other source first. An archived row has already left its source: no delete acts on it,
and any newer change replaces it.

The floor of a shard is the order of its highest truncate or settle, or of its base. Rows below it
are removed, and nothing below it is ever inserted. A row exactly at the floor is not below it.

A row older than an added column gets the column's default. The source filled its rows without
logging that. Each shard added the column at an order of its own, so a row is compared with its own
shard's order.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.apply.fold import Folded
from pipeline.apply.row_metadata import (
    Integers,
    Mask,
    RowOrigins,
    flat_column,
    is_above,
    is_same,
    rank_order,
    row_origins,
)
from pipeline.checkpoint import Checkpoint
from pipeline.errors import HeldError
from pipeline.image import Image
from pipeline.model import Op, Order, Origin, Shard, Table, TopicPartition

Floors = Mapping[Shard, Order]
K = TypeVar("K", bound=Hashable)


def highest_orders(*orders: Mapping[K, Order]) -> dict[K, Order]:
    """Return the highest order of each key of *orders*."""
    found: dict[K, Order] = {}
    for of, order in (pair for some in orders for pair in some.items()):
        found[of] = max(order, found.get(of, order))
    return found


def base_floors(table: Table, checkpoint: Checkpoint, image: Image | None) -> dict[Shard, Order]:
    """The order of each shard's base, below which no change counts, even before its settle.

    Such changes may have columns that no longer exist. For an image only bases below its cut count.
    Empty where keys are unique across shards: there a delete below the base of its shard must still
    be seen.
    """
    if table.unique_across_shards:
        return {}
    known = {shard: checkpoint.bases.get(shard) for shard in table.shards}
    return {
        shard: order
        for shard, order in known.items()
        if order is not None and (image is None or image.belongs(shard, order))
    }


def is_below(rows: RowOrigins, floors: Floors) -> Mask:
    """Return which *rows* are below the floor of their own shard."""
    gone = np.zeros(len(rows.source), np.bool_)
    present = set(pc.unique(rows.shard).to_pylist()) if floors else ()
    for shard, order in floors.items():
        if shard.name in present:
            own = is_same(rows.source, pa.scalar(shard.source))
            own &= is_same(rows.shard, pa.scalar(shard.name))
            gone |= own & is_above(rank_order(order, Origin.SNAPSHOT)[:-1], rows.rank[:-1])
    return gone


Verdicts = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Location of each sought key, in the order of the keys: file (-1: none), position, owner.

    ``owned`` of a key without a row has no meaning.
    """

    file: npt.NDArray[np.int32]
    position: Integers
    owned: RowOrigins

    @property
    def there(self) -> Mask:
        """Which keys have a row in the mirror."""
        found: Mask = self.file >= 0
        return found


class RowVerdict(IntEnum):
    """What one change does to the mirror; numbered without gaps from 0, to count by.

    MOVE is an insert that replaces a row of another shard, which has deleted it. ARCHIVE is a
    delete that keeps the row as archived.
    """

    INSERT = 0
    UPDATE = 1
    DELETE = 2
    NOOP = 3
    AGAIN = 4
    MOVE = 5
    ARCHIVE = 6


_STANDING = (RowVerdict.INSERT, RowVerdict.UPDATE, RowVerdict.MOVE, RowVerdict.ARCHIVE)


@dataclass(frozen=True, slots=True)
class AppliedBefore:
    """What a mirror has applied before, to distinguish an old upsert from a new one.

    ``high``: partition -> highest LIVE order applied, as far as known; None when nothing is known.
    ``grown``: a topic has gained partitions, so a key may have moved to another one.
    """

    high: Mapping[TopicPartition, Order] | None
    grown: bool = False


def decide_rows(folded: Folded, found: Found, floors: Floors, raised: Floors) -> Verdicts:
    """Return the verdict on each row of *folded*; *found* has their keys in the same order.

    Nothing below *floors* is inserted. Mirror rows below the *raised* floors count as absent,
    because the same merge deletes them.

    Raises:
        HeldError: ``crosses_sources``.
    """
    changes = row_origins(folded.rows)
    deletes: Mask = pc.equal(flat_column(folded.rows["op"]), Op.DELETE).to_numpy()
    there = is_existing(found, raised)
    archived = there & found.owned.archived
    foreign = there & ~found.owned.adopted & ~is_same(changes.source, found.owned.source)
    left = (there & _has_left(folded.left, found.owned, len(deletes))) | (archived & foreign)
    _refuse_crossing(folded.rows, foreign & ~deletes & ~left)
    newer = there & ~foreign & is_above(changes.rank, found.owned.rank)
    equal = there & ~foreign & (changes.rank[:-1] == found.owned.rank[:-1]).all(axis=0)
    own = found.owned.adopted | (
        is_same(changes.source, found.owned.source) & is_same(changes.shard, found.owned.shard)
    )
    verdicts = np.full(len(deletes), RowVerdict.NOOP, np.int8)
    verdicts[equal] = RowVerdict.AGAIN  # unless its origin makes it act, below
    verdicts[~there & ~deletes] = RowVerdict.INSERT
    verdicts[newer & ~deletes] = RowVerdict.UPDATE
    verdicts[left & ~deletes] = RowVerdict.MOVE
    verdicts[deletes & ~archived & ((newer & own) | left)] = RowVerdict.DELETE
    return withdraw_inserts(verdicts, ~deletes & is_below(changes, floors), archived)


def is_existing(found: Found, raised: Floors) -> Mask:
    """Return which keys have a row when rows below *raised* floors are gone; archived ones stay."""
    there = found.there
    rows = _only(found.owned, there)
    there[there] = ~is_below(rows, raised) | rows.archived
    return there


def writes_row(verdicts: Verdicts) -> Mask:
    """Which changes write a row."""
    return np.isin(verdicts, _STANDING)


def removes_row(verdicts: Verdicts) -> Mask:
    """Return which changes remove the existing row, replaced or not."""
    return np.isin(verdicts, (*_STANDING[1:], RowVerdict.DELETE))


def withdraw_inserts(verdicts: Verdicts, mask: Mask, archived: Mask) -> Verdicts:
    """Return *verdicts* without the upserts under *mask*, which a delete or floor outlived.

    A row that such an upsert was to replace has left its shard and is deleted; an *archived* one
    stays.
    """
    verdicts = verdicts.copy()
    leaves_one = (verdicts == RowVerdict.MOVE) & ~archived
    verdicts[mask] = np.where(leaves_one[mask], RowVerdict.DELETE, RowVerdict.NOOP)
    return verdicts


def find_doubtful(folded: Folded, verdicts: Verdicts, known: AppliedBefore) -> Mask:
    """Which inserts may be older than a delete that the mirror no longer remembers."""
    changes = folded.rows
    live: Mask = pc.equal(changes["origin"], int(Origin.LIVE)).to_numpy()
    inserts: Mask = (verdicts == RowVerdict.INSERT) | (verdicts == RowVerdict.MOVE)
    if known.high is None or not inserts.any():
        return inserts
    rank = row_origins(changes).rank[:-1]
    most = max(known.high.values()) if known.grown and known.high else None
    behind = np.zeros(len(inserts), np.bool_)
    for at, here in _partitions(changes):
        order = known.high.get(at)
        # a partition that is new since the start may have much applied before it
        behind |= here if order is None else here & _not_above(rank, most or order)
    return inserts & (~live | behind)


def find_outlived(folded: Folded, deletes: pa.Table) -> Mask:
    """Which rows of *folded* are not above a delete of their key by their own shard.

    In: *deletes* with key, source, shard, order, origin; any number per key, in any order.
    """
    gone = np.zeros(len(folded.rows), np.bool_)
    if not len(deletes):
        return gone
    keys = flat_column(folded.rows["key"]).combine_chunks()
    at = pc.index_in(flat_column(deletes["key"]), value_set=keys)
    deletes = deletes.filter(at.is_valid())
    rows = at.drop_null().to_numpy().astype(np.int64)
    theirs, ours = row_origins(deletes), row_origins(folded.rows).take(rows)
    own = is_same(theirs.source, ours.source) & is_same(theirs.shard, ours.shard)
    gone[rows[own & ~is_above(ours.rank, theirs.rank)]] = True
    return gone


def _partitions(changes: pa.Table) -> Iterator[tuple[TopicPartition, Mask]]:
    """Each partition of *changes*, with the mask of its changes."""
    topics = flat_column(changes["topic"]).combine_chunks()
    numbers = changes["partition"].combine_chunks()
    every = pa.table({"topic": topics, "partition": numbers})
    for one in every.group_by(every.column_names).aggregate([]).drop_null().to_pylist():
        at = TopicPartition(**one)
        yield at, is_same(topics, pa.scalar(at.topic)) & is_same(numbers, pa.scalar(at.partition))


def _not_above(rank: Integers, order: Order) -> Mask:
    return ~is_above(rank, rank_order(order, Origin.LIVE)[:-1])


def _only(rows: RowOrigins, mask: Mask) -> RowOrigins:
    return rows.take(np.flatnonzero(mask))


def _has_left(left: pa.Table, rows: RowOrigins, number: int) -> Mask:
    """Which *rows* of the mirror were deleted by their own shard in the same changes."""
    of: Integers = left["of"].to_numpy()
    theirs, ours = row_origins(left), rows.take(of)
    own = ours.adopted | (is_same(theirs.source, ours.source) & is_same(theirs.shard, ours.shard))
    gone = np.zeros(number, np.bool_)
    gone[of[own & is_above(theirs.rank, ours.rank)]] = True
    return gone


def _refuse_crossing(changes: pa.Table, crossing: Mask) -> None:
    if crossing.any():
        at = int(np.flatnonzero(crossing)[0])
        key, source = changes["key"][at], changes["source"][at]
        detail = f"key {key} changed in source {source}, and the mirror has it from another one"
        advice = "keys are not unique across its shards: remove `unique_across_shards`"
        raise HeldError("crosses_sources", f"{detail}; {advice}, and rebuild the mirror")


@dataclass(frozen=True, slots=True)
class Fill:
    """Rows of *shard* before *born* have no *column*; their value is *default*, never null."""

    column: str
    shard: Shard
    born: Order
    default: pa.Scalar


def fill_defaults(rows: pa.Table, owners: RowOrigins, fills: Sequence[Fill]) -> pa.Table:
    """Return *rows* with the defaults of columns that were added after them.

    Raises:
        HeldError: ``no_shard``; a row does not name its shard, so its default is unknown.
    """
    present = set(pc.unique(owners.shard).to_pylist())
    if fills and None in present:
        detail = f"a row does not name its shard, and {fills[0].column} was added to one shard"
        raise HeldError("no_shard", f"{detail}; rebuild the mirror")
    for fill in fills:
        if fill.shard.name not in present:
            continue
        own = is_same(owners.source, pa.scalar(fill.shard.source))
        own &= is_same(owners.shard, pa.scalar(fill.shard.name))
        older = own & is_above(rank_order(fill.born, Origin.SNAPSHOT)[:-1], owners.rank[:-1])
        if older.any():
            rows = _filled(rows, fill, pa.array(np.ascontiguousarray(older)))
    return rows


def _filled(rows: pa.Table, fill: Fill, older: pa.Array) -> pa.Table:
    number = rows.schema.get_field_index(fill.column)
    column = rows[fill.column]
    lacking = pc.and_(older, pc.is_null(column))
    default = fill.default.cast(column.type)
    return rows.set_column(number, rows.schema.field(number), pc.if_else(lacking, default, column))
