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


@dataclass(frozen=True, slots=True)
class Commit:
    """One version of a table, as its log tells it.

    ``data_changing`` is false for compaction, and for a new schema or new properties.  ``note`` is
    the user metadata, parsed if it is JSON; ``parameters`` and ``metrics`` those of the operation,
    as its writer told them.
    """

    version: int
    operation: str
    at: datetime
    data_changing: bool = False
    note: Any = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)

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


def commit(version: int, lines: Iterable[str]) -> Commit:
    """Read the actions of one file of the log, one JSON object in a line."""
    info: Mapping[str, Any] = {}
    data = False
    for line in lines:
        action = json.loads(line) if line.strip() else {}
        info = action.get("commitInfo", info)
        files = (action.get(kind) or {} for kind in ("add", "remove", "cdc"))
        data = data or any(file.get("dataChange", False) for file in files)
    at = datetime.fromtimestamp(int(info.get("timestamp", 0)) / 1_000, UTC)
    return Commit(
        version=version,
        operation=str(info.get("operation", "")),
        at=at,
        data_changing=data,
        note=_note(info.get("userMetadata")),
        parameters=info.get("operationParameters") or {},
        metrics=info.get("operationMetrics") or {},
    )


def _note(text: str | None) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text
