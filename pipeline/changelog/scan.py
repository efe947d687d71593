"""Rows of the change log by kind and batch, from the files and row groups that may hold them.

A file is sorted by kind, table and order, and markers have files of their own: what is asked for
by op is found by the statistics of files first, then by those of row groups.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.changelog.table import CHANGES
from pipeline.errors import HeldError
from pipeline.lake.log import ActiveFile, Snapshot
from pipeline.lake.store import Store
from pipeline.model import Op

Ends = tuple[int | None, int | None]
"""The least and the greatest; None where nobody tells."""


@dataclass(frozen=True, slots=True)
class Part:
    """A file of the change log, its rows, and the lowest and highest batch that may be in it."""

    path: str
    low: int
    high: int
    rows: int = 0


def parts(snapshot: Snapshot, after: int, until: int, ops: Collection[Op] = ()) -> tuple[Part, ...]:
    """Files that may hold rows of batches in ``(after, until]``, of one of *ops* if any is given.

    Ascending by their lowest batch.  A file without statistics may hold anything.
    """
    names = sorted(str(op) for op in ops)
    found = (
        _part(file, until)
        for file in snapshot.files.values()
        if not names or _crosses(names, *bounds(file, "op"))
    )
    kept = (part for part in found if part.high > after and part.low <= until)
    return tuple(sorted(kept, key=lambda part: (part.low, part.path)))


def scan(
    store: Store,
    files: Iterable[Part],
    *,
    among: tuple[str, Sequence[str]],
    ops: Collection[Op],
    columns: Sequence[str],
) -> pa.Table:
    """Rows of *files* whose column (of text) is *among* its values and whose op is one of *ops*.

    Out: *columns*, with ``CHANGES``'s types, in no particular order; bounded by what matches.

    Raises:
        HeldError: ``file_damaged``.
    """
    schema = pa.schema([CHANGES.field(name) for name in columns])
    column, values = among[0], sorted(among[1])
    words = pa.array(sorted(str(op) for op in ops), pa.string())
    wanted = list(dict.fromkeys([column, "op", *columns]))
    found = []
    for part in files:
        with opened(store, part.path) as file:
            groups = crossing(file.metadata, column, values)
            rows = file.read_row_groups(groups, columns=wanted)
        kept = pc.and_(
            pc.is_in(rows[column], pa.array(values, pa.string())), pc.is_in(rows["op"], words)
        )
        found.append(rows.filter(kept).select(list(columns)).cast(schema))
    return pa.concat_tables(found) if found else schema.empty_table()


def bounds(file: ActiveFile, name: str) -> tuple[Any, Any]:
    """Least and greatest value of a column in a file; None where its statistics do not tell."""
    stats = file.stats or {}
    low, high = (stats.get(bound) or {} for bound in ("minValues", "maxValues"))
    return low.get(name), high.get(name)


def order_ends(file: ActiveFile, part: str) -> Ends:
    """Between which two a *part* of its orders lies: epoch, log, pos or row."""
    low, high = (
        one.get(part) if isinstance(one, Mapping) else None for one in bounds(file, "order")
    )
    return low, high


def overlap(ends: Ends, low: int, high: int | None) -> bool:
    """Whether what lies between *ends* may lie between *low* and *high*, all of them included."""
    least, most = ends
    return (most is None or most >= low) and (high is None or least is None or least <= high)


@contextmanager
def opened(store: Store, path: str) -> Iterator[Any]:
    """Open a file of the change log as pyarrow's ``ParquetFile``.

    Raises:
        HeldError: ``file_damaged``, it is not there, or cannot be read to its end.
    """
    try:
        with pq.ParquetFile(store.source(path)) as file:
            yield file
    except (OSError, pa.ArrowException) as error:
        detail = f"{store.uri}/{path}: {error}; restore it, or begin with an empty lake"
        raise HeldError("file_damaged", detail) from error


@dataclass(frozen=True, slots=True)
class RowGroup:
    """What the footer tells of one column of a row group; a bound that it does not tell is None."""

    low: str | None
    high: str | None
    rows: int
    nulls: bool = False

    def holds(self, values: Sequence[str]) -> bool:
        """Whether one of *values*, ascending, may be in it."""
        return not self.nulls and _crosses(values, self.low, self.high)


def row_groups(metadata: Any, column: str) -> Iterator[RowGroup]:
    """Each row group of a file, as far as *column* of text goes."""
    at = next(i for i in range(metadata.num_columns) if metadata.schema.column(i).path == column)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        told = group.column(at).statistics
        if told is not None and told.has_min_max:
            yield RowGroup(told.min, told.max, group.num_rows)
        else:
            nulls = told is not None and told.null_count == group.num_rows
            yield RowGroup(None, None, group.num_rows, nulls)


def crossing(metadata: Any, column: str, values: Sequence[str]) -> list[int]:
    """Row groups whose bounds let one of *values*, ascending, in."""
    found = enumerate(row_groups(metadata, column))
    return [number for number, group in found if group.holds(values)]


def _crosses(values: Sequence[str], low: str | None, high: str | None) -> bool:
    at = 0 if low is None else bisect_left(values, low)
    return at < len(values) and (high is None or values[at] <= high)


def _part(file: ActiveFile, until: int) -> Part:
    low, high = bounds(file, "batch")
    first, last = -1 if low is None else int(low), until if high is None else int(high)
    return Part(file.path, first, last, file.records or 0)
