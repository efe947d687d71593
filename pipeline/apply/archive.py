"""Decides which deletes of a slice keep their rows in the mirror as archived, with which values.

Only live deletes are considered: those that would remove a row, and those of rows that came in the
same slice. The delete of a row that takes another key never archives it. A truncate or base that
follows does not remove an archived row.

The row keeps its last known values: from the slice before its delete, else from the mirror. It gets
the order of the delete, so no older change affects it. Below a floor only the deletes that archived
rows are still used. Other changes there may have columns or types that no longer exist.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from pipeline.apply.decide import Floors, Found, RowVerdict, Verdicts, is_below, is_existing
from pipeline.apply.fold import Folded, fold_changes
from pipeline.apply.partial_rows import PLACE, ReadValues
from pipeline.apply.row_metadata import (
    SLUICE,
    Integers,
    Mask,
    flat_column,
    is_above,
    is_same,
    rank_rows,
    row_origins,
)
from pipeline.archive import ArchiveRules, ArchiveWindow
from pipeline.errors import HeldError
from pipeline.model import Op, Origin

Ask = Callable[[pa.Table], Mask]
"""Rows of deletes -> mask of those for which the change log states a fact."""

_UPSERTS = pa.array([str(op) for op in (Op.CREATE, Op.UPDATE, Op.READ)], pa.string())


@dataclass(frozen=True, slots=True, eq=False)
class ArchiveEvidence:
    """Evidence about a merge's deletes; ``marked`` is None where no marker counts.

    ``find_rekeyed`` finds deletes of rows that took another key, in any landed batch.
    """

    rules: ArchiveRules
    marked: Ask | None = None
    find_rekeyed: Ask | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ArchiveMerge:
    """The input of the archive rules; *changes* are the row changes of the merge's slice.

    ``raised`` are the floors that the slice sets, including those above a delete of the slice.
    ``read`` types folded rows and adds ``_sluice``. ``whole`` gives partial rows their missing
    values. ``peek`` reads the mirror; it is None where the mirror cannot be read.
    """

    changes: pa.Table
    folded: Folded
    rows: pa.Table
    found: Found
    raised: Floors
    read: Callable[[pa.Table], pa.Table]
    whole: Callable[[pa.Table, pa.Table, Found], pa.Table]
    peek: ReadValues | None


def apply_archive_rules(
    evidence: ArchiveEvidence, merge: ArchiveMerge, verdicts: Verdicts
) -> tuple[pa.Table, Verdicts]:
    """Return the rows and verdicts of *merge*, changed so that archived rows stay.

    Raises:
        HeldError: ``archive``; a window names a column that does not exist or does not fit, or
            Spark merges this mirror.
    """
    folded, verdicts = merge.folded.rows, _undone(merge, verdicts)
    asked = _find_asked(folded, is_existing(merge.found, merge.raised), verdicts)
    asked[asked] = ~_find_rekeyed(merge.changes, folded.filter(pa.array(asked)))
    by_time = [asked & is_during(folded, window) for window in evidence.rules.windows]
    by_mark = np.zeros(len(asked), np.bool_)
    if evidence.marked is not None and asked.any():
        places = np.flatnonzero(asked)
        by_mark[places] = evidence.marked(folded.take(pa.array(places)))
    places = np.flatnonzero(np.logical_or.reduce([by_mark, *by_time]))
    if not len(places):
        return merge.rows, verdicts
    known, rows = _find_known(merge, places)
    places = places[known]
    stays = by_mark[places]
    for window, inside in zip(evidence.rules.windows, by_time, strict=True):
        stays |= inside[places] & meets_window(rows, window)
    if evidence.find_rekeyed is not None and stays.any():
        stays[stays] = ~evidence.find_rekeyed(folded.take(pa.array(places[stays])))
    return _add_rows(merge, verdicts, places[stays], rows.filter(pa.array(stays)))


def is_during(changes: pa.Table, window: ArchiveWindow) -> Mask:
    """Which *changes* (at) the source made inside the window."""
    at = changes["at"]
    since, until = (pa.scalar(one, at.type) for one in (window.since, window.until))
    inside = pc.and_(pc.greater_equal(at, since), pc.less(at, until))
    found: Mask = pc.fill_null(inside, False).to_numpy()
    return found


def is_in_reach(changes: pa.Table, rules: ArchiveRules) -> Mask:
    """Which *changes* (at) have a time at which one of the *rules* can archive a delete."""
    found = np.full(len(changes), bool(rules.markers))
    for window in rules.windows:
        found |= is_during(changes, window)
    return found


def meets_window(rows: pa.Table, window: ArchiveWindow) -> Mask:
    """Which typed *rows* are below the window's bound; a row without a value is not.

    Raises:
        HeldError: ``archive``.
    """
    if not window.column:
        return np.ones(len(rows), np.bool_)
    advice = "correct it under `archive`, or `sluice archive withdraw` it"
    if window.column not in rows.column_names:
        known = ", ".join(one for one in rows.column_names if one != SLUICE)
        detail = f"an archive's window names column {window.column!r}; the table has {known}"
        raise HeldError("archive", f"{detail}; {advice}")
    column = rows[window.column]
    try:
        bound = _bound(window.before, column.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        detail = f"an archive's window has before: {window.before!r}, which is not a {column.type}"
        raise HeldError("archive", f"{detail}, as {window.column} is; {advice}") from error
    below: Mask = pc.fill_null(pc.less(column, bound), False).to_numpy()
    return below


def _bound(text: str, kind: pa.DataType) -> pa.Scalar:
    """Parse the bound; for a zoned timestamp column, one without an offset is UTC."""
    if not pa.types.is_timestamp(kind) or kind.tz is None:
        return pa.scalar(text).cast(kind)
    try:
        return pa.scalar(text).cast(kind)
    except pa.ArrowInvalid:
        return pc.assume_timezone(pa.scalar(text).cast(pa.timestamp("us")), "UTC").cast(kind)


def _undone(merge: ArchiveMerge, verdicts: Verdicts) -> Verdicts:
    """Also delete rows that an earlier merge archived, but that now prove to be re-keyed."""
    folded = merge.folded.rows
    kept = (
        (verdicts == RowVerdict.AGAIN) & merge.found.owned.archived & has_live_op(folded, Op.DELETE)
    )
    if kept.any():
        verdicts = verdicts.copy()
        kept[kept] = _find_rekeyed(merge.changes, folded.filter(pa.array(kept)))
        verdicts[kept] = RowVerdict.DELETE
        return verdicts
    return verdicts


def _find_rekeyed(changes: pa.Table, deletes: pa.Table) -> Mask:
    """Which *deletes* are of rows that took another key: an upsert has the same position."""
    return has_partner(
        deletes, changes.filter(pc.is_in(flat_column(changes["op"]), value_set=_UPSERTS))
    )


def has_partner(rows: pa.Table, others: pa.Table) -> Mask:
    """Which of *rows* share shard and log position with one of *others*."""
    found = np.zeros(len(rows), np.bool_)
    ours, theirs = (pc.struct_field(one["order"], "pos") for one in (rows, others))
    there = set(_places(others.filter(pc.is_in(theirs, value_set=pc.unique(ours)))))
    near = np.flatnonzero(pc.is_in(ours, value_set=pc.unique(theirs)).to_numpy())
    met = (one in there for one in _places(rows.take(pa.array(near))))
    found[near] = np.fromiter(met, np.bool_, len(near))
    return found


def _places(changes: pa.Table) -> Iterator[tuple[str, ...]]:
    """Source, shard and log position of each of *changes*."""
    owners = (changes[name].to_pylist() for name in ("source", "shard"))
    return zip(*owners, *rank_rows(changes)[:PLACE].tolist(), strict=True)


def has_live_op(changes: pa.Table, op: Op) -> Mask:
    """Which *changes* have this *op* and come from the source's log."""
    found: Mask = pc.and_(
        pc.equal(flat_column(changes["op"]), str(op)), pc.equal(changes["origin"], int(Origin.LIVE))
    ).to_numpy()
    return found


def _find_asked(folded: pa.Table, stands: Mask, verdicts: Verdicts) -> Mask:
    """Which changes are live deletes of a row, or of a key without a row in the mirror."""
    takes = verdicts == RowVerdict.DELETE
    unseen = (verdicts == RowVerdict.NOOP) & ~stands
    asked: Mask = has_live_op(folded, Op.DELETE) & (takes | unseen)
    return asked


def _find_known(merge: ArchiveMerge, places: Integers) -> tuple[Mask, pa.Table]:
    """Which deletes at *places* have a known row, and those rows with their last values."""
    some = merge.folded.rows.take(pa.array(places))
    found = _take_found(merge.found, places)
    last = _last_in_slice(merge.changes, some, found)
    in_slice, there = last >= 0, found.there & (last < 0) & _came_before(some, found, merge.raised)
    known = in_slice | there
    rows = merge.rows.take(pa.array(places))
    if there.any():
        rows = _fill_from_mirror(merge, rows, found, np.flatnonzero(there))
    at = np.flatnonzero(in_slice)
    lasting = merge.changes.take(pa.array(last[in_slice]))
    own = some.take(pa.array(at))
    for name in ("after", "changed"):
        if name in own.column_names:
            own = own.set_column(own.schema.get_field_index(name), name, lasting[name])
    rows = _put_rows(rows, at, _complete_rows(merge, own, _take_found(found, at)))
    return known, rows.filter(pa.array(known))


def _complete_rows(merge: ArchiveMerge, own: pa.Table, found: Found) -> pa.Table:
    try:
        return merge.whole(own, merge.read(own), found)
    except HeldError as error:
        detail = f"archived rows cannot keep their last values: {error}"
        fix = "to delete them, remove the rule of `archive`, or run `sluice archive withdraw`"
        raise HeldError("archive", f"{detail}; {fix}") from error


def _came_before(deletes: pa.Table, found: Found, raised: Floors) -> Mask:
    """Which *deletes* are below the floor that removes their row, or no floor removes it."""
    return ~is_below(found.owned, raised) | is_below(row_origins(deletes), raised)


def _last_in_slice(changes: pa.Table, deletes: pa.Table, found: Found) -> Integers:
    """Row of the newest upsert before each delete, if newer than the mirror's row; else -1."""
    keys = flat_column(deletes["key"]).combine_chunks()
    near = pc.and_(
        pc.is_in(flat_column(changes["op"]), value_set=_UPSERTS),
        pc.is_in(flat_column(changes["key"]), value_set=keys),
    )
    at = np.flatnonzero(near.to_numpy())
    last = np.full(len(deletes), -1, np.int64)
    numbered = changes.take(pa.array(at)).append_column("number", pa.array(at))
    newest = fold_changes(numbered).rows
    place = pc.index_in(keys, value_set=flat_column(newest["key"]).combine_chunks())
    has = np.flatnonzero(place.is_valid().to_numpy(zero_copy_only=False))
    theirs = newest.take(place.drop_null())
    upsert, delete, row = row_origins(theirs), row_origins(deletes).take(has), found.owned.take(has)
    own = is_same(upsert.source, delete.source) & is_same(upsert.shard, delete.shard)
    newer = ~found.there[has] | is_above(upsert.rank, row.rank)
    good = own & newer & is_above(delete.rank, upsert.rank)
    last[has[good]] = theirs["number"].to_numpy()[good]
    return last


def _fill_from_mirror(merge: ArchiveMerge, rows: pa.Table, found: Found, at: Integers) -> pa.Table:
    """Return *rows* with the mirror's values at the indexes *at*."""
    if merge.peek is None:
        detail = "an archived row cannot be kept, as Spark merges this mirror"
        raise HeldError("archive", f"{detail}; rebuild the mirror, so that Sluice merges it")
    names = [name for name in rows.column_names if name != SLUICE]
    values = merge.peek(_take_found(found, at), names)
    its = rows.take(pa.array(at))
    for number, name in enumerate(rows.column_names):
        if name != SLUICE:
            column = values[name].cast(rows.schema.field(name).type)
            its = its.set_column(number, rows.schema.field(name), column)
    return _put_rows(rows, at, its)


def _put_rows(rows: pa.Table, at: Integers, others: pa.Table) -> pa.Table:
    """Return *rows* with *others* at the indexes *at*."""
    places = np.arange(len(rows))
    places[at] = len(rows) + np.arange(len(others))
    return pa.concat_tables([rows, others]).take(pa.array(places)).combine_chunks()


def _add_rows(
    merge: ArchiveMerge, verdicts: Verdicts, places: Integers, rows: pa.Table
) -> tuple[pa.Table, Verdicts]:
    verdicts = verdicts.copy()
    takes = verdicts[places] == RowVerdict.DELETE
    verdicts[places] = np.where(takes, RowVerdict.ARCHIVE, RowVerdict.INSERT)
    return _put_rows(merge.rows, places, rows), verdicts


def _take_found(found: Found, at: Integers | Sequence[int]) -> Found:
    rows = np.asarray(at, np.int64)
    return Found(found.file[rows], found.position[rows], found.owned.take(rows))


_ROW = msgspec.json.Decoder(dict[str, Raw])


def find_last_deletes(rules: ArchiveRules, outlived: pa.Table, key: Collection[str]) -> pa.Table:
    """Find deletes below a floor that may have archived rows; *outlived* are the changes below it.

    Returns at most one per key: the key's newest change, if that is such a delete. The rows hold
    only the *key* columns.
    """
    newest = fold_changes(outlived.filter(outlived["key"].is_valid())).rows
    last = newest.filter(pa.array(is_in_reach(newest, rules) & has_live_op(newest, Op.DELETE)))
    return _take_columns(last, "before", key)


def select_evidence(last: pa.Table, outlived: pa.Table, names: Collection[str]) -> pa.Table:
    """The *outlived* changes of the keys of *last*, with only the columns *names*."""
    keys = flat_column(last["key"]).combine_chunks()
    own = outlived.filter(pc.is_in(flat_column(outlived["key"]), value_set=keys))
    return _take_columns(own, "after", names)


def _take_columns(changes: pa.Table, image: str, names: Collection[str]) -> pa.Table:
    texts = [
        None if one is None else _part(one, names)
        for one in flat_column(changes[image]).to_pylist()
    ]
    at = changes.schema.get_field_index(image)
    field = changes.schema.field(at)
    return changes.set_column(at, field, pa.array(texts, pa.string()).cast(field.type))


def _part(text: str, names: Collection[str]) -> str:
    try:
        sent = _ROW.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return text  # an invalid text fails where it is typed
    return msgspec.json.encode({n: one for n, one in sent.items() if n in names}).decode()
