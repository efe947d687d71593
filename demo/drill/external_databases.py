"""Provides MySQL and Postgres servers that others run, for a drill."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from zlib import crc32

import psycopg
import pymysql

from demo.debezium import mysql_connector, postgres_connector
from demo.drill.external import (
    GONE,
    RANDOM,
    ExternalDatabase,
    MadeThing,
    RefusedError,
    ServerAddresses,
    service_settings,
    source_settings,
)
from demo.drill.mysql_source import MySQLTables
from demo.drill.postgres_source import PostgresTables
from demo.drill.tables import DrillSource, Names
from demo.processes import wait_until
from pipeline.errors import SluiceError, UnreachableError
from pipeline.finding import REFUSE, WARN, Finding
from pipeline.sources.mysql.doctor import check_settings
from pipeline.sources.mysql.facts import (
    Grant,
    ServerFacts,
    is_granted,
    parse_grant,
    read_server_facts,
)
from pipeline.sources.mysql.session import Session
from pipeline.sources.postgres.session import tls_arguments
from pipeline.sources.source import ExaminationScope
from pipeline.tls import client_context

SOURCE = "drill"
"""Name of the source in incidents."""
ANSWER = 60  # seconds
OUTAGE, CLOCK_SKEW = timedelta(hours=1), timedelta(seconds=2)
OWN_RIGHTS = ("CREATE", "DROP", "SELECT", "INSERT", "UPDATE", "DELETE", "LOCK TABLES")
RIGHTS = ("RELOAD", "REPLICATION SLAVE", "REPLICATION CLIENT")
HIDING = ("SESSION_VARIABLES_ADMIN", "SYSTEM_VARIABLES_ADMIN", "SUPER")
"""Each of these rights allows `sql_log_bin=0`."""
EVERY_DRILL = RANDOM.replace("_", r"\_") + "%"
"""The databases of all drills with random names, as a pattern of GRANT."""
OLDEST_POSTGRES = 15
POSTGRES = "postgres"
"""The database that every Postgres has."""


@dataclass(frozen=True, slots=True)
class SeenServer:
    """The database's address in Connect's network, and the id with which its log is read."""

    host: str
    port: int
    server_id: int = 0


def connector_settings(addresses: ServerAddresses) -> dict[str, str]:
    """Return the settings of a connector on these servers that differ from the demo's."""
    return {
        "database.user": addresses.user,
        "database.password": addresses.connector_password,
        "topic.creation.default.replication.factor": "-1",
    }


def missing_rights(grants: Sequence[Grant], database: str) -> tuple[list[str], list[str]]:
    """Return missing rights of *grants*: those on *database*, and those on the whole server."""
    own = [right for right in OWN_RIGHTS if not is_granted(grants, right, database, "*")]
    everywhere = [right for right in RIGHTS if not is_granted(grants, right, "", "*")]
    if not any(is_granted(grants, right, "", "*") for right in HIDING):
        everywhere.append(HIDING[0])
    return own, everywhere


def describe_rights(user: str, database: str, own: Sequence[str], more: Sequence[str]) -> str:
    """Return missing rights of *user*, with the statements that grant them; empty if none."""
    to = "'{}'@'{}'".format(*user.rpartition("@")[::2])
    only = re.sub(r"([_%])", r"\\\1", database)  # otherwise they match any character
    where = EVERY_DRILL if database.startswith(RANDOM) else only
    grants = [f"GRANT {', '.join(own)} ON `{where}`.* TO {to}"] if own else []
    grants += [f"GRANT {', '.join(more)} ON *.* TO {to}"] if more else []
    if not grants:
        return ""
    why = f" ({HIDING[0]} is for sql_log_bin=0)" if HIDING[0] in more else ""
    return (
        f"user {user} may not do what the drill does{why}; run as an administrator:"
        f" {'; '.join(grants)}"
    )


@dataclass(frozen=True, slots=True)
class ExternalMySQL:
    """A MySQL 8 or newer."""

    addresses: ServerAddresses

    @property
    def names(self) -> Names:
        """Return names for which one database has all tables, also that of the heartbeats."""
        name = self.addresses.name
        return Names(name, SOURCE, name, f"{name}.heartbeat", name)

    @property
    def label(self) -> str:
        """Return its kind and address."""
        return f"MySQL at {self.addresses.where}"

    def connect(self, **settings: Any) -> Any:
        """Open a connection as the user; with TLS if `sluice run` would use it."""
        its = source_settings(self.addresses)
        tls = {"ssl": client_context(its)} if its.secured else {"ssl_disabled": True}
        return pymysql.connect(
            host=its.host,
            port=its.port,
            user=its.user,
            password=its.password,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=ANSWER,
            read_timeout=ANSWER,
            **tls,
            **settings,
        )

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run *statements* in one session; return the rows of the last one."""
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def troubles(self) -> Iterator[str]:
        """Yield faults: no answer, a wrong setting of the log, or a missing right."""
        try:
            facts = self._facts()
            ((user, taken),) = self.execute(
                "SELECT CURRENT_USER(), (SELECT COUNT(*) FROM information_schema.schemata"
                f" WHERE schema_name = '{self.addresses.name}')"
            )
        except (SluiceError, pymysql.Error) as error:
            said = str(error).removeprefix(f"source:{self.addresses.where}: ")
            yield f"{self.label}: {said}; check --mysql, --user and --password-env"
            return
        if facts.mariadb or facts.version < (8, 0):
            found = facts.variables.get("version", "")
            yield f"{self.label} is {found}; name a MySQL 8.0 or newer, or a Postgres"
            return
        yield from map(self._said, (f for f in self._findings(facts) if f.severity is REFUSE))
        name, grants = self.addresses.name, [parse_grant(line) for line in facts.grants]
        missing = missing_rights([grant for grant in grants if grant], name)
        if said := describe_rights(user, name, *missing):
            yield f"{self.label}: {said}"
        if taken:
            yield f"{self.label} has a database {name} already; give another --name"

    def warnings(self) -> Iterator[str]:
        """Yield the warnings of `sluice doctor`."""
        findings = self._findings(self._facts())
        yield from map(self._said, (one for one in findings if one.severity is WARN))

    def describe(self) -> str:
        """Return its version, address and user."""
        version = self._facts().variables.get("version", "")
        return f"your MySQL {version} at {self.addresses.where}, user {self.addresses.user}"

    def create(self) -> None:
        """Create the database.

        Raises:
            RefusedError: the server refuses it.
            UnreachableError: the server does not answer.
        """
        try:
            self.execute(f"CREATE DATABASE {self.addresses.name}")
        except pymysql.Error as error:
            msg = f"{self.label}: database {self.addresses.name} cannot be created: {error}"
            answered = getattr(error, "sqlstate", None)
            raise (RefusedError if answered else UnreachableError)(msg) from error

    def things(self) -> tuple[MadeThing, ...]:
        """Return the database."""
        at, drop = self.addresses, f"DROP DATABASE IF EXISTS {self.addresses.name}"
        return (
            MadeThing(
                f"database {at.name} of {self.label}",
                f"mysql --protocol=TCP -h {at.host} -P {at.port} -u {at.user} -p -e '{drop}'",
                lambda: self.execute(f"SET SESSION lock_wait_timeout = {ANSWER // 2}", drop),
            ),
        )

    def source(self) -> DrillSource:
        """Return the tables of the drill on it."""
        return ExternalMySQLSource(self, self.names, reader=self.addresses.user)

    def trial_config(self, config: Mapping[str, str]) -> Mapping[str, str]:
        """Return *config*, because the connector logs in to no database."""
        return config

    def _facts(self) -> ServerFacts:
        session = Session(source_settings(self.addresses))
        try:
            return read_server_facts(session)
        finally:
            session.close()

    def _findings(self, facts: ServerFacts) -> list[Finding]:
        scope = ExaminationScope(lambda _: None, OUTAGE, CLOCK_SKEW)
        return check_settings(facts, self.label, [self.addresses.name], scope)

    def _said(self, finding: Finding) -> str:
        return f"{self.label}: {finding.what}; {finding.fix}"


@dataclass(frozen=True, slots=True)
class ExternalMySQLSource(MySQLTables):
    """A separate database on a MySQL of the user; without the demo's shop."""

    mysql: ExternalMySQL

    @property
    def shop(self) -> None:
        """Return None: without a shop, because its databases have fixed names."""
        return

    @property
    def settings(self) -> Mapping[str, Any]:
        """Return the server's address and the service's login."""
        return service_settings(self.mysql.addresses, self.names)

    def set_environment(self, environment: Mapping[str, str]) -> None:
        """Do nothing, because others start the server."""

    def prepare(self) -> None:
        """Create the table of heartbeats."""
        self.execute(
            f"CREATE TABLE {self.names.heartbeats} (source VARCHAR(64) NOT NULL PRIMARY KEY,"
            " n BIGINT NOT NULL, at DATETIME(6) NOT NULL)"
        )

    def connector(self, bootstrap: str) -> Mapping[str, str]:
        """Return the config of a connector that reads this database."""
        at, name = self.mysql.addresses, self.names.schema
        seen = SeenServer(*(at.seen or (at.host, at.port)), crc32(name.encode()) // 2)
        own = connector_settings(at)
        return mysql_connector(seen, bootstrap, prefix=name, databases=[name], settings=own)


@dataclass(frozen=True, slots=True)
class ExternalPostgres:
    """A Postgres 15 or newer; the user may log in to its database `postgres`."""

    addresses: ServerAddresses

    @property
    def names(self) -> Names:
        """Return the demo's names of schemas, because they are in a separate database."""
        name = self.addresses.name
        return Names(source=SOURCE, prefix=name, publication=name)

    @property
    def label(self) -> str:
        """Return its kind and address."""
        return f"Postgres at {self.addresses.where}"

    def connect(self, database: str = POSTGRES, /) -> Any:
        """Open a connection as the user; with TLS if `sluice run` would use it."""
        its = source_settings(self.addresses)
        return psycopg.connect(
            host=its.host,
            port=its.port,
            user=its.user,
            password=its.password,
            dbname=database,
            autocommit=True,
            connect_timeout=ANSWER,
            options="-c timezone=UTC",
            **tls_arguments(its, its.host),
        )

    def execute(self, *statements: str, database: str = POSTGRES) -> list[tuple[Any, ...]]:
        """Run *statements* in one session; return the rows of the last one."""
        with self.connect(database) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement.encode())
            return list(cursor.fetchall()) if cursor.description else []

    def troubles(self) -> Iterator[str]:
        """Yield faults: no answer, a wrong setting of the log, or a missing right."""
        name = self.addresses.name
        try:
            ((version, level, standby, free, user, creates, replicates, taken),) = self.execute(
                "SELECT current_setting('server_version_num')::int / 10000,"
                " current_setting('wal_level'), pg_is_in_recovery(),"
                " current_setting('max_replication_slots')::int"
                " - (SELECT COUNT(*) FROM pg_replication_slots),"
                " rolname, rolsuper OR rolcreatedb, rolsuper OR rolreplication,"
                f" (SELECT COUNT(*) FROM pg_database WHERE datname = '{name}')"
                f" + (SELECT COUNT(*) FROM pg_replication_slots WHERE slot_name = '{name}')"
                " FROM pg_roles WHERE rolname = current_user"
            )
        except (SluiceError, psycopg.Error) as error:
            said = " ".join(str(error).split())
            yield f"{self.label}: {said}; check --postgres, --user and --password-env"
            return
        if version < OLDEST_POSTGRES:
            yield f"{self.label} is version {version}; name a Postgres 15 or newer"
        if standby:
            yield f"{self.label} is a standby, which takes no writes; name its primary"
        if level != "logical":
            fix = "ALTER SYSTEM SET wal_level = 'logical', and a restart of the server"
            yield f"{self.label}: wal_level={level}: the log does not have the rows; {fix}"
        if free < 1:
            fix = "raise max_replication_slots, and restart the server"
            yield f"{self.label}: all replication slots are taken; {fix}"
        rights = {"CREATEDB": creates, "REPLICATION": replicates}
        if missing := [right for right, has in rights.items() if not has]:
            fix = f'ALTER ROLE "{user}" {" ".join(missing)}'
            yield (
                f"{self.label}: user {user} may not do what the drill does; run as an"
                f" administrator: {fix}"
            )
        if taken:
            yield f"{self.label} has a database or slot {name} already; give another --name"

    def warnings(self) -> Iterator[str]:
        """Return none."""
        return iter(())

    def describe(self) -> str:
        """Return its version, address and user."""
        ((version,),) = self.execute("SHOW server_version")
        return f"your Postgres {version} at {self.addresses.where}, user {self.addresses.user}"

    def create(self) -> None:
        """Create the database.

        Raises:
            RefusedError: the server refuses it.
            UnreachableError: the server does not answer.
        """
        name = self.addresses.name
        try:
            self.execute(f"CREATE DATABASE {name} ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0")
        except psycopg.Error as error:
            msg = f"{self.label}: database {name} cannot be created: {error}"
            raise (RefusedError if error.sqlstate else UnreachableError)(msg) from error

    def things(self) -> tuple[MadeThing, ...]:
        """Return the database with its content, and the connector's slot."""
        at, name = self.addresses, self.addresses.name
        psql = f"psql -h {at.host} -p {at.port} -U {at.user} -d postgres -c"
        drop = f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"
        where = f"FROM pg_replication_slots WHERE slot_name = '{name}'"
        end = f"SELECT pg_drop_replication_slot(slot_name) {where}"
        return (
            MadeThing(
                f"database {name} of {self.label}",
                f'{psql} "{drop}"',
                lambda: self.execute(drop),
            ),
            MadeThing(f"slot {name} of {self.label}", f'{psql} "{end}"', self._drop_slot),
        )

    def source(self) -> DrillSource:
        """Return the tables of the drill on it."""
        return ExternalPostgresSource(self, self.names, self.addresses.name)

    def trial_config(self, config: Mapping[str, str]) -> Mapping[str, str]:
        """Return a config for an existing database."""
        return {**config, "database.dbname": POSTGRES}

    def _drop_slot(self) -> None:
        """Drop the slot once its connector has released it."""
        where = f"FROM pg_replication_slots WHERE slot_name = '{self.addresses.name}'"
        idle = f"SELECT pg_drop_replication_slot(slot_name) {where} AND NOT active"
        left = f"SELECT COUNT(*) {where}"
        wait_until(lambda: self.execute(idle, left) == [(0,)], GONE, "end of the slot's reader")


@dataclass(frozen=True, slots=True)
class ExternalPostgresSource(PostgresTables):
    """A separate database on a Postgres of the user; without the demo's shop."""

    postgres: ExternalPostgres

    @property
    def shop(self) -> None:
        """Return None: without a shop, because its schemas have fixed names."""
        return

    @property
    def settings(self) -> Mapping[str, Any]:
        """Return the server's address and the service's login."""
        names = {"publication": self.names.publication, "slot": self.names.prefix}
        own = service_settings(self.postgres.addresses, self.names)
        return {**own, "kind": "postgres", "options": {"database": self.database, **names}}

    def set_environment(self, environment: Mapping[str, str]) -> None:
        """Do nothing, because others start the server."""

    def prepare(self) -> None:
        """Create schemas, and the table of heartbeats."""
        self.create_schemas()

    def create_tables(self, names: Sequence[str]) -> None:
        """Create, fill and publish them."""
        published = self.fill_tables(names)
        self.execute(f"CREATE PUBLICATION {self.names.publication} FOR {published}")

    def connector(self, bootstrap: str) -> Mapping[str, str]:
        """Return the config of a connector that reads all published tables."""
        at, names = self.postgres.addresses, self.names
        seen = SeenServer(*(at.seen or (at.host, at.port)))
        own = {**connector_settings(at), "publication.name": names.publication}
        return postgres_connector(seen, self.database, prefix=names.prefix, settings=own)


def open_database(addresses: ServerAddresses) -> ExternalDatabase:
    """Return the database server at *addresses*."""
    if addresses.kind == "postgres":
        return ExternalPostgres(addresses)
    return ExternalMySQL(addresses)
