"""What a written batch says of itself, read from its slim columns before it is committed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.changelog.table import MIRROR_OPS
from pipeline.errors import FormatError
from pipeline.landing.rising import orders
from pipeline.model import Op, Order, TopicPartition
from pipeline.schema.history import SchemaChange, parse

_ENDS = ("last", "last_in_data_collection")


@dataclass(frozen=True, slots=True)
class SnapshotRows:
    """Rows of one shard's snapshot in this batch: all of one order; was the last among them?"""

    order: Order
    rows: int
    ended: bool


@dataclass(frozen=True, slots=True)
class News:
    """A schema change of a source; ``snapshot`` if it describes a table about to be read."""

    source: str
    change: SchemaChange
    snapshot: bool


@dataclass(frozen=True, slots=True)
class Facts:
    """Counts and maxima of one batch; keys as in :class:`pipeline.mark.Mark`.

    ``tables``      table -> rows that change its mirror.
    ``shards``      ``source/shard`` -> its table, of every shard with such a row.
    ``heartbeats``  source -> highest number.
    ``high``        ``source/topic:partition`` -> highest LIVE order.
    ``snapshots``   ``source/shard`` -> its newest snapshot's rows.
    ``news``        schema changes, in log order; one that cannot be read is an error.
    ``errors``      subject (table, or ``topic:NAME``) -> ids ``topic:partition:offset``.
    ``back``        partitions in which orders do not rise, with the rows that stand too low.
    """

    rows: int = 0
    tables: Mapping[str, int] = field(default_factory=dict)
    shards: Mapping[str, str] = field(default_factory=dict)
    heartbeats: Mapping[str, int] = field(default_factory=dict)
    high: Mapping[str, Order] = field(default_factory=dict)
    snapshots: Mapping[str, SnapshotRows] = field(default_factory=dict)
    news: tuple[News, ...] = ()
    errors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    back: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict)


def gather(slim: pa.Table, high: Mapping[str, Order]) -> Facts:
    """Sum up a batch from ``changelog.slim``; *high* is the highest LIVE order landed before."""
    mirrored = slim.filter(pc.is_in(slim["op"], pa.array([str(op) for op in MIRROR_OPS])))
    mirrored = mirrored.filter(pc.is_valid(mirrored["table"]))
    tops, back = orders(slim, high)
    news, unread = _news(slim)
    return Facts(
        rows=slim.num_rows,
        tables=_counts(mirrored, "table"),
        shards=_shards(mirrored),
        heartbeats=_heartbeats(slim),
        high=tops,
        snapshots=_snapshots(slim),
        news=news,
        errors={**_errors(slim), **unread},
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


def _news(rows: pa.Table) -> tuple[tuple[News, ...], dict[str, tuple[str, ...]]]:
    """Schema changes in log order, and by topic the ids of those that cannot be read."""
    changes = rows.filter(pc.equal(rows["op"], str(Op.DDL)))
    changes = changes.filter(pc.is_valid(changes["log"]))
    news: list[News] = []
    unread: dict[str, list[str]] = {}
    for row in changes.sort_by([("topic", "ascending"), ("offset", "ascending")]).to_pylist():
        try:
            parsed = parse(row["note"], _order(row))
        except FormatError:
            unread.setdefault(f"topic:{row['topic']}", []).append(_id(row))
            continue
        news += [News(row["source"], change, row["snapshot"] is not None) for change in parsed]
    return tuple(news), {topic: tuple(ids) for topic, ids in unread.items()}


def _errors(rows: pa.Table) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for row in rows.filter(pc.equal(rows["op"], str(Op.ERROR))).to_pylist():
        subject = row["table"] or f"topic:{row['topic']}"
        found.setdefault(subject, []).append(_id(row))
    return {subject: tuple(sorted(ids)) for subject, ids in found.items()}


def _id(row: Mapping[str, object]) -> str:
    return f"{row['topic']}:{row['partition']}:{row['offset']}"
