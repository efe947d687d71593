"""Queries a MySQL or MariaDB server for its contents, its log head and heartbeats.

Counts and sums of one call are from one snapshot, within the limits of the source. The estimate
of the optimizer is checked before any row is counted. Calls of one source wait for each other,
so build one source for the heartbeat and another for the probes.

A row whose DATE or DATETIME has a day or month of 0 is in no time range, because no mirror has
that date. Cannot detect: rows written with `sql_log_bin=0`, which are in the table but in no log.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import ClassVar, cast

import pyarrow as pa

from pipeline.aggregates import (
    DIGITS,
    AggregatedColumn,
    AggregatedTypes,
    Moment,
)
from pipeline.errors import ConfigError
from pipeline.finding import Finding
from pipeline.model import CaptureScope, Head, Shard, ShardId
from pipeline.schema.model import Column, Dialect
from pipeline.settings import SourceSettings
from pipeline.sources.mysql.dialect import MYSQL
from pipeline.sources.mysql.digest import digest_sql
from pipeline.sources.mysql.doctor import ASKED, collect_findings, collect_hazards
from pipeline.sources.mysql.facts import (
    describe_source,
    read_log_facts,
    read_server_facts,
    read_shard_facts,
    table_exists,
)
from pipeline.sources.mysql.position import POSITIONS, binlog_position
from pipeline.sources.mysql.session import (
    DeniedListError,
    Row,
    Session,
    create_heartbeat_table,
    quote_name,
)
from pipeline.sources.mysql.types import MySqlColumn, read_column
from pipeline.sources.positions import PositionRules
from pipeline.sources.row_reader import read_replica
from pipeline.sources.source import (
    ExaminationScope,
    Heartbeat,
    Limits,
    Source,
    SourceDescription,
    name_heartbeat_lock,
)
from pipeline.sources.sql import Ask, SqlSource

KINDS = AggregatedTypes(
    times=frozenset({"DATE", "DATETIME", "TIMESTAMP"}),
    numbers=frozenset({"TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "DECIMAL", "YEAR"}),
    texts=frozenset({"CHAR", "VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "ENUM"}),
)
DATED = frozenset({"DATE", "DATETIME"})


def aggregate_sql(
    columns: Sequence[MySqlColumn], shard: Shard, column: str, fields: Sequence[AggregatedColumn]
) -> str:
    """A SELECT with two placeholders for times; ``n`` is the rows, ``s0``, ``s1``, ... the sums.

    Raises:
        ProofError: a column does not exist, or has an unsuitable type.
    """
    known = KINDS.known(columns, shard, column, fields)
    sums = ""
    for number, one in enumerate(fields):
        value = quote_name(one.name)
        if one.text:
            md5 = f"MD5(CONVERT({value} USING utf8mb4))"
            value = f"CAST(CONV(LEFT({md5}, {DIGITS}), 16, 10) AS UNSIGNED)"
        sums += f", SUM({value}) AS s{number}"
    table = f"{quote_name(shard.database)}.{quote_name(shard.relation)}"
    time = quote_name(column)
    where = f"{time} >= %s AND {time} < %s"
    if known[column].kind in DATED:  # 2026-03-00 is between two days, and no mirror has it
        where += f" AND DAYOFMONTH({time}) > 0 AND MONTH({time}) > 0"
    return f"SELECT COUNT(*) AS n{sums} FROM {table} WHERE {where}"  # noqa: S608


OWN = ("information_schema", "mysql", "performance_schema", "sys")


@dataclass(eq=False)
class MySqlSource(SqlSource):
    """One database server.

    ``read_from`` is the ``host:port`` of a MySQL replica with GTIDs, for backfills and probes;
    without GTIDs, backfills are rejected and probes query the source.  A source of kind ``mariadb``
    rejects ``read_from``.
    """

    dialect: ClassVar[Dialect] = MYSQL
    positions: ClassVar[PositionRules] = POSITIONS
    settings: SourceSettings
    limits: Limits = field(default_factory=Limits)
    """Limits that protect the server."""
    read_from: str = ""
    _session: Session = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Prepare the session, which connects at its first query.

        Raises:
            ConfigError: ``read_from`` is invalid, or set for a source of kind ``mariadb``.
        """
        if read_replica(self.settings) is not None and self.settings.kind == "mariadb":
            msg = "options.read_from: cannot be used with MariaDB, whose GTIDs are not compared"
            raise ConfigError(f"{msg}, so the progress of a replica is unknown; remove it")
        self._session = Session(self.settings, self.limits)

    @property
    def session(self) -> Session:
        return self._session

    def quote(self, name: str) -> str:
        return quote_name(name)

    def qualify(self, shard: Shard) -> str:
        return f"{quote_name(shard.database)}.{quote_name(shard.relation)}"

    def aggregate_sql(self, shard: Shard, column: str, fields: Sequence[AggregatedColumn]) -> str:
        columns = cast("Sequence[MySqlColumn]", self.columns(shard))
        return aggregate_sql(columns, shard, column, fields)

    def to_argument(self, moment: Moment) -> Moment:
        """Convert a time to UTC without a zone."""
        if isinstance(moment, datetime) and moment.tzinfo is not None:
            return moment.astimezone(UTC).replace(tzinfo=None)
        return moment

    def digest_sql(self, columns: Sequence[Column]) -> str:
        return digest_sql(cast("Sequence[MySqlColumn]", columns), quote_name)

    def refuse_large(
        self, ask: Ask, shard: Shard, statement: str, arguments: Sequence[object], *, scans: bool
    ) -> None:
        """Reject a statement by the optimizer's estimate of rows; EXPLAIN reads no rows itself."""
        plan = ask(f"EXPLAIN {statement}", *arguments)
        self.limits.refuse_rows(max(int(step.get("rows") or 0) for step in plan), shard.name)

    def head(self) -> Head:
        """Identity of the server that answers, and the end of its log.

        Raises:
            ConfigError: it writes no binary log, or the user may not read the log's position.
        """
        with self._session.exclusive() as ask:
            renamed = not self._session.mariadb and self._session.version >= (8, 4)
            found = ask(f"SHOW {'BINARY LOG' if renamed else 'MASTER'} STATUS")
            if not found:
                msg = f"source:{self.name}: the server writes no binary log; start it with log_bin"
                raise ConfigError(msg)
            identity = self._identity()
        log = int(found[0]["file"].rpartition(".")[2])
        executed = str(found[0].get("executed_gtid_set") or "")
        return Head(identity, binlog_position(log, int(found[0]["position"]), executed))

    def prepare_heartbeat(self) -> None:
        create_heartbeat_table(self._session.ask, self.settings.heartbeat, self.name)

    def write_heartbeat(self, at_least: int, at: datetime) -> Heartbeat:
        """Commit the next heartbeat number, at least *at_least*, with our time *at*.

        The number is the stored one plus one, so a lost answer leaves no hole.  It is returned with
        the server's time (UTC) at the start of the statement that reads it.
        """
        utc = at.astimezone(UTC).replace(tzinfo=None)
        with name_heartbeat_lock(self.settings.heartbeat), self._session.bounded() as ask:
            ask("START TRANSACTION")
            ask(
                f"INSERT INTO {self.heartbeat_table} (source, n, at) VALUES (%s, %s, %s)"  # noqa: S608
                " ON DUPLICATE KEY UPDATE n = GREATEST(n + 1, %s), at = %s",
                *(self.name, at_least, utc, at_least, utc),
            )
            (row,) = ask(
                f"SELECT n, UTC_TIMESTAMP(6) AS sent FROM {self.heartbeat_table} WHERE source = %s",  # noqa: S608
                self.name,
            )
            ask("COMMIT")
            return Heartbeat(int(row["n"]), self.head(), row["sent"].replace(tzinfo=UTC))

    def shards(self, pattern: str) -> tuple[Shard, ...]:
        found = self._session.ask(
            "SELECT table_schema AS d, table_name AS t FROM information_schema.tables"
            " WHERE table_type = 'BASE TABLE' AND table_schema NOT IN (%s, %s, %s, %s)",
            *OWN,
        )
        names = sorted(str(ShardId(row["d"], row["t"])) for row in found)
        return tuple(
            Shard(self.name, name) for name in names if re.fullmatch(pattern, name, re.DOTALL)
        )

    def columns(self, shard: Shard) -> tuple[Column, ...]:
        with self._session.within_limits():
            found = self._session.ask(
                "SELECT * FROM information_schema.columns WHERE table_schema = %s"
                " AND table_name = %s ORDER BY ordinal_position",
                *(shard.database, shard.relation),
            )
        return tuple(read_column(row) for row in found)

    def column_types(self, shard: Shard) -> tuple[tuple[str, str], ...]:
        """Names and types of columns as in SHOW COLUMNS, in order; empty for an unknown table."""
        found = self._session.ask(
            "SELECT column_name AS n, column_type AS t FROM information_schema.columns"
            " WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
            *(shard.database, shard.relation),
        )
        return tuple((str(row["n"]), str(row["t"])) for row in found)

    def key_columns(self, shard: Shard) -> tuple[str, ...]:
        found = self._session.ask(
            "SELECT column_name AS c FROM information_schema.statistics WHERE table_schema = %s"
            " AND table_name = %s AND index_name = 'PRIMARY' ORDER BY seq_in_index",
            *(shard.database, shard.relation),
        )
        return tuple(str(row["c"]) for row in found)

    def sends(self) -> CaptureScope:
        """All tables, with hazards: settings may keep changes out of the log, or delay them."""
        facts = read_log_facts(self._session, ASKED)
        return CaptureScope(lambda _: True, hazards=collect_hazards(facts, f"source:{self.name}"))

    def describe(self, shards: Collection[str]) -> SourceDescription:
        """Describe the source and *shards*, without the load limit.

        With that limit, no table of a busy server would ever become ready.  The statements are few
        and rare, read the data dictionary only, and each has a time limit.
        """
        server = read_server_facts(self._session)
        found = read_shard_facts(self._session, self.name, shards.__contains__)
        return describe_source(server, found, shards)

    def examine(self, scope: ExaminationScope) -> tuple[Finding, ...]:
        """Findings on settings, grants of the user, and captured tables."""
        server = read_server_facts(self._session)
        shards = read_shard_facts(
            self._session, self.name, lambda name: scope.captured(ShardId.read(name))
        )
        heartbeat = table_exists(self._session, self.settings.heartbeat)
        return collect_findings(self.settings, server, shards, scope, heartbeat=heartbeat)

    @property
    def mariadb(self) -> bool:
        """Whether the server is MariaDB."""
        return self._session.mariadb

    @property
    def commits_in_order(self) -> bool:
        """Whether transactions are committed in the order in which they are logged."""
        if self._session.mariadb:
            return True  # MariaDB always does
        return bool(int(self._session.ask("SELECT @@GLOBAL.binlog_order_commits AS o")[0]["o"]))

    def prepared_xa(self) -> frozenset[str]:
        """Names of XA transactions that are prepared and not ended, in the syntax of XA COMMIT.

        Raises:
            ConfigError: the user may not list them.
        """
        words = "FORMAT='SQL'" if self._session.mariadb else "CONVERT XID"
        try:
            found = self._session.ask(f"XA RECOVER {words}")
        except DeniedListError as error:
            fix = f"GRANT XA_RECOVER_ADMIN ON *.* TO '{self.settings.user}'@'...'"
            msg = f"source:{self.name}: the user may not list prepared XA transactions (XA RECOVER)"
            raise ConfigError(f"{msg}; {fix}") from error
        return frozenset(_xid(row, sql=self._session.mariadb) for row in found)

    @property
    def xa_prepares(self) -> int:
        """Number of XA PREPARE statements since the server was started."""
        (row,) = self._session.ask("SHOW GLOBAL STATUS LIKE 'Com_xa_prepare'")
        return int(row["value"])

    def rows(self, statement: str, *arguments: object) -> pa.RecordBatch:
        """Rows of one statement, from one consistent read, as the server wrote them.

        Raises:
            UnreachableError: ``loaded``, ``slow`` or ``down``.
        """
        with self._session.within_limits(), self._session.snapshot():
            return self._session.rows(statement, *arguments)

    def _identity(self) -> str:
        if not self._session.mariadb:
            return str(self._session.ask("SELECT @@server_uuid AS id")[0]["id"])
        found = self._session.ask("SELECT @@server_uid AS uid, @@server_id AS id")[0]
        return f"{found['uid']}/{found['id']}"


def _xid(row: Row, *, sql: bool) -> str:
    """The name in a row of XA RECOVER: global part, branch part (both hexadecimal), and format."""
    data, size = str(row["data"]), 2 * int(row["gtrid_length"])
    if sql:
        return data
    digits = data.removeprefix("0x")
    return f"0x{digits[:size]},0x{digits[size:]},{row['formatid']}"


SOURCE: type[Source] = MySqlSource
