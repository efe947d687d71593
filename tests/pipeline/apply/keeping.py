"""Upkeep of a hand-made lake as one process does it, and a way to make what was done older."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from pipeline.apply.maintenance import LakeMaintenance
from pipeline.apply.table_format import Mirrors
from pipeline.changelog.change_log import ChangeLog
from pipeline.delta.log import ActiveFile
from pipeline.delta.store import open_store
from pipeline.model import Op
from pipeline.tables.delta.table_format import DeltaMirrors
from tests.builders.change_log import read_table
from tests.builders.lake import LocalLake, row

C, U, D = Op.CREATE, Op.UPDATE, Op.DELETE
DAY = timedelta(days=1)
AGED = timedelta(days=30)
ROWS = dict.fromkeys(range(12), "a") | {0: "z"}


@dataclass
class Keeping:
    """Upkeep of a lake by one process that lives for long; each ``run`` is a day later."""

    lake: LocalLake
    now: datetime = field(default_factory=lambda: datetime.now(UTC) - DAY)
    left: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings = self.lake.settings
        changes = ChangeLog(open_store(settings.changes), "main")
        self.upkeep = LakeMaintenance(
            settings, changes, Mirrors(settings, DeltaMirrors(None)), lambda: self.now
        )
        self.run()

    def run(self, readers: Mapping[str, int] | None = None, **mark: Any) -> None:
        made = replace(self.lake.checkpoint, **mark)
        applied = {name: self.upkeep.mirrors.applied(name) for name in made.tables}
        self.upkeep.run(made, readers or {}, applied, self._held)
        self.now += DAY

    def _held(self, table: str) -> bool:
        self.asked.append(table)
        return table in self.left


def kept(lake: LocalLake, reader: int | None = None) -> None:
    """All that is due at the wall clock's time, by a process that began a day earlier."""
    Keeping(lake).run({} if reader is None else {"db.t": reader})


def mirror(lake: LocalLake, table: str = "db.t") -> str:
    return lake.settings.mirror(table)


def on_disk(path: str, pattern: str = "part-*.parquet") -> set[Path]:
    return set(Path(path).rglob(pattern))


def named(path: str) -> int:
    return len(DeltaTable(path).file_uris())


def read(path: str, version: int) -> dict[int, str]:
    found = read_table(path, version)
    return {r["id"]: r["name"] for r in found.select("SELECT id, name FROM t ORDER BY id")}


def aged(path: str, by: timedelta = AGED) -> None:
    """Let everything that was ever done to a table have been done so much earlier.

    Without the checkpoints, which would tell the times again; all entries must still be there.
    """
    assert Path(path, "_delta_log", f"{0:020d}.json").exists()
    for checkpoint in Path(path, "_delta_log").glob("*checkpoint*"):
        checkpoint.unlink()
    for log in Path(path, "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for line in lines:
            for action, stamp in (("remove", "deletionTimestamp"), ("commitInfo", "timestamp")):
                if action in line:
                    line[action][stamp] -= int(by / timedelta(milliseconds=1))
        log.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    for file in Path(path).rglob("*"):
        then = file.stat().st_mtime - by.total_seconds()
        os.utime(file, (then, then))


def file(path: str, rows: int, gone: int = 0) -> ActiveFile:
    vector = {"deletionVector": {"cardinality": gone}} if gone else {}
    return ActiveFile({"path": path, "size": 1, "stats": f'{{"numRecords":{rows}}}'} | vector)


def filled(lake: LocalLake) -> LocalLake:
    batches = [[row(C, 10 + key, key, "a")] for key in range(12)]
    lake.play(*batches, [row(U, 90, 0, "z"), row(U, 91, 1, "a")])
    return lake


def batches(lake: LocalLake, *ops: str) -> list[int]:
    """Batches of the change log's rows of *ops*, as code that is not ours reads them."""
    found = read_table(lake.settings.changes)
    words = ", ".join(f"'{op}'" for op in ops or (C, U, D))
    return [
        r["batch"] for r in found.select(f"SELECT batch FROM t WHERE op IN ({words}) ORDER BY 1")
    ]
