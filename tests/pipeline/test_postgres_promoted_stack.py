"""A replica of a real Postgres takes its place: a new epoch, nothing goes back, loss is a gap."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from demo.ports import free_ports
from demo.postgres import Postgres
from demo.processes import wait_until
from demo.servers import Servers
from pipeline.build import open_source
from pipeline.sources.source import HeartbeatTable
from tests.pipeline.live import PATIENCE
from tests.pipeline.postgres_live import PostgresPipe

pytestmark = [pytest.mark.stack, pytest.mark.spark]
SYNCED = "SELECT count(*) FROM pg_replication_slots WHERE synced AND NOT temporary"


@pytest.fixture
def begin(
    servers: Servers,
    start_postgres: Callable[..., Postgres],
    spark: SparkSession,
    tmp_path: Path,
) -> Iterator[Callable[[str], tuple[PostgresPipe, Postgres]]]:
    """A way to get a pipe with some history, all of it in its mirror, and a replica beside it."""
    del spark  # lanes take up the session that is there
    made: list[tuple[PostgresPipe, Postgres]] = []

    def begun(version: str) -> tuple[PostgresPipe, Postgres]:
        primary = start_postgres(version)
        replica = primary.replica(tmp_path / "replica", *free_ports(1))
        name = f"promoted_{primary.port}"
        slots = {"slot.failover": "true"} if version == "18" else {}
        p = PostgresPipe(servers, tmp_path / name, name, postgres=primary, connector=slots)
        made.append((p, replica))
        p.sql(
            "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(80))",
            "INSERT INTO t SELECT n, 'first' FROM generate_series(1, 20) n",
        )
        p.start()
        p.sql("UPDATE t SET name = 'second'", "DELETE FROM t WHERE id = 5")
        p.catch_up()
        if slots:
            wait_until(lambda: replica.execute(SYNCED) == [(1,)], PATIENCE, "the replica's slot")
        return p, replica

    yield begun
    for p, replica in made:
        p.end()
        replica.remove()


def follow(p: PostgresPipe, replica: Postgres) -> None:
    """The operator's steps after the old server is gone; its connector is still to be told."""
    p.server.kill()
    replica.promote()
    p.heart.source.close()
    p.server = replica
    p.sql("UPDATE t SET name = 'third' WHERE id = 1", "INSERT INTO t VALUES (50, 'new')")
    p.heart = HeartbeatTable(open_source(p.source()))


def take_all(p: PostgresPipe, replica: Postgres) -> None:
    """Wait until the *replica* has all there is."""
    end = p.sql("SELECT pg_current_wal_flush_lsn()::text")[0][0]
    done = f"SELECT pg_last_wal_replay_lsn() >= '{end}'"
    wait_until(lambda: replica.execute(done) == [(True,)], PATIENCE, "the replica")


@pytest.mark.parametrize("version", ["15", "18"])
def test_a_replica_that_had_all_goes_on_in_a_new_epoch_and_no_row_goes_back(
    begin: Callable[[str], tuple[PostgresPipe, Postgres]], version: str
) -> None:
    """With a slot that came along (18), or one made anew after changes (15): then by a snapshot."""
    p, replica = begin(version)
    before = p.lane.checkpoint.epochs[p.name]
    p.servers.connect.halt(p.name)
    p.sql("INSERT INTO t VALUES (40, 'nobody read it yet')")
    take_all(p, replica)
    p.round()  # a slot that goes on above the end of the log seen last might be a new one
    follow(p, replica)
    p.servers.connect.configure(p.name, p.config())
    p.round()  # nobody knows whose a snapshot is that comes before its server is seen
    p.servers.connect.resume(p.name)

    p.catch_up()

    epoch = p.lane.checkpoint.epochs[p.name]
    assert (before.number, epoch.number) == (1, 2)
    system, timeline, database = before.identity.split("/")
    assert epoch.identity == f"{system}/{int(timeline) + 1}/{database}"
    assert p.pairs() == p.source_pairs()
    assert (p.pairs()[1], p.pairs()[40]) == ("third", "nobody read it yet")
    assert 5 not in p.pairs()
    assert p.lane.checkpoint.gaps == {}
    assert not [hold for landed in p.landed for hold in landed.holds]


def test_what_a_replica_never_had_is_a_gap_until_a_new_base(
    begin: Callable[[str], tuple[PostgresPipe, Postgres]],
) -> None:
    p, replica = begin("18")
    p.server.cut_off_replicas()
    p.sql("INSERT INTO t VALUES (900, 'lost with its server')")
    p.catch_up()
    assert p.pairs() == p.source_pairs()
    follow(p, replica)
    p.register()

    p.until(lambda: p.lane.checkpoint.epochs[p.name].number == 2)

    (gap,) = p.lane.checkpoint.gaps.values()
    assert gap.shards == (f"{p.name}/public.t",)
    assert "the promoted server left the log of its predecessor at" in gap.why

    p.servers.connect.halt(p.name)
    p.servers.connect.forget_offsets(p.name)
    p.servers.connect.resume(p.name)
    p.until(lambda: not p.lane.checkpoint.gaps)
    p.catch_up()
    assert p.pairs() == p.source_pairs()
    assert 900 not in p.pairs()
