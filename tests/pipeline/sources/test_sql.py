"""No row is skipped because others arrive between two statements."""

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast

import psycopg
import pyarrow as pa
import pymysql
import pytest

from pipeline.errors import ConfigError, ProofError, SluiceError, TooManyRowsError
from pipeline.model import Head, Shard
from pipeline.row_digest import Bucketing, DigestColumn, Form
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.sources.condition import Condition, SqlCondition, parse_condition
from pipeline.sources.mysql import row_encoding as mysql_values
from pipeline.sources.mysql.position import binlog_position
from pipeline.sources.mysql.row_reader import MySqlKey, MySqlRowReader
from pipeline.sources.mysql.session import Session
from pipeline.sources.mysql.source import MySqlSource
from pipeline.sources.mysql.types import MySqlColumn
from pipeline.sources.postgres import row_encoding as postgres_values
from pipeline.sources.postgres.row_encoding import ReadColumn
from pipeline.sources.postgres.row_reader import PostgresKey, PostgresRowReader, Relation
from pipeline.sources.postgres.session import PostgresSession
from pipeline.sources.postgres.types import PostgresColumn
from pipeline.sources.row_reader import RowsAsked
from pipeline.sources.source import Heartbeat, Limits
from pipeline.sources.sql import Found, even_bounds
from tests.pipeline.sources.postgres.test_row_encoding import read_column

FIRST = RowsAsked(Shard("s", "d.t"), ("id",), None, None, 4, parse_condition("id >= 0"))
SETTINGS = SourceSettings("s", "h", 1, "u", CollectorSettings("http://h", "c"), "s")
Read = Callable[[RowsAsked], Found]


@dataclass(eq=False)
class BusyServer:
    """Even ids from 0 to 18; before each statement but the first an odd one comes, from 1 on.

    Its SQL is what both kinds have in common.
    """

    connection: sqlite3.Connection = field(default_factory=lambda: sqlite3.connect(":memory:"))
    refusal: str = ""
    coming: Iterator[int] = field(default_factory=lambda: iter(range(-1, 20, 2)))

    def __post_init__(self) -> None:
        self.connection.execute("ATTACH ':memory:' AS d")
        self.connection.execute("CREATE TABLE d.t (id INT PRIMARY KEY)")
        self.connection.executemany("INSERT INTO d.t VALUES (?)", [(n,) for n in range(0, 20, 2)])

    @property
    def session(self) -> "BusyServer":
        return self

    @contextmanager
    def within_limits(self) -> Iterator[None]:
        yield

    def rows(self, statement: str, *arguments: object) -> pa.RecordBatch:
        if self.refusal:
            raise ProofError(self.refusal)
        number = next(self.coming)
        if number > 0:
            self.connection.execute("INSERT INTO d.t VALUES (?)", (number,))
        values = [int(str(one)) for one in arguments]
        found = self.connection.execute(re.sub("%s", "?", statement), values)
        columns = [*zip(*found, strict=True)] or [()] * len(found.description)
        texts = [pa.array(map(str, column), pa.string()) for column in columns]
        return pa.RecordBatch.from_arrays(texts, names=[*map(str, range(len(texts)))])


def mysql(server: BusyServer, settings: SourceSettings) -> Read:
    reader = MySqlRowReader(settings)
    reader.read_from = cast(Any, server)
    columns = (MySqlColumn("id", "INT", None, None, nullable=False),)
    return lambda asked: reader._found(columns, MySqlKey(columns), asked)


def postgres(server: BusyServer, settings: SourceSettings) -> Read:
    reader = PostgresRowReader(replace(settings, kind="postgres", options={"database": "d"}))
    reader.read_from = cast(Any, server)
    columns = (ReadColumn(PostgresColumn("id", "INT4 as int32", nullable=False), "INT4"),)
    return lambda asked: reader._found(Relation("", columns), PostgresKey(columns), asked)


@pytest.mark.parametrize("kind", [mysql, postgres])
def test_what_was_there_when_the_read_began_is_read(
    kind: Callable[[BusyServer, SourceSettings], Read],
) -> None:
    server = BusyServer()
    with closing(server.connection):
        read = kind(server, SETTINGS)
        asked, found, ended = FIRST, list[int](), False

        while not ended:
            rows, last, ended = read(asked)
            found += map(int, rows.column(0).to_pylist())
            asked = replace(asked, after=last)

    assert {*found} >= {*range(0, 20, 2)}
    assert len(found) == len({*found})


@pytest.mark.parametrize("kind", [mysql, postgres])
@pytest.mark.parametrize(
    ("where", "error"),
    [
        pytest.param(parse_condition("id >= 'soon'"), ConfigError, id="nothing will come of it"),
        pytest.param(None, ProofError, id="it may be there later"),
    ],
)
def test_a_condition_that_the_server_cannot_read_is_refused(
    kind: Callable[[BusyServer, SourceSettings], Read],
    where: Condition | None,
    error: type[SluiceError],
) -> None:
    server = BusyServer(refusal="Incorrect DATE value: 'soon' (1525)")
    with closing(server.connection), pytest.raises(error, match="Incorrect DATE value"):
        kind(server, SETTINGS)(replace(FIRST, where=where))


def test_a_value_that_means_nothing_is_not_a_server_that_is_down() -> None:
    wrong = psycopg.errors.InvalidDatetimeFormat("invalid input syntax for type date")
    told = [
        Session(SETTINGS).translate(pymysql.err.OperationalError(1525, "Incorrect DATE value")),
        PostgresSession(SETTINGS, "d").translate(wrong),
    ]

    assert [type(one) for one in told] == [ProofError, ProofError]


T, K = Shard("s", "d.t"), (DigestColumn("k", Form.INTEGER),)
MYSQL = (MySqlColumn(name="k", type="INT", length=None, scale=None, nullable=False),)
POSTGRES = (read_column("int4", name="k", filled=True),)
Rows = Callable[[str], SqlCondition]


@pytest.fixture(params=["mysql", "postgres"])
def rows(request: pytest.FixtureRequest) -> Rows:
    if request.param == "mysql":
        return lambda key: mysql_values.match_keys("d.t", MYSQL, (key,))
    return lambda key: postgres_values.match_keys("d.t", POSTGRES, (key,))


@pytest.fixture(params=["mysql", "postgres"])
def along(request: pytest.FixtureRequest) -> Callable[[Sequence[str]], Any]:
    if request.param == "mysql":
        return lambda key: MySqlKey.of("d.t", MYSQL, key)
    return lambda key: PostgresKey.of("d.t", POSTGRES, key)


@pytest.mark.parametrize(
    ("key", "why"),
    [
        pytest.param('["7","8"]', "which has 1 values: k", id="too many"),
        pytest.param("[null]", "is not a key of d.t", id="null"),
        pytest.param('["x"]', "'x' is not a value of d.t's key column k, a ", id="no number"),
        pytest.param('["07"]', "is written '7' in its log; use that spelling", id="spelling"),
    ],
)
def test_what_is_no_key_of_the_log_is_refused(rows: Rows, key: str, why: str) -> None:
    assert len(rows('["7"]')[1]) == 1

    with pytest.raises(ConfigError) as refused:
        rows(key)

    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("key", "why"),
    [
        pytest.param((), "d.t has no key, so it cannot be read in parts", id="none"),
        pytest.param(("k", "x"), "d.t has no column x, which is in its key", id="no column"),
    ],
)
def test_what_a_table_cannot_be_read_along_is_refused(
    along: Callable[[Sequence[str]], Any], key: Sequence[str], why: str
) -> None:
    assert len(along(("k",)).columns) == 1

    with pytest.raises(ConfigError) as refused:
        along(key)

    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("low", "high", "pieces", "found"),
    [
        pytest.param(0, 100, 4, ("25", "50", "75"), id="even"),
        pytest.param(-4, 4, 2, ("0",), id="below nothing"),
        pytest.param(8, 12, 3, ("9", "10"), id="in order as numbers, not as texts"),
        pytest.param(1, 2, 8, ("1",), id="fewer ids than pieces"),
        pytest.param(1, 9, 1, (), id="one piece"),
        pytest.param(None, None, 4, (), id="no row"),
    ],
)
def test_steps_are_even(
    low: int | None, high: int | None, pieces: int, found: tuple[str, ...]
) -> None:
    assert even_bounds(low, high, pieces) == tuple((text,) for text in found)


@dataclass(eq=False)
class SmallTable:
    """A session of a server; ``d.t`` has ten rows."""

    def ask(self, statement: str, *arguments: Any) -> list[dict[str, int]]:
        return [{"id": n, "k": n, "d": n, "n0": n} for n in range(10)][: arguments[-1]]

    def check_deadline(self, deadline: float) -> None:
        """It has time."""

    @contextmanager
    def within_limits(self) -> Iterator[None]:
        yield

    @contextmanager
    def snapshot(self) -> Iterator[Callable[..., Any]]:
        yield self.ask


class SmallServer(MySqlSource):
    """A source that describes its table without a connection."""

    @property
    def session(self) -> Any:
        return SmallTable()

    def columns(self, shard: Shard) -> tuple[MySqlColumn, ...]:
        return MYSQL

    def refuse_large(self, *_: Any, scans: bool) -> None:
        """No estimate is above any limit."""


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda one, limit: one.ids(T, "k", (0, 99), limit), id="ids"),
        pytest.param(lambda one, limit: one.row_digests(T, "k", (0, 99), K, limit), id="rows"),
        pytest.param(
            lambda one, limit: one.bucket_rows(T, Bucketing(K, 1), K, [0], limit), id="buckets"
        ),
    ],
)
def test_rows_beyond_the_limit_of_the_source_are_not_left_out_unseen(
    read: Callable[[SmallServer, int], Sequence[object]],
) -> None:
    def server(rows: int) -> SmallServer:
        return SmallServer(SETTINGS, Limits(rows=rows))

    assert len(read(server(10), 50)) == 10
    assert len(read(server(9), 5)) == 5
    with pytest.raises(TooManyRowsError, match=r"rows of d\.t in one range, limits\.rows is 9"):
        read(server(9), 50)


class SqliteServer(SmallServer):
    """A source whose digests descend as its ids ascend; its statements are those of MySQL."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(SETTINGS, Limits())
        self.connection = connection
        connection.row_factory = sqlite3.Row

    @property
    def session(self) -> Any:
        made = SmallTable()
        made.ask = self.ask  # type: ignore[method-assign]
        return made

    def ask(self, statement: str, *arguments: Any) -> list[Any]:
        return self.connection.execute(statement.replace("%s", "?"), arguments).fetchall()

    def digest_sql(self, columns: Sequence[Any]) -> str:
        return f"1000 - {self.quote(columns[0].name)}"

    def columns(self, shard: Shard) -> tuple[MySqlColumn, ...]:
        return tuple(MySqlColumn(n, "INT", None, None, nullable=False) for n in NAMES)


NAMES = ("id", "d", "d0", "k", "n", "n0", "s", "b", "c")


@pytest.mark.parametrize("key", NAMES)
def test_the_lowest_rows_are_listed_whatever_the_columns_are_called(key: str) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("ATTACH ':memory:' AS d")
        connection.execute(f"CREATE TABLE d.t ({', '.join(NAMES)})")
        for id_ in range(100):
            values = [id_ if name == key else -id_ for name in NAMES]
            connection.execute(f"INSERT INTO d.t VALUES ({', '.join('?' * len(NAMES))})", values)
        server, columns = SqliteServer(connection), (DigestColumn(key, Form.INTEGER),)
        lowest = [(id_, 1000 - id_) for id_ in range(10)]

        assert server.row_digests(T, key, (0, 100), columns, 10) == (*lowest,)
        assert server.ids(T, key, (0, 100), 10) == (*range(10),)
        found = server.id_digests(T, key, range(10), columns)
        assert [one.sum for one in found] == [one for _, one in lowest]
        (one,) = server.digests(T, key, [(0, 10)], columns)
        assert (one.rows, one.sum) == (10, sum(one for _, one in lowest))
        by = Bucketing(columns, 4)
        rows = server.bucket_digests(T, by, columns).values()
        assert sorted(one.rows for one in rows) == [25, 25, 25, 25]


def test_a_row_of_which_two_spellings_of_its_key_are_asked_for_is_read_once() -> None:
    """The server finds it by both of them, and each is in another statement."""
    keys: dict[int, tuple[int | str, ...]] = {n: (f"a{n}",) for n in range(601)}

    found = SmallServer(SETTINGS, Limits()).rows_by_key(T, Bucketing(K, 1), K, keys)

    assert sorted(one.key for one in found) == [*range(10)]


@dataclass
class ServerWithoutGtids:
    """A MySQL server, or one of MariaDB, whose positions are a file and an offset."""

    mariadb: bool
    commits_in_order: bool = True

    def head(self) -> Head:
        return Head("1", binlog_position(3, 157, ""))

    def write_heartbeat(self, at_least: int, at: datetime) -> Heartbeat:
        return Heartbeat(at_least, self.head(), at)


@pytest.mark.parametrize(
    ("mariadb", "advice"),
    [
        pytest.param(
            False, "it writes no GTIDs.*; set gtid_mode=ON, or remove read_from", id="MySQL"
        ),
        pytest.param(
            True, "MariaDB's GTIDs are not compared.*is unknown; remove read_from", id="MariaDB"
        ),
    ],
)
def test_a_backfill_at_a_replica_needs_gtids_that_can_be_compared(
    mariadb: bool, advice: str
) -> None:
    reader = MySqlRowReader(replace(SETTINGS, options={"read_from": "replica-2:3306"}))
    reader.server = cast(Any, ServerWithoutGtids(mariadb))

    with pytest.raises(ConfigError, match=f"{advice}$"):
        reader.fence(1, datetime(2026, 1, 1, tzinfo=UTC))
