"""A real MySQL is asked within limits, in one snapshot, and its log position is what it says."""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Event

import pytest

from demo.mysql import MySQL
from demo.processes import held, wait_until
from demo.servers import Servers
from pipeline.errors import ConfigError, ProofError, TooManyRowsError, UnreachableError
from pipeline.model import Shard
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.sources.mysql.facts import read_server_facts
from pipeline.sources.mysql.session import Session
from pipeline.sources.mysql.source import MySqlSource
from pipeline.sources.positions import has_reached, locate_position, may_contain, names_transactions
from pipeline.sources.source import HeartbeatTable, Limits
from tests.patience import SOON, answered
from tests.pipeline.sources.patience import PATIENT

pytestmark = pytest.mark.stack

NOON = datetime(2026, 3, 1, 12, 0, 0, 123_456, tzinfo=UTC)
FEW = Shard("shop", "p3_mysql.few")
ODD = Shard("shop", "p3_mysql.o`dd-name")


def shop_settings(mysql: MySQL) -> SourceSettings:
    return SourceSettings(
        name="shop",
        host=mysql.host,
        port=mysql.port,
        user="sluice",
        password="sluice",
        prefix="shop",
        heartbeat="sluice.p3_beats",
        collector=CollectorSettings("http://127.0.0.1:1", "shop"),
    )


@contextmanager
def source(mysql: MySQL, limits: Limits | None = None) -> Iterator[MySqlSource]:
    with closing(MySqlSource(shop_settings(mysql), limits or PATIENT)) as made:
        yield made


@pytest.fixture(scope="module")
def mysql(servers: Servers) -> MySQL:
    rows = ",".join(f"({n}, 'x')" for n in range(1, 1_001) if n % 10)
    servers.mysql.execute(
        "CREATE DATABASE p3_mysql",
        "CREATE TABLE p3_mysql.few (id BIGINT PRIMARY KEY, t VARCHAR(20))",
        f"INSERT INTO p3_mysql.few VALUES {rows}",
        "CREATE TABLE p3_mysql.`o``dd-name` (`a b` BIGINT UNSIGNED, c INT, PRIMARY KEY (c, `a b`))",
        "INSERT INTO p3_mysql.`o``dd-name` VALUES (18446744073709551615, 1)",
        "CREATE VIEW p3_mysql.seen AS SELECT * FROM p3_mysql.few",
    )
    return servers.mysql


def test_a_head_is_identity_log_position_and_what_was_executed(mysql: MySQL) -> None:
    with source(mysql) as shop:
        before = shop.head()
        mysql.execute("INSERT INTO p3_mysql.few VALUES (5000, 'y')")
        after = shop.head()

    ((identity,),) = mysql.execute("SELECT @@server_uuid")
    assert before.identity == after.identity == identity
    assert locate_position(before.position) < locate_position(after.position)
    assert has_reached(after.position, before.position)
    assert names_transactions(before.position)
    assert not may_contain(before.position, after.position.words.partition(" ")[2])
    assert may_contain(after.position, before.position.words.partition(" ")[2])


def test_a_rotated_log_has_a_higher_number(mysql: MySQL) -> None:
    with source(mysql) as shop:
        before = shop.head()
        mysql.execute("FLUSH BINARY LOGS")
        assert locate_position(shop.head().position)[0] == locate_position(before.position)[0] + 1


def test_a_fence_stands_at_or_above_its_heartbeat_and_tells_the_callers_time(mysql: MySQL) -> None:
    with source(mysql) as shop:
        shop.prepare_heartbeat()
        shop.prepare_heartbeat()
        first, second = (
            HeartbeatTable(shop, known=41).write_heartbeat(lambda: NOON) for _ in range(2)
        )
        head = shop.head()

    assert (first.number, second.number, second.head) == (42, 43, head)
    assert locate_position(first.head.position) < locate_position(second.head.position)
    rows = mysql.execute("SELECT source, n, at FROM sluice.p3_beats")
    assert rows == [("shop", 43, NOON.replace(tzinfo=None))]


def test_f01_its_own_clock_is_told_in_utc_whatever_its_time_zone(mysql: MySQL) -> None:
    mysql.execute("SET GLOBAL time_zone = '+05:00'")
    try:
        with source(mysql) as shop:
            shop.prepare_heartbeat()
            heart = HeartbeatTable(shop)
            heart.write_heartbeat(lambda: datetime.now(UTC))
    finally:
        mysql.execute("SET GLOBAL time_zone = 'SYSTEM'")

    assert heart.reading is not None
    assert heart.reading.before <= heart.reading.source_time <= heart.reading.after
    assert heart.reading.skew == timedelta()


@pytest.mark.parametrize("ahead", [0, 3600, -3600])
def test_a_server_tells_how_far_its_clock_is_from_ours(mysql: MySQL, ahead: int) -> None:
    with source(mysql) as shop:
        if ahead:
            shop.session.ask("SET TIMESTAMP = UNIX_TIMESTAMP() + %s", ahead)
        told = read_server_facts(shop.session).ahead

    assert abs(told.total_seconds() - ahead) < 60


def test_a_heartbeat_that_may_not_be_made_is_asked_for_by_statement(mysql: MySQL) -> None:
    elsewhere = replace(shop_settings(mysql), heartbeat="forbidden.beats")

    with closing(MySqlSource(elsewhere)) as shop, pytest.raises(ConfigError, match="CREATE TABLE"):
        shop.prepare_heartbeat()


def test_ids_are_counted_in_half_open_ranges(mysql: MySQL) -> None:
    with source(mysql) as shop:
        counts = shop.count_ids(FEW, "id", [(1, 11), (10, 11), (11, 12), (990, 2_000), (7, 7)])

        assert counts == (9, 0, 1, 9, 0)
        assert shop.ids(FEW, "id", (8, 13), limit=10) == (8, 9, 11, 12)
        assert shop.ids(FEW, "id", (8, 13), limit=2) == (8, 9)
        assert shop.min_id(FEW, "id") == 1


def test_names_are_quoted_and_unsigned_ids_are_whole(mysql: MySQL) -> None:
    with source(mysql) as shop:
        assert shop.max_id(ODD, "a b") == 2**64 - 1
        assert shop.count_ids(ODD, "a b", [(2**64 - 1, 2**64)]) == (1,)
        assert shop.key_columns(ODD) == ("c", "a b")
        with pytest.raises(ProofError, match="Unknown column"):
            shop.max_id(ODD, "a b`) FROM x --")


def test_an_empty_table_has_no_extremes(mysql: MySQL) -> None:
    mysql.execute("CREATE TABLE p3_mysql.none (id INT PRIMARY KEY)")

    with source(mysql) as shop:
        none = Shard("shop", "p3_mysql.none")
        assert (shop.max_id(none, "id"), shop.min_id(none, "id")) == (None, None)
        assert shop.count_ids(none, "id", [(1, 9)]) == (0,)


def test_the_catalog_lists_tables_columns_and_keys(mysql: MySQL) -> None:
    with source(mysql) as shop:
        assert shop.shards(r"p3_mysql\.(few|seen|o.*)") == (FEW, ODD)
        assert shop.shards(r"mysql\..*") == ()
        assert [column.name for column in shop.columns(FEW)] == ["id", "t"]
        assert shop.key_columns(FEW) == ("id",)


DATED = {
    "by_day": "at DATETIME(3) NOT NULL, day DATE NOT NULL, KEY (at, id), KEY (day)",
    "of_key": "at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, UNIQUE (at, id)",
    "second": "at DATETIME NOT NULL, KEY (id, at)",
    "nullable": "at DATETIME, KEY (at)",
    "touched": "at TIMESTAMP NOT NULL DEFAULT NOW() ON UPDATE CURRENT_TIMESTAMP, KEY (at)",
    "number": "at BIGINT NOT NULL, KEY (at)",
    "hidden": "at DATETIME NOT NULL, KEY (at) INVISIBLE",
    "computed": "at DATETIME NOT NULL, KEY ((DATE(at)))",
}


def test_columns_of_times_that_an_index_begins_with_are_one_answer_for_all_tables(
    mysql: MySQL,
) -> None:
    mysql.execute(
        "CREATE DATABASE p3_dated",
        *(f"CREATE TABLE p3_dated.{n} (id INT PRIMARY KEY, {own})" for n, own in DATED.items()),
    )
    names = {f"p3_dated.{name}" for name in DATED}
    with source(mysql) as shop:

        def asked() -> int:
            return int(shop.session.ask("SHOW SESSION STATUS LIKE 'Questions'")[0]["value"])

        begun = asked()
        told = shop.describe(names).dated
        of_all, begun = asked() - begun, asked()
        shop.describe({"p3_dated.by_day"})
        of_one = asked() - begun

    assert told == {"p3_dated.by_day": ("at", "day"), "p3_dated.of_key": ("at",)}
    assert of_all == of_one


def test_what_cannot_be_decided_is_no_answer(mysql: MySQL) -> None:
    with source(mysql) as shop:
        with pytest.raises(ProofError, match="not an integer"):
            shop.max_id(FEW, "t")
        with pytest.raises(ProofError, match="doesn't exist"):
            shop.max_id(Shard("shop", "p3_mysql.gone"), "id")


def test_all_counts_of_a_call_see_one_state(mysql: MySQL) -> None:
    mysql.execute("CREATE TABLE p3_mysql.busy (id INT AUTO_INCREMENT PRIMARY KEY)")
    done = Event()

    def write() -> None:
        with mysql.connect() as connection, connection.cursor() as cursor:
            while not done.is_set():
                cursor.execute("INSERT INTO p3_mysql.busy VALUES (NULL)")

    busy = Shard("shop", "p3_mysql.busy")
    with ThreadPoolExecutor(1) as pool, source(mysql) as shop:
        writing = pool.submit(write)
        try:
            wait_until(lambda: bool(shop.max_id(busy, "id")), SOON, "a first row")
            counts = shop.count_ids(busy, "id", [(1, 10**9)] * 60)
            every = [(1, 10**9)]
            wait_until(lambda: shop.count_ids(busy, "id", every)[0] > counts[0], SOON, "a later")
        finally:
            done.set()
        writing.result()

    assert len(set(counts)) == 1


CROSS = (
    "SELECT COUNT(*) FROM p3_mysql.few a, p3_mysql.few b, p3_mysql.few c WHERE a.t < b.id + c.id"
)


def test_a_slow_query_is_ended_by_the_server_and_the_next_one_is_answered(mysql: MySQL) -> None:
    with source(mysql, Limits(statement=timedelta(milliseconds=300))) as shop:
        with pytest.raises(UnreachableError, match=r"source:shop: slow: .*3024"):
            shop.session.ask(CROSS)
        assert answered(lambda: shop.max_id(FEW, "id")) is not None


def test_a_call_of_many_statements_has_a_limit_of_its_own(mysql: MySQL) -> None:
    with (
        source(mysql, replace(PATIENT, call=timedelta(0))) as shop,
        pytest.raises(UnreachableError, match="source:shop: slow"),
    ):
        shop.count_ids(FEW, "id", [(1, 9), (9, 20)])


def test_a_snapshot_that_nobody_goes_on_with_keeps_no_statement_off_its_tables(
    mysql: MySQL,
) -> None:
    mysql.execute("CREATE TABLE p3_mysql.left_alone (id INT PRIMARY KEY)")
    count = "SELECT COUNT(*) FROM p3_mysql.left_alone"

    def go_on_too_late(told: Session) -> None:
        with told.snapshot() as ask:
            ask(count)
            patient = "SET SESSION lock_wait_timeout = 180"
            mysql.execute(patient, "ALTER TABLE p3_mysql.left_alone ADD COLUMN c INT, ADD KEY (c)")
            ask(count)

    with source(mysql, replace(PATIENT, call=timedelta(seconds=2))) as shop:
        with pytest.raises(UnreachableError, match="source:shop: down: Lost"):
            go_on_too_late(shop.session)
        assert shop.count_ids(FEW, "id", [(1, 9)]) == (8,)
        assert shop.session.ask("SELECT @@wait_timeout AS n")[0]["n"] > 60


def test_too_many_rows_are_not_counted(mysql: MySQL) -> None:
    mysql.execute("ANALYZE TABLE p3_mysql.few")

    with source(mysql, replace(PATIENT, rows=100)) as shop:
        assert shop.count_ids(FEW, "id", [(1, 11)]) == (9,)
        with pytest.raises(TooManyRowsError, match=r"in one range, limits\.rows is 100"):
            shop.count_ids(FEW, "id", [(1, 10**6)])


def test_a_loaded_source_is_spared_but_still_beats(mysql: MySQL) -> None:
    idle = int(mysql.execute("SHOW GLOBAL STATUS LIKE 'Threads_running'")[0][1])
    with (
        source(mysql, replace(PATIENT, running=idle + 2)) as shop,
        ThreadPoolExecutor(4) as pool,
        mysql.connect() as link,
        link.cursor() as holder,
    ):
        shop.prepare_heartbeat()
        holder.execute("SELECT GET_LOCK('held', 0)")
        wait = "SELECT GET_LOCK('held', 600), RELEASE_LOCK('held')"
        waiting = [pool.submit(mysql.execute, wait) for _ in range(4)]

        def refused() -> bool:
            try:
                shop.max_id(FEW, "id")
            except UnreachableError as error:
                return str(error).startswith("source:shop: loaded: ")
            return False

        wait_until(refused, SOON, "refusal")
        assert shop.describe({FEW.name}).hidden == frozenset()  # or it would never be ready
        assert shop.write_heartbeat(0, NOON).number >= 0
        holder.execute("SELECT RELEASE_LOCK('held')")
        assert [one.result() for one in waiting] == [[(1, 1)]] * 4
        assert answered(lambda: shop.max_id(FEW, "id"), says=": loaded: ") is not None


def test_a_wrong_password_is_the_operators_and_a_closed_port_is_not(mysql: MySQL) -> None:
    known = shop_settings(mysql)
    with (
        closing(MySqlSource(replace(known, password="no"))) as shop,
        pytest.raises(ConfigError, match="Access denied"),
    ):
        shop.head()
    with (
        closing(MySqlSource(replace(known, port=1))) as shop,
        pytest.raises(UnreachableError, match="source:shop: down: "),
    ):
        shop.head()


def test_tls_is_verified_when_asked_for(mysql: MySQL) -> None:
    with (
        closing(MySqlSource(replace(shop_settings(mysql), tls=True))) as shop,
        pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        shop.head()


def test_a_frozen_and_a_killed_server_are_unreachable_until_they_answer_again(
    start_mysql: Callable[[int], MySQL],
) -> None:
    mysql = start_mysql(31)
    process = mysql.daemon.process
    assert process is not None
    with source(mysql, replace(PATIENT, statement=timedelta(seconds=3))) as shop:
        answered(shop.prepare_heartbeat)
        first = answered(lambda: HeartbeatTable(shop).write_heartbeat(lambda: NOON))
        os.kill(process.pid, signal.SIGSTOP)
        wait_until(lambda: held(process.pid), SOON, "a standstill")
        with pytest.raises(UnreachableError, match="source:shop: slow"):
            shop.head()
        os.kill(process.pid, signal.SIGCONT)
        assert answered(shop.head).identity == first.head.identity

        mysql.kill()
        with pytest.raises(UnreachableError, match="source:shop: down"):
            shop.head()
        mysql.start()
        answered(shop.head)
        assert (
            HeartbeatTable(shop, known=first.number).write_heartbeat(lambda: NOON).number
            == first.number + 1
        )
