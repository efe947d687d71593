"""A real Postgres is asked within limits, in one snapshot, and its log position is what it says."""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Event

import pytest

from demo.postgres import Postgres
from demo.processes import held, wait_until
from pipeline.errors import ConfigError, ProofError, TooManyRowsError, UnreachableError
from pipeline.model import Shard
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.sources.postgres.position import POSITIONS
from pipeline.sources.postgres.replication import Row
from pipeline.sources.postgres.session import PostgresSession
from pipeline.sources.postgres.source import PostgresSource
from pipeline.sources.source import ExaminationScope, FoldedTable, Limits
from tests.patience import SOON, answered
from tests.pipeline.sources.patience import PATIENT

pytestmark = pytest.mark.stack

NOON = datetime(2026, 3, 1, 12, 0, 0, 123_456, tzinfo=UTC)
FEW = Shard("shop", "public.few")
ODD = Shard("shop", '"Odd.sche""ma".ta%b le')


def shop_settings(postgres: Postgres, user: str = "sluice") -> SourceSettings:
    return SourceSettings(
        name="shop",
        host=postgres.host,
        port=postgres.port,
        user=user,
        password=user,
        prefix="shop",
        heartbeat="sluice.beats",
        collector=CollectorSettings("http://127.0.0.1:1", "shop"),
        options={"database": "asked"},
    )


@contextmanager
def source(postgres: Postgres, limits: Limits | None = None) -> Iterator[PostgresSource]:
    with closing(
        PostgresSource(shop_settings(postgres), "asked", limits=limits or PATIENT)
    ) as made:
        yield made


@pytest.fixture(scope="module")
def asked(postgres: Postgres) -> Postgres:
    postgres.create_database(
        "asked",
        "CREATE TABLE few (id BIGINT PRIMARY KEY, t TEXT)",
        "INSERT INTO few SELECT n, 'x' FROM generate_series(1, 1000) n WHERE n % 10 > 0",
        'CREATE SCHEMA "Odd.sche""ma"',
        'CREATE TABLE "Odd.sche""ma"."ta%b le" ("a %b" NUMERIC, c INT, PRIMARY KEY (c, "a %b"))',
        'INSERT INTO "Odd.sche""ma"."ta%b le" VALUES (18446744073709551615, 1)',
        "CREATE VIEW seen AS SELECT * FROM few",
        "CREATE UNLOGGED TABLE scratch (id INT PRIMARY KEY)",
        "CREATE TABLE parted (id INT PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (1) TO (10)",
        "CREATE TABLE loose (id INT)",
        "ANALYZE",
        "INSERT INTO few VALUES (5000, 'x')",
    )
    return postgres


def test_a_head_is_identity_and_log_position(asked: Postgres) -> None:
    with source(asked) as shop:
        before = shop.head()
        asked.execute("UPDATE few SET t = 'y' WHERE id = 5000", database="asked")
        after = shop.head()

    ((system,),) = asked.execute("SELECT system_identifier::text FROM pg_control_system()")
    ((database,),) = asked.execute("SELECT oid::int FROM pg_database WHERE datname = 'asked'")
    assert before.identity == after.identity == f"{system}/1/{database}"
    assert POSITIONS.locate(before.position) < POSITIONS.locate(after.position)


def test_a_fence_stands_at_or_above_its_heartbeat_and_tells_the_callers_time(
    asked: Postgres,
) -> None:
    with source(asked) as shop:
        shop.prepare_heartbeat()
        shop.prepare_heartbeat()
        first, second = (shop.write_heartbeat(42, NOON) for _ in range(2))

    assert (first.number, second.number) == (42, 43)
    assert POSITIONS.locate(first.head.position) < POSITIONS.locate(second.head.position)
    rows = asked.execute("SELECT source, n, at FROM sluice.beats", database="asked")
    assert rows == [("shop", 43, NOON)]


def test_f198_a_lock_on_the_heartbeat_table_is_told_by_its_name(asked: Postgres) -> None:
    limits = replace(PATIENT, statement=timedelta(seconds=1))
    with source(asked) as other, source(asked, limits) as shop:
        shop.prepare_heartbeat()
        with other.session.exclusive() as ask:
            ask("BEGIN")
            ask("LOCK TABLE sluice.beats IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(UnreachableError, match=r"heartbeat table sluice\.beats is locked"):
                shop.write_heartbeat(1, NOON)
            ask("ROLLBACK")
        assert shop.write_heartbeat(1, NOON).number > 0


def test_its_own_clock_is_told_in_utc_whatever_its_time_zone(asked: Postgres) -> None:
    asked.execute("ALTER DATABASE asked SET timezone = 'Asia/Karachi'")
    with source(asked) as shop:
        shop.prepare_heartbeat()
        before, made, after = datetime.now(UTC), shop.write_heartbeat(0, NOON), datetime.now(UTC)

    assert before <= made.source_time <= after
    assert made.source_time.tzinfo is UTC


def test_a_heartbeat_that_may_not_be_made_names_the_statements(asked: Postgres) -> None:
    with closing(PostgresSource(shop_settings(asked, "debezium"), "asked")) as shop:
        shop.settings = replace(shop.settings, heartbeat="else.where")
        with pytest.raises(
            ConfigError, match=r'run as an administrator: CREATE SCHEMA .* "else"\."where"'
        ):
            shop.prepare_heartbeat()


def test_shards_are_tables_whose_rows_are_sent_by_their_own_names(asked: Postgres) -> None:
    with source(asked) as shop:
        every = [shard.name for shard in shop.shards(".*") if not shard.name.startswith("sluice.")]
        one = shop.shards(r"public\.fe.")

    plain = ["public.few", "public.loose", "public.parted_1", "public.scratch"]
    assert every == sorted([ODD.name, *plain])
    assert one == (FEW,)


def test_keys_and_ids_of_odd_names_are_found(asked: Postgres) -> None:
    with source(asked) as shop:
        assert shop.key_columns(FEW) == ("id",)
        assert shop.key_columns(ODD) == ("c", "a %b")
        assert shop.key_columns(Shard("shop", "public.loose")) == ()
        assert (shop.min_id(FEW, "id"), shop.max_id(ODD, "c")) == (1, 1)
        assert shop.max_id(Shard("shop", "public.loose"), "id") is None
        assert shop.ids(FEW, "id", (8, 13), 3) == (8, 9, 11)
        assert shop.count_ids(FEW, "id", ((1, 11), (11, 11), (995, 1001))) == (9, 0, 5)
        assert shop.count_ids(ODD, "a %b", ((0, 2**70),)) == (1,)


@pytest.mark.parametrize(
    ("shard", "column"),
    [
        pytest.param(FEW, "t", id="a text"),
        pytest.param(FEW, "nope", id="no such column"),
        pytest.param(Shard("shop", "public.nope"), "id", id="no such table"),
        pytest.param(Shard("shop", "nope.few"), "id", id="no such schema"),
    ],
)
def test_what_has_no_highest_id_cannot_be_decided(
    asked: Postgres, shard: Shard, column: str
) -> None:
    with source(asked) as shop, pytest.raises(ProofError):
        shop.max_id(shard, column)


def test_a_range_that_is_too_large_is_not_counted(asked: Postgres) -> None:
    with (
        source(asked, replace(PATIENT, rows=100)) as shop,
        pytest.raises(
            TooManyRowsError, match=r"rows of public\.few in one range, limits\.rows is 100"
        ),
    ):
        shop.count_ids(FEW, "id", ((1, 5), (1, 1_000)))


def test_counts_are_of_one_snapshot(asked: Postgres) -> None:
    asked.execute("CREATE TABLE moving (id INT PRIMARY KEY)", database="asked")
    shard = Shard("shop", "public.moving")
    with source(asked) as shop:
        told: PostgresSession = shop.session
        ask = told.ask

        def write_meanwhile(statement: str, *arguments: object) -> list[Row]:
            if statement.startswith("SELECT COUNT") and "moving" in statement:
                asked.execute("INSERT INTO moving SELECT count(*) FROM moving", database="asked")
            return ask(statement, *arguments)

        told.ask = write_meanwhile  # type: ignore[method-assign]
        counts = shop.count_ids(shard, "id", ((0, 10), (0, 10), (0, 10)))

    assert len(set(counts)) == 1
    assert asked.execute("SELECT count(*) FROM moving", database="asked") == [(3,)]


def test_a_statement_is_ended_at_its_limit_and_the_connection_is_not_used_again(
    asked: Postgres,
) -> None:
    own = "SELECT pg_backend_pid() AS pid"
    with source(asked, Limits(statement=timedelta(milliseconds=300))) as shop:
        before = answered(lambda: shop.session.ask(own))
        with pytest.raises(UnreachableError, match="source:shop: slow: "):
            shop.session.ask("SELECT pg_sleep(20)")
        assert answered(lambda: shop.session.ask(own)) != before
        assert answered(lambda: shop.max_id(FEW, "id")) == 5000


def test_a_snapshot_that_nobody_goes_on_with_keeps_no_statement_off_its_tables(
    asked: Postgres,
) -> None:
    asked.execute("CREATE TABLE left_alone (id INT PRIMARY KEY)", database="asked")
    count = "SELECT count(*) FROM public.left_alone"

    def go_on_too_late(told: PostgresSession) -> None:
        with told.snapshot() as ask:
            ask(count)
            alter = "ALTER TABLE left_alone ADD COLUMN c INT"
            asked.execute("SET lock_timeout = '180s'", alter, database="asked")
            ask(count)

    with source(asked, replace(PATIENT, call=timedelta(seconds=2))) as shop:
        with pytest.raises(UnreachableError, match=r"source:shop: \w+: .*idle-in-trans"):
            go_on_too_late(shop.session)
        assert shop.max_id(FEW, "id") == 5000


def test_a_call_of_many_statements_has_a_limit_too(asked: Postgres) -> None:
    with (
        source(asked, replace(PATIENT, call=timedelta(0))) as shop,
        pytest.raises(UnreachableError, match="slow"),
    ):
        shop.count_ids(FEW, "id", ((1, 2),) * 3)


def test_a_loaded_server_is_left_alone(asked: Postgres) -> None:
    with source(asked, replace(PATIENT, running=2)) as shop, ThreadPoolExecutor(4) as pool:
        over = Event()

        def work() -> None:
            with asked.connect() as connection:
                while not over.is_set():
                    connection.execute("SELECT pg_sleep(0.3)")

        busy = [pool.submit(work) for _ in range(4)]
        try:

            def refused() -> bool:
                try:
                    shop.max_id(FEW, "id")
                except UnreachableError as error:
                    return "source:shop: loaded: " in str(error)
                return False

            wait_until(refused, SOON, "refusal under load")
            shop.head()
        finally:
            over.set()
        for one in busy:
            one.result()
        assert shop.max_id(FEW, "id") == 5000


def test_a_server_that_stands_still_is_not_waited_for(
    start_postgres: Callable[..., Postgres],
) -> None:
    own = start_postgres("15")
    own.create_database("asked")
    with source(own, Limits(statement=timedelta(milliseconds=200))) as shop:
        before = answered(shop.head)
        assert own.daemon.process is not None
        ours = "SELECT pid FROM pg_stat_activity WHERE application_name = 'sluice'"
        (backend,) = own.execute(f"{ours} ORDER BY backend_start DESC LIMIT 1")
        os.kill(backend[0], signal.SIGSTOP)
        wait_until(lambda: held(backend[0]), SOON, "a standstill")
        try:
            with pytest.raises(UnreachableError, match="slow"):
                shop.head()
        finally:
            os.kill(backend[0], signal.SIGCONT)
        own.restart()
        assert answered(shop.head).identity == before.identity


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        pytest.param({"password": "wrong"}, ConfigError, "password authentication", id="password"),
        pytest.param({"port": 1}, UnreachableError, "down: ", id="nobody there"),
        pytest.param({"host": "db..example"}, UnreachableError, "down: ", id="no name"),
        pytest.param({"tls": True}, UnreachableError, "down: .*SSL", id="no TLS there"),
    ],
)
def test_who_cannot_be_asked_is_told_with_the_reason(
    asked: Postgres, change: dict[str, object], error: type[Exception], said: str
) -> None:
    given = replace(shop_settings(asked), **change)  # type: ignore[arg-type]
    with (
        closing(PostgresSource(given, "asked")) as shop,
        pytest.raises(error, match=f"source:shop: .*{said}"),
    ):
        shop.head()


def test_a_database_that_is_not_there_is_a_mistake_of_the_config(asked: Postgres) -> None:
    with (
        closing(PostgresSource(shop_settings(asked), "nope")) as shop,
        pytest.raises(ConfigError, match='database "nope" does not exist'),
    ):
        shop.head()


def test_a_table_that_may_not_be_read_is_named_and_the_user_too(asked: Postgres) -> None:
    asked.execute("CREATE USER poor PASSWORD 'poor'")
    with (
        closing(PostgresSource(shop_settings(asked, "poor"), "asked")) as shop,
        pytest.raises(ConfigError, match=r"permission denied .*few.*grant it"),
    ):
        shop.max_id(FEW, "id")
    with closing(PostgresSource(shop_settings(asked, "poor"), "asked")) as shop:
        assert shop.head().position.kind == "postgres"  # which anybody may ask
    asked.execute("DROP USER poor")


def test_a_read_from_which_policies_would_hide_rows_is_an_error(asked: Postgres) -> None:
    asked.execute(
        "CREATE TABLE secured (id INT PRIMARY KEY, tenant TEXT)",
        "INSERT INTO secured VALUES (1, 'sluice'), (2, 'other')",
        "ALTER TABLE secured ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY own ON secured USING (tenant = current_user)",
        database="asked",
    )
    shard = Shard("shop", "public.secured")
    scope = ExaminationScope(FoldedTable, timedelta(hours=24), timedelta(seconds=5))
    try:
        with (
            source(asked) as shop,
            pytest.raises(ConfigError, match=r'secured.*run ALTER ROLE "sluice" BYPASSRLS'),
        ):
            shop.count_ids(shard, "id", ((0, 10),))
        with source(asked) as shop:
            found = [one.where for one in shop.examine(scope) if one.code == "row_security"]
        asked.execute("ALTER ROLE sluice BYPASSRLS")
        with source(asked) as shop:
            assert shop.count_ids(shard, "id", ((0, 10),)) == (2,)
    finally:
        asked.execute("ALTER ROLE sluice NOBYPASSRLS")
        asked.execute("DROP TABLE secured", database="asked")

    assert found == ["table public.secured"]


def test_rows_of_tables_that_inherit_from_it_are_not_its_own(asked: Postgres) -> None:
    asked.execute(
        "CREATE TABLE elder (id INT PRIMARY KEY, made TIMESTAMPTZ)",
        "CREATE TABLE younger () INHERITS (elder)",
        "INSERT INTO elder VALUES (1, '2026-03-01 12:00Z')",
        "INSERT INTO younger VALUES (2, '2026-03-01 12:00Z')",
        "INSERT INTO parted VALUES (3)",
        database="asked",
    )
    elder, parted = Shard("shop", "public.elder"), Shard("shop", "public.parted")
    scope = ExaminationScope(FoldedTable, timedelta(hours=24), timedelta(seconds=5))
    span = (NOON - timedelta(days=1), NOON + timedelta(days=1))
    try:
        with source(asked) as shop:
            assert shop.count_ids(elder, "id", ((0, 10),)) == (1,)
            assert shop.ids(elder, "id", (0, 10), 5) == (1,)
            assert [one.rows for one in shop.tallies(elder, "made", [span], [])] == [1]
            assert shop.count_ids(parted, "id", ((0, 10),)) == (1,), "leaves are its own"
            found = [one.where for one in shop.examine(scope) if one.code == "inherited"]
    finally:
        asked.execute("DELETE FROM parted", "DROP TABLE younger, elder", database="asked")

    assert found == ["table public.elder"]


def test_columns_are_those_of_the_catalogue(asked: Postgres) -> None:
    with source(asked) as shop:
        found = shop.columns(ODD)
        assert [(one.name, str(one)) for one in found] == [("a %b", "NUMERIC"), ("c", "INT4")]
        assert shop.columns(Shard("shop", "public.nope")) == ()


GROWN = (
    "CREATE TABLE grown (id INT PRIMARY KEY, made TIMESTAMPTZ DEFAULT now(), kind INT DEFAULT 1)",
    "INSERT INTO grown VALUES (1)",
    "ALTER TABLE grown ADD COLUMN plain TEXT",
    "ALTER TABLE grown ADD COLUMN five INT DEFAULT 5",
    "ALTER TABLE grown ADD COLUMN at TIMESTAMPTZ DEFAULT now()",
    "ALTER TABLE grown ADD COLUMN gone TEXT DEFAULT 'x'",
    "ALTER TABLE grown ALTER COLUMN gone DROP DEFAULT",
    "ALTER TABLE grown ADD COLUMN filled TIMESTAMPTZ NOT NULL DEFAULT now()",
    "CREATE TABLE parted (id INT PRIMARY KEY) PARTITION BY RANGE (id)",
    "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (1) TO (10)",
    "CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (10) TO (20)",
    "INSERT INTO parted VALUES (1), (11)",
    "ALTER TABLE parted ADD COLUMN at TIMESTAMPTZ DEFAULT now()",
    "ALTER PUBLICATION sluice SET (publish_via_partition_root = true)",
)


def test_columns_whose_default_filled_old_rows_are_told(postgres: Postgres) -> None:
    postgres.create_database("grown", *GROWN)
    with closing(PostgresSource(shop_settings(postgres), "grown")) as shop:
        told = shop.describe({"public.grown", "public.parted", "public.parted_1"})
        before = told.filled
        postgres.execute(
            "ALTER TABLE grown ADD COLUMN id2 UUID DEFAULT gen_random_uuid()", database="grown"
        )
        after = shop.describe({"public.grown"}).filled

    assert "a default in at, gone," in before["public.grown"]
    assert "a default in at," in before["public.parted"]
    assert {*told.unlogged} == {"public.parted_1"}  # its changes are the root's
    assert "a default in made, at, id2," in after["public.grown"]  # all rows were written anew


DATED = (
    "CREATE TABLE by_day (id INT PRIMARY KEY, at TIMESTAMPTZ NOT NULL, day DATE NOT NULL)",
    "CREATE INDEX ON by_day (at, id)",
    "CREATE INDEX ON by_day (day)",
    "CREATE TABLE second (id INT PRIMARY KEY, at TIMESTAMP NOT NULL)",
    "CREATE INDEX ON second (id, at)",
    "CREATE TABLE nullable (id INT PRIMARY KEY, at TIMESTAMP)",
    "CREATE INDEX ON nullable (at)",
    "CREATE TABLE partial (id INT PRIMARY KEY, at TIMESTAMP NOT NULL)",
    "CREATE INDEX ON partial (at) WHERE id > 9",
    "CREATE TABLE computed (id INT PRIMARY KEY, at TIMESTAMP NOT NULL)",
    "CREATE INDEX ON computed (date_trunc('day', at))",
    "CREATE TABLE blocks (id INT PRIMARY KEY, at TIMESTAMP NOT NULL)",
    "CREATE INDEX ON blocks USING brin (at)",
    "CREATE TABLE parted (id INT, at TIMESTAMP NOT NULL) PARTITION BY RANGE (at)",
    "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')",
    "CREATE INDEX ON parted (at)",
)


def test_columns_of_times_that_an_index_begins_with_are_told(postgres: Postgres) -> None:
    postgres.create_database("dated", *DATED)
    tables = ("by_day", "second", "nullable", "partial", "computed", "blocks", "parted_1")
    with closing(PostgresSource(shop_settings(postgres), "dated")) as shop:
        told = shop.describe({f"public.{name}" for name in tables}).dated

    assert told == {"public.by_day": ("at", "day"), "public.parted_1": ("at",)}


POORLY = (
    "DROP PUBLICATION sluice",
    "CREATE TABLE sent (id INT PRIMARY KEY)",
    "CREATE TABLE picked (id INT PRIMARY KEY, a INT)",
    "CREATE TABLE unsent (id INT PRIMARY KEY)",
    "CREATE TABLE bare (id INT)",
    "CREATE UNLOGGED TABLE scratch (id INT PRIMARY KEY)",
    "CREATE TABLE by_index (id INT PRIMARY KEY, a INT NOT NULL)",
    "CREATE TABLE parted (id INT PRIMARY KEY) PARTITION BY RANGE (id)",
    "CREATE UNIQUE INDEX by_a ON by_index (a)",
    "ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_a",
    "CREATE PUBLICATION sluice FOR TABLE sent, picked WHERE (a > 5), bare, by_index"
    " WITH (publish = 'insert, update, delete')",
    "SELECT pg_create_logical_replication_slot('sluice_shop', 'pgoutput')",
)


def test_the_doctor_finds_in_a_real_catalogue_what_keeps_tables_from_being_sent(
    postgres: Postgres,
) -> None:
    postgres.create_database("poorly", *POORLY)
    scope = ExaminationScope(FoldedTable, timedelta(hours=24), timedelta(seconds=5))
    given = shop_settings(postgres)
    try:
        with closing(PostgresSource(given, "poorly")) as shop:
            found = {(one.code, one.where) for one in shop.examine(scope)}
            said = shop.describe(
                {f"public.{one}" for one in ("sent", "picked", "gone", "parted", "by_index")}
            )
    finally:
        postgres.execute("SELECT pg_drop_replication_slot('sluice_shop')")

    assert found == {
        ("fsync", "source:shop"),
        ("publication", "source:shop"),
        ("slot_idle", "source:shop"),
        ("max_slot_wal_keep_size", "source:shop"),
        ("unpublished", "table public.picked"),
        ("unpublished", "table public.unsent"),
        ("unlogged", "table public.scratch"),
        ("no_key", "table public.bare"),
        ("replica_identity", "table public.bare"),
        ("replica_identity", "table public.by_index"),
        ("sent_elsewhere", "table public.parted"),
    }
    assert said.backlog is not None
    assert (said.backlog.name, said.backlog.left) == ("sluice_shop", None)
    assert 0 <= said.backlog.held < said.backlog.written
    assert said.unlogged == {
        "public.sent": "publication sluice leaves out every truncate",
        "public.picked": "publication sluice sends only rows where (a > 5)",
        "public.by_index": "publication sluice leaves out every truncate",
        "public.parted": "it is partitioned, and publication sluice sends each partition's changes"
        " under that one's name",
    }
    assert said.hidden == frozenset()


def test_f187_the_doctor_names_columns_that_cannot_be_compared(postgres: Postgres) -> None:
    postgres.create_database(
        "uncompared",
        "CREATE TABLE odd (id INT PRIMARY KEY, paid MONEY, at TIMESTAMPTZ, place POINT, name TEXT)",
        "CREATE TABLE plain (id INT PRIMARY KEY, name TEXT)",
    )
    scope = ExaminationScope(FoldedTable, timedelta(days=1), timedelta(seconds=5))
    with closing(PostgresSource(shop_settings(postgres), "uncompared")) as source:
        told = {one.where: one.what for one in source.examine(scope) if one.code == "unverifiable"}

    assert list(told) == ["table public.odd"]
    assert all(f"{name}: " in told["table public.odd"] for name in ("paid", "at", "place"))
    assert "name: " not in told["table public.odd"]
