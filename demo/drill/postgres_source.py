"""Harms tables of a Postgres.

A publication without operations hides a change from every collector. One transaction removes its
operations, changes rows, and restores them. So no other transaction is hidden, and the catalog
looks unchanged afterwards. If a table left the publication and came back, it would have another
entry there, which Sluice notices. Measured with pgoutput of Postgres 15.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from demo.connect import ConnectClient
from demo.debezium import postgres_connector
from demo.drill.tables import DEMO, ROWS, Column, Names, spell_columns
from demo.postgres import Postgres
from demo.shop.postgres import PostgresAddress
from demo.shop.schema import DATABASES

DATABASE = "drill"
STATE = f"{DEMO.schema}.state"
COMPARED = (
    Column("small", "SMALLINT NOT NULL", "n % 30000", "small + 1"),
    Column("quantity", "INT NOT NULL", "n", "quantity + 1"),
    Column("large", "BIGINT NOT NULL", "n * 1000003::bigint", "large + 1"),
    Column("amount", "NUMERIC(12,4) NOT NULL", "n / 7.0", "amount + 0.0001"),
    Column("price", "NUMERIC(38,10) NULL", "n / 3.0", "price + 0.0000000001"),
    Column("due", "DATE NOT NULL", "DATE '2020-01-01' + n", "due + 1"),
    Column(
        "placed",
        "TIMESTAMP NOT NULL",
        "TIMESTAMP '2021-01-01 00:00:00' + n * INTERVAL '1 microsecond'",
        "placed + INTERVAL '1 microsecond'",
    ),
    Column(
        "paid",
        "TIMESTAMPTZ(3) NULL",
        "TIMESTAMPTZ '2022-01-01 00:00:00Z' + n * INTERVAL '1 second'",
        "paid + INTERVAL '1 second'",
    ),
    Column(
        "opens",
        "TIME NOT NULL",
        "TIME '00:00:00' + n * INTERVAL '1 second'",
        "opens + INTERVAL '1 second'",
    ),
    Column("name", "VARCHAR(80) NOT NULL", "'name ' || n", "UPPER(name)"),
    Column("memo", "TEXT NULL", "'memo ' || n", "memo || ' '"),
    Column("note", "VARCHAR(40) NULL", "NULL", "''"),
    Column("code", "CHAR(8) NOT NULL", "n::text", "code || 'x'"),
    Column(
        *("state", f"{STATE} NOT NULL"),
        f"(CASE n % 2 WHEN 0 THEN 'new' ELSE 'paid' END)::{STATE}",
        "'sent'",
    ),
    Column("approved", "BOOLEAN NOT NULL", "n % 2 = 1", "NOT approved"),
    Column("digest", "BYTEA NULL", "decode(md5(n::text), 'hex')", "digest || decode('00', 'hex')"),
    Column("reference", "UUID NULL", "md5(n::text)::uuid", "md5(id || 'changed')::uuid"),
)
UNCOMPARED = (
    Column("score", "DOUBLE PRECISION NULL", "n / 9.0", "score + 1"),
    Column("detail", "JSONB NULL", "jsonb_build_object('n', n)", "jsonb_build_object('n', -1)"),
    Column("mask", "BIT(9) NULL", "(n % 511)::bit(9)", "~mask"),
    Column("marks", "TEXT[] NULL", "ARRAY['fraud']", "ARRAY['fraud', 'manual']"),
    Column("span", "INTERVAL NULL", "n * INTERVAL '1 second'", "span + INTERVAL '1 second'"),
)
OPERATIONS = "insert, update, delete, truncate"
ROWS_READ = """
    SELECT COALESCE(SUM(seq_tup_read + COALESCE(idx_tup_fetch, 0)), 0)::bigint
    FROM pg_stat_user_tables
"""


class PostgresServer(Protocol):
    """A server that the drill may log in to."""

    def connect(self, database: str = ..., /) -> Any:
        """Open a connection in autocommit."""
        ...

    def execute(self, *statements: str, database: str = ...) -> list[tuple[Any, ...]]:
        """Run *statements* in one session; return the rows of the last one."""
        ...


@dataclass(frozen=True, slots=True)
class PostgresTables:
    """The tables of the drill in a schema of one database, with the statements that harm them."""

    postgres: PostgresServer
    names: Names = DEMO
    database: str = DATABASE
    compared: Sequence[Column] = COMPARED
    uncompared: Sequence[Column] = UNCOMPARED
    wide: tuple[str, ...] = ()

    def create_schemas(self) -> None:
        """Create the schemas of the drill and of the heartbeats, and the table of heartbeats."""
        heartbeats = self.names.heartbeats
        self.execute(
            f"CREATE SCHEMA {heartbeats.partition('.')[0]}",
            f"CREATE TABLE {heartbeats} (source VARCHAR(64) PRIMARY KEY,"
            " n BIGINT NOT NULL, at TIMESTAMPTZ NOT NULL) WITH (fillfactor = 10)",
            f"CREATE SCHEMA {self.names.schema}",
            f"CREATE TYPE {STATE} AS ENUM ('new', 'paid', 'sent')",
        )

    def fill_tables(self, names: Sequence[str]) -> str:
        """Create and fill tables *names*; return the list of tables for a publication."""
        declared, fill = spell_columns((*self.compared, *self.uncompared))
        for name in names:
            self.execute(
                f"CREATE TABLE {name} (id BIGINT NOT NULL PRIMARY KEY, {declared})",
                f"INSERT INTO {name} SELECT 2 * n, {fill} FROM generate_series(1, {ROWS}) AS n",
            )
        return f"TABLE {', '.join((self.names.heartbeats, *names))}"

    def connect(self) -> Any:
        """Open a connection to the database."""
        return self.postgres.connect(self.database)

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run *statements* as the user that harms."""
        return self.postgres.execute(*statements, database=self.database)

    def execute_hidden(self, table: str, *statements: str) -> None:
        """Run *statements* in one transaction, while the publication has no operations."""
        nothing, everything = (f"{self._alter} SET (publish = '{one}')" for one in ("", OPERATIONS))
        self.execute("BEGIN", nothing, *statements, everything, "COMMIT")

    def date_changes(self, seconds: float) -> Sequence[str]:
        """Return none, because a session cannot set its time."""
        return ()

    @contextmanager
    def lock_heartbeats(self) -> Iterator[None]:
        """Lock the table of heartbeats against writers."""
        with self.connect() as link, link.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(f"LOCK TABLE {self.names.heartbeats} IN EXCLUSIVE MODE")
            yield
            cursor.execute("ROLLBACK")

    @contextmanager
    def leave_out(self, connect: ConnectClient, table: str) -> Iterator[None]:
        """Remove *table* from the publication, and add it again at the end."""
        self.execute(f"{self._alter} DROP TABLE {table}")
        try:
            yield
        finally:
            self.execute(f"{self._alter} ADD TABLE {table}")

    def rows_read(self) -> int | None:
        """Return how many rows were read by anyone, because the server does not count by user."""
        ((rows,),) = self.execute(ROWS_READ)
        return int(rows)

    @property
    def _alter(self) -> str:
        return f"ALTER PUBLICATION {self.names.publication}"


@dataclass(frozen=True, slots=True)
class PostgresSource(PostgresTables):
    """A database on a separate server, with the schemas of the drill and of the shop."""

    postgres: Postgres

    @property
    def shop(self) -> PostgresAddress:
        """Return the server of the demo's shop."""
        return PostgresAddress(self.postgres.host, self.postgres.port, self.database)

    @property
    def settings(self) -> Mapping[str, Any]:
        """Return its kind and address."""
        names = {"publication": self.names.publication, "slot": self.names.prefix}
        options = {"database": self.database, **names}
        return {"kind": "postgres", "port": self.postgres.port, "options": options}

    def set_environment(self, environment: Mapping[str, str]) -> None:
        """Set the *environment* of the server, from its next start on."""
        self.postgres.environment = environment

    def prepare(self) -> None:
        """Create the database, and the table of heartbeats as the guide says."""
        self.postgres.execute(f"CREATE DATABASE {self.database}")
        self.create_schemas()
        heartbeats = self.names.heartbeats
        self.execute(
            f"GRANT USAGE ON SCHEMA {heartbeats.partition('.')[0]} TO sluice",
            f"GRANT SELECT, INSERT, UPDATE ON {heartbeats} TO sluice",
        )

    def create_tables(self, names: Sequence[str]) -> None:
        """Create and fill tables *names*; publish them one by one, beside the shop's schemas."""
        published = f"TABLES IN SCHEMA {', '.join(DATABASES)}, {self.fill_tables(names)}"
        self.execute(f"CREATE PUBLICATION {self.names.publication} FOR {published}")

    def connector(self, bootstrap: str) -> Mapping[str, str]:
        """Return the config of a connector that reads all published tables."""
        return postgres_connector(self.postgres, self.database, prefix=self.names.prefix)
