"""Rows are read from behind a fence of a real MySQL: no row committed before it is missed."""

import json
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from demo.mysql import MySQL
from demo.ports import free_ports
from demo.processes import wait_until
from pipeline.aggregates import AggregatedColumn
from pipeline.errors import ConfigError, ProofError, SparedError, UnreachableError
from pipeline.model import Head, Shard, ShardId
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.sources.budget import BudgetedQueries, SourceBudget
from pipeline.sources.condition import parse_condition
from pipeline.sources.mysql.row_reader import MySqlRowReader
from pipeline.sources.mysql.source import MySqlSource
from pipeline.sources.replica import ReplicaChoice
from pipeline.sources.row_reader import RowsAsked
from tests.patience import SOON
from tests.pipeline.sources.small_reads import in_pieces, one_by_one

pytestmark = pytest.mark.stack
T = Shard("s", "d.t")
WINDOW = 1_500_000  # microseconds between the log and the commit


@pytest.fixture(scope="module")
def _primary(server_folder: Path) -> Iterator[MySQL]:
    """Its settings are those of its start after each test."""
    home, (port,) = Path(tempfile.mkdtemp(dir=server_folder, prefix="read-")), free_ports(1)
    mysql = MySQL(home, port, 11)
    try:
        mysql.start()
        with closing(MySqlSource(reader_settings(mysql))) as source:
            source.prepare_heartbeat()
        yield mysql
    finally:
        mysql.kill()


@pytest.fixture
def primary(_primary: MySQL) -> MySQL:
    _primary.execute(
        "DROP DATABASE IF EXISTS d",
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, name TEXT)",
    )
    return _primary


@contextmanager
def set_globally(mysql: MySQL, **values: object) -> Iterator[None]:
    """Until the end of the block."""
    before = {name: mysql.execute(f"SELECT @@global.{name}")[0][0] for name in values}
    mysql.execute(*(f"SET GLOBAL {name} = {value}" for name, value in values.items()))
    try:
        yield
    finally:
        mysql.execute(*(f"SET GLOBAL {name} = {value}" for name, value in before.items()))


def test_a_row_that_is_logged_and_not_yet_committed_is_read_behind_the_fence(
    primary: MySQL,
) -> None:
    """A read that only notes the end of the log misses it, each time."""
    delay = {"sync_binlog": 1, "binlog_group_commit_sync_delay": WINDOW}
    with (
        set_globally(primary, **delay),
        closing(row_reader(primary)) as rows,
        closing(MySqlSource(reader_settings(primary))) as source,
    ):
        number, missed = -1, 0
        while missed < 3:  # or the commit was done before the read that is to miss it
            number += 1
            assert number < 30, "nothing is missed"
            with committing(primary, f"INSERT INTO d.t VALUES ({number}, 'x')", source):
                naive = {row[0] for row in primary.execute("SELECT id FROM d.t")}
                fence = rows.fence(0, datetime.now(UTC))
                fenced = read_ids(rows, fence)

            missed += number not in naive
            assert number in fenced


def test_a_replica_is_read_once_it_has_executed_what_the_fence_needs(
    primary: MySQL, start_mysql: Callable[[int], MySQL]
) -> None:
    replica = start_mysql(12)
    replica.replica_of(primary)
    ((done,),) = primary.execute("SELECT @@gtid_executed")
    has = f"SELECT GTID_SUBSET('{done}', @@gtid_executed)"
    wait_until(lambda: replica.execute(has) == [(1,)], SOON, "the replica follows")
    where = f"{replica.host}:{replica.port}"
    with closing(row_reader(primary, replica=where)) as rows, ThreadPoolExecutor(1) as pool:
        replica.execute("STOP SLAVE SQL_THREAD")
        primary.execute("INSERT INTO d.t VALUES (1, 'x')")
        naive = replica.execute("SELECT id FROM d.t")
        looks = looked(rows)
        found = pool.submit(read_ids, rows, rows.fence(0, datetime.now(UTC)))
        try:
            wait_until(lambda: looks, SOON, "a look at how far the replica is")
        finally:
            replica.execute("START SLAVE SQL_THREAD")

        assert (naive, found.result()) == ([], {1})
    ask_probes_of(primary, replica)


def ask_probes_of(primary: MySQL, replica: MySQL) -> None:
    """Probes ask the replica, once it has what the primary had, and nothing before that."""
    with (
        closing(MySqlSource(reader_settings(primary))) as source,
        closing(MySqlSource(reader_settings(replica))) as copy,
    ):
        choice = ReplicaChoice(source, copy, "replica:3306", timedelta(milliseconds=300))
        queries = BudgetedQueries(source, choice.choose, SourceBudget("s", source.limits))
        replica.execute("SET sql_log_bin = 0", "INSERT INTO d.t VALUES (90, 'only there')")
        replica.execute("STOP SLAVE SQL_THREAD")
        primary.execute("INSERT INTO d.t VALUES (2, 'x')")
        with pytest.raises(SparedError, match=r"^source:s: the replica replica:3306 is behind"):
            queries.count_ids(T, "id", [(0, 99)])
        assert [one.code for one in choice.examine()] == ["replica_behind"]
        replica.execute("START SLAVE SQL_THREAD")
        choice.patience = SOON

        assert choice.examine() == []
        assert queries.count_ids(T, "id", [(0, 99)]) == (3,)
        assert queries.max_id(T, "id") == 90
        assert source.max_id(T, "id") == 2


def test_a_replica_that_stays_behind_is_refused_and_says_what_it_lacks(
    primary: MySQL, start_mysql: Callable[[int], MySQL]
) -> None:
    replica = start_mysql(13)
    where = f"{replica.host}:{replica.port}"
    brief = timedelta(milliseconds=300)
    with closing(MySqlRowReader(reader_settings(primary, where), patience=brief)) as rows:
        fence = rows.fence(0, datetime.now(UTC))

        with pytest.raises(ProofError, match=r"not reached the fence after .*it has executed"):
            rows.read(fence, RowsAsked(T, ("id",), None, None, 10))


def test_a_replica_that_falls_behind_is_spared(
    primary: MySQL, start_mysql: Callable[[int], MySQL]
) -> None:
    replica, at = start_mysql(14), datetime.now(UTC)
    replica.replica_of(primary)
    with closing(row_reader(primary, replica=f"{replica.host}:{replica.port}")) as rows:
        fence = rows.fence(0, at)
        read_ids(rows, fence)
        replica.execute("STOP SLAVE")
        rows.fence(fence.number + 1, at + timedelta(seconds=31))

        with pytest.raises(SparedError, match=r"31 s behind, limits\.lag is 30 s") as said:
            read_ids(rows, fence)

    assert said.value.brake == "lag"


def test_a_server_that_commits_in_another_order_than_it_logs_is_refused(primary: MySQL) -> None:
    with (
        set_globally(primary, binlog_order_commits=0),
        closing(row_reader(primary)) as rows,
        pytest.raises(ConfigError, match="binlog_order_commits"),
    ):
        rows.fence(0, datetime.now(UTC))


def test_f108_a_read_waits_for_xa_transactions_that_were_prepared_before_its_fence(
    primary: MySQL,
) -> None:
    """Their rows are in the log at XA PREPARE, and in the table at XA COMMIT."""
    prepare_xa(primary, "'old'", "INSERT INTO d.t VALUES (1, 'x')")
    brief = MySqlRowReader(reader_settings(primary), xa_patience=timedelta(milliseconds=300))
    with closing(brief), closing(row_reader(primary)) as rows, ThreadPoolExecutor(1) as pool:
        fence = rows.fence(0, datetime.now(UTC))
        prepare_xa(primary, "'new',x'00ff'", "INSERT INTO d.t VALUES (2, 'x')")
        try:
            open_one = r"1 XA transaction .* open .*: 0x6F6C64,0x,1; .*XA COMMIT"
            with pytest.raises(ProofError, match=open_one):
                brief.read(fence, RowsAsked(T, ("id",), None, None, 10))
            looks = looked(rows)
            found = pool.submit(read_ids, rows, fence)
            wait_until(lambda: looks, SOON, "a look before the read")
            primary.execute("XA COMMIT 'old'")

            assert found.result() == {1}  # the one prepared after the fence keeps no read waiting
        finally:
            for _, size, _, data in primary.execute("XA RECOVER CONVERT XID"):
                text = data.removeprefix("0x")
                at = 2 * size
                primary.execute(f"XA ROLLBACK x'{text[:at]}',x'{text[at:]}'")


def test_f108_a_read_goes_on_once_a_prepared_xa_transaction_is_rolled_back(primary: MySQL) -> None:
    prepare_xa(primary, "'back'", "INSERT INTO d.t VALUES (1, 'x')")
    with closing(row_reader(primary)) as rows:
        fence = rows.fence(0, datetime.now(UTC))
        primary.execute("XA ROLLBACK 'back'")

        assert read_ids(rows, fence) == set()


def test_f108_a_replica_is_read_once_it_has_committed_what_was_prepared(
    primary: MySQL, start_mysql: Callable[[int], MySQL]
) -> None:
    replica = start_mysql(15)
    replica.replica_of(primary)
    where = f"{replica.host}:{replica.port}"
    prepare_xa(primary, "'far'", "INSERT INTO d.t VALUES (1, 'x')")
    with closing(row_reader(primary, replica=where)) as rows, ThreadPoolExecutor(1) as pool:
        fence = rows.fence(0, datetime.now(UTC))
        wait_until(lambda: replica.execute("XA RECOVER"), SOON, "it is prepared there, too")
        replica.execute("STOP SLAVE SQL_THREAD")
        primary.execute("XA COMMIT 'far'")
        looks = looked(rows)
        found = pool.submit(read_ids, rows, fence)
        try:
            wait_until(lambda: looks, SOON, "a look at how far the replica is")
        finally:
            replica.execute("START SLAVE SQL_THREAD")

        assert found.result() == {1}


def test_f108_without_the_right_to_list_xa_transactions_no_read_is_fenced(primary: MySQL) -> None:
    primary.execute("REVOKE XA_RECOVER_ADMIN ON *.* FROM 'sluice'@'%'")
    theirs = replace(reader_settings(primary), user="sluice", password="sluice")
    try:
        with (
            closing(MySqlRowReader(theirs)) as rows,
            pytest.raises(ConfigError, match=r"GRANT XA_RECOVER_ADMIN ON \*\.\* TO 'sluice'"),
        ):
            rows.fence(0, datetime.now(UTC))
    finally:
        primary.execute("GRANT XA_RECOVER_ADMIN ON *.* TO 'sluice'@'%'")


def prepare_xa(mysql: MySQL, xid: str, statement: str) -> None:
    """Its session is gone after that; the transaction stays open."""
    mysql.execute(f"XA START {xid}", statement, f"XA END {xid}", f"XA PREPARE {xid}")


@pytest.mark.parametrize(
    ("columns", "key", "values"),
    [
        pytest.param(
            "a INT, b INT", "a, b", ["(1,1)", "(1,2)", "(2,0)", "(2,9)"], id="two numbers"
        ),
        pytest.param(
            "a VARCHAR(9) COLLATE utf8mb4_0900_ai_ci",
            "a",
            ["('b')", "('É')", "('z')", "('Ab')"],
            id="letters in the order of their collation",
        ),
        pytest.param(
            "a VARCHAR(9) CHARACTER SET latin1", "a", ["('b')", "('é')", "('')"], id="latin1"
        ),
        pytest.param("a VARBINARY(9)", "a", ["(x'00ff')", "(x'00')", "('')", "('%')"], id="bytes"),
        pytest.param("a DECIMAL(5,2)", "a", ["(-1.5)", "(1.10)", "(9)"], id="decimals"),
        pytest.param("a BIGINT UNSIGNED", "a", ["(0)", "(18446744073709551615)"], id="unsigned"),
        pytest.param("a ENUM('z','a','m')", "a", ["('a')", "('z')", "('m')"], id="an enum"),
        pytest.param("a BIT(12)", "a", ["(1)", "(4000)", "(77)"], id="bits"),
        pytest.param(
            "a DATETIME(6), b DATE",
            "a, b",
            ["('2026-01-01 00:00:00.000001','2026-01-01')", "('2026-01-01','2025-01-01')"],
            id="times",
        ),
        pytest.param(
            "a TIMESTAMP(3)", "a", ["('2026-01-01 00:00:00.5')", "('2001-01-01')"], id="ts"
        ),
    ],
)
def test_every_kind_of_key_is_read_on_one_row_at_a_time(
    primary: MySQL, columns: str, key: str, values: list[str]
) -> None:
    primary.execute("DROP TABLE d.t", f"CREATE TABLE d.t ({columns}, PRIMARY KEY ({key}))")
    primary.execute(f"INSERT INTO d.t VALUES {','.join(values)}")
    names = tuple(key.split(", "))
    with closing(row_reader(primary)) as rows:
        fence = rows.fence(0, datetime.now(UTC))
        whole = rows.read(fence, RowsAsked(T, names, None, None, 100)).rows
        keys = () if "BIT" in columns else whole["key_values"].to_pylist()
        by_key = [
            rows.read(fence, RowsAsked(T, names, None, None, 9, keys=(key,))).rows for key in keys
        ]
        single, _ = one_by_one(rows, fence, T, names)

    assert len(single) == len(values)
    assert single == whole["after"].to_pylist()
    assert [one["key_values"].to_pylist() for one in by_key] == [[key] for key in keys]


def test_rows_that_meet_a_condition_are_read_however_few_they_are(primary: MySQL) -> None:
    primary.execute(
        "DROP TABLE d.t", "CREATE TABLE d.t (`%s` INT, b INT, `100%` TEXT, PRIMARY KEY (`%s`, b))"
    )
    primary.execute(
        f"INSERT INTO d.t VALUES {','.join(f'({n // 3},{n},{n % 40})' for n in range(300))}"
    )
    wanted, after, found, reads = (
        parse_condition("\"100%\" = '7' AND `%s` < 80"),
        None,
        list[int](),
        0,
    )
    with closing(row_reader(primary)) as rows:
        fence = rows.fence(0, datetime.now(UTC))
        while True:
            read = rows.read(fence, RowsAsked(T, ("%s", "b"), after, None, 20, wanted))
            found += [json.loads(text)["b"] for text in read.rows["after"].to_pylist()]
            reads, after = reads + 1, read.last
            if read.ended:
                break
        with pytest.raises(ConfigError, match="no column c; known: %s, 100%, b"):
            rows.read(fence, RowsAsked(T, ("%s", "b"), None, None, 20, parse_condition("c = 1")))

    assert found == [n for n in range(240) if n % 40 == 7]
    assert reads == 16


def test_the_key_of_an_integer_is_written_as_the_log_writes_it(primary: MySQL) -> None:
    primary.execute("CREATE TABLE d.u (id BIGINT UNSIGNED PRIMARY KEY)")
    with closing(row_reader(primary)) as rows:
        assert rows.keys_of(T, ("id",), [-7, 200]) == ('["-7"]', '["200"]')
        assert rows.keys_of(Shard("s", "d.u"), ("id",), [200]) == ('["AMg="]',)


def test_pieces_hold_each_row_once(primary: MySQL) -> None:
    primary.execute(f"INSERT INTO d.t VALUES {','.join(f'({n},NULL)' for n in range(-50, 900, 7))}")
    with closing(row_reader(primary)) as rows:
        pieces = in_pieces(rows, rows.fence(0, datetime.now(UTC)), T, ("id",), 4)

    found = [json.loads(text)["id"] for one in pieces for text in one.rows["after"].to_pylist()]
    assert len(pieces) == 4
    assert all(one.ended for one in pieces)
    assert found == list(range(-50, 900, 7))


def test_a_table_without_a_key_is_refused_with_words(primary: MySQL) -> None:
    with closing(row_reader(primary)) as rows, pytest.raises(ConfigError, match="has no key"):
        rows.bounds(T, (), 4)


def reader_settings(mysql: MySQL, replica: str = "") -> SourceSettings:
    nobody = CollectorSettings("http://nobody", "c")
    options = {"read_from": replica} if replica else {}
    return SourceSettings("s", mysql.host, mysql.port, "root", nobody, "s", options=options)


def row_reader(mysql: MySQL, replica: str = "") -> MySqlRowReader:
    return MySqlRowReader(reader_settings(mysql, replica), patience=SOON, xa_patience=SOON)


def read_ids(rows: MySqlRowReader, fence: object) -> set[int]:
    read = rows.read(fence, RowsAsked(T, ("id",), None, None, 1000))  # type: ignore[arg-type]
    return {json.loads(text)["id"] for text in read.rows["after"].to_pylist()}


def looked(rows: MySqlRowReader) -> list[Head]:
    """How far the server that is read was, each time that it was asked from now on."""
    server, found = rows.read_from, list[Head]()
    head = server.head

    def look() -> Head:
        found.append(head())
        return found[-1]

    server.head = look  # type: ignore[method-assign]
    return found


@contextmanager
def committing(mysql: MySQL, statement: str, source: MySqlSource) -> Iterator[None]:
    """Inside, the statement is logged and its commit waits."""
    before = source.head().position
    one = threading.Thread(target=mysql.execute, args=(statement,))
    one.start()
    try:
        wait_until(lambda: source.head().position != before, SOON, "the statement in the log")
        yield
    finally:
        one.join()


PERCENT = ["a%b", "x%s", "sales_50%", "%(x)s", "y%%"]


@pytest.mark.parametrize("relation", ["a.b", "../a'b/c", 'say "x"', "two\nlines", *PERCENT])
def test_f115_the_facts_of_a_table_with_an_odd_name_are_found(
    primary: MySQL, relation: str
) -> None:
    primary.execute(
        f"CREATE TABLE d.`{relation}` (id INT PRIMARY KEY, name TEXT)",
        f"INSERT INTO d.`{relation}` VALUES (1, 'a'), (7, 'b')",
        "CREATE TABLE d.`y%` (id INT PRIMARY KEY)",  # what `y%%` would be as a format
    )
    shard = Shard("s", str(ShardId("d", relation)))

    with closing(MySqlSource(reader_settings(primary))) as source:
        assert shard in source.shards(r"d\..*")
        assert [column.name for column in source.columns(shard)] == ["id", "name"]
        assert source.key_columns(shard) == ("id",)
        assert (source.min_id(shard, "id"), source.max_id(shard, "id")) == (1, 7)
        assert source.count_ids(shard, "id", [(0, 5), (5, 9)]) == (1, 1)
        described = source.describe(frozenset({shard.name}))
    assert shard.name in described.rows
    assert not described.hidden


@pytest.mark.parametrize("name", PERCENT)
def test_tables_and_columns_with_a_percent_sign_are_counted_summed_and_read(
    primary: MySQL, name: str
) -> None:
    primary.execute(
        f"CREATE TABLE d.`{name}` (`{name}` INT PRIMARY KEY, `n{name}` INT, `at{name}` DATE)",
        f"INSERT INTO d.`{name}` VALUES (1, 2, '2026-03-01'), (7, 6, '2026-03-01')",
    )
    shard = Shard("s", str(ShardId("d", name)))
    days = (date(2026, 3, 1), date(2026, 3, 2))

    with closing(MySqlSource(reader_settings(primary))) as source:
        assert source.ids(shard, name, (0, 9), 9) == (1, 7)
        assert source.count_ids(shard, name, [(0, 5), (5, 9)]) == (1, 1)
        assert (source.min_id(shard, name), source.max_id(shard, name)) == (1, 7)
        (found,) = source.tallies(shard, f"at{name}", [days], (AggregatedColumn(f"n{name}"),))
    assert (found.rows, found.sums) == (2, (Decimal(8),))
    with closing(row_reader(primary)) as rows:
        fence = rows.fence(1, datetime.now(UTC))
        where = parse_condition(f"`n{name}` = 6")
        asked = RowsAsked(shard, (name,), None, None, 10)
        both, one = rows.read(fence, asked), rows.read(fence, replace(asked, where=where))
    assert [json.loads(text)[name] for text in both.rows["after"].to_pylist()] == [1, 7]
    assert [json.loads(text)[name] for text in one.rows["after"].to_pylist()] == [7]


def test_f198_a_lock_on_the_heartbeat_table_is_told_by_its_name(primary: MySQL) -> None:
    known = reader_settings(primary)
    primary.execute("SET GLOBAL innodb_lock_wait_timeout = 1")
    with closing(MySqlSource(known)) as source, closing(MySqlSource(known)) as other:
        source.write_heartbeat(1, datetime.now(UTC))
        with other.session.bounded() as ask:
            ask("START TRANSACTION")
            ask(f"SELECT * FROM {known.heartbeat} FOR UPDATE")
            with pytest.raises(UnreachableError, match=rf"heartbeat table {known.heartbeat}"):
                source.write_heartbeat(1, datetime.now(UTC))
            ask("ROLLBACK")
