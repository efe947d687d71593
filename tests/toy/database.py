"""A toy database of one file: tables of numbers and words, and a log of what was changed."""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]
TABLES = (
    "CREATE TABLE tables (name TEXT PRIMARY KEY, columns TEXT, key TEXT)",
    "CREATE TABLE rows (name TEXT, key INTEGER, row TEXT, PRIMARY KEY (name, key))",
    "CREATE TABLE log (n INTEGER PRIMARY KEY AUTOINCREMENT, change TEXT)",
    "CREATE TABLE sent (n INTEGER)",
    "INSERT INTO sent VALUES (0)",
)


@dataclass(frozen=True, slots=True)
class Database:
    """One file; every method is one transaction, so that others may write between two."""

    path: Path

    def create(self) -> None:
        """Make it, empty."""
        with self._open() as db:
            for statement in TABLES:
                db.execute(statement)

    def define(self, table: str, columns: Mapping[str, str], key: str) -> None:
        """Create *table*, or give it more columns; name -> ``number`` or ``word``."""
        with self._open() as db:
            known = db.execute("SELECT 1 FROM tables WHERE name = ?", (table,)).fetchone()
            values = (table, json.dumps(columns), key)
            db.execute("INSERT OR REPLACE INTO tables VALUES (?, ?, ?)", values)
            kind = "alter" if known else "create"
            _log(db, {"kind": kind, "table": table, "columns": dict(columns), "key": key})

    def put(self, table: str, *rows: Row) -> int:
        """Insert or replace rows; the number of the last entry in the log."""
        with self._open() as db:
            (key,) = db.execute("SELECT key FROM tables WHERE name = ?", (table,)).fetchone()
            for row in rows:
                db.execute(
                    "INSERT OR REPLACE INTO rows VALUES (?, ?, ?)",
                    (table, row[key], json.dumps(row)),
                )
                last = _log(db, {"kind": "put", "table": table, "key": row[key], "row": dict(row)})
        return last

    def delete(self, table: str, key: int) -> None:
        """Delete one row."""
        with self._open() as db:
            (name,) = db.execute("SELECT key FROM tables WHERE name = ?", (table,)).fetchone()
            db.execute("DELETE FROM rows WHERE name = ? AND key = ?", (table, key))
            _log(db, {"kind": "delete", "table": table, "key": key, "row": {name: key}})

    def definitions(self) -> dict[str, tuple[dict[str, str], str]]:
        """Columns and key of every table."""
        with self._open() as db:
            found = db.execute("SELECT name, columns, key FROM tables ORDER BY name").fetchall()
        return {name: (json.loads(columns), key) for name, columns, key in found}

    def rows(self, table: str) -> dict[int, dict[str, Any]]:
        """Its rows by key, ascending."""
        with self._open() as db:
            found = db.execute("SELECT key, row FROM rows WHERE name = ? ORDER BY key", (table,))
            return {key: json.loads(row) for key, row in found}

    def end(self) -> int:
        """The number of the log's last entry; 0 while there is none."""
        return self._number("SELECT COALESCE(MAX(n), 0) FROM log")

    def sent(self) -> int:
        """The log's entries up to this one were sent on, and arrived."""
        return self._number("SELECT n FROM sent")

    def unsent(self) -> Sequence[tuple[int, dict[str, Any]]]:
        """Entries after that, with their numbers."""
        with self._open() as db:
            found = db.execute("SELECT n, change FROM log WHERE n > (SELECT n FROM sent)")
            return [(n, json.loads(change)) for n, change in found]

    def mark_sent(self, until: int) -> None:
        """Remember that all up to *until* have arrived."""
        with self._open() as db:
            db.execute("UPDATE sent SET n = ?", (until,))

    def _number(self, question: str) -> int:
        with self._open() as db:
            return int(db.execute(question).fetchone()[0])

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")


def _log(db: sqlite3.Connection, change: dict[str, Any]) -> int:
    return int(
        db.execute("INSERT INTO log (change) VALUES (?)", (json.dumps(change),)).lastrowid or 0
    )
