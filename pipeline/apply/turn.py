"""One turn of one mirror: its changes folded, typed, found, decided and written; not committed.

A turn leaves files that nobody knows of until its actions are committed on the version it was made
from, so it may run anywhere, twice, or in vain.  What goes in and comes out can be pickled.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from pipeline.apply.account import Counted, balance
from pipeline.apply.data_file import Footers
from pipeline.apply.decide import (
    AppliedBefore,
    RowVerdict,
    Verdicts,
    decide,
    doubtful,
    outlived,
    withdrawn,
)
from pipeline.apply.fills import Fill, filled
from pipeline.apply.find import Found, find
from pipeline.apply.floors import Floors, below, gone_below, highest
from pipeline.apply.fold import ROW_OPS, Folded, fold
from pipeline.apply.layout import Layout
from pipeline.apply.mirror_files import Adoption, MirrorFiles
from pipeline.apply.positions import bitmap
from pipeline.apply.provenance import META, SLUICE, Owned, owned, plain
from pipeline.apply.write import Target, without, write
from pipeline.errors import HeldError
from pipeline.lake.entries import Action
from pipeline.lake.log import Metadata, Snapshot, advanced
from pipeline.lake.protocol import column_types, padded, refuse
from pipeline.lake.store import open_store
from pipeline.lake.vectors import VectorFile
from pipeline.model import Account, Op, Order, Shard, Table
from pipeline.schema.column import Column
from pipeline.schema.typed import typed

Deletes = Callable[[pa.StringArray], pa.Table]
"""Keys -> key, source, shard, order, origin of their deletes in batches that are applied."""

Look = Callable[[pa.Table, Owned | None], Found]
"""Keys, and whose they are if that counts -> where they stand in the mirror."""


@dataclass(frozen=True, slots=True)
class TurnTask:
    """What one mirror is to be brought to, and from what.

    ``changes`` are the table's rows of the slice, of all ops.  ``metadata`` is the table's as the
    same commit makes it, if that adds columns.  ``floors`` are those the mirror remembers.
    ``known`` is None if nothing was ever applied: then no upsert can be older than a forgotten
    delete, and ``deletes`` is not asked.
    """

    table: Table
    snapshot: Snapshot
    columns: tuple[Column, ...]
    changes: pa.Table
    at: datetime
    deletes: Deletes
    known: AppliedBefore | None = None
    metadata: Metadata | None = None
    floors: Floors | None = None
    fills: tuple[Fill, ...] = ()
    adopted: Order | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of a turn's keys, and the rows that a truncate or a settle took: ``floored``."""

    inserted: int
    updated: int
    deleted: int
    noop: int
    again: int
    floored: int


@dataclass(frozen=True, slots=True, eq=False)
class Decided:
    """What becomes of each key of the slice, in the order of ``rows``; nothing is written yet.

    ``rows`` have the table's columns and ``_sluice``.  ``raised`` are the floors that the slice
    sets, below which the mirror's rows go; ``floors`` are all that are to be remembered.
    ``outlived`` counts the changes below those, which are not looked at.
    """

    folded: Folded
    rows: pa.Table
    found: Found
    verdicts: Verdicts
    raised: Floors
    floors: Mapping[Shard, Order]
    outlived: int = 0


@dataclass(frozen=True, slots=True)
class Written:
    """What a turn comes to, once ``actions`` are committed on ``version``.

    There may be none: the applied batch is committed all the same.  ``floors`` are to
    be remembered.  Where Spark is to write, ``decided`` is what.
    """

    version: int
    actions: tuple[Action, ...]
    counts: Counts
    account: Account
    floors: Mapping[Shard, Order]
    decided: Decided | None = None


def turn(task: TurnTask, *, footers: Footers | None = None) -> Written:
    """Work out and write one turn; *footers* may be kept from turn to turn.

    Raises:
        HeldError: the table must stand still; the reason says why.
    """
    mirror = _mirror(task, footers or Footers())
    made = decided(task, lambda keys, owners: find(keys, mirror, owners=owners))
    gone = gone_below(mirror, made.raised)
    floored = sum(len(positions) for positions in gone.values())
    _add_replaced(gone, made.verdicts, made.found)
    actions = _write(task, mirror, _standing(made.rows, made.verdicts), gone)
    counts = counts_of(made.verdicts, floored)
    _confirm(task, mirror, counts, actions)
    account = account_of(task, made, counts)
    return Written(task.snapshot.version, actions, counts, account, made.floors)


def decided(task: TurnTask, look: Look) -> Decided:
    """Fold and type the changes, *look* where their keys stand, and decide; writes nothing.

    Raises:
        HeldError: the table must stand still; the reason says why.
    """
    raised = _raised(task.changes)
    floors = highest(task.floors or {}, raised)
    changes, outlived_rows = _above(floors, _rows_of(task.changes, *ROW_OPS))
    folded = fold(changes, unique=task.table.unique_across_shards)
    _refuse_doubts(folded)
    rows = _typed(task, folded)
    found = look(_keys(task, rows), None if task.table.unique_across_shards else owned(folded.rows))
    verdicts = _withdrawn(task, folded, decide(folded, found, floors, raised))
    return Decided(folded, rows, found, verdicts, raised, floors, outlived_rows)


def _mirror(task: TurnTask, footers: Footers) -> MirrorFiles:
    refuse(task.snapshot)
    if task.snapshot.metadata.partition_columns:
        detail = f"{task.snapshot.uri} is partitioned, which Sluice does not write; rebuild it"
        raise HeldError("protocol", detail)
    return MirrorFiles(
        store=open_store(task.snapshot.uri),
        files=tuple(task.snapshot.files.values()),
        layout=Layout.of(task.snapshot.metadata),
        adoption=adoption_of(task),
        footers=footers,
    )


def adoption_of(task: TurnTask) -> Adoption:
    """What counts for the mirror's rows without ``_sluice``."""
    shards = task.table.shards
    return Adoption(task.adopted, shards[0] if len(shards) == 1 else None)


def _rows_of(changes: pa.Table, *ops: Op) -> pa.Table:
    names = pa.array([str(op) for op in ops], pa.string())
    return changes.filter(pc.is_in(plain(changes["op"]), value_set=names))


def _raised(changes: pa.Table) -> dict[Shard, Order]:
    """The floors that truncates and settles of the slice set; a few rows."""
    marks = _rows_of(changes, Op.TRUNCATE, Op.SETTLE).select(["source", "shard", "order"])
    return highest(
        *({Shard(row["source"], row["shard"]): Order(**row["order"])} for row in marks.to_pylist())
    )


def _above(floors: Floors, changes: pa.Table) -> tuple[pa.Table, int]:
    """The changes that a truncate or settle has not outlived, and how many it has.

    The others say nothing any more, and may have columns that were dropped since.
    """
    if not floors or not len(changes):
        return changes, 0
    gone = below(owned(changes), floors)
    return changes.filter(pa.array(~gone)), int(gone.sum())


def _refuse_doubts(folded: Folded) -> None:
    if folded.crossed is not None:
        detail = f"key {folded.crossed} has rows in two sources, whose orders cannot be compared"
        advice = "take `unique_across_shards` away, and rebuild the mirror"
        raise HeldError("crosses_sources", f"{detail}; {advice}")
    for row in folded.conflicts.to_pylist():
        order = Order(**row["order"])
        detail = f"key {row['key']} has two different changes at {order}, one place of its log"
        raise HeldError("conflict", detail)


def _typed(task: TurnTask, folded: Folded) -> pa.Table:
    """The folded rows in the mirror's columns and ``_sluice``."""
    texts = pc.coalesce(plain(folded.rows["after"]), plain(folded.rows["before"]))
    read = typed(texts, task.columns)
    if read.unknown:
        names = ", ".join(read.unknown[:5])
        detail = f"fields {names} are in no schema that has landed; it may still be on its way"
        raise HeldError("unknown_field", detail)
    if misread := int(pc.sum(read.misread).as_py() or 0):
        first = folded.rows["key"][pc.index(read.misread, True).as_py()]
        detail = f"{misread} rows hold a value their column's type cannot, first key {first}"
        raise HeldError("misread", detail)
    parts = [folded.rows[field.name].combine_chunks().cast(field.type) for field in META]
    meta = pa.StructArray.from_arrays(parts, fields=list(META))
    rows = read.rows.append_column(SLUICE, meta)
    return filled(rows, owned(folded.rows), task.fills) if len(rows) else rows


def _keys(task: TurnTask, rows: pa.Table) -> pa.Table:
    """The rows' keys in the mirror's types."""
    if odd := sorted(padded(task.snapshot) & set(task.table.key)):
        detail = f"key column {odd[0]} is CHAR(n), which Spark pads when it reads"
        raise HeldError("key_kind", f"{detail}; make it STRING")
    return rows.select(list(task.table.key)).cast(column_types(task.snapshot, task.table.key))


def _withdrawn(task: TurnTask, folded: Folded, verdicts: Verdicts) -> Verdicts:
    """Without inserts that a delete has outlived which the mirror no longer remembers."""
    if task.known is None:
        return verdicts
    doubts = doubtful(folded, verdicts, task.known)
    if not doubts.any():
        return verdicts
    keys = plain(folded.rows["key"]).filter(pa.array(doubts)).combine_chunks()
    return withdrawn(verdicts, doubts & outlived(folded, task.deletes(keys)))


def _add_replaced(gone: dict[int, BitMap64], verdicts: Verdicts, found: Found) -> None:
    """Add the positions of rows that were updated or deleted to those that are *gone*."""
    leave = np.isin(verdicts, (RowVerdict.UPDATE, RowVerdict.MOVE, RowVerdict.DELETE))
    file, position = found.file[leave], found.position[leave]
    for number in np.unique(file).tolist():
        positions = bitmap(position[file == number])
        gone[number] = gone.get(number, BitMap64()) | positions


def _standing(rows: pa.Table, verdicts: Verdicts) -> pa.Table:
    stand = np.isin(verdicts, (RowVerdict.INSERT, RowVerdict.UPDATE, RowVerdict.MOVE))
    return rows.filter(pa.array(stand))


def _write(
    task: TurnTask, mirror: MirrorFiles, rows: pa.Table, gone: Mapping[int, BitMap64]
) -> tuple[Action, ...]:
    vector_file = VectorFile()
    target = Target(mirror.store, task.metadata or task.snapshot.metadata, task.table.key, task.at)
    actions = list(without(mirror, gone, vector_file, task.at))
    if len(rows):
        actions.append(write(rows, target))
    vector_file.save(mirror.store)
    return tuple(actions)


def counts_of(verdicts: Verdicts, floored: int) -> Counts:
    """Count each verdict once; *floored* comes from the mirror."""
    number = np.bincount(verdicts, minlength=len(RowVerdict)).tolist()
    return Counts(
        inserted=number[RowVerdict.INSERT],
        updated=number[RowVerdict.UPDATE] + number[RowVerdict.MOVE],
        deleted=number[RowVerdict.DELETE],
        noop=number[RowVerdict.NOOP],
        again=number[RowVerdict.AGAIN],
        floored=floored,
    )


def _confirm(
    task: TurnTask, mirror: MirrorFiles, counts: Counts, actions: Sequence[Action]
) -> None:
    """Compare *counts* with the log's own before and after the turn.

    Raises:
        HeldError: ``account``, rows were lost or doubled.
    """
    following = advanced(task.snapshot, actions, entry="")
    new = [file for path, file in following.files.items() if path not in task.snapshot.files]
    made = sum(mirror.records(file) for file in new)
    before = mirror.count()
    after = replace(mirror, files=tuple(following.files.values())).count()
    gone = counts.deleted + counts.floored
    if made != counts.inserted + counts.updated or before + counts.inserted - gone != after:
        detail = (
            f"{counts.inserted} inserted, {counts.updated} updated, {counts.deleted} and "
            f"{counts.floored} deleted, but the mirror would go from {before} to {after} rows, "
            f"{made} of them new; report this"
        )
        raise HeldError("account", detail)


def account_of(task: TurnTask, made: Decided, counts: Counts) -> Account:
    """The account of a turn that changes as many rows as *counts* says."""
    changes, folded = task.changes, made.folded
    counted = Counted(
        read=len(changes),
        rows=folded.total,
        kept=len(folded.rows),
        distinct=folded.distinct,
        ordered=len(_rows_of(changes, Op.TRUNCATE, Op.SETTLE)),
        tombstones=len(_rows_of(changes, Op.TOMBSTONE)),
        quarantined=len(_rows_of(changes, Op.ERROR)),
    )
    applied = counts.inserted + counts.updated + counts.deleted
    return balance(counted, applied, counts.noop + made.outlived, counts.again)
