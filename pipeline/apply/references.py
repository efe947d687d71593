"""Do these values stand in another table?  True, false, or null where nobody knows yet.

The other's rows are those of its mirror, and what has landed of it that its mirror lacks: whose
turn comes first is no matter.  That a value is not there is known only once everything has landed
that the source committed before the row that names it, in which case a later parent would be one
that the source's own constraint did not see.  A parent that was deleted after the row came was
there for it.  A TRUNCATE of the other table, and what a new base leaves out, counts once its
mirror has it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.apply.adoption import Adoption
from pipeline.apply.fold import ROW_OPS
from pipeline.apply.provenance import Integers, Mask, Owned, above, plain, rank
from pipeline.apply.validation import Search, sought
from pipeline.changelog.scan import Part, scan
from pipeline.delta.store import open_store
from pipeline.errors import HeldError
from pipeline.invariants.alike import numbered
from pipeline.model import Op, Table
from pipeline.schema.decode import typed
from pipeline.schema.model import Column, arrow_type

S = TypeVar("S")  # a mirror as of one version, as its format tells it

Searches = Callable[[Any, Adoption], Search]
"""A mirror as of one version, and what counts for rows of others -> how values are found in it."""

_READ = ("table", "batch", "source", "before", "after", "order", "origin")


@dataclass(frozen=True, slots=True)
class ReferredTable(Generic[S]):
    """What a turn is told of another table, whose mirror is applied through batch ``applied``.

    ``files`` of the change log at ``changes`` are all that are kept.  ``reached``: source -> below
    which epoch, log and pos everything is landed.  ``whole`` is false where rows of it may be
    missing: then nothing is known to be absent.  ``snapshot`` is None where it has no mirror yet.
    """

    table: Table
    columns: tuple[Column, ...]
    snapshot: S | None
    applied: int
    changes: str
    files: tuple[Part, ...]
    reached: Mapping[str, tuple[int, int, int]]
    whole: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Movements:
    """What the change log tells of values: ``of`` which, and whether they came or went.

    ``rank`` has a line for each of epoch, log, pos, row and origin.
    """

    values: pa.Table
    came: Mask
    source: pa.Array
    rank: Integers


def standing(
    others: Sequence[ReferredTable[Any]],
    searches: Searches | None,
    name: str,
    values: pa.Table,
    owners: Owned,
) -> pa.BooleanArray:
    """Of each row of *values*, owned by *owners*, whether table *name* has them.

    Raises:
        HeldError: ``invariant``, it cannot be asked; or a file cannot be read.
    """
    other = next((one for one in others if one.table.name == name), None)
    if searches is None or other is None:
        detail = f"a mirror that Spark writes is not compared with another table ({name})"
        advice = "take that invariant out of `invariants` and restart the service"
        raise HeldError("invariant", f"{detail}; {advice}")
    if other.snapshot is None or not other.columns:
        nobody_knows = pa.nulls(len(values), pa.bool_())
        return pc.if_else(_all_there(values), nobody_knows, True)
    there = _all_there(values)
    wanted = _fitting(other, values.filter(there))
    rows = np.flatnonzero(there.to_numpy(zero_copy_only=False))
    found = _found(other, searches, wanted, owners.take(rows))
    return pc.replace_with_mask(pa.array([True] * len(values), pa.bool_()), there, found)


def _all_there(values: pa.Table) -> pa.BooleanArray:
    found = pa.array([True] * len(values), pa.bool_())
    for column in values.columns:
        found = pc.and_(found, column.is_valid().combine_chunks())
    return found


def _fitting(other: ReferredTable[Any], values: pa.Table) -> pa.Table:
    """The values in the types of the columns that they are to stand in."""
    made = {}
    for name in values.column_names:
        column = next((one for one in other.columns if one.name == name), None)
        if column is None:
            known = ", ".join(one.name for one in other.columns)
            detail = f"{other.table.name} has no column {name!r}, of which an invariant speaks"
            raise HeldError("invariant", f"{detail}; it has {known}; {_CORRECT}")
        kind, own = arrow_type(column), values[name].type
        alike = own.equals(kind) or (pa.types.is_integer(own) and pa.types.is_integer(kind))
        try:
            made[name] = values[name].cast(kind if alike else own)
        except pa.ArrowInvalid:
            alike = False
        if not alike:
            detail = f"values of type {own} are not all of {kind}, as {other.table.name}.{name} is"
            raise HeldError("invariant", f"{detail}; {_CORRECT}")
    return pa.table(made)


_CORRECT = "correct it under `invariants` and restart the service"


def _found(
    other: ReferredTable[Any], searches: Searches, wanted: pa.Table, owners: Owned
) -> pa.BooleanArray:
    if not len(wanted):
        return pa.array([], pa.bool_())
    fresh = [part for part in other.files if part.high > other.applied]
    told = _told(other, fresh, wanted, ROW_OPS, after=other.applied)
    came, went = _newest(wanted, told)
    held = _in_mirror(other, searches, wanted)
    absent = ~came & ~held
    unknown = held & went & ~came  # its merge decides
    if absent.any():
        rows = np.flatnonzero(absent)
        some, whose = wanted.take(pa.array(rows)), owners.take(rows)
        absent[rows[_was_there(other, some, whose)]] = False
        unknown |= absent & ~_is_known(other, owners)
    return pa.array(~absent, pa.bool_(), mask=unknown)


def _is_known(other: ReferredTable[Any], owners: Owned) -> Mask:
    """Where all that could have been there before these rows is landed."""
    sources = {shard.source for shard in other.table.shards}
    if not other.whole or len(sources) != 1:
        return np.zeros(len(owners.source), np.bool_)
    (source,) = sources
    place = other.reached.get(source, (-1, -1, -1))
    own: Mask = pc.fill_null(pc.equal(owners.source, source), False).to_numpy(zero_copy_only=False)
    return own & above(np.array(place, np.int64)[:, None], owners.rank[:3])


def _in_mirror(other: ReferredTable[Any], searches: Searches, wanted: pa.Table) -> Mask:
    numbers = numbered(wanted)
    _, first = np.unique(numbers, return_index=True)
    search = searches(other.snapshot, Adoption.of(other.table))
    there = np.zeros(len(first), np.bool_)
    there[sought(search, wanted.take(pa.array(first))).of] = True
    found: Mask = there[numbers]
    return found


def _was_there(other: ReferredTable[Any], wanted: pa.Table, owners: Owned) -> Mask:
    """Where the values went later than their row came: by the log of the same source."""
    told = _told(other, other.files, wanted, (Op.UPDATE, Op.DELETE), after=-1)
    numbers = numbered(pa.concat_tables([wanted, told.values]))
    known: dict[tuple[str, int], list[int]] = {}
    for at in np.flatnonzero(~told.came).tolist():
        known.setdefault((told.source[at].as_py(), int(numbers[len(wanted) + at])), []).append(at)
    found = np.zeros(len(wanted), np.bool_)
    for row in range(len(wanted)):
        went = known.get((owners.source[row].as_py(), int(numbers[row])), [])
        found[row] = above(told.rank[:, went], owners.rank[:, [row]]).any()
    return found


def _newest(wanted: pa.Table, told: _Movements) -> tuple[Mask, Mask]:
    """Of which values the newest that is told of a source is that they came, and went."""
    numbers = numbered(pa.concat_tables([wanted, told.values]))
    own, theirs = numbers[: len(wanted)], numbers[len(wanted) :]
    sources = told.source.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    placed = np.lexsort((told.came, *told.rank[::-1], sources, theirs))
    last = np.ones(len(placed), np.bool_)
    last[:-1] = np.diff(theirs[placed]).astype(np.bool_) | np.diff(sources[placed]).astype(np.bool_)
    newest = placed[last]
    states = np.zeros((2, int(numbers.max(initial=-1)) + 1), np.bool_)
    states[told.came[newest].astype(np.int64), theirs[newest]] = True
    return states[1][own], states[0][own]


def _told(
    other: ReferredTable[Any],
    files: Sequence[Part],
    wanted: pa.Table,
    ops: Sequence[Op],
    *,
    after: int,
) -> _Movements:
    """Changes in batches after *after* that brought or took one of the values, or may have."""
    parts = [one for part in files for one in _of_file(other, part, wanted, ops, after)]
    ranks = np.concatenate([np.zeros((5, 0), np.int64), *(part.rank for part in parts)], axis=1)
    return _Movements(
        pa.concat_tables([wanted.slice(0, 0), *(part.values for part in parts)]),
        np.concatenate([np.zeros(0, np.bool_), *(part.came for part in parts)]),
        pa.concat_arrays([pa.array([], pa.string()), *(part.source for part in parts)]),
        ranks,
    )


def _of_file(
    other: ReferredTable[Any], part: Part, wanted: pa.Table, ops: Sequence[Op], after: int
) -> Iterator[_Movements]:
    names, table = wanted.column_names, other.table.name
    among = ("table", (table,))
    rows = scan(open_store(other.changes), (part,), among=among, ops=ops, columns=_READ)
    rows = rows.filter(pc.greater(rows["batch"], after))
    columns = [one for name in names for one in other.columns if one.name == name]
    for text, came in (("before", False), ("after", True)):
        values = typed(plain(rows[text]), columns).rows
        near = _all_there(values)
        for name in names:
            near = pc.and_(near, pc.is_in(values[name], value_set=wanted[name]).combine_chunks())
        own = rows.filter(near)
        source = plain(own["source"]).combine_chunks()
        yield _Movements(values.filter(near), np.full(len(own), came), source, rank(own))
