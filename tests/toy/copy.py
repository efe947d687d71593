"""A copy in one file of JSON, written anew with each step; no product file knows it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipeline.copies.copy import CopiedTable, Copy, CopyPosition, CopyStep, CopyTarget, RankedRows
from pipeline.errors import HeldError, LostRaceError, UnreachableError

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FileCopy:
    """``path`` is the file; it does not answer while there is no folder for it."""

    path: str

    @property
    def place(self) -> str:
        return f"file://{self.path}"

    def opened(self, owner: str) -> CopyTarget:
        return FileTarget(Path(self.path), owner)

    def rows(self, table: str) -> dict[str, Line]:
        """Rows by their keys, as texts, without what is kept beside them."""
        found = _read(Path(self.path)).get(table, {}).get("rows", {})
        return {key: one["row"] for key, one in found.items()}


@dataclass(eq=False)
class FileTarget:
    """Reads all of it, and puts another in its place."""

    path: Path
    owner: str

    def positions(self) -> Mapping[str, CopyPosition]:
        told = _read(self.path).items()
        for name, one in told:
            if one["owner"] != self.owner:
                raise HeldError("copy_taken", f"{name} is that of {one['owner']}")
        return {name: CopyPosition(**one["at"]) for name, one in told if one["at"]}

    def shaped(self, table: CopiedTable) -> None:
        """Whatever columns there are, a row is a text."""

    def write(self, table: CopiedTable, step: CopyStep) -> int:
        whole = _read(self.path)
        own = whole.setdefault(table.name, {"owner": self.owner, "at": None, "rows": {}})
        if (CopyPosition(**own["at"]) if own["at"] else None) != step.was:
            raise LostRaceError(f"{self.path}: {table.name} stands at {own['at']}")
        for key, line in (one for some in step.came for one in _lines(table, some, step)):
            there = own["rows"].get(key)
            if there and there["source"] == line["source"] and there["rank"] > line["rank"]:
                raise HeldError("copy_written", f"{table.name}: {key} is newer")
            own["rows"][key] = line
        gone = 0
        for key, line in (one for some in step.went for one in _lines(table, some, step)):
            there = own["rows"].get(key)
            if there and there["rank"] <= line["rank"] and there["version"] < line["version"]:
                del own["rows"][key]
            gone += key not in own["rows"]
        if step.sweeps:
            kept = own["rows"].items()
            own["rows"] = {k: one for k, one in kept if one["rank"][0] == step.now.load}
        own["at"] = asdict(step.now)
        made = self.path.with_suffix(".new")
        try:
            made.write_text(json.dumps(whole), "utf-8")
            made.replace(self.path)
        except OSError as error:
            raise UnreachableError(f"{self.path}: {error}") from error
        return gone

    def close(self) -> None:
        """Nothing is open."""


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise UnreachableError(f"{path.parent} is not there") from None
        return {}
    return found


def _lines(table: CopiedTable, some: RankedRows, step: CopyStep) -> list[tuple[str, Line]]:
    sources, shards = some.owned.source.to_pylist(), some.owned.shard.to_pylist()
    ranks = some.owned.rank.T.tolist()
    found = []
    for row, source, shard, rank in zip(some.rows.to_pylist(), sources, shards, ranks, strict=True):
        key = [str(row[name]) for name in table.key] + ([source, shard] if table.sharded else [])
        line = {"row": {n: None if v is None else str(v) for n, v in row.items()}}
        about = {"source": source, "rank": [step.now.load, *rank], "version": step.now.version}
        found.append((json.dumps(key), line | about))
    return found


COPY: type[Copy] = FileCopy
