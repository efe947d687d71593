"""A slot that nobody reads, on a real server with little room: told in time, then lost."""

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from demo.postgres import Postgres
from pipeline.lags.retention import BacklogSample, of_backlog
from pipeline.model import Missing
from pipeline.sources.postgres.source import PostgresSource
from pipeline.sources.source import ExaminationScope, FoldedTable, SourceDescription
from tests.pipeline.sources.postgres.test_source_stack import settings

pytestmark = pytest.mark.stack

STEP = timedelta(minutes=10)  # between two looks at it
Look = tuple[str, SourceDescription, set[str]]  # the slot's status; codes of the doctor
NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
SCOPE = ExaminationScope(FoldedTable, timedelta(hours=24), timedelta(seconds=5))


def looks(server: Postgres) -> list[Look]:
    """What is told of a slot, a segment of the log after the other, until it is lost."""
    server.create_database("asked", "CREATE TABLE t (id INT PRIMARY KEY)")
    make = "SELECT pg_create_logical_replication_slot('sluice_shop', 'pgoutput')"
    server.execute(make, database="asked")
    told: list[Look] = []
    with closing(PostgresSource(settings(server), "asked")) as shop:
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
    told = looks(start_postgres(version, max_slot_wal_keep_size="96MB", max_wal_size="64MB"))

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
