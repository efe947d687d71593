"""Maxima and counts of a real Postgres against a mirror: equal, short of a row, with a ghost."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, cast

import pytest

from checks.model import Outcome
from checks.probes.max_id import MaxId
from checks.probes.range_counts import RangeCounts
from demo.postgres import Postgres
from pipeline.model import Op, Shard
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.sources.postgres.source import PostgresSource
from tests.checks.world_fake import ONE, TWO, FakeSource, FakeWorld, in_step

pytestmark = pytest.mark.stack

EVERY: dict[str, Callable[[], Any]] = {
    "max_id": MaxId,
    "range_counts": lambda: RangeCounts(block_rows=16, newest=1, rotating=2, leaf=4, suspects=20),
}


@dataclass
class RealSource(FakeWorld):
    """What is committed is written to the server, too, and asked of it alone."""

    server: Postgres | None = None
    asked_of: PostgresSource | None = None

    def source(self, name: str) -> FakeSource:
        return cast(FakeSource, self.asked_of)

    def commit(self, *changes: tuple[str, Shard, int]) -> None:
        super().commit(*changes)
        for op, shard, number in changes:
            self.write(shard, number, gone=op == Op.DELETE)

    def write(self, shard: Shard, number: int, *, gone: bool = False) -> None:
        assert self.server is not None
        verb = (
            f"DELETE FROM {shard.name} WHERE id = " if gone else f"INSERT INTO {shard.name} SELECT "
        )
        self.server.execute(f"{verb}{number}", database="counted")


@pytest.fixture
def world(postgres: Postgres) -> Iterator[RealSource]:
    """Two schemas that fold into one table, 200 rows each, in step."""
    postgres.execute("DROP DATABASE IF EXISTS counted")
    postgres.create_database(
        "counted",
        *(f"CREATE SCHEMA shop_{n:02}" for n in (0, 1)),
        *(f"CREATE TABLE shop_{n:02}.orders (id BIGINT PRIMARY KEY)" for n in (0, 1)),
    )
    settings = SourceSettings(
        "shop",
        postgres.host,
        postgres.port,
        "sluice",
        CollectorSettings("http://127.0.0.1:1", "shop"),
        "shop",
        password="sluice",
        options={"database": "counted"},
    )
    with closing(PostgresSource(settings, "counted")) as source:
        made = RealSource(server=postgres, asked_of=source)
        every = [(Op.CREATE, shard, number) for shard in (ONE, TWO) for number in range(-3, 60)]
        made.commit(*every)
        made.catch_up()
        yield made


@pytest.mark.parametrize("name", EVERY)
def test_a_mirror_in_step_passes_and_fails_by_the_key_of_what_it_lost_or_kept(
    world: RealSource, name: str
) -> None:
    probe = EVERY[name]()
    before = in_step(name, probe, world, 6)
    assert {ruling.outcome for ruling in before} == {Outcome.PASS}

    world.write(ONE, 60)  # as if its change had been lost
    short = in_step(name, probe, world, 8)
    world.write(ONE, 60, gone=True)
    world.copy[TWO][61] = 1  # as if its delete had been
    ghost = in_step(name, probe, world, 8)

    codes = {"max_id": ("mirror_short", "mirror_ahead")}
    wanted = codes.get(name, ("missing_rows", "extra_rows"))
    assert wanted[0] in {ruling.code for ruling in short if ruling.outcome is Outcome.FAIL}
    assert wanted[1] in {ruling.code for ruling in ghost if ruling.outcome is Outcome.FAIL}
