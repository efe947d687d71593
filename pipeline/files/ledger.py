"""Stores which files were taken, in which order, and how far sweeps have come, in SQLite.

The ledger is the log of a folder. Its entries have consecutive offsets, are only ever added, and
list each file once.

One process at a time adds entries (`pipeline.files.sweep`). Any process may read, and another one
requests heartbeats. A change is on disk before its method returns.
"""

import os
import sqlite3
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pipeline.errors import ConfigError, UnreachableError
from pipeline.files.content import ColumnsHead, FaultHead, HeartbeatHead, MessageHead
from pipeline.files.layout import FileStamp, KnownFile, RestlessFiles, WaitingFile


class TakenFile(msgspec.Struct, tag="file", frozen=True):
    """A file as it was taken, with all that reading its rows needs; ``path`` is below the base."""

    shard: str
    path: str
    day: str
    hour: str
    kind: str
    stamp: tuple[int, int, int, int]
    digest: str
    rows: int
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """Offsets ``[first, until)``: the rows of a file, or one message of another kind."""

    first: int
    until: int
    what: TakenFile | ColumnsHead | HeartbeatHead | FaultHead


@dataclass(frozen=True, slots=True)
class TakenRows:
    """Taken files of one partition: their number, their rows, and how many of the rows are late.

    ``began`` and ``ended`` are the times of the first and the last take, in seconds since 1970.
    """

    shard: str
    part: str
    files: int
    rows: int
    late: int
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class SweepCount:
    """The numbers of sweeps ``begun`` and ``done``, and the end of the ledger.

    ``asked`` is the newest requested heartbeat; -1 before there is one.
    """

    begun: int
    done: int
    end: int
    asked: int


TABLES = (
    "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS entries (first INTEGER PRIMARY KEY, until INTEGER, kind TEXT,"
    " body TEXT)",
    "CREATE TABLE IF NOT EXISTS taken (path TEXT PRIMARY KEY, inode INTEGER, size INTEGER,"
    " modified INTEGER, changed INTEGER, digest TEXT, rows INTEGER, part TEXT, at REAL,"
    " sweep INTEGER, shard TEXT, first INTEGER, late INTEGER) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS taken_by_inode ON taken (inode)",
    "CREATE INDEX IF NOT EXISTS taken_by_first ON taken (first)",
    "CREATE INDEX IF NOT EXISTS taken_late ON taken (at) WHERE late",
    "CREATE TABLE IF NOT EXISTS waiting (path TEXT PRIMARY KEY, inode INTEGER, size INTEGER,"
    " modified INTEGER, changed INTEGER, first INTEGER, since REAL, why TEXT, told INTEGER,"
    " part TEXT, looked INTEGER, seen REAL) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS waiting_by_inode ON waiting (inode)",
    "CREATE INDEX IF NOT EXISTS waiting_unheard_of ON waiting (first) WHERE NOT told",
    "CREATE TABLE IF NOT EXISTS rewritten (path TEXT PRIMARY KEY) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS columns (shard TEXT PRIMARY KEY, body TEXT) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS hours_left (part TEXT PRIMARY KEY, changed INTEGER,"
    " newest INTEGER) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS own_disks (log TEXT PRIMARY KEY) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS beats (sweep INTEGER PRIMARY KEY, n INTEGER)",
)
KEEPS_SEEN = "SELECT 1 FROM pragma_table_info('waiting') WHERE name = 'seen'"
KEEP_SEEN = "ALTER TABLE waiting ADD COLUMN seen REAL"  # ledgers of earlier versions do not have it
_KNOWN = (
    "SELECT path, inode, size, modified, changed, digest, rows, path IN rewritten FROM taken WHERE "
)
_WAITS = (
    "SELECT path, inode, size, modified, changed, first, since, why, told, seen FROM waiting WHERE "
)
_PATHS = "path IN (SELECT value FROM json_each(?))"
TAKEN, WAITING, UNSEEN = f"{_KNOWN}{_PATHS}", f"{_WAITS}{_PATHS}", f"{_WAITS}looked < ?"
FIRSTS = (
    "SELECT inode, MIN(first) FROM waiting WHERE NOT told AND inode IN"
    " (SELECT value FROM json_each(?)) GROUP BY inode"
)
RESTLESS = (
    "SELECT COUNT(*), path, MIN(seen) FROM waiting WHERE NOT told AND since > seen AND seen <= ?"
)
BY_INODE = f"{_KNOWN}inode = ? AND substr(path, 1, length(?)) = ? ORDER BY rows = 0, path"
ROWS = (
    "SELECT shard, part, COUNT(*), SUM(rows), SUM(CASE WHEN late THEN rows ELSE 0 END), MIN(at),"
    " MAX(at) FROM taken WHERE {} GROUP BY shard, part ORDER BY shard, part"
)
BETWEEN, LATE = ROWS.format("first >= ? AND first < ? AND rows"), ROWS.format("late AND at >= ?")


START: Mapping[str, int] = {"end": 0, "begun": 0, "done": 0, "asked": -1, "beaten": -1}
AT_ONCE = 500  # paths in one query
T = TypeVar("T", str, int)


_ENTRY = msgspec.json.Decoder(TakenFile | ColumnsHead | HeartbeatHead | FaultHead)


@dataclass(eq=False)
class Ledger:
    """The ledger file; created and opened on first use, safe from several threads."""

    path: Path
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    _db: sqlite3.Connection | None = None

    @property
    def id(self) -> str:
        """Return its id; a ledger that was lost and created again has another one."""
        with self._asked() as db:
            return str(db.execute("SELECT value FROM meta WHERE name = 'id'").fetchone()[0])

    def count(self) -> SweepCount:
        """Return all counts as of one instant."""
        with self._asked() as db:
            found = dict(db.execute("SELECT name, value FROM meta").fetchall())
        return SweepCount(found["begun"], found["done"], found["end"], found["asked"])

    def entries(self, first: int, until: int) -> tuple[LedgerEntry, ...]:
        """Return the entries that hold an offset of ``[first, until)``, in order."""
        with self._asked() as db:
            rows = db.execute(
                "SELECT first, until, body FROM entries WHERE first >= COALESCE((SELECT"
                " MAX(first) FROM entries WHERE first <= ?), 0) AND first < ? AND until > ?"
                " ORDER BY first",
                (first, until, first),
            ).fetchall()
        return tuple(LedgerEntry(low, high, _ENTRY.decode(body)) for low, high, body in rows)

    def last_rows(self) -> LedgerEntry | None:
        """Return the entry of the newest file that holds a row; None without one."""
        with self._asked() as db:
            row = db.execute(
                "SELECT first, until, body FROM entries WHERE kind = 'rows'"
                " ORDER BY first DESC LIMIT 1"
            ).fetchone()
        return None if row is None else LedgerEntry(row[0], row[1], _ENTRY.decode(row[2]))

    def columns(self) -> Mapping[str, ColumnsHead]:
        """Return the present columns of each log."""
        with self._asked() as db:
            rows = db.execute("SELECT shard, body FROM columns").fetchall()
        return {shard: msgspec.json.decode(body, type=ColumnsHead) for shard, body in rows}

    def write_heartbeat(self, at_least: int, shard: str, source: str) -> int:
        """Request the next heartbeat of *source*, a row of *shard*; return its number.

        It is written once a sweep that begins later has ended. None is skipped, for readers that
        follow each heartbeat.
        """
        with self._writing() as db:
            following = _meta(db, "asked") + 1
            number = max(following, at_least)
            if number > following:  # lower ones were requested from another ledger, or never
                _put(db, "beaten", number - 1)
            _put(db, "asked", number)
            stored = msgspec.json.encode(HeartbeatHead(shard, source, number)).decode()
            db.execute("INSERT OR REPLACE INTO meta VALUES ('heart', ?)", (stored,))
        return number

    def begin(self) -> int:
        """Begin a sweep, and return its number; it answers the heartbeats requested so far."""
        with self._writing() as db:
            number = _meta(db, "begun") + 1
            _put(db, "begun", number)
            db.execute("INSERT INTO beats VALUES (?, ?)", (number, _meta(db, "asked")))
        return number

    def taken(self, paths: Sequence[str]) -> Mapping[str, KnownFile]:
        """Return those of *paths* that were taken."""
        with self._asked() as db:
            rows = [row for some in _some(paths) for row in db.execute(TAKEN, (_json_array(some),))]
        return dict(map(_known, rows))

    def waiting(self, paths: Sequence[str]) -> Mapping[str, WaitingFile]:
        """Return those of *paths* that were seen and are not taken."""
        with self._asked() as db:
            every = (db.execute(WAITING, (_json_array(some),)) for some in _some(paths))
            return dict(_waiting(row) for rows in every for row in rows)

    def by_inode(self, inode: int, log: str) -> Sequence[tuple[str, KnownFile]]:
        """Return files of *log*, by path, that had this inode when they were last seen."""
        with self._asked() as db:
            return [_known(row) for row in db.execute(BY_INODE, (inode, f"{log}/", f"{log}/"))]

    def first_by_inode(self, inodes: Sequence[int]) -> Mapping[int, int]:
        """Return inode -> lowest ``first`` of the unreported files that wait with this inode."""
        with self._asked() as db:
            every = (db.execute(FIRSTS, (_json_array(some),)) for some in _some(inodes))
            return {inode: first for rows in every for inode, first in rows}

    def restless(self, until: float) -> RestlessFiles | None:
        """Return files first seen by *until* that had another stamp since; None without any."""
        with self._asked() as db:
            found = db.execute(RESTLESS, (until,)).fetchone()
        return RestlessFiles(*found) if found[0] else None

    def problem(self) -> str:
        """Return when and why the last sweep failed, in any process; empty if it succeeded."""
        with self._asked() as db:
            row = db.execute("SELECT value FROM meta WHERE name = 'ailment'").fetchone()
        return "" if row is None else str(row[0])

    def record_failure(self, why: str) -> None:
        """Store why a sweep failed; empty once a sweep succeeds."""
        with self._writing() as db:
            db.execute("INSERT OR REPLACE INTO meta VALUES ('ailment', ?)", (why,))

    def own_disks(self) -> frozenset[str]:
        """Return the logs that had a disk of their own when they were last seen."""
        with self._asked() as db:
            return frozenset(log for (log,) in db.execute("SELECT log FROM own_disks"))

    def keep_own_disks(self, logs: Iterable[str]) -> None:
        """Store which logs have a disk of their own now."""
        with self._writing() as db:
            db.execute("DELETE FROM own_disks")
            db.executemany("INSERT INTO own_disks VALUES (?)", [(log,) for log in logs])

    def unseen(self, sweep: int) -> Mapping[str, WaitingFile]:
        """Return files that wait, by path, and were not seen in *sweep* or later."""
        with self._asked() as db:
            return dict(map(_waiting, db.execute(UNSEEN, (sweep,))))

    def wait(self, part: str, sweep: int, files: Mapping[str, WaitingFile]) -> None:
        """Store waiting files of a partition as they were seen in *sweep*."""
        with self._writing() as db:
            db.executemany(
                "INSERT OR REPLACE INTO waiting VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        *(path, *one.stamp.parts, one.first, one.since, one.why, one.is_reported),
                        *(part, sweep, one.seen),
                    )
                    for path, one in files.items()
                ],
            )

    def left(self, part: str) -> tuple[int, int] | None:
        """Return when a closed hour's folder had changed, and the time of the newest file in it.

        None if it was never stored.
        """
        with self._asked() as db:
            row: tuple[int, int] | None = db.execute(
                "SELECT changed, newest FROM hours_left WHERE part = ?", (part,)
            ).fetchone()
        return row

    def leave(self, part: str, changed: int, newest: int, fault: FaultHead | None = None) -> None:
        """Store what `left` returns, and the report on files that came later."""
        with self._writing() as db:
            db.execute(
                "INSERT OR REPLACE INTO hours_left VALUES (?, ?, ?)", (part, changed, newest)
            )
            if fault is not None:
                _add(db, "fault", fault, 1)

    def forget_unseen(self, sweep: int) -> None:
        """Forget files not seen in *sweep*: they were deleted or renamed, or are out of range."""
        with self._writing() as db:
            db.execute("DELETE FROM waiting WHERE looked < ?", (sweep,))

    def waits(self) -> Mapping[str, int]:
        """Return partition -> number of files that wait in it."""
        with self._asked() as db:
            return dict(db.execute("SELECT part, COUNT(*) FROM waiting GROUP BY part").fetchall())

    def take(
        self,
        files: Iterable[tuple[TakenFile, Sequence[ColumnsHead]]],
        part: str,
        *,
        sweep: int,
        at: float,
        late: bool = False,
    ) -> None:
        """Add files of a partition, all or none, each after its columns."""
        with self._writing() as db:
            for one, columns in files:
                for head in columns:
                    _add(db, "columns", head, 1)
                    body = msgspec.json.encode(head).decode()
                    db.execute("INSERT OR REPLACE INTO columns VALUES (?, ?)", (head.shard, body))
                first = _meta(db, "end")
                if one.rows:
                    _add(db, "rows", one, one.rows)
                db.execute("DELETE FROM taken WHERE path = ? AND rows = 0", (one.path,))
                db.execute(
                    "INSERT INTO taken VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        *(one.path, *one.stamp, one.digest, one.rows, part, at, sweep),
                        *(one.shard, first, late),
                    ),
                )
                db.execute("DELETE FROM waiting WHERE path = ?", (one.path,))

    def rows_between(self, after: int, until: int) -> tuple[TakenRows, ...]:
        """Return taken rows by partition, of files whose first row is at ``[after, until)``."""
        with self._asked() as db:
            return tuple(TakenRows(*row) for row in db.execute(BETWEEN, (after, until)))

    def late_rows(self, since: float) -> tuple[TakenRows, ...]:
        """Return taken rows by partition, of late files that were taken *since* then."""
        with self._asked() as db:
            return tuple(TakenRows(*row) for row in db.execute(LATE, (since,)))

    def seen_again(self, path: str, stamp: FileStamp, digest: str) -> None:
        """Store the new stamp of a taken file, and that it was rewritten if its digest changed."""
        with self._writing() as db:
            db.execute(
                "INSERT OR IGNORE INTO rewritten SELECT path FROM taken WHERE path = ?"
                " AND digest <> ?",
                (path, digest),
            )
            db.execute(
                "UPDATE taken SET inode = ?, size = ?, modified = ?, changed = ?, digest = ?"
                " WHERE path = ?",
                (*stamp.parts, digest, path),
            )
            db.execute("DELETE FROM waiting WHERE path = ?", (path,))

    def fault(self, head: FaultHead, path: str) -> None:
        """Add the report on a file; if the file still waits, it holds up no heartbeat any more."""
        with self._writing() as db:
            _add(db, "fault", head, 1)
            db.execute("UPDATE waiting SET told = 1 WHERE path = ?", (path,))

    def end_sweep(self, number: int) -> None:
        """End a sweep that has read the stamp of every file; write the heartbeats it answers."""
        with self._writing() as db:
            _put(db, "done", number)
            passed = _acknowledged(db)
            row = db.execute("SELECT MAX(n) FROM beats WHERE sweep <= ?", (passed,)).fetchone()
            if row[0] is not None and row[0] > _meta(db, "beaten"):
                stored = db.execute("SELECT value FROM meta WHERE name = 'heart'").fetchone()[0]
                head = msgspec.json.decode(stored, type=HeartbeatHead)
                for n in range(_meta(db, "beaten") + 1, row[0] + 1):
                    _add(db, "beat", HeartbeatHead(head.shard, head.source, n), 1)
                _put(db, "beaten", row[0])
            db.execute("DELETE FROM beats WHERE sweep <= ?", (passed,))

    def acknowledged(self) -> int:
        """Return the newest sweep whose files were all taken or reported."""
        with self._asked() as db:
            return _acknowledged(db)

    def close(self) -> None:
        """Close the database; the next call opens it again."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    @contextmanager
    def _asked(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                yield self._opened()
            except sqlite3.Error as error:
                self.close()
                raise UnreachableError(f"the ledger {self.path}: {error}") from error

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._asked() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            if not self.path.parent.is_dir():
                raise ConfigError(f"the ledger's folder {self.path.parent} is not there; make it")
            make_private(self.path)  # SQLite gives its other files the same mode
            self._db = sqlite3.connect(
                self.path, timeout=10, isolation_level=None, check_same_thread=False
            )
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("BEGIN IMMEDIATE")
            for statement in TABLES:
                self._db.execute(statement)
            if self._db.execute(KEEPS_SEEN).fetchone() is None:
                self._db.execute(KEEP_SEEN)
            start = [("id", uuid.uuid4().hex), *START.items()]
            self._db.executemany("INSERT OR IGNORE INTO meta VALUES (?, ?)", start)
            self._db.execute("COMMIT")
        return self._db


def make_private(path: Path) -> None:
    """Create *path*, if it is missing, and let only its owner open it.

    An existing file is not opened: closing it would release the locks of SQLite in this process.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        with suppress(PermissionError):
            path.chmod(0o600)


def _known(row: Sequence[Any]) -> tuple[str, KnownFile]:
    path, *stamp, digest, rows, changed = row
    return path, KnownFile(FileStamp(*stamp), digest, rows, bool(changed))


def _waiting(row: Sequence[Any]) -> tuple[str, WaitingFile]:
    path, *stamp, first, since, why, reported, seen = row
    return path, WaitingFile(FileStamp(*stamp), first, since, why, bool(reported), seen)


def _json_array(paths: Sequence[str] | Sequence[int]) -> str:
    return msgspec.json.encode(paths).decode()


def _meta(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()[0])


def _put(db: sqlite3.Connection, name: str, value: int) -> None:
    db.execute("UPDATE meta SET value = ? WHERE name = ?", (value, name))


def _add(db: sqlite3.Connection, kind: str, what: TakenFile | MessageHead, rows: int) -> None:
    end = _meta(db, "end")
    body = msgspec.json.encode(what).decode()
    db.execute("INSERT INTO entries VALUES (?, ?, ?, ?)", (end, end + rows, kind, body))
    _put(db, "end", end + rows)


def _acknowledged(db: sqlite3.Connection) -> int:
    row = db.execute("SELECT MIN(first) FROM waiting WHERE NOT told").fetchone()
    done = _meta(db, "done")
    return done if row[0] is None else min(done, int(row[0]) - 1)


def _some(paths: Sequence[T]) -> Iterator[Sequence[T]]:
    return (paths[at : at + AT_ONCE] for at in range(0, len(paths), AT_ONCE))
