"""How does a row that came without some values get them, before it is written?

From its slice (:mod:`pipeline.apply.partial_rows`), else from the mirror: from its own row there,
or, where it took another key, from that of its old key, which must be older than that change.
Where columns have versions of their own, the mirror's row may have what came in a higher one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.apply.column_places import ColumnPlaces
from pipeline.apply.decide import Found
from pipeline.apply.partial_rows import Completed, Peek, completed, not_there
from pipeline.apply.provenance import Integers, Owned, above, owned
from pipeline.model import COLUMN_VERSIONS


@dataclass(frozen=True, slots=True, eq=False)
class ValueSources:
    """Where values may be: the slice's *changes*, and the mirror, as one turn reads both.

    ``read`` types change-log rows, ``look`` finds keys (and whose they are, unless ``unique``);
    ``peek`` is None where the mirror's rows cannot be read.
    """

    changes: pa.Table
    columns: tuple[str, ...]
    key: tuple[str, ...]
    unique: bool
    read: Callable[[pa.Table], pa.Table]
    look: Callable[[pa.Table, Owned | None], Found]
    peek: Peek | None


def made_whole(
    folded: pa.Table, rows: pa.Table, found: Found, at: Integers, its: ValueSources
) -> pa.Table:
    """The typed *rows* of *folded*, those *at* some places with what they had before.

    *found* tells where the keys of all of them stand.

    Raises:
        HeldError: ``partial_row``, nobody has a value.
    """
    some, here = folded.take(pa.array(at)), _taken(found, at)
    names = frozenset(its.columns) - {COLUMN_VERSIONS}
    told = completed(its.changes, some, names, here.owned, here.there)
    if COLUMN_VERSIONS in its.columns:
        told = tuple(_beside(told, here, its.peek))
    texts = pa.array([one.text for one in told], pa.string())
    whole = its.read(some.set_column(some.schema.get_field_index("after"), "after", texts))
    whole = _peeked(some, whole, told, here, its)
    places = np.arange(len(rows))
    places[at] = len(rows) + np.arange(len(whole))
    return pa.concat_tables([rows, whole]).take(pa.array(places)).combine_chunks()


def _beside(told: Sequence[Completed], here: Found, peek: Peek | None) -> Iterator[Completed]:
    """They beside the mirror's rows, where these may have what they lack, or have it newer."""
    asked = np.array([one.old is None and bool(one.missing or one.open) for one in told], np.bool_)
    short = np.flatnonzero(asked & here.there)
    texts = (
        peek(_taken(here, short), [COLUMN_VERSIONS])[COLUMN_VERSIONS].to_pylist()
        if peek is not None and len(short)
        else [None] * len(short)
    )
    stand = dict(zip(short.tolist(), texts, strict=True))
    for number, one in enumerate(told):
        there = None
        if number in stand:
            rank = tuple(here.owned.rank[:, number].tolist())
            there = ColumnPlaces.of_row(rank, stand[number])
        yield one.beside(there)


def _taken(found: Found, at: Integers) -> Found:
    return Found(found.file[at], found.position[at], found.owned.take(at))


def _peeked(
    some: pa.Table, whole: pa.Table, told: Sequence[Completed], here: Found, its: ValueSources
) -> pa.Table:
    """With values out of the mirror."""
    short = np.array([number for number, one in enumerate(told) if one.missing], np.int64)
    if not len(short):
        return whole
    stand = _standing([told[number].old for number in short], _taken(here, short), its)
    lost = short if its.peek is None else short[~stand.there]
    if its.peek is None or len(lost):
        raise not_there(some.slice(int(lost[0]), 1).to_pylist()[0], told[int(lost[0])].missing)
    names = sorted(frozenset().union(*(told[number].missing for number in short)))
    values = its.peek(stand, names)
    for name in names:
        lacks = np.array([name in one.missing for one in told], np.bool_)
        column = whole[name].combine_chunks()
        old = values[name].filter(pa.array(lacks[short])).combine_chunks().cast(column.type)
        at = whole.schema.get_field_index(name)
        whole = whole.set_column(
            at, whole.schema.field(at), pc.replace_with_mask(column, pa.array(lacks), old)
        )
    return whole


def _standing(olds: Sequence[int | None], here: Found, its: ValueSources) -> Found:
    """Where the mirror has the rows: those that took another key under their old one."""
    moved = np.array([number for number, old in enumerate(olds) if old is not None], np.int64)
    if not len(moved):
        return here
    deletes = its.changes.take(pa.array([old for old in olds if old is not None]))
    who = owned(deletes)
    found = its.look(its.read(deletes).select(list(its.key)), None if its.unique else who)
    older = found.there & (found.owned.adopted | above(who.rank, found.owned.rank))
    file, position = here.file.copy(), here.position.copy()
    file[moved] = np.where(older, found.file, -1)
    position[moved] = found.position
    return Found(file, position, here.owned)
