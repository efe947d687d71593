"""Queries one Postgres database for its contents, its log head and heartbeats.

Counts and sums of one call are from one snapshot, within the limits of the source. The estimate
of the planner is checked before any row is counted. Calls of one source wait for each other, so
build one source for the heartbeat and another for the probes.

A promoted server continues the LSNs of its predecessor, so its identity contains the timeline.

Cannot detect: rows of an UNLOGGED table, which are in no log; triggers skipped by a session
with `session_replication_role = replica`, although its own writes are logged.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar, cast

from pipeline.aggregates import DIGITS, AggregatedColumn, AggregatedTypes
from pipeline.finding import Finding
from pipeline.model import CaptureScope, Head, Shard, ShardId
from pipeline.schema.model import Column, Dialect
from pipeline.settings import SourceSettings
from pipeline.sources.positions import PositionRules
from pipeline.sources.postgres.dialect import POSTGRES
from pipeline.sources.postgres.digest import digest_sql
from pipeline.sources.postgres.doctor import collect_findings
from pipeline.sources.postgres.facts import (
    INDEXES,
    describe_source,
    find_sent_elsewhere,
    list_shards,
    read_server_facts,
    read_shard_facts,
)
from pipeline.sources.postgres.position import POSITIONS, log_position, parse_lsn
from pipeline.sources.postgres.replication import PUBLICATION, Replication, Row
from pipeline.sources.postgres.replication import name_replication as named
from pipeline.sources.postgres.session import (
    PostgresSession,
    create_heartbeat_table,
    quote_name,
)
from pipeline.sources.postgres.slots import PublishedTables, WatchedSlot
from pipeline.sources.postgres.types import CATALOGUE, PostgresColumn, read_column
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
    times=frozenset({"DATE", "TIMESTAMP", "TIMESTAMPTZ"}),
    numbers=frozenset({"INT2", "INT4", "INT8", "OID", "NUMERIC"}),
    texts=frozenset({"VARCHAR", "TEXT", "NAME", "ENUM", "UUID"}),
)


def aggregate_sql(
    columns: Sequence[PostgresColumn],
    shard: Shard,
    column: str,
    fields: Sequence[AggregatedColumn],
    table: str,
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
            md5 = f"md5(convert_to({value}::text, 'UTF8'))"
            value = f"('x' || left({md5}, {DIGITS}))::bit({4 * DIGITS})::bigint"
        elif known[one.name].kind == "OID":
            value = f"{value}::bigint"  # an OID has no sum
        sums += f", sum({value}) AS s{number}"
    time = quote_name(column)
    return f"SELECT count(*) AS n{sums} FROM {table} WHERE {time} >= %s AND {time} < %s"  # noqa: S608


def find_scanned_tables(plan: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield schema and name of each table that *plan* (of EXPLAIN VERBOSE) scans with a filter.

    The planner's estimate of such a step is the rows that pass the filter, not those it reads.
    """
    if plan["Node Type"] == "Seq Scan" and "Filter" in plan:
        yield plan["Schema"], plan["Relation Name"]
    for step in plan.get("Plans", []):
        yield from find_scanned_tables(step)


# ``parted``: until its restart, a promoted server shows where it left the log of its predecessor.
# After a crash it shows the end of its recovery, but then no receiver.
# ``timeline``: only it distinguishes a promoted server from its predecessor.  On a server that
# writes a log, the name of the segment contains it.  A standby shows the timeline of its last
# restartpoint or written page, and the one that it receives, which it has not left yet.  Without
# pg_monitor the latter is NULL.
HEAD = """\
SELECT system_identifier::text AS system,
    CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
        ELSE pg_current_wal_flush_lsn() END::text AS lsn,
    CASE WHEN NOT pg_is_in_recovery() THEN pg_walfile_name(pg_current_wal_flush_lsn()) END AS file,
    CASE WHEN NOT pg_is_in_recovery() AND pg_last_wal_receive_lsn() IS NOT NULL
        THEN pg_last_wal_replay_lsn() END::text AS parted,
    greatest((SELECT timeline_id FROM pg_control_checkpoint()),
        (SELECT min_recovery_end_timeline FROM pg_control_recovery()),
        (SELECT received_tli FROM pg_stat_wal_receiver)) AS timeline,
    (SELECT oid::bigint FROM pg_database WHERE datname = current_database()) AS database
FROM pg_control_system()
"""
# A clone returns the same HEAD, but has another start time.
WRITER = """\
SELECT CASE WHEN NOT pg_is_in_recovery() THEN pg_postmaster_start_time() END::text AS started
"""
KIND = """\
SELECT c.relkind::text AS kind FROM pg_class AS c JOIN pg_namespace AS s ON s.oid = c.relnamespace
WHERE s.nspname = %s AND c.relname = %s
"""
HELD = """\
SELECT coalesce(max(c.reltuples), 0)::bigint AS n
FROM pg_class AS c JOIN pg_namespace AS s ON s.oid = c.relnamespace
WHERE s.nspname = %s AND c.relname = %s
"""


@dataclass(eq=False)
class PostgresSource(SqlSource):
    """One database of a server, with its publication and its replication slot.

    ``read_from`` is the ``host:port`` of a standby for backfills and probes.
    """

    dialect: ClassVar[Dialect] = POSTGRES
    positions: ClassVar[PositionRules] = POSITIONS
    settings: SourceSettings
    database: str
    """The database that is replicated."""
    publication: str = PUBLICATION
    """The publication that the collector reads."""
    slot: str = ""
    """The replication slot; `sluice_` and the source's name if it is empty."""
    limits: Limits = field(default_factory=Limits)
    """Limits that protect the server."""
    read_from: str = ""
    _names: Replication = field(init=False, repr=False)
    _session: PostgresSession = field(init=False, repr=False)
    _published: PublishedTables = field(init=False, repr=False)
    _slot: WatchedSlot = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Prepare the session, which connects at its first query.

        Raises:
            ConfigError: Postgres does not accept the slot's name, or ``read_from`` is invalid.
        """
        read_replica(self.settings)
        self._names = named(self.name, self.database, self.publication, self.slot)
        self._session = PostgresSession(self.settings, self.database, self.limits)
        self._published = PublishedTables(self._session, self.publication, slot=self._names.slot)
        self._slot = WatchedSlot(self._session, self._names.slot)

    @property
    def session(self) -> PostgresSession:
        return self._session

    def quote(self, name: str) -> str:
        return quote_name(name)

    def qualify(self, shard: Shard) -> str:
        """The table in SQL; excludes rows of inheriting tables, includes those of partitions."""
        table = ShardId.parse(shard.name)
        kinds = [row["kind"] for row in self._session.ask(KIND, table.database, table.relation)]
        only = "ONLY " if kinds == ["r"] else ""
        return f"{only}{quote_name(table.database)}.{quote_name(table.relation)}"

    def aggregate_sql(self, shard: Shard, column: str, fields: Sequence[AggregatedColumn]) -> str:
        return aggregate_sql(self.columns(shard), shard, column, fields, self.qualify(shard))

    def digest_sql(self, columns: Sequence[Column]) -> str:
        return digest_sql(cast("Sequence[PostgresColumn]", columns), quote_name)

    def refuse_large(
        self, ask: Ask, shard: Shard, statement: str, arguments: Sequence[object], *, scans: bool
    ) -> None:
        """Reject a statement by the planner's estimates; a filtered scan counts the whole table."""
        (answer,) = ask(f"EXPLAIN (FORMAT JSON, VERBOSE) {statement}", *arguments)
        plan = answer["QUERY PLAN"][0]["Plan"]
        scanned = find_scanned_tables(plan) if scans else ()
        read = sum(int(ask(HELD, *own)[0]["n"]) for own in scanned)
        self.limits.refuse_rows(max(_most(plan), read), shard.name)

    def head(self) -> Head:
        """Identity of the database on the server that answers, and the end of its log."""
        (row,) = self._session.ask(HEAD)
        parted = None if row["parted"] is None else log_position(parse_lsn(str(row["parted"])))
        return Head(_identity(row), log_position(parse_lsn(str(row["lsn"]))), parted)

    def log_writer(self) -> str | None:
        """The start time of the server if it writes a log; None if it replays one."""
        (row,) = self._session.ask(WRITER)
        return None if row["started"] is None else str(row["started"])

    def prepare_heartbeat(self) -> None:
        create_heartbeat_table(self._session.ask, self.settings.heartbeat, self.name)

    def write_heartbeat(self, at_least: int, at: datetime) -> Heartbeat:
        """Commit the next heartbeat number, at least *at_least*, with our time *at*.

        The number is the stored one plus one, so a lost answer leaves no hole.

        Raises:
            ConfigError: the server is a standby, or takes no writes.
        """
        table = self.heartbeat_table
        naming = name_heartbeat_lock(self.settings.heartbeat)
        with naming, self._session.exclusive() as ask:
            (row,) = ask(
                f"INSERT INTO {table} AS own (source, n, at) VALUES (%s, %s, %s)"  # noqa: S608
                " ON CONFLICT (source) DO UPDATE"
                " SET n = greatest(own.n + 1, excluded.n), at = excluded.at"
                " RETURNING n, clock_timestamp() AS server_time",
                *(self.name, at_least, at),
            )
            server_time: datetime = row["server_time"]
            return Heartbeat(int(row["n"]), self.head(), server_time.astimezone(UTC))

    def shards(self, pattern: str) -> tuple[Shard, ...]:
        found = list_shards(self._session, self.name, self.publication)
        return tuple(shard for shard in found if re.fullmatch(pattern, shard.name, re.DOTALL))

    def columns(self, shard: Shard) -> tuple[PostgresColumn, ...]:
        with self._session.within_limits():
            found = [row for oid in self._oids(shard) for row in self._session.ask(CATALOGUE, oid)]
        return tuple(read_column(row, place) for place, row in enumerate(found, start=1))

    def key_columns(self, shard: Shard) -> tuple[str, ...]:
        indexes = self._session.ask(INDEXES, self._oids(shard))
        return next((tuple(row["columns"]) for row in indexes if row["primary"]), ())

    def sends(self) -> CaptureScope:
        """The tables that the publication sends, and the log that the slot retains."""
        broken, keeper = self._slot.look(self.head())
        return replace(self._published.capture(), broken=broken, keeper=keeper)

    def describe(self, shards: Collection[str]) -> SourceDescription:
        server = read_server_facts(self._session, self._names, self.settings.heartbeat)
        asked = partial(_is_among, shards)
        found = read_shard_facts(self._session, self.name, self.publication, asked)
        elsewhere = find_sent_elsewhere(self._session, self.publication, asked)
        return describe_source(server, found, self._names, elsewhere)

    def examine(self, scope: ExaminationScope) -> tuple[Finding, ...]:
        """Findings on settings, the slot, grants of the user, and captured tables."""
        server = read_server_facts(self._session, self._names, self.settings.heartbeat)
        shards = read_shard_facts(
            self._session, self.name, self.publication, scope.captured, slot=self._names.slot
        )
        elsewhere = find_sent_elsewhere(self._session, self.publication, scope.captured)
        return collect_findings(
            self.settings, self._names, server, shards, scope, elsewhere=elsewhere
        )

    def _oids(self, shard: Shard) -> list[int]:
        """The oid of *shard* in a list, which is empty if it does not exist."""
        table = ShardId.parse(shard.name)
        found = self._session.ask(
            "SELECT c.oid::bigint AS oid FROM pg_class c JOIN pg_namespace n"
            " ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s",
            *(table.database, table.relation),
        )
        return [int(row["oid"]) for row in found]


def _identity(row: Row) -> str:
    """``system/timeline/database``; a database that was created again has another number."""
    timeline = int(str(row["file"])[:8], 16) if row["file"] else int(row["timeline"])
    return f"{row['system']}/{timeline}/{row['database']}"


def _is_among(shards: Collection[str], name: ShardId) -> bool:
    return str(name) in shards


def _most(plan: Row) -> int:
    """The largest estimated number of rows of a step of *plan*."""
    return max(int(plan["Plan Rows"]), *(_most(step) for step in plan.get("Plans", [])), 0)


SOURCE: type[Source] = PostgresSource
