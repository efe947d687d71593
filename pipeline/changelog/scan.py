"""Reads rows of the change log by op, table and batch, from the few files that may hold them.

Files are sorted by kind, table and order, and compaction puts markers into files of their own.
Statistics select the files first, then the row groups.

A table that is idle or held costs nothing and does not make other tables read more: each table
has its own range of batches.

`placed_parts` finds files by the bounds of their orders. Changes that are close in the source
log landed close in time.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.changelog.table import CHANGES, MIRROR_OPS
from pipeline.delta.log import ActiveFile, Snapshot
from pipeline.delta.store import Store
from pipeline.errors import HeldError
from pipeline.model import Op

Ends = tuple[int | None, int | None]
"""Lowest and highest value; None if unknown."""


@dataclass(frozen=True, slots=True)
class Part:
    """A file of the change log, its rows, and the lowest and highest batch that may be in it."""

    path: str
    low: int
    high: int
    rows: int = 0


def find_parts(
    snapshot: Snapshot, after: int, until: int, ops: Collection[Op] = ()
) -> tuple[Part, ...]:
    """Return files that may hold rows of batches in ``(after, until]``, of *ops* if any are given.

    They ascend by their lowest batch. A file without statistics may hold anything.
    """
    names = sorted(str(op) for op in ops)
    found = (
        _part(file, until)
        for file in snapshot.files.values()
        if not names or _crosses(names, *read_bounds(file, "op"))
    )
    kept = (part for part in found if part.high > after and part.low <= until)
    return tuple(sorted(kept, key=lambda part: (part.low, part.path)))


def scan_files(
    store: Store,
    files: Iterable[Part],
    *,
    among: tuple[str, Sequence[str]],
    ops: Collection[Op],
    columns: Sequence[str],
) -> pa.Table:
    """Return rows of *files* with an op of *ops* whose text column is *among* its values.

    Out: *columns*, with the types of ``CHANGES``, in no particular order. Memory is bounded by what
    matches.

    Raises:
        HeldError: ``file_damaged``.
    """
    schema = pa.schema([CHANGES.field(name) for name in columns])
    column, values = among[0], sorted(among[1])
    words = pa.array(sorted(str(op) for op in ops), pa.string())
    wanted = list(dict.fromkeys([column, "op", *columns]))
    found = []
    for part in files:
        with open_file(store, part.path) as file:
            groups = find_row_groups(file.metadata, column, values)
            rows = file.read_row_groups(groups, columns=wanted)
        kept = pc.and_(
            pc.is_in(rows[column], pa.array(values, pa.string())), pc.is_in(rows["op"], words)
        )
        found.append(rows.filter(kept).select(list(columns)).cast(schema))
    return pa.concat_tables(found) if found else schema.empty_table()


def read_bounds(file: ActiveFile, name: str) -> tuple[Any, Any]:
    """Return lowest and highest value of a column in a file; None without statistics of it."""
    stats = file.stats or {}
    low, high = (stats.get(bound) or {} for bound in ("minValues", "maxValues"))
    return low.get(name), high.get(name)


def order_ends(file: ActiveFile, part: str) -> Ends:
    """Return lowest and highest value of a *part* of its orders: epoch, log, pos or row."""
    low, high = (
        one.get(part) if isinstance(one, Mapping) else None for one in read_bounds(file, "order")
    )
    return low, high


def may_overlap(ends: Ends, low: int, high: int | None) -> bool:
    """Return whether values between *ends* may be in ``[low, high]``; *high* None is no limit."""
    least, most = ends
    return (most is None or most >= low) and (high is None or least is None or least <= high)


@contextmanager
def open_file(store: Store, path: str) -> Iterator[Any]:
    """Open a file of the change log as pyarrow's ``ParquetFile``.

    Raises:
        HeldError: ``file_damaged`` if it is missing, or cannot be read to its end.
    """
    with explain_damage(store, path), pq.ParquetFile(store.source(path)) as file:
        yield file


@contextmanager
def explain_damage(store: Store, path: str) -> Iterator[None]:
    """Explain why a file of the change log cannot be read.

    Raises:
        HeldError: ``file_damaged``, it is not there, or cannot be read to its end.
    """
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        detail = f"{store.uri}/{path}: {error}; restore it, or begin with an empty lake"
        raise HeldError("file_damaged", detail) from error


@dataclass(frozen=True, slots=True)
class RowGroup:
    """The footer's bounds of one column of a row group; None for a missing bound."""

    low: str | None
    high: str | None
    rows: int
    nulls: bool = False

    def holds(self, values: Sequence[str]) -> bool:
        """Return whether it may hold one of *values* (ascending)."""
        return not self.nulls and _crosses(values, self.low, self.high)


def row_groups(metadata: Any, column: str) -> Iterator[RowGroup]:
    """Yield the bounds of a text *column* in each row group of a file."""
    at = next(i for i in range(metadata.num_columns) if metadata.schema.column(i).path == column)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        stats = group.column(at).statistics
        if stats is not None and stats.has_min_max:
            yield RowGroup(stats.min, stats.max, group.num_rows)
        else:
            nulls = stats is not None and stats.null_count == group.num_rows
            yield RowGroup(None, None, group.num_rows, nulls)


def find_row_groups(metadata: Any, column: str, values: Sequence[str]) -> list[int]:
    """Return the row groups whose bounds admit one of *values* (ascending)."""
    found = enumerate(row_groups(metadata, column))
    return [number for number, group in found if group.holds(values)]


def _crosses(values: Sequence[str], low: str | None, high: str | None) -> bool:
    at = 0 if low is None else bisect_left(values, low)
    return at < len(values) and (high is None or values[at] <= high)


def _part(file: ActiveFile, until: int) -> Part:
    low, high = read_bounds(file, "batch")
    first, last = -1 if low is None else int(low), until if high is None else int(high)
    return Part(file.path, first, last, file.records or 0)


APPLIED_OPS = (*MIRROR_OPS, Op.TOMBSTONE, Op.ERROR)
APPLIED_COLUMNS = (
    "batch", "source", "shard", "table", "op", "key", "before", "after", "changed", "at", "order",
    "origin", "topic", "partition", "error",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class WantedBatches:
    """Batches ``(after, until]`` of one table."""

    after: int
    until: int

    def meets(self, part: Part) -> bool:
        """Return whether *part* may hold one of them."""
        return part.high > self.after and part.low <= self.until

    def of(self, rows: pa.Table) -> pa.Table:
        """Return those of *rows* whose batch is one of them."""
        batch = rows["batch"]
        return rows.filter(pc.and_(pc.greater(batch, self.after), pc.less_equal(batch, self.until)))


def read_tables(
    store: Store,
    files: Sequence[Part],
    wanted: Mapping[str, WantedBatches],
    *,
    ops: Collection[Op] = APPLIED_OPS,
    columns: Sequence[str] = APPLIED_COLUMNS,
) -> dict[str, pa.Table]:
    """Return rows of each wanted table, in no particular order; a table without any is absent.

    *columns* must contain table and batch. `limit_batches` bounds what is wanted.
    """
    if not wanted:
        return {}
    found = {}
    parts = [
        scan_files(store, near, among=("table", names), ops=ops, columns=columns)
        for names, near in _meeting(files, wanted).items()
    ]
    for name, own in _split(pa.concat_tables(parts)) if parts else ():
        kept = wanted[name].of(own)
        if len(kept):
            found[name] = kept
    return found


@dataclass(eq=False)
class TableRows:
    """Estimates the rows of a table in a file; each footer is read once, for all tables."""

    store: Store
    _groups: dict[str, tuple[RowGroup, ...]] = field(default_factory=dict)

    def of(self, part: Part, table: str) -> int:
        """Return the rows of row groups that may hold the table, which is never too few."""
        if part.path not in self._groups:
            with open_file(self.store, part.path) as file:
                self._groups[part.path] = tuple(row_groups(file.metadata, "table"))
        return sum(group.rows for group in self._groups[part.path] if group.holds((table,)))


def limit_batches(
    rows: TableRows, files: Sequence[Part], table: str, wanted: WantedBatches, most: int
) -> WantedBatches:
    """Return *wanted*, cut before the batch with which more than *most* rows would be read.

    At least one batch is left. *files* ascend by their lowest batch, so all earlier batches are
    counted by then.
    """
    total = 0
    for part in files:
        if not wanted.meets(part):
            continue
        own = rows.of(part, table)
        total += own
        if own and total > most and part.low - 1 > wanted.after:
            return WantedBatches(wanted.after, part.low - 1)
    return wanted


def _meeting(
    files: Sequence[Part], wanted: Mapping[str, WantedBatches]
) -> dict[tuple[str, ...], list[Part]]:
    """Group files by the tables that need them, so that a table far behind costs others nothing."""
    names = np.array(list(wanted), object)
    after = np.array([one.after for one in wanted.values()], np.int64)
    until = np.array([one.until for one in wanted.values()], np.int64)
    found: dict[tuple[str, ...], list[Part]] = {}
    for part in files:
        own = tuple(names[(part.high > after) & (part.low <= until)].tolist())
        if own:
            found.setdefault(own, []).append(part)
    return found


def _split(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of each table."""
    if not len(rows):
        return
    coded = rows["table"].combine_chunks().dictionary_encode()
    codes = coded.indices.to_numpy()
    placed = np.argsort(codes, kind="stable")
    ordered = rows.take(pa.array(placed))
    starts = np.flatnonzero(np.diff(codes[placed], prepend=-1))
    ends = [*starts[1:].tolist(), len(rows)]
    for start, end in zip(starts.tolist(), ends, strict=True):
        name = coded.dictionary[int(codes[placed[start]])].as_py()
        yield name, ordered.slice(start, end - start)


KNOWN = 4  # remembered versions and kinds of rows
_known: dict[tuple[object, ...], tuple["PlacedPart", ...]] = {}


@dataclass(frozen=True, slots=True)
class PlacedPart:
    """A file, and the bounds of its orders: source log and position."""

    part: Part
    logs: Ends
    places: Ends

    def near(self, log: tuple[int, int], pos: tuple[int, int]) -> bool:
        """Return whether it may hold a position in the range *pos*, in a log of the range *log*."""
        one_log = self.logs == log and log[0] == log[1]
        return may_overlap(self.logs, *log) and (not one_log or may_overlap(self.places, *pos))


def placed_parts(snapshot: Snapshot, until: int, ops: Collection[Op]) -> tuple[PlacedPart, ...]:
    """Return all files that may hold rows of *ops*, of batches up to *until*.

    They are computed once per version, for all tables.
    """
    key = (snapshot.uri, snapshot.version, snapshot.entry, until, tuple(ops))
    found = _known.get(key)
    if found is None:
        found = _found(snapshot, until, ops)
        if len(_known) >= KNOWN:
            _known.clear()
        _known[key] = found
    return found


def _found(snapshot: Snapshot, until: int, ops: Collection[Op]) -> tuple[PlacedPart, ...]:
    files = {file.path: file for file in snapshot.files.values()}
    return tuple(
        PlacedPart(one, order_ends(files[one.path], "log"), order_ends(files[one.path], "pos"))
        for one in find_parts(snapshot, -1, until, ops)
    )
