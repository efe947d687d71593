"""Do the orders of a batch rise in each partition?  Where not, which rows stand too low?"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.model import Op, Order, Origin, TopicPartition


def orders(
    rows: pa.Table, high: Mapping[str, Order]
) -> tuple[dict[str, Order], dict[TopicPartition, tuple[int, ...]]]:
    """Highest LIVE order of each partition, and the offsets of rows that stand too low in it."""
    ordered = rows.filter(
        pc.and_(
            pc.is_valid(rows["log"]),
            pc.and_(
                pc.not_equal(rows["op"], str(Op.DDL)),
                pc.not_equal(pc.fill_null(rows["snapshot"], ""), "incremental"),
            ),
        )
    )
    tops: dict[str, Order] = {}
    back: dict[TopicPartition, tuple[int, ...]] = {}
    groups = ordered.group_by(["source", "topic", "partition"]).aggregate([]).to_pylist()
    encoded = pc.dictionary_encode(ordered["topic"]).combine_chunks() if groups else None
    for group in groups:
        part = _partition(ordered, encoded, group)
        name = f"{group['source']}/{group['topic']}:{group['partition']}"
        top, low = _rise(part, high.get(name))
        if top is not None:
            tops[name] = top
        if low:
            back[TopicPartition(group["topic"], group["partition"])] = low
    return tops, back


def _partition(ordered: pa.Table, encoded: pa.Array, group: Mapping[str, object]) -> np.ndarray:
    """The group's rows by offset: columns offset, epoch, log, pos, row, live."""
    code = encoded.dictionary.index(group["topic"]).as_py()
    mask = pc.and_(
        pc.equal(encoded.indices, code), pc.equal(ordered["partition"], group["partition"])
    )
    part = ordered.filter(mask)
    names = ("offset", "epoch", "log", "pos", "row", "origin")
    table = np.column_stack([part[name].to_numpy().astype(np.int64) for name in names])
    return table[np.argsort(table[:, 0], kind="stable")]


def _rise(part: np.ndarray, before: Order | None) -> tuple[Order | None, tuple[int, ...]]:
    """Highest LIVE order (None: no LIVE row yet), and the offsets below a LIVE row before them.

    Equal is not low: a key's change is a delete and a create at one place, and rows of a snapshot
    share theirs.  Two different changes of one *key* at one place are found by the fold.
    """
    live = part[:, 5] == int(Origin.LIVE)
    if _rises(part) and (before is None or _as_order(part[0]) >= before):
        lives = part[live]
        return (_as_order(lives[-1]) if len(lives) else before), ()
    top, low = before, []
    for index in range(len(part)):
        order = _as_order(part[index])
        if top is not None and order < top:
            low.append(int(part[index, 0]))
        elif live[index]:
            top = order
    return top, tuple(low)


def _rises(part: np.ndarray) -> bool:
    """Whether no row's order is below that of the row before it."""
    greater = np.zeros(len(part) - 1, dtype=bool)
    equal = np.ones(len(part) - 1, dtype=bool)
    for column in range(1, 5):
        a, b = part[:-1, column], part[1:, column]
        greater |= equal & (b > a)
        equal &= b == a
    return bool(np.all(greater | equal))


def _as_order(row: np.ndarray) -> Order:
    return Order(int(row[1]), int(row[2]), int(row[3]), int(row[4]))
