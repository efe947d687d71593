"""A check asks a hot standby: it passes, names a loss, and never rules on rows that are too old."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from checks.model import Outcome, Ruling
from checks.probes.range_counts import RangeCounts
from demo.ports import free_ports
from demo.postgres import Postgres
from demo.processes import wait_until
from pipeline.errors import ProofError
from pipeline.model import Op, Shard
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.sources.budget import BudgetedQueries, SourceBudget
from pipeline.sources.postgres.row_reader import PostgresRowReader
from pipeline.sources.postgres.source import PostgresSource
from pipeline.sources.replica import ReplicaChoice
from pipeline.sources.row_reader import RowsAsked
from pipeline.sources.sql import Ask
from tests.checks.probes.test_postgres_counts_stack import RealSource
from tests.checks.world_fake import ONE, TWO, FakeWorld, in_step
from tests.patience import SOON
from tests.pipeline.sources.patience import PATIENT

pytestmark = pytest.mark.stack
Pair = tuple[Postgres, Postgres]
NAME = "range_counts"
PROBE = RangeCounts(block_rows=16, newest=1, rotating=2, leaf=4, suspects=20)


@pytest.fixture(scope="module")
def pair(server_folder: Path) -> Iterator[Pair]:
    """A primary and its standby, which cancels a read that replay has waited for."""
    ports = free_ports(2)
    options = {"max_standby_streaming_delay": "100ms"}
    primary = Postgres(server_folder / "standby-primary", ports[0], "18", options)
    primary.start()
    try:
        primary.create_database(
            "counted",
            *(f"CREATE SCHEMA shop_{n:02}" for n in (0, 1)),
            *(f"CREATE TABLE shop_{n:02}.orders (id BIGINT PRIMARY KEY)" for n in (0, 1)),
        )
        with closing(source(primary)) as made:
            made.prepare_heartbeat()
        standby = primary.replica(server_folder / "standby", ports[1])
        yield primary, standby
        standby.remove()
    finally:
        primary.remove()


def settings(server: Postgres, **options: str) -> SourceSettings:
    return SourceSettings(
        "shop",
        server.host,
        server.port,
        "sluice",
        CollectorSettings("http://127.0.0.1:1", "shop"),
        "shop",
        password="sluice",
        options={"database": "counted", **options},
    )


def source(server: Postgres, kind: type[PostgresSource] = PostgresSource) -> PostgresSource:
    return kind(settings(server), "counted", limits=PATIENT)


@dataclass
class Standby(RealSource):
    """Rows are written to the primary, and asked of the standby."""

    choice: ReplicaChoice | None = None

    def write_heartbeat(self) -> None:
        assert self.choice is not None
        super().write_heartbeat()
        self.choice.primary.write_heartbeat(0, datetime.now(UTC))


@pytest.fixture
def world(pair: Pair) -> Iterator[Standby]:
    with asking(pair, PostgresSource) as made:
        yield made


@contextmanager
def asking(pair: Pair, kind: type[PostgresSource]) -> Iterator[Standby]:
    """A table of 63 rows in each shard, in step; its standby is of *kind*."""
    pair[0].execute("TRUNCATE shop_00.orders, shop_01.orders", database="counted")
    with closing(source(pair[0])) as primary, closing(source(pair[1], kind)) as replica:
        choice = ReplicaChoice(primary, replica, "standby", SOON)
        queries = BudgetedQueries(primary, choice.choose, SourceBudget("shop", PATIENT))
        made = Standby(server=pair[0], asked_of=cast("Any", queries), choice=choice)
        rows = range(-3, 60)
        FakeWorld.commit(made, *[(Op.CREATE, one, id_) for one in (ONE, TWO) for id_ in rows])
        for one in (ONE, TWO):
            every = f"INSERT INTO {one.name} SELECT generate_series({rows[0]}, {rows[-1]})"
            pair[0].execute(every, database="counted")
        yield made


def rule(world: Standby, rounds: int = 4) -> list[Ruling]:
    return in_step(NAME, PROBE, world, rounds)


def test_a_check_passes_by_a_standby_and_names_what_the_mirror_has_lost(world: Standby) -> None:
    assert world.choice is not None
    passed = rule(world)
    world.write(ONE, 60)  # as if its change had been lost
    failed = [one for one in rule(world, 8) if one.outcome is Outcome.FAIL]

    assert {one.outcome for one in passed} == {Outcome.PASS}
    assert world.choice.choose() is world.choice.replica
    assert world.choice.examine() == []
    assert (failed[0].code, failed[0].keys) == ("missing_rows", ("shop/shop_00.orders:60",))


def test_a_standby_that_does_not_replay_is_unknown_until_it_goes_on(
    world: Standby, pair: Pair
) -> None:
    assert world.choice is not None
    rule(world)
    pair[1].execute("SELECT pg_wal_replay_pause()")
    paused = "SELECT pg_get_wal_replay_pause_state() = 'paused'"
    wait_until(lambda: pair[1].execute(paused) == [(True,)], SOON, "replay to pause")
    world.choice.patience = timedelta(milliseconds=300)
    world.commit((Op.CREATE, ONE, 60))
    late = rule(world, 3)
    found = world.choice.examine()
    pair[1].execute("SELECT pg_wal_replay_resume()")
    world.choice.patience = SOON
    after = rule(world)

    assert {one.outcome for one in late} == {Outcome.UNKNOWN}
    assert "the replica standby is behind: it has not replayed all" in late[0].reason
    assert [one.code for one in found] == ["replica_behind"]
    assert {one.outcome for one in after} == {Outcome.PASS}


class Slow(PostgresSource):
    """Reads a table for longer than replay waits."""

    def refuse_large(
        self, ask: Ask, shard: Shard, statement: str, arguments: Sequence[object], *, scans: bool
    ) -> None:
        ask(f"SELECT pg_sleep(60) FROM {self.qualify(shard)} LIMIT 1")


def test_a_statement_that_recovery_cancels_is_unknown_with_advice(pair: Pair) -> None:
    reads = "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)%' AND state = 'active'"
    reads += " AND pid <> pg_backend_pid()"
    with asking(pair, Slow) as world, ThreadPoolExecutor(1) as pool:
        ruled = pool.submit(rule, world, 1)
        wait_until(lambda: bool(pair[1].execute(reads)), SOON, "the check to read")
        truncated = "TRUNCATE shop_00.orders, shop_01.orders"  # either may be read
        pair[0].execute(truncated, database="counted")
        (found,) = ruled.result(SOON.total_seconds())

    assert found.outcome is Outcome.UNKNOWN
    assert "canceling statement due to conflict with recovery" in found.reason
    assert "set hot_standby_feedback = on there" in found.reason


def test_a_standby_without_the_heartbeat_of_the_fence_is_not_read(pair: Pair) -> None:
    """As one that follows another server since: it may be as far, by its position."""
    there = f"{pair[1].host}:{pair[1].port}"
    asked = RowsAsked(ONE, ("id",), None, None, 1000)
    with closing(PostgresRowReader(settings(pair[0], read_from=there), PATIENT, SOON)) as rows:
        fence = rows.fence(0, datetime.now(UTC))
        rows.read(fence, asked)
        pair[0].execute("UPDATE sluice.heartbeat SET n = n - 1", database="counted")
        end = f"SELECT pg_last_wal_replay_lsn() >= '{rows.server.head().position.words}'"
        wait_until(lambda: pair[1].execute(end) == [(True,)], SOON, "the standby")

        with pytest.raises(ProofError, match=r"does not have heartbeat .* follows another server"):
            rows.read(fence, asked)


def test_a_promoted_standby_is_not_asked(world: Standby, pair: Pair) -> None:
    rule(world)
    pair[1].promote()
    after = rule(world, 3)[1:]  # the first one rules on what was read before

    assert {one.outcome for one in after} == {Outcome.UNKNOWN}
    assert "is not asked: it is no standby: it writes a log of its own" in after[0].reason
    assert world.choice is not None
    assert [one.code for one in world.choice.examine()] == ["replica_history"]
