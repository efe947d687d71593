"""Are columns that rows tell of themselves news?  Not if they are in force already.

A format without schema changes tells them with the first row of each batch that it decodes: landed
each time, they would be many, and say nothing.  What is news can be told only once all that came
together was seen, by order: a partition that is behind, or another task, may tell columns that were
in force between.  Statements tell no number of a schema, and all of them stay.
Cannot see: columns that came back after others of which only a partition that is behind tells, in a
later batch; the next batch of rows tells them again.  Pure.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.checkpoint import ToldSchema
from pipeline.landing.inversions import order_of
from pipeline.model import Op, Order, Shard

T = TypeVar("T")
_SIZE = 16  # bytes of a digest


@dataclass(eq=False, slots=True)
class _Stretch(Generic[T]):
    """The same columns, said again and again: where first, where last, and by which rows.

    No row is there for what was known before.
    """

    digest: str
    first: tuple[Order, T | None]
    last: tuple[Order, T | None]


@dataclass(eq=False)
class ToldSteps(Generic[T]):
    """Columns of shards by order, as far as they change; *known* are those of before.

    *known*: ``source/shard`` -> the newest.
    """

    known: Mapping[str, ToldSchema]
    _steps: dict[str, list[_Stretch[T]]] = field(default_factory=dict)

    def tell(self, name: str, told: ToldSchema, row: T) -> None:
        """Note that *row* tells this of the shard *name*."""
        steps, here = self._of(name), (told.order, row)
        at = bisect_right(steps, told.order, key=lambda one: one.first[0])
        before, after = steps[at - 1] if at else None, steps[at] if at < len(steps) else None
        if before is not None and before.digest == told.digest:
            before.last = max(before.last, here, key=_place)
        elif before is not None and before.last[0] > told.order:  # it comes between
            left = _Stretch(before.digest, before.last, before.last)
            before.last = before.first
            steps[at:at] = [_Stretch(told.digest, here, here), left]
        elif after is not None and after.digest == told.digest:
            after.first = here
        else:
            steps.insert(at, _Stretch(told.digest, here, here))

    def news(self) -> Iterator[T]:
        """Those rows that say something new, shard by shard and by order."""
        for steps in self._steps.values():
            yield from (one.first[1] for one in steps if one.first[1] is not None)

    def ends(self) -> Iterator[T]:
        """Those of ``news``, and where each was said last: others may tell what was between."""
        for steps in self._steps.values():
            for one in steps:
                both = (one.first,) if one.first[0] == one.last[0] else (one.first, one.last)
                yield from (row for _, row in both if row is not None)

    def _of(self, name: str) -> list[_Stretch[T]]:
        if name not in self._steps:
            self._steps[name] = []
            if (one := self.known.get(name)) is not None:
                self._steps[name].append(_Stretch(one.digest, (one.order, None), (one.order, None)))
        return self._steps[name]


@dataclass(eq=False)
class Unrepeated:
    """What one task reads of ``CHANGES``, without told columns that are no news.

    *known* as in :class:`ToldSteps`: nothing, where other tasks read the same tables.  What they
    tell together has to be judged again then, and what each said last counts, too.
    """

    known: Mapping[str, ToldSchema]
    _told: ToldSteps[pa.RecordBatch] = field(init=False)

    def __post_init__(self) -> None:
        """Begin with what is known."""
        self._told = ToldSteps(self.known)

    def among(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The *batches*, and in the end the news of them all."""
        yield from (rows for rows in map(self._parted, batches) if len(rows))
        if news := list(self._told.news() if self.known else self._told.ends()):
            yield pa.Table.from_batches(news).combine_chunks().to_batches()[0]

    def _parted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """*rows* without what they tell of columns, which is noted."""
        told = pc.and_(pc.equal(rows["op"], str(Op.DDL)), pc.is_valid(rows["schema_id"]))
        if not told.true_count:
            return rows
        for at in np.flatnonzero(told.to_numpy(zero_copy_only=False)).tolist():
            alone = rows.take(pa.array([at]))  # a slice would keep all the others
            row = alone.select(["source", "shard", "order", "after"]).to_pylist()[0]
            one = told_schema(Order(**row["order"]), row["after"])
            self._told.tell(str(Shard(row["source"], row["shard"])), one, alone)
        return rows.filter(pc.invert(told))


def unrepeated(
    statements: Iterable[Mapping[str, Any]], known: Mapping[str, ToldSchema]
) -> list[Mapping[str, Any]]:
    """*statements* (of ``SLIM``) of all tasks of a batch, without told columns that are no news.

    By order: where they came back is known only while all that was said before it is.
    """
    steps: ToldSteps[Mapping[str, Any]] = ToldSteps(known)
    every = list(statements)
    for row in sorted(filter(_tells, every), key=order_of):
        steps.tell(_name(row), _schema(row), row)
    return [*(row for row in every if not _tells(row)), *steps.news()]


def newest(statements: Iterable[Mapping[str, Any]]) -> dict[str, ToldSchema]:
    """``source/shard`` -> the newest schema that rows told, of *statements* (of ``SLIM``)."""
    found: dict[str, ToldSchema] = {}
    for row in statements:
        if _tells(row):
            _learn(found, _name(row), _schema(row))
    return found


def told_schema(order: Order, payload: str) -> ToldSchema:
    """What is known of columns that a *payload* tells from *order* on."""
    return ToldSchema(order, _digest(payload))


def after(known: Mapping[str, ToldSchema], told: Mapping[str, ToldSchema]) -> dict[str, ToldSchema]:
    """The newest of both."""
    found = dict(known)
    for name, one in told.items():
        _learn(found, name, one)
    return found


def _learn(known: dict[str, ToldSchema], name: str, one: ToldSchema) -> None:
    before = known.get(name)
    if before is None or one.order >= before.order:
        known[name] = one


def _place(one: tuple[Order, object]) -> Order:
    return one[0]


def _tells(row: Mapping[str, Any]) -> bool:
    return row["schema_id"] is not None and row["log"] is not None


def _name(row: Mapping[str, Any]) -> str:
    return str(Shard(row["source"], row["shard"]))


def _schema(row: Mapping[str, Any]) -> ToldSchema:
    return told_schema(order_of(row), row["note"])


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=_SIZE).hexdigest()
