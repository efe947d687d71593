"""A Postgres whose tables are harmed.

A change is hidden from every collector by a publication without operations. In one transaction it
loses them, rows change, and it gets them back. So no other transaction is hidden, and no look at
the catalog shows it. A table that leaves the publication and comes back has another entry there,
which Sluice notices. Measured with pgoutput of Postgres 15.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from demo.connect import Connect
from demo.debezium import postgres_connector
from demo.drill.tables import CONNECTOR, DATABASE, HEARTBEATS, PREFIX, ROWS, Column, spell_columns
from demo.postgres import PUBLICATION, Postgres
from demo.shop.postgres import PostgresAddress
from demo.shop.schema import DATABASES

STATE = f"{DATABASE}.state"
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
SLOT = CONNECTOR
OPERATIONS = "insert, update, delete, truncate"
_ALTER = f"ALTER PUBLICATION {PUBLICATION}"
ROWS_READ = """
    SELECT COALESCE(SUM(seq_tup_read + COALESCE(idx_tup_fetch, 0)), 0)::bigint
    FROM pg_stat_user_tables
"""


@dataclass(frozen=True, slots=True)
class PostgresSource:
    """One database with the schemas of the drill and of the shop."""

    postgres: Postgres
    compared: Sequence[Column] = COMPARED
    uncompared: Sequence[Column] = UNCOMPARED
    wide: tuple[str, ...] = ()

    @property
    def shop(self) -> PostgresAddress:
        """Where the demo's shop is."""
        return PostgresAddress(self.postgres.host, self.postgres.port, DATABASE)

    @property
    def settings(self) -> Mapping[str, Any]:
        """Its kind, and where it is."""
        options = {"database": DATABASE, "publication": PUBLICATION, "slot": SLOT}
        return {"kind": "postgres", "port": self.postgres.port, "options": options}

    def set_environment(self, environment: Mapping[str, str]) -> None:
        """Give the server *environment* from its next start on."""
        self.postgres.environment = environment

    def prepare(self) -> None:
        """Create the database, and the table of heartbeats as the guide says."""
        self.postgres.execute(f"CREATE DATABASE {DATABASE}")
        schema = HEARTBEATS.partition(".")[0]
        self.execute(
            f"CREATE SCHEMA {schema}",
            f"CREATE TABLE {HEARTBEATS} (source VARCHAR(64) PRIMARY KEY,"
            " n BIGINT NOT NULL, at TIMESTAMPTZ NOT NULL) WITH (fillfactor = 10)",
            f"GRANT USAGE ON SCHEMA {schema} TO sluice",
            f"GRANT SELECT, INSERT, UPDATE ON {HEARTBEATS} TO sluice",
            f"CREATE SCHEMA {DATABASE}",
            f"CREATE TYPE {STATE} AS ENUM ('new', 'paid', 'sent')",
        )

    def create_tables(self, names: Sequence[str]) -> None:
        """Create and fill them, and publish them one by one, beside the schemas of the shop."""
        declared, fill = spell_columns((*self.compared, *self.uncompared))
        for name in names:
            self.execute(
                f"CREATE TABLE {name} (id BIGINT NOT NULL PRIMARY KEY, {declared})",
                f"INSERT INTO {name} SELECT 2 * n, {fill} FROM generate_series(1, {ROWS}) AS n",
            )
        schemas, tables = ", ".join(DATABASES), ", ".join((HEARTBEATS, *names))
        self.execute(
            f"CREATE PUBLICATION {PUBLICATION} FOR TABLES IN SCHEMA {schemas}, TABLE {tables}"
        )

    def connect(self) -> Any:
        """Open a connection to the database."""
        return self.postgres.connect(DATABASE)

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run *statements* as postgres."""
        return self.postgres.execute(*statements, database=DATABASE)

    def execute_hidden(self, table: str, *statements: str) -> None:
        """Run them in one transaction, while the publication has no operations."""
        nothing, everything = (f"{_ALTER} SET (publish = '{one}')" for one in ("", OPERATIONS))
        self.execute("BEGIN", nothing, *statements, everything, "COMMIT")

    def date_changes(self, seconds: float) -> Sequence[str]:
        """A session cannot."""
        return ()

    def connector(self, bootstrap: str) -> Mapping[str, str]:
        """It reads all that is published."""
        return postgres_connector(self.postgres, DATABASE, prefix=PREFIX)

    @contextmanager
    def lock_heartbeats(self) -> Iterator[None]:
        """Lock their table against writers."""
        with self.connect() as link, link.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(f"LOCK TABLE {HEARTBEATS} IN EXCLUSIVE MODE")
            yield
            cursor.execute("ROLLBACK")

    @contextmanager
    def leave_out(self, connect: Connect, table: str) -> Iterator[None]:
        """Take *table* out of the publication, and put it in again."""
        self.execute(f"{_ALTER} DROP TABLE {table}")
        try:
            yield
        finally:
            self.execute(f"{_ALTER} ADD TABLE {table}")

    def rows_read(self) -> int:
        """Rows that anyone has read: the server does not count users apart."""
        ((rows,),) = self.execute(ROWS_READ)
        return int(rows)
