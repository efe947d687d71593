"""Reads what the service stored last, while no service answers.

Uses SQLite directly and read-only: importing the store takes a second, and opening it upgrades the
file. Nothing here is about the present: only a running service may say READY.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pipeline.errors import UnreachableError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEWEST = """
    SELECT "table", id, max(cut) FROM certificates
    WHERE stage = ? AND revoked IS NULL GROUP BY "table" ORDER BY "table"
"""
_OPEN = "SELECT body FROM incidents WHERE state != 'resolved' ORDER BY opened, id"


@dataclass(frozen=True, slots=True)
class LastProof:
    """The valid certificate of a table with the latest cut."""

    table: str
    certificate: str
    cut: datetime


@dataclass(frozen=True, slots=True)
class LastKnown:
    """Reads the store at *path*.

    Each method raises UnreachableError if the file does not exist or is unreadable.
    """

    path: Path

    def at(self) -> datetime | None:
        """Return when a job of the service last ended; None if none ever did."""
        with self._connection() as connection:
            ((found,),) = connection.execute("SELECT max(finished) FROM ticks").fetchall()
        return None if found is None else _instant(found)

    def proofs(self, stage: str) -> tuple[LastProof, ...]:
        """Return the latest proof of each table that was READY at *stage*, by names."""
        with self._connection() as connection:
            rows = connection.execute(_NEWEST, (stage,)).fetchall()
        return tuple(LastProof(table, of, _instant(cut)) for table, of, cut in rows)

    def incidents(self) -> tuple[dict[str, Any], ...]:
        """Return open incidents, oldest first, with the keys of the API's answer."""
        with self._connection() as connection:
            bodies = [body for (body,) in connection.execute(_OPEN)]
        found = list[dict[str, Any]]()
        for body in bodies:
            with suppress(ValueError, KeyError, TypeError):  # the service reports unreadable rows
                found.append(_incident(json.loads(body)))
        return tuple(found)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        if not self.path.exists():
            raise UnreachableError(f"store {self.path}: does not exist yet; start `sluice run`")
        try:
            with closing(sqlite3.connect(f"file:{quote(str(self.path))}?mode=ro", uri=True)) as it:
                yield it
        except sqlite3.Error as error:
            raise UnreachableError(f"store {self.path}: {error}") from error


def _incident(body: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": body["cause"]["kind"],
        "check": body["cause"]["check"],
        "about": body["cause"]["subject"],
        "state": body["state"],
        "severity": body["severity"],
        "opened": body["opened"],
        "reason": body["ruling"]["reason"],
    }


def _instant(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)
