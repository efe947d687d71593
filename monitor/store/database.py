"""The engine, and what one transaction is.

SQLite has one writer at a time.  A write begins as one (``BEGIN IMMEDIATE``): a transaction that
reads first and writes later would fail at once when another has written in between, whatever the
busy timeout.  Writers of this process queue on a lock, those of others on the busy timeout.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import structlog
from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DatabaseError, OperationalError

from monitor.store.lock import Lock
from monitor.store.upgrade import upgrade
from pipeline.errors import ConfigError, UnreachableError

_BUSY_MILLISECONDS = 15_000
PRIVATE = 0o600
T = TypeVar("T")
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class Database:
    """Connections for any number of threads.

    ``ailment`` says why the last transaction failed; a write that is committed empties it.
    """

    path: Path
    engine: Engine
    lock: Lock | None = None
    ailment: str = ""
    _unreadable: set[str] = field(default_factory=set)
    _turn: threading.RLock = field(default_factory=threading.RLock)
    _mine: threading.local = field(default_factory=threading.local)

    @classmethod
    def open(cls, path: Path, *, service: bool) -> "Database":
        """Open or create the file at *path*; *service* takes the lock that only one may hold.

        Only its owner may read it, whatever the umask: it can hold corrected messages.  The lock
        is that of the file itself, whatever symbolic link names it.

        Raises:
            ConfigError: it cannot be opened, belongs to another service, or is too new.
        """
        path = path.resolve()
        if path.is_dir():
            raise ConfigError(f"store {path}: it is a folder; set the path of a file")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _keep_private(path)
            lock = Lock.take(path) if service else None
        except OSError as error:
            raise ConfigError(
                f"store {path}: {error.strerror}; set a folder it may write"
            ) from None
        database = cls(path, _engine(path), lock)
        try:
            with database.write() as connection:
                upgrade(connection)
        except (ConfigError, DatabaseError, UnreachableError) as error:
            database.close()
            if isinstance(error, DatabaseError):
                raise ConfigError(f"store {path}: {error.orig}; set another path") from None
            raise
        return database

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction, all or nothing; a write inside a write of the same thread joins it.

        Raises:
            UnreachableError: the file was busy for too long, or its disk is full or gone.
        """
        joined: Connection | None = getattr(self._mine, "connection", None)
        if joined is not None:
            yield joined
            return
        with self._turn, self._connect(writes=True) as connection:
            self._mine.connection = connection
            try:
                yield connection
            finally:
                self._mine.connection = None

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One consistent view; inside a write of the same thread it sees what was written."""
        joined: Connection | None = getattr(self._mine, "connection", None)
        if joined is not None:
            yield joined
            return
        with self._connect(writes=False) as connection:
            yield connection

    def size(self) -> int | None:
        """Bytes of the file and its write-ahead log; None if it cannot be read."""
        try:
            wal = self.path.with_name(f"{self.path.name}-wal")
            return self.path.stat().st_size + (wal.stat().st_size if wal.exists() else 0)
        except OSError:
            return None

    @property
    def unreadable(self) -> int:
        """Rows that could not be decoded so far."""
        return len(self._unreadable)

    def decoded(self, table: str, rows: Iterable[Any], decode: Callable[[Any], T]) -> list[T]:
        """Decode *rows* of *table*; one that cannot be is skipped, named in the log once, counted.

        The log names its primary key and the kind of error, no content.
        """
        found = list[T]()
        for row in rows:
            try:
                found.append(decode(row))
            except (ValueError, TypeError, KeyError) as error:
                name = f"{table}/{row[0]}"
                if name not in self._unreadable:
                    self._unreadable.add(name)
                    told = {"table": table, "row": str(row[0]), "why": type(error).__name__}
                    log.error("store row is unreadable and skipped; delete or repair it", **told)  # noqa: TRY400
        return found

    def close(self) -> None:
        """Close idle connections and let another service have the file."""
        self.engine.dispose()
        if self.lock is not None:
            self.lock.release()

    @contextmanager
    def _connect(self, *, writes: bool) -> Iterator[Connection]:
        try:
            with self.engine.connect() as idle:
                connection = idle.execution_options(writes=writes)
                with connection.begin():
                    yield connection
        except OperationalError as error:
            self.ailment = f"store {self.path}: {error.orig}"
            raise UnreachableError(self.ailment) from error
        if writes:
            self.ailment = ""


def _keep_private(path: Path) -> None:
    """Create the file for its owner alone, or take from others what they may do with it.

    SQLite gives its two files beside it the rights that it has.

    Raises:
        ConfigError: the file has a second name, by which another service could open it unseen.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE))
    if (links := path.stat().st_nlink) > 1:
        raise ConfigError(f"store {path}: {links} names (hard links) lead to it; keep one")
    for name in (path.name, *(f"{path.name}{end}" for end in ("-wal", "-shm", ".lock"))):
        with suppress(FileNotFoundError, PermissionError):  # another user's stays as it is
            path.with_name(name).chmod(PRIVATE)


def _engine(path: Path) -> Engine:
    address = URL.create("sqlite+pysqlite", database=str(path))  # as text a `?` would end it
    engine = create_engine(address, pool_size=4, max_overflow=28)
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _prepare(connection: Any, _record: object) -> None:
    """Every connection: readers beside a writer; a commit is on the disk when it returns."""
    connection.isolation_level = None  # the driver must not begin transactions on its own
    for pragma in (
        f"busy_timeout={_BUSY_MILLISECONDS}",
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
    ):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
