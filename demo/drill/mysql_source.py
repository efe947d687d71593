"""Harms tables of a MySQL: `sql_log_bin=0` hides a change from every collector."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import pymysql

from demo.connect import ConnectClient
from demo.debezium import mysql_connector
from demo.drill.tables import DEMO, ROWS, Column, Names, spell_columns
from demo.mysql import MySQL
from demo.shop.link import Address
from demo.shop.schema import DATABASES

COMPARED = (
    Column("small", "SMALLINT NOT NULL", "n % 30000", "small + 1"),
    Column("quantity", "INT NOT NULL", "n", "quantity + 1"),
    Column("large", "BIGINT NOT NULL", "n * 1000003", "large + 1"),
    Column("total", "BIGINT UNSIGNED NOT NULL", "18446744073709551615 - n", "total - 1"),
    Column("amount", "DECIMAL(12,4) NOT NULL", "n / 7", "amount + 0.0001"),
    Column("price", "DECIMAL(38,10) NULL", "n / 3", "price + 0.0000000001"),
    Column("due", "DATE NOT NULL", "DATE '2020-01-01' + INTERVAL n DAY", "due + INTERVAL 1 DAY"),
    Column(
        "placed",
        "DATETIME(6) NOT NULL",
        "TIMESTAMP '2021-01-01 00:00:00' + INTERVAL n MICROSECOND",
        "placed + INTERVAL 1 MICROSECOND",
    ),
    Column(
        "paid",
        "TIMESTAMP(3) NULL",
        "TIMESTAMP '2022-01-01 00:00:00' + INTERVAL n SECOND",
        "paid + INTERVAL 1 SECOND",
    ),
    Column("open_for", "TIME NOT NULL", "SEC_TO_TIME(n)", "ADDTIME(open_for, '00:00:01')"),
    Column("name", "VARCHAR(80) NOT NULL", "CONCAT('name ', n)", "UPPER(name)"),
    Column("memo", "TEXT NULL", "CONCAT('memo ', n)", "CONCAT(memo, ' ')"),
    Column("note", "VARCHAR(40) NULL", "NULL", "''"),
    Column("state", "ENUM('new', 'paid', 'sent') NOT NULL", "ELT(1 + n % 2, 'new', 'paid')", "3"),
    Column("marks", "SET('fraud', 'manual') NULL", "'fraud'", "'fraud,manual'"),
    Column("approved", "BIT(1) NOT NULL", "n % 2", "approved ^ 1"),
    Column("digest", "VARBINARY(32) NULL", "UNHEX(MD5(n))", "CONCAT(digest, 0x00)"),
    Column("receipt", "BLOB NULL", "UNHEX(SHA1(n))", "REVERSE(receipt)"),
)
UNCOMPARED = (
    Column("score", "DOUBLE NULL", "n / 9", "score + 1"),
    Column("detail", "JSON NULL", "JSON_OBJECT('n', n)", "JSON_OBJECT('n', -1)"),
    Column("mask", "BIT(9) NULL", "n % 511", "mask ^ 1"),
)
HIDDEN = "SET sql_log_bin = 0"
READ_COMMITTED = "SET SESSION transaction_isolation = 'READ-COMMITTED'"
ROWS_READ = """
    SELECT CAST(COALESCE(SUM(sum_rows_examined), 0) AS SIGNED)
    FROM performance_schema.events_statements_summary_by_user_by_event_name WHERE user = '{user}'
"""
MATCHES = "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"


class MySQLServer(Protocol):
    """A server that the drill may log in to."""

    def connect(self, **settings: Any) -> Any:
        """Open a connection, in autocommit unless *settings* (PyMySQL's) say otherwise."""
        ...

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run *statements* in one session; return the rows of the last one."""
        ...


@dataclass(frozen=True, slots=True)
class MySQLTables:
    """The tables of the drill on one server, with the statements that harm them."""

    mysql: MySQLServer
    names: Names = DEMO
    reader: str = "sluice"
    compared: Sequence[Column] = COMPARED
    uncompared: Sequence[Column] = UNCOMPARED

    @property
    def wide(self) -> tuple[str, ...]:
        """Return the subject of incidents about the connector's setting that drops records."""
        return (f"setting:{self.names.source}:transforms",)

    def create_tables(self, names: Sequence[str]) -> None:
        """Create and fill tables *names*."""
        declared, fill = spell_columns((*self.compared, *self.uncompared))
        statements = [f"SET cte_max_recursion_depth = {ROWS}"]
        for name in names:
            statements += (
                f"CREATE TABLE {name} (id BIGINT NOT NULL PRIMARY KEY, {declared})"
                " DEFAULT CHARSET utf8mb4",
                f"INSERT INTO {name} WITH RECURSIVE numbers (n) AS"
                f" (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {ROWS})"
                f" SELECT 2 * n, {fill} FROM numbers",
            )
        self.execute(*statements)

    def connect(self) -> Any:
        """Open a connection; ordinary changes do not lock gaps between rows."""
        return self.mysql.connect(init_command=READ_COMMITTED)

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run *statements* as the user that harms."""
        return self.mysql.execute(*statements)

    def execute_hidden(self, table: str, *statements: str) -> None:
        """Run *statements* without the log in their session."""
        self.mysql.execute(HIDDEN, *statements)

    def date_changes(self, seconds: float) -> Sequence[str]:
        """Set the session's time, as `mysqlbinlog` does when it replays a log."""
        return (f"SET SESSION timestamp = UNIX_TIMESTAMP() + {seconds:.0f}",)

    @contextmanager
    def lock_heartbeats(self) -> Iterator[None]:
        """Lock the table of heartbeats."""
        with self.connect() as link, link.cursor() as cursor:
            cursor.execute(f"LOCK TABLES {self.names.heartbeats} WRITE")
            yield
            cursor.execute("UNLOCK TABLES")

    @contextmanager
    def leave_out(self, connect: ConnectClient, table: str) -> Iterator[None]:
        """Drop all records of *table* by a filter of the connector."""
        connector = self.names.prefix
        config = connect.config(connector)
        connect.register(
            connector,
            {
                **config,
                "transforms": "drop",
                "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter",
                "transforms.drop.predicate": "harmed",
                "predicates": "harmed",
                "predicates.harmed.type": MATCHES,
                "predicates.harmed.pattern": self.names.topic(table).replace(".", "[.]"),
            },
        )
        try:
            yield
        finally:
            connect.register(connector, config)

    def rows_read(self) -> int | None:
        """Return how many rows statements of the service's user have examined; None if unknown."""
        try:
            ((rows,),) = self.execute(ROWS_READ.format(user=self.reader))
        except pymysql.Error:
            return None
        return int(rows)


@dataclass(frozen=True, slots=True)
class MySQLSource(MySQLTables):
    """The databases of the drill and of the shop on a separate server."""

    mysql: MySQL

    @property
    def shop(self) -> Address:
        """Return the server of the demo's shop."""
        return Address(self.mysql.host, self.mysql.port)

    @property
    def settings(self) -> Mapping[str, Any]:
        """Return none, because the demo's settings fit."""
        return {}

    def set_environment(self, environment: Mapping[str, str]) -> None:
        """Set the *environment* of the server, from its next start on."""
        self.mysql.daemon.environment = environment

    def prepare(self) -> None:
        """Create the database; an old one is dropped."""
        database = self.names.schema
        self.execute(f"DROP DATABASE IF EXISTS {database}", f"CREATE DATABASE {database}")

    def connector(self, bootstrap: str) -> Mapping[str, str]:
        """Return the config of a connector that reads the drill, the shop and the heartbeats."""
        names = self.names
        databases = [*DATABASES, names.schema, names.heartbeats.partition(".")[0]]
        return mysql_connector(self.mysql, bootstrap, prefix=names.prefix, databases=databases)
