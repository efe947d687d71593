"""Tests that a real slot is recognized, and one that was created again under its name is not."""

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from demo.postgres import Postgres
from pipeline.model import RetainedLog
from pipeline.sources.postgres.source import PostgresSource
from pipeline.sources.source import explain_replaced_log
from tests.pipeline.sources.postgres.test_source_stack import shop_settings

pytestmark = pytest.mark.stack

MAKE = "SELECT pg_create_logical_replication_slot('kept', 'pgoutput')"
DROP = "SELECT pg_drop_replication_slot('kept')"
READ = (
    "SELECT count(*) FROM pg_logical_slot_get_binary_changes("
    "'kept', NULL, NULL, 'proto_version', '1', 'publication_names', 'sluice')"
)
WRITE = "INSERT INTO t DEFAULT VALUES"


class Watched:
    """Database *name* of a server, and its slot."""

    def __init__(self, server: Postgres, name: str) -> None:
        self.server, self.name = server, name
        server.create_database(name, "CREATE TABLE t (id SERIAL PRIMARY KEY)")
        self.do(MAKE, *[WRITE] * 5, READ)

    def do(self, *statements: str) -> None:
        self.server.execute(*statements, database=self.name)

    def look(self) -> RetainedLog:
        """As another process would."""
        with closing(PostgresSource(shop_settings(self.server), self.name, slot="kept")) as source:
            found = source.sends().keeper
        assert found is not None
        return found


@pytest.fixture
def watched(postgres: Postgres) -> Iterator[Watched]:
    made = Watched(postgres, "keeper")
    yield made
    made.do(DROP)
    postgres.execute("DROP DATABASE keeper WITH (FORCE)")


def test_it_is_known_again_however_far_it_went_on(watched: Watched) -> None:
    known = watched.look()
    assert explain_replaced_log(known, watched.look()) is None

    for _ in range(3):
        watched.do(WRITE, "CHECKPOINT", WRITE, READ)

    later = watched.look()
    assert explain_replaced_log(known, later) is None
    assert later.begins != known.begins


@pytest.mark.parametrize(
    "between",
    [
        pytest.param((), id="while nothing was written"),
        pytest.param((WRITE,), id="with a row between"),
        pytest.param((WRITE, MAKE, DROP, WRITE), id="twice"),
    ],
)
@pytest.mark.parametrize("after", [(), (WRITE, READ), (*[WRITE] * 9, "CHECKPOINT", READ)])
def test_one_that_was_made_anew_is_told(
    watched: Watched, between: tuple[str, ...], after: tuple[str, ...]
) -> None:
    """Though it may have counted more than the one before, when it is looked at."""
    known = watched.look()

    watched.do(DROP, *between, MAKE, *after)

    assert "created again: it retains nothing below" in (
        explain_replaced_log(known, watched.look()) or ""
    )


def test_a_crash_makes_no_other_slot_of_it(start_postgres: Callable[..., Postgres]) -> None:
    crashing = Watched(start_postgres("18"), "keeper")
    known = crashing.look()

    crashing.server.restart()
    crashing.do(WRITE, "CHECKPOINT", WRITE, READ)

    assert explain_replaced_log(known, crashing.look()) is None
