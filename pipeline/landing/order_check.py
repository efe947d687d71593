"""Checks that orders rise in each partition of a batch, and finds rows that are too low.

Each run of rows reports what is needed to see that all its partitions rise. The rows themselves are
read only in partitions where that is in doubt.

An equal order is not too low. The change of a key is a delete and a create at one order, and rows
of a snapshot share theirs. The fold of a merge finds two different changes of one key at one order.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.formats.format import INCREMENTAL
from pipeline.model import ORDER_PARTS, Op, Order, Origin, SourcePartition, TopicPartition

Ints = npt.NDArray[np.int64]


def group_rows(rows: pa.Table, names: Sequence[str]) -> tuple[Ints, Ints]:
    """Return each row's group, numbered from 0 as they occur, and the first row of each group.

    Null is a value like any other.
    """
    codes: Ints = np.zeros(rows.num_rows, np.int64)
    for name in names:
        column = _encoded(rows[name].combine_chunks())
        if len(column.dictionary) > 1:
            mixed = codes * len(column.dictionary) + column.indices.to_numpy()
            codes = _encoded(pa.array(mixed)).indices.to_numpy().astype(np.int64)
    firsts: Ints = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    firsts[codes[::-1]] = np.arange(len(codes))[::-1]  # the last write to an index remains
    return codes, firsts


def _encoded(values: pa.Array) -> pa.DictionaryArray:
    return pc.dictionary_encode(values, null_encoding="encode")


_PARTITION = ("source", "topic", "partition")
JUDGED = (*_PARTITION, "offset", "order", "op", "origin", "snapshot")
Flags = npt.NDArray[np.bool_]
Columns = Sequence[Ints]  # the parts of an order, each for all rows
NO_FLOORS: Mapping[SourcePartition, Order] = {}


@dataclass(frozen=True, slots=True)
class OrderStretch:
    """The orders of some rows of one partition, from the offset ``first`` on.

    ``begins`` is the order of its first row. ``highest`` is the highest order of a LIVE row, None
    without one. ``rising`` is True if no row is below the one before it.
    """

    source: str
    at: TopicPartition
    first: int
    begins: Order
    highest: Order | None
    rising: bool

    @property
    def partition(self) -> SourcePartition:
        """Return its key in ``Checkpoint.high``."""
        return SourcePartition(self.source, self.at)


def find_stretches(rows: pa.Table) -> tuple[OrderStretch, ...]:
    """Return one stretch for each partition of ``SLIM`` rows, in any order, with a position."""
    found = []
    ordered = _by_offset(rows)
    columns, codes = ordered.places, ordered.codes
    falls = _less([c[1:] for c in columns], [c[:-1] for c in columns])
    starts = _find_run_starts(codes).tolist()
    for low, high in zip(starts, [*starts[1:], len(codes)], strict=False):
        every = [column[low:high] for column in columns]
        alive = [column[ordered.live[low:high]] for column in every]
        rising = not falls[low : high - 1].any()
        of = ordered.partitions[codes[low]]
        found.append(
            OrderStretch(
                of.source,
                of.at,
                first=int(ordered.offsets[low]),
                begins=_order_at(every, 0),
                highest=_highest(alive, rising=rising) if ordered.live[low:high].any() else None,
                rising=rising,
            )
        )
    return tuple(found)


def find_highest_orders(
    stretches: Iterable[OrderStretch],
    high: Mapping[SourcePartition, Order],
    floors: Mapping[SourcePartition, Order] = NO_FLOORS,
) -> tuple[dict[SourcePartition, Order], frozenset[TopicPartition]]:
    """Return the highest LIVE order of each partition, and partitions that may have low rows.

    A partition without a LIVE row keeps its order in *high*. *floors* has the same keys: orders
    below which nothing new can come.
    """
    reached: dict[SourcePartition, Order] = {}
    doubted = set()
    for one in sorted(stretches, key=lambda one: (one.partition, one.first)):
        of = one.partition
        before = reached.get(of, high.get(of))
        least = _highest_of(before, floors.get(of))
        if not one.rising or (least is not None and one.begins < least):
            doubted.add(one.at)
        if (top := _highest_of(before, one.highest)) is not None:
            reached[of] = top
    return reached, frozenset(doubted)


def find_low_rows(
    rows: pa.Table,
    high: Mapping[SourcePartition, Order],
    floors: Mapping[SourcePartition, Order] = NO_FLOORS,
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the offsets of rows whose order is too low in their partition.

    In: ``JUDGED``, in any order. A row is too low if its order is below that of a LIVE row before
    it, by offset. It is also too low below *high*, or below *floors* as of
    :func:`find_highest_orders`.
    """
    parts = [pc.struct_field(rows["order"], [name]) for name in ORDER_PARTS]
    flat = rows.drop_columns("order")
    for name, part in zip(ORDER_PARTS, parts, strict=True):
        flat = flat.append_column(name, part)
    ordered = _by_offset(flat)
    known = (_highest_of(high.get(one), floors.get(one)) for one in ordered.partitions)
    before = {code: order for code, order in enumerate(known) if order is not None}
    below = _is_below(ordered.codes, np.column_stack(ordered.places), ordered.live, before)
    codes, offsets = ordered.codes[below], ordered.offsets[below]
    starts = _find_run_starts(codes)
    parts = np.split(offsets, starts[1:])
    return {
        ordered.partitions[code].at: tuple(part.tolist())
        for code, part in zip(codes[starts].tolist(), parts, strict=False)
    }


def read_places(rows: pa.Table) -> Columns:
    """Return the parts of the orders of *rows*, one array per part; 0 for null."""
    return [_ints(rows, name) for name in ORDER_PARTS]


def order_of(row: Mapping[str, int]) -> Order:
    """Return the order of a row with named columns."""
    return Order(*(row[name] for name in ORDER_PARTS))


def _highest_of(*orders: Order | None) -> Order | None:
    return max((one for one in orders if one is not None), default=None)


def _placed(rows: pa.Table) -> pa.Table:
    """Return rows whose order shows when they came: no DDL, and no incremental snapshot rows."""
    apart = pc.or_(
        pc.equal(rows["op"], str(Op.DDL)),
        pc.equal(pc.fill_null(rows["snapshot"], ""), INCREMENTAL),
    )
    kept = pc.and_not(pc.is_valid(rows["log"]), apart)
    rows = rows.select([*_PARTITION, "offset", "origin", *ORDER_PARTS])
    return rows if pc.all(kept).as_py() else rows.filter(kept)


@dataclass(frozen=True, slots=True)
class _Ordered:
    """Rows sorted by partition and offset; ``codes`` are indexes into ``partitions``."""

    partitions: Sequence[SourcePartition]
    codes: Ints
    offsets: Ints
    places: Columns
    live: Flags


def _by_offset(rows: pa.Table) -> _Ordered:
    placed = _placed(rows)
    codes, firsts = group_rows(placed, _PARTITION)
    named = placed.select(_PARTITION).take(pa.array(firsts)).to_pylist()
    partitions = [
        SourcePartition(one["source"], TopicPartition(one["topic"], one["partition"]))
        for one in named
    ]
    live = _ints(placed, "origin") == int(Origin.LIVE)
    offsets, columns = _ints(placed, "offset"), read_places(placed)
    if _less([codes[1:], offsets[1:]], [codes[:-1], offsets[:-1]]).any():
        sorting = np.lexsort((offsets, codes))
        codes, offsets, live = codes[sorting], offsets[sorting], live[sorting]
        columns = [column[sorting] for column in columns]
    return _Ordered(partitions, codes, offsets, columns, live)


def _find_run_starts(codes: Ints) -> Ints:
    """Return where each partition begins; *codes* rise."""
    return np.unique(codes, return_index=True)[1]


def _ints(rows: pa.Table, name: str) -> Ints:
    return np.asarray(pc.fill_null(rows[name], 0), np.int64)


def _order_at(columns: Columns, row: int) -> Order:
    return Order(*(int(column[row]) for column in columns))


def _highest(columns: Columns, *, rising: bool) -> Order:
    return _order_at(columns, -1 if rising else np.lexsort(tuple(reversed(columns)))[-1])


def _is_below(codes: Ints, places: Ints, live: Flags, before: Mapping[int, Order]) -> Flags:
    """Return whether each row is below the highest LIVE order before it in its partition.

    The landed order is put before each partition as a LIVE row. Orders become ranks, and the
    partition's number is the highest digit of a rank, so one running maximum serves all partitions.
    """
    highs = np.array([order.parts for order in before.values()], np.int64).reshape(len(before), 4)
    owners = np.array(list(before), np.int64)
    every = np.concatenate([owners, codes])
    rank = _ranks(np.concatenate([highs, places]))
    all_live = np.concatenate([np.ones(len(owners), bool), live])
    grouping = np.argsort(every, kind="stable")
    digit = every[grouping] * len(rank)
    reached = np.maximum.accumulate(digit + np.where(all_live, rank, 0)[grouping])
    low = np.empty(len(every), bool)
    low[grouping] = digit + rank[grouping] < reached
    return low[len(owners) :]


def _ranks(places: Ints) -> Ints:
    """Return ranks of orders; of equal orders the later one ranks higher, so it is not below."""
    ranks = np.empty(len(places), np.int64)
    ranks[np.lexsort(places.T[::-1])] = np.arange(len(places))
    return ranks


def _less(one: Columns, other: Columns) -> Flags:
    """Return whether each order of *one* is below that of *other*."""
    less, equal = np.array(False), np.array(True)
    for mine, its in zip(one, other, strict=True):
        less = less | (equal & (mine < its))
        equal = equal & (mine == its)
    return less


def highest_by_source(high: Mapping[SourcePartition, Order]) -> dict[str, Order]:
    """Return source -> the highest of its orders in *high* (as ``Checkpoint.high``)."""
    found: dict[str, Order] = {}
    for one, order in high.items():
        found[one.source] = max(order, found.get(one.source, order))
    return found
