"""Counts the rows per hour of a log, and the late ones, from the ledger.

A file belongs to the window of its first row.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pipeline.files.ledger import Ledger, TakenRows
from pipeline.settings import SourceSettings
from pipeline.sources.files.source import ledger_path
from pipeline.sources.source import PartitionArrivals, SourceArrivals


@dataclass(eq=False)
class FileArrivals:
    """The arrivals of a folder of files; see :class:`pipeline.sources.source.SourceArrivals`."""

    settings: SourceSettings
    _ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        """Prepare the ledger; open no file."""
        self._ledger = Ledger(Path(ledger_path(self.settings)))

    def end(self) -> int:
        return self._ledger.count().end

    def between(self, after: int, until: int) -> Sequence[PartitionArrivals]:
        """Counts by hour; a whole file belongs to the window of its first row."""
        return [_to_arrivals(one) for one in self._ledger.rows_between(after, until)]

    def late(self, since: datetime | None) -> Sequence[PartitionArrivals]:
        """Counts of files that were taken more than `grace` after the end of their hour."""
        least = float("-inf") if since is None else since.timestamp()
        return [_to_arrivals(one) for one in self._ledger.late_rows(least)]

    def close(self) -> None:
        self._ledger.close()


def _to_arrivals(one: TakenRows) -> PartitionArrivals:
    first, last = (datetime.fromtimestamp(at, UTC) for at in (one.began, one.ended))
    return PartitionArrivals(one.shard, one.part, one.files, one.rows, one.late, first, last)


ARRIVALS: type[SourceArrivals] = FileArrivals
