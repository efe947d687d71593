"""Many changes of a key become one: the newest by ``(order, origin)``; how many is counted; pure.

Which op it has does not matter: the newest of a deleted key is its delete.  Only where keys are
unique across shards does an upsert of one shard outlive the newer delete of another, because a
delete speaks for its own shard.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.apply.provenance import Integers, Mask, plain, rank
from pipeline.errors import HeldError
from pipeline.model import Op, Origin

ROW_OPS = (Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ)
_PLACE = ("key", "source", "shard", "order")


@dataclass(frozen=True, slots=True, eq=False)
class Folded:
    """The newest change of each key, and what became of the others.

    ``rows`` has the columns that came in, one row for each key.  ``total`` counts all changes,
    ``distinct`` repetitions of one change once.  ``conflicts`` (key, source, shard, order) are
    places under which LIVE changes of one key differ: the log contradicts itself.  ``crossed`` is a
    key with standing upserts from two sources, whose orders cannot be compared.  ``left`` are the
    newest deletes of a key's other shards (``of``: row of ``rows``, and their own source, shard,
    order, origin): they still speak for rows of those shards.
    """

    rows: pa.Table
    total: int
    distinct: int
    conflicts: pa.Table
    crossed: str | None
    left: pa.Table


def fold(changes: pa.Table, *, unique: bool) -> Folded:
    """Keep the newest change of each key.

    In: change-log rows of one table with ops of ``ROW_OPS``, in any order, repeated or not: key,
    source, shard, op, before, after, batch, order, origin, and what else is to be kept.
    With *unique*, keys span shards.

    Raises:
        HeldError: a change has no key or no order.
    """
    places = _places(changes)
    sort = np.lexsort([*_worth_sorting(places.batch, *places.rank[::-1]), places.group])
    alike = _alike(places, sort)
    repeats, conflicts = _repeats(changes, places, sort[_in_runs(alike)], alike)
    group = places.group[sort]
    newest = sort[_ends(group)]
    kept = _across(places, newest, unique=unique)
    standing = newest[places.upsert[newest]] if unique else newest[:0]
    crossed = _crossed(places, standing)
    mask = np.zeros(len(changes), np.bool_)
    mask[kept] = True
    kept = np.sort(kept)
    return Folded(
        rows=changes.filter(pa.array(mask)),
        total=len(changes),
        distinct=len(changes) - repeats,
        conflicts=changes.select(_PLACE).take(pa.array(conflicts)),
        crossed=None if crossed is None else changes["key"][crossed].as_py(),
        left=_left(changes, places, newest, kept),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Places:
    """What the changes are sorted by: ``group`` numbers pairs of a key and a shard."""

    key: Integers
    source: Integers
    group: Integers
    rank: Integers
    batch: Integers
    upsert: Mask


def _places(changes: pa.Table) -> _Places:
    if changes["key"].null_count:
        shard = changes.filter(changes["key"].is_null())["shard"][0]
        detail = f"a change of {shard} came without a key, so rows cannot be told apart"
        advice = "name its columns in `message.key.columns`, as under `key:`, and take a new base"
        raise HeldError("no_key", f"{detail}; {advice}")
    key, source, shard = (_codes(plain(changes[name])) for name in ("key", "source", "shard"))
    owner = source * (shard.max(initial=0) + 1) + shard
    op = plain(changes["op"])
    return _Places(
        key=key,
        source=source,
        group=key * (owner.max(initial=0) + 1) + owner,
        rank=rank(changes),
        batch=changes["batch"].to_numpy(),
        upsert=pc.not_equal(op, Op.DELETE).to_numpy(),
    )


def _codes(column: pa.ChunkedArray) -> Integers:
    """A number for each distinct value; 0 is null's."""
    one = column.cast(pa.large_string()).combine_chunks()  # together they may pass 2 GiB
    codes: Integers = pc.fill_null(one.dictionary_encode().indices, -1).to_numpy()
    return codes.astype(np.int64) + 1


def _worth_sorting(*lines: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    return [line for line in lines if len(line) and (line != line[0]).any()]


def _ends(line: Integers) -> Mask:
    """The last of each run of equal numbers."""
    return np.append(line[1:] != line[:-1], True)[: len(line)]


def _alike(places: _Places, sort: Integers) -> Mask:
    """Which rows, in the order of *sort*, have the key, shard and rank of the one before."""
    alike = np.ones(max(len(sort) - 1, 0), np.bool_)
    for line in (places.group, *_worth_sorting(*places.rank)):
        line_sorted = line[sort]
        alike &= line_sorted[1:] == line_sorted[:-1]
    return np.append(False, alike)[: len(sort)]


def _in_runs(alike: Mask) -> Mask:
    """All rows of runs, the first of each too."""
    found: Mask = alike | np.append(alike[1:], False)[: len(alike)]
    return found


def _repeats(
    changes: pa.Table, places: _Places, rows: Integers, alike: Mask
) -> tuple[int, Integers]:
    """How many of *rows* say again what another said, and one row of each LIVE place in conflict.

    Only *rows*, which share their place with others, are compared by their texts.
    """
    if not len(rows):
        return 0, rows
    run = np.cumsum(~alike)[_in_runs(alike)]
    mask = np.zeros(len(changes), np.bool_)
    mask[rows] = True
    told = [_spread(changes[name], mask)[rows] for name in ("op", "before", "after")]
    by_text = np.lexsort([*_worth_sorting(*told), run])
    run, rows = run[by_text], rows[by_text]
    again = run[1:] == run[:-1]
    differ = again.copy()
    for line in told:
        again &= line[by_text][1:] == line[by_text][:-1]
    differ &= ~again
    live = places.rank[-1][rows[1:]] == Origin.LIVE
    disputed = np.flatnonzero(differ & live) + 1
    _, first = np.unique(run[disputed], return_index=True)
    return int(again.sum()), rows[disputed[first]]


def _spread(column: pa.ChunkedArray, mask: Mask) -> Integers:
    """Codes of the values under *mask*, at their places; the rest is of no meaning."""
    codes = np.zeros(len(mask), np.int64)
    codes[mask] = _codes(column.filter(pa.array(mask)))
    return codes


def _across(places: _Places, newest: Integers, *, unique: bool) -> Integers:
    """Of the newest of each shard the newest of each key; upserts before deletes if *unique*."""
    key = places.key[newest]
    if (key[1:] != key[:-1]).all():
        return newest
    lines = _worth_sorting(*places.rank[:, newest][::-1])
    if unique:
        lines.append(places.upsert[newest].astype(np.int64))
    by_key = np.lexsort([*lines, key])
    key = key[by_key]
    return newest[by_key][_ends(key)]


def _crossed(places: _Places, standing: Integers) -> int | None:
    """A row of a key whose *standing* upserts come from two sources; None if there is none."""
    key, source = places.key[standing], places.source[standing]
    sort = np.lexsort([source, key])
    key, source = key[sort], source[sort]
    crossing = np.flatnonzero((key[1:] == key[:-1]) & (source[1:] != source[:-1]))
    return int(standing[sort][crossing[0]]) if len(crossing) else None


def _left(changes: pa.Table, places: _Places, newest: Integers, kept: Integers) -> pa.Table:
    """Newest deletes of other shards than that of the change that stands for their key."""
    of = np.full(len(changes) + 1, -1, np.int64)
    of[places.key[kept]] = np.arange(len(kept))
    rows = newest[~places.upsert[newest] & ~np.isin(newest, kept)]
    left = changes.select(["source", "shard", "order", "origin"]).take(pa.array(rows))
    return left.append_column("of", pa.array(of[places.key[rows]]))
