"""Applies archive rules to the deletes of the change log, day by day.

Days are UTC, by the source's clock. A row's values are those in its delete. A delete without values
matches no window with a column, and its age is unknown. Nothing is written.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.apply.archive_evidence import LandedMarkers, count_days, is_in_windows, usual_changes
from pipeline.apply.row_metadata import Mask, flat_column
from pipeline.archive import ArchiveRules
from pipeline.changelog.scan import Part, scan_files
from pipeline.delta.store import open_store
from pipeline.errors import HeldError
from pipeline.invariants.archive_purge import ArchivePurge
from pipeline.model import Op, Origin
from pipeline.schema.decode import type_rows
from pipeline.schema.model import Column

_ALL_LANDED = (2**62, 0, 0)
_COLUMNS = ("at", "before", "source", "shard", "order", "origin", "tx")


@dataclass(frozen=True, slots=True)
class BacktestDay:
    """One day's live deletes: all, those of ``windows``, the ``marked``, and other ``old`` ones.

    The table would have been held with more than ``limit`` old ones; None without a ``purge`` rule.
    The age of the ``unreported`` deletes is unknown; they count as old.
    """

    day: date
    deletes: int
    windows: int = 0
    marked: int = 0
    old: int = 0
    unreported: int = 0
    limit: float | None = None

    @property
    def held(self) -> bool:
        """Whether the purge rule would have held the table."""
        return self.limit is not None and self.old > self.limit

    @property
    def ignored(self) -> int:
        """Deletes whose rows would have stayed."""
        return self.windows + self.marked


@dataclass(frozen=True, slots=True)
class ArchiveBacktest:
    """Applies archive rules to one ``table`` in ``files`` of the change log at ``changes``."""

    changes: str
    files: tuple[Part, ...]
    table: str
    columns: tuple[Column, ...]
    rules: ArchiveRules = field(default_factory=ArchiveRules)
    purge: ArchivePurge | None = None

    def days(self) -> tuple[BacktestDay, ...]:
        """Days with deletes, oldest first; one file of the log is in memory at a time.

        Raises:
            HeldError: a window, or ``purge``, names a column that does not fit.
        """
        found: dict[date, BacktestDay] = {}
        for part in self.files:
            for day in self._of_file(part):
                known = found.get(day.day, BacktestDay(day.day, 0))
                found[day.day] = _added(known, day)
        usual = self._usual() if self.purge is not None else {}
        return tuple(self._limited(found[day], usual) for day in sorted(found))

    def _of_file(self, part: Part) -> Iterator[BacktestDay]:
        store, among = open_store(self.changes), ("table", (self.table,))
        rows = scan_files(store, (part,), among=among, ops=(Op.DELETE,), columns=_COLUMNS)
        live = pc.and_(pc.equal(rows["origin"], int(Origin.LIVE)), rows["at"].is_valid())
        rows = rows.filter(live)
        if not len(rows):
            return
        values = type_rows(flat_column(rows["before"]).combine_chunks(), self.columns).rows
        marked = self._marked(rows)
        windows = is_in_windows(rows, values, self.rules.windows)
        old, undated = self._old(rows, values)
        days = rows["at"].cast(pa.date32()).to_numpy()
        rest = ~(marked | windows)
        for day in np.unique(days):
            own: Mask = days == day
            yield BacktestDay(
                day=day.astype(date),
                deletes=int(own.sum()),
                windows=int((own & windows & ~marked).sum()),
                marked=int((own & marked).sum()),
                old=int((own & rest & old).sum()),
                unreported=int((own & rest & undated).sum()),
            )

    def _marked(self, rows: pa.Table) -> Mask:
        found = np.zeros(len(rows), np.bool_)
        named = pc.struct_field(rows["tx"], "id").is_valid().to_numpy()
        if self.rules.markers and named.any():
            sources = {str(one): _ALL_LANDED for one in pc.unique(rows["source"]).to_pylist()}
            markers = LandedMarkers(self.changes, self.files, self.rules.markers, sources)
            found[named] = markers(rows.filter(pa.array(named)))
        return found

    def _old(self, rows: pa.Table, values: pa.Table) -> tuple[Mask, Mask]:
        none = np.zeros(len(rows), np.bool_)
        if self.purge is None:
            return none, none
        if self.purge.column not in values.column_names:
            known = ", ".join(values.column_names) or "none"
            detail = f"{self.table} has no column {self.purge.column!r}; it has {known}"
            raise HeldError("invariant", detail)
        dated = values.select([self.purge.column]).append_column("at", rows["at"])
        undated: Mask = dated[self.purge.column].is_null().to_numpy()
        return self.purge.is_old(dated, self.table), undated

    def _usual(self) -> Mapping[date, int]:
        counts = Counter[date]()
        for part in self.files:
            counts.update(count_days(self.changes, part, self.table).changes)
        return counts

    def _limited(self, day: BacktestDay, counts: Mapping[date, int]) -> BacktestDay:
        if self.purge is None:
            return day
        return replace(day, limit=self.purge.limit(usual_changes(counts, day.day)))


def _added(known: BacktestDay, more: BacktestDay) -> BacktestDay:
    return replace(
        known,
        deletes=known.deletes + more.deletes,
        windows=known.windows + more.windows,
        marked=known.marked + more.marked,
        old=known.old + more.old,
        unreported=known.unreported + more.unreported,
    )
