"""Which tables a real publication sends whole; covers pipeline/sources/postgres/publication.py."""

from contextlib import closing

import pytest

from demo.postgres import Postgres
from pipeline.capture import Capture
from pipeline.model import ShardId
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
