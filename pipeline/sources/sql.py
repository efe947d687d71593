"""Queries that all SQL servers share: ids, counts, sums, and rows along a key.

An engine's source derives from `SqlSource`, its row reader from `SqlRowReader`.

* Statements: `%s` is a placeholder, and a literal `%` is written twice.
* Replicas: lag is the difference of two heartbeat times, so two clocks are never compared.
"""

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from pipeline.aggregates import AggregatedColumn, Moment, RangeAggregate, TimeSpan, parse_aggregate
from pipeline.errors import (
    ConfigError,
    ProofError,
    SlowError,
    SluiceError,
    TooManyRowsError,
    UnreachableError,
)
from pipeline.model import Head, Shard
from pipeline.row_digest import (
    MODULUS,
    Bucketing,
    DigestColumn,
    KeyedRow,
    KeyValues,
    RangeDigest,
    name_key,
    sum_columns,
    sum_ids,
)
from pipeline.schema.model import Column
from pipeline.settings import SourceSettings
from pipeline.sources.condition import SqlCondition, require_known, to_sql
from pipeline.sources.row_reader import KeyTexts, RowsAsked, encode_keys
from pipeline.sources.source import Limits, Range, await_head, read_limits

IDS_AT_ONCE = 500  # ids in one statement
DIGESTS_AT_ONCE = 20_000  # digests of columns in one answer
MOST_RECEIVED = 2**30  # bytes of one answer as received
STATEMENT = 200  # characters of a statement in a message
MOST_KEPT = 2**31  # bytes of the objects of one answer to `SqlSession.ask`: 1,000,000 columns

Ask = Callable[..., list[Any]]
"""Runs a statement with its arguments; rows are mappings by column."""


class SqlSession(ABC):
    """One pinned connection to one server, on which one statement runs at a time.

    A connection that failed is dropped, so no answer can belong to an earlier statement.
    """

    settings: SourceSettings
    limits: Limits
    driver_error: ClassVar[type[Exception]]
    strain: float = 0.0
    _lock: threading.RLock
    _connection: Any

    @abstractmethod
    def ask(self, statement: str, *arguments: object) -> list[Any]:
        """Run one statement; return its rows as mappings by column.

        Raises:
            SlowError: a time limit or `MOST_KEPT` was exceeded.
            UnreachableError: ``down``.
            ConfigError: the user may not run it.
            ProofError: a table or column does not exist.
        """

    def keep(self, statement: str, rows: Iterable[Mapping[str, Any]]) -> list[Any]:
        """Collect the *rows* of the answer to *statement* as they arrive.

        Raises:
            SlowError: they take more memory than `MOST_KEPT`.
        """
        found, size = list[Any](), 0
        for row in rows:
            size += sys.getsizeof(row) + sum(map(sys.getsizeof, row.values()))
            self.refuse_size(statement, size, MOST_KEPT)
            found.append(row)
        return found

    def refuse_size(self, statement: str, size: int, most: int) -> None:
        """Disconnect and raise SlowError if an answer has more than *most* bytes."""
        if size > most:
            self.close()  # a server may send without an end
            said = f"more than {most >> 20} MiB are the answer to one statement"
            fix = "check that it reads a table and no view, or lower limits.rows"
            raise SlowError(f"{self.where}: slow: {said}; {fix}: {statement[:STATEMENT]}")

    @abstractmethod
    def running(self) -> int:
        """The number of statements that run on the server."""

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[Ask]:
        """Run all statements inside the block on one snapshot; lock no row."""

    @contextmanager
    def within_limits(self) -> Iterator[None]:
        """Run the block only if the server is not loaded.

        Raises:
            SparedError: ``loaded``, before any other statement.
        """
        with self._lock:
            running = self.running()
            self.strain = min(running / self.limits.running, 1.0)
            self.limits.refuse_load(running, self.where)
            yield

    @contextmanager
    def exclusive(self) -> Iterator[Ask]:
        """Exclude statements of other threads; disconnect if the block fails."""
        with self._lock:
            try:
                yield self.ask
            except BaseException:
                self.close()  # later statements must not run in an open transaction
                raise

    def check_deadline(self, deadline: float) -> None:
        """Raise SlowError once *deadline* has passed."""
        self.limits.check_deadline(deadline, self.where)

    def close(self) -> None:
        """Disconnect; the next call connects again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self.disconnect(connection)

    @abstractmethod
    def connect(self) -> Any:
        """Open a connection of the driver, with the limits set."""

    @abstractmethod
    def disconnect(self, connection: Any) -> None:
        """End *connection* without waiting for its server."""

    @abstractmethod
    def translate(self, error: Exception) -> SluiceError:
        """Translate an error of the driver."""

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """The connection for one statement; errors of the driver are translated.

        Any error in the block disconnects: the rest of an answer may still be on its way.
        """
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self.connect()
                yield self._connection
            except (self.driver_error, OSError, UnicodeError, pa.ArrowInvalid) as error:
                found = self.translate(error)
                if isinstance(found, UnreachableError):
                    found.sent = self._connection is not None
                self.close()
                raise found from error
            except BaseException:  # such as a lack of memory, or Ctrl-C
                self.close()
                raise

    @property
    def where(self) -> str:
        """The source's name in messages, by which checks group the errors of many tables."""
        return f"source:{self.settings.name}"


class SqlSource(ABC):
    """The part of `Source` that all SQL servers share."""

    settings: SourceSettings
    limits: Limits

    @property
    @abstractmethod
    def session(self) -> SqlSession:
        """The connection of this source."""

    @abstractmethod
    def head(self) -> Head:
        """See `Source.head`."""

    @abstractmethod
    def quote(self, name: str) -> str:
        """*name* as an identifier in a statement."""

    @abstractmethod
    def qualify(self, shard: Shard) -> str:
        """The shard's table in a statement."""

    @abstractmethod
    def aggregate_sql(self, shard: Shard, column: str, fields: Sequence[AggregatedColumn]) -> str:
        """A SELECT with two placeholders for times; ``n`` is the rows, ``s0``, ``s1``, ... sums."""

    @abstractmethod
    def columns(self, shard: Shard) -> Sequence[Column]:
        """See `TableQueries.columns`."""

    @abstractmethod
    def digest_sql(self, columns: Sequence[Column]) -> str:
        """SQL of the digest of a row by *columns*, as ``pipeline.row_digest`` defines it."""

    @abstractmethod
    def refuse_large(
        self, ask: Ask, shard: Shard, statement: str, arguments: Sequence[object], *, scans: bool
    ) -> None:
        """Reject a statement that would read more rows than the limits allow; reads no rows.

        *scans*: also count rows that are read and do not meet the condition.

        Raises:
            TooManyRowsError: it would.
        """

    @property
    def name(self) -> str:
        return self.settings.name

    def strain(self) -> float:
        return self.session.strain

    def newest_heartbeat(self) -> int:
        return max((int(row["n"]) for row in self._heartbeats()), default=-1)

    def heartbeat_time(self) -> datetime | None:
        """Our time (UTC) in the newest heartbeat on this server; None without any."""
        times = [row["at"] for row in self._heartbeats()]
        return next((at.replace(tzinfo=at.tzinfo or UTC).astimezone(UTC) for at in times), None)

    def max_id(self, shard: Shard, column: str) -> int | None:
        return self._extreme("MAX", shard, column)

    def min_id(self, shard: Shard, column: str) -> int | None:
        return self._extreme("MIN", shard, column)

    def count_ids(self, shard: Shard, column: str, ranges: Sequence[Range]) -> tuple[int, ...]:
        counted = f"SELECT COUNT(*) AS n FROM {self.qualify(shard)} WHERE {self._between(column)}"  # noqa: S608
        counts, deadline = list[int](), self.limits.deadline()
        with self.session.within_limits(), self.session.snapshot() as ask:
            for span in ranges:
                self.session.check_deadline(deadline)
                self.refuse_large(ask, shard, counted, span, scans=False)
                counts.append(int(ask(counted, *span)[0]["n"]))
        return tuple(counts)

    def ids(self, shard: Shard, column: str, span: Range, limit: int) -> tuple[int, ...]:
        name = self.quote(column)
        with self.session.within_limits():
            found = self.session.ask(
                f"SELECT {name} AS id FROM {self.qualify(shard)} WHERE {self._between(column)}"  # noqa: S608
                " ORDER BY 1 LIMIT %s",  # an alias hides a column of its name
                *(*span, min(limit, self.limits.rows + 1)),
            )
        self.limits.refuse_rows(len(found), shard.name)
        return tuple(int(row["id"]) for row in found)

    def tallies(
        self,
        shard: Shard,
        column: str,
        spans: Sequence[TimeSpan],
        fields: Sequence[AggregatedColumn],
    ) -> tuple[RangeAggregate, ...]:
        summed = self.aggregate_sql(shard, column, fields)
        found, deadline = list[RangeAggregate](), self.limits.deadline()
        with self.session.within_limits(), self.session.snapshot() as ask:
            for span in spans:
                self.session.check_deadline(deadline)
                moments = tuple(map(self.to_argument, span))
                self.refuse_large(ask, shard, summed, moments, scans=True)
                found.append(parse_aggregate(ask(summed, *moments)[0], tuple(fields)))
        return tuple(found)

    def digests(
        self, shard: Shard, column: str, ranges: Sequence[Range], columns: Sequence[DigestColumn]
    ) -> tuple[RangeDigest, ...]:
        summed = f"SELECT COUNT(*) AS n, SUM({self._digest(shard, columns)}) AS s"
        summed += f" FROM {self.qualify(shard)} WHERE {self._between(column)}"
        found, deadline = list[RangeDigest](), self.limits.deadline()
        with self.session.within_limits(), self.session.snapshot() as ask:
            for span in ranges:
                self.session.check_deadline(deadline)
                self.refuse_large(ask, shard, summed, span, scans=False)
                row = ask(summed, *span)[0]
                found.append(RangeDigest(int(row["n"]), int(row["s"] or 0) % MODULUS))
        return tuple(found)

    def row_digests(
        self, shard: Shard, column: str, span: Range, columns: Sequence[DigestColumn], limit: int
    ) -> tuple[tuple[int, int], ...]:
        name, digest = self.quote(column), self._digest(shard, columns)
        with self.session.within_limits():
            found = self.session.ask(
                f"SELECT {name} AS id, {digest} AS d FROM {self.qualify(shard)}"  # noqa: S608
                f" WHERE {self._between(column)} ORDER BY 1 LIMIT %s",
                *(*span, min(limit, self.limits.rows + 1)),
            )
        self.limits.refuse_rows(len(found), shard.name)
        return tuple((int(row["id"]), _read_digest(shard, row["d"])) for row in found)

    def id_digests(
        self, shard: Shard, column: str, ids: Sequence[int], columns: Sequence[DigestColumn]
    ) -> tuple[RangeDigest, ...]:
        name, digest = self.quote(column), self._digest(shard, columns)
        asked = f"SELECT {name} AS id, {digest} AS d FROM {self.qualify(shard)} WHERE {name} IN"  # noqa: S608
        found, deadline = list[tuple[int, int]](), self.limits.deadline()
        with self.session.within_limits(), self.session.snapshot() as ask:
            for start in range(0, len(ids), IDS_AT_ONCE):
                self.session.check_deadline(deadline)
                some = ids[start : start + IDS_AT_ONCE]
                rows = ask(f"{asked} ({', '.join(['%s'] * len(some))})", *some)
                found += [(int(row["id"]), _read_digest(shard, row["d"])) for row in rows]
        return sum_ids(found, ids)

    def column_digests(
        self, shard: Shard, column: str, ids: Sequence[int], columns: Sequence[DigestColumn]
    ) -> tuple[tuple[RangeDigest, ...], ...]:
        name, digests = self.quote(column), self._digests(shard, *([one] for one in columns))
        listed = "".join(f", {digest} AS d{n}" for n, digest in enumerate(digests))
        asked = f"SELECT {name} AS id{listed} FROM {self.qualify(shard)} WHERE {name} IN"  # noqa: S608
        at_once = max(min(IDS_AT_ONCE, DIGESTS_AT_ONCE // max(len(columns), 1)), 1)
        found, deadline = [list[tuple[int, int]]() for _ in columns], self.limits.deadline()
        with self.session.within_limits(), self.session.snapshot() as ask:
            for start in range(0, len(ids), at_once):
                self.session.check_deadline(deadline)
                some = ids[start : start + at_once]
                for row in ask(f"{asked} ({', '.join(['%s'] * len(some))})", *some):
                    for n, own in enumerate(found):
                        own.append((int(row["id"]), _read_digest(shard, row[f"d{n}"])))
        return sum_columns(found, ids)

    def bucket_digests(
        self, shard: Shard, by: Bucketing, columns: Sequence[DigestColumn]
    ) -> dict[int, RangeDigest]:
        key, digest = self._digests(shard, by.key, columns)
        summed = f"SELECT {_bucket_sql(key, by)} AS b, COUNT(*) AS n, SUM({digest}) AS s"
        summed += f" FROM {self.qualify(shard)} GROUP BY 1"
        with self.session.within_limits(), self.session.snapshot() as ask:
            self.refuse_large(ask, shard, summed, (), scans=True)
            found = ask(summed)
        return {
            int(row["b"]): RangeDigest(int(row["n"]), int(row["s"] or 0) % MODULUS) for row in found
        }

    def bucket_rows(
        self,
        shard: Shard,
        by: Bucketing,
        columns: Sequence[DigestColumn],
        chosen: Collection[int],
        limit: int,
    ) -> tuple[KeyedRow, ...]:
        if not chosen:
            return ()
        key, digest = self._digests(shard, by.key, columns)
        names = "".join(f", {self.quote(one.name)} AS n{n}" for n, one in enumerate(by.key))
        listed = f"SELECT {key} AS k, {digest} AS d{names} FROM {self.qualify(shard)}"  # noqa: S608
        listed += f" WHERE {_bucket_sql(key, by)} IN ({', '.join(['%s'] * len(chosen))}) LIMIT %s"
        arguments = (*sorted(chosen), min(limit, self.limits.rows + 1))
        with self.session.within_limits(), self.session.snapshot() as ask:
            self.refuse_large(ask, shard, listed, arguments, scans=True)
            found = ask(listed, *arguments)
        self.limits.refuse_rows(len(found), shard.name)
        return tuple(
            KeyedRow(
                int(row["k"]) % MODULUS,
                _read_digest(shard, row["d"]),
                name_key(row[f"n{n}"] for n in range(len(by.key))),
            )
            for row in found
        )

    def keyed_columns(
        self,
        shard: Shard,
        by: Bucketing,
        columns: Sequence[DigestColumn],
        keys: Collection[int],
        limit: int,
    ) -> tuple[KeyedRow, ...]:
        key, *digests = self._digests(shard, by.key, *([one] for one in columns))
        listed = "".join(f", {digest} AS d{n}" for n, digest in enumerate(digests))
        chosen = sorted({by.bucket_of(one) for one in keys})
        asked = f"SELECT {key} AS k{listed} FROM {self.qualify(shard)}"  # noqa: S608
        asked += f" WHERE {_bucket_sql(key, by)} IN ({', '.join(['%s'] * len(chosen))}) LIMIT %s"
        arguments = (*chosen, min(limit, self.limits.rows + 1))
        with self.session.within_limits(), self.session.snapshot() as ask:
            self.refuse_large(ask, shard, asked, arguments, scans=True)
            found = ask(asked, *arguments)
        self.limits.refuse_rows(len(found), shard.name)
        rows = ((int(row["k"]) % MODULUS, row) for row in found)
        return tuple(
            KeyedRow(
                own,
                0,
                columns=tuple(_read_digest(shard, row[f"d{n}"]) for n in range(len(columns))),
            )
            for own, row in rows
            if own in keys
        )

    def rows_by_key(
        self,
        shard: Shard,
        by: Bucketing,
        columns: Sequence[DigestColumn],
        keys: Mapping[int, KeyValues],
    ) -> tuple[KeyedRow, ...]:
        key, digest = self._digests(shard, by.key, columns)
        asked = f"SELECT {key} AS k, {digest} AS d FROM {self.qualify(shard)} WHERE "  # noqa: S608
        one = f"({' AND '.join(f'{self.quote(each.name)} = %s' for each in by.key)})"
        every, at_once = [*keys.items()], max(IDS_AT_ONCE // len(by.key), 1)
        found, deadline = list[KeyedRow](), self.limits.deadline()
        with self.session.within_limits(), self.session.snapshot() as ask:
            for start in range(0, len(every), at_once):
                self.session.check_deadline(deadline)
                some = dict(every[start : start + at_once])
                listed = f"{asked}{' OR '.join([one] * len(some))} LIMIT %s"
                rows = ask(listed, *chain.from_iterable(some.values()), self.limits.rows + 1)
                self.limits.refuse_rows(len(rows), shard.name)
                found += [
                    KeyedRow(own, _read_digest(shard, row["d"]), name_key(keys[own]))
                    for row in rows
                    if (own := int(row["k"]) % MODULUS) in some  # the server may find other keys
                ]
        return tuple(found)

    def to_argument(self, moment: Moment) -> Moment:
        """Convert a time to an argument that the session compares correctly."""
        return moment

    def close(self) -> None:
        self.session.close()

    @property
    def heartbeat_table(self) -> str:
        """The heartbeat table in a statement."""
        return ".".join(self.quote(word) for word in self.settings.heartbeat.split(".", 1))

    def _heartbeats(self) -> list[Any]:
        statement = f"SELECT n, at FROM {self.heartbeat_table} WHERE source = %s"  # noqa: S608
        return self.session.ask(statement, self.name)

    def _between(self, column: str) -> str:
        return f"{self.quote(column)} >= %s AND {self.quote(column)} < %s"

    def _digest(self, shard: Shard, columns: Sequence[DigestColumn]) -> str:
        """SQL of a row's digest; see :meth:`_digests`."""
        return self._digests(shard, columns)[0]

    def _digests(self, shard: Shard, *asked: Sequence[DigestColumn]) -> list[str]:
        """SQL of the digest of each list of columns in *asked*.

        Raises:
            ProofError: the server does not have a column, or has another form of it.
        """
        known = {one.name: one for one in self.columns(shard)}
        for one in chain.from_iterable(asked):
            if one.name not in known:
                raise ProofError(f"{shard} has no column {one.name}; has it just been changed?")
            there = known[one.name]
            if (form := there.dialect.digest_form(there)) is not one.form:
                raise ProofError(f"{shard}: values of {one.name} are {form}, not {one.form}")
        return [self.digest_sql([known[one.name] for one in columns]) for columns in asked]

    def _extreme(self, which: str, shard: Shard, column: str) -> int | None:
        statement = f"SELECT {which}({self.quote(column)}) AS id FROM {self.qualify(shard)}"  # noqa: S608
        with self.session.within_limits():
            value = self.session.ask(statement)[0]["id"]
        if value is not None and not isinstance(value, int):
            msg = f"column {column} of {shard.name} is not an integer"
            raise ProofError(f"{msg}, so source and mirror do not share its order")
        return value


def _bucket_sql(key: str, by: Bucketing) -> str:
    """SQL of a row's bucket; *key* is the SQL of the digest of its key."""
    return f"({key}) & {by.buckets - 1}"


def _read_digest(shard: Shard, digest: Any) -> int:
    if digest is None:
        raise ProofError(f"a row of {shard} is too large for the server to digest")
    return int(digest) % MODULUS


Found = tuple[pa.RecordBatch, KeyTexts | None, bool]
"""Rows, the key of the last row that was scanned, and whether no row is left."""


class SqlKey(Protocol):
    """The columns of a key, in its order, and SQL conditions on them."""

    @property
    def order(self) -> str:
        """The expressions of ORDER BY."""
        ...

    @property
    def wanted(self) -> tuple[str, ...]:
        """Expressions that return the key of a row."""
        ...

    def texts(self, row: Sequence[Any]) -> KeyTexts:
        """The values of ``wanted`` in a row, as texts."""
        ...

    def above(self, key: KeyTexts) -> SqlCondition:
        """A condition for rows above all that begin with *key*."""
        ...

    def up_to(self, key: KeyTexts) -> SqlCondition:
        """A condition for rows not above those that begin with *key*."""
        ...

    def match_keys(self, shard: str, keys: Sequence[str]) -> SqlCondition:
        """A condition for rows with one of *keys*, each the JSON array of its texts in the log.

        Raises:
            ConfigError: one of *keys* is no key of the shard.
        """
        ...


@dataclass(frozen=True, slots=True)
class KeyedTable:
    """A table that is read along its key.

    ``name`` and the ``wanted`` expressions are SQL.  ``columns`` are those that a condition may
    name; ``quoted`` quotes a name.  ``ask`` returns the rows as the server wrote them.
    """

    name: str
    wanted: tuple[str, ...]
    columns: Collection[str]
    key: SqlKey
    quoted: Callable[[str], str]
    ask: Callable[..., pa.RecordBatch]

    def read_rows(self, asked: RowsAsked) -> Found:
        """Read rows; each has the wanted expressions, then those of its key.

        With a condition, the key of the last row in the range is read first.  This limits the cost
        of the statement, even if few rows meet the condition.

        Raises:
            ConfigError: the server rejects the condition.
            TooManyRowsError: the server was too slow for so many rows.
        """
        key, wanted = self.key, (*self.wanted, *self.key.wanted)
        conditions = self._conditions(asked)
        if asked.where is None:
            found = self._select(asked, wanted, conditions)
            return found, self._last(found), len(found) < asked.limit
        require_known(asked.where, asked.shard.name, self.columns)
        end = replace(asked, limit=asked.limit - 1)
        ends = self._select(end, key.wanted, conditions, "1 OFFSET %s")
        last = key.texts(_row(ends, 0)) if len(ends) else None
        if last is not None:
            conditions.append(key.up_to(last))
        conditions.append(to_sql(asked.where, self.quoted))
        found = self._select(asked, wanted, conditions)
        if len(found) == asked.limit:  # rows that were inserted meanwhile may have displaced others
            return found, self._last(found), False
        return found, last, last is None

    def _last(self, found: pa.RecordBatch) -> KeyTexts | None:
        return self.key.texts(_row(found, -1)[len(self.wanted) :]) if len(found) else None

    def _conditions(self, asked: RowsAsked) -> list[SqlCondition]:
        conditions = list[SqlCondition]()
        if asked.after is not None:
            conditions.append(self.key.above(asked.after))
        if asked.until is not None:
            conditions.append(self.key.up_to(asked.until))
        if asked.keys:
            conditions.append(self.key.match_keys(asked.shard.name, asked.keys))
        return conditions

    def _select(
        self,
        asked: RowsAsked,
        wanted: Sequence[str],
        conditions: Sequence[SqlCondition],
        limit: str = "%s",
    ) -> pa.RecordBatch:
        where = " AND ".join(f"({text})" for text, _ in conditions) or "TRUE"
        arguments = [value for _, values in conditions for value in values]
        order = f"ORDER BY {self.key.order} LIMIT {limit}"
        statement = f"SELECT {', '.join(wanted)} FROM {self.name} WHERE {where} {order}"  # noqa: S608
        try:
            return self.ask(statement, *arguments, asked.limit)
        except SlowError as error:
            raise TooManyRowsError(str(error)) from error
        except ProofError as error:
            if asked.where is None:
                raise
            raise ConfigError(f"{error}; change the condition") from error


def _row(rows: pa.RecordBatch, at: int) -> list[Any]:
    return [column[at].as_py() for column in rows.columns]


class SqlRowReader(ABC):
    """The part of `RowReader` that all SQL servers share.

    Fences are those of ``server``.  Rows are read from ``read_from``: the replica in the config, or
    the same server.
    """

    settings: SourceSettings
    limits: Limits | None
    patience: timedelta
    server: SqlSource
    read_from: SqlSource

    @abstractmethod
    def integer_key(self, shard: Shard, key: Sequence[str]) -> str | None:
        """The first column of the key if it is an integer; None for other types.

        Raises:
            ConfigError: rows cannot be read along the key.
        """

    @abstractmethod
    def encode_ids(self, shard: Shard, key: Sequence[str], ids: pa.StringArray) -> pa.StringArray:
        """Encode integers of the single key column as texts of the log."""

    def bounds(self, shard: Shard, key: Sequence[str], pieces: int) -> tuple[KeyTexts, ...]:
        """Even steps between the lowest and highest value of an integer; none for other keys."""
        first = self.integer_key(shard, key)
        if pieces < 2 or first is None:
            return ()
        low = self.read_from.min_id(shard, first)
        return even_bounds(low, self.read_from.max_id(shard, first), pieces)

    def keys_of(self, shard: Shard, key: Sequence[str], ids: Sequence[int]) -> tuple[str, ...]:
        texts = self.encode_ids(shard, key, pa.array(map(str, ids), pa.string()))
        return tuple(encode_keys([texts]).to_pylist())

    def close(self) -> None:
        self.server.close()
        self.read_from.close()

    @property
    def where(self) -> str:
        """The source's name in messages."""
        return f"source:{self.settings.name}"

    @property
    def own_limits(self) -> Limits:
        """``limits`` if set, else the limits in the source's options."""
        return self.limits or read_limits(self.settings.options)

    def wait_for_fence(
        self, explain: Callable[[Head], str | None], until: float, poll: timedelta
    ) -> None:
        """Wait until the server that is read has reached the fence; the source itself must have.

        *explain* returns why a head has not reached it, None if it has.

        Raises:
            ProofError: it has not reached it at *until*.
        """
        until = 0.0 if self.read_from is self.server else until
        if (missing := await_head(self.read_from.head, explain, until, poll)) is not None:
            msg = f"{self.where}: the server that is read has not reached the fence"
            raise ProofError(f"{msg} after {self.patience}: {missing}")

    def refuse_lagging(self) -> None:
        """Reject a replica that is further behind its primary than the limits allow.

        Raises:
            SparedError: it is.
        """
        if self.read_from is self.server:
            return
        newest, there = self.server.heartbeat_time(), self.read_from.heartbeat_time()
        if newest is not None and there is not None:
            self.own_limits.refuse_lag(newest - there, self.where)


def even_bounds(low: int | None, high: int | None, pieces: int) -> tuple[KeyTexts, ...]:
    """Keys that divide *low* to *high* into *pieces* even steps; empty for an empty table."""
    if low is None or high is None:
        return ()
    found = {low + (high - low) * step // pieces for step in range(1, pieces)}
    return tuple((str(step),) for step in sorted(found))
