"""Rows are read from behind a fence of a real Postgres: none committed before it is missed."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import Connection

from demo.postgres import Postgres
from demo.processes import wait_until
from pipeline.errors import ConfigError, ProofError
from pipeline.model import Shard
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.sources.postgres.row_reader import PostgresRowReader
from pipeline.sources.postgres.source import PostgresSource
from pipeline.sources.row_reader import ReadFence, RowsAsked
from tests.patience import SOON
from tests.pipeline.sources.small_reads import in_pieces, one_by_one

pytestmark = pytest.mark.stack
T = Shard("s", "public.t")
BRIEF = timedelta(milliseconds=300)


@pytest.fixture(scope="module")
def shop(postgres: Postgres) -> Postgres:
    postgres.create_database("again", "CREATE EXTENSION citext")
    with closing(PostgresSource(reader_settings(postgres), "again")) as source:
        source.prepare_heartbeat()
    return postgres


@pytest.fixture
def table(shop: Postgres) -> Postgres:
    made = "CREATE TABLE t (id INT PRIMARY KEY, name TEXT)"
    shop.execute("DROP TABLE IF EXISTS t CASCADE", made, database="again")
    return shop


def test_a_transaction_that_is_open_at_the_fence_is_waited_for(table: Postgres) -> None:
    """A read that only notes the end of the log misses it, each time."""
    with closing(row_reader(table)) as rows, table.connect("again", autocommit=False) as writer:
        writer.execute(b"INSERT INTO t VALUES (1, 'early')")
        fence = rows.fence(0, datetime.now(UTC))
        naive = table.execute("SELECT id FROM t", database="again")
        with ThreadPoolExecutor(1) as pool:
            read = pool.submit(read_ids, rows, fence)
            wait_until(lambda: waits(table), SOON, "the read waits")
            writer.commit()

            assert (naive, read.result(SOON.total_seconds())) == ([], {1})


def test_one_that_stays_open_is_named_and_nothing_is_read(table: Postgres) -> None:
    with (
        closing(PostgresRowReader(reader_settings(table), patience=BRIEF)) as rows,
        table.connect("again", autocommit=False) as writer,
    ):
        writer.execute(b"INSERT INTO t VALUES (1, 'early')")
        fence = rows.fence(0, datetime.now(UTC))

        with pytest.raises(ProofError, match=rf"pid {pid(writer)} of postgres in again, open for"):
            read_ids(rows, fence)

        writer.commit()
        assert read_ids(rows, fence) == {1}


def test_one_that_is_logged_and_sent_but_not_to_be_seen_yet_is_waited_for(
    start_postgres: Callable[..., Postgres],
) -> None:
    """It waits for a standby: neither the log's end nor the oldest open one tells of it."""
    server = start_postgres(synchronous_standby_names="nobody", synchronous_commit="local")
    server.execute("CREATE DATABASE again")
    server.execute("CREATE TABLE t (id INT PRIMARY KEY, name TEXT)", database="again")
    with closing(PostgresSource(reader_settings(server), "again")) as source:
        source.prepare_heartbeat()
    with (
        closing(PostgresRowReader(reader_settings(server), patience=BRIEF)) as rows,
        server.connect("again") as writer,
        ThreadPoolExecutor(1) as pool,
    ):
        number = pid(writer)
        writer.execute(b"SET synchronous_commit = on")
        ((oldest,),) = server.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text")
        stuck = pool.submit(writer.execute, b"INSERT INTO t VALUES (1, 'early')")
        wait_until(lambda: waits(server, "SyncRep"), SOON, "its commit to be in the log")
        fence = rows.fence(0, datetime.now(UTC))
        seen = server.execute("SELECT id FROM t", database="again")
        ((now,),) = server.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text")

        with pytest.raises(ProofError, match=f"pid {number} "):
            read_ids(rows, fence)
        server.execute(f"SELECT pg_cancel_backend({number})")
        stuck.result(SOON.total_seconds())

        assert seen == []
        assert int(now) >= int(oldest)  # which a fence that notes it with its place would go by
        assert read_ids(rows, fence) == {1}


def test_a_prepared_transaction_is_named(start_postgres: Callable[..., Postgres]) -> None:
    server = start_postgres(max_prepared_transactions="2")
    server.execute("CREATE DATABASE again")
    server.execute("CREATE TABLE t (id INT PRIMARY KEY, name TEXT)", database="again")
    with closing(PostgresSource(reader_settings(server), "again")) as source:
        source.prepare_heartbeat()
    server.execute(
        "BEGIN", "INSERT INTO t VALUES (1, 'x')", "PREPARE TRANSACTION 'left'", database="again"
    )
    with closing(PostgresRowReader(reader_settings(server), patience=BRIEF)) as rows:
        fence = rows.fence(0, datetime.now(UTC))

        with pytest.raises(ProofError, match="prepared transaction 'left', open for"):
            read_ids(rows, fence)


def test_rows_of_tables_that_inherit_it_are_not_its_own_and_those_of_its_partitions_are(
    table: Postgres,
) -> None:
    table.execute(
        "CREATE TABLE heir () INHERITS (t)",
        "INSERT INTO heir VALUES (7, 'x')",
        "DROP TABLE IF EXISTS parted",
        "CREATE TABLE parted (id INT PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (10) TO (20)",
        "INSERT INTO parted VALUES (1), (12)",
        database="again",
    )
    with closing(row_reader(table)) as rows:
        fence = rows.fence(0, datetime.now(UTC))

        assert read_ids(rows, fence) == set()
        assert read_ids(rows, fence, "parted") == {1, 12}
        assert read_ids(rows, fence, "parted_2") == {12}


@pytest.mark.parametrize(
    ("columns", "key", "values"),
    [
        pytest.param(
            "a INT, b INT", "a, b", ["(1,1)", "(1,2)", "(2,0)", "(2,9)"], id="two numbers"
        ),
        pytest.param(
            'a TEXT COLLATE "und-x-icu"',
            "a",
            ["('b')", "('É')", "('z')", "('Ab')", "('e''s')", "('')"],
            id="letters in the order of their collation",
        ),
        pytest.param("a CHAR(4), b INT", "a, b", ["('b',1)", "('bb',0)", "('',3)"], id="padded"),
        pytest.param("a CITEXT", "a", ["('b')", "('A')", "('C')", "('a_')"], id="an extension's"),
        pytest.param("a BYTEA", "a", [r"('\x00ff')", r"('\x00')", "('')", r"('\x25')"], id="bytes"),
        pytest.param("a NUMERIC", "a", ["(-1.5)", "(1.10)", "(9)", "('NaN')"], id="numerics"),
        pytest.param(
            "a UUID", "a", [f"('{n}0000000-0000-0000-0000-000000000000')" for n in "3fa"], id="uuid"
        ),
        pytest.param("a mood", "a", ["('sad')", "('ok')", "('bad')"], id="an enum"),
        pytest.param("a BIT(12)", "a", ["(B'000000000001')", "(B'100000000000')"], id="bits"),
        pytest.param("a INT4RANGE", "a", ["('[1,3)')", "('[0,9)')", "('empty')"], id="ranges"),
        pytest.param("a MONEY", "a", ["(1)", "(-2.5)", "(10)"], id="money"),
        pytest.param("a INT[]", "a", ["('{1,3}')", "('{0,9}')", "('{}')"], id="arrays"),
        pytest.param(
            "a TIMESTAMPTZ, b DATE",
            "a, b",
            ["('2026-01-01 00:00:00.000001','2026-01-01')", "('infinity','2025-01-01')"],
            id="times",
        ),
        pytest.param('"Odd ""%s""" BOOL', '"Odd ""%s"""', ["(true)", "(false)"], id="odd name"),
    ],
)
def test_every_kind_of_key_is_read_on_one_row_at_a_time(
    table: Postgres, columns: str, key: str, values: list[str]
) -> None:
    table.execute(
        "DROP TABLE t",
        "DROP TYPE IF EXISTS mood",
        "CREATE TYPE mood AS ENUM ('sad', 'ok', 'bad')",
        f"CREATE TABLE t ({columns}, PRIMARY KEY ({key}))",
        f"INSERT INTO t VALUES {','.join(values)}",
        database="again",
    )
    names = ('Odd "%s"',) if key.startswith('"') else tuple(key.split(", "))
    with closing(row_reader(table)) as rows:
        fence = rows.fence(0, datetime.now(UTC))
        whole = rows.read(fence, RowsAsked(T, names, None, None, 100)).rows
        single, last = one_by_one(rows, fence, T, names)
        upper = rows.read(fence, RowsAsked(T, names, None, last, 100)).rows

    assert len(single) == len(values)
    assert single == whole["after"].to_pylist() == upper["after"].to_pylist()


def test_pieces_hold_each_row_once(table: Postgres) -> None:
    table.execute("INSERT INTO t SELECT n FROM generate_series(-50, 899, 7) n", database="again")
    with closing(row_reader(table)) as rows:
        pieces = in_pieces(rows, rows.fence(0, datetime.now(UTC)), T, ("id",), 4)

    found = [json.loads(text)["id"] for one in pieces for text in one.rows["after"].to_pylist()]
    assert len(pieces) == 4
    assert all(one.ended for one in pieces)
    assert found == list(range(-50, 900, 7))


@pytest.mark.parametrize(
    ("key", "why"),
    [
        pytest.param((), "has no key", id="none"),
        pytest.param(("name",), "may be NULL", id="one that may be NULL"),
        pytest.param(("nope",), "has no column nope", id="one that is not there"),
    ],
)
def test_a_table_without_a_key_to_read_by_is_refused_with_words(
    table: Postgres, key: tuple[str, ...], why: str
) -> None:
    with closing(row_reader(table)) as rows, pytest.raises(ConfigError, match=why):
        rows.bounds(T, key, 4)


def test_a_table_that_is_not_there_is_told(table: Postgres) -> None:
    with (
        closing(row_reader(table)) as rows,
        pytest.raises(ProofError, match=r"table public\.gone does not exist"),
    ):
        rows.bounds(Shard("s", "public.gone"), ("id",), 4)


def reader_settings(postgres: Postgres, replica: str = "") -> SourceSettings:
    options = {"database": "again", **({"read_from": replica} if replica else {})}
    return SourceSettings(
        "s",
        postgres.host,
        postgres.port,
        "postgres",
        CollectorSettings("http://nobody", "c"),
        "s",
        kind="postgres",
        options=options,
    )


def row_reader(postgres: Postgres, replica: str = "") -> PostgresRowReader:
    return PostgresRowReader(reader_settings(postgres, replica), patience=SOON)


def read_ids(rows: PostgresRowReader, fence: ReadFence, name: str = "t") -> set[int]:
    asked = RowsAsked(Shard("s", f"public.{name}"), ("id",), None, None, 1000)
    return {json.loads(text)["id"] for text in rows.read(fence, asked).rows["after"].to_pylist()}


def pid(connection: Connection[Any]) -> int:
    return connection.info.backend_pid


def waits(postgres: Postgres, event: str = "") -> bool:
    """Whether somebody waits for *event*; without one, whether we ask who is open."""
    asked = (
        f"SELECT 1 FROM pg_stat_activity WHERE wait_event = '{event}'"
        if event
        else "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%pg_snapshot_xmin%'"
        " AND application_name = 'sluice'"
    )
    return bool(postgres.execute(asked))
