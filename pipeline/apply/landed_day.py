"""How much does a table usually change in a day, and which rows went on one?

Days are UTC's, by the source's clock.  Asked of the change log: only
batches that the mirror has applied count.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.apply.archived import during, meets
from pipeline.apply.provenance import plain
from pipeline.archive import ArchiveRules
from pipeline.changelog.scan import Part, scan
from pipeline.invariants.invariant import LandedDay
from pipeline.lake.store import open_store
from pipeline.model import Op
from pipeline.schema.column import Column
from pipeline.schema.typed import typed

DAYS = 7  # before the one that is asked of
_CHANGES = (Op.CREATE, Op.UPDATE, Op.DELETE)


@dataclass(frozen=True, slots=True)
class LandedDays:
    """Asks the change log for days of ``table``, in batches up to ``until``.

    ``files`` are all, ``deletes`` those that may hold deletes.  What ``rules`` say went to an
    archive is no delete.
    """

    changes: str
    files: tuple[Part, ...]
    deletes: tuple[Part, ...]
    table: str
    columns: tuple[Column, ...]
    until: int
    rules: ArchiveRules | None = None

    def __call__(self, column: str, day: date) -> LandedDay:
        """What is usual before *day*, and the rows that went on it.

        Raises:
            HeldError: ``file_damaged``.
        """
        return LandedDay(self._usual(day), self._deleted(column, day))

    def _usual(self, day: date) -> float | None:
        counts = Counter[date]()
        for part in self.files:
            for one in self._read((part,), _CHANGES, ("batch", "at"))["at"].value_counts():
                told = one["values"].as_py()
                if told is not None:
                    counts[told.date()] += one["counts"].as_py()
        if not counts:
            return None
        first = max(min(counts) + timedelta(days=1), day - timedelta(days=DAYS))
        days = [counts[first + timedelta(days=n)] for n in range((day - first).days)]
        return float(median(days)) if days else None

    def _deleted(self, column: str, day: date) -> pa.Table:
        rows = self._read(self.deletes, (Op.DELETE,), ("batch", "at", "before"))
        own = pc.fill_null(pc.equal(rows["at"].cast(pa.date32()), day), False)
        rows = rows.filter(own)
        values = typed(plain(rows["before"]).combine_chunks(), self.columns).rows
        stays = np.zeros(len(rows), np.bool_)
        for window in self.rules.windows if self.rules is not None else ():
            stays |= during(rows, window) & meets(values, window)
        values = values.select([column]).append_column("at", rows["at"])
        return values.filter(pa.array(~stays))

    def _read(self, files: Sequence[Part], ops: Sequence[Op], columns: Sequence[str]) -> pa.Table:
        near = [part for part in files if part.low <= self.until]
        store, among = open_store(self.changes), ("table", (self.table,))
        rows = scan(store, near, among=among, ops=ops, columns=columns)
        return rows.filter(pc.less_equal(rows["batch"], self.until))
