"""One turn of a mirror by our own writer: found, decided and written; not committed.

It leaves files that nobody knows of until its actions are committed on the version it was made
from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from pipeline.apply.adoption import Adoption
from pipeline.apply.decide import Found, Verdicts, leaves, stands
from pipeline.apply.mirror_snapshot import keeps_archived
from pipeline.apply.provenance import Owned
from pipeline.apply.turn import Counts, TurnTask, Written, account_of, counts_of, decided
from pipeline.apply.validation import Occurrences, Search
from pipeline.errors import HeldError
from pipeline.lake.entries import Action
from pipeline.lake.log import Snapshot, advanced
from pipeline.lake.protocol import column_types, padded, refuse
from pipeline.lake.store import Store, open_store
from pipeline.lake.vectors import VectorFile
from pipeline.tables.delta.commits import DELETED, INSERTED
from pipeline.tables.delta.data_file import Footers
from pipeline.tables.delta.find import find, occurrences
from pipeline.tables.delta.layout import Layout
from pipeline.tables.delta.mirror_files import MirrorFiles
from pipeline.tables.delta.outlived_rows import gone_below
from pipeline.tables.delta.peek import values
from pipeline.tables.delta.positions import bitmap
from pipeline.tables.delta.write import Target, without, write

_footers = Footers()  # of this process: a mirror's files stay, and are looked at in each turn


def turn(
    task: TurnTask[Snapshot], *, footers: Footers = _footers, into: Store | None = None
) -> Written[tuple[Action, ...]]:
    """Work out and write one turn; *footers* are kept from turn to turn.

    What it leaves lies *into* another folder than the mirror's, where one is given.

    Raises:
        HeldError: the table must stand still; the reason says why.
    """
    mirror = _mirror(footers, task.snapshot, task.adoption)
    made = decided(
        task,
        partial(_find, task.snapshot, mirror),
        partial(_searching, footers),
        partial(values, mirror),
    )
    gone = gone_below(mirror, made.raised)
    floored = sum(len(positions) for positions in gone.values())
    _add_replaced(gone, made.verdicts, made.found)
    rows = made.rows.filter(pa.array(stands(made.verdicts)))
    actions = _write(task, mirror, rows, gone, into or mirror.store)
    counts = counts_of(made.verdicts, floored)
    _confirm(task, mirror, counts, actions)
    account = account_of(task, made, counts)
    return Written(task.snapshot.version, actions, counts, account, made.floors)


def _mirror(footers: Footers, snapshot: Snapshot, adoption: Adoption) -> MirrorFiles:
    refuse(snapshot)
    if snapshot.metadata.partition_columns:
        detail = f"{snapshot.uri} is partitioned, which Sluice does not write; rebuild it"
        raise HeldError("protocol", detail)
    return MirrorFiles(
        store=open_store(snapshot.uri),
        files=tuple(snapshot.files.values()),
        layout=Layout.of(snapshot.metadata),
        adoption=adoption,
        footers=footers,
        keeps=keeps_archived(snapshot),
    )


def keys_in(snapshot: Snapshot, keys: pa.Table) -> pa.Table:
    """The *keys* in the mirror's types.

    Raises:
        HeldError: ``key_kind``.
    """
    if odd := sorted(padded(snapshot) & set(keys.column_names)):
        detail = f"key column {odd[0]} is CHAR(n), which Spark pads when it reads"
        raise HeldError("key_kind", f"{detail}; make it STRING")
    return keys.cast(column_types(snapshot, keys.column_names))


def _find(snapshot: Snapshot, mirror: MirrorFiles, keys: pa.Table, owners: Owned | None) -> Found:
    return find(keys_in(snapshot, keys), mirror, owners=owners)


def _searching(footers: Footers, snapshot: Snapshot, adoption: Adoption) -> Search:
    def search(values: pa.Table) -> Occurrences:
        return occurrences(keys_in(snapshot, values), _mirror(footers, snapshot, adoption))

    return search


def _add_replaced(gone: dict[int, BitMap64], verdicts: Verdicts, found: Found) -> None:
    """Add the positions of rows that were updated or deleted to those that are *gone*."""
    leave = leaves(verdicts)
    file, position = found.file[leave], found.position[leave]
    for number in np.unique(file).tolist():
        positions = bitmap(position[file == number])
        gone[number] = gone.get(number, BitMap64()) | positions


def _write(
    task: TurnTask[Snapshot],
    mirror: MirrorFiles,
    rows: pa.Table,
    gone: Mapping[int, BitMap64],
    into: Store,
) -> tuple[Action, ...]:
    vector_file = VectorFile()
    target = Target(into, task.snapshot.metadata, task.table.key, task.at)
    actions = list(without(mirror, gone, vector_file, task.at))
    if len(rows):
        actions.append(write(rows, target))
    vector_file.save(into)
    return tuple(actions)


def _confirm(
    task: TurnTask[Snapshot], mirror: MirrorFiles, counts: Counts, actions: Sequence[Action]
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
    came = counts.inserted + counts.updated + counts.archived
    if made != came or before + counts.inserted - gone != after:
        detail = (
            f"{counts.inserted} inserted, {counts.updated} updated, {counts.archived} archived, "
            f"{counts.deleted} and {counts.floored} deleted, but the mirror would go from "
            f"{before} to {after} rows, {made} of them new; report this"
        )
        raise HeldError("account", detail)


def metrics(counts: Counts) -> dict[str, int]:
    """The rows that a turn changes, under Delta's names."""
    return {
        INSERTED: counts.inserted,
        "numTargetRowsUpdated": counts.updated + counts.archived,
        DELETED: counts.deleted + counts.floored,
    }
