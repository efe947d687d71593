"""Runs statements on one pinned MySQL connection, one at a time, within the limits.

The server enforces a time limit on each SELECT, and the client on each answer. Counts, sums and
row reads are rejected while too many threads run on the server. A failed connection is dropped
and never reused: the next use connects again, so no answer can belong to an earlier statement.

Result rows are parsed by column, not by value. A packet is 3 bytes of length, 1 byte of
sequence and the payload. The payload of a row is its values, each preceded by its length (MySQL
manual, "Protocol::ResultsetRow", "Protocol::LengthEncodedInteger"). All packets of one answer
are kept in memory. So are the rows of `Session.ask`, and both are bounded: a server may send rows
without an end.

The heartbeat table has one row per source and is created once.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pymysql
from pymysql.cursors import SSCursor, SSDictCursor
from pymysql.err import raise_mysql_exception

from pipeline.errors import ConfigError, ProofError, SlowError, SluiceError, UnreachableError
from pipeline.settings import SourceSettings
from pipeline.sources.source import Limits
from pipeline.sources.sql import MOST_RECEIVED, Ask, SqlSession
from pipeline.tls import client_context

Places = npt.NDArray[np.int64]
HEAD = 4  # bytes before a payload
LONGEST = 2**24 - 1  # bytes of a payload; a row with this size continues in the next packet
ENDS, ERROR = 0xFE, 0xFF  # first bytes of the payload of the last packet
BRIEF = 9  # the last packet has fewer bytes; a row that begins with ENDS has at least so many
NULL = 0xFB
WIDTHS = {0xFC: 2, 0xFD: 3, 0xFE: 8}  # first byte of a length -> number of further bytes
_length = Struct("<I").unpack_from


@dataclass(eq=False)
class TextRows:
    """Collects the packets of an answer's rows.

    ``ended`` is true after the last packet; ``error`` is its payload if it reports an error.
    """

    ended: bool = False
    error: bytes = b""
    _bytes: bytearray = field(default_factory=bytearray, repr=False)
    _starts: list[int] = field(default_factory=list, repr=False)
    _at: int = 0
    _goes_on: bool = False

    @property
    def size(self) -> int:
        """Number of bytes received."""
        return len(self._bytes)

    def take(self, data: bytes) -> None:
        """Add received *data*, which may end inside a packet."""
        held, at, add = self._bytes, self._at, self._starts.append
        held += data
        there = len(held)
        while at + HEAD < there and not self.ended:
            length = _length(held, at)[0] & LONGEST
            if at + HEAD + length > there:
                break
            if self._goes_on:  # remove the head inside the row's bytes
                del held[at : at + HEAD]
                at, there = at - HEAD, there - HEAD
            elif held[at + HEAD] >= ENDS and self._is_last(at + HEAD, length):
                break
            else:
                add(at + HEAD)
            at += HEAD + length
            self._goes_on = length == LONGEST
        self._at = at

    def columns(self, texts: Sequence[bool]) -> pa.RecordBatch:
        """The rows; columns are named by position, strings where *texts* is true, else binary.

        Raises:
            pa.ArrowInvalid: a string is not UTF-8.
        """
        count, width = len(self._starts), len(texts)
        bounds = np.zeros((count, width, 2), np.int64)
        at, nulls = np.array(self._starts, np.int64), list[npt.NDArray[np.bool_]]()
        data = np.frombuffer(self._bytes, np.uint8)
        for number in range(width):
            starts, lengths, null = _values(data, at)
            at = starts + lengths
            bounds[:, number, 0], bounds[:, number, 1] = starts, at
            nulls.append(null)
        whole = _between(self._bytes, bounds.ravel())
        first = np.arange(count, dtype=np.int32) * 2 * width
        found = [
            whole.take(pa.array(first + 2 * number, mask=nulls[number])).cast(
                pa.string() if is_text else pa.binary()
            )
            for number, is_text in enumerate(texts)
        ]
        return pa.RecordBatch.from_arrays(found, names=[str(number) for number in range(width)])

    def _is_last(self, start: int, length: int) -> bool:
        failed = self._bytes[start] == ERROR
        if failed:
            self.error = bytes(self._bytes[start : start + length])
        self.ended = failed or length < BRIEF
        return self.ended


def _values(
    data: npt.NDArray[np.uint8], at: Places
) -> tuple[Places, Places, npt.NDArray[np.bool_]]:
    """Starts and lengths of the values whose length prefixes are at *at*, and which are NULL."""
    first = data[at]
    lengths, starts, null = first.astype(np.int64), at + 1, first == NULL
    lengths[null] = 0
    for kind, width in WIDTHS.items():
        rows = np.flatnonzero(first == kind)
        if len(rows):
            parts = [data[starts[rows] + i].astype(np.int64) << (8 * i) for i in range(width)]
            lengths[rows] = np.sum(parts, axis=0)
            starts[rows] += width
    return starts, lengths, null


def _between(data: bytearray, bounds: Places) -> pa.BinaryArray:
    """The parts of *data* between consecutive *bounds*: values, and the bytes between them."""
    ends = np.append(bounds, bounds[-1:] if len(bounds) else 0).astype(np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(bounds), buffers)


Row = Mapping[str, Any]

TOO_SLOW = {1969, 3024, 3168}  # the server ended the statement at its time limit
REFUSED = {1044, 1045, 1142, 1143, 1227, 1370, 1698}
ABSENT = {1049, 1054, 1146}
CR_AUTH_PLUGIN = 2059
LISTLESS = 1401  # XA RECOVER of a user without XA_RECOVER_ADMIN
CLEAR_TEXT = ("mysql_clear_password", "dialog", "mysql_old_password")  # they reveal the password
LOST = 2013  # the connection was lost while a statement ran
RECEIVED = 2**20  # bytes read at once
MEANINGLESS = {1292, 1367, 1525}  # a text is not a valid date, time or number


class DeniedListError(ConfigError):
    """The user may not list prepared XA transactions; the server's error names no privilege."""


@dataclass(eq=False)
class Session(SqlSession):
    """One connection to one server, not to a load balancer, which may connect to other servers."""

    driver_error: ClassVar[type[Exception]] = pymysql.Error
    settings: SourceSettings
    limits: Limits = field(default_factory=Limits)
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    _connection: Any = field(default=None, repr=False)

    def ask(self, statement: str, *arguments: object) -> list[Row]:
        """Run a statement; return its rows with column names in lower case.

        A literal ``%`` in *statement* is written twice.
        """
        with self.opened() as connection:
            cursor = connection.cursor()
            cursor.execute(statement, arguments)
            answer = cursor._result
            named = ({name.lower(): value for name, value in row.items()} for row in cursor)
            try:
                return self.keep(statement, named)
            finally:
                answer.unbuffered_active = False  # otherwise it would read the rest when deleted

    def rows(self, statement: str, *arguments: object) -> pa.RecordBatch:
        """Run one statement; return its rows as the server wrote them, columns named by position.

        Texts are strings; binary values are binary.  Raises what ``ask`` raises.
        """
        with self.opened() as connection:
            cursor = connection.cursor(SSCursor)
            cursor.execute(statement, arguments)
            answer = cursor._result
            answer.unbuffered_active = False  # otherwise it would read the rest when deleted
            texts = [encoding is not None for encoding, _ in answer.converters]
            return self._received(connection, statement).columns(texts)

    def _received(self, connection: Any, statement: str) -> TextRows:
        """Receive all rows of the current answer, without PyMySQL's object for each value.

        Raises:
            SlowError: the answer is larger than `MOST_RECEIVED`.
        """
        found = TextRows()
        while not found.ended:
            if not (data := connection._rfile.read1(RECEIVED)):
                raise pymysql.OperationalError(LOST, "Lost connection to MySQL server")
            found.take(data)
            self.refuse_size(statement, found.size, MOST_RECEIVED)
        if found.error:
            raise_mysql_exception(found.error)
        return found

    def running(self) -> int:
        return int(self.ask("SHOW GLOBAL STATUS LIKE 'Threads_running'")[0]["value"])

    @contextmanager
    def bounded(self) -> Iterator[Ask]:
        """Like ``exclusive``, but the server ends the session if we send nothing, and frees locks.

        A process that hangs, or has lost its network, would otherwise lock rows for hours and
        block every ALTER of a table that it has read.
        """
        with self.exclusive() as ask:
            ask(f"SET SESSION wait_timeout = {max(1, int(self.limits.call.total_seconds()))}")
            yield ask
            ask("SET SESSION wait_timeout = DEFAULT")

    @contextmanager
    def snapshot(self) -> Iterator[Ask]:
        with self.bounded() as ask:
            ask("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            yield ask
            ask("ROLLBACK")

    @property
    def version(self) -> tuple[int, int]:
        """The server's major and minor version."""
        with self.opened() as connection:
            major, minor, *_ = str(connection.get_server_info()).split(".")
        return int(major), int(minor)

    @property
    def mariadb(self) -> bool:
        """Whether it is a MariaDB."""
        with self.opened() as connection:
            return _mariadb(connection)

    def disconnect(self, connection: Any) -> None:
        connection._force_close()  # close() would send to a server that may be down

    def connect(self) -> Any:
        connection: Any = pymysql.connect(
            host=self.settings.host,
            port=self.settings.port,
            user=self.settings.user,
            password=self.settings.password.encode(errors="surrogateescape"),  # not Latin-1
            charset="utf8mb4",
            autocommit=True,
            cursorclass=SSDictCursor,
            connect_timeout=max(1, int(self.limits.connect.total_seconds())),
            read_timeout=self.limits.answer.total_seconds(),
            write_timeout=self.limits.answer.total_seconds(),
            **self._tls(),
        )
        seconds = self.limits.statement.total_seconds()
        limits = {
            "max_statement_time" if _mariadb(connection) else "max_execution_time": (
                seconds if _mariadb(connection) else int(seconds * 1_000)
            ),
            "lock_wait_timeout": max(1, int(seconds)),
            "innodb_lock_wait_timeout": max(1, int(seconds)),
        }
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION time_zone = '+00:00'")
            for name, value in limits.items():
                cursor.execute(f"SET SESSION {name} = {value}")
        return connection

    def _tls(self) -> dict[str, Any]:
        if self.settings.secured:
            try:
                return {"ssl": client_context(self.settings)}
            except ConfigError as error:
                raise ConfigError(f"{self.where}: {error}") from error
        return {"ssl_disabled": True, "auth_plugin_map": dict.fromkeys(CLEAR_TEXT, RefusedPlugin)}

    def translate(self, error: Exception) -> SluiceError:
        code, *words = error.args if len(error.args) > 1 else (0, *error.args)
        said = f"{' '.join(str(word) for word in words)} ({code})"
        if code in TOO_SLOW or "timed out" in said:
            return SlowError(f"{self.where}: slow: {said}")
        if code in REFUSED:
            return ConfigError(f"{self.where}: {said}; grant it, or name another user")
        if code == LISTLESS:
            return DeniedListError(f"{self.where}: {said}")
        if code in ABSENT or code in MEANINGLESS:
            return ProofError(f"{self.where}: {said}")
        advice = self.settings.tls_advice(said, self.settings.host)
        return UnreachableError(f"{self.where}: down: {said}{advice}")


class RefusedPlugin:
    """Rejects a server that requests the clear password over a connection without TLS."""

    def __init__(self, connection: Any) -> None:
        """Do nothing; PyMySQL makes one for each *connection*."""

    def authenticate(self, packet: Any) -> Any:
        """Send nothing and raise OperationalError."""
        said = (
            "the server requests the password in clear text; set tls: true, or use another plugin"
        )
        raise pymysql.OperationalError(CR_AUTH_PLUGIN, said)


def quote_name(name: str) -> str:
    """*name* as an identifier in a statement for `Session.ask`; names are never trusted."""
    return quote_for_display(name).replace("%", "%%")


def quote_for_display(name: str) -> str:
    """*name* as an identifier in a statement that is shown to people."""
    return f"`{name.replace('`', '``')}`"


def _mariadb(connection: Any) -> bool:
    return "mariadb" in str(connection.get_server_info()).lower()


def create_heartbeat_table(ask: Ask, heartbeat: str, source: str) -> None:
    """Create the table *heartbeat*, ``database.table``, unless it exists.

    Raises:
        ConfigError: the user may not create it; the message has the statements to run.
    """
    database, _, table = heartbeat.partition(".")
    if ask(
        "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
        *(database, table),
    ):
        return
    statements = heartbeat_ddl(heartbeat)
    try:
        for statement in statements:
            ask(statement.replace("%", "%%"))
    except ConfigError as error:
        msg = f"source:{source}: table {heartbeat} does not exist; run as an administrator"
        raise ConfigError(f"{msg}: {'; '.join(statements)}") from error


def heartbeat_ddl(heartbeat: str) -> tuple[str, str]:
    """The statements that create the table *heartbeat*, ``database.table``."""
    database, _, table = heartbeat.partition(".")
    return (
        f"CREATE DATABASE IF NOT EXISTS {quote_for_display(database)}",
        f"CREATE TABLE IF NOT EXISTS {quote_for_display(database)}.{quote_for_display(table)}"
        " (source VARCHAR(64) NOT NULL PRIMARY KEY, n BIGINT NOT NULL, at DATETIME(6) NOT NULL)",
    )
