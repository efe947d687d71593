"""Rows sent again: below what was landed before, or by a new server under other positions?

Sent again means equal, by order and by op, key, before and after, to a row that is landed already
or stands higher in the batch; the transaction block and time stamps of a second sending differ, so
they are not compared.  Everything else must be explained by a new log.

After a fail-over the same transactions stand at other places in the new server's log, so their
orders do not say that they are old; their ids (GTIDs) and what they say do.  Such a row takes the
order it was landed with, and is a repetition from then on.

What is asked of the change log follows the rows in question, never the log.  Pure.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.changelog.table import ORDER_TYPE
from pipeline.mark import Epoch, Mark
from pipeline.model import Order, TopicPartition
from pipeline.sources.positions import may_hold, place

COLUMNS = ("source", "topic", "partition", "offset", "order", "op", "key", "before", "after", "tx")
_SAID = ("op", "key", "before", "after")
_FAR = 4 * 2**20  # bytes of a log between two rows that are not looked for together


@dataclass(frozen=True, slots=True)
class LogStretch:
    """Rows of one log with positions from ``first`` to ``last``, both included, of any epoch."""

    log: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Near:
    """Landed rows of these topics of a source that have their order in one of the stretches.

    A reader may return more, so it may take what statistics of its files allow.
    """

    source: str
    topics: tuple[str, ...]
    stretches: tuple[LogStretch, ...]


@dataclass(frozen=True, slots=True)
class Transactions:
    """Landed rows of these transactions of a source, none of an order below ``since``.

    ``since`` is where the log before was acknowledged up to: a collector that goes on where it
    stopped sends nothing older.  None: nobody knows, or it was set back, and all must be looked at.
    """

    source: str
    ids: tuple[str, ...]
    since: Order | None


def unexplained(
    rows: pa.Table,
    back: Mapping[TopicPartition, tuple[int, ...]],
    landed: Callable[[Near], pa.Table],
) -> dict[TopicPartition, int]:
    """Partition -> lowest offset among the *back* rows that equal no row before them.

    *rows* are the batch's rows of the topics of *back*; *landed* reads the change log, once for
    each source that has such rows.  Both have at least ``COLUMNS``.
    """
    ordered = rows.filter(pc.is_valid(rows["order"]))
    low = _are_low(ordered, back)
    suspects, first = ordered.filter(pa.array(low)), ordered.filter(pa.array(~low))
    found: dict[TopicPartition, int] = {}
    for source in pc.unique(suspects["source"]).to_pylist():
        own = suspects.filter(pc.equal(suspects["source"], source))
        log = landed(_near(source, own))
        log = log.filter(pc.and_(pc.is_valid(log["order"]), _among(log["topic"], own["topic"])))
        beside = first.filter(pc.equal(first["source"], source))
        strange = _unequal(own, pa.concat_tables([_flat(log), _flat(beside)]))
        for row in strange.sort_by([("offset", "descending")]).to_pylist():
            found[TopicPartition(row["topic"], row["partition"])] = row["offset"]
    return found


def resending(mark: Mark, epochs: Mapping[str, Epoch]) -> frozenset[str]:
    """Sources whose newest epoch is so new that no heartbeat of its own has landed before."""
    return frozenset(
        source
        for source, epoch in epochs.items()
        if epoch.number > 1 and mark.heartbeats.get(source, -1) <= epoch.heartbeat
    )


def sent_again(rows: pa.Table, mark: Mark, epochs: Mapping[str, Epoch]) -> tuple[Transactions, ...]:
    """What to look for in the change log before :func:`reordered`; empty where nothing can be old.

    *rows* are the batch's, with ``COLUMNS``, *mark* that before it, *epochs* those now.  With
    GTIDs only transactions that the server before had executed can have been landed.
    """
    return tuple(
        asked
        for source in sorted(resending(mark, epochs))
        if (asked := _asked(source, rows, mark, epochs[source])).ids
    )


def reordered(rows: pa.Table, landed: pa.Table, starts: Mapping[TopicPartition, int]) -> pa.Table:
    """Give *rows* of sources that send again the order that the change log holds them with.

    *rows* keep their columns and their places; *landed* are the rows found for
    :func:`sent_again`.  *starts* is the first offset of the newest epoch in each partition: what
    was landed from there on was sent again too, so where a transaction says the same twice, it
    tells which time this is.  Rows without a transaction id are left as they are.
    """
    again: dict[Said, set[int]] = {}
    places: dict[Said, set[Order]] = {}
    for row in _named(landed):
        places.setdefault(row.said, set()).add(row.order)
        if row.offset >= starts.get(row.partition, 0):
            again.setdefault(row.said, set()).add(row.number)
    asked = pc.is_in(_part(rows["tx"], "id"), pc.unique(_part(landed["tx"], "id")))
    sent = list(_named(rows.append_column("index", _count(rows)).filter(asked)))
    for row in sent:
        again.setdefault(row.said, set()).add(row.number)
    times = {said: sorted(numbers) for said, numbers in again.items()}
    taken = {said: sorted(orders) for said, orders in places.items()}
    found: dict[int, Order] = {}
    for row in sent:
        time = times[row.said].index(row.number)
        if time < len(taken.get(row.said, ())):
            found[row.index] = taken[row.said][time]
    return _with_orders(rows, found) if found else rows


Said = tuple[str | None, ...]  # source, transaction, op, key, before, after


@dataclass(frozen=True, slots=True)
class _SentRow:
    """A row of a transaction; ``number`` tells its events apart, rising."""

    said: Said
    order: Order
    number: int
    offset: int
    partition: TopicPartition
    index: int


def _named(rows: pa.Table) -> Iterator[_SentRow]:
    """Rows with a transaction id and an order, one by one: bounded by what was asked."""
    if not rows.num_rows:
        return
    named = rows.filter(pc.and_(pc.is_valid(rows["order"]), pc.is_valid(_part(rows["tx"], "id"))))
    numbers = _part(named["tx"], "total_order").to_pylist()
    said = zip(
        named["source"].to_pylist(),
        _part(named["tx"], "id").to_pylist(),
        *(named[name].to_pylist() for name in _SAID),
        strict=True,
    )
    index = named["index"] if "index" in named.column_names else _count(named)
    columns = (*(named[name].to_pylist() for name in ("topic", "partition", "offset", "order")),)
    for what, number, at, topic, partition, offset, order in zip(
        said, numbers, index.to_pylist(), *columns, strict=True
    ):
        place = Order(**order)
        numbered = number if number is not None else place.pos * _ROWS + place.row
        yield _SentRow(what, place, numbered, offset, TopicPartition(topic, partition), at)


_ROWS = 2**32  # more rows than an event holds


def _count(rows: pa.Table) -> pa.Array:
    return pa.array(np.arange(rows.num_rows))


def _with_orders(rows: pa.Table, found: Mapping[int, Order]) -> pa.Table:
    order = rows["order"].combine_chunks()
    where = np.fromiter(found, np.int64)
    parts = []
    for name in ORDER_TYPE.names:
        part = np.asarray(pc.fill_null(_part(order, name), 0)).copy()
        part[where] = [getattr(place, name) for place in found.values()]
        parts.append(pa.array(part, pa.int64()))
    made = pa.StructArray.from_arrays(parts, fields=list(ORDER_TYPE), mask=pc.is_null(order))
    at = rows.schema.get_field_index("order")
    return rows.set_column(at, rows.schema.field("order"), made)


def _asked(source: str, rows: pa.Table, mark: Mark, epoch: Epoch) -> Transactions:
    own = pc.and_(pc.equal(rows["source"], source), pc.is_valid(rows["order"]))
    every = pc.unique(_part(rows["tx"].filter(own), "id").drop_null()).to_pylist()
    ids = tuple(
        sorted(name for name in every if epoch.before is None or may_hold(epoch.before, name))
    )
    before = mark.epochs.get(source)
    moved = before is not None and before.number != epoch.number
    passed = mark.acknowledged.get(source) if moved else epoch.passed
    if passed is None or any(may_hold(passed.position, name) for name in ids):
        return Transactions(source, ids, None)
    return Transactions(source, ids, Order(epoch.number - 1, *place(passed.position)))


def _are_low(
    rows: pa.Table, back: Mapping[TopicPartition, tuple[int, ...]]
) -> npt.NDArray[np.bool_]:
    named = [(tp.topic, tp.partition, offset) for tp, low in back.items() for offset in low]
    topics, partitions, offsets = zip(*named, strict=True) if named else ((), (), ())
    types = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()}
    wanted = pa.table([topics, partitions, offsets], schema=pa.schema(types))
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
    """Topic, partition and offset of suspects that equal none of the *known* rows."""
    flat = _flat(suspects)
    for name in ("topic", "partition", "offset"):
        flat = flat.append_column(name, suspects[name])
    return flat.join(known, keys=list(known.column_names), join_type="left anti")


def _flat(rows: pa.Table) -> pa.Table:
    """What is compared: the place without its epoch, which is in question, and what is said.

    A join takes no null for equal to a null, so that stands beside.
    """
    columns = {name: pc.fill_null(_part(rows["order"], name), 0) for name in ("log", "pos", "row")}
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
