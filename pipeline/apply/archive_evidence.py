"""Reads the change log for evidence that deletes belong to an archive.

Markers: a transaction with a marker row archives the rows it deletes. A marker is known to be
absent only when the transaction, and all that its source committed before it, has landed. Until
then the deletes wait.

Key changes: a row that takes another key is a delete and a create at one position. The two may land
in two batches, and so be merged separately. The other half is searched only in files whose orders
are near, so the cost follows the slice and not the log.

Days: the usual number of changes per day is the median of up to 7 whole days before. Days are UTC
by the source's clock. Only batches that the mirror has applied count. The counts of a file of the
log are cached, because a file never changes.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.apply.archive import (
    ArchiveEvidence,
    has_live_op,
    has_partner,
    is_during,
    is_in_reach,
    meets_window,
)
from pipeline.apply.row_metadata import Mask, flat_column, is_above, rank_rows, row_origins
from pipeline.archive import ArchiveMarker, ArchiveRules, ArchiveWindow
from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.scan import Part, PlacedPart, placed_parts, scan_files
from pipeline.checkpoint import Checkpoint
from pipeline.delta.store import open_store
from pipeline.errors import HeldError
from pipeline.invariants.invariant import LandedDay
from pipeline.model import Op, Table
from pipeline.schema.decode import type_rows
from pipeline.schema.model import Column

_COLUMNS = ("source", "after", "tx")


@dataclass(frozen=True, slots=True)
class LandedMarkers:
    """Finds rows of the markers' tables in ``files`` of the change log at ``changes``.

    ``reached``: source -> (epoch, log, pos) below which everything has landed.
    """

    changes: str
    files: tuple[Part, ...]
    markers: tuple[ArchiveMarker, ...]
    reached: Mapping[str, tuple[int, int, int]]

    def __call__(self, deletes: pa.Table) -> Mask:
        """Which *deletes* (tx, source, shard, order, origin) are of a transaction with a marker.

        Raises:
            HeldError: ``archive``, a delete names no transaction; ``awaited``, a marker may still
                land; or a file cannot be read.
        """
        names = _names(deletes)
        if names.null_count:
            detail = "a delete names no transaction, so its marker cannot be found"
            advice = (
                "turn on the collector's provide.transaction.metadata, or name windows instead; "
                "when `archive` has no markers any more, deletes that have landed "
                "are applied, except those in a window"
            )
            raise HeldError("archive", f"{detail}; {advice}")
        found = pc.is_in(names, value_set=self._marked(pc.unique(names)))
        marked: Mask = found.to_numpy(zero_copy_only=False)
        if (unknown := ~marked & ~self._is_landed(deletes)).any():
            tables = ", ".join(one.table for one in self.markers)
            detail = f"{int(unknown.sum())} deletes wait until their markers can have landed"
            raise HeldError("awaited", f"{detail} ({tables})")
        return marked

    def _marked(self, wanted: pa.Array) -> pa.Array:
        """Those of the *wanted* transactions that have a marker."""
        store, names = open_store(self.changes), [pa.array([], pa.string())]
        for marker in self.markers:
            among = ("table", (marker.table,))
            rows = scan_files(
                store, self.files, among=among, ops=(Op.CREATE, Op.UPDATE), columns=_COLUMNS
            )
            rows = rows.filter(pc.is_in(_names(rows), value_set=wanted))
            names.append(_names(rows.filter(pa.array(_fits(rows, marker), pa.bool_()))))
        return pc.unique(pa.concat_arrays(names))

    def _is_landed(self, deletes: pa.Table) -> Mask:
        """Which *deletes* are below the landed position: their transaction has landed whole."""
        theirs = row_origins(deletes)
        known = np.zeros(len(deletes), np.bool_)
        for source, reached in self.reached.items():
            own = pc.equal(theirs.source, source).to_numpy(zero_copy_only=False)
            known |= own & is_above(np.array(reached, np.int64)[:, None], theirs.rank[:3])
        return known


def _names(rows: pa.Table) -> pa.Array:
    """``source transaction`` of each row; null if the row names no transaction."""
    ids = pc.struct_field(rows["tx"], "id").combine_chunks()
    return pc.binary_join_element_wise(flat_column(rows["source"]).combine_chunks(), ids, " ")


def _fits(rows: pa.Table, marker: ArchiveMarker) -> list[bool]:
    if not marker.column:
        return [True] * len(rows)
    texts = (json.loads(text) for text in flat_column(rows["after"]).to_pylist())
    return [str(row.get(marker.column)) in marker.values for row in texts]


_PLACED = ("source", "shard", "order", "origin")
_LOG, _POS = 1, 2  # indexes of a rank's lines


@dataclass(frozen=True, slots=True)
class LandedPartners:
    """Finds partners of rows of ``table`` in ``files`` of the change log at ``changes``.

    ``after`` is the last batch that its mirror has applied.
    """

    changes: str
    files: tuple[PlacedPart, ...]
    table: str
    rules: ArchiveRules
    after: int

    def with_rows(self, rows: pa.Table) -> pa.Table:
        """*rows*, and the applied deletes whose rows took the keys of creates among *rows*.

        A create counts only if a rule may have archived its delete.
        """
        creates = rows.filter(
            pa.array(is_in_reach(rows, self.rules) & has_live_op(rows, Op.CREATE))
        )
        alone = ~has_partner(creates, _deletes(rows))
        creates = creates.filter(pa.array(alone))
        found = self._landed(creates, (Op.DELETE,), (*rows.column_names,))
        own = pc.less_equal(found["batch"], self.after)
        found = found.filter(own)
        return pa.concat_tables([rows, found.filter(pa.array(has_partner(found, creates)))])

    def find_rekeyed(self, deletes: pa.Table) -> Mask:
        """Which *deletes* have a create at their position, in any batch that has landed."""
        return has_partner(deletes, self._landed(deletes, (Op.CREATE,), _PLACED))

    def _landed(self, rows: pa.Table, ops: Sequence[Op], columns: Sequence[str]) -> pa.Table:
        """Rows with one of *ops* in files whose orders are near those of *rows*."""
        near: Iterable[PlacedPart] = ()
        if len(rows):
            orders = rank_rows(rows)
            log, pos = (_span(orders[line]) for line in (_LOG, _POS))
            near = (one for one in self.files if one.near(log, pos))
        store, among = open_store(self.changes), ("table", (self.table,))
        files = [one.part for one in near]
        return scan_files(store, files, among=among, ops=ops, columns=columns)


def _span(line: Any) -> tuple[int, int]:
    return int(line.min()), int(line.max())


def _deletes(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.equal(flat_column(rows["op"]), str(Op.DELETE)))


@dataclass(frozen=True, slots=True)
class LandedArchives:
    """The ``rules`` of a table; ``markers`` and ``partners`` are None where they do not apply."""

    rules: ArchiveRules
    markers: LandedMarkers | None = None
    partners: LandedPartners | None = None

    @property
    def evidence(self) -> ArchiveEvidence:
        """The evidence for a merge."""
        rekeyed = None if self.partners is None else self.partners.find_rekeyed
        return ArchiveEvidence(self.rules, self.markers, rekeyed)

    def with_rows(self, rows: pa.Table) -> pa.Table:
        """*rows*, and the applied deletes whose rows took the keys of creates among *rows*.

        Raises:
            HeldError: ``file_damaged``.
        """
        return rows if self.partners is None else self.partners.with_rows(rows)


def find_archives(
    table: Table, rules: ArchiveRules | None, log: ChangeLog, checkpoint: Checkpoint, after: int
) -> LandedArchives | None:
    """Evidence about deletes of *table*, whose mirror has applied *after*; None without rules.

    Everything that has landed in *log* according to *checkpoint* counts.
    """
    if rules is None or not (rules.windows or rules.markers):
        return None if rules is None else LandedArchives(rules)
    files = placed_parts(log.snapshot, checkpoint.batch, (Op.CREATE, Op.DELETE))
    partners = LandedPartners(log.store.uri, files, table.name, rules, after)
    return LandedArchives(rules, _markers(table, rules, log, checkpoint), partners)


def _markers(
    table: Table, rules: ArchiveRules, log: ChangeLog, checkpoint: Checkpoint
) -> LandedMarkers | None:
    if not rules.markers:
        return None
    near = placed_parts(log.snapshot, checkpoint.batch, (Op.CREATE, Op.UPDATE))
    files = tuple(one.part for one in near)
    places = {source: checkpoint.reached(source) for source in table.sources}
    reached = {source: place for source, place in places.items() if place is not None}
    return LandedMarkers(log.store.uri, files, rules.markers, reached)


DAYS = 7  # before the given day
FILES = 65_536  # files whose counts are cached, for all tables together
_CHANGES = (Op.CREATE, Op.UPDATE, Op.DELETE)


@dataclass(frozen=True, slots=True)
class FileDays:
    """Changes of a table in one file of the change log by day, and the deletes among them."""

    changes: Mapping[date, int]
    deletes: Mapping[date, int]


@lru_cache(maxsize=FILES)
def count_days(changes: str, part: Part, table: str) -> FileDays:
    """The changes per day of *table* in one file of the log at *changes*.

    Raises:
        HeldError: ``file_damaged``.
    """
    return _counted(_read(changes, (part,), table, _CHANGES, ("op", "at")))


def usual_changes(counts: Mapping[date, int], day: date) -> float | None:
    """Median changes per day of up to 7 whole days before *day*; None if no such day is known."""
    if not counts:
        return None
    first = max(min(counts) + timedelta(days=1), day - timedelta(days=DAYS))
    days = [counts.get(first + timedelta(days=n), 0) for n in range((day - first).days)]
    return float(median(days)) if days else None


def is_in_windows(changes: pa.Table, values: pa.Table, windows: Sequence[ArchiveWindow]) -> Mask:
    """Which *changes* (at), of rows with such *values*, are in one of the *windows*."""
    found = np.zeros(len(changes), np.bool_)
    for window in windows:
        found |= is_during(changes, window) & meets_window(values, window)
    return found


@dataclass(frozen=True, slots=True)
class LandedDays:
    """Reads days of ``table`` from its ``files`` of the change log, in batches up to ``until``.

    Deletes that ``rules`` archive do not count as deletes.
    """

    changes: str
    files: tuple[Part, ...]
    table: str
    columns: tuple[Column, ...]
    until: int
    rules: ArchiveRules | None = None

    def __call__(self, column: str, day: date) -> LandedDay:
        """The usual number of changes per day before *day*, and the rows deleted on it.

        Raises:
            HeldError: ``file_damaged``.
        """
        found = [(part, self._days(part)) for part in self.files if part.low <= self.until]
        counts = Counter[date]()
        for _, days in found:
            counts.update(days.changes)
        near = [part for part, days in found if day in days.deletes]
        return LandedDay(usual_changes(counts, day), self._deleted(near, column, day))

    def _days(self, part: Part) -> FileDays:
        if part.high <= self.until:
            return count_days(self.changes, part, self.table)
        return _counted(self._applied((part,), _CHANGES, ("op", "at")))

    def _deleted(self, files: Sequence[Part], column: str, day: date) -> pa.Table:
        rows = self._applied(files, (Op.DELETE,), ("at", "before"))
        own = pc.fill_null(pc.equal(rows["at"].cast(pa.date32()), day), False)
        rows = rows.filter(own)
        values = type_rows(flat_column(rows["before"]).combine_chunks(), self.columns).rows
        stays = is_in_windows(rows, values, self.rules.windows if self.rules is not None else ())
        values = values.select([column]).append_column("at", rows["at"])
        return values.filter(pa.array(~stays))

    def _applied(
        self, files: Sequence[Part], ops: Sequence[Op], columns: Sequence[str]
    ) -> pa.Table:
        rows = _read(self.changes, files, self.table, ops, ("batch", *columns))
        return rows.filter(pc.less_equal(rows["batch"], self.until))


def _read(
    changes: str, files: Sequence[Part], table: str, ops: Sequence[Op], columns: Sequence[str]
) -> pa.Table:
    return scan_files(
        open_store(changes), files, among=("table", (table,)), ops=ops, columns=columns
    )


def _counted(rows: pa.Table) -> FileDays:
    deletes = rows.filter(pc.equal(flat_column(rows["op"]), str(Op.DELETE)))
    return FileDays(_by_day(rows), _by_day(deletes))


def _by_day(rows: pa.Table) -> dict[date, int]:
    days = rows["at"].drop_null().cast(pa.date32()).value_counts()
    return {one["values"].as_py(): one["counts"].as_py() for one in days}
