"""Which tables a real publication sends whole; covers pipeline/sources/postgres/publication.py."""

from contextlib import closing

import pytest

from demo.postgres import Postgres
from pipeline.capture import Capture
from pipeline.model import ShardId
from pipeline.sources.postgres.publication import PublishedTables
from pipeline.sources.postgres.session import PostgresSession
from pipeline.sources.postgres.source import PostgresSource
from tests.pipeline.sources.postgres.test_source_stack import settings

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


def sent(postgres: Postgres, *statements: str) -> tuple[Capture, set[str]]:
    """What is captured after the *statements*."""
    postgres.execute(*statements, database="published")
    with closing(PostgresSource(settings(postgres), "published")) as source:
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

    told, found = sent(published, *statements)

    assert found == expected
    assert told.known
    assert told.said_by == "publication sluice"


def test_its_text_is_another_once_a_table_is_taken_out(published: Postgres) -> None:
    anew = ("DROP PUBLICATION IF EXISTS sluice", "CREATE PUBLICATION sluice FOR TABLE a, b")
    before, _ = sent(published, *anew)
    same, _ = sent(published)
    after, left = sent(published, "ALTER PUBLICATION sluice DROP TABLE b")

    assert before.text == same.text != after.text
    assert left == {"public.a"}


def looks(postgres: Postgres, *statements: tuple[str, ...]) -> list[set[str]]:
    """Which tables are told as replaced of late, each time the next of *statements* were run."""
    found, now = [], 0.0
    with closing(PostgresSession(settings(postgres), "published")) as session:
        tables = PublishedTables(session, "sluice", lambda: now)
        tables.capture()
        for few in statements:
            postgres.execute(*few, database="published")
            now += 1
            found.append({str(one) for one in tables.capture().after(now - 1).replaced})
    return found


MAKE = "CREATE TABLE c (id INT PRIMARY KEY)"
PART = "CREATE TABLE od.p_2 PARTITION OF od.p FOR VALUES FROM (10) TO (20)"


def test_what_stands_under_a_name_is_told_once_it_is_another(published: Postgres) -> None:
    published.execute(
        "DROP PUBLICATION IF EXISTS sluice",
        "CREATE PUBLICATION sluice FOR ALL TABLES",
        database="published",
    )

    found = looks(
        published,
        (MAKE,),
        ("INSERT INTO c VALUES (1)", "TRUNCATE c", "ALTER TABLE c ADD COLUMN x INT"),
        ("DROP TABLE c", MAKE),
        ("CREATE TABLE d (id INT PRIMARY KEY)",),
        ("ALTER TABLE c RENAME TO e", "ALTER TABLE d RENAME TO c"),
        ("DROP TABLE c, e",),
        ("VACUUM FULL a",),
    )

    assert found == [
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
