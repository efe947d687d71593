"""Finds redelivered rows: below what was landed before, or by a new server at other positions.

A redelivered row equals a row that is landed already or is higher in the batch. Order, op, key,
before and after are compared. The transaction block and time stamps of a second delivery differ, so
they are not compared. Everything else must be explained by a new log.

After a fail-over the same transactions have other positions in the new server's log, so their
orders do not show that they are old. Their ids (GTIDs) and their content do. Such a row takes the
order with which it landed, and is a repetition from then on.

A broker may refuse a record, for example as too large. The collector continues after it, and sends
again from that record on once the broker accepts it. The record is then below what was landed, and
repeats nothing. It is explained if the next record of its partition repeats the landed change that
follows it in the log. A collector that sends this reads the log that was landed, so the record's
own order is true.

It is not explained if a partial row has landed above it. That row may have been completed without
the record's values, and keeps them in the mirror, because its order is higher. It is not explained
either if a newer statement about its shard has landed: its rows may have moved or changed.

The change log is read for the rows in question only. Pure.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.changelog.table import ORDER_TYPE
from pipeline.checkpoint import Checkpoint, Epoch
from pipeline.landing.epochs import find_resending
from pipeline.model import LOG_PARTS, Op, Order, OrderSpan, Origin, Shard, TopicPartition
from pipeline.sources.positions import locate_position, may_contain

PLACE = ("source", "topic", "partition", "offset")
COLUMNS = (*PLACE, "shard", "order", "op", "origin", "key", "before", "after", "tx")
_SAID = ("op", "key", "before", "after")
Said = tuple[str | None, ...]  # op, key, before and after; or source, transaction, and these
_COPIES = 10_000  # most refused rows in a run, and most landed rows between a run's positions
_RUNS = 1_000  # most runs of refused rows in one partition of a batch
_HALVES = {str(Op.DELETE), str(Op.CREATE)}
_Indexes = npt.NDArray[np.int64]
_FAR = 4 * 2**20  # bytes of a log between two rows; farther ones are searched separately


@dataclass(frozen=True, slots=True)
class LogStretch:
    """Rows of one log with positions from ``first`` to ``last``, both included, of any epoch."""

    log: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Near:
    """Landed rows of these topics of a source that have their order in one of the stretches.

    A reader may return more rows, so it may use file statistics alone.
    """

    source: str
    topics: tuple[str, ...]
    stretches: tuple[LogStretch, ...]


@dataclass(frozen=True, slots=True)
class Between:
    """Landed rows of one topic of a source with ``first <= order.log <= last``, of any epoch."""

    source: str
    topic: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class PartialFrom:
    """Landed rows of one topic of a source that have some columns only, ``order.log >= first``."""

    source: str
    topic: str
    first: int


Asked = Near | Between | PartialFrom


@dataclass(frozen=True, slots=True)
class Transactions:
    """Landed rows of these transactions of a source, none with an order below ``since``.

    ``since`` is the acknowledged position of the old log: a collector that continues where it
    stopped sends nothing older. If it is None, the position is unknown or was moved back, and all
    rows must be read.
    """

    source: str
    ids: tuple[str, ...]
    since: Order | None


def _never(_: Shard, __: Order) -> bool:
    return False


class StrangeRows(dict[TopicPartition, int]):
    """Maps a partition to the lowest offset of a row that goes back and repeats nothing.

    ``bounds``: partition -> the limit that was exceeded, so it is unknown whether the broker
    refused the row. ``undecided``: partitions that end with these rows. The row after them, which
    shows whether the broker refused them, may not have come yet. ``late``: source -> shard -> an
    order span, also for rows that the broker had refused. It reaches from the lowest such row to
    the highest row from the first such one on: a new epoch would have them all.
    """

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self.bounds: dict[TopicPartition, str] = {}
        self.undecided: set[TopicPartition] = set()
        self.late: dict[str, dict[str, OrderSpan]] = {}

    def note(self, source: str, rows: pa.Table, offsets: frozenset[int]) -> None:
        """Remember the shards of the *rows*, all of one partition, at *offsets*."""
        known = self.late.setdefault(source, {})
        strange = rows.filter(pc.is_in(rows["offset"], _offsets(offsets)))
        highest = _ends(rows.filter(pc.greater_equal(rows["offset"], min(offsets))), "descending")
        for shard, lowest in _ends(strange, "ascending").items():
            name, span = str(Shard(source, shard)), OrderSpan(lowest, highest[shard])
            known[name] = span.joined(known.get(name, span))


def find_unexplained(
    rows: pa.Table,
    back: Mapping[TopicPartition, tuple[int, ...]],
    landed: Callable[[Asked], pa.Table],
    outdated: Callable[[Shard, Order], bool] = _never,
    grown: Set[str] = frozenset(),
) -> StrangeRows:
    """Return partition -> lowest offset among the *back* rows that equal no row before them.

    Rows that a broker refused at first are left out. *rows* are the batch's rows of the topics of
    *back*. *landed* reads the change log, once for each source with such rows, and twice more for a
    partition with rows that repeat nothing. Both have at least ``COLUMNS``. *outdated* returns
    whether a statement about a shard has landed that is newer than an order. *grown* are topics in
    which a key may have been in another partition before.
    """
    said = pc.not_equal(rows["op"], str(Op.DDL))  # column descriptions have the offset of their row
    ordered = rows.filter(pc.and_(pc.is_valid(rows["order"]), said))
    low = _are_low(ordered, back)
    suspects, first = ordered.filter(pa.array(low)), ordered.filter(pa.array(~low))
    found = StrangeRows()
    for source in pc.unique(suspects["source"]).to_pylist():
        own = suspects.filter(pc.equal(suspects["source"], source))
        log = landed(_near(source, own))
        log = log.filter(pc.and_(pc.is_valid(log["order"]), _among(log["topic"], own["topic"])))
        beside = first.filter(pc.equal(first["source"], source))
        strange = _unequal(own, pa.concat_tables([_flat(log), _flat(beside)]))
        for at, offsets in _by_partition(strange).items():
            its = _of_partition(ordered, source, at)
            found.note(source, its, offsets)
            runs = [
                r for r in _runs(its, offsets) if r.rises and not r.is_outdated(source, outdated)
            ]
            if left := offsets - _refused(source, at, its, runs, landed, grown=grown):
                found[at] = min(left)
                if bound := _bound_met(its, offsets):
                    found.bounds[at] = bound
                elif _may_be_refused(source, at, its, left, landed=landed, outdated=outdated):
                    found.undecided.add(at)
    return found


def _may_be_refused(
    source: str,
    at: TopicPartition,
    rows: pa.Table,
    left: frozenset[int],
    *,
    landed: Callable[[Asked], pa.Table],
    outdated: Callable[[Shard, Order], bool],
) -> bool:
    """Return whether the *left* rows end *rows* (of one partition), and may be refused ones.

    The row after them, once it has come, shows whether the broker refused them.
    """
    last = rows.filter(pc.greater_equal(rows["offset"], min(left))).sort_by("offset")
    if last.num_rows != len(left):
        return False
    own = _PlacedRow.read(last)
    run = _StrangeRun(tuple(own), own[-1])
    if not run.rises or run.is_outdated(source, outdated):
        return False
    found = landed(Between(source, at.topic, run.first.log, run.until.log))
    found = _of_partition(found.filter(pc.not_equal(found["op"], str(Op.DDL))), source, at)
    return not run.contradicts(pa.concat_tables([found.cast(rows.schema), rows]))


def _offsets(offsets: frozenset[int]) -> pa.Array:
    return pa.array(sorted(offsets), pa.int64())


def _ends(rows: pa.Table, sense: Literal["ascending", "descending"]) -> dict[str, Order]:
    """Return shard -> the first order of its rows; all of them have one."""
    parts = {name: _part(rows["order"], name) for name in ORDER_TYPE.names}
    flat = pa.table({"shard": rows["shard"], **parts})
    by_order = flat.sort_by([(name, sense) for name in parts])
    firsts = by_order.group_by("shard", use_threads=False).aggregate(
        [(name, "first") for name in parts]
    )
    return {
        row["shard"]: Order(*(row[f"{name}_first"] for name in parts)) for row in firsts.to_pylist()
    }


def _by_partition(rows: pa.Table) -> dict[TopicPartition, frozenset[int]]:
    found: dict[TopicPartition, set[int]] = {}
    for row in rows.select(["topic", "partition", "offset"]).to_pylist():
        found.setdefault(TopicPartition(row["topic"], row["partition"]), set()).add(row["offset"])
    return {at: frozenset(offsets) for at, offsets in found.items()}


def _refused(
    source: str,
    at: TopicPartition,
    own: pa.Table,
    runs: "Sequence[_StrangeRun]",
    landed: Callable[[Asked], pa.Table],
    *,
    grown: Set[str],
) -> frozenset[int]:
    """Return offsets of strange rows of one partition that the broker refused at first.

    *own* are the batch's rows of the partition. *runs* are its strange rows, without runs about
    whose shards a newer statement has landed.

    The row behind them, by offset, must repeat the landed one that is next to them in the log: it
    exists only if the same log is read again. Until it has come, they remain strange, as do those
    below a landed partial row.
    """
    if not runs:
        return frozenset()
    logs = [order.log for run in runs for order in (run.first, run.until)]
    found = landed(Between(source, at.topic, min(logs), max(logs)))
    found = _of_partition(found.filter(pc.not_equal(found["op"], str(Op.DDL))), source, at)
    known = pa.concat_tables([found.cast(own.schema), own])
    runs = [run for run in runs if run.repeats(known)]
    if not runs:
        return frozenset()
    partial = landed(PartialFrom(source, at.topic, min(run.first.log for run in runs)))
    if at.topic not in grown:  # else the key of a refused row may have been in another partition
        partial = partial.filter(pc.equal(partial["partition"], at.partition))
    highest = max((Order(**order) for order in partial["order"].to_pylist()), default=None)
    whole = (run for run in runs if highest is None or highest < run.first)
    return frozenset(row.offset for run in whole for row in run.rows)


def _of_partition(rows: pa.Table, source: str, at: TopicPartition) -> pa.Table:
    own = pc.and_(pc.equal(rows["source"], source), pc.equal(rows["topic"], at.topic))
    own = pc.and_(own, pc.equal(rows["partition"], at.partition))
    return rows.filter(pc.and_(own, pc.is_valid(rows["order"]))).select(list(COLUMNS))


@dataclass(frozen=True, slots=True)
class _PlacedRow:
    """A row of one partition; ``said`` holds the values that a repetition shares."""

    offset: int
    shard: str
    order: Order
    live: bool
    said: Said

    @classmethod
    def read(cls, rows: pa.Table) -> "list[_PlacedRow]":
        """Return one for each of *rows*, which are few."""
        return [
            cls(
                row["offset"],
                row["shard"],
                Order(**row["order"]),
                row["origin"] == int(Origin.LIVE),
                tuple(row[name] for name in _SAID),
            )
            for row in rows.select(["offset", "shard", "order", "origin", *_SAID]).to_pylist()
        ]


@dataclass(frozen=True, slots=True)
class _StrangeRun:
    """Consecutive strange rows of a partition, and ``next``, the first row after them."""

    rows: tuple[_PlacedRow, ...]
    next: _PlacedRow

    @property
    def first(self) -> Order:
        """The order of the first strange row."""
        return self.rows[0].order

    @property
    def until(self) -> Order:
        """Return the order of the row behind them."""
        return self.next.order

    @property
    def rises(self) -> bool:
        """Return whether all are LIVE, and their orders rise up to the row behind them."""
        every = [*self.rows, self.next]
        rising = all(one.order <= other.order for one, other in pairwise(every))
        return rising and all(row.live for row in every)

    def is_outdated(self, source: str, outdated: Callable[[Shard, Order], bool]) -> bool:
        """Return whether a statement newer than one of the rows has landed about its shard."""
        return any(outdated(Shard(source, row.shard), row.order) for row in self.rows)

    def repeats(self, known: pa.Table) -> bool:
        """Return whether the row behind them repeats a *known* row that follows them in the log."""
        again = self.until, self.next.said
        between = self._between(known)
        return any(row.live and (row.order, row.said) == again for row in between or ())

    def contradicts(self, known: pa.Table) -> bool:
        """Return whether *known* rows, landed or earlier by offset, rule out a refusal."""
        return self._between(known) is None

    def _between(self, known: pa.Table) -> list[_PlacedRow] | None:
        """Return *known* rows from the run's first order to that of the row behind it.

        None if one of them differs, or there are too many. At the order of a strange row only
        the same row, sent earlier in the batch, or the other half of a changed key is accepted.
        """
        earlier = pc.less(known["offset"], self.rows[0].offset)
        near = known.filter(pc.and_(earlier, _is_within(known, self.first, self.until)))
        if near.num_rows > _COPIES:
            return None
        between = _PlacedRow.read(near)
        said: dict[Order, set[Said]] = {}
        for row in self.rows:
            said.setdefault(row.order, set()).add(row.said)
        agree = all(
            row.order == self.until if row.order not in said else _agrees(row, said[row.order])
            for row in between
        )
        return between if agree else None


def _agrees(row: _PlacedRow, said: Set[Said]) -> bool:
    """Return whether *row* equals *said* at its position, or both are halves of a changed key."""
    return row.said in said or {row.said[0], *(one[0] for one in said)} == _HALVES


def _runs(rows: pa.Table, strange: frozenset[int]) -> Iterator[_StrangeRun]:
    """Yield each run in *rows*, of one partition, by offset; none if there are too many."""
    sorting, begins, ends = _run_bounds(rows, strange)
    if len(begins) > _RUNS:
        return
    ends = ends[ends < rows.num_rows]  # the first row behind each run
    behind = _PlacedRow.read(rows.take(pa.array(sorting[ends])))
    for begin, end, row in zip(begins.tolist(), ends.tolist(), behind, strict=False):
        if end - begin <= _COPIES:
            own = rows.take(pa.array(sorting[begin:end]))
            yield _StrangeRun(tuple(_PlacedRow.read(own)), row)


def _run_bounds(rows: pa.Table, strange: frozenset[int]) -> tuple[_Indexes, _Indexes, _Indexes]:
    """Return the indexes that sort *rows* by offset, and where each run begins and ends in them.

    The ends are exclusive.
    """
    offsets = np.asarray(rows["offset"])
    sorting = np.argsort(offsets)
    odd = np.isin(offsets[sorting], np.array(sorted(strange), np.int64))
    begins = np.flatnonzero(odd & ~np.concatenate([[False], odd[:-1]]))
    ends = np.flatnonzero(odd & ~np.concatenate([odd[1:], [False]])) + 1
    return sorting, begins, ends


def _bound_met(rows: pa.Table, strange: frozenset[int]) -> str:
    """Return why a partition has too many *strange* rows to explain them; else empty."""
    _, begins, ends = _run_bounds(rows, strange)
    if len(begins) > _RUNS:
        return f"{len(begins):,} runs of such rows in one batch are more than {_RUNS:,}"
    longest = int(np.max(ends - begins, initial=0))
    return f"a run of {longest:,} such rows is more than {_COPIES:,}" if longest > _COPIES else ""


def _is_within(rows: pa.Table, first: Order, last: Order) -> pa.ChunkedArray:
    """Return whether the order of each of *rows* is in ``[first, last]``."""
    return pc.and_(_reaches(rows, first, pc.greater), _reaches(rows, last, pc.less))


def _reaches(rows: pa.Table, order: Order, beyond: Callable[..., Any]) -> Any:
    """Return whether the order of each of *rows* is *order*, or *beyond* it."""
    (*names, name), (*parts, part) = ORDER_TYPE.names, order.parts
    column = _part(rows["order"], name)
    found = pc.or_(beyond(column, part), pc.equal(column, part))
    for name, part in zip(reversed(names), reversed(parts), strict=True):
        column = _part(rows["order"], name)
        found = pc.or_(beyond(column, part), pc.and_(pc.equal(column, part), found))
    return found


def sent_again(
    rows: pa.Table, checkpoint: Checkpoint, epochs: Mapping[str, Epoch]
) -> tuple[Transactions, ...]:
    """Return what to read from the change log for :func:`restore_orders`; empty if nothing is old.

    *rows* are the batch's, with ``COLUMNS``. *checkpoint* is that before it, *epochs* those now.
    With GTIDs, only transactions that the old server had executed can have landed.
    """
    return tuple(
        asked
        for source in sorted(find_resending(checkpoint, epochs))
        if (asked := _asked(source, rows, checkpoint, epochs[source])).ids
    )


def restore_orders(
    rows: pa.Table, landed: pa.Table, starts: Mapping[TopicPartition, int]
) -> pa.Table:
    """Give redelivered *rows* the order that the change log has for them.

    *rows* keep their columns and their sequence. *landed* are the rows found for
    :func:`sent_again`. *starts* is the first offset of the newest epoch in each partition. Rows
    landed from there on were redelivered, too. They count where a transaction holds several equal
    rows. Rows without a transaction id are left as they are.
    """
    ids = pc.unique(_part(landed["tx"], "id")).drop_null()
    again: dict[Said, set[Number]] = {}
    places: dict[Said, set[Order]] = {}
    for row in _named(landed, ids):
        places.setdefault(row.said, set()).add(row.order)
        if row.offset >= starts.get(row.partition, 0):
            again.setdefault(row.said, set()).add(row.number)
    sent = list(_named(rows, ids))
    for row in sent:
        again.setdefault(row.said, set()).add(row.number)
    times = {said: sorted(numbers) for said, numbers in again.items()}
    taken = {said: sorted(orders) for said, orders in places.items()}
    found: dict[int, Order] = {}
    for row in sent:
        time = times[row.said].index(row.number)
        if time < len(taken.get(row.said, ())):
            found[row.index] = taken[row.said][time]
    return _with_orders(rows, found)


Number = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _SentRow:
    """A row of a transaction; ``number`` distinguishes its events, and rises."""

    said: Said
    order: Order
    number: Number
    offset: int
    partition: TopicPartition
    index: int


def _named(rows: pa.Table, ids: pa.Array) -> Iterator[_SentRow]:
    """Yield the rows of these transactions that have an order; they are few, so one by one."""
    asked = pc.and_(pc.is_valid(rows["order"]), pc.is_in(_part(rows["tx"], "id"), ids))
    named, index = rows.filter(asked), _count(rows).filter(asked)
    tx = [_part(named["tx"], name).to_pylist() for name in ("total_order", "id")]
    columns = (*(named[name].to_pylist() for name in ("topic", "partition", "offset", "order")),)
    said = zip(*(named[name].to_pylist() for name in _SAID), strict=True)
    for at, topic, partition, offset, order, source, number, name, what in zip(
        index.to_pylist(), *columns, named["source"].to_pylist(), *tx, said, strict=True
    ):
        place = Order(**order)
        numbered = (place.pos, place.row) if number is None else (number,)
        yield _SentRow(
            (source, name, *what), place, numbered, offset, TopicPartition(topic, partition), at
        )


def _count(rows: pa.Table) -> pa.Array:
    return pa.array(np.arange(rows.num_rows))


def _with_orders(rows: pa.Table, found: Mapping[int, Order]) -> pa.Table:
    """Return *rows* with the orders of *found*; its keys are indexes and rise."""
    order = rows["order"].combine_chunks()
    other = np.zeros(rows.num_rows, bool)
    other[list(found)] = True
    parts = [
        pc.replace_with_mask(
            _part(order, name),
            pa.array(other),
            pa.array([getattr(place, name) for place in found.values()], pa.int64()),
        )
        for name in ORDER_TYPE.names
    ]
    made = pa.StructArray.from_arrays(parts, fields=list(ORDER_TYPE), mask=pc.is_null(order))
    at = rows.schema.get_field_index("order")
    return rows.set_column(at, rows.schema.field("order"), made)


def _asked(source: str, rows: pa.Table, checkpoint: Checkpoint, epoch: Epoch) -> Transactions:
    own = pc.and_(pc.equal(rows["source"], source), pc.is_valid(rows["order"]))
    every = pc.unique(_part(rows["tx"].filter(own), "id").drop_null()).to_pylist()
    ids = tuple(
        sorted(name for name in every if epoch.before is None or may_contain(epoch.before, name))
    )
    moved = checkpoint.epochs.get(source, epoch).number != epoch.number
    passed = checkpoint.acknowledged.get(source) if moved else epoch.passed
    if passed is None or any(may_contain(passed.position, name) for name in ids):
        return Transactions(source, ids, None)
    return Transactions(source, ids, Order(epoch.number - 1, *locate_position(passed.position)))


def _are_low(
    rows: pa.Table, back: Mapping[TopicPartition, tuple[int, ...]]
) -> npt.NDArray[np.bool_]:
    named = [(tp, offset) for tp, low in back.items() for offset in low]
    columns = (
        [tp.topic for tp, _ in named],
        [tp.partition for tp, _ in named],
        [offset for _, offset in named],
    )
    types = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()}
    wanted = pa.table(columns, schema=pa.schema(types))
    there = rows.select(list(types)).cast(wanted.schema).append_column("index", _count(rows))
    found = there.join(wanted, keys=list(types), join_type="left semi")
    low = np.zeros(rows.num_rows, bool)
    low[np.asarray(found["index"])] = True
    return low


def _near(source: str, suspects: pa.Table) -> Near:
    topics = tuple(sorted(pc.unique(suspects["topic"]).to_pylist()))
    logs, places = (np.asarray(_part(suspects["order"], name)) for name in ("log", "pos"))
    stretches: list[LogStretch] = []
    for at in np.lexsort((places, logs)).tolist():
        log, place = int(logs[at]), int(places[at])
        last = stretches[-1] if stretches else None
        if last is not None and last.log == log and place - last.last <= _FAR:
            stretches[-1] = LogStretch(log, last.first, place)
        else:
            stretches.append(LogStretch(log, place, place))
    return Near(source, topics, tuple(stretches))


def _unequal(suspects: pa.Table, known: pa.Table) -> pa.Table:
    """Return topic, partition and offset of suspects that equal none of the *known* rows."""
    flat = _flat(suspects)
    for name in ("topic", "partition", "offset"):
        flat = flat.append_column(name, suspects[name])
    return flat.join(known, keys=list(known.column_names), join_type="left anti")


def _flat(rows: pa.Table) -> pa.Table:
    """Return the columns that are compared: content, and position without the epoch in question.

    A join does not match null with null, so a flag column says whether a value is null.
    """
    columns = {name: _part(rows["order"], name) for name in LOG_PARTS}
    columns["op"] = rows["op"].cast(pa.string())
    for name in ("key", "before", "after"):
        text = rows[name].cast(pa.string())
        columns[f"says_{name}"] = pc.is_valid(text)
        columns[f"said_{name}"] = pc.fill_null(text, "")
    return pa.table(columns)


def _among(values: pa.ChunkedArray, allowed: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.is_in(values, value_set=pc.unique(allowed))


def _part(values: Any, name: str) -> Any:
    return pc.struct_field(values, name)
