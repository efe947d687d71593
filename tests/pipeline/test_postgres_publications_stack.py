"""Two sources on one real database, each with a publication and a slot of its own.

What is taken out of one under load is a gap of that table, also once it is in again.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from demo.processes import wait_until
from pipeline.model import Shard
from tests.pipeline.live import PATIENCE
from tests.pipeline.postgres_live import PostgresPipe

pytestmark = [pytest.mark.stack, pytest.mark.spark]
TABLES = (
    "DROP PUBLICATION sluice",
    "CREATE SCHEMA area",
    *(
        f"CREATE TABLE {name} (id INT PRIMARY KEY, name VARCHAR(80))"
        for name in ("area.t", "u", "v", "w")
    ),
    *(f"INSERT INTO {name} VALUES (1, 'old')" for name in ("area.t", "u", "v", "w")),
    "CREATE PUBLICATION by_schema FOR TABLES IN SCHEMA area, sluice",
    "CREATE PUBLICATION by_list FOR TABLE u, v, sluice.heartbeat",
)


@pytest.fixture
def two(postgres_pipe: Callable[..., PostgresPipe]) -> tuple[PostgresPipe, PostgresPipe]:
    """One of a schema, and beside it one of a list of tables; both run."""
    first = postgres_pipe("schema", publication="by_schema")
    second = postgres_pipe("listed", publication="by_list", database=first.database)
    first.beside = (second,)
    second.begin()
    first.sql(*TABLES)
    second.connector = {"table.include.list": "public.u,public.v,sluice.heartbeat"}
    first.connector = {"schema.include.list": "area,sluice"}
    second.register()
    first.start()
    return first, second


def test_each_source_sends_its_own_and_what_one_takes_out_is_a_gap_of_that_table_alone(
    two: tuple[PostgresPipe, PostgresPipe],
) -> None:
    p, q = two
    p.sql("INSERT INTO area.t VALUES (2, 'new')", "INSERT INTO v VALUES (2, 'new')")
    _catch_up(p, q)
    bases = {Shard(p.name, "area.t"), Shard(q.name, "public.u"), Shard(q.name, "public.v")}
    assert bases <= p.lane.checkpoint.bases.keys()
    assert p.lane.checkpoint.gaps == {}
    over = Event()
    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(_write, p, over)
        p.sql("ALTER PUBLICATION by_list DROP TABLE v")
        p.until(lambda: bool(p.lane.checkpoint.gaps))
        over.set()
        busy.result()

    p.sql("ALTER PUBLICATION by_list ADD TABLE v", "INSERT INTO v VALUES (3, 'sent again')")
    _catch_up(p, q)

    (gap,) = p.lane.checkpoint.gaps.values()
    assert gap.shards == (f"{q.name}/public.v",)
    assert f"lists or publication by_list were changed and leave out {q.name}/public.v" in gap.why
    for table in ("area.t", "public.u"):
        assert _mirror(p, table) == dict(p.sql(f"SELECT id, name FROM {table}"))
    assert _mirror(p, "public.v") != dict(p.sql("SELECT id, name FROM v"))


def _catch_up(p: PostgresPipe, q: PostgresPipe) -> None:
    p.catch_up()
    fence = q.fence
    wait_until(
        lambda: bool(p.round()) and p.lane.checkpoint.covers(fence) and not p.behind(),
        PATIENCE,
        q.name,
    )


def _mirror(p: PostgresPipe, table: str) -> dict[int, str]:
    path = p.lane.runner.settings.mirror(table)
    rows = p.session.read.format("delta").load(path).collect()
    return {row["id"]: row["name"] for row in rows}


def _write(p: PostgresPipe, over: Event) -> None:
    number = 100
    while not over.wait(0.05):
        number += 1
        p.sql(*(f"INSERT INTO {name} VALUES ({number}, 'x')" for name in ("area.t", "u", "v")))
