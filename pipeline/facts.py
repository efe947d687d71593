"""What a written batch says of itself, read from its slim columns before it is committed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.changelog import MIRROR_OPS
from pipeline.model import Op, Order, Origin, TopicPartition

_ENDS = ("last", "last_in_data_collection")


@dataclass(frozen=True, slots=True)
class SnapshotRows:
    """Rows of one shard's snapshot in this batch: all of one order; was the last among them?"""

    order: Order
    rows: int
    ended: bool


@dataclass(frozen=True, slots=True)
class Facts:
    """Counts and maxima of one batch; keys as in :class:`pipeline.mark.Mark`.

    ``tables``      table -> rows that change its mirror.
    ``shards``      ``source/shard`` -> its table, of every shard with such a row.
    ``heartbeats``  source -> highest number.
    ``high``        ``source/topic:partition`` -> highest LIVE order.
    ``snapshots``   ``source/shard`` -> its newest snapshot's rows.
    ``ddl``         (source, shard, order, snapshot?, payload), in log order.
    ``errors``      subject (table, or ``topic:NAME``) -> ids ``topic:partition:offset``.
    ``back``        partitions in which orders do not rise, with the rows that stand too low.
    """

    rows: int = 0
    tables: Mapping[str, int] = field(default_factory=dict)
    shards: Mapping[str, str] = field(default_factory=dict)
    heartbeats: Mapping[str, int] = field(default_factory=dict)
    high: Mapping[str, Order] = field(default_factory=dict)
    snapshots: Mapping[str, SnapshotRows] = field(default_factory=dict)
    ddl: tuple[tuple[str, str, Order, bool, str], ...] = ()
    errors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    back: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict)


def gather(slim: pa.Table, high: Mapping[str, Order]) -> Facts:
    """Sum up a batch from ``changelog.slim``; *high* is the highest LIVE order landed before."""
    mirrored = slim.filter(pc.is_in(slim["op"], pa.array([str(op) for op in MIRROR_OPS])))
    mirrored = mirrored.filter(pc.is_valid(mirrored["table"]))
    tops, back = _orders(slim, high)
    return Facts(
        rows=slim.num_rows,
        tables=_counts(mirrored, "table"),
        shards=_shards(mirrored),
        heartbeats=_heartbeats(slim),
        high=tops,
        snapshots=_snapshots(slim),
        ddl=_ddl(slim),
        errors=_errors(slim),
        back=back,
    )


def _counts(rows: pa.Table, column: str) -> dict[str, int]:
    counted = pc.value_counts(rows[column].combine_chunks())
    return {item["values"].as_py(): item["counts"].as_py() for item in counted}


def _shards(rows: pa.Table) -> dict[str, str]:
    pairs = rows.group_by(["source", "shard", "table"]).aggregate([]).to_pylist()
    return {f"{pair['source']}/{pair['shard']}": pair["table"] for pair in pairs}


def _heartbeats(rows: pa.Table) -> dict[str, int]:
    beats = rows.filter(pc.equal(rows["op"], str(Op.HEARTBEAT)))
    result: dict[str, int] = {}
    for beat in beats.select(["source", "note"]).to_pylist():
        number = int(beat["note"]) if (beat["note"] or "").isdigit() else -1
        result[beat["source"]] = max(number, result.get(beat["source"], -1))
    return result


def _order(row: Mapping[str, int]) -> Order:
    return Order(row["epoch"], row["log"], row["pos"], row["row"])


def _snapshots(rows: pa.Table) -> dict[str, SnapshotRows]:
    found: dict[str, SnapshotRows] = {}
    reads = rows.filter(pc.equal(rows["op"], str(Op.READ)))
    reads = reads.filter(pc.not_equal(pc.fill_null(reads["snapshot"], ""), "incremental"))
    names = ["source", "shard", "epoch", "log", "pos", "row", "snapshot"]
    for group in reads.group_by(names).aggregate([([], "count_all")]).to_pylist():
        name, order = f"{group['source']}/{group['shard']}", _order(group)
        ended, count = group["snapshot"] in _ENDS, group["count_all"]
        known = found.get(name)
        if known is not None and known.order > order:
            continue
        if known is not None and known.order == order:
            ended, count = ended or known.ended, count + known.rows
        found[name] = SnapshotRows(order, count, ended)
    return found


def _ddl(rows: pa.Table) -> tuple[tuple[str, str, Order, bool, str], ...]:
    changes = rows.filter(pc.equal(rows["op"], str(Op.DDL)))
    changes = changes.sort_by([("topic", "ascending"), ("offset", "ascending")])
    return tuple(
        (row["source"], row["shard"] or "", _order(row), row["snapshot"] is not None, row["note"])
        for row in changes.to_pylist()
        if row["log"] is not None
    )


def _errors(rows: pa.Table) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for row in rows.filter(pc.equal(rows["op"], str(Op.ERROR))).to_pylist():
        subject = row["table"] or f"topic:{row['topic']}"
        found.setdefault(subject, []).append(f"{row['topic']}:{row['partition']}:{row['offset']}")
    return {subject: tuple(sorted(ids)) for subject, ids in found.items()}


def _orders(
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
