"""Do the orders of a batch rise in each partition?  Where not, which rows stand too low?

Equal is not low: a key's change is a delete and a create at one place, and rows of a snapshot
share theirs.  Two different changes of one *key* at one place are found by the fold.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.model import Op, Order, Origin, TopicPartition

_PARTITION = ("source", "topic", "partition")
_ORDER = ("epoch", "log", "pos", "row")
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def orders(
    rows: pa.Table, high: Mapping[str, Order]
) -> tuple[dict[str, Order], dict[TopicPartition, tuple[int, ...]]]:
    """Highest LIVE order of each partition, and the offsets of rows that stand too low in it.

    A row stands too low when its order is below that of a LIVE row before it, by offset, or below
    *high*.  A partition without a LIVE row keeps what *high* says of it.
    """
    ordered = rows.filter(
        pc.and_(
            pc.is_valid(rows["log"]),
            pc.and_(
                pc.not_equal(rows["op"], str(Op.DDL)),
                pc.not_equal(pc.fill_null(rows["snapshot"], ""), "incremental"),
            ),
        )
    )
    if not ordered.num_rows:
        return {}, {}
    codes, partitions = _partitions(ordered)
    offsets = _ints(ordered, "offset")
    sorting = np.lexsort((offsets, codes))
    codes, offsets = codes[sorting], offsets[sorting]
    places = np.column_stack([_ints(ordered, name)[sorting] for name in _ORDER])
    live = _ints(ordered, "origin")[sorting] == int(Origin.LIVE)
    names = [f"{source}/{topic}:{number}" for source, topic, number in partitions]
    before = {code: high[name] for code, name in enumerate(names) if name in high}
    tops = {names[code]: top for code, top in _tops(codes, places, live, before).items()}
    low = _low(codes, places, live, before)
    firsts = np.flatnonzero(np.diff(codes[low], prepend=-1))
    back = {
        TopicPartition(*partitions[codes[low][first]][1:]): tuple(int(n) for n in part)
        for first, part in zip(firsts, np.split(offsets[low], firsts[1:]), strict=False)
    }
    return tops, back


def _partitions(rows: pa.Table) -> tuple[Ints, list[tuple[str, str, int]]]:
    """A number for each row's partition, and what each number means."""
    code: Ints = np.zeros(rows.num_rows, np.int64)
    for name in _PARTITION:
        column = pc.dictionary_encode(rows[name].combine_chunks())
        parts = np.asarray(column.indices).astype(np.int64)
        _, code = np.unique(code * len(column.dictionary) + parts, return_inverse=True)
    _, firsts = np.unique(code, return_index=True)
    named = rows.select(_PARTITION).take(pa.array(firsts)).to_pylist()
    return code, [(one["source"], one["topic"], one["partition"]) for one in named]


def _ints(rows: pa.Table, name: str) -> Ints:
    return np.asarray(pc.fill_null(rows[name], 0)).astype(np.int64)


def _tops(codes: Ints, places: Ints, live: Flags, before: Mapping[int, Order]) -> dict[int, Order]:
    """The highest LIVE order of each partition, with that from before."""
    tops = {code: before[code] for code in np.unique(codes).tolist() if code in before}
    found, lives = codes[live], places[live]
    rising = np.lexsort((*lives.T[::-1], found))
    last = np.flatnonzero(np.diff(found[rising], append=-1))
    for code, place in zip(found[rising][last].tolist(), lives[rising][last].tolist(), strict=True):
        tops[code] = max(Order(*place), tops.get(code, Order(*place)))
    return tops


def _low(codes: Ints, places: Ints, live: Flags, before: Mapping[int, Order]) -> Ints:
    """Rows that stand too low; looked for only in partitions where some row goes back."""
    went_back = _less(places[1:], places[:-1]) & (codes[1:] == codes[:-1])
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    suspected = {*codes[1:][went_back].tolist()}
    for start in starts.tolist():
        code = int(codes[start])
        if code in before and Order(*places[start].tolist()) < before[code]:
            suspected.add(code)
    within = np.flatnonzero(np.isin(codes, list(suspected)))
    if not len(within):
        return within
    highs = {code: order for code, order in before.items() if code in suspected}
    return within[_below(codes[within], places[within], live[within], highs)]


def _below(codes: Ints, places: Ints, live: Flags, before: Mapping[int, Order]) -> Flags:
    """Whether each row is below the highest LIVE order before it in its partition.

    What was landed before is put in front of each partition as a LIVE row; orders become ranks,
    and the partition's number is the rank's highest digit, so that one running maximum serves all.
    """
    highs = np.array([_place(order) for order in before.values()], np.int64).reshape(-1, 4)
    owners = np.array(list(before), np.int64)
    every = np.concatenate([owners, codes])
    rank, most = _ranks(np.concatenate([highs, places]))
    lives = np.concatenate([np.ones(len(owners), bool), live])
    grouping = np.argsort(every, kind="stable")
    digit = every[grouping] * (most + 1)
    reached = np.maximum.accumulate(digit + np.where(lives, rank, 0)[grouping])
    low = np.empty(len(every), bool)
    low[grouping] = digit + rank[grouping] < reached
    return low[len(owners) :]


def _ranks(places: Ints) -> tuple[Ints, int]:
    """Ranks of orders, from 1 on, equal for equal ones; and the highest."""
    rising = np.lexsort(places.T[::-1])
    steps = np.any(np.diff(places[rising], axis=0) != 0, axis=1)
    ranks = np.empty(len(places), np.int64)
    ranks[rising] = np.concatenate([[1], 1 + np.cumsum(steps)])
    return ranks, int(ranks.max())


def _less(one: Ints, other: Ints) -> Flags:
    """Whether each order of *one* is below that of *other*."""
    less: Flags = np.zeros(len(one), bool)
    equal: Flags = np.ones(len(one), bool)
    for column in range(one.shape[1]):
        less |= equal & (one[:, column] < other[:, column])
        equal &= one[:, column] == other[:, column]
    return less


def _place(order: Order) -> tuple[int, ...]:
    return (order.epoch, order.log, order.pos, order.row)
