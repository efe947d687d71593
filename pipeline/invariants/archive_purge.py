"""An invariant: no slice deletes so many old rows that it may be an archive's purge.

Volume and age alone do not distinguish a purge from a mass delete, and either guess may be wrong.
So the table waits until a person decides.  Deletes that are declared as an archive's (``archive``
in `sluice.yaml`, ``sluice archive keep``) do not count.  Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from shlex import quote
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import ConfigError, HeldError
from pipeline.invariants.invariant import Breach, IntendedRows, Invariant

MOST_DAYS = 5  # days that one hold names
_TIME = pa.timestamp("us")


@dataclass(frozen=True, slots=True)
class ArchivePurge:
    """Hold deletes of old rows above ``rows`` a day, or above ``times`` the usual daily changes.

    A row is old if its ``column``, a date or time, is more than ``older`` before its delete.  Up to
    ``asked`` deletes are never held.
    Days are UTC.  A day is held at most once: a waiver accepts the rest of that day, too.
    """

    column: str
    rows: int = 5_000_000
    times: float = 7.0
    older: timedelta = timedelta(days=30)
    asked: int = 100
    recalls: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Reject invalid settings.

        Raises:
            ConfigError: a bound is negative, or no column is named.
        """
        if not self.column or min(self.rows, self.times, self.asked) < 0:
            raise ConfigError(
                "archive_purge: column is empty or a number is negative; name a date column, and"
                " set rows, times and asked to 0 or more"
            )

    def breaches(self, intended: IntendedRows) -> Iterator[Breach]:
        """Yield a breach for each day, by the slice as a whole; at most `MOST_DAYS`."""
        intended.require(self.column)
        gone = intended.deleted((self.column,))
        old = self._old(gone, intended.table)
        if not len(old) or (newest := pc.max(old["at"]).as_py()) is None:
            return
        days = pc.fill_null(old["at"], newest).cast(pa.date32())
        every = (
            self._judge(intended, day, old.filter(pc.equal(days, day)))
            for day in sorted(pc.unique(days).to_pylist())
        )
        yield from islice(filter(None, every), MOST_DAYS)

    def _judge(self, intended: IntendedRows, day: date, old: pa.Table) -> Breach | None:
        """The breach of the *old* rows that the slice deletes on one *day*, if it is one."""
        landed = intended.landed(self.column, day)
        before = len(self._old(landed.deleted, intended.table))
        limit = self.limit(landed.usual)
        if not before <= limit < before + len(old):
            return None
        return Breach(self._explain(intended.table, old, before, landed.usual, limit))

    def limit(self, usual: float | None) -> float:
        """The most old rows that may be deleted in a day without a hold.

        *usual* is the usual number of changes a day, None if that is unknown.
        """
        most = self.rows if usual is None else min(self.rows, self.times * usual)
        return float(max(most, self.asked))

    def is_old(self, rows: pa.Table, table: str) -> npt.NDArray[np.bool_]:
        """Which *rows* were old when they were deleted; a row of unknown age counts as old.

        *rows* have the age column and ``at``, the time of the delete.

        Raises:
            HeldError: ``invariant``, the column is neither a date nor a timestamp.
        """
        column = rows[self.column]
        if not (pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)):
            detail = f"{table}.{self.column} is of type {column.type}, which has no age"
            advice = "name a date or time under `archive_purge` and restart the service"
            raise HeldError("invariant", f"{detail}; {advice}")
        born = column.cast(pa.timestamp("us", getattr(column.type, "tz", None))).cast(_TIME)
        age = pc.subtract(rows["at"].cast(pa.timestamp("us", "UTC")).cast(_TIME), born)
        old = pc.fill_null(pc.greater(age, pa.scalar(self.older)), True)
        found: npt.NDArray[np.bool_] = old.to_numpy()
        return found

    def _old(self, rows: pa.Table, table: str) -> pa.Table:
        return rows.filter(pa.array(self.is_old(rows, table))) if len(rows) else rows

    def _explain(
        self, table: str, old: pa.Table, before: int, usual: float | None, limit: float
    ) -> str:
        first, last = pc.min(old["at"]).as_py(), pc.max(old["at"]).as_py()
        many = before + len(old)
        daily = "" if usual is None else f" ({usual:.0f} changes a day are usual)"
        until, bound = last + timedelta(hours=1), (last - self.older).date()
        return (
            f"{many} rows older than {self.older.days} days are deleted in one day, more than"
            f" {limit:.0f}{daily}; if an archive's purge deleted them, run"
            f" `sluice archive keep {quote(table)} --since {_instant(first)}"
            f" --until {_instant(until)} --column {quote(self.column)} --before {bound}"
            " --reason ...`"
        )


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


INVARIANT: type[Invariant] = ArchivePurge
