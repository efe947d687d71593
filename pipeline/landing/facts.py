"""What a written batch says of itself, read from its slim columns before it is committed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.changelog.table import MIRROR_OPS
from pipeline.errors import FormatError
from pipeline.landing.rising import orders
from pipeline.model import Op, Order, TopicPartition
from pipeline.schema.history import SchemaChange
from pipeline.schema.reading import Reading

NAMED = 20  # quarantined changes of a subject that are kept by name; a person reads no more
_ORDER = ["epoch", "log", "pos", "row"]
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
class Unread:
    """Changes of one shard, or topic, that could not be read: how many, and the first by name.

    ``table`` is None where the shard is not known; an id is ``topic:partition:offset``.
    """

    source: str
    table: str | None
    count: int
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """Counts and maxima of one batch; keys as in :class:`pipeline.mark.Mark`.

    ``tables``      table -> rows that change its mirror.
    ``shards``      ``source/shard`` -> its table, of every shard with such a row.
    ``heartbeats``  source -> highest number.
    ``high``        ``source/topic:partition`` -> highest LIVE order.
    ``snapshots``   ``source/shard`` -> its newest snapshot's rows.
    ``news``        schema changes, in log order; one that cannot be read is an error.
    ``statements``  schema changes of any kind, those about no table among them.
    ``firsts``      ``source/shard`` -> lowest order of a row, of those created in it.
    ``errors``      ``source/shard`` (or ``topic:NAME`` where it is not known) -> what is unread.
    ``back``        partitions in which orders do not rise, with the rows that stand too low.
    """

    rows: int = 0
    tables: Mapping[str, int] = field(default_factory=dict)
    shards: Mapping[str, str] = field(default_factory=dict)
    heartbeats: Mapping[str, int] = field(default_factory=dict)
    high: Mapping[str, Order] = field(default_factory=dict)
    snapshots: Mapping[str, SnapshotRows] = field(default_factory=dict)
    news: tuple[News, ...] = ()
    statements: int = 0
    firsts: Mapping[str, Order] = field(default_factory=dict)
    errors: Mapping[str, Unread] = field(default_factory=dict)
    back: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict)


def gather(slim: pa.Table, high: Mapping[str, Order], readings: Mapping[str, Reading]) -> Facts:
    """Sum up a batch from ``changelog.slim``; *high* is the highest LIVE order landed before.

    *readings*: source -> how its schema changes are read.
    """
    mirrored = slim.filter(pc.is_in(slim["op"], pa.array([str(op) for op in MIRROR_OPS])))
    mirrored = mirrored.filter(pc.is_valid(mirrored["table"]))
    tops, back = orders(slim, high)
    news, unread = _news(slim, readings)
    return Facts(
        rows=slim.num_rows,
        tables=_counts(mirrored, "table"),
        shards=_shards(mirrored),
        heartbeats=_heartbeats(slim),
        high=tops,
        snapshots=_snapshots(slim),
        news=news,
        statements=pc.sum(pc.equal(slim["op"], str(Op.DDL))).as_py() or 0,
        firsts=_firsts(mirrored, news),
        errors=_errors(slim, unread),
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


def _news(
    rows: pa.Table, readings: Mapping[str, Reading]
) -> tuple[tuple[News, ...], list[Mapping[str, Any]]]:
    """Schema changes in log order, and the rows of those that cannot be read."""
    changes = rows.filter(pc.equal(rows["op"], str(Op.DDL)))
    changes = changes.filter(pc.is_valid(changes["log"]))
    news: list[News] = []
    unread: list[Mapping[str, Any]] = []
    for row in changes.sort_by([("topic", "ascending"), ("offset", "ascending")]).to_pylist():
        try:
            parsed = readings[row["source"]].changes(row["note"], _order(row))
        except FormatError:
            unread.append({**row, "table": None})
            continue
        news += [News(row["source"], change, row["snapshot"] is not None) for change in parsed]
    return tuple(news), unread


def _firsts(rows: pa.Table, news: Sequence[News]) -> dict[str, Order]:
    """Lowest order of the rows of each shard that was created: was it there before?"""
    created = {one.change.shard for one in news if one.change.kind == "create" and not one.snapshot}
    own = rows.filter(pc.is_in(rows["shard"], pa.array(sorted(created), pa.string())))
    own = own.filter(pc.is_valid(own["log"])).select(["source", "shard", *_ORDER])
    own = own.sort_by([(name, "ascending") for name in own.column_names])
    grouped = own.group_by(["source", "shard"], use_threads=False)
    firsts = grouped.aggregate([(name, "first") for name in _ORDER])
    firsts = firsts.rename_columns([name.removesuffix("_first") for name in firsts.column_names])
    return {f"{row['source']}/{row['shard']}": _order(row) for row in firsts.to_pylist()}


def _errors(rows: pa.Table, unread: Sequence[Mapping[str, Any]]) -> dict[str, Unread]:
    """What could not be read, by shard where it and its table are known, else by topic."""
    names = ["source", "topic", "shard", "table", "partition", "offset"]
    errors = rows.filter(pc.equal(rows["op"], str(Op.ERROR))).select(names)
    if unread:
        more = pa.Table.from_pylist([{n: row[n] for n in names} for row in unread], errors.schema)
        errors = pa.concat_tables([errors, more])
    known = pc.and_(pc.is_valid(errors["table"]), pc.is_valid(errors["shard"]))
    shard = pc.binary_join_element_wise(errors["source"], errors["shard"], "/")
    topic = pc.binary_join_element_wise("topic", errors["topic"], ":")
    errors = errors.append_column("subject", pc.if_else(known, shard, topic))
    places = [(name, "ascending") for name in ("subject", "topic", "partition", "offset")]
    errors = errors.sort_by(places)
    counts = errors.group_by("subject", use_threads=False).aggregate([([], "count_all")])
    found: dict[str, Unread] = {}
    start = 0
    for subject, count in zip(*(column.to_pylist() for column in counts.columns), strict=True):
        first = errors.slice(start, min(count, NAMED)).to_pylist()
        table = None if subject == f"topic:{first[0]['topic']}" else first[0]["table"]
        found[subject] = Unread(first[0]["source"], table, count, tuple(_id(row) for row in first))
        start += count
    return found


def _id(row: Mapping[str, object]) -> str:
    return f"{row['topic']}:{row['partition']}:{row['offset']}"
