"""Writes the sorted data files of the change log, and fills in their batch number afterwards.

Rows are sorted by kind (rows, deletes, schema events, the rest), table and order. Row groups
are small and have a page index, so a reader of one table reads few bytes. Rows that exceed
memory are added as several runs, each sorted separately. Readers must use the bounds of row
groups and must not rely on an order across runs. Each row group has a Bloom filter of its keys, as
small as they are few, so a search for one key skips groups whose bounds are wide.

A file may be written before its batch number is known. Its rows then have two random
placeholders for the batch and its receive time; the numbers occur nowhere else. Each is the
only value of its column (a dictionary of one value, uncompressed, and bounds), so its bytes can
be replaced. The result is read back before a commit names the file. If it is wrong, the rows
are written again.
"""

import json
import secrets
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.changelog.table import CHANGES, Stamp
from pipeline.delta import statistics
from pipeline.delta.actions import add_file
from pipeline.delta.log import Action, Metadata
from pipeline.delta.store import Store
from pipeline.model import ORDER_PARTS, Op

PARTITION = "dt"
GROUP = 4096  # rows of a row group
LARGEST = 16 * 2**20  # bytes of a row group with more than one row
FALSE_POSITIVES = 0.01  # of a filter, at most; 4,096 keys get 8 KiB, where 0.0014 was measured
STORED = pa.schema([column for column in CHANGES if column.name != PARTITION])
_KINDS = {Op.CREATE: 0, Op.UPDATE: 0, Op.READ: 0, Op.DELETE: 1, Op.DDL: 2}
_REST = 3
_FEW = [  # columns of few values; a dictionary of any other costs more than it gains
    *("lane", "batch", "source", "shard", "table", "op", "origin", "topic", "partition"),
    *("received", "snapshot", "schema_id", "error", "order.epoch", "order.log"),
]
_BOUNDED = [  # columns used in searches; before, after and raw are long, and not used
    *("lane", "batch", "source", "shard", "table", "op", "key", "origin"),
    *("topic", "partition", "offset"),
    *(f"order.{part}" for part in ORDER_PARTS),
]
_PLAIN = ("batch", "received")  # each has one value, which may be replaced later


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that no commit names yet, with the content of its ``add`` action.

    ``path`` is relative to the table's folder; ``stats`` is JSON text.
    """

    path: str
    partition: Mapping[str, str]
    size: int
    modified: datetime
    stats: str
    records: int

    def added(self, at: datetime, *, data_change: bool = True) -> Action:
        """Return the action that adds it to the table."""
        return add_file(
            self.path,
            size=self.size,
            at=at,
            stats=json.loads(self.stats),
            partition=self.partition,
            data_change=data_change,
        )


@dataclass(eq=False)
class SortedFile:
    """Writes one file; no file exists before the first run, or if the block fails.

    ``received`` is the batch's instant: its day is the file's partition.
    """

    store: Store
    metadata: Metadata
    name: str
    received: datetime
    written: WrittenFile | None = None
    _open: ExitStack = field(default_factory=ExitStack, repr=False)
    _output: Any = field(default=None, repr=False)
    _writer: Any = field(default=None, repr=False)
    _stats: dict[str, Any] = field(default_factory=dict, repr=False)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *failure: Any) -> None:
        """Finish the file, durably, and set ``written``; it remains None without a run."""
        try:
            if failure[0] is None:
                self._finish()
        finally:
            if self._writer is not None:
                with suppress(OSError, pa.ArrowException):
                    self._writer.close()
            self._open.__exit__(*failure)

    def add(self, batches: list[pa.RecordBatch]) -> None:
        """Append a run: all of these rows of ``CHANGES``, at least one.

        The batches are consumed: *batches* is empty afterwards, and their memory is free.
        """
        rows = _joined(batches)
        stats = statistics.collect_statistics(pa.Table.from_batches([rows]), self.metadata)
        self._stats = merge_statistics(self._stats, stats) if self._stats else stats
        group = max(1, min(GROUP, LARGEST * len(rows) // rows.nbytes))
        if self._writer is None:
            self._begin()
        places = sort_rows(rows)
        sorted_already = bool((np.diff(places) == 1).all())
        for first in range(0, len(rows), group):
            there = slice(first, first + group)
            part = rows[there] if sorted_already else rows.take(pa.array(places[there]))
            self._writer.write_table(pa.Table.from_batches([part]), row_group_size=group)

    @property
    def _path(self) -> str:
        return f"{PARTITION}={self.received.date().isoformat()}/{self.name}"

    def _begin(self) -> None:
        self._output = self._open.enter_context(self.store.sink(self._path))
        self._writer = pq.ParquetWriter(
            self._output,
            STORED,
            compression={path: _codec(path) for path in _leaves(STORED)},
            compression_level={path: 1 for path in _leaves(STORED) if path not in _PLAIN},
            use_dictionary=_FEW,
            write_statistics=_BOUNDED,
            write_page_index=True,
            data_page_size=64 * 2**10,
            store_schema=False,
            bloom_filter_options={"key": {"ndv": GROUP, "fpp": FALSE_POSITIVES}},
        )

    def _finish(self) -> None:
        if self._writer is None:
            return
        self._writer.close()
        self.written = WrittenFile(
            self._path,
            {PARTITION: self.received.date().isoformat()},
            self._output.tell(),
            self.received,
            statistics.encode_statistics(self._stats),
            self._stats["numRecords"],
        )


def sort_rows(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the indexes that sort *rows* by kind, table and order; equal rows keep their order.

    Rows without a table or an order come last.
    """
    groups = _groups(rows)
    parts = [pc.struct_field(rows["order"], [part]) for part in ORDER_PARTS]
    order = [pc.fill_null(part, np.iinfo(np.int64).max).to_numpy() for part in parts]
    if _rising(order):
        return np.argsort(groups, kind="stable")
    return np.lexsort((*reversed(order), groups))


def merge_statistics(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statistics of two runs as those of one file.

    A column has a bound only if each run has one. A run in which a column is all null does not
    count; the other's bounds remain.
    """
    counts = (one["numRecords"], other["numRecords"])
    nulls = (one["nullCount"], other["nullCount"])
    low = _bounds((one["minValues"], other["minValues"]), nulls, counts)
    high = _bounds((one["maxValues"], other["maxValues"]), nulls, counts)
    return {
        **one,
        "numRecords": sum(counts),
        "minValues": _nested({path: min(values) for path, values in low.items()}),
        "maxValues": _nested({path: max(values) for path, values in high.items()}),
        "nullCount": _nested(
            {path: count + _flat(nulls[1])[path] for path, count in _flat(nulls[0]).items()}
        ),
    }


Path = tuple[str, ...]


def _codec(path: str) -> str:
    return "NONE" if path in _PLAIN else "zstd"


def _leaves(fields: Iterable[pa.Field], above: str = "") -> Iterator[str]:
    """Yield paths of the columns that hold values, as Parquet names them."""
    for one in fields:
        if pa.types.is_struct(one.type):
            yield from _leaves(one.type, f"{above}{one.name}.")
        else:
            yield f"{above}{one.name}{'.list.element' if pa.types.is_list(one.type) else ''}"


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Join into one batch column by column, so that memory never holds all rows twice."""
    if len(batches) == 1:
        return batches.pop().select(STORED.names)
    columns = {name: [batch[name] for batch in batches] for name in STORED.names}
    batches.clear()
    arrays = [pa.concat_arrays(columns.pop(name)) for name in STORED.names]
    return pa.RecordBatch.from_arrays(arrays, schema=STORED)


def _groups(rows: pa.RecordBatch) -> npt.NDArray[np.integer[Any]]:
    """Return one number per row for kind and table; 16 bits if enough, to sort by radix."""
    ops, tables = rows["op"].dictionary_encode(), rows["table"].dictionary_encode()
    kinds = np.array([_KINDS.get(op, _REST) for op in ops.dictionary.to_pylist()], np.int64)
    names = tables.dictionary.to_pylist()
    ranks = {name: rank for rank, name in enumerate(sorted(names))}
    places = np.array([*(ranks[name] for name in names), len(names)], np.int64)
    table = places[pc.fill_null(tables.indices, len(names)).to_numpy()]
    groups: npt.NDArray[np.int64] = kinds[ops.indices.to_numpy()] * (len(names) + 1) + table
    return groups.astype(np.uint16) if len(names) < 2**14 - 1 else groups


def _rising(columns: Sequence[npt.NDArray[np.int64]]) -> bool:
    """Return whether the rows ascend, compared column by column; equal rows are allowed."""
    settled = np.zeros(max(len(columns[0]) - 1, 0), dtype=bool)
    for column in columns:
        if (~settled & (column[1:] < column[:-1])).any():
            return False
        settled |= column[1:] > column[:-1]
    return True


def _bounds(
    values: tuple[Mapping[str, Any], Mapping[str, Any]],
    nulls: tuple[Mapping[str, Any], Mapping[str, Any]],
    counts: tuple[int, int],
) -> dict[Path, list[Any]]:
    """Return the bounds of each column, from every run with values; none if a run has no bound."""
    found: dict[Path, list[Any]] = {}
    flat, missing = [_flat(side) for side in values], [_flat(side) for side in nulls]
    for path in missing[0]:
        sides = [n for n in (0, 1) if missing[n][path] < counts[n]]
        if sides and all(path in flat[n] for n in sides):
            found[path] = [flat[n][path] for n in sides]
    return found


def _flat(nested: Mapping[str, Any], above: Path = ()) -> dict[Path, Any]:
    flat: dict[Path, Any] = {}
    for name, value in nested.items():
        inner = _flat(value, (*above, name)) if isinstance(value, Mapping) else None
        flat |= {(*above, name): value} if inner is None else inner
    return flat


def _nested(flat: Mapping[Path, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for path, value in flat.items():
        room = nested
        for name in path[:-1]:
            room = room.setdefault(name, {})
        room[path[-1]] = value
    return nested


LOWEST = 2**62  # above every batch number and every instant
FILLED = ("batch", "received")
_RECEIVED = CHANGES.field("received").type


@dataclass(frozen=True, slots=True)
class Blank:
    """The placeholder for one file's batch number; its successor is that for the receive time."""

    number: int

    @classmethod
    def drawn(cls) -> "Blank":
        """Return a placeholder that was not used before."""
        return cls(LOWEST + secrets.randbits(61))

    def columns(self, rows: int) -> dict[str, pa.Array]:
        """Return ``batch`` and ``received`` of so many rows."""
        instant = pa.scalar(self.number + 1, pa.int64()).cast(_RECEIVED)
        batch = pa.scalar(self.number, pa.int64())
        return {"batch": pa.repeat(batch, rows), "received": pa.repeat(instant, rows)}


def restamp_copy(store: Store, file: WrittenFile, stamp: Stamp) -> WrittenFile | None:
    """Copy *file* into the batch of *stamp*; return None if its rows must be written again."""
    stats = json.loads(file.stats)
    number = stats["minValues"].get("batch", 0)
    if number < LOWEST or file.partition[PARTITION] != stamp.received.date().isoformat():
        return None
    made = store.read(file.path)
    for blank, value in ((number, stamp.batch), (number + 1, _micros(stamp.received))):
        made = made.replace(_bytes(blank), _bytes(value))
    if not _is_proven(made, stamp):
        return None
    path = f"{PARTITION}={file.partition[PARTITION]}/part-{uuid.uuid4()}.parquet"
    store.put(path, made)
    for bound in ("minValues", "maxValues"):
        stats[bound]["batch"] = stamp.batch
    return replace(file, path=path, modified=stamp.received, stats=json.dumps(stats))


def _bytes(number: int) -> bytes:
    """Return *number* as Parquet stores 64 bits."""
    return number.to_bytes(8, "little")


def _micros(at: datetime) -> int:
    value: int = pa.scalar(at, _RECEIVED).value
    return value


def _is_proven(made: bytes, stamp: Stamp) -> bool:
    """Return whether all rows and row group bounds of the file have the values of *stamp*."""
    with pq.ParquetFile(pa.BufferReader(made)) as file:
        groups = range(file.metadata.num_row_groups)
        at = next(i for i, one in enumerate(file.schema) if one.path == "batch")
        bounds = [file.metadata.row_group(group).column(at).statistics for group in groups]
        rows = file.read(columns=list(FILLED))
    extremes = {(one.min, one.max) for one in bounds if one is not None}
    wanted = {"batch": stamp.batch, "received": stamp.received}
    same = (
        pc.all(pc.equal(rows[name].cast(CHANGES.field(name).type), wanted[name])) for name in wanted
    )
    return extremes == {(stamp.batch, stamp.batch)} and all(one.as_py() for one in same)
