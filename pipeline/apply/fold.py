"""Folds the changes of each key to the newest one by `(order, origin)`, and counts the rest.

The operation does not matter: the newest change of a deleted key is its delete. The exception
is keys that are unique across shards. There an upsert of one shard outlives a newer delete of
another shard, because a delete acts only on rows of its own shard.

With the column `COLUMN_VERSIONS` each column has its own version. A column has the version of
its row, except those listed with a lower one. The value in the highest version wins, however
late it arrives in a change of a higher version. Versions of two epochs are not compared; the
older epoch is lower. Without that column, each column has the version of its change, so the
newest wins.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.apply.row_metadata import Integers, Mask, flat_column, rank_rows
from pipeline.errors import HeldError
from pipeline.model import Op, Origin

ROW_OPS = (Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ)
_PLACE = ("key", "source", "shard", "order")


@dataclass(frozen=True, slots=True, eq=False)
class Folded:
    """The newest change of each key, and counts of the others.

    ``rows`` has the input's columns, one row per key. ``total`` counts all changes, ``distinct``
    counts repetitions of one change once. ``conflicts`` (key, source, shard, order) are orders at
    which LIVE changes of one key differ, so the log contradicts itself. ``crossed`` is a key with
    upserts from two sources, whose orders cannot be compared. ``left`` are the newest deletes of a
    key by its other shards, which still act on rows of those shards. Its columns are ``of`` (row of
    ``rows``), source, shard, order and origin.
    """

    rows: pa.Table
    total: int
    distinct: int
    conflicts: pa.Table
    crossed: str | None
    left: pa.Table


def fold_changes(changes: pa.Table) -> Folded:
    """Keep the newest change of each key.

    In: change-log rows of one table with ops of ``ROW_OPS``, in any order, repeated or not.
    Columns: key, source, shard, op, before, after, batch, order, origin, and others to be kept.

    Where keys do not span shards, each key contains its shard, so no two shards share a key.

    Raises:
        HeldError: a change has no key or no order.
    """
    places = _places(changes)
    sort = np.lexsort([*_worth_sorting(places.batch, *places.rank[::-1]), places.group])
    repeats, conflicts = _repeats(changes, places, sort)
    newest = sort[_ends(places.group[sort])]
    kept = np.sort(_across(places, newest))
    crossed = _find_crossed(places, newest[places.upsert[newest]])
    mask = np.zeros(len(changes), np.bool_)
    mask[kept] = True
    return Folded(
        rows=changes.filter(pa.array(mask)),
        total=len(changes),
        distinct=len(changes) - repeats,
        conflicts=changes.select(_PLACE).take(pa.array(conflicts)),
        crossed=None if crossed is None else changes["key"][crossed].as_py(),
        left=_find_left(changes, places, newest, kept),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Places:
    """The sort columns of the changes: ``group`` numbers the triples of key, source and shard."""

    key: Integers
    source: Integers
    group: Integers
    rank: Integers
    batch: Integers
    upsert: Mask


def _places(changes: pa.Table) -> _Places:
    if changes["key"].null_count:
        shard = changes.filter(changes["key"].is_null())["shard"][0]
        detail = f"a change of {shard} has no key, so its row is unknown"
        advice = "name its columns in `message.key.columns`, as under `key:`, and take a new base"
        raise HeldError("no_key", f"{detail}; {advice}")
    owners = [_encoded(flat_column(changes[name])) for name in ("key", "source", "shard")]
    key, source, shard = map(_codes, owners)
    op = flat_column(changes["op"])
    return _Places(
        key=key,
        source=source,
        group=np.ravel_multi_index((key, source, shard), [len(one.dictionary) for one in owners]),
        rank=rank_rows(changes),
        batch=changes["batch"].to_numpy(),
        upsert=pc.not_equal(op, Op.DELETE).to_numpy(),
    )


def _encoded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    one = column.cast(pa.large_string()).combine_chunks()  # together they may exceed 2 GiB
    return one.dictionary_encode("encode")


def _codes(column: pa.DictionaryArray) -> Integers:
    """A number from 0 for each distinct value, and for null."""
    codes: Integers = column.indices.to_numpy().astype(np.int64)
    return codes


def _worth_sorting(*lines: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    return [line for line in lines if np.diff(line).any()]


def _ends(line: Integers) -> Mask:
    """The last of each run of equal numbers."""
    return np.append(line[1:] != line[:-1], True)[: len(line)]


def _repeats(changes: pa.Table, places: _Places, sort: Integers) -> tuple[int, Integers]:
    """Count the changes that repeat another, and return one row of each LIVE position in conflict.

    Texts are compared only among changes at the same position.
    """
    alike = _is_repeated(places, sort)
    shared = np.zeros(len(sort), np.bool_)
    shared[1:] |= alike
    shared[:-1] |= alike
    rows, run = sort[shared], np.append(0, np.cumsum(~alike))[shared]
    mask = np.zeros(len(changes), np.bool_)
    mask[rows] = True
    contents = [_spread(changes[name], mask)[rows] for name in ("op", "before", "after")]
    by_text = np.lexsort([*_worth_sorting(*contents), run])
    run, rows = run[by_text], rows[by_text]
    again = run[1:] == run[:-1]
    differ = again.copy()
    for line in contents:
        again &= line[by_text][1:] == line[by_text][:-1]
    differ &= ~again
    live = places.rank[-1][rows[1:]] == Origin.LIVE
    disputed = np.flatnonzero(differ & live) + 1
    _, first = np.unique(run[disputed], return_index=True)
    return int(again.sum()), rows[disputed[first]]


def _is_repeated(places: _Places, sort: Integers) -> Mask:
    """Which neighbours in *sort* have the same key, shard and rank; one item fewer than rows."""
    alike = np.ones(max(len(sort) - 1, 0), np.bool_)
    for line in (places.group, *_worth_sorting(*places.rank)):
        line_sorted = line[sort]
        alike &= line_sorted[1:] == line_sorted[:-1]
    return alike


def _spread(column: pa.ChunkedArray, mask: Mask) -> Integers:
    """Codes of the values under *mask*, at their rows; other items have no meaning."""
    codes = np.zeros(len(mask), np.int64)
    codes[mask] = _codes(_encoded(column.filter(pa.array(mask))))
    return codes


def _across(places: _Places, newest: Integers) -> Integers:
    """The newest change of each key among the newest of each shard; upserts win over deletes."""
    key = places.key[newest]
    if (key[1:] != key[:-1]).all():
        return newest
    lines = _worth_sorting(*places.rank[:, newest][::-1])
    by_key = np.lexsort([*lines, places.upsert[newest], key])
    return newest[by_key][_ends(key[by_key])]


def _find_crossed(places: _Places, standing: Integers) -> int | None:
    """Return a row of a key whose *standing* upserts come from two sources, else None.

    *standing* is sorted by key and source.
    """
    key, source = places.key[standing], places.source[standing]
    crossing = np.flatnonzero((key[1:] == key[:-1]) & (source[1:] != source[:-1]))
    return int(standing[crossing[0]]) if len(crossing) else None


def _find_left(changes: pa.Table, places: _Places, newest: Integers, kept: Integers) -> pa.Table:
    """Return the newest deletes of each key by shards other than that of its newest change."""
    of = np.empty(len(changes), np.int64)
    of[places.key[kept]] = np.arange(len(kept))
    rows = newest[~places.upsert[newest] & ~np.isin(newest, kept)]
    left = changes.select(["source", "shard", "order", "origin"]).take(pa.array(rows))
    return left.append_column("of", pa.array(of[places.key[rows]]))


Place = tuple[int, int]
"""Epoch and version; compared left to right."""

OLDER = -1  # the version of columns of an older epoch


@dataclass(frozen=True, slots=True)
class ColumnPlaces:
    """Versions of the columns of one row: ``own``, except for ``late`` columns of its epoch."""

    own: Place
    late: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of_row(cls, rank: tuple[int, ...], versions: str | bytes | None) -> "ColumnPlaces":
        """Return the column versions of a row of that *rank* (epoch, log, pos, ...).

        Raises:
            HeldError: ``misread``; the versions are unreadable.
        """
        epoch, _, version, *_ = rank
        try:
            late = _VERSIONS.decode(versions or b"null") or {}
        except (msgspec.MsgspecError, RecursionError) as error:
            raise HeldError("misread", f"a row has unreadable column versions: {error}") from error
        return cls((epoch, version), late)

    def of(self, name: str) -> Place:
        """Return the version of that column."""
        return self.own[0], self.late.get(name, self.own[1])


def encode_versions(own: Place, places: Mapping[str, Place]) -> bytes:
    """Return the column-version text of a row at *own* with columns at *places*: JSON, or null."""
    late = {
        name: place[1] if place[0] == own[0] else OLDER
        for name, place in places.items()
        if place < own
    }
    return msgspec.json.encode(dict(sorted(late.items()))) if late else b"null"


_VERSIONS = msgspec.json.Decoder(dict[str, int] | None)
