"""What does a turn leave in the table's folder: one new file, one of vectors; nothing is committed.

A file sorted by key has row groups that later turns can pass over.  Of a file that lost rows only
its vector is new; one that lost all goes.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from pipeline.lake import actions, vectors
from pipeline.lake.columns import fitted
from pipeline.lake.entries import Action
from pipeline.lake.log import Metadata
from pipeline.lake.statistics import of
from pipeline.lake.store import Store
from pipeline.lake.vectors import VectorFile
from pipeline.tables.delta.mirror_files import MirrorFiles

GROUP_ROWS = 122_880  # as others have them; 8,192 divides it
_SAMPLE = 4_096
_REPETITIVE = 4  # times that a value occurs in the sample, on average
_LARGE = 1 << 30


@dataclass(frozen=True, slots=True)
class Target:
    """Where new files go, and what they must be like."""

    store: Store
    metadata: Metadata
    key: tuple[str, ...]
    at: datetime
    compression: str = "snappy"


def write(rows: pa.Table, target: Target, *, data_change: bool = True) -> Action:
    """Write *rows* sorted by key to one new file; its ``add``.

    In: at least one row of the table's columns, under its names, in any order.

    Raises:
        HeldError: ``schema``, they are not the table's columns.
    """
    name = f"part-00000-{uuid.uuid4()}-c000.{target.compression}.parquet"
    size = 0
    with target.store.sink(name) as output:
        writer: pq.ParquetWriter | None = None
        for group in _sorted(rows, target.key):
            group_fitted = fitted(group, target.metadata)
            if writer is None:
                writer = _writer(output, group_fitted, target.compression)
            writer.write_table(group_fitted, row_group_size=GROUP_ROWS)
        if writer is not None:
            writer.close()
        size = output.tell()
    stats = of(rows, target.metadata)
    return actions.added(name, size=size, at=target.at, stats=stats, data_change=data_change)


def without(
    mirror: MirrorFiles, gone: Mapping[int, BitMap64], vector_file: VectorFile, at: datetime
) -> Iterator[Action]:
    """Let files of *mirror* (by number) lose rows that they still had; their actions.

    The vectors are in *vector_file*, which is still to be saved.
    """
    for number, positions in gone.items():
        file = mirror.files[number]
        records = int(mirror.footers.of(mirror.store, file).metadata.num_rows)
        old = vectors.read(mirror.store, file.vector) if file.vector else BitMap64()
        all_gone = old | positions
        yield actions.removed(file, at=at)
        if len(all_gone) < records:
            yield actions.marked(file, vector_file.add(all_gone), records=records)


def _sorted(rows: pa.Table, key: Sequence[str]) -> Iterator[pa.Table]:
    """Row groups of *rows*, sorted by key; as they come where none is known."""
    if not key:
        yield from (rows.slice(first, GROUP_ROWS) for first in range(0, len(rows), GROUP_ROWS))
        return
    names = [str(number) for number in range(len(key))]
    keys = pa.Table.from_arrays([rows[name] for name in key], names=names)
    by_key = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in names])
    if rows.nbytes > _LARGE:  # `take` joins what it takes from, which may pass 2 GiB
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

    Measured: a dictionary of values that do not repeat costs three times the whole writing, and
    differences are read ten times as fast as what is compressed: keys and orders are, every turn.
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
