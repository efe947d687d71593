"""Reports the last stored state, for verbs that reach no running service.

The report never says READY. Since then a check may have failed, and another writer may have changed
a mirror.

It reads SQLite directly and read-only: importing the store takes a second, and opening it upgrades
the file.
"""

import json
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from monitor.config.location import read_location
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
        """Return the latest proof at *stage* of each table that was READY, sorted by name."""
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


Json = dict[str, Any]


def read_last_status(config: Path, stage: str, tables: Collection[str] = ()) -> Json:
    """Read the newest proof of each of *tables* (empty: all), and the open incidents.

    ``why`` is the reason if nothing is known.
    """
    where = read_location(config)
    known = LastKnown(where.store)
    try:
        at, found, incidents = known.at(), known.proofs(stage), known.incidents()
    except UnreachableError as error:
        return {"why": str(error), "at": None, "proofs": [], "incidents": []}
    proofs: list[Json] = [
        {
            "table": one.table,
            "stage": stage,
            "cut": one.cut.astimezone(where.zone).isoformat(),
            "certificate": one.certificate,
        }
        for one in found
        if not tables or one.table in tables
    ]
    proven = {one["table"] for one in proofs}
    proofs += [
        {"table": name, "stage": stage, "cut": None, "certificate": None}
        for name in tables
        if name not in proven
    ]
    written = at.astimezone(where.zone).isoformat(timespec="seconds") if at else None
    return {"why": "", "at": written, "proofs": proofs, "incidents": list(incidents)}


def format_status(words: Json) -> list[str]:
    """Return the lines for people; each proof has its cut and its certificate."""
    if words["why"]:
        return [words["why"]]
    when = (
        (f"the service stored its last state at {words['at']}")
        if words["at"]
        else "no service has ever run here"
    )
    return [f"{when}; state at that time:", *map(_proof, words["proofs"])]


def _proof(one: Json) -> str:
    if one["cut"] is None:
        return f"  {one['table']} {one['stage']}: never proven complete"
    shown = f"complete up to {one['cut']}, certificate {one['certificate']}"
    return f"  {one['table']} {one['stage']}: {shown}"
