"""Records what the source committed, and when: one line per event of a transaction, append-only.

A transaction is written twice: before its COMMIT is sent (so the intention of a killed writer is
known) and when its outcome is known. The last line of a number counts. So a COMMIT whose answer was
lost can be settled later.
"""

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

Key = tuple[int, ...]


class Outcome(StrEnum):
    """How a transaction ended; unknown when the connection died inside COMMIT."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RowState:
    """One row as its transaction left it.

    ``touched`` is the transaction number in the row now, None if the row is deleted. ``before`` is
    the earlier number, None if there was no row when the transaction began; the before image of a
    delete shows it. ``passing`` are intermediate states inside the transaction. A reader that sees
    only a part of the transaction may see them.
    """

    shard: str
    key: Key
    touched: int | None
    before: int | None = None
    passing: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """A transaction: ``begun`` <= ``sent`` (COMMIT) <= ``acknowledged``; all aware, in UTC.

    ``rows`` contains each key once, in its last state; for a rolled-back one, the attempted state.
    """

    number: int
    begun: datetime
    sent: datetime
    rows: tuple[RowState, ...]
    outcome: Outcome = Outcome.UNKNOWN
    acknowledged: datetime | None = None


class Ledger:
    """The append-only file; safe to write from threads and to read from other processes."""

    def __init__(self, path: Path) -> None:
        """Open *path*; numbers continue after its highest one."""
        self.path = path
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        _drop_unfinished(path)
        self._next = max(read_ledger(path), default=0) + 1
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)

    def number(self) -> int:
        """Return the next transaction number; no number is returned twice."""
        with self._lock:
            self._next += 1
            return self._next - 1

    def skip_to(self, number: int) -> None:
        """Return no number below *number* from now on: rows may be older than this ledger."""
        with self._lock:
            self._next = max(self._next, number)

    def intend(self, entry: Entry) -> None:
        """Record a transaction before COMMIT is sent, or one that was rolled back."""
        self._append(
            {
                "number": entry.number,
                "begun": entry.begun.isoformat(),
                "sent": entry.sent.isoformat(),
                "outcome": entry.outcome,
                "rows": [_told(row) for row in entry.rows],
            }
        )

    def settle(self, number: int, outcome: Outcome, acknowledged: datetime | None = None) -> None:
        """Record how transaction *number* ended; *acknowledged* only if it was committed."""
        when = acknowledged.isoformat() if acknowledged else None
        self._append({"number": number, "outcome": outcome, "acknowledged": when})

    def entries(self) -> dict[int, Entry]:
        """Return every transaction so far, by number."""
        return read_ledger(self.path)

    def close(self) -> None:
        """Close the file; entries can still be read."""
        os.close(self._file)

    def _append(self, line: Mapping[str, Any]) -> None:
        """Write one whole line in one call, so that lines of threads do not mix."""
        text = json.dumps(line, separators=(",", ":")) + "\n"
        with self._lock:
            os.write(self._file, text.encode())


def read_ledger(path: Path) -> dict[int, Entry]:
    """Return every transaction in *path*, by number; an unfinished last line is left out."""
    entries: dict[int, Entry] = {}
    whole, _, _ = path.read_text().rpartition("\n")
    for text in whole.splitlines():
        line = json.loads(text)
        if "rows" in line:
            entries[line["number"]] = _begun(line)
        else:
            entries[line["number"]] = _settled(entries[line["number"]], line)
    return entries


def _drop_unfinished(path: Path) -> None:
    """Cut off the partial last line of a killed writer; create the file if it does not exist."""
    text = path.read_text() if path.exists() else ""
    path.write_text(text[: text.rfind("\n") + 1])


def _told(row: RowState) -> list[object]:
    return [row.shard, row.key, row.touched, row.before, row.passing]


def _begun(line: Mapping[str, Any]) -> Entry:
    """Return the entry that a writer stores before COMMIT."""
    return Entry(
        number=line["number"],
        begun=datetime.fromisoformat(line["begun"]),
        sent=datetime.fromisoformat(line["sent"]),
        rows=tuple(
            RowState(shard, tuple(key), touched, before, tuple(passing))
            for shard, key, touched, before, passing in line["rows"]
        ),
        outcome=Outcome(line["outcome"]),
    )


def _settled(entry: Entry, line: Mapping[str, Any]) -> Entry:
    """Return the entry with its outcome."""
    when = line["acknowledged"]
    return replace(
        entry,
        outcome=Outcome(line["outcome"]),
        acknowledged=datetime.fromisoformat(when) if when else None,
    )
