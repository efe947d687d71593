"""How are a Postgres's rows read from behind a fence, without harm?

Each SELECT is one snapshot of its own, along the key, within `Limits`; nothing is locked.  What is
read may be a standby's: then it waits until that has replayed all that the fence needs.
Cannot see: rows that an index on the standby misses, as where its C library sorts otherwise.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar

import pyarrow as pa

from pipeline.errors import ProofError
from pipeline.model import Head, Position, Shard, ShardId
from pipeline.schema.model import Notation, TableSchema, TableTold
from pipeline.settings import SourceSettings
from pipeline.sources.asked_keys import steps
from pipeline.sources.keyed_rows import Found, KeyedTable
from pipeline.sources.limits import Limits, limits_of
from pipeline.sources.postgres.fence import NUMBER, WRITERS, awaited, ended
from pipeline.sources.postgres.keyset import ReadKey
from pipeline.sources.postgres.position import POSITIONS, log_position, lsn
from pipeline.sources.postgres.publishing import PUBLISHED, unsent_by
from pipeline.sources.postgres.read_columns import TYPED, ReadColumn, read_columns, told_by
from pipeline.sources.postgres.replication import replication
from pipeline.sources.postgres.session import quoted
from pipeline.sources.postgres.source import PostgresSource
from pipeline.sources.postgres.typemap import WHOLE
from pipeline.sources.postgres.wire_text import images, wire_texts
from pipeline.sources.row_reader import (
    ROWS,
    KeyTexts,
    ReadFence,
    RowReader,
    RowsAsked,
    RowsRead,
    refuse_lagging,
    replica_of,
)
from pipeline.sources.wire_texts import keys_of

POLL = timedelta(milliseconds=50)
RELATION = (
    "SELECT c.oid::bigint AS oid, c.relkind::text AS kind FROM pg_class c JOIN pg_namespace n"
    " ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s"
)


@dataclass(eq=False)
class PostgresRowReader:
    """Rows of one database; fences are its own, rows a standby's where ``read_from`` names one.

    ``patience`` is how long transactions may stay open, and a standby take, before a read.
    """

    notations: ClassVar[frozenset[Notation]] = frozenset((Notation.CONNECT,))
    settings: SourceSettings
    limits: Limits | None = None
    patience: timedelta = timedelta(seconds=10)
    _server: PostgresSource = field(init=False, repr=False)
    _read_from: PostgresSource = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Name the servers; each is dialled when it is first asked.

        Raises:
            ConfigError: the options name no database, or no replica.
        """
        self._server = self._source(self.settings)
        replica = replica_of(self.settings)
        self._read_from = self._server if replica is None else self._source(replica)

    def shards(self) -> tuple[Shard, ...]:
        """Every table whose rows may be sent under its own name."""
        return self._server.shards(".*")

    def describe(self, shard: Shard) -> TableTold:
        """Its columns and primary key, once the publication sends what is written to it.

        Raises:
            ProofError: it does not, or there is no such table.
        """
        if (why := unsent_by(self._server, shard)) is not None:
            raise ProofError(f"source:{self.settings.name}: {shard.name} gets no base: {why}")
        relation = self._relation(shard, None)
        return told_by(shard, relation.columns, self._server.key_columns(shard))

    def fence(self, at_least: int, at: datetime) -> ReadFence:
        """Note the log's end, then commit a heartbeat, then take a transaction's number.

        A change's order begins with the commit before it that was sent: the heartbeat's stands
        above the fence, so what is committed after that does, too.
        """
        head = self._server.head()
        beat = self._server.beat(at_least, at)
        (row,) = self._server.session.ask(NUMBER)
        for later in (beat.head, self._server.head()):
            if later.identity != head.identity:
                raise ProofError(f"source:{self.settings.name}: another server answered meanwhile")
        return ReadFence(head, beat.number, beat.head.position, str(row["number"]))

    def bounds(self, shard: Shard, key: Sequence[str], pieces: int) -> tuple[KeyTexts, ...]:
        """Even steps from the lowest to the highest value of an integer; none for other keys."""
        found = self._relation(shard, None)
        first = ReadKey.of(shard.name, found.columns, key).columns[0]
        if pieces < 2 or first.column.kind not in WHOLE:
            return ()
        low = self._read_from.min_id(shard, first.name)
        return steps(low, self._read_from.max_id(shard, first.name), pieces)

    def read(self, fence: ReadFence, asked: RowsAsked) -> RowsRead:
        """Rows along the key, once all that had begun to write by the fence has ended.

        The server is the fence's before and after, or has replayed as much.
        """
        needed = self._await(fence)
        relation = self._relation(asked.shard, asked.declared)
        key = ReadKey.of(asked.shard.name, relation.columns, asked.key)
        found, last, ended = self._found(relation, key, asked)
        if (missing := _lacking(fence, needed, self._read_from.head())) is not None:
            raise ProofError(f"source:{self.settings.name}: the server has changed: {missing}")
        told = told_by(asked.shard, relation.columns, asked.key)
        return RowsRead(_told(relation.columns, key, found), last, ended, told)

    def keys_of(self, shard: Shard, key: Sequence[str], ids: Sequence[int]) -> tuple[str, ...]:
        """As the log writes the integers of that column."""
        columns = self._relation(shard, None).columns
        one = ReadKey.of(shard.name, columns, key).columns[0]
        texts = wire_texts(one, pa.array(map(str, ids), pa.string())).texts
        return tuple(keys_of([texts]).to_pylist())

    def close(self) -> None:
        """Hang up."""
        self._server.close()
        self._read_from.close()

    @property
    def _limits(self) -> Limits:
        return self.limits or limits_of(self.settings.options)

    def _source(self, settings: SourceSettings) -> PostgresSource:
        names = replication(settings)
        return PostgresSource(
            settings, names.database, names.publication, names.slot, limits=self._limits
        )

    def _await(self, fence: ReadFence) -> Position:
        """Wait until every read sees what the fence promises; the place in the log by then."""
        until = time.monotonic() + self.patience.total_seconds()
        needed = self._ended(fence, until)
        while (missing := _lacking(fence, needed, self._read_from.head())) is not None:
            if self._read_from is self._server or time.monotonic() > until:
                msg = f"source:{self.settings.name}: what is read is not as far as the fence"
                raise ProofError(f"{msg} after {self.patience}: {missing}")
            time.sleep(POLL.total_seconds())
        refuse_lagging(self._server, self._read_from, self._limits)
        return needed

    def _ended(self, fence: ReadFence, until: float) -> Position:
        session = self._server.session
        while (place := ended(session.ask, int(fence.awaited))) is None:
            if time.monotonic() > until:
                where = f"source:{self.settings.name}"
                raise awaited(where, self.patience, session.ask(WRITERS))
            time.sleep(POLL.total_seconds())
        if (there := self._server.head()).identity != fence.head.identity:
            msg = f"it is {there.identity}, not {fence.head.identity}"
            raise ProofError(f"source:{self.settings.name}: the server has changed: {msg}")
        return log_position(lsn(place))

    def _found(self, relation: "_Relation", key: ReadKey, asked: RowsAsked) -> Found:
        name = ShardId.parse(asked.shard.name)
        return KeyedTable(
            f"{relation.only}{quoted(name.database)}.{quoted(name.relation)}",
            tuple(map(_expression, relation.columns)),
            {one.name for one in relation.columns},
            key,
            quoted,
            self._read_from.session.rows,
        ).found(asked)

    def _relation(self, shard: Shard, declared: TableSchema | None) -> "_Relation":
        name = ShardId.parse(shard.name)
        session, source = self._read_from.session, f"source:{self.settings.name}"
        with session.spared():
            there = session.ask(RELATION, name.database, name.relation)
            if not there:
                raise ProofError(f"{source}: there is no table {shard.name}")
            rows = session.ask(TYPED, there[0]["oid"])
            publication = self._server.publication
            published = session.ask(PUBLISHED, publication, name.database, name.relation)
        sent = published[0]["sent"] if published else None
        only = "" if there[0]["kind"] == "p" else "ONLY "
        return _Relation(only, read_columns(rows, declared, sent))


@dataclass(frozen=True, slots=True)
class _Relation:
    """``only`` stands before its name where rows of tables that inherit it are not its own."""

    only: str
    columns: tuple[ReadColumn, ...]


def _expression(one: ReadColumn) -> str:
    """What is asked for to get a value as it is: money is printed as the server's country does."""
    name = quoted(one.name)
    return f"{name}::numeric" if one.column.kind == "MONEY" else name


def _lacking(fence: ReadFence, needed: Position, server: Head) -> str | None:
    """What *server* lacks to be read; None if nothing."""
    if server.identity != fence.head.identity:
        return f"it is {server.identity}, not {fence.head.identity}"
    if not POSITIONS.reaches(server.position, needed):
        return f"it has replayed up to {server.position.words}, {needed.words} is needed"
    return None


def _told(columns: Sequence[ReadColumn], key: ReadKey, found: pa.RecordBatch) -> pa.RecordBatch:
    values = found.columns[: len(columns)]
    own = dict(zip((one.name for one in columns), values, strict=True))
    texts = [wire_texts(one, own[one.name]).texts for one in key.columns]
    return pa.RecordBatch.from_arrays([keys_of(texts), images(columns, values)], schema=ROWS)


ROW_READER: type[RowReader] = PostgresRowReader
