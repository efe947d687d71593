"""What do the rows of one run say of themselves?

Summed up where they are made, so that none of them need be sent to the driver: `facts.gather` adds
up what is told here.  Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.changelog.table import MIRROR_OPS
from pipeline.formats.format import AROUND, INCREMENTAL
from pipeline.heartbeats import HeartbeatRow, LandedBeat
from pipeline.landing.grouping import Ints, grouped
from pipeline.landing.inversions import ORDER, OrderStretch, order_of, places, stretches
from pipeline.model import Op, Order, Origin, Shard

NAMED = 1_000  # quarantined changes of a subject that are kept by name, and so can be corrected
_ENDS = ("last", "last_in_data_collection")
_MIRRORED = pa.array([str(op) for op in MIRROR_OPS])

Place = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclass(frozen=True, slots=True)
class SnapshotRows:
    """Rows of one shard's snapshot: all of one order; was the last among them?

    ``torn``: others of it are of the epoch before, for the server was replaced when they came.
    """

    order: Order
    rows: int
    ended: bool
    topics: frozenset[str] = frozenset()
    torn: bool = False

    def with_rows(self, other: "SnapshotRows") -> "SnapshotRows":
        """Both if they are of one snapshot, else the newer one."""
        if self.order != other.order:
            before, newer = sorted((self, other), key=lambda one: one.order)
            return replace(newer, torn=newer.torn or newer.goes_on(before.order))
        ended, topics = self.ended or other.ended, self.topics | other.topics
        torn = self.torn or other.torn
        return SnapshotRows(self.order, self.rows + other.rows, ended, topics, torn)

    def goes_on(self, before: Order) -> bool:
        """Whether rows at *before* are of the same snapshot, in an epoch below."""
        return before.epoch < self.order.epoch and before.parts[1:] == self.order.parts[1:]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Changes of one shard, or topic, that could not be read: how many, and where the first are.

    ``table`` is None where the shard is not known.
    """

    source: str
    table: str | None
    count: int
    first: tuple[Place, ...]

    def with_more(self, other: "Unreadable") -> "Unreadable":
        """Both; the first *NAMED* by place stay."""
        first = sorted((*self.first, *other.first))[:NAMED]
        return Unreadable(self.source, self.table, self.count + other.count, tuple(first))


@dataclass(frozen=True, slots=True)
class AroundRows:
    """Live rows of one shard that may stand below the snapshot before them.

    ``order`` is the lowest; ``rows`` names them as if they could not be read.
    """

    order: Order
    rows: Unreadable

    def with_more(self, other: "AroundRows") -> "AroundRows":
        """Both."""
        return AroundRows(min(self.order, other.order), self.rows.with_more(other.rows))


@dataclass(frozen=True, slots=True)
class RunTally:
    """Counts and bounds of some rows; keys as in :class:`pipeline.checkpoint.Mark`.

    ``tables``      table -> rows that change its mirror.
    ``shards``      ``source/shard`` -> its table, of every shard with such a row.
    ``firsts``      ``source/shard`` -> lowest order of such a row.
    ``heartbeats``  source -> highest number.
    ``beats``       source -> each of its heartbeats that has an order.
    ``heartbeat_rows``  source -> all rows of its heartbeat table, but replayed ones.
    ``wholes``      source -> order of its newest snapshot that read the heartbeat's table, too.
    ``snapshots``   ``source/shard`` -> its newest snapshot's rows.
    ``statements``  schema changes of any kind, as rows of ``SLIM``.
    ``errors``      ``source/shard`` (or ``topic:NAME`` where it is not known) -> what is unread.
    ``stretches``   the orders of each partition.
    ``around``      ``source/shard`` -> its rows of ``AROUND``.
    """

    rows: int
    tables: Mapping[str, int]
    shards: Mapping[str, str]
    firsts: Mapping[str, Order]
    heartbeats: Mapping[str, int]
    snapshots: Mapping[str, SnapshotRows]
    statements: tuple[Mapping[str, Any], ...]
    errors: Mapping[str, Unreadable]
    stretches: tuple[OrderStretch, ...]
    around: Mapping[str, AroundRows]
    wholes: Mapping[str, Order]
    beats: Mapping[str, tuple[LandedBeat, ...]]
    heartbeat_rows: Mapping[str, tuple[HeartbeatRow, ...]] = field(default_factory=dict)


def tally(rows: pa.Table) -> RunTally:
    """Sum up *rows* of ``SLIM``."""
    mirrored = _only(rows, pc.and_(pc.is_in(rows["op"], _MIRRORED), pc.is_valid(rows["table"])))
    codes, firsts = grouped(mirrored, ["source", "shard", "table"])
    shards = mirrored.select(["source", "shard", "table"]).take(pa.array(firsts)).to_pylist()
    names = [str(Shard(one["source"], one["shard"])) for one in shards]
    tables = [one["table"] for one in shards]
    return RunTally(
        rows=rows.num_rows,
        tables=_counts(tables, codes),
        shards=dict(zip(names, tables, strict=True)),
        firsts=_firsts(mirrored, codes, names),
        heartbeats=_heartbeats(_of(rows, Op.HEARTBEAT)),
        snapshots=_snapshots(_of(rows, Op.READ)),
        statements=tuple(_of(rows, Op.DDL).to_pylist()),
        errors=_errors(_of(rows, Op.ERROR)),
        stretches=stretches(rows),
        around=_around(
            mirrored.filter(pc.fill_null(pc.equal(mirrored["snapshot"], AROUND), False))
        ),
        wholes=_wholes(_of(rows, Op.HEARTBEAT)),
        beats=_beats(_of(rows, Op.HEARTBEAT)),
        heartbeat_rows=_heartbeat_rows(_of(rows, Op.HEARTBEAT)),
    )


def _only(rows: pa.Table, mask: pa.ChunkedArray) -> pa.Table:
    """Rows of *mask*; those that there are, where it holds for all."""
    return rows if pc.all(mask, min_count=0).as_py() else rows.filter(mask)


def _of(rows: pa.Table, op: Op) -> pa.Table:
    return rows.filter(pc.equal(rows["op"], str(op)))


def _counts(tables: list[str], codes: Ints) -> dict[str, int]:
    counts: dict[str, int] = {}
    for table, count in zip(tables, np.bincount(codes).tolist(), strict=True):
        counts[table] = counts.get(table, 0) + count
    return counts


def _firsts(rows: pa.Table, codes: Ints, names: list[str]) -> dict[str, Order]:
    """The lowest order of each group of *codes* that has any: part by part, among what is left."""
    placed = np.asarray(pc.is_valid(rows["log"]))
    left, columns = codes[placed], [column[placed] for column in places(rows)]
    found, parts = np.unique(left), []
    for number, column in enumerate(columns):
        lowest = np.full(len(names), np.iinfo(np.int64).max)
        np.minimum.at(lowest, left, column)
        parts.append(lowest[found].tolist())
        keep = column == lowest[left]
        left, columns[number + 1 :] = left[keep], [one[keep] for one in columns[number + 1 :]]
    orders = (Order(*place) for place in zip(*parts, strict=True))
    return {names[code]: order for code, order in zip(found.tolist(), orders, strict=True)}


def _heartbeats(beats: pa.Table) -> dict[str, int]:
    """Without those that somebody read beside the log: they may be far ahead of it."""
    result: dict[str, int] = {}
    beside = pc.equal(pc.fill_null(beats["snapshot"], ""), INCREMENTAL)
    beside = pc.or_(beside, pc.equal(beats["origin"], int(Origin.REPLAY)))
    for beat in beats.filter(pc.invert(beside)).select(["source", "note"]).to_pylist():
        number = int(beat["note"]) if (beat["note"] or "").isdigit() else -1
        result[beat["source"]] = max(number, result.get(beat["source"], -1))
    return result


def _beats(beats: pa.Table) -> dict[str, tuple[LandedBeat, ...]]:
    """Those that came out of the log."""
    result: dict[str, list[LandedBeat]] = {}
    live = pc.and_(pc.is_valid(beats["log"]), pc.equal(beats["origin"], int(Origin.LIVE)))
    for beat in beats.filter(live).to_pylist():
        if (beat["note"] or "").isdigit():
            place = (beat["topic"], beat["partition"], beat["offset"])
            one = LandedBeat(int(beat["note"]), *place, order_of(beat))
            result.setdefault(beat["source"], []).append(one)
    return {source: tuple(own) for source, own in result.items()}


def _heartbeat_rows(beats: pa.Table) -> dict[str, tuple[HeartbeatRow, ...]]:
    result: dict[str, list[HeartbeatRow]] = {}
    for row in beats.to_pylist():
        if row["origin"] == int(Origin.REPLAY):
            continue
        beside = row["snapshot"] == INCREMENTAL
        number = int(row["note"]) if (row["note"] or "").isdigit() and not beside else -1
        order = None if row["log"] is None else order_of(row)
        at = (row["topic"], row["partition"], row["offset"])
        one = HeartbeatRow(number, *at, order, read=row["origin"] != int(Origin.LIVE))
        result.setdefault(row["source"], []).append(one)
    return {source: tuple(own) for source, own in result.items()}


def _wholes(beats: pa.Table) -> dict[str, Order]:
    result: dict[str, Order] = {}
    read = pc.and_(pc.is_valid(beats["snapshot"]), pc.not_equal(beats["snapshot"], AROUND))
    read = pc.and_(
        pc.and_(read, pc.not_equal(beats["snapshot"], INCREMENTAL)), pc.is_valid(beats["log"])
    )
    for beat in beats.filter(read).to_pylist():
        name, order = beat["source"], order_of(beat)
        result[name] = max(order, result.get(name, order))
    return result


def _snapshots(reads: pa.Table) -> dict[str, SnapshotRows]:
    reads = reads.filter(pc.not_equal(pc.fill_null(reads["snapshot"], ""), INCREMENTAL))
    found: dict[str, SnapshotRows] = {}
    names = ["source", "shard", *ORDER, "snapshot", "topic"]
    for group in reads.group_by(names).aggregate([([], "count_all")]).to_pylist():
        name = str(Shard(group["source"], group["shard"]))
        ended, topics = group["snapshot"] in _ENDS, frozenset({group["topic"]})
        one = SnapshotRows(order_of(group), group["count_all"], ended, topics)
        found[name] = one.with_rows(found[name]) if name in found else one
    return found


def _around(rows: pa.Table) -> dict[str, AroundRows]:
    """One by one: they are those of a collector's first transaction only."""
    found: dict[str, AroundRows] = {}
    for row in rows.to_pylist() if rows.num_rows else ():
        name = str(Shard(row["source"], row["shard"]))
        where = (row["topic"], row["partition"], row["offset"])
        one = AroundRows(order_of(row), Unreadable(row["source"], row["table"], 1, (where,)))
        found[name] = found[name].with_more(one) if name in found else one
    return found


def _errors(errors: pa.Table) -> dict[str, Unreadable]:
    """What could not be read, by shard where it and its table are known, else by topic."""
    known = pc.and_(pc.is_valid(errors["table"]), pc.is_valid(errors["shard"]))
    shard = pc.binary_join_element_wise(errors["source"], errors["shard"], "/")
    topic = pc.binary_join_element_wise("topic", errors["topic"], ":")
    errors = errors.append_column("subject", pc.if_else(known, shard, topic))
    by_place = [(name, "ascending") for name in ("subject", "topic", "partition", "offset")]
    errors = errors.sort_by(by_place)
    counts = errors.group_by("subject", use_threads=False).aggregate([([], "count_all")])
    found: dict[str, Unreadable] = {}
    start = 0
    for subject, count in zip(*(column.to_pylist() for column in counts.columns), strict=True):
        first = errors.slice(start, min(count, NAMED)).to_pylist()
        table = None if subject == f"topic:{first[0]['topic']}" else first[0]["table"]
        where = tuple((row["topic"], row["partition"], row["offset"]) for row in first)
        found[subject] = Unreadable(first[0]["source"], table, count, where)
        start += count
    return found
