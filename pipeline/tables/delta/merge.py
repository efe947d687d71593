"""Merges a slice with Sluice's own writer: finds, decides and writes, but does not commit.

The new files are not referenced until the actions are committed, on the version that the merge
was planned from. A merge leaves at most one data file and one file of deletion vectors.

A data file is sorted by key, so that later merges can skip its row groups. A file that loses
rows gets a new deletion vector only; a file that loses all rows is removed.

A commit in the Delta log changes data unless all its actions say that they only move rows.
Measured: a dictionary of values that do not repeat takes three times as long as the whole
write. Measured: delta encoding of keys and orders is read ten times as fast as compressed
values.
"""

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from pipeline.apply.decide import Found, Verdicts, removes_row, writes_row
from pipeline.apply.invariants import Occurrences, Search
from pipeline.apply.merge import (
    MergeResult,
    MergeTask,
    RowCounts,
    account_for,
    count_rows,
    count_written,
    plan_merge,
)
from pipeline.apply.mirror import Commit, FileState, keeps_archived
from pipeline.apply.row_metadata import Adoption, RowOrigins
from pipeline.delta import actions, deletion_vectors
from pipeline.delta.deletion_vectors import VectorFile
from pipeline.delta.log import Action, Metadata, Snapshot, advance_snapshot, shape_of
from pipeline.delta.protocol import column_types, fit_rows, padded_columns, require_writable
from pipeline.delta.statistics import collect_statistics
from pipeline.delta.store import Store, open_store
from pipeline.errors import HeldError
from pipeline.minute_counts import bounded
from pipeline.tables.delta.files import Footers, Layout, MirrorFiles, to_bitmap
from pipeline.tables.delta.find import find_occurrences, find_rows, read_values, rows_below_floor

INSERTED, DELETED = "numTargetRowsInserted", "numTargetRowsDeleted"


def read_commit(version: int, lines: Iterable[str], *, entry: str = "") -> Commit:
    """Parse the actions of one log entry, one JSON object per line."""
    info: Mapping[str, Any] = {}
    files: dict[str, list[Action]] = {"add": [], "remove": [], "cdc": []}
    shape: str | None = None
    txns: dict[str, int] = {}
    for line in lines:
        action = json.loads(line) if line.strip() else {}
        info = action.get("commitInfo") or info
        for kind in files.keys() & action.keys():
            files[kind] += [action[kind]] if action[kind] else []
        shape = shape_of(action["metaData"]) if action.get("metaData") is not None else shape
        if action.get("txn"):
            txns[action["txn"]["appId"]] = int(action["txn"]["version"])
    metrics = info.get("operationMetrics") or {}
    at = datetime.fromtimestamp(int(info.get("timestamp", 0)) / 1_000, UTC)
    return Commit(
        version=version,
        operation=str(info.get("operation", "")),
        at=at,
        # a file without the field may have changed rows
        data_changing=any(one.get("dataChange", True) for all_ in files.values() for one in all_),
        note=_note(info.get("userMetadata")),
        txns=txns,
        parameters=info.get("operationParameters") or {},
        metrics=metrics,
        shape=shape,
        came=frozenset(map(_state, files["add"])),
        went=frozenset(map(_state, files["remove"])),
        gained=_number(metrics.get(INSERTED)) - _number(metrics.get(DELETED)),
        entry=entry,
    )


def _number(value: object) -> int:
    return int(str(value)) if str(value).isdecimal() else 0


def _state(file: Action) -> FileState:
    return unquote(str(file.get("path", ""))), deletion_vectors.vector_identity(
        file.get("deletionVector")
    )


def _note(text: str | None) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text


GROUP_ROWS = 122_880  # the usual number; 8,192 divides it
_SAMPLE = 4_096
_REPETITIVE = 4  # average repetitions of a value in the sample
LARGE_FILE = 1 << 30


@dataclass(frozen=True, slots=True)
class Target:
    """The store of new files, and their required format."""

    store: Store
    metadata: Metadata
    key: tuple[str, ...]
    at: datetime
    compression: str = "snappy"


def write_rows(rows: pa.Table, target: Target, *, data_change: bool = True) -> Action:
    """Write *rows* sorted by key to one new file; return its ``add`` action.

    In: at least one row of the table's columns, with its names, in any order.

    Raises:
        HeldError: ``schema``, they are not the table's columns.
    """
    name = f"part-00000-{uuid.uuid4()}-c000.{target.compression}.parquet"
    size = 0
    with target.store.sink(name) as output:
        writer: pq.ParquetWriter | None = None
        for group in _sorted(rows, target.key):
            group_fitted = fit_rows(group, target.metadata)
            if writer is None:
                writer = _writer(output, group_fitted, target.compression)
            writer.write_table(group_fitted, row_group_size=GROUP_ROWS)
        if writer is not None:
            writer.close()
        size = output.tell()
    stats = collect_statistics(rows, target.metadata)
    return actions.add_file(name, size=size, at=target.at, stats=stats, data_change=data_change)


def remove_rows(
    mirror: MirrorFiles, gone: Mapping[int, BitMap64], vector_file: VectorFile, at: datetime
) -> Iterator[Action]:
    """Yield the actions that delete rows of *mirror*'s files; *gone*: file number -> positions.

    The rows must not be deleted yet. The vectors are in *vector_file*, which must still be saved.
    """
    for number, positions in gone.items():
        file = mirror.files[number]
        records = int(mirror.footers.of(mirror.store, file).metadata.num_rows)
        old = deletion_vectors.read_vector(mirror.store, file.vector) if file.vector else BitMap64()
        all_gone = old | positions
        yield actions.remove_file(file, at=at)
        if len(all_gone) < records:
            yield actions.add_vector(file, vector_file.add(all_gone), records=records)


def _sorted(rows: pa.Table, key: Sequence[str]) -> Iterator[pa.Table]:
    """Row groups of *rows*, sorted by key; in their order if no key is known."""
    if not key:
        yield from (rows.slice(first, GROUP_ROWS) for first in range(0, len(rows), GROUP_ROWS))
        return
    names = [str(number) for number in range(len(key))]
    keys = pa.Table.from_arrays([rows[name] for name in key], names=names)
    by_key = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in names])
    if rows.nbytes > LARGE_FILE:  # `take` joins its input, which may exceed 2 GiB
        rows = rows.cast(pa.schema([_large(field) for field in rows.schema]))
    for first in range(0, len(rows), GROUP_ROWS):
        yield rows.take(by_key.slice(first, GROUP_ROWS))


def _large(field: pa.Field) -> pa.Field:
    if pa.types.is_string(field.type):
        return field.with_type(pa.large_string())
    return field.with_type(pa.large_binary()) if pa.types.is_binary(field.type) else field


def _writer(output: object, rows: pa.Table, compression: str) -> pq.ParquetWriter:
    repetitive, numbers = _encoded(rows)
    return pq.ParquetWriter(
        output,
        rows.schema,
        compression=compression,
        compression_level=1 if compression == "zstd" else None,
        use_dictionary=repetitive,
        column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
        store_schema=False,
        write_page_index=True,
    )


def _encoded(rows: pa.Table) -> tuple[list[str], list[str]]:
    """Columns that are written as dictionaries, and those as differences of whole numbers.

    Measured: a dictionary of values that do not repeat costs three times the whole write.
    Differences are read ten times as fast as compressed values, and each merge reads keys and
    orders.
    """
    sample = rows.slice(0, _SAMPLE)
    while any(pa.types.is_struct(field.type) for field in sample.schema):
        sample = sample.flatten()
    repetitive, numbers = [], []
    for name, column in zip(sample.column_names, sample.columns, strict=True):
        if pa.types.is_nested(column.type) or _repeats(column):
            repetitive.append(name)
        elif _is_number(column.type):
            numbers.append(name)
    return repetitive, numbers


def _repeats(column: pa.ChunkedArray) -> bool:
    return bool(pc.count_distinct(column, mode="all").as_py() * _REPETITIVE <= len(column))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind))


_footers = Footers()  # of this process, because each merge reads the same files


def run_merge(
    task: MergeTask[Snapshot], *, footers: Footers = _footers, into: Store | None = None
) -> MergeResult[tuple[Action, ...]]:
    """Plan and write one merge; *footers* are cached between merges.

    New files are written to *into*, by default to the mirror's folder.

    Raises:
        HeldError: the table must be held; see its reason.
    """
    mirror = mirror_files(footers, task.snapshot, task.adoption)
    made = plan_merge(
        task,
        partial(find_keys, task.snapshot, mirror),
        partial(make_search, footers),
        partial(read_values, mirror),
    )
    gone = rows_below_floor(mirror, made.raised)
    floored = sum(len(positions) for positions in gone.values())
    _add_replaced(gone, made.verdicts, made.found)
    rows = made.rows.filter(pa.array(writes_row(made.verdicts)))
    actions = _write(task, mirror, rows, gone, into or mirror.store)
    counts = count_rows(made.verdicts, floored)
    _confirm(task, mirror, counts, actions)
    account = account_for(task, made, counts)
    written = bounded(count_written(made, counts))
    return MergeResult(task.snapshot.version, actions, counts, account, made.floors, written)


def mirror_files(footers: Footers, snapshot: Snapshot, adoption: Adoption) -> MirrorFiles:
    """Return the active files of a mirror that Sluice may write.

    Raises:
        HeldError: ``protocol``.
    """
    require_writable(snapshot)
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


def cast_keys(snapshot: Snapshot, keys: pa.Table) -> pa.Table:
    """The *keys*, cast to the mirror's types.

    Raises:
        HeldError: ``key_kind``.
    """
    if odd := sorted(padded_columns(snapshot) & set(keys.column_names)):
        detail = f"key column {odd[0]} is CHAR(n), which Spark pads when it reads"
        raise HeldError("key_kind", f"{detail}; make it STRING")
    return keys.cast(column_types(snapshot, keys.column_names))


def find_keys(
    snapshot: Snapshot, mirror: MirrorFiles, keys: pa.Table, owners: RowOrigins | None
) -> Found:
    """Find the rows of *keys*, cast to the mirror's types, in its files."""
    return find_rows(cast_keys(snapshot, keys), mirror, owners=owners)


def make_search(footers: Footers, snapshot: Snapshot, adoption: Adoption) -> Search:
    """Return a function that finds where values occur in the mirror at *snapshot*."""

    def search(values: pa.Table) -> Occurrences:
        return find_occurrences(
            cast_keys(snapshot, values), mirror_files(footers, snapshot, adoption)
        )

    return search


def _add_replaced(gone: dict[int, BitMap64], verdicts: Verdicts, found: Found) -> None:
    """Add the positions of rows that were updated or deleted to those that are *gone*."""
    leave = removes_row(verdicts)
    file, position = found.file[leave], found.position[leave]
    for number in np.unique(file).tolist():
        positions = to_bitmap(position[file == number])
        gone[number] = gone.get(number, BitMap64()) | positions


def _write(
    task: MergeTask[Snapshot],
    mirror: MirrorFiles,
    rows: pa.Table,
    gone: Mapping[int, BitMap64],
    into: Store,
) -> tuple[Action, ...]:
    vector_file = VectorFile()
    target = Target(into, task.snapshot.metadata, task.table.key, task.at)
    actions = list(remove_rows(mirror, gone, vector_file, task.at))
    if len(rows):
        actions.append(write_rows(rows, target))
    vector_file.save(into)
    return tuple(actions)


def _confirm(
    task: MergeTask[Snapshot], mirror: MirrorFiles, counts: RowCounts, actions: Sequence[Action]
) -> None:
    """Compare *counts* with the log's own row counts before and after the merge.

    Raises:
        HeldError: ``account``, rows were lost or duplicated.
    """
    following = advance_snapshot(task.snapshot, actions, entry="")
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


def commit_metrics(counts: RowCounts) -> dict[str, int]:
    """The rows that a merge changes, by Delta's metric names."""
    return {
        INSERTED: counts.inserted,
        "numTargetRowsUpdated": counts.updated + counts.archived,
        DELETED: counts.deleted + counts.floored,
    }
