"""Counts the changes of each table in the change log, once each, batch by batch."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from demo.oracle.rows import read_rows

# Schema changes name a table, too, but merges do not count them as changes.
NEW = """
    SELECT "table", batch, count(*) AS rows FROM t
    WHERE batch > {0} AND op <> 'ddl' GROUP BY "table", batch
"""


@dataclass(eq=False)
class LandedCount:
    """Counts changes, each time from where it stopped before."""

    path: str
    _log: DeltaTable | None = None
    _batch: int = -1
    _rows: Counter[str] = field(default_factory=Counter)

    def by_table(self) -> Mapping[str, int]:
        """Return the number of changes so far, by table; empty without a change log."""
        log = self._open()
        if log is None:
            return {}
        for row in self._new(log):
            if row["table"] is not None:
                self._rows[row["table"]] += row["rows"]
            self._batch = max(self._batch, row["batch"])
        return self._rows

    def _open(self) -> DeltaTable | None:
        try:
            if self._log is None:
                self._log = DeltaTable(self.path)
            else:
                self._log.update_incremental()
        except TableNotFoundError:
            return None
        return self._log

    def _new(self, log: DeltaTable) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = read_rows(log, NEW.format(self._batch)).to_pylist()
        return rows
