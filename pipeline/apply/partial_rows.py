"""Completes rows that arrived without some values, from older changes or from the mirror.

A change with `changed` holds only the columns it names. Each other column keeps its value: from
the newest older change in the slice that has it, else from the mirror. A column that the change
holds in a lower version than the row had keeps its value too; see `pipeline.apply.fold`. With
column versions the mirror's value wins if its version is higher.

A row that took another key (a delete and a create at one position) takes its values from the
row under its old key. That row must be older than the change. A missing value never becomes
NULL: the table is held as `partial_row`, and the hold names the columns.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from pipeline.apply import fold
from pipeline.apply.decide import Found
from pipeline.apply.fold import ColumnPlaces, Place
from pipeline.apply.row_metadata import (
    Integers,
    Mask,
    RowOrigins,
    flat_column,
    is_above,
    is_same,
    rank_rows,
    row_origins,
)
from pipeline.errors import HeldError
from pipeline.model import COLUMN_VERSIONS, Op

ReadValues = Callable[[Found, Sequence[str]], pa.Table]
"""Positions of existing rows in the mirror -> these columns of them, in that order."""

PLACE = 3  # parts of a rank that a delete and a create at one position share
_NEEDED = ("key", "source", "shard", "op", "before", "after", "changed", "order", "origin")
_ADVICE = "take a new base of it, or make its source send whole rows"
Rank = tuple[int, ...]
Name = tuple[str, str, str]  # source, shard, key


@dataclass(frozen=True, slots=True)
class CompletedRow:
    """A row with the values known from its slice; ``missing`` ones must come from the mirror.

    The mirror's row is that of the key in the delete ``old`` (a row of the changes), else that of
    its own key. ``own`` is the version of the row, ``places`` are those of its values. ``open``
    values are replaced by the mirror's if the mirror has a higher version.
    """

    text: str
    own: Place
    missing: frozenset[str] = frozenset()
    old: int | None = None
    places: Mapping[str, Place] = field(default_factory=dict)
    open: frozenset[str] = frozenset()

    def beside(self, there: ColumnPlaces | None) -> "CompletedRow":
        """Combine the row with the column versions of the mirror's row *there*, if any."""
        if there is None:
            taken, places = self.missing, self.places
        else:
            newer = {name for name in self.open if there.of(name) > self.places[name]}
            taken = self.missing | newer
            places = {**self.places, **{name: there.of(name) for name in taken}}
        versions = Raw(fold.encode_versions(self.own, places))
        text = _text(_fields(self.text) | {COLUMN_VERSIONS: versions})
        return replace(self, text=text, missing=taken, places=places, open=frozenset())


@dataclass(frozen=True, slots=True)
class _Change:
    at: int
    op: str
    rank: Rank
    after: str | None
    is_whole: bool


def is_partial(rows: pa.Table) -> Mask:
    """Which changes hold only some of their columns."""
    if "changed" not in rows.column_names:
        return np.zeros(len(rows), np.bool_)
    found: Mask = rows["changed"].is_valid().to_numpy()
    return found


def find_moved_deletes(changes: pa.Table) -> pa.Table:
    """Deletes of keys that a row may have left: a partial row has the same position."""
    deletes = pc.equal(flat_column(changes["op"]), str(Op.DELETE))
    taken = changes.filter(pc.and_(pc.invert(deletes), changes["changed"].is_valid()))
    places = (pc.struct_field(one["order"], "pos").combine_chunks() for one in (taken, changes))
    here, every = places
    return changes.filter(pc.and_(deletes, pc.is_in(every, value_set=here)))


def complete_rows(
    changes: pa.Table, rows: pa.Table, names: AbstractSet[str], stands: RowOrigins, there: Mask
) -> tuple[CompletedRow, ...]:
    """Complete *rows*, which are partial and among *changes*, from older *changes*.

    *names* are the table's columns. *stands* are the mirror's rows of the same keys, where *there*
    is true. Their values are newer than the changes below them.

    Raises:
        HeldError: ``partial_row``; the changes do not have a value and show that the mirror cannot
            have it either.
    """
    histories, own = _RowHistories.of(changes, rows), _is_own(rows, stands) & there
    ranks = stands.rank.T.tolist()
    return tuple(
        histories.completed(row, names, tuple(ranks[at]) if own[at] else None)
        for at, row in enumerate(rows.select(_NEEDED).to_pylist())
    )


def _is_own(rows: pa.Table, stands: RowOrigins) -> Mask:
    """Which rows of the mirror are of the same shard."""
    ours = row_origins(rows)
    mine: Mask = is_same(ours.source, stands.source) & is_same(ours.shard, stands.shard)
    return stands.adopted | mine


@dataclass(frozen=True, slots=True)
class _RowHistories:
    """The changes of some rows, newest first, and the old key of each re-keyed row by position."""

    steps: Mapping[Name, Sequence[_Change]]
    old: Mapping[tuple[str, str, Rank], tuple[Name, _Change]]

    @classmethod
    def of(cls, changes: pa.Table, rows: pa.Table) -> "_RowHistories":
        """Collect the histories of those *rows*, and of all re-keyed rows."""
        at = np.flatnonzero(_find_concerned(changes, rows))
        some = changes.select(_NEEDED).take(pa.array(at))
        steps: dict[Name, list[_Change]] = {}
        old: dict[tuple[str, str, Rank], tuple[Name, _Change]] = {}
        for place, row, its in zip(at.tolist(), some.to_pylist(), rank_rows(some).T, strict=True):
            name = (row["source"], row["shard"], row["key"])
            is_whole = row["changed"] is None
            step = _Change(place, row["op"], tuple(its.tolist()), row["after"], is_whole)
            steps.setdefault(name, []).append(step)
            if step.op == Op.DELETE:
                old[name[0], name[1], step.rank[:PLACE]] = (name, step)
        for own in steps.values():
            own.sort(key=_by_rank, reverse=True)
        return cls(steps, old)

    def completed(
        self, row: Mapping[str, Any], names: AbstractSet[str], known: Rank | None
    ) -> CompletedRow:
        """Go back through the changes of one row until each of its values is found."""
        name = first = (row["source"], row["shard"], row["key"])
        now, old = self._step(row), None
        known_of = _Values.of(replace(now, after=row["after"], is_whole=False), names)
        while known_of.missing or known_of.open:
            if now.op == Op.CREATE:
                before = self.old.get((name[0], name[1], now.rank[:PLACE]))
                if before is None or before[0] == name:
                    return known_of.made_anew(first)
                name, now = before
                old, known = now.at, None
            following = next((one for one in self.steps[name] if one.rank < now.rank), None)
            if following is None or (known is not None and following.rank <= known):
                break
            if following.after is None or following.op == Op.DELETE:
                return known_of.made_anew(first)
            now = following
            known_of.take(now)
        if old is None and known is None:
            known_of.require_whole(first)
        return known_of.completed(old, known)

    def _step(self, row: Mapping[str, Any]) -> _Change:
        order = (*row["order"].values(), row["origin"])
        own = self.steps[row["source"], row["shard"], row["key"]]
        return next(one for one in own if one.rank == order)


@dataclass(eq=False)
class _Values:
    """Known values of a row of version ``own``; its changes are read newest first.

    A value is ``open`` as long as an older change may have it in a higher version.
    """

    own: Place
    missing: AbstractSet[str]
    values: dict[str, Raw] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    open: AbstractSet[str] = frozenset()

    @classmethod
    def of(cls, newest: _Change, names: AbstractSet[str]) -> "_Values":
        """The values of the *newest* change; *names* are the table's columns."""
        epoch, _, version, *_ = newest.rank
        named = _fields(newest.after or "{}").keys() - {COLUMN_VERSIONS}
        made = cls((epoch, version), names | named)
        made.take(newest)
        return made

    def take(self, step: _Change) -> None:
        """Take the values of an older change that are unknown, or known in a lower version."""
        fields = _fields(step.after or "{}")
        stand = ColumnPlaces.of_row(step.rank, fields.pop(COLUMN_VERSIONS, None))
        given = dict.fromkeys(self.missing | self.open, NULL) | fields if step.is_whole else fields
        newer = {one for one in self.open & given.keys() if stand.of(one) > self.places[one]}
        for one in (self.missing & given.keys()) | newer:
            self.values[one], self.places[one] = given[one], stand.of(one)
        self.missing -= given.keys()
        self.open = {one for one, place in self.places.items() if place < stand.own}

    def require_whole(self, name: Name) -> None:
        """Refuse a row with an unknown value.

        Raises:
            HeldError: ``partial_row``.
        """
        if self.missing:
            raise HeldError("partial_row", _describe_missing(name, self.missing))

    def made_anew(self, name: Name) -> CompletedRow:
        """Complete a row that came after a delete, which removed all earlier values.

        Raises:
            HeldError: ``partial_row``.
        """
        self.require_whole(name)
        return self.completed(None, None)

    def completed(self, old: int | None, known: Rank | None) -> CompletedRow:
        """Leave the missing values to the mirror's row at *known*, if there is one."""
        there = None if known is None else (known[0], known[2])
        outdated = {one for one in self.open if there is not None and self.places[one] < there}
        some = frozenset(self.missing), old, self.places, frozenset(outdated)
        return CompletedRow(_text(self.values), self.own, *some)


def _find_concerned(changes: pa.Table, rows: pa.Table) -> Mask:
    """Select changes that may have a value: of the keys of *rows*, and of re-keyed rows."""
    both = (rows, find_moved_deletes(changes))
    keys = pa.concat_arrays([flat_column(one["key"]).combine_chunks() for one in both])
    found: Mask = pc.is_in(flat_column(changes["key"]), value_set=pc.unique(keys)).to_numpy()
    return found


def _by_rank(step: _Change) -> Rank:
    return step.rank


def _describe_missing(name: Name, missing: AbstractSet[str]) -> str:
    some = ", ".join(sorted(missing)[:5])
    what = f"a change of {name[1]}, key {name[2]}, came without {some}, which no earlier row has"
    return f"{what}; {_ADVICE}"


def missing_row_error(row: Mapping[str, Any], missing: AbstractSet[str]) -> HeldError:
    """The hold of a table whose mirror does not have the row, or cannot be read."""
    return HeldError(
        "partial_row", _describe_missing((row["source"], row["shard"], row["key"]), missing)
    )


def _fields(text: str) -> dict[str, Raw]:
    try:
        return _ROW.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise HeldError("misread", f"a row is no JSON object: {error}") from error


def _text(values: Mapping[str, Raw]) -> str:
    return msgspec.json.encode(values).decode()


NULL = Raw(b"null")
_ROW = msgspec.json.Decoder(dict[str, Raw])


@dataclass(frozen=True, slots=True, eq=False)
class ValueSources:
    """Sources of missing values: the slice's *changes*, and the mirror.

    ``read`` types change-log rows. ``look`` finds keys (and their owners, unless ``unique``).
    ``peek`` is None if the mirror's rows cannot be read.
    """

    changes: pa.Table
    columns: tuple[str, ...]
    key: tuple[str, ...]
    unique: bool
    read: Callable[[pa.Table], pa.Table]
    look: Callable[[pa.Table, RowOrigins | None], Found]
    peek: ReadValues | None


def fill_missing_values(
    folded: pa.Table, rows: pa.Table, found: Found, at: Integers, its: ValueSources
) -> pa.Table:
    """Return the typed *rows* of *folded*, with those at the indexes *at* completed.

    *found* are the positions of the keys of all rows.

    Raises:
        HeldError: ``partial_row``; a value was not found.
    """
    some, here = folded.take(pa.array(at)), _take_found(found, at)
    names = frozenset(its.columns) - {COLUMN_VERSIONS}
    completed = complete_rows(its.changes, some, names, here.owned, here.there)
    if COLUMN_VERSIONS in its.columns:
        completed = tuple(_pair_with_mirror(completed, here, its.peek))
    texts = pa.array([one.text for one in completed], pa.string())
    whole = its.read(some.set_column(some.schema.get_field_index("after"), "after", texts))
    whole = _fill_from_mirror(some, whole, completed, here, its)
    places = np.arange(len(rows))
    places[at] = len(rows) + np.arange(len(whole))
    return pa.concat_tables([rows, whole]).take(pa.array(places)).combine_chunks()


def _pair_with_mirror(
    completed: Sequence[CompletedRow], here: Found, peek: ReadValues | None
) -> Iterator[CompletedRow]:
    """Yield the rows combined with the mirror's column versions, if values are missing or open."""
    asked = np.array(
        [one.old is None and bool(one.missing or one.open) for one in completed], np.bool_
    )
    short = np.flatnonzero(asked & here.there)
    texts = (
        peek(_take_found(here, short), [COLUMN_VERSIONS])[COLUMN_VERSIONS].to_pylist()
        if peek is not None and len(short)
        else [None] * len(short)
    )
    stand = dict(zip(short.tolist(), texts, strict=True))
    for number, one in enumerate(completed):
        there = None
        if number in stand:
            rank = tuple(here.owned.rank[:, number].tolist())
            there = ColumnPlaces.of_row(rank, stand[number])
        yield one.beside(there)


def _take_found(found: Found, at: Integers) -> Found:
    return Found(found.file[at], found.position[at], found.owned.take(at))


def _fill_from_mirror(
    some: pa.Table,
    whole: pa.Table,
    completed: Sequence[CompletedRow],
    here: Found,
    its: ValueSources,
) -> pa.Table:
    """Fill in missing values from the mirror."""
    short = np.array([number for number, one in enumerate(completed) if one.missing], np.int64)
    if not len(short):
        return whole
    stand = _standing([completed[number].old for number in short], _take_found(here, short), its)
    lost = short if its.peek is None else short[~stand.there]
    if its.peek is None or len(lost):
        raise missing_row_error(
            some.slice(int(lost[0]), 1).to_pylist()[0], completed[int(lost[0])].missing
        )
    names = sorted(frozenset().union(*(completed[number].missing for number in short)))
    values = its.peek(stand, names)
    for name in names:
        lacks = np.array([name in one.missing for one in completed], np.bool_)
        column = whole[name].combine_chunks()
        old = values[name].filter(pa.array(lacks[short])).combine_chunks().cast(column.type)
        at = whole.schema.get_field_index(name)
        whole = whole.set_column(
            at, whole.schema.field(at), pc.replace_with_mask(column, pa.array(lacks), old)
        )
    return whole


def _standing(olds: Sequence[int | None], here: Found, its: ValueSources) -> Found:
    """Positions of the rows in the mirror; a re-keyed row is looked up under its old key."""
    moved = np.array([number for number, old in enumerate(olds) if old is not None], np.int64)
    if not len(moved):
        return here
    deletes = its.changes.take(pa.array([old for old in olds if old is not None]))
    who = row_origins(deletes)
    found = its.look(its.read(deletes).select(list(its.key)), None if its.unique else who)
    older = found.there & (found.owned.adopted | is_above(who.rank, found.owned.rank))
    file, position = here.file.copy(), here.position.copy()
    file[moved] = np.where(older, found.file, -1)
    position[moved] = found.position
    return Found(file, position, here.owned)
