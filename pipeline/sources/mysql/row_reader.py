"""Reads the rows of a MySQL server behind a fence, along the key and without locks.

Each SELECT is a separate consistent read, within the limits. If a replica is read, the read waits
until the replica has executed what the fence needs.

The server compares by its own collations, so a key is read as text and sent back as a value that
means the same there. A bound with only the first columns of a key covers all keys that begin
with them. ENUM, SET and BIT are ordered by their numbers. Rows cannot be read along a key column
of type FLOAT, DOUBLE, JSON or geometry.

The columns are those at the time of the read. The caller must account for DDL between two reads.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import ClassVar, cast

import pyarrow as pa

from pipeline.errors import ConfigError, ProofError
from pipeline.formats.canal_types import describe_column
from pipeline.model import Shard, ShardId
from pipeline.schema.model import Notation, TableDescription
from pipeline.settings import SourceSettings
from pipeline.sources.condition import SqlCondition, Value
from pipeline.sources.mysql.position import (
    SETTLING,
    describe_open_xa,
    encode_xa_names,
    executed_gtids,
    explain_behind_fence,
    find_open_xa,
)
from pipeline.sources.mysql.row_encoding import encode_plain_rows, match_keys, to_server_texts
from pipeline.sources.mysql.session import quote_name
from pipeline.sources.mysql.source import MySqlSource
from pipeline.sources.mysql.types import BYTES, GEOMETRIES, WHOLE, MySqlColumn, mysql_columns
from pipeline.sources.mysql.values import Raw, to_wire_texts
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

INTEGERS = (*WHOLE, "BIGINT")
COUNTED = ("ENUM", "SET", "BIT")
NUMBERED = (*INTEGERS, "YEAR", *COUNTED)
UNORDERED = ("FLOAT", "DOUBLE", "JSON", *GEOMETRIES)


@dataclass(frozen=True, slots=True)
class MySqlKey:
    """The columns of a key, in its order, and SQL conditions on them."""

    columns: tuple[MySqlColumn, ...]

    @classmethod
    def of(cls, shard: str, columns: Sequence[MySqlColumn], key: Sequence[str]) -> "MySqlKey":
        """The columns of *key*, found among the shard's *columns*.

        Raises:
            ConfigError: rows cannot be read along the key; names the shard and the reason.
        """
        by_name = {column.name: column for column in columns}
        require_columns(shard, key, by_name)
        for name in key:
            if by_name[name].kind in UNORDERED:
                msg = f"{shard}: key column {name} is a {by_name[name]}, which has no stable order"
                raise ConfigError(msg)
        return cls(tuple(by_name[name] for name in key))

    @property
    def wanted(self) -> tuple[str, ...]:
        """Expressions that the server orders by and returns, one for each column."""
        return tuple(_key_expression(column) for column in self.columns)

    @property
    def order(self) -> str:
        return ", ".join(self.wanted)

    def texts(self, row: Sequence[Raw]) -> KeyTexts:
        return tuple(value.hex() if isinstance(value, bytes) else str(value) for value in row)

    def above(self, key: KeyTexts) -> SqlCondition:
        return self._beyond(key, ">", ">")

    def up_to(self, key: KeyTexts) -> SqlCondition:
        return self._beyond(key, "<", "<=")

    def match_keys(self, shard: str, keys: Sequence[str]) -> SqlCondition:
        return match_keys(shard, self.columns, keys)

    def _beyond(self, key: KeyTexts, sign: str, last: str) -> SqlCondition:
        """One alternative per column, and a condition on the first column so an index is used."""
        values = self._values(key)
        asked = self.wanted[: len(values)]
        parts, arguments = [], list[Value]()
        for at, name in enumerate(asked):
            equal = [f"{before} = %s" for before in asked[:at]]
            ends = last if at == len(asked) - 1 else sign
            parts.append(" AND ".join([*equal, f"{name} {ends} %s"]))
            arguments += values[: at + 1]
        if len(parts) == 1:
            return parts[0], tuple(arguments)
        bound = f"{asked[0]} {sign}= %s"
        return f"{bound} AND ({' OR '.join(f'({p})' for p in parts)})", (values[0], *arguments)

    def _values(self, key: KeyTexts) -> list[Value]:
        return [_value(column, text) for column, text in zip(self.columns, key, strict=False)]


def _key_expression(column: MySqlColumn) -> str:
    name = quote_name(column.name)
    return f"{name} + 0" if column.kind in COUNTED else name


def _value(column: MySqlColumn, text: str) -> Value:
    if column.kind in NUMBERED:
        return int(text)
    if column.kind == "DECIMAL":
        return Decimal(text)
    return bytes.fromhex(text) if column.kind in BYTES else text


POLL = timedelta(milliseconds=100)


@dataclass(eq=False)
class MySqlRowReader(SqlRowReader):
    """Reads fences from the source's server, and rows from it or from the replica ``read_from``.

    ``patience`` is the time limit for a replica to reach a fence; ``xa_patience`` the time limit
    for XA transactions that were prepared before it.
    """

    notations: ClassVar[frozenset[Notation]] = frozenset(Notation)
    settings: SourceSettings
    limits: Limits | None = None
    patience: timedelta = timedelta(seconds=30)
    xa_patience: timedelta = timedelta(seconds=10)
    notation: Notation = Notation.CONNECT
    server: MySqlSource = field(init=False, repr=False)
    read_from: MySqlSource = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Prepare the servers; each connects at its first query."""
        limits = self.own_limits
        self.server = MySqlSource(self.settings, limits=limits)
        self.read_from = self.server
        if (replica := read_replica(self.settings)) is not None:
            self.read_from = MySqlSource(replica, limits=limits)

    def shards(self) -> tuple[Shard, ...]:
        return self.server.shards(".*")

    def describe(self, shard: Shard) -> TableDescription | None:
        """The description to send with rows of server texts; None in other notations.

        In those, DDL describes the columns.  Key columns are in the order of the table.
        """
        return self._table(shard, self.server) if self.notation is Notation.TEXTS else None

    def fence(self, at_least: int, at: datetime) -> ReadFence:
        """Read the end of the log, then commit a heartbeat: all logged before it is then committed.

        The executed GTIDs are read after the heartbeat, because transactions at the end of the log
        may be logged and not counted yet.
        """
        if not self.server.commits_in_order:
            msg = f"{self.where}: the server commits in another order than it logs"
            raise ConfigError(f"{msg}, so reads cannot be fenced; set binlog_order_commits=ON")
        head = self.server.head()
        heartbeat = self.server.write_heartbeat(at_least, at)
        if heartbeat.head.identity != head.identity:
            raise ProofError(f"{self.where}: another server answered meanwhile")
        if self.read_from is not self.server and not executed_gtids(heartbeat.head.position):
            why, fix = "it writes no GTIDs", "set gtid_mode=ON, or remove read_from"
            if self.server.mariadb:
                why, fix = "MariaDB's GTIDs are not compared", "remove read_from"
            msg = f"{self.where}: {why}, so the progress of a replica is unknown; {fix}"
            raise ConfigError(msg)
        return ReadFence(
            head, heartbeat.number, heartbeat.head.position, encode_xa_names(self._prepared())
        )

    def integer_key(self, shard: Shard, key: Sequence[str]) -> str | None:
        first = self._key(shard, key).columns[0]
        return first.name if first.kind in INTEGERS else None

    def encode_ids(self, shard: Shard, key: Sequence[str], ids: pa.StringArray) -> pa.StringArray:
        first = self._key(shard, key).columns[0]
        encode = to_server_texts if self.notation is Notation.TEXTS else to_wire_texts
        return encode(first, ids).texts

    def read(self, fence: ReadFence, asked: RowsAsked) -> RowsRead:
        """Read rows along the key; before and after, the server must have reached the fence.

        The columns are those at the time of the read: callers must account for DDL between reads.
        """
        self._await(fence)
        columns = self._columns(asked.shard)
        key = MySqlKey.of(asked.shard.name, columns, asked.key)
        found, last, ended = self._found(columns, key, asked)
        if (missing := explain_behind_fence(fence, self.read_from.head())) is not None:
            raise ProofError(f"{self.where}: the server has changed: {missing}")
        if self.notation is Notation.TEXTS:
            table = self._table(asked.shard, self.read_from)
            if [one.name for one in table.columns] != [one.name for one in columns]:
                raise ProofError(f"the columns of {table.shard} changed while it was read")
            batch = encode_batch(columns, key.columns, found, to_server_texts)
            return RowsRead(batch, last, ended, table)
        rows = self._plain_rows(asked, columns, found) if self.notation is Notation.PLAIN else None
        batch = encode_batch(columns, key.columns, found, to_wire_texts, rows)
        return RowsRead(batch, last, ended)

    def _plain_rows(
        self, asked: RowsAsked, columns: Sequence[MySqlColumn], found: pa.RecordBatch
    ) -> pa.StringArray:
        """Encode rows with the columns that events describe, which determine the spelling."""
        if asked.declared is None:
            msg = f"the columns of {asked.shard} are unknown: no event of it has landed yet"
            raise ProofError(msg)
        described = mysql_columns(asked.declared)
        values = found.columns[: len(columns)]
        return encode_plain_rows(str(asked.shard), described, columns, values)

    def _table(self, shard: Shard, server: MySqlSource) -> TableDescription:
        types, key = server.column_types(shard), server.key_columns(shard)
        if not types:
            raise ProofError(f"{self.where}: table {shard.name} does not exist")
        columns = tuple(
            describe_column(name, text, at) for at, (name, text) in enumerate(types, start=1)
        )
        own = tuple(one.name for one in columns if one.name in key)
        return TableDescription(ShardId.parse(shard.name), "alter", columns, own)

    def _await(self, fence: ReadFence) -> None:
        until = time.monotonic() + self.patience.total_seconds()
        self.wait_for_fence(lambda head: explain_behind_fence(fence, head), until, POLL)
        self._await_xa(fence)
        self.refuse_lagging()

    def _prepared(self) -> frozenset[str]:
        """XA transactions that may have been prepared before the fence and have not ended.

        A transaction is listed a moment after it is logged.  So if the server uses XA, the list is
        read twice.
        """
        prepared = self.server.prepared_xa()
        if not self.server.xa_prepares:
            return prepared
        time.sleep(SETTLING.total_seconds())
        return prepared | self.server.prepared_xa()

    def _await_xa(self, fence: ReadFence) -> None:
        until = time.monotonic() + self.xa_patience.total_seconds()
        while fence.awaited and (names := find_open_xa(fence, self.read_from.prepared_xa())):
            if time.monotonic() > until:
                problem = describe_open_xa(names, self.xa_patience)
                raise ProofError(f"{self.where}: {problem}")
            time.sleep(POLL.total_seconds())

    def _found(self, columns: Sequence[MySqlColumn], key: MySqlKey, asked: RowsAsked) -> Found:
        name = ShardId.parse(asked.shard.name)
        return KeyedTable(
            f"{quote_name(name.database)}.{quote_name(name.relation)}",
            tuple(map(_expression, columns)),
            {one.name for one in columns},
            key,
            quote_name,
            self.read_from.rows,
        ).read_rows(asked)

    def _columns(self, shard: Shard) -> tuple[MySqlColumn, ...]:
        found = self.read_from.columns(shard)
        if not found:
            raise ProofError(f"{self.where}: table {shard.name} does not exist")
        return cast("tuple[MySqlColumn, ...]", found)

    def _key(self, shard: Shard, key: Sequence[str]) -> MySqlKey:
        return MySqlKey.of(shard.name, self._columns(shard), key)


def _expression(column: MySqlColumn) -> str:
    """An expression for the exact value: the server prints only six digits of a FLOAT."""
    name = quote_name(column.name)
    return f"{name} + 0e0" if column.kind == "FLOAT" else name


ROW_READER: type[RowReader] = MySqlRowReader
