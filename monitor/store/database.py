"""Opens the SQLite store, runs its transactions, and locks the file for one service.

SQLite has one writer at a time. A write starts with BEGIN IMMEDIATE. A transaction that reads
first and writes later would fail at once if another wrote in between. The busy timeout does not
help there. Writers of this process queue on a lock, and other processes wait for the busy
timeout.

The operating system holds the service lock, so a killed service leaves none behind.
"""

import fcntl
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

import structlog
from sqlalchemy import (
    URL,
    Column,
    ColumnElement,
    Connection,
    Engine,
    LargeBinary,
    Select,
    Table,
    and_,
    cast,
    create_engine,
    event,
    select,
)
from sqlalchemy.exc import DatabaseError, OperationalError

from monitor.store.schema import upgrade_schema
from pipeline.errors import ConfigError, UnreachableError


@dataclass(eq=False)
class Lock:
    """A file lock, held from :meth:`take` to :meth:`release` or to the end of the process."""

    file: IO[str]

    @classmethod
    def take(cls, database: Path) -> "Lock":
        """Become the one service of *database*.

        Raises:
            ConfigError: another service has the lock; the message names its process.
        """
        path = database.with_name(database.name + ".lock")
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            file.close()
            raise ConfigError(
                f"{database} is in use by another service (process {holder}); "
                "stop that service, or set another `store`"
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        return cls(file)

    def release(self) -> None:
        """Release the lock. The file stays, because removing it would be a race."""
        self.file.close()


_BUSY_MILLISECONDS = 15_000
PRIVATE = 0o600
T = TypeVar("T")
_Key = tuple[bytes | None, ...]
# Errors of decoding a stored value: a wrong type; SQLite's is for text that is not UTF-8.
_UNREADABLE = (ValueError, TypeError, KeyError, OverflowError, OperationalError)
log = structlog.get_logger(__name__)


class WrittenFirst(Protocol):
    """Values that wait in memory and are written with the next transaction."""

    @property
    def waits(self) -> bool:
        """Tell whether anything is waiting."""
        ...

    def write(self, connection: Connection) -> Callable[[], None]:
        """Write everything that waits; call the returned function after the commit."""
        ...


@dataclass(eq=False)
class Database:
    """Connections for any number of threads.

    ``problem`` is the error of the last failed transaction; a commit that changed rows clears it.
    Each transaction first writes what ``first`` has in memory.
    """

    path: Path
    engine: Engine
    lock: Lock | None = None
    problem: str = ""
    first: list[WrittenFirst] = field(default_factory=list)
    _unreadable: set[str] = field(default_factory=set)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _mine: threading.local = field(default_factory=threading.local)

    @classmethod
    def open(cls, path: Path, *, service: bool) -> "Database":
        """Open or create the file at *path*; *service* takes the lock that only one may hold.

        Only its owner may read the file, regardless of the umask: it can contain corrected
        messages. The lock is that of the file itself, also behind a symbolic link.

        Raises:
            ConfigError: it cannot be opened, belongs to another service, or is too new.
        """
        path = path.resolve()
        if path.is_dir():
            raise ConfigError(f"store {path}: is a directory; set the path of a file")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _keep_private(path)
            lock = Lock.take(path) if service else None
        except OSError as error:
            raise ConfigError(
                f"store {path}: {error.strerror}; set a path in a writable directory"
            ) from None
        database = cls(path, _engine(path), lock)
        try:
            with database.write() as connection:
                upgrade_schema(connection)
        except (ConfigError, DatabaseError, UnreachableError) as error:
            database.close()
            if isinstance(error, DatabaseError):
                raise ConfigError(f"store {path}: {error.orig}; set another path") from None
            raise
        return database

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Begin a transaction, all or nothing; a nested write of the same thread joins it.

        Raises:
            UnreachableError: the file was busy for too long, or its disk is full or gone.
        """
        joined: Connection | None = getattr(self._mine, "connection", None)
        if joined is not None:
            yield joined
            return
        with self._lock:
            with self._connect(writes=True) as connection:
                self._mine.connection = connection
                try:
                    committed = [one.write(connection) for one in self.first if one.waits]
                    yield connection
                finally:
                    self._mine.connection = None
            for one in committed:
                one()

    @property
    def writing(self) -> bool:
        """Tell whether this thread is inside a write."""
        return getattr(self._mine, "connection", None) is not None

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Begin a consistent read; inside a write of the same thread it sees the written rows."""
        joined: Connection | None = getattr(self._mine, "connection", None)
        if joined is not None:
            yield joined
            return
        with self._connect(writes=False) as connection:
            yield connection

    def size(self) -> int | None:
        """Return the bytes of the file and its write-ahead log; None if unreadable."""
        try:
            wal = self.path.with_name(f"{self.path.name}-wal")
            return self.path.stat().st_size + (wal.stat().st_size if wal.exists() else 0)
        except OSError:
            return None

    @property
    def unreadable(self) -> int:
        """Return the number of rows that could not be decoded so far."""
        return len(self._unreadable)

    def readable(self, query: Select[Any], decode: Callable[[Any], T]) -> list[T] | None:
        """Decode the rows that *query* finds, in its order; None if one of them is unreadable."""
        with self.read() as connection:
            try:
                return [decode(row) for row in connection.execute(query).all()]
            except _UNREADABLE:
                return None

    def decoded(
        self,
        query: Select[Any],
        table: Table,
        decode: Callable[[Any], T],
        salvage: Callable[[Mapping[str, bytes | None]], T | None] = lambda _: None,
    ) -> list[T]:
        """Decode the rows of *table* that *query* finds, in its order.

        An unreadable row is skipped, logged once, and counted. The log shows its primary key and
        the kind of error, but no content. *salvage* receives the stored columns of such a row, each
        as bytes, and may return a replacement.

        Raises:
            UnreachableError: the file cannot be read at all.
        """
        found = list[T]()
        with self.read() as connection:
            for key, row in _rows(connection, query, table):
                try:
                    found.append(decode(row()))
                except _UNREADABLE as error:
                    self._skip(table.name, key, error)
                    stored = connection.execute(_stored(table, key)).mappings().one()
                    saved = salvage({one.name: stored[one.name] for one in table.columns})
                    found += [] if saved is None else [saved]
        return found

    def _skip(self, table: str, key: _Key, error: Exception) -> None:
        row = " ".join((part or b"").decode(errors="replace") for part in key)
        if f"{table}/{row}" not in self._unreadable:
            self._unreadable.add(f"{table}/{row}")
            fields = {"table": table, "row": row, "why": type(error).__name__}
            log.error("store row is unreadable and skipped; delete or repair it", **fields)

    def close(self) -> None:
        """Write what waits, close idle connections and let another service have the file."""
        if any(one.waits for one in self.first):
            with suppress(UnreachableError), self.write():
                pass
        self.engine.dispose()
        if self.lock is not None:
            self.lock.release()

    @contextmanager
    def _connect(self, *, writes: bool) -> Iterator[Connection]:
        try:
            with self.engine.connect() as idle:
                connection = idle.execution_options(writes=writes)
                before = _rows_changed(idle)
                with connection.begin():
                    yield connection
                changed = _rows_changed(idle) != before
        except OperationalError as error:
            self.problem = f"store {self.path}: {error.orig}"
            raise UnreachableError(self.problem) from error
        if writes and changed:
            self.problem = ""


def stored_text(value: bytes | None) -> str:
    """Return a column of an unreadable row as text."""
    return (value or b"").decode(errors="replace")


def _rows(
    connection: Connection, query: Select[Any], table: Table
) -> Iterator[tuple[_Key, Callable[[], Any]]]:
    """Yield the primary key and a reader of each row; row by row if one is unreadable."""
    keys = _as_stored(table.primary_key)
    try:
        rows = connection.execute(query.add_columns(*keys)).all()
    except _UNREADABLE:
        for key in connection.execute(query.with_only_columns(*keys)).all():
            one = query.where(_matches_key(table, tuple(key)))
            yield tuple(key), lambda one=one: connection.execute(one).one()  # type: ignore[misc]
        return
    for row in rows:
        yield tuple(row[-len(keys) :]), lambda row=row: row  # type: ignore[misc]


def _as_stored(columns: Iterable[Column[Any]]) -> list[Any]:
    return [cast(one, LargeBinary).label(f"stored_{one.name}") for one in columns]


def _matches_key(table: Table, key: _Key) -> ColumnElement[bool]:
    pairs = zip(table.primary_key, key, strict=True)
    return and_(*(cast(column, LargeBinary) == value for column, value in pairs))


def _stored(table: Table, key: _Key) -> Select[Any]:
    every: list[Any] = [cast(one, LargeBinary).label(one.name) for one in table.columns]
    return select(*every).where(_matches_key(table, key))


def _keep_private(path: Path) -> None:
    """Create the file for its owner alone, or remove the access of others.

    SQLite gives its two files beside it the same access rights.

    Raises:
        ConfigError: the file has a second name, by which another service could open it unseen.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE))
    if (links := path.stat().st_nlink) > 1:
        raise ConfigError(f"store {path}: the file has {links} hard links; keep one")
    for name in (path.name, *(f"{path.name}{end}" for end in ("-wal", "-shm", ".lock"))):
        with suppress(FileNotFoundError, PermissionError):  # a file of another user is unchanged
            path.with_name(name).chmod(PRIVATE)


def _engine(path: Path) -> Engine:
    address = URL.create("sqlite+pysqlite", database=str(path))  # in text, `?` would end the path
    engine = create_engine(address, pool_size=4, max_overflow=28)
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _prepare(connection: Any, _record: object) -> None:
    """Configure a connection: readers do not block on a writer, and commits reach the disk."""
    connection.isolation_level = None  # the driver must not begin transactions on its own
    for pragma in (
        f"busy_timeout={_BUSY_MILLISECONDS}",
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
    ):
        connection.execute(f"PRAGMA {pragma}").close()


def _rows_changed(connection: Connection) -> int:
    """Return the number of rows that the connection has changed since it was opened."""
    driver: Any = connection.connection.driver_connection
    return int(driver.total_changes)


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
