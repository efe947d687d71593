"""A folder of logs, its ledger, and a sweep whose clocks stand until they are moved."""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from pipeline.files.content import FaultHead, HeartbeatHead
from pipeline.files.layout import UNFINISHED, LogRule, PartitionRange, Patience
from pipeline.files.ledger import Ledger, LedgerEntry, TakenFile
from pipeline.files.sweep import FileSweep, SweepRules

ROW = b'{"id": 1}\n'
NOW = datetime(2026, 11, 23, 12, 30, tzinfo=UTC)
HOUR = ("2026_11_23", "12")
SETTLE, LIMIT = timedelta(seconds=10), timedelta(minutes=5)


@dataclass(eq=False)
class LogFolder:
    """Sweeps by a clock of its own; the process that sweeps may be another at any time."""

    home: Path
    logs: Mapping[str, LogRule] = field(default_factory=dict)
    at: float = 0.0
    deep: timedelta = timedelta()
    budget: timedelta = timedelta(hours=1)

    def __post_init__(self) -> None:
        self.base = self.home / "logs"
        self.base.mkdir(exist_ok=True)
        self.ledger = self._ledger()
        self.process = self._process()

    def __enter__(self) -> "LogFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.close()
        self.ledger.close()

    def again(self) -> None:
        """Another process goes on from what the ledger says."""
        self.process.close()
        self.ledger.close()
        self.ledger = self._ledger()
        self.process = self._process()

    def write(
        self, name: str, data: bytes, *, log: str = "clicks", hour: tuple[str, str] = HOUR
    ) -> Path:
        path = self.base / log / hour[0] / hour[1] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def sweep(self, times: int = 1, after: timedelta = SETTLE) -> None:
        """So many whole sweeps, each some time after the one before."""
        for _ in range(times):
            self.at += after.total_seconds()
            self.process.advance()
            while self.process.going:
                self.process.advance()

    def settled(self) -> None:
        """All that stands still is taken."""
        self.sweep(3)

    def taken(self) -> dict[str, int]:
        """Path -> rows, of files that are in the ledger; it tells none twice."""
        told = [e.what for e in self.entries() if isinstance(e.what, TakenFile)]
        assert [p for p, times in Counter(one.path for one in told).items() if times > 1] == []
        return {Path(one.path).name: one.rows for one in told}

    def faults(self) -> list[str]:
        return [e.what.why for e in self.entries() if isinstance(e.what, FaultHead)]

    def beats(self) -> list[int]:
        return [e.what.n for e in self.entries() if isinstance(e.what, HeartbeatHead)]

    def entries(self) -> tuple[LedgerEntry, ...]:
        return self.ledger.entries(0, self.ledger.count().end)

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.at)

    def _ledger(self) -> Ledger:
        """On a disk that need not keep anything when the power fails."""
        made = Ledger(self.home / "ledger.db")
        with made._asked() as db:
            db.execute("PRAGMA synchronous = OFF")
        return made

    def _process(self) -> FileSweep:
        rules = SweepRules(
            database="logs",
            logs=self.logs,
            range=PartitionRange(timedelta(days=1), timedelta(hours=1), ZoneInfo("UTC")),
            unfinished=UNFINISHED,
            patience=Patience(SETTLE, LIMIT),
            budget=self.budget,
            deep=self.deep,
            behind=timedelta(minutes=1),
            grace=timedelta(hours=1),
        )
        return FileSweep(self.base, self.ledger, rules, self.now, monotonic=lambda: self.at)


def set_time(path: Path, moment: datetime) -> None:
    """The file's own time, as a server with another clock writes it."""
    os.utime(path, (moment.timestamp(), moment.timestamp()))
