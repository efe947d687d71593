"""Runs statements on one pinned Postgres connection, one at a time, within the limits.

The server enforces a time limit on each statement, and the client on each answer. Counts, sums
and row reads are rejected while too many statements run. A read from which row-level security
would hide rows is rejected too. A failed connection is dropped and never reused: the next use
connects again, so no answer can belong to an earlier statement. Rows are received in chunks, and
the size of an answer is bounded: a server may send rows without an end. Values are converted after
the whole answer is received: the time limits, the server's too, would count the conversion. A
value that Python has no type for, such as an interval or a date of `infinity`, stays a text.
Cannot detect: whether statements of other users run, without the role `pg_monitor`.

The heartbeat table has one row per source and is created once.
"""

import ssl
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import psycopg
import pyarrow as pa
from psycopg.abc import Buffer, PQGen
from psycopg.adapt import Loader, Transformer
from psycopg.generators import fetch, send
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.types.datetime import (
    DateLoader,
    TimeLoader,
    TimestampLoader,
    TimestamptzLoader,
    TimetzLoader,
)
from psycopg.types.string import TextLoader

from pipeline.errors import ConfigError, ProofError, SlowError, SluiceError, UnreachableError
from pipeline.settings import SourceSettings, TlsSettings, needs_tls
from pipeline.sources.postgres.replication import Row
from pipeline.sources.source import Limits
from pipeline.sources.sql import MOST_RECEIVED, Ask, SqlSession

# SQLSTATEs, appendix A of Postgres's manual.
CONFLICT = "40001"  # a read-only transaction gets it only from the recovery of a standby
TOO_SLOW = {"57014", "55P03", "25P03", "40P01", CONFLICT}  # ended by a time limit, or for a lock
REFUSED = {"42501", "28000", "28P01", "0LP01", "3D000"}
POLICIES = "check_enable_rls"  # the server's function that rejects filtered reads
ABSENT = {"42P01", "42703", "3F000", "42704", "42883", "22P02"}
MEANINGLESS = {"22003", "22007", "22008", "22025"}  # an invalid date, time, number or pattern
UNSUPPORTED = "0A000"  # such as a read of an unlogged table on a standby
READ_ONLY = "25006"
NO_CLEAR_TEXT = "!password"  # libpq: every method except the clear password
# Errors before the login have no SQLSTATE, only a text.
LOGIN = ("password authentication failed", "no pg_hba.conf entry", "does not exist", "no password")
AT_ONCE = 1_000  # rows of a chunk
ROW, VALUE = 8, 16  # bytes of libpq for each row and each value, without the value's own
CHUNKS = (ExecStatus.TUPLES_CHUNK, ExecStatus.SINGLE_TUPLE)
COMPLETE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
WAITED = ("timeout expired", "timed out")
RUNNING = (
    "SELECT count(*) AS n FROM pg_stat_activity"
    " WHERE state = 'active' AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
)


@dataclass(eq=False)
class PostgresSession(SqlSession):
    """One connection to one ``database`` of a server."""

    driver_error: ClassVar[type[Exception]] = psycopg.Error
    settings: SourceSettings
    database: str
    limits: Limits = field(default_factory=Limits)
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    _connection: Any = field(default=None, repr=False)

    def ask(self, statement: str, *arguments: object) -> list[Row]:
        """Run a statement and return its rows; a literal ``%`` in it is written twice."""
        with self.opened() as connection:
            chunks = self._answer(connection, statement, arguments)
            found = (row for chunk in chunks for row in _rows(connection, chunk))
            return self.keep(statement, found)

    def rows(self, statement: str, *arguments: object) -> pa.RecordBatch:
        """Run one statement; return its rows as the server wrote them, columns named by position.

        All values are strings.  Raises what ``ask`` raises.
        """
        with self.opened() as connection:
            chunks = self._answer(connection, statement, arguments)
            return pa.concat_batches([_texts(chunk) for chunk in chunks])

    def _answer(
        self, connection: Any, statement: str, arguments: tuple[object, ...]
    ) -> Iterator[PGresult]:
        """Run a statement and receive its answer; yield it in chunks, the last without rows.

        Raises:
            psycopg.Error: the server's error, or the connection's ``patience`` is over.
            SlowError: the answer is larger than `MOST_RECEIVED`.
        """
        asked = psycopg.ClientCursor(connection).mogrify(statement, arguments)  # EXPLAIN binds none
        connection.pgconn.send_query(asked.encode())
        connection.pgconn.set_chunked_rows_mode(AT_ONCE)
        chunks = connection.wait(self._received(connection.pgconn, statement))
        return (chunks.popleft() for _ in range(len(chunks)))  # frees each when it is converted

    def _received(self, pgconn: PGconn, statement: str) -> PQGen[deque[PGresult]]:
        """Send and receive in one generator of psycopg, so that one time limit holds for all."""
        yield from send(pgconn)
        chunks, size = deque[PGresult](), 0
        while found := (yield from fetch(pgconn)):
            if found.status not in (*CHUNKS, *COMPLETE):
                raise psycopg.errors.error_from_result(found)
            chunks.append(found)
            size += _size(found)
            self.refuse_size(statement, size, MOST_RECEIVED)
        return chunks

    def running(self) -> int:
        return int(self.ask(RUNNING)[0]["n"])

    @contextmanager
    def snapshot(self) -> Iterator[Ask]:
        with self.exclusive() as ask:
            ask("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield ask
            ask("ROLLBACK")

    def disconnect(self, connection: Any) -> None:
        connection.pgconn.finish()  # close() would wait for a server that may be down

    def connect(self) -> Any:
        connection: Any = PatientConnection.connect(
            host=self.settings.host,
            port=self.settings.port,
            user=self.settings.user,
            password=self.settings.password,
            dbname=self.database,
            connect_timeout=max(2, int(self.limits.connect.total_seconds())),
            application_name="sluice",
            client_encoding="UTF8",
            autocommit=True,
            **tls_arguments(self.settings, self.settings.host),
        )
        milliseconds = int(self.limits.statement.total_seconds() * 1_000)
        silent = int(self.limits.call.total_seconds() * 1_000)  # in a transaction, which locks
        connection.patience = self.limits.answer.total_seconds()
        for kind, loader in LOADERS.items():
            connection.adapters.register_loader(kind, loader)
        connection.execute(
            f"SET statement_timeout = {milliseconds};"
            f"SET lock_timeout = {milliseconds};"
            f"SET idle_in_transaction_session_timeout = {silent};"
            "SET timezone = 'UTC'; SET datestyle = 'ISO'; SET intervalstyle = 'iso_8601';"
            "SET bytea_output = 'hex'; SET extra_float_digits = 1; SET xmloption = 'content';"
            "SET synchronous_commit = local;"  # a standby that is down must not delay heartbeats
            "SET max_parallel_workers_per_gather = 0;"
            "SET row_security = off;"  # a read from which a policy would hide rows is an error
            "SET search_path = pg_catalog"  # a user's function must not replace the server's
        )
        return connection

    def translate(self, error: Exception) -> SluiceError:
        state = getattr(error, "sqlstate", None) or ""
        said = " ".join(str(error).split()) + (f" ({state})" if state else "")
        if state in TOO_SLOW or (not state and any(word in said for word in WAITED)):
            advice = PATIENT_STANDBY if state == CONFLICT else ""
            return SlowError(f"{self.where}: slow: {said}{advice}")
        if state == READ_ONLY:
            return ConfigError(f"{self.where}: {said}; {ELSEWHERE}")
        if getattr(getattr(error, "diag", None), "source_function", None) == POLICIES:
            user = quote_for_display(self.settings.user)
            hidden = f"{said}; row-level security would hide rows from Sluice"
            return ConfigError(f"{self.where}: {hidden}; run ALTER ROLE {user} BYPASSRLS")
        if state in REFUSED or (not state and any(word in said for word in LOGIN)):
            return ConfigError(f"{self.where}: {said}; grant it, or name another user")
        if state in ABSENT or state in MEANINGLESS or state == UNSUPPORTED:
            return ProofError(f"{self.where}: {said}")
        advice = self.settings.tls_advice(said, self.settings.host)
        return UnreachableError(f"{self.where}: down: {said}{advice}")


def _size(chunk: PGresult) -> int:
    """Approximate bytes of a *chunk* in memory."""
    rows, columns, value = range(chunk.ntuples), range(chunk.nfields), chunk.get_value
    values = sum(len(value(row, at) or b"") for row in rows for at in columns)
    return values + len(rows) * (ROW + VALUE * len(columns))


def _rows(connection: "PatientConnection", chunk: PGresult) -> list[Row]:
    """The rows of a *chunk* by column, as values of Python."""
    known = Transformer.from_context(connection)
    known.set_pgresult(chunk)
    names = [(chunk.fname(at) or b"").decode() for at in range(chunk.nfields)]
    return known.load_rows(0, chunk.ntuples, lambda values: dict(zip(names, values, strict=True)))


def _texts(chunk: PGresult) -> pa.RecordBatch:
    """The rows of a *chunk* as strings, columns named by position."""
    rows, value = range(chunk.ntuples), chunk.get_value
    columns = [
        pa.array([value(row, at) for row in rows], pa.binary()).cast(pa.string())
        for at in range(chunk.nfields)
    ]
    return pa.RecordBatch.from_arrays(columns, names=[*map(str, range(chunk.nfields))])


def _or_text(known: type[Loader]) -> type[Loader]:
    """A loader like *known* that returns the server's text where *known* has no value."""

    class OrText(known):  # type: ignore[valid-type,misc]
        def load(self, data: Buffer) -> Any:
            try:
                return super().load(bytes(data))
            except psycopg.DataError:
                return bytes(data).decode()

    return OrText


LOADERS: dict[str, type[Loader]] = {
    "date": _or_text(DateLoader),
    "time": _or_text(TimeLoader),
    "timetz": _or_text(TimetzLoader),
    "timestamp": _or_text(TimestampLoader),
    "timestamptz": _or_text(TimestamptzLoader),
    "interval": TextLoader,  # psycopg reads none in ISO 8601, which the row reader needs
}
PATIENT_STANDBY = (
    "; the standby of read_from had to replay changes of rows that were being read: set"
    " hot_standby_feedback = on there, or increase max_standby_streaming_delay"
)
ELSEWHERE = "it is a standby, or set to read only: name the server that takes writes under sources"


class PatientConnection(psycopg.Connection[Any]):
    """A connection that waits for an answer at most ``patience`` seconds; psycopg has no limit."""

    patience: float | None = None

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Override psycopg's method, which every statement uses, to add the time limit."""
        return super().wait(gen, interval, self.patience if timeout is None else timeout)

    def __del__(self, *_: Any) -> None:
        """Suppress psycopg's warning: libpq closes the connection when it is deleted."""


def quote_name(name: str) -> str:
    """*name* as an identifier in a statement for `PostgresSession.ask`; names are never trusted."""
    return f'"{name.replace(chr(34), 2 * chr(34)).replace("%", "%%")}"'


def tls_arguments(its: TlsSettings, host: str) -> dict[str, Any]:
    """Arguments for libpq to verify the server at *host*; without TLS no clear password is sent."""
    if not needs_tls(its.tls, host):
        return {"sslmode": "disable", "require_auth": NO_CLEAR_TEXT}
    known = its.ca or ssl.get_default_verify_paths().cafile or "system"
    shown = {"sslcert": its.certificate, "sslkey": its.key or its.certificate}
    return {
        "sslmode": "verify-full",
        "sslrootcert": known,
        **(shown if its.certificate else {}),
    }


def quote_for_display(name: str) -> str:
    """*name* as a quoted identifier in a statement that is shown to people."""
    return f'"{name.replace(chr(34), 2 * chr(34))}"'


def create_heartbeat_table(ask: Ask, heartbeat: str, source: str) -> None:
    """Create the table *heartbeat*, ``schema.table``, unless it exists.

    Raises:
        ConfigError: the user may not create it; the message has the statements to run.
    """
    schema, _, table = heartbeat.partition(".")
    if ask(
        "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = %s",
        *(schema, table),
    ):
        return
    there = ask("SELECT 1 FROM pg_namespace WHERE nspname = %s", schema)
    statements = heartbeat_ddl(heartbeat)[1:] if there else heartbeat_ddl(heartbeat)
    try:
        for statement in statements:
            ask(statement.replace("%", "%%"))
    except ConfigError as error:
        msg = (
            f"source:{source}: heartbeat table {heartbeat} does not exist; run as an administrator:"
            f" {'; '.join(statements)}"
        )
        raise ConfigError(msg) from error


def heartbeat_ddl(heartbeat: str) -> tuple[str, str]:
    """The statements that create *heartbeat*, ``schema.table``: first the schema, then the table.

    A user who may not create schemas may not even run CREATE SCHEMA IF NOT EXISTS.  The fill factor
    leaves space in pages, because the same rows are updated all the time.
    """
    return (
        f"CREATE SCHEMA IF NOT EXISTS {quote_for_display(heartbeat.partition('.')[0])}",
        f"CREATE TABLE IF NOT EXISTS {display_table(heartbeat)} (source VARCHAR(64) PRIMARY KEY,"
        " n BIGINT NOT NULL, at TIMESTAMPTZ NOT NULL) WITH (fillfactor = 10)",
    )


def display_table(heartbeat: str) -> str:
    """``schema.table`` with quoted names, to show to people."""
    return ".".join(quote_for_display(part) for part in heartbeat.split(".", 1))
