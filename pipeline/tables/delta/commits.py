"""What does an entry of a Delta log say of its commit, one of ours or another's?  Pure."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from pipeline.apply.commits import Commit, FileState
from pipeline.lake import vectors
from pipeline.lake.entries import Action
from pipeline.lake.shape import shape_of

INSERTED, DELETED = "numTargetRowsInserted", "numTargetRowsDeleted"


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
    metrics = info.get("operationMetrics") or {}
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
        metrics=metrics,
        shape=shape,
        came=frozenset(map(_state, files["add"])),
        went=frozenset(map(_state, files["remove"])),
        gained=_number(metrics.get(INSERTED)) - _number(metrics.get(DELETED)),
        entry=entry,
    )


def _number(told: object) -> int:
    return int(str(told)) if str(told).isdecimal() else 0


def _state(file: Action) -> FileState:
    return unquote(str(file.get("path", ""))), vectors.identity(file.get("deletionVector"))


def _note(text: str | None) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text
