"""Writes what a version keeps on disk: `python -m tests.stored.make FOLDER`, once a version.

FOLDER gets ``home.tar.xz`` (the lake, store and config of a toy service that was READY, whose
mirror somebody else then wrote to), ``seen.json`` (what that service answered) and ``marks.jsonl``
(texts of landing checkpoints with every field).
"""

import json
import sys
import tarfile
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from hypothesis import HealthCheck, Phase, given, seed, settings

from demo.processes import wait_until
from pipeline.checkpoint import Checkpoint
from tests.pipeline.test_checkpoint import checkpoints as drawn_checkpoints
from tests.toy.stand import TABLE, Stand, now, without_kafka

KEPT = ("lake", "sluice.db", "toy.db", "toy.jsonl")
TEXTS = 60
SOON = timedelta(minutes=2)


def checkpoints() -> list[str]:
    """Texts of *TEXTS* checkpoints, the same at each call."""
    found: list[str] = []

    @seed(1)
    @settings(
        max_examples=TEXTS, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(drawn_checkpoints(7))
    def collect(mark: Checkpoint) -> None:
        found.append(mark.dumps())

    collect()
    return found


def live(stand: Stand) -> dict[str, Any]:
    """Play on *stand*, and return what its service says at the end."""
    stand.database.put(TABLE, *({"id": n, "name": f"n{n}"} for n in range(1, 41)))
    stand.database.delete(TABLE, 40)
    stand.ready(now())
    cut = now()
    for n in range(3):
        stand.database.put(TABLE, {"id": 100 + n, "name": f"spät {n}"}, {"id": n + 1, "name": "x"})
        cut = now()
        stand.ready(cut)
    rows = stand.mirrored()
    mirror = DeltaTable(str(stand.home / "lake" / "mirrors" / "shop" / "orders"))
    mirror.delete("id = 7")
    wait_until(lambda: bool(stand.incidents()), SOON, "an incident")
    (incident,) = stand.incidents()
    return {
        "cut": cut,
        "rows": [rows[key] for key in sorted(rows)],
        "incident": incident["id"],
        "waiver": incident["keys"][0],
    }


def main(folder: Path) -> None:
    """Write all into *folder*."""
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as there:
        with without_kafka(Path(there) / "home", {}) as stand:
            seen = live(stand)
        with tarfile.open(folder / "home.tar.xz", "w:xz") as packed:
            for name in KEPT:
                packed.add(stand.home / name, name)
    told = json.dumps(seen, indent=2, ensure_ascii=False, sort_keys=True)
    (folder / "seen.json").write_text(f"{told}\n", "utf-8")
    lines = "".join(f"{text}\n" for text in checkpoints())
    (folder / "marks.jsonl").write_text(lines, "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
