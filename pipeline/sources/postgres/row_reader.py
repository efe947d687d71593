"""Reads the rows of a Postgres database behind a fence, along the key and without locks.

Each SELECT is a separate snapshot, within the limits. If a standby is read, the read waits until
the standby has replayed what the fence needs.
Cannot detect: rows that an index on the standby misses, for example if its C library sorts
differently.

Key columns are compared as one row value, so the index is used. Server and index order by the
collation of the column. A key is read as text and sent back as a value of the column's type, so
bounds use the same order. A bound with only the first columns of a key covers all keys that begin
with them. The search path does not find the operators of an extension's type, so it is ordered by
its text, byte by byte, without an index.

`describe` raises ProofError unless the publication sends new writes to the table.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import ClassVar

import pyarrow as pa

from pipeline.errors import ConfigError, ProofError
from pipeline.model import Head, Position, Shard, ShardId
from pipeline.schema.model import Notation, TableDescription, TableSchema
from pipeline.settings import SourceSettings
from pipeline.sources.condition import SqlCondition
from pipeline.sources.postgres.facts import (
    find_sent_elsewhere,
    read_publication_facts,
    read_shard_facts,
    why_keyless,
    why_unsent,
)
from pipeline.sources.postgres.position import (
    NUMBER,
    POSITIONS,
    WRITERS,
    fence_timeout,
    find_end_of_transactions,
    log_position,
    parse_lsn,
)
from pipeline.sources.postgres.replication import read_replication
from pipeline.sources.postgres.row_encoding import (
    TYPED,
    ReadColumn,
    describe_table,
    match_keys,
    read_columns,
    to_wire_texts,
)
from pipeline.sources.postgres.session import quote_name
from pipeline.sources.postgres.source import PostgresSource
from pipeline.sources.postgres.types import WHOLE
from pipeline.sources.replica import refuse_own_log
from pipeline.sources.row_reader import (
    KeyTexts,
    ReadFence,
    RowReader,
    RowsAsked,
    RowsRead,
    encode_batch,
    read_replica,
    require_columns,
)
from pipeline.sources.source import Limits
from pipeline.sources.sql import Found, KeyedTable, SqlRowReader

UNORDERED = (
    "FLOAT4",
    "FLOAT8",
    "JSON",
    "XML",
    "POINT",
    "BOX",
    "LINE",
    "LSEG",
    "PATH",
    "POLYGON",
    "CIRCLE",
)


@dataclass(frozen=True, slots=True)
class PostgresKey:
    """The columns of a key, in its order, and SQL conditions on them."""

    columns: tuple[ReadColumn, ...]

    @classmethod
    def of(cls, shard: str, columns: Sequence[ReadColumn], key: Sequence[str]) -> "PostgresKey":
        """The columns of *key*, found among the shard's *columns*.

        Raises:
            ConfigError: rows cannot be read along the key; names the shard and the reason.
        """
        by_name = {one.name: one for one in columns}
        require_columns(shard, key, by_name)
        for name in key:
            if by_name[name].column.kind in UNORDERED:
                column = by_name[name].column
                msg = f"{shard}: key column {name} is a {column}, which has no stable order"
                raise ConfigError(f"{msg}; set another key: for the table")
            if by_name[name].column.nullable:
                msg = f"{shard}: key column {name} may be NULL, and such rows have no key"
                raise ConfigError(f"{msg}; ALTER TABLE ... ALTER COLUMN ... SET NOT NULL")
        return cls(tuple(by_name[name] for name in key))

    @property
    def order(self) -> str:
        return ", ".join(map(_key_expression, self.columns))

    @property
    def wanted(self) -> tuple[str, ...]:
        """Expressions that return the values of the key."""
        return tuple(quote_name(one.name) for one in self.columns)

    def texts(self, row: Sequence[str | None]) -> KeyTexts:
        """The values of ``wanted`` in a row; none is NULL."""
        return tuple(value or "" for value in row)

    def above(self, key: KeyTexts) -> SqlCondition:
        return self._compared(">", key)

    def up_to(self, key: KeyTexts) -> SqlCondition:
        return self._compared("<=", key)

    def match_keys(self, shard: str, keys: Sequence[str]) -> SqlCondition:
        return match_keys(shard, self.columns, keys)

    def _compared(self, sign: str, key: KeyTexts) -> SqlCondition:
        asked = ", ".join(_key_expression(one) for one in self.columns[: len(key)])
        return f"({asked}) {sign} ({', '.join(['%s'] * len(key))})", key


def _key_expression(one: ReadColumn) -> str:
    return quote_name(one.name) if one.ordered else f'{quote_name(one.name)}::text COLLATE "C"'


PUBLISHED = (
    "SELECT to_jsonb(p)->'attnames' AS sent FROM pg_publication_tables p"
    " WHERE p.pubname = %s AND p.schemaname = %s AND p.tablename = %s"
)


def explain_unsent(source: PostgresSource, shard: Shard) -> str | None:
    """Why not all rows that are now written to *shard* are sent; None if they are."""
    session, name = source.session, source.publication
    asked = partial(_is_same, ShardId.parse(shard.name))
    if elsewhere := find_sent_elsewhere(session, name, asked):
        return elsewhere[shard.name]
    found = read_shard_facts(session, source.name, name, asked)
    if not found:
        return "the table does not exist"
    publication = read_publication_facts(session, name)
    return why_unsent(found[0], publication, name) or why_keyless(found[0]) or None


def _is_same(wanted: ShardId, name: ShardId) -> bool:
    return name == wanted


POLL = timedelta(milliseconds=50)
RELATION = (
    "SELECT c.oid::bigint AS oid, c.relkind::text AS kind FROM pg_class c JOIN pg_namespace n"
    " ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s"
)


@dataclass(eq=False)
class PostgresRowReader(SqlRowReader):
    """Reads fences from the source's database, and rows from it or from the standby ``read_from``.

    ``patience`` is the time limit before a read: for open transactions to end, and for a standby to
    reach the fence.
    """

    notations: ClassVar[frozenset[Notation]] = frozenset((Notation.CONNECT,))
    settings: SourceSettings
    limits: Limits | None = None
    patience: timedelta = timedelta(seconds=10)
    server: PostgresSource = field(init=False, repr=False)
    read_from: PostgresSource = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Prepare the servers; each connects at its first query.

        Raises:
            ConfigError: the options name no database, or an invalid replica.
        """
        self.server = self._source(self.settings)
        replica = read_replica(self.settings)
        self.read_from = self.server if replica is None else self._source(replica)

    def shards(self) -> tuple[Shard, ...]:
        """Tables whose rows are sent under their own names."""
        return self.server.shards(".*")

    def describe(self, shard: Shard) -> TableDescription:
        """Describe columns and primary key; the publication must send new writes.

        Raises:
            ProofError: it does not send them, or the table does not exist.
        """
        if (why := explain_unsent(self.server, shard)) is not None:
            raise ProofError(f"{self.where}: {shard.name} cannot get a base: {why}")
        relation = self._relation(shard, None)
        return describe_table(shard, relation.columns, self.server.key_columns(shard))

    def fence(self, at_least: int, at: datetime) -> ReadFence:
        """Read the end of the log, then commit a heartbeat, then take a transaction number.

        A change's order begins with the commit before it.  The commit of the heartbeat is above
        the fence, so everything that is committed after it is above the fence too.
        """
        head = self.server.head()
        heartbeat = self.server.write_heartbeat(at_least, at)
        (row,) = self.server.session.ask(NUMBER)
        for later in (heartbeat.head, self.server.head()):
            if later.identity != head.identity:
                raise ProofError(f"{self.where}: another server answered meanwhile")
        return ReadFence(head, heartbeat.number, heartbeat.head.position, str(row["number"]))

    def integer_key(self, shard: Shard, key: Sequence[str]) -> str | None:
        first = self._key(shard, key).columns[0]
        return first.name if first.column.kind in WHOLE else None

    def encode_ids(self, shard: Shard, key: Sequence[str], ids: pa.StringArray) -> pa.StringArray:
        return to_wire_texts(self._key(shard, key).columns[0], ids).texts

    def read(self, fence: ReadFence, asked: RowsAsked) -> RowsRead:
        """Read rows along the key, after all transactions that wrote before the fence have ended.

        Before and after the read, the server must have reached the fence.
        """
        needed = self._await(fence)
        relation = self._relation(asked.shard, asked.declared)
        key = PostgresKey.of(asked.shard.name, relation.columns, asked.key)
        found, last, ended = self._found(relation, key, asked)
        if (missing := _explain_behind(fence, needed, self.read_from.head())) is not None:
            raise ProofError(f"{self.where}: the server has changed: {missing}")
        table = describe_table(asked.shard, relation.columns, asked.key)
        batch = encode_batch(relation.columns, key.columns, found, to_wire_texts)
        return RowsRead(batch, last, ended, table)

    def _source(self, settings: SourceSettings) -> PostgresSource:
        names = read_replication(settings)
        return PostgresSource(
            settings, names.database, names.publication, names.slot, limits=self.own_limits
        )

    def _await(self, fence: ReadFence) -> Position:
        """Wait until reads see everything below the fence; return the end of the log then."""
        until = time.monotonic() + self.patience.total_seconds()
        needed = self._ended(fence, until)
        self._refuse_own_log()
        self.wait_for_fence(lambda head: _explain_behind(fence, needed, head), until, POLL)
        if self.read_from is not self.server and self.read_from.newest_heartbeat() < fence.number:
            msg = f"{self.where}: the standby does not have heartbeat {fence.number} of the source"
            raise ProofError(f"{msg}, so it follows another server; correct read_from")
        self.refuse_lagging()
        return needed

    def _refuse_own_log(self) -> None:
        if self.read_from is self.server:
            return
        try:
            refuse_own_log(self.read_from, self.server)
        except ProofError as error:
            msg = f"{self.where}: the server of read_from is not read: {error}; correct read_from"
            raise ProofError(msg) from error

    def _ended(self, fence: ReadFence, until: float) -> Position:
        session = self.server.session
        while (place := find_end_of_transactions(session.ask, int(fence.awaited))) is None:
            if time.monotonic() > until:
                raise fence_timeout(self.where, self.patience, session.ask(WRITERS))
            time.sleep(POLL.total_seconds())
        if (there := self.server.head()).identity != fence.head.identity:
            msg = f"it is {there.identity}, not {fence.head.identity}"
            raise ProofError(f"{self.where}: the server has changed: {msg}")
        return log_position(parse_lsn(place))

    def _found(self, relation: "Relation", key: PostgresKey, asked: RowsAsked) -> Found:
        name = ShardId.parse(asked.shard.name)
        return KeyedTable(
            f"{relation.only}{quote_name(name.database)}.{quote_name(name.relation)}",
            tuple(map(_expression, relation.columns)),
            {one.name for one in relation.columns},
            key,
            quote_name,
            self.read_from.session.rows,
        ).read_rows(asked)

    def _key(self, shard: Shard, key: Sequence[str]) -> PostgresKey:
        return PostgresKey.of(shard.name, self._relation(shard, None).columns, key)

    def _relation(self, shard: Shard, declared: TableSchema | None) -> "Relation":
        name = ShardId.parse(shard.name)
        session = self.read_from.session
        with session.within_limits():
            there = session.ask(RELATION, name.database, name.relation)
            if not there:
                raise ProofError(f"{self.where}: table {shard.name} does not exist")
            rows = session.ask(TYPED, there[0]["oid"])
            publication = self.server.publication
            published = session.ask(PUBLISHED, publication, name.database, name.relation)
        sent = published[0]["sent"] if published else None
        only = "" if there[0]["kind"] == "p" else "ONLY "
        return Relation(only, read_columns(rows, declared, sent))


@dataclass(frozen=True, slots=True)
class Relation:
    """A table to read; ``only`` precedes its name in SQL, to exclude rows of inheriting tables."""

    only: str
    columns: tuple[ReadColumn, ...]


def _expression(one: ReadColumn) -> str:
    """An expression for the exact value: the server prints money by its locale.

    A cast alone has the name of its column, which ORDER BY would find twice.
    """
    name = quote_name(one.name)
    return f"{name}::numeric + 0" if one.column.kind == "MONEY" else name


def _explain_behind(fence: ReadFence, needed: Position, server: Head) -> str | None:
    """Why *server* may not be read for the fence; None if it may."""
    if server.identity != fence.head.identity:
        return f"it is {server.identity}, not {fence.head.identity}"
    if not POSITIONS.has_reached(server.position, needed):
        return f"it has replayed up to {server.position.words}, {needed.words} is needed"
    return None


ROW_READER: type[RowReader] = PostgresRowReader
