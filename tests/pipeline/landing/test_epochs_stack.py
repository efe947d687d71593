"""Another log behind the same topics: a fail-over to another server, and a log begun anew."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from demo.mysql import MySQL
from demo.processes import wait_until
from demo.servers import Servers
from pipeline.report import read_gap
from pipeline.sources.heartbeat import Heart
from pipeline.sources.mysql.source import MySqlSource
from tests.pipeline.live import PATIENCE, Pipe, now

pytestmark = [pytest.mark.stack, pytest.mark.spark]
T = "CREATE TABLE DB.t (id INT PRIMARY KEY, name VARCHAR(80))"


def begin(pipe: Pipe) -> None:
    """Some history: rows written, changed and deleted, all landed and applied."""
    pipe.sql(T, *(f"INSERT INTO DB.t VALUES ({n}, 'first')" for n in range(20)))
    pipe.start()
    pipe.sql(*(f"UPDATE DB.t SET name = 'second' WHERE id = {n}" for n in range(20)))
    pipe.sql("DELETE FROM DB.t WHERE id = 5")
    pipe.catch_up()


def test_a_fail_over_begins_an_epoch_and_no_row_goes_back(
    start_servers: Callable[[], Servers],
    start_mysql: Callable[[int], MySQL],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    del spark
    servers = start_servers()
    pipe = Pipe(servers, tmp_path / "lake", "switched")
    heir = start_mysql(2)
    heir.replica_of(servers.mysql)
    begin(pipe)
    caught = "SELECT GTID_SUBSET(%r, @@gtid_executed)"
    done = servers.mysql.execute("SELECT @@gtid_executed")[0][0]
    wait_until(lambda: heir.execute(caught % done)[0][0] == 1, PATIENCE, "the replica")
    servers.mysql.kill()
    heir.execute("STOP SLAVE")
    pipe.mysql = heir
    pipe.heart = Heart(MySqlSource(pipe.source()))
    pipe.register()
    pipe.sql("UPDATE DB.t SET name = 'third' WHERE id = 1", "INSERT INTO DB.t VALUES (50, 'new')")

    pipe.catch_up()

    assert pipe.lane.mark.epochs["switched"].number == 2
    assert pipe.pairs() == pipe.source_pairs()
    assert pipe.pairs()[1] == "third"
    assert 5 not in pipe.pairs()
    assert not [hold for landed in pipe.landed for hold in landed.holds]


def test_a_log_begun_anew_on_the_same_server_begins_an_epoch(
    start_servers: Callable[[], Servers], spark: SparkSession, tmp_path: Path
) -> None:
    """The operator's step: stop the connector, forget its offsets, let it take a snapshot."""
    del spark
    servers = start_servers()
    pipe = Pipe(servers, tmp_path / "lake", "anew")
    begin(pipe)
    servers.connect.halt(pipe.name)
    pipe.sql("RESET MASTER", "UPDATE DB.t SET name = 'third' WHERE id = 1")
    pipe.sql("DELETE FROM DB.t WHERE id = 6")
    servers.connect.forget_offsets(pipe.name)
    servers.connect.resume(pipe.name)

    pipe.catch_up()

    assert pipe.lane.mark.epochs["anew"].number == 2
    assert pipe.pairs() == pipe.source_pairs()
    assert not {5, 6} & set(pipe.pairs())
    assert not [hold for landed in pipe.landed for hold in landed.holds]


def test_f101_a_collector_that_starts_over_without_a_snapshot_leaves_a_gap(
    pipe: Callable[..., Pipe],
) -> None:
    """Its offsets are lost, and snapshot.mode=no_data sends only what comes."""
    made = pipe("skipped")
    begin(made)
    connect = made.servers.connect
    connect.halt(made.name)
    made.sql("UPDATE DB.t SET name = 'never sent' WHERE id = 1")
    last = [made.heart.beat(now).number for _ in range(3)][-1]
    made.sql("FLUSH BINARY LOGS")
    connect.forget_offsets(made.name)
    connect.configure(made.name, {**connect.config(made.name), "snapshot.mode": "no_data"})
    connect.resume(made.name)

    made.until(lambda: made.lane.mark.heartbeats[made.name] > last)

    gaps = [read_gap(text) for text in made.lane.mark.gaps.values()]
    assert {gap.topic for gap in gaps} == {"beats:skipped"}
    assert [gap.shards for gap in gaps] == [("skipped/skipped.t",)]
    assert gaps[0].first <= last < gaps[0].until
    assert made.pairs()[1] == "second"
