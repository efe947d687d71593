"""Rewrites files of a mirror: for compaction, and for added or widened columns.

A rewrite leaves out deleted rows and uses the current columns and types. Rows keep their `_sluice`,
so no change is applied to them twice. New columns and the files whose rows change go into one
commit.

Compaction aims at the read cost of a freshly written mirror, counted in rows. A deleted row costs
as much as any other, and a file costs `OPENING` rows. Measured with five columns: 0.3 to 0.7 ms for
each file and 0.2 us for each row. The rewriting is bounded. A row of a large file is rewritten once
for a few deleted ones. A row of a small file is rewritten a few times until it is in a large file.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import numpy as np
import pyarrow as pa
import structlog

from pipeline.apply.decide import Fill, fill_defaults
from pipeline.apply.mirror import CommitStamp, commit_note, following_note
from pipeline.apply.row_metadata import Adoption
from pipeline.apply.schema_evolution import SchemaDelta, TargetSchema, find_delta, lake_schema
from pipeline.delta import actions
from pipeline.delta.actions import alter_metadata
from pipeline.delta.commit import commit_actions, create_table
from pipeline.delta.log import Action, ActiveFile, Metadata, Snapshot
from pipeline.delta.protocol import column_types
from pipeline.delta.store import Store
from pipeline.delta.types import to_arrow
from pipeline.errors import HeldError
from pipeline.model import Table
from pipeline.tables.delta.files import DataFile, Layout, MirrorFiles, is_among, open_file
from pipeline.tables.delta.merge import Target, write_rows

_WINDOW = 512 << 20  # bytes in memory that are sorted together, about four times a file's bytes
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Actions that replace old files by new ones, and the row counts of the new ones."""

    actions: tuple[Action, ...]
    files: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Total rows of the new files."""
        return sum(self.files)


def rewrite_files(
    mirror: MirrorFiles,
    target: Target,
    *,
    fills: Sequence[Fill] = (),
    data_change: bool = True,
    window: int = _WINDOW,
) -> Rewritten:
    """Write all rows of *mirror*'s files to new files, each sorted by key.

    In: *mirror* holds the files to be removed; *target* has the table's current columns. About
    *window* bytes are in memory; more rows become several files.

    Raises:
        HeldError: ``schema``, a value does not fit its column's new type; ``no_shard``;
            ``account``, rows were lost or duplicated; or a file cannot be read.
    """
    made: list[Action] = []
    files: list[int] = []
    for part in _windows(_rows(mirror, target, fills), window):
        files.append(len(part))
        made.append(write_rows(part, target, data_change=data_change))
    went = [
        actions.remove_file(file, at=target.at, data_change=data_change) for file in mirror.files
    ]
    if sum(files) != (wanted := mirror.count()):
        detail = f"a rewrite of {wanted} rows made {sum(files)} rows; report this"
        raise HeldError("account", detail)
    return Rewritten((*went, *made), tuple(files))


def _rows(mirror: MirrorFiles, target: Target, fills: Sequence[Fill]) -> Iterator[pa.Table]:
    schema = to_arrow(target.metadata.schema_string)
    for file in mirror.files:
        with open_file(mirror.store, file, mirror.footers) as data:
            for group, first in data.groups:
                rows = fit_columns(mirror.layout.of_files(data.rows(group)), schema, data.name)
                rows = _alive(rows, data, first)
                yield fill_defaults(rows, mirror.owners(rows), fills)


def _alive(rows: pa.Table, data: DataFile, first: int) -> pa.Table:
    """The rows of a row group that are not deleted; filters do not accept views of texts."""
    if not data.gone:
        return rows
    return rows.filter(pa.array(~is_among(data.gone, np.arange(first, first + len(rows)))))


def fit_columns(rows: pa.Table, schema: pa.Schema, name: str) -> pa.Table:
    """The rows of file *name* with all columns of *schema*; columns that it does not have are null.

    Raises:
        HeldError: ``schema``, a value does not fit its column's new type.
    """
    columns = []
    for one in schema:
        there = one.name in rows.column_names
        try:
            columns.append(rows[one.name].cast(one.type) if there else _nulls(len(rows), one.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            detail = f"{name}: column {one.name} does not become {one.type}: {error}"
            raise HeldError("schema", f"{detail}; rebuild the mirror") from error
    fields = [pa.field(one.name, one.type) for one in schema]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _nulls(number: int, kind: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([pa.nulls(number, kind)])


def _windows(parts: Iterator[pa.Table], window: int) -> Iterator[pa.Table]:
    """Join parts to at least *window* bytes; the excess is less than one part."""
    held: list[pa.Table] = []
    size = 0
    for part in parts:
        if len(part):
            held.append(part)
            size += part.nbytes
        if size >= window:
            yield pa.concat_tables(held)
            held, size = [], 0
    if held:
        yield pa.concat_tables(held)


PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "20"}
REWRITES = "sluice: columns"


def create_mirror(store: Store, shape: TargetSchema, stamp: CommitStamp) -> Snapshot:
    """Create an empty mirror."""
    return create_table(
        store,
        lake_schema(shape.schema.columns),
        clock=stamp.at,
        configuration={**PROPERTIES, **shape.texts},
        note=commit_note(-1, -1, stamp.lane),
    )


def find_schema_delta(snapshot: Snapshot, shape: TargetSchema) -> SchemaDelta | None:
    """The changes that the mirror needs; see :func:`pipeline.apply.schema_evolution.find_delta`."""
    return find_delta(snapshot, partial(column_types, snapshot), shape)


def note_rewrite(table: Table, snapshot: Snapshot) -> None:
    """Log that all rows of a mirror are about to be rewritten, which takes long for a large one."""
    files = len(snapshot.files)
    log.info("rewrites all rows of a mirror", table=table.name, rows=snapshot.rows, files=files)


def follow_schema(
    store: Store, snapshot: Snapshot, shape: TargetSchema, stamp: CommitStamp
) -> Snapshot:
    """The mirror with the columns of *shape*; the same snapshot if it has them.

    Raises:
        HeldError: a change cannot be followed; names it and the statement that fixes it.
        LostRaceError: another writer has committed meanwhile.
    """
    step = find_schema_delta(snapshot, shape)
    actions = alter_metadata(snapshot, step.schema, step.remembered) if step is not None else ()
    if step is None or not actions:
        return snapshot
    more: Sequence[Action] = ()
    if step.rewrites:
        note_rewrite(shape.table, snapshot)
        more = _rewritten(store, snapshot, shape.table, actions, fills=step.fills, clock=stamp.at)
    return commit_actions(
        store,
        snapshot,
        (*actions, *more),
        operation=REWRITES,
        clock=stamp.at,
        note=following_note(snapshot, -1, stamp.lane),
    )


def _rewritten(
    store: Store,
    snapshot: Snapshot,
    table: Table,
    actions: Sequence[Action],
    *,
    fills: Sequence[Fill],
    clock: datetime,
) -> tuple[Action, ...]:
    described = next(action["metaData"] for action in actions if "metaData" in action)
    mirror = MirrorFiles(
        store=store,
        files=tuple(snapshot.files.values()),
        layout=Layout.of(snapshot.metadata),
        adoption=Adoption.of(table),
    )
    target = Target(store, Metadata.of(described), table.key, clock)
    return rewrite_files(mirror, target, fills=fills).actions


TOGETHER = 10  # files of about one size that are worth joining
LARGE = 1_000_000  # rows; a larger file is not joined with others
SIZES = (10_000, 100_000, LARGE)
GONE = 0.3  # share of deleted rows from which on a file is rewritten
BORNE = 0.2  # accepted extra cost, as a share of a fresh mirror's
OPENING = 3_000  # rows of five columns; measured: 0.3 to 0.7 ms a file, 0.2 us a row
AT_ONCE = 2_000_000  # rows that one run rewrites


def files_to_compact(files: Collection[ActiveFile], whole: int = LARGE) -> tuple[ActiveFile, ...]:
    """Files of a mirror that are to be compacted together; empty if its read cost is acceptable.

    *whole*: rows from which on a file counts as large; compacted files may have fewer than
    ``LARGE``.
    """
    return _at_once(sorted(_alike(files, whole), key=_worn_rows)) or _costly(files, whole)


def _alike(files: Iterable[ActiveFile], whole: int) -> Iterable[ActiveFile]:
    """Files with many deleted rows, and small ones if there are many of about one size."""
    rooms: dict[int, list[ActiveFile]] = {}
    for file in files:
        if _gone(file) > GONE * _worn_rows(file):
            yield file
        elif _left(file) < whole:
            size = next((n for n, limit in enumerate(SIZES) if _left(file) < limit), None)
            if size is not None:
                rooms.setdefault(size, []).append(file)
    for same in rooms.values():
        if len(same) >= TOGETHER:
            yield from same


def _costly(files: Collection[ActiveFile], whole: int) -> tuple[ActiveFile, ...]:
    """Files to rewrite if the read cost is too high; those with the highest gain per row first.

    They reduce the extra cost to half of the limit, so that the next few changes do not exceed it
    again. However small the mirror, fewer files than are worth joining are accepted.
    """
    fresh = _fresh(files)
    borne = max(BORNE * fresh, TOGETHER * OPENING)
    over = sum(_worn_rows(file) + OPENING for file in files) - fresh
    if over <= borne:
        return ()
    best = sorted(files, key=lambda file: _gain(file, whole) / (_left(file) + OPENING))
    found: list[ActiveFile] = []
    over += OPENING  # the file that replaces them
    while best and over > borne / 2:
        found.append(best.pop())
        over -= _gain(found[-1], whole)
    kept = _at_once(found)
    if len(kept) > 1 or any(map(_gone, kept)):
        return kept
    return next(((file,) for file in found if _gone(file)), ())  # a single file, however large


def _at_once(found: Iterable[ActiveFile]) -> tuple[ActiveFile, ...]:
    """The first of *found* that one run may rewrite; at least one."""
    kept: list[ActiveFile] = []
    rows = 0
    for file in found:
        rows += _worn_rows(file)
        if kept and rows > AT_ONCE:
            break
        kept.append(file)
    return tuple(kept)


def _fresh(files: Iterable[ActiveFile]) -> int:
    """The read cost after a compaction of all *files*."""
    rows = sum(map(_left, files))
    return rows + OPENING * max(1, math.ceil(rows / LARGE))


def _gain(file: ActiveFile, whole: int) -> int:
    """The read cost that is saved if the file's rows are moved to a file with many others."""
    return _gone(file) + (OPENING if _left(file) < whole else 0)


def _left(file: ActiveFile) -> int:
    return _worn_rows(file) - _gone(file)


def _worn_rows(file: ActiveFile) -> int:
    return file.records or 0


def _gone(file: ActiveFile) -> int:
    return int(file.vector["cardinality"]) if file.vector else 0
