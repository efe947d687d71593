"""Plans the row changes of one merge: folds the changes, types them, and decides each one.

Nothing is written or committed here. The table format looks up the rows under the changed keys,
and the decisions do not depend on how it does that. Input and output can be pickled, because a
merge may run on any worker, twice, or in vain.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from shlex import quote
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.apply.account import ChangeCounts, balance_account
from pipeline.apply.archive import (
    ArchiveEvidence,
    ArchiveMerge,
    apply_archive_rules,
    find_last_deletes,
    has_live_op,
    select_evidence,
)
from pipeline.apply.decide import (
    AppliedBefore,
    Fill,
    Floors,
    Found,
    RowVerdict,
    Verdicts,
    decide_rows,
    fill_defaults,
    find_doubtful,
    find_outlived,
    highest_orders,
    is_below,
    withdraw_inserts,
    writes_row,
)
from pipeline.apply.fold import ROW_OPS, Folded, fold_changes
from pipeline.apply.invariants import (
    Demands,
    Occurrences,
    PlannedSlice,
    ReferredTable,
    Searches,
    references_exist,
    require_valid,
)
from pipeline.apply.partial_rows import ReadValues, ValueSources, fill_missing_values, is_partial
from pipeline.apply.row_metadata import (
    META,
    NO_ORIGINS,
    SLUICE,
    Adoption,
    RowOrigins,
    flat_column,
    row_origins,
)
from pipeline.errors import HeldError
from pipeline.minute_counts import (
    NO_MINUTE,
    MinuteCounts,
    add_counts,
    count_origins,
    minute_key,
    minutes_of,
)
from pipeline.model import Account, Op, Order, Origin, Shard, Table
from pipeline.schema.decode import type_rows
from pipeline.schema.model import Column

S = TypeVar("S")  # a mirror at one version, in its format's type
W = TypeVar("W")  # the work that a merge prepares for its commit

Deletes = Callable[[pa.StringArray], pa.Table]
"""Keys -> key, source, shard, order and origin of their deletes in applied batches."""

Look = Callable[[pa.Table, RowOrigins | None], Found]
"""Key columns, and their owners if shards do not share keys -> rows' locations in the mirror."""


@dataclass(frozen=True, slots=True)
class MergeTask(Generic[S]):
    """The input of one merge.

    ``changes`` are the rows of the slice, of all ops. ``floors`` are those that the mirror
    remembers. ``known`` is None if nothing was ever applied: then no upsert can be older than a
    forgotten delete, and ``deletes`` is not called. ``demands`` are the invariants, and ``others``
    the tables that they refer to. ``archive`` finds deletes that only move a row to an archive.
    """

    table: Table
    snapshot: S
    columns: tuple[Column, ...]
    changes: pa.Table
    at: datetime
    deletes: Deletes
    known: AppliedBefore | None = None
    floors: Floors | None = None
    fills: tuple[Fill, ...] = ()
    adopted: Order | None = None
    demands: Demands | None = None
    others: tuple[ReferredTable[S], ...] = ()
    archive: ArchiveEvidence | None = None

    @property
    def adoption(self) -> Adoption:
        """The origin of the mirror's rows without ``_sluice``."""
        return Adoption.of(self.table, self.adopted)


@dataclass(frozen=True, slots=True)
class RowCounts:
    """The number of keys per verdict; ``floored`` rows were removed by a truncate or a settle.

    The ``archived`` rows are kept although their source deleted them.
    """

    inserted: int
    updated: int
    deleted: int
    noop: int
    again: int
    floored: int
    archived: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class MergePlan:
    """The verdict on each key of the slice, in the order of ``rows``.

    ``rows`` have the table's columns and ``_sluice``. ``raised`` are the floors that the slice
    sets; the mirror's rows below them are removed. ``floors`` are all floors to be remembered.
    ``outlived`` counts the changes below those, which are ignored.
    """

    folded: Folded
    rows: pa.Table
    found: Found
    verdicts: Verdicts
    raised: Floors
    floors: Mapping[Shard, Order]
    outlived: int = 0


@dataclass(frozen=True, slots=True)
class MergeResult(Generic[W]):
    """The result of a merge, to be committed after ``version``.

    The table format defines ``work``. The applied batch is committed even if no row changes, with
    the ``floors``. ``written`` counts the rows that the merge changes, see :func:`count_written`;
    None if the commit may contain rows that it does not change.
    """

    version: int
    work: W
    counts: RowCounts
    account: Account
    floors: Mapping[Shard, Order]
    written: MinuteCounts | None = None


MergeFunction = Callable[[MergeTask[Any]], MergeResult[Any]]


def plan_merge(
    task: MergeTask[Any],
    look: Look,
    searches: Searches | None = None,
    peek: ReadValues | None = None,
) -> MergePlan:
    """Fold and type the changes, find their keys with *look*, and decide each; writes nothing.

    *searches* find values in this and other mirrors; without them an invariant that needs them is
    refused. *peek* reads rows of the mirror, to complete partial rows.

    Raises:
        HeldError: the table must be held; see its reason.
    """
    raised = _raised(task.changes)
    floors = highest_orders(task.floors or {}, raised)
    changes, with_evidence, outlived_rows = _acting(task, floors)
    folded = fold_changes(changes)
    _refuse_doubts(folded)
    rows = _typed(task, folded)
    keys = rows.select(list(task.table.key))
    found = look(keys, None if task.table.unique_across_shards else row_origins(folded.rows))
    verdicts = decide_rows(folded, found, floors, raised)
    if task.archive is not None:
        known = _sources(task, with_evidence, folded, look, peek)
        lent = ArchiveMerge(
            with_evidence,
            folded,
            rows,
            found,
            raised,
            known.read,
            partial(_complete_rows, its=known),
            peek,
        )
        rows, verdicts = apply_archive_rules(task.archive, lent, verdicts)
    verdicts = _withdrawn(task, folded, found, verdicts)
    if (some := is_partial(folded.rows) & writes_row(verdicts)).any():
        known = _sources(task, changes, folded, look, peek)
        rows = fill_missing_values(folded.rows, rows, found, np.flatnonzero(some), known)
    made = MergePlan(folded, rows, found, verdicts, raised, floors, outlived_rows)
    if task.demands is not None:
        require_valid(task.demands, _slice(task, made, searches, peek))
    return made


def _rows_of(changes: pa.Table, *ops: Op) -> pa.Table:
    return changes.filter(_select_ops(changes, *ops))


def _select_ops(changes: pa.Table, *ops: Op) -> pa.BooleanArray:
    names = pa.array([str(op) for op in ops], pa.string())
    return pc.is_in(flat_column(changes["op"]), value_set=names)


def _raised(changes: pa.Table) -> dict[Shard, Order]:
    """The floors that truncates and settles of the slice set; only a few rows."""
    floor_rows = _rows_of(changes, Op.TRUNCATE, Op.SETTLE).select(["source", "shard", "order"])
    return highest_orders(
        *(
            {Shard(row["source"], row["shard"]): Order(**row["order"])}
            for row in floor_rows.to_pylist()
        )
    )


def _acting(task: MergeTask[Any], floors: Floors) -> tuple[pa.Table, pa.Table, int]:
    """The changes that are not below a floor, the same with evidence, and the number of others.

    Changes below a floor no longer count, and may have columns that were dropped since. Deletes
    below it that may have archived rows are kept; the evidence is about their rows.
    """
    changes = _rows_of(task.changes, *ROW_OPS)
    if not floors or not len(changes):
        return changes, changes, 0
    gone = is_below(row_origins(changes), floors)
    above, others = changes.filter(pa.array(~gone)), changes.filter(pa.array(gone))
    if task.archive is None or not len(others):
        return above, above, len(others)
    last = find_last_deletes(task.archive.rules, others, task.table.key)
    names = frozenset(column.name for column in task.columns)
    with_evidence = pa.concat_tables([above, select_evidence(last, others, names)])
    return pa.concat_tables([above, last]), with_evidence, len(others) - len(last)


def _refuse_doubts(folded: Folded) -> None:
    if folded.crossed is not None:
        detail = f"key {folded.crossed} has rows in two sources, whose orders cannot be compared"
        advice = "remove `unique_across_shards`, and rebuild the mirror"
        raise HeldError("crosses_sources", f"{detail}; {advice}")
    for row in folded.conflicts.to_pylist():
        order = Order(**row["order"])
        detail = f"key {row['key']} has two different changes at one log position, {order}"
        advice = "allow only one connector to write to the topic, then take a new base"
        raise HeldError("conflict", f"{detail}; {advice}")


def _typed(task: MergeTask[Any], folded: Folded) -> pa.Table:
    """The folded rows, with the mirror's columns and ``_sluice``."""
    texts = pc.coalesce(flat_column(folded.rows["after"]), flat_column(folded.rows["before"]))
    read = type_rows(texts, task.columns)
    if read.unknown:
        names = ", ".join(read.unknown[:5])
        detail = f"fields {names} are in no schema that has landed, though it had time to land"
        raise HeldError("unknown_field", detail)
    if misread := int(pc.sum(read.misread).as_py() or 0):
        first = folded.rows["key"][pc.index(read.misread, True).as_py()]
        detail = f"{misread} rows hold a value their column's type cannot, first key {first}"
        raise HeldError("misread", detail)
    _refuse_altered(task, folded, read.rows)
    parts = [folded.rows[field.name].combine_chunks().cast(field.type) for field in META]
    meta = pa.StructArray.from_arrays(parts, fields=list(META))
    rows = read.rows.append_column(SLUICE, meta)
    return fill_defaults(rows, row_origins(folded.rows), task.fills) if len(rows) else rows


def _refuse_altered(task: MergeTask[Any], folded: Folded, rows: pa.Table) -> None:
    """Refuse values that a collector's snapshot may have altered; those Sluice read are exact."""
    origin, topic = flat_column(folded.rows["origin"]), flat_column(folded.rows["topic"])
    sent = pc.and_(pc.equal(origin, int(Origin.SNAPSHOT)), pc.is_valid(topic))
    if not pc.any(sent).as_py():
        return
    for column in task.columns:
        values = flat_column(rows[column.name]).combine_chunks()
        altered = column.dialect.altered_by_snapshot(column, values)
        if altered is None:
            continue
        found = pc.fill_null(pc.and_(sent.combine_chunks(), altered), fill_value=False)
        if count := int(pc.sum(found).as_py() or 0):
            first = folded.rows["key"][pc.index(found, True).as_py()]
            value = values[pc.index(found, True).as_py()]
            detail = f"{column.name} of {count} rows is unverifiable: the collector's snapshot"
            detail += f" sends other values as this one, too ({value}, key {first})"
            fix = f"sluice bootstrap {quote(task.table.name)} --reason ..."
            raise HeldError("misread", f"{detail}; run `{fix}`")


def _sources(
    task: MergeTask[Any], changes: pa.Table, folded: Folded, look: Look, peek: ReadValues | None
) -> ValueSources:
    return ValueSources(
        changes=changes,
        columns=tuple(column.name for column in task.columns),
        key=task.table.key,
        unique=task.table.unique_across_shards,
        read=lambda rows: _typed(task, replace(folded, rows=rows)),
        look=look,
        peek=peek,
    )


def _complete_rows(
    folded: pa.Table, rows: pa.Table, found: Found, *, its: ValueSources
) -> pa.Table:
    """Complete the partial ones among *rows* with their earlier values."""
    some = np.flatnonzero(is_partial(folded))
    return fill_missing_values(folded, rows, found, some, its) if len(some) else rows


def _slice(
    task: MergeTask[Any], made: MergePlan, searches: Searches | None, peek: ReadValues | None
) -> PlannedSlice:
    own = None if searches is None else searches(task.snapshot, task.adoption)
    return PlannedSlice(
        table=task.table,
        columns=task.columns,
        changes=task.changes,
        folded=made.folded.rows,
        rows=made.rows,
        found=made.found,
        verdicts=made.verdicts,
        raised=made.raised,
        search=own,
        elsewhere=partial(references_exist, task.others, searches),
        peek=peek,
    )


def require_valid_late(task: MergeTask[Any], late: pa.Table, cut: datetime) -> None:
    """Check the rows that the image of *cut* gets by *late* changes, without those of the mirror.

    Later changes may hide these rows from the mirror, and so from the check of the slice. Partial
    rows are not checked, because their other values are those of the image.

    Raises:
        HeldError: as `require_valid`.
    """
    changes = _rows_of(late, *ROW_OPS)
    if task.demands is None or not len(changes):
        return
    changes = changes.filter(pa.array(~is_below(row_origins(changes), _raised(late))))
    folded = fold_changes(changes)
    whole = folded.rows.filter(pa.array(~is_partial(folded.rows)))
    try:
        rows = _typed(task, replace(folded, rows=whole))
    except HeldError:  # the image is not corrected by such changes
        return
    count = len(whole)
    nowhere = np.full(count, -1, np.int32), np.zeros(count, np.int64), row_origins(whole)
    alone = PlannedSlice(
        table=task.table,
        columns=task.columns,
        changes=changes,
        folded=whole,
        rows=rows,
        found=Found(*nowhere),
        verdicts=np.full(count, RowVerdict.INSERT),
        raised={},
        search=lambda _: _NOTHING,
        elsewhere=lambda _, values, __: pa.array([True] * len(values), pa.bool_()),
    )
    try:
        require_valid(replace(task.demands, there=0), alone)
    except HeldError as error:
        why = f"these changes are late for the image of {cut.isoformat()}, which gets them even if"
        detail = f"{error.detail}; {why} later ones correct the rows"
        raise HeldError(error.reason, detail, error.waiver) from error


_NOTHING = Occurrences(
    np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64), NO_ORIGINS
)


def _withdrawn(task: MergeTask[Any], folded: Folded, found: Found, verdicts: Verdicts) -> Verdicts:
    """Withdraw inserts that are older than a delete which the mirror no longer remembers."""
    if task.known is None:
        return verdicts
    doubts = find_doubtful(folded, verdicts, task.known)
    if not doubts.any():
        return verdicts
    keys = flat_column(folded.rows["key"]).filter(pa.array(doubts)).combine_chunks()
    gone = doubts & find_outlived(folded, task.deletes(keys))
    return withdraw_inserts(verdicts, gone, found.there & found.owned.archived)


def count_rows(verdicts: Verdicts, floored: int) -> RowCounts:
    """Count each verdict once; *floored* is the number of rows removed by floors."""
    number = np.bincount(verdicts, minlength=len(RowVerdict)).tolist()
    return RowCounts(
        inserted=number[RowVerdict.INSERT],
        updated=number[RowVerdict.UPDATE] + number[RowVerdict.MOVE],
        deleted=number[RowVerdict.DELETE],
        noop=number[RowVerdict.NOOP],
        again=number[RowVerdict.AGAIN],
        floored=floored,
        archived=number[RowVerdict.ARCHIVE],
    )


def count_written(made: MergePlan, counts: RowCounts) -> dict[str, dict[str, int]]:
    """Minute -> op -> rows that the merge writes; removed rows count as deletes without a minute.

    A replaced row does not count as removed, whether a newer row replaces it or one after a
    truncate.
    """
    came = count_origins(made.rows[SLUICE].filter(pa.array(writes_row(made.verdicts))))
    again = int(((made.verdicts == RowVerdict.INSERT) & made.found.there).sum())
    gone = counts.deleted + counts.floored - again
    return add_counts([came, {NO_MINUTE: {str(Op.DELETE): gone}}]) if gone else came


def count_corrected(changes: pa.Table) -> int:
    """Count changes that were quarantined before; each has the name of its message in ``error``."""
    if "error" not in changes.column_names:
        return 0
    named = changes.filter(pc.not_equal(flat_column(changes["op"]), str(Op.ERROR)))["error"]
    return int(pc.count(named).as_py())


def account_for(task: MergeTask[Any], made: MergePlan, counts: RowCounts) -> Account:
    """The account of a merge that changes as many rows as *counts* says."""
    changes, folded = task.changes, made.folded
    counted = ChangeCounts(
        read=len(changes),
        rows=folded.total,
        kept=len(folded.rows),
        distinct=folded.distinct,
        ordered=len(_rows_of(changes, Op.TRUNCATE, Op.SETTLE)),
        tombstones=len(_rows_of(changes, Op.TOMBSTONE)),
        quarantined=len(_rows_of(changes, Op.ERROR)),
        corrected=count_corrected(changes),
    )
    new = made.verdicts == RowVerdict.INSERT
    came = 0 if task.archive is None else int((new & has_live_op(folded.rows, Op.DELETE)).sum())
    applied = counts.inserted + counts.updated + counts.deleted - came
    noop = counts.noop + made.outlived
    account = balance_account(counted, applied, noop, counts.again, counts.archived + came)
    return replace(account, explained=_explain_minutes(changes, made))


_TERMS = {
    "applied": (RowVerdict.INSERT, RowVerdict.UPDATE, RowVerdict.MOVE, RowVerdict.DELETE),
    "noop": (RowVerdict.NOOP,),
    "redelivered": (RowVerdict.AGAIN,),
    "archived": (RowVerdict.ARCHIVE,),
}
_OP_TERMS = {Op.TRUNCATE: "applied", Op.TOMBSTONE: "tombstone", Op.ERROR: "quarantined"}


def _explain_minutes(changes: pa.Table, made: MergePlan) -> dict[str, dict[str, int]]:
    """Minute -> term -> changes; ``superseded`` are all that were not the newest of their key.

    Repetitions and changes below a floor count as superseded, too, because they are not folded
    rows.
    """
    rows, verdicts = made.folded.rows, made.verdicts.copy()
    kept_delete = (verdicts == RowVerdict.INSERT) & has_live_op(rows, Op.DELETE)
    verdicts[kept_delete] = RowVerdict.ARCHIVE  # a row of the slice, kept as an archived one
    when = minutes_of(changes)
    minutes, every = np.unique(when[np.asarray(_select_ops(changes, *ROW_OPS))], return_counts=True)
    codes = np.searchsorted(minutes, minutes_of(rows)) * len(RowVerdict) + verdicts
    shape = (len(minutes), len(RowVerdict))
    number = np.bincount(codes, minlength=shape[0] * shape[1]).reshape(shape)
    found: dict[str, dict[str, int]] = {}
    for minute, total, here in zip(minutes.tolist(), every.tolist(), number, strict=True):
        terms = {name: int(here[list(own)].sum()) for name, own in _TERMS.items()}
        terms["superseded"] = total - sum(terms.values())
        found[minute_key(minute)] = {name: count for name, count in terms.items() if count}
    for op, name in _OP_TERMS.items():
        own, counts = np.unique(when[np.asarray(_select_ops(changes, op))], return_counts=True)
        for minute, total in zip(map(minute_key, own.tolist()), counts.tolist(), strict=True):
            terms = found.setdefault(minute, {})
            terms[name] = terms.get(name, 0) + total
    return found
