"""How much does a table usually change in a day, and which rows went on one?

Days are UTC's, by the source's clock.  Asked of the change log: only batches that the mirror has
applied count.  What a file of the log says is read once, for it never changes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.apply.archived import during, meets
from pipeline.apply.provenance import Mask, plain
from pipeline.archive import ArchiveRules, ArchiveWindow
from pipeline.changelog.scan import Part, scan
from pipeline.delta.store import open_store
from pipeline.invariants.invariant import LandedDay
from pipeline.model import Op
from pipeline.schema.decode import typed
from pipeline.schema.model import Column

DAYS = 7  # before the one that is asked of
FILES = 65_536  # of which days are remembered, of all tables together
_CHANGES = (Op.CREATE, Op.UPDATE, Op.DELETE)


@dataclass(frozen=True, slots=True)
class FileDays:
    """Changes of a table in one file of the change log, day by day, and the deletes among them."""

    changes: Mapping[date, int]
    deletes: Mapping[date, int]


@lru_cache(maxsize=FILES)
def days_of(changes: str, part: Part, table: str) -> FileDays:
    """What a file of the log at *changes* holds of *table*.

    Raises:
        HeldError: ``file_damaged``.
    """
    return _counted(_read(changes, (part,), table, _CHANGES, ("op", "at")))


def usual(counts: Mapping[date, int], day: date) -> float | None:
    """How many changes a day before *day* had; None where nobody knows of a whole one."""
    if not counts:
        return None
    first = max(min(counts) + timedelta(days=1), day - timedelta(days=DAYS))
    days = [counts.get(first + timedelta(days=n), 0) for n in range((day - first).days)]
    return float(median(days)) if days else None


def within(changes: pa.Table, values: pa.Table, windows: Sequence[ArchiveWindow]) -> Mask:
    """Which *changes* (at), of rows with such *values*, one of the *windows* speaks of."""
    found = np.zeros(len(changes), np.bool_)
    for window in windows:
        found |= during(changes, window) & meets(values, window)
    return found


@dataclass(frozen=True, slots=True)
class LandedDays:
    """Asks the change log for days of ``table``, in batches up to ``until``, of its ``files``.

    What ``rules`` say went to an archive is no delete.
    """

    changes: str
    files: tuple[Part, ...]
    table: str
    columns: tuple[Column, ...]
    until: int
    rules: ArchiveRules | None = None

    def __call__(self, column: str, day: date) -> LandedDay:
        """What is usual before *day*, and the rows that went on it.

        Raises:
            HeldError: ``file_damaged``.
        """
        found = [(part, self._days(part)) for part in self.files if part.low <= self.until]
        counts = Counter[date]()
        for _, days in found:
            counts.update(days.changes)
        near = [part for part, days in found if day in days.deletes]
        return LandedDay(usual(counts, day), self._deleted(near, column, day))

    def _days(self, part: Part) -> FileDays:
        if part.high <= self.until:
            return days_of(self.changes, part, self.table)
        return _counted(self._applied((part,), _CHANGES, ("op", "at")))

    def _deleted(self, files: Sequence[Part], column: str, day: date) -> pa.Table:
        rows = self._applied(files, (Op.DELETE,), ("at", "before"))
        own = pc.fill_null(pc.equal(rows["at"].cast(pa.date32()), day), False)
        rows = rows.filter(own)
        values = typed(plain(rows["before"]).combine_chunks(), self.columns).rows
        stays = within(rows, values, self.rules.windows if self.rules is not None else ())
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
    return scan(open_store(changes), files, among=("table", (table,)), ops=ops, columns=columns)


def _counted(rows: pa.Table) -> FileDays:
    deletes = rows.filter(pc.equal(plain(rows["op"]), str(Op.DELETE)))
    return FileDays(_by_day(rows), _by_day(deletes))


def _by_day(rows: pa.Table) -> dict[date, int]:
    days = rows["at"].drop_null().cast(pa.date32()).value_counts()
    return {one["values"].as_py(): one["counts"].as_py() for one in days}
