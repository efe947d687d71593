"""What did each commit to a Delta table do, and did Sluice make it?

Sluice's commits carry ``{"sluice": {"after": <version before>, ...}}`` as user metadata.  A commit
without it is foreign; one that changes data makes the mirror a different table from the one that
the applied batch speaks of, whatever its transaction ids say (RESTORE keeps them).  Pure.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from pipeline.lake import vectors
from pipeline.lake.entries import Action
from pipeline.lake.shape import shape_of

FileState = tuple[str, str | None]  # a file's path, and which vector hides rows of it


@dataclass(frozen=True, slots=True)
class Commit:
    """One version of a table, as its log tells it.

    ``data_changing`` is false for compaction, and for a new schema or new properties.  ``note`` is
    the user metadata, parsed if it is JSON; ``txns`` transaction ids; ``parameters`` and
    ``metrics`` those of the operation, as its writer told them.  ``shape`` is that of
    :func:`shape_of` where it was told anew; ``came`` and ``went`` are files as they stand after it
    and stood before it; ``entry`` tells the entry's content from any other, if known.
    """

    version: int
    operation: str
    at: datetime
    data_changing: bool = False
    note: Any = None
    txns: Mapping[str, int] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    shape: str | None = None
    came: frozenset[FileState] = frozenset()
    went: frozenset[FileState] = frozenset()
    entry: str = ""

    @property
    def own(self) -> Mapping[str, Any]:
        """What Sluice noted in a commit of its own; empty for others'."""
        own = self.note.get("sluice") if isinstance(self.note, dict) else None
        return own if isinstance(own, dict) else {}

    @property
    def after(self) -> int | None:
        """The version Sluice saw before this commit of its own; None for a foreign commit."""
        after = self.own.get("after")
        return after if isinstance(after, int) else None


def commit(version: int, lines: Iterable[str], *, entry: str = "") -> Commit:
    """Read the actions of one file of the log, one JSON object in a line."""
    info: Mapping[str, Any] = {}
    files: dict[str, list[Action]] = {"add": [], "remove": [], "cdc": []}
    shape: str | None = None
    txns: dict[str, int] = {}
    for line in lines:
        action = json.loads(line) if line.strip() else {}
        info = action.get("commitInfo") or info
        for kind in files.keys() & action.keys():
            files[kind] += [action[kind]] if action[kind] else []
        shape = shape_of(action["metaData"]) if action.get("metaData") is not None else shape
        if action.get("txn"):
            txns[action["txn"]["appId"]] = int(action["txn"]["version"])
    at = datetime.fromtimestamp(int(info.get("timestamp", 0)) / 1_000, UTC)
    return Commit(
        version=version,
        operation=str(info.get("operation", "")),
        at=at,
        # whoever does not say that rows were only moved may have changed them
        data_changing=any(one.get("dataChange", True) for all_ in files.values() for one in all_),
        note=_note(info.get("userMetadata")),
        txns=txns,
        parameters=info.get("operationParameters") or {},
        metrics=info.get("operationMetrics") or {},
        shape=shape,
        came=frozenset(map(_state, files["add"])),
        went=frozenset(map(_state, files["remove"])),
        entry=entry,
    )


def _state(file: Action) -> FileState:
    return unquote(str(file.get("path", ""))), vectors.identity(file.get("deletionVector"))


def _note(text: str | None) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text
