"""Which tables a real publication sends whole; covers pipeline/sources/postgres/slots.py."""

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from demo.postgres import Postgres
from pipeline.finding import Demand, Effect
from pipeline.lags.retention import BacklogSample, of_backlog
from pipeline.model import CaptureScope, Missing, ShardId
from pipeline.sources.postgres.doctor import COLUMNS, NO_IDENTITY, OTHER_INDEX, ROW_SECURITY, ROWS
from pipeline.sources.postgres.doctor import TABLE_DEMANDS as DEMANDS
from pipeline.sources.postgres.session import PostgresSession
from pipeline.sources.postgres.slots import PublishedTables
from pipeline.sources.postgres.source import PostgresSource
from pipeline.sources.source import ExaminationScope, FoldedTable, SourceDescription
from tests.pipeline.sources.postgres.test_source_stack import shop_settings

pytestmark = pytest.mark.stack

TABLES = ("public.a", "public.b", "public.scratch", "od.p", "od.p_1", '"Odd.x".Ta b')


@pytest.fixture(scope="module")
def published(postgres: Postgres) -> Postgres:
    postgres.create_database(
        "published",
        "DROP PUBLICATION sluice",
        "CREATE TABLE a (id INT PRIMARY KEY, t TEXT)",
        "CREATE TABLE b (id INT PRIMARY KEY)",
        "CREATE UNLOGGED TABLE scratch (id INT PRIMARY KEY)",
        "CREATE SCHEMA od",
        "CREATE TABLE od.p (id INT PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE od.p_1 PARTITION OF od.p FOR VALUES FROM (1) TO (10)",
        'CREATE SCHEMA "Odd.x"',
        'CREATE TABLE "Odd.x"."Ta b" (id INT PRIMARY KEY)',
    )
    return postgres


def capture_after(postgres: Postgres, *statements: str) -> tuple[CaptureScope, set[str]]:
    """What is captured after the *statements*."""
    postgres.execute(*statements, database="published")
    with closing(PostgresSource(shop_settings(postgres), "published")) as source:
        told = source.sends()
    return told, {name for name in TABLES if told(ShardId.parse(name))}


PLAIN = {"public.a", "public.b", '"Odd.x".Ta b'}


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        pytest.param("FOR ALL TABLES", {*PLAIN, "od.p_1"}, id="all"),
        pytest.param(
            "FOR ALL TABLES WITH (publish_via_partition_root)", {*PLAIN, "od.p"}, id="all, by roots"
        ),
        pytest.param('FOR TABLE a, "Odd.x"."Ta b"', {"public.a", '"Odd.x".Ta b'}, id="a list"),
        pytest.param("FOR TABLE od.p", {"od.p_1"}, id="a root is its leaves"),
        pytest.param(
            "FOR TABLE od.p WITH (publish_via_partition_root)", {"od.p"}, id="a root is itself"
        ),
        pytest.param(
            "FOR TABLE od.p_1 WITH (publish_via_partition_root)", {"od.p_1"}, id="a leaf alone"
        ),
        pytest.param("FOR TABLES IN SCHEMA od", {"od.p_1"}, id="a schema"),
        pytest.param("FOR TABLES IN SCHEMA od, TABLE a", {"od.p_1", "public.a"}, id="both"),
        pytest.param("FOR TABLE a WHERE (id > 5), b", {"public.b"}, id="some rows are none"),
        pytest.param("FOR TABLE a (id), b", {"public.a", "public.b"}, id="some columns"),
        pytest.param(
            "FOR ALL TABLES WITH (publish = 'insert, update, delete')", set(), id="no truncate"
        ),
        pytest.param(None, set(), id="no publication"),
    ],
)
def test_what_is_sent_whole_is_captured(
    published: Postgres, made: str | None, expected: set[str]
) -> None:
    statements = ["DROP PUBLICATION IF EXISTS sluice"]
    statements += [f"CREATE PUBLICATION sluice {made}"] if made else []

    told, found = capture_after(published, *statements)

    assert found == expected
    assert told.known
    assert told.said_by == "publication sluice"


def test_its_text_is_another_once_a_table_is_taken_out(published: Postgres) -> None:
    anew = ("DROP PUBLICATION IF EXISTS sluice", "CREATE PUBLICATION sluice FOR TABLE a, b")
    before, _ = capture_after(published, *anew)
    same, _ = capture_after(published)
    after, left = capture_after(published, "ALTER PUBLICATION sluice DROP TABLE b")

    assert before.text == same.text != after.text
    assert left == {"public.a"}


def looks(postgres: Postgres, *statements: tuple[str, ...]) -> list[set[str]]:
    """Which tables are told as replaced of late, each time the next of *statements* were run."""
    found, now = [], 0.0
    with closing(PostgresSession(shop_settings(postgres), "published")) as session:
        tables = PublishedTables(session, "sluice", lambda: now)
        tables.capture()
        for few in statements:
            postgres.execute(*few, database="published")
            now += 1
            found.append({str(one) for one in tables.capture().after(now - 1).replaced})
    return found


MAKE = "CREATE TABLE c (id INT PRIMARY KEY)"
PART = "CREATE TABLE od.p_2 PARTITION OF od.p FOR VALUES FROM (10) TO (20)"


ROOTED = (
    "DROP PUBLICATION IF EXISTS sluice",
    "CREATE PUBLICATION sluice FOR ALL TABLES WITH (publish_via_partition_root)",
    "DROP TABLE IF EXISTS f, f_2",
    "CREATE TABLE f (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id)",
    "CREATE TABLE f_1 PARTITION OF f FOR VALUES FROM (1) TO (10)",
    "CREATE TABLE f_2 PARTITION OF f FOR VALUES FROM (10) TO (20)",
    "INSERT INTO f SELECT n, n FROM generate_series(1, 19) n",
)
REWRITE = "ALTER TABLE {} ALTER COLUMN v TYPE int USING v + 1"
HARMLESS = (
    "VACUUM FULL {}",
    "CLUSTER {0} USING {0}_pkey",
    "ALTER TABLE {} SET TABLESPACE pg_default",
    "REINDEX TABLE {}",
    "ANALYZE {}",
    "ALTER TABLE {} ADD COLUMN more INT",
)


def test_f106_truncate_of_one_partition_under_its_roots_name_is_noticed(
    published: Postgres,
) -> None:
    published.execute(*ROOTED, database="published")

    found = looks(
        published,
        ("INSERT INTO f VALUES (0 + 1, 1) ON CONFLICT DO NOTHING",),
        ("TRUNCATE f_1",),
        ("BEGIN", "TRUNCATE f_2", "INSERT INTO f VALUES (11, 0)", "COMMIT"),
        ("INSERT INTO f VALUES (1, 1)",),
    )

    assert found == [set(), {"public.f"}, {"public.f"}, set()]


def test_f106_what_gives_a_partition_a_new_file_with_its_old_rows_is_none(
    published: Postgres,
) -> None:
    published.execute(*ROOTED, database="published")

    found = looks(
        published,
        ("UPDATE f SET v = 0 WHERE id = 1",),
        ("VACUUM FULL f_1", "VACUUM FULL f_2"),
        ("CLUSTER f_1 USING f_1_pkey",),
        ("REINDEX TABLE f_1",),
        ("TRUNCATE f_1",),
    )

    assert found == [set(), set(), set(), set(), {"public.f"}]


def test_f107_values_that_a_statement_computes_anew_are_noticed(published: Postgres) -> None:
    published.execute(
        "DROP PUBLICATION IF EXISTS sluice",
        "CREATE PUBLICATION sluice FOR ALL TABLES",
        "DROP TABLE IF EXISTS r",
        "CREATE TABLE r (id INT PRIMARY KEY, v INT)",
        "INSERT INTO r SELECT n, n FROM generate_series(1, 100) n",
        database="published",
    )

    harmless = looks(published, *((one.format("r"),) for one in HARMLESS))
    emptied = looks(published, ("TRUNCATE r",), ("BEGIN", "TRUNCATE r", REFILL, "COMMIT"))
    rewritten = looks(published, (REWRITE.format("r"),), ("SELECT 1",))
    volatile = looks(published, ("ALTER TABLE r ADD COLUMN at FLOAT DEFAULT random()",))

    assert harmless == [set()] * len(HARMLESS)
    assert emptied == [set(), set()]
    assert rewritten == [{"public.r"}, set()]
    assert volatile == [{"public.r"}]


REFILL = "INSERT INTO r SELECT n, n FROM generate_series(1, 100) n"


@pytest.mark.parametrize(
    ("statements", "differs"),
    [
        pytest.param(("INSERT INTO r VALUES (1000, 1)", "TRUNCATE r"), set(), id="sent"),
        pytest.param(("VACUUM FULL r",), set(), id="vacuumed"),
        pytest.param(("CREATE TABLE came (id INT PRIMARY KEY)",), set(), id="one more"),
        pytest.param(
            ("DROP TABLE r", "CREATE TABLE r (id INT PRIMARY KEY, v INT)"), {"public.r"}, id="anew"
        ),
        pytest.param((REWRITE.format("r"),), {"public.r"}, id="rewritten"),
        pytest.param(("TRUNCATE f_1",), {"public.f"}, id="a partition emptied"),
        pytest.param(
            ("ALTER TABLE f DETACH PARTITION f_2",), {"public.f", "public.f_2"}, id="detached"
        ),
        pytest.param(("ALTER TABLE r RENAME TO s",), {"public.r", "public.s"}, id="renamed"),
    ],
)
def test_f112_what_changed_while_nobody_looked_differs_from_what_was_remembered(
    published: Postgres, statements: tuple[str, ...], differs: set[str]
) -> None:
    published.execute(
        *ROOTED,
        "DROP TABLE IF EXISTS r, s, came",
        "CREATE TABLE r (id INT PRIMARY KEY, v INT)",
        "INSERT INTO r SELECT n, n FROM generate_series(1, 100) n",
        database="published",
    )
    before, _ = capture_after(published)

    after, _ = capture_after(published, *statements)

    assert before.differs(before.remembered) == frozenset()
    assert {str(one) for one in after.differs(before.remembered)} == differs
    assert after.differs(after.remembered) == frozenset()


def test_f112_an_entry_that_was_taken_out_and_put_in_while_nobody_looked_differs(
    published: Postgres,
) -> None:
    anew = ("DROP PUBLICATION IF EXISTS sluice", "CREATE PUBLICATION sluice FOR TABLE a, b")
    before, _ = capture_after(published, *anew)

    after, _ = capture_after(
        published, "ALTER PUBLICATION sluice DROP TABLE b", "ALTER PUBLICATION sluice ADD TABLE b"
    )

    assert {str(one) for one in after.differs(before.remembered)} == {"public.b"}


def test_what_stands_under_a_name_is_told_once_it_is_another(published: Postgres) -> None:
    published.execute(
        "DROP PUBLICATION IF EXISTS sluice",
        "CREATE PUBLICATION sluice FOR ALL TABLES",
        database="published",
    )

    found = looks(
        published,
        (MAKE,),
        ("INSERT INTO c VALUES (1)", "TRUNCATE c"),
        ("ALTER TABLE c ADD COLUMN x INT",),
        ("DROP TABLE c", MAKE),
        ("CREATE TABLE d (id INT PRIMARY KEY)",),
        ("ALTER TABLE c RENAME TO e", "ALTER TABLE d RENAME TO c"),
        ("DROP TABLE c, e",),
        ("VACUUM FULL a",),
    )

    assert found == [
        set(),
        set(),
        set(),
        {"public.c"},
        set(),
        {"public.c", "public.d", "public.e"},
        {"public.c", "public.e"},
        set(),
    ]


def test_a_root_that_rows_come_to_or_leave_with_a_partition_is_told(published: Postgres) -> None:
    published.execute(
        "DROP PUBLICATION IF EXISTS sluice",
        "CREATE PUBLICATION sluice FOR ALL TABLES WITH (publish_via_partition_root)",
        "CREATE TABLE apart (id INT PRIMARY KEY)",
        database="published",
    )

    found = looks(
        published,
        (PART,),
        ("ALTER TABLE od.p ATTACH PARTITION apart FOR VALUES FROM (30) TO (40)",),
        ("ALTER TABLE od.p DETACH PARTITION apart",),
        ("DROP TABLE od.p_2", "DROP TABLE apart"),
    )

    assert found == [
        set(),
        {"od.p", "public.apart"},
        {"od.p", "public.apart"},
        {"od.p", "public.apart"},
    ]


def test_a_table_that_is_taken_out_and_put_in_again_between_two_looks_is_told(
    published: Postgres,
) -> None:
    published.execute(
        "DROP PUBLICATION IF EXISTS sluice",
        "CREATE PUBLICATION sluice FOR TABLE a, b",
        database="published",
    )

    again = ("ALTER PUBLICATION sluice DROP TABLE b", "ALTER PUBLICATION sluice ADD TABLE b")
    found = looks(published, again, ("ALTER PUBLICATION sluice ADD TABLE od.p",), ("SELECT 1",))

    assert found == [{"public.b"}, set(), set()]


TABLE_H = (
    "DROP TABLE IF EXISTS h",
    "CREATE TABLE h (id INT PRIMARY KEY, k INT NOT NULL, t TEXT)",
    "CREATE UNIQUE INDEX h_k ON h (k)",
    "DROP PUBLICATION IF EXISTS sluice",
    "CREATE PUBLICATION sluice FOR TABLE h, a",
)
HARMS = {
    ROWS: ("ALTER PUBLICATION sluice SET TABLE h WHERE (id > 5), a", Effect.DROPS),
    COLUMNS: ("ALTER PUBLICATION sluice SET TABLE h (id, k), a", Effect.REWRITES),
    OTHER_INDEX: ("ALTER TABLE h REPLICA IDENTITY USING INDEX h_k", Effect.DROPS),
    NO_IDENTITY: ("ALTER TABLE h REPLICA IDENTITY NOTHING", Effect.DELAYS),
}


# That of row-level security needs a reader of the slot: test_f102 in test_hazards_stack.py.
@pytest.mark.parametrize("demand", HARMS, ids=[one.name for one in HARMS])
def test_f102_what_a_publication_leaves_out_is_told_at_the_next_look(
    published: Postgres, demand: Demand
) -> None:
    statement, effect = HARMS[demand]

    before, _ = capture_after(published, *TABLE_H)
    told, _ = capture_after(published, statement)

    assert {*DEMANDS} - {*HARMS} == {ROW_SECURITY}
    assert before.hazards == ()
    (found,) = told.hazards
    assert found.what.startswith(f"{demand.name} on public.h: ")
    assert found.effect is effect is demand.effect
    assert (found.affects("public.h"), found.affects("public.a")) == (True, False)


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param(["ALTER TABLE h REPLICA IDENTITY FULL"], id="whole rows"),
        pytest.param(["ALTER TABLE h REPLICA IDENTITY USING INDEX h_pkey"], id="its own key"),
        pytest.param(
            [
                "CREATE UNIQUE INDEX h_both ON h (k, id)",
                "ALTER TABLE h REPLICA IDENTITY USING INDEX h_both",
            ],
            id="an index with the key",
        ),
        pytest.param(
            ["ALTER PUBLICATION sluice DROP TABLE h", "ALTER TABLE h REPLICA IDENTITY NOTHING"],
            id="of a table that is not published",
        ),
        pytest.param(["ALTER PUBLICATION sluice SET TABLE h (t, k, id), a"], id="every column"),
    ],
)
def test_f102_what_leaves_nothing_out_is_none(published: Postgres, statements: list[str]) -> None:
    told, _ = capture_after(published, *TABLE_H, *statements)

    assert told.hazards == ()


STEP = timedelta(minutes=10)  # between two slot_looks at it
Look = tuple[str, SourceDescription, set[str]]  # the slot's status; codes of the doctor
NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
SCOPE = ExaminationScope(FoldedTable, timedelta(hours=24), timedelta(seconds=5))


def slot_looks(server: Postgres) -> list[Look]:
    """What is told of a slot, a segment of the log after the other, until it is lost."""
    server.create_database("asked", "CREATE TABLE t (id INT PRIMARY KEY)")
    make = "SELECT pg_create_logical_replication_slot('sluice_shop', 'pgoutput')"
    server.execute(make, database="asked")
    told: list[Look] = []
    with closing(PostgresSource(shop_settings(server), "asked")) as shop:
        while not told or (told[-1][0] != "lost" and len(told) < 12):
            described = shop.describe({"public.t"})
            status = server.execute("SELECT wal_status FROM pg_replication_slots")[0][0]
            codes = {one.code for one in shop.examine(SCOPE)}
            told.append((status, described, codes))
            server.execute("INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING", database="asked")
            server.execute("SELECT pg_switch_wal()", "CHECKPOINT")
    return told


@pytest.mark.parametrize("version", ["15", "18"])
def test_a_slot_that_is_left_behind_pages_in_time_and_is_told_once_it_is_lost(
    start_postgres: Callable[..., Postgres], version: str
) -> None:
    told = slot_looks(start_postgres(version, max_slot_wal_keep_size="96MB", max_wal_size="64MB"))

    order = list(dict.fromkeys(status for status, _, _ in told))
    assert (order[0], order[-1]) == ("reserved", "lost")
    kept = [one for status, one, _ in told if status in ("reserved", "extended")]
    lefts = [one.backlog.left for one in kept if one.backlog is not None]
    assert len(lefts) == len(kept) >= 4
    assert all(left is not None for left in lefts)
    assert lefts == sorted(lefts, key=lambda left: left or 0, reverse=True)
    assert [one.kept for one in kept] == [None] * len(kept)

    samples = [
        BacklogSample(NOON + STEP * number, one.backlog)
        for number, one in enumerate(kept)
        if one.backlog is not None
    ]
    tight = [of_backlog(samples[:most]).tight(samples[most - 1].at) for most in (1, len(samples))]
    assert tight == [False, True]  # at first nobody knows how fast it grows
    assert (of_backlog(samples).left(samples[-1].at) or STEP) > timedelta()

    _, last, codes = told[-1]
    assert isinstance(last.kept, Missing)
    assert "slot sluice_shop is lost" in last.kept.why
    assert last.backlog is not None
    assert last.backlog.left == 0
    assert "slot_lost" in codes
    assert "slot_lost" not in told[0][2]
