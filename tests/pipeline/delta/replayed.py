"""A Delta log replayed by code that shares nothing with the product: files, rows, accounts."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote


@dataclass(eq=False)
class Replayed:
    """A table's log from its first entry on; ``rows`` after each version."""

    folder: Path
    files: dict[str, int] = field(default_factory=dict)
    rows: list[int] = field(default_factory=list)
    turns: int = 0

    def __post_init__(self) -> None:
        """Replay; every turn's own account must be what its files say."""
        entries = sorted(self.folder.glob("_delta_log/" + "[0-9]" * 20 + ".json"))
        assert [int(one.stem) for one in entries] == list(range(len(entries))), "a hole"
        for entry in entries:
            self._take([json.loads(line) for line in entry.read_text().splitlines()])

    def _take(self, actions: list[dict[str, Any]]) -> None:
        before = sum(self.files.values())
        for one in actions:
            if (gone := one.get("remove")) is not None:
                del self.files[gone["path"]]
        for one in actions:
            if (new := one.get("add")) is not None:
                assert new["path"] not in self.files, "a file beside itself"
                self._there(new)
                vector = new.get("deletionVector") or {"cardinality": 0}
                self.files[new["path"]] = _records(new) - vector["cardinality"]
        self.rows.append(sum(self.files.values()))
        (info,) = (one["commitInfo"] for one in actions if "commitInfo" in one)
        told = info.get("operationMetrics") or {}
        if info["operation"] == "MERGE":
            self.turns += 1
            came, went = (int(told[f"numTargetRows{how}"]) for how in ("Inserted", "Deleted"))
            assert before + came - went == self.rows[-1], "an account that is not exact"
        elif info["operation"] == "OPTIMIZE":
            assert before == self.rows[-1], "compaction changed rows"

    def _there(self, new: dict[str, Any]) -> None:
        path = self.folder / unquote(new["path"])
        if path.exists():  # it may have left, and been vacuumed
            assert path.stat().st_size == new["size"]

    @property
    def missing(self) -> list[str]:
        """Files that the newest version names and that are not there."""
        return [path for path in self.files if not (self.folder / unquote(path)).exists()]


def _records(new: dict[str, Any]) -> int:
    return int(json.loads(new["stats"])["numRecords"])
