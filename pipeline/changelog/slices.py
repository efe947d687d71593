"""Which rows of the change log does each mirror still have to apply?  Read at the cost of those.

A table that is idle or held costs nothing, and makes nobody else read more: each has batches of
its own to read.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.changelog.scan import Part, RowGroup, opened, row_groups, scan
from pipeline.changelog.table import MIRROR_OPS
from pipeline.lake.store import Store
from pipeline.model import Op

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
        """Whether *part* may hold one of them."""
        return part.high > self.after and part.low <= self.until

    def of(self, rows: pa.Table) -> pa.Table:
        """Those of *rows* (batch) that are in one of them."""
        batch = rows["batch"]
        return rows.filter(pc.and_(pc.greater(batch, self.after), pc.less_equal(batch, self.until)))


def read(
    store: Store,
    files: Sequence[Part],
    wanted: Mapping[str, WantedBatches],
    *,
    ops: Collection[Op] = APPLIED_OPS,
    columns: Sequence[str] = APPLIED_COLUMNS,
) -> dict[str, pa.Table]:
    """Rows of each wanted table, in no particular order; a table without any is absent.

    *columns* hold table and batch.  Bounded by what is wanted: see ``bounded``.
    """
    if not wanted:
        return {}
    found = {}
    parts = [
        scan(store, near, among=("table", names), ops=ops, columns=columns)
        for names, near in _meeting(files, wanted).items()
    ]
    for name, own in _split(pa.concat_tables(parts)) if parts else ():
        kept = wanted[name].of(own)
        if len(kept):
            found[name] = kept
    return found


@dataclass(eq=False)
class TableRows:
    """How many rows of a table may a file hold?  Each footer is read once, for all tables."""

    store: Store
    _groups: dict[str, tuple[RowGroup, ...]] = field(default_factory=dict)

    def of(self, part: Part, table: str) -> int:
        """Rows of the row groups that may hold the table: never fewer than there are."""
        if part.path not in self._groups:
            with opened(self.store, part.path) as file:
                self._groups[part.path] = tuple(row_groups(file.metadata, "table"))
        return sum(group.rows for group in self._groups[part.path] if group.holds((table,)))


def bounded(
    rows: TableRows, files: Sequence[Part], table: str, wanted: WantedBatches, most: int
) -> WantedBatches:
    """Stop before the batch with which more than *most* rows are read; at least one batch is.

    *files* ascend by their lowest batch, so that all of the batches before it are counted then.
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
    """Tables -> the files that only these want: one that is far behind makes no other read more."""
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
    """The rows of each table by itself."""
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
