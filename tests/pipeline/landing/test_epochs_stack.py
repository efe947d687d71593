"""Another log behind the same topics: a fail-over to another server, and a log begun anew."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from checks.blocks import find_blocks
from demo.mysql import MySQL
from demo.ports import free_ports
from demo.processes import wait_until
from demo.servers import Servers
from pipeline.model import Shard, Table
from pipeline.sources.mysql.source import MySqlSource
from pipeline.sources.source import HeartbeatTable
from tests.checks.test_readiness import inputs
from tests.pipeline.backfill.live_backfills import bootstrap
from tests.pipeline.live import PATIENCE, Pipe, now

pytestmark = [pytest.mark.stack, pytest.mark.spark]
NO_GTIDS = {"gtid-mode": "OFF", "enforce-gtid-consistency": "OFF"}
T = "CREATE TABLE DB.t (id INT PRIMARY KEY, name VARCHAR(80))"


def start_history(pipe: Pipe) -> None:
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
    start_history(pipe)
    caught = "SELECT GTID_SUBSET(%r, @@gtid_executed)"
    done = servers.mysql.execute("SELECT @@gtid_executed")[0][0]
    wait_until(lambda: heir.execute(caught % done)[0][0] == 1, PATIENCE, "the replica")
    servers.mysql.kill()
    heir.execute("STOP SLAVE")
    pipe.mysql = heir
    pipe.heart = HeartbeatTable(MySqlSource(pipe.source()))
    pipe.register()
    pipe.sql("UPDATE DB.t SET name = 'third' WHERE id = 1", "INSERT INTO DB.t VALUES (50, 'new')")

    pipe.catch_up()

    assert pipe.lane.checkpoint.epochs["switched"].number == 2
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
    start_history(pipe)
    servers.connect.halt(pipe.name)
    pipe.sql("RESET MASTER", "UPDATE DB.t SET name = 'third' WHERE id = 1")
    pipe.sql("DELETE FROM DB.t WHERE id = 6")
    servers.connect.forget_offsets(pipe.name)
    servers.connect.resume(pipe.name)

    pipe.catch_up()

    assert pipe.lane.checkpoint.epochs["anew"].number == 2
    assert gaps_at_the_gate(pipe) == []
    assert pipe.pairs() == pipe.source_pairs()
    assert not {5, 6} & set(pipe.pairs())
    assert not [hold for landed in pipe.landed for hold in landed.holds]


def test_f101_a_collector_that_starts_over_without_a_snapshot_leaves_a_gap(
    pipe: Callable[..., Pipe],
) -> None:
    """Its offsets are lost, and snapshot.mode=no_data sends only what comes."""
    made = pipe("skipped")
    start_history(made)
    connect = made.servers.connect
    connect.halt(made.name)
    made.sql("UPDATE DB.t SET name = 'never sent' WHERE id = 1")
    last = [made.heart.write_heartbeat(now).number for _ in range(3)][-1]
    made.sql("FLUSH BINARY LOGS")
    connect.forget_offsets(made.name)
    connect.configure(made.name, {**connect.config(made.name), "snapshot.mode": "no_data"})
    connect.resume(made.name)

    made.until(lambda: made.lane.checkpoint.heartbeats[made.name] > last)

    gaps = list(made.lane.checkpoint.gaps.values())
    assert {gap.topic for gap in gaps} == {"beats:skipped"}
    assert [gap.shards for gap in gaps] == [("skipped/skipped.t",)]
    assert gaps[0].first <= last < gaps[0].until
    assert made.pairs()[1] == "second"


@pytest.mark.usefixtures("lists_settle_soon")
def test_f101_offsets_moved_forward_are_a_gap_until_a_new_base(
    pipe: Callable[..., Pipe],
) -> None:
    """As over an event that the connector cannot read, by Connect's interface."""
    made = pipe("moved")
    start_history(made)
    connect = made.servers.connect
    connect.halt(made.name)
    made.sql("UPDATE DB.t SET name = 'never sent' WHERE id = 1")
    missing = [made.heart.write_heartbeat(now).number for _ in range(3)]
    connect.move_offset(made.name, *end_of_log(made))
    connect.resume(made.name)
    made.until(lambda: made.lane.checkpoint.heartbeats[made.name] > missing[-1])

    (told,) = gaps_at_the_gate(made)
    before = made.pairs()[1]
    bootstrap(made, "t")
    made.catch_up()

    assert f"heartbeats {missing[0]} to {missing[-1]} of source moved are missing" in told
    assert (before, made.pairs()[1]) == ("second", "never sent")
    assert gaps_at_the_gate(made) == []


def end_of_log(pipe: Pipe) -> tuple[str, int, str]:
    """File, offset and GTIDs."""
    file, pos, _, _, gtids = pipe.sql("SHOW MASTER STATUS")[0]
    return file, pos, gtids.replace("\n", "")


@pytest.fixture
def without_gtids(tmp_path: Path) -> Iterator[Callable[[int], MySQL]]:
    """A way to get a server with that id, which ends with the test."""
    with ExitStack() as started:

        def start(server_id: int) -> MySQL:
            made = MySQL(tmp_path / f"m{server_id}", free_ports(1)[0], server_id, NO_GTIDS)
            started.callback(made.kill)
            made.start()
            return made

        yield start


@pytest.mark.usefixtures("lists_settle_soon")
def test_f101_another_server_without_gtids_at_the_same_file_and_offset_is_a_gap(
    pipe: Callable[..., Pipe], without_gtids: Callable[[int], MySQL]
) -> None:
    """The heir has all that the old server had, but at other positions of its own log."""
    made, old, heir = pipe("same_offset"), without_gtids(3), without_gtids(4)
    made.mysql, connect = old, made.servers.connect
    made.sql("CREATE DATABASE same_offset", *["FLUSH BINARY LOGS"] * 5)
    start_history(made)
    connect.halt(made.name)
    offset = connect.offsets(made.name)[0]["offset"]
    made.sql("UPDATE DB.t SET name = 'never sent' WHERE id = 1")
    missing = [made.heart.write_heartbeat(now).number for _ in range(3)]
    take_all(heir, old)
    old.kill()
    end_at(heir, offset["file"], offset["pos"])
    made.mysql = heir
    made.heart = HeartbeatTable(MySqlSource(made.source()))
    config = connect.config(made.name) | {"database.port": str(heir.port)}
    connect.configure(made.name, config)
    connect.resume(made.name)
    made.until(lambda: made.lane.checkpoint.heartbeats[made.name] > missing[-1])

    told = gaps_at_the_gate(made)
    before = made.pairs()[1]
    bootstrap(made, "t")
    made.catch_up()

    assert any(f"heartbeats {missing[0]} to " in one for one in told), told
    assert (before, made.pairs()[1]) == ("second", "never sent")
    assert gaps_at_the_gate(made) == []


def take_all(heir: MySQL, old: MySQL) -> None:
    """Replicate to *heir* by file and offset until it has all of *old*, and make it a primary."""
    heir.execute(
        f"CHANGE MASTER TO MASTER_HOST = '{old.host}', MASTER_PORT = {old.port},"
        " MASTER_USER = 'debezium', MASTER_PASSWORD = 'debezium', GET_MASTER_PUBLIC_KEY = 1,"
        " MASTER_LOG_FILE = 'binlog.000001', MASTER_LOG_POS = 4",
        "START SLAVE",
    )
    beats = "SELECT MAX(n) FROM sluice.heartbeat"
    last = old.execute(beats)
    there = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'sluice'"
    wait_until(
        lambda: heir.execute(there) == [(1,)] and heir.execute(beats) == last, PATIENCE, "the heir"
    )
    heir.execute("STOP SLAVE", "RESET SLAVE ALL")


def end_at(server: MySQL, file: str, pos: int) -> None:
    """Write to *server* until its log ends at *pos* of *file*."""
    server.execute("CREATE DATABASE pad", "CREATE TABLE pad.p (v LONGTEXT)")
    while server.execute("SHOW MASTER STATUS")[0][0] < file:
        server.execute("FLUSH BINARY LOGS")
    size = 1000
    before = server.execute("SHOW MASTER STATUS")[0][1]
    server.execute(f"INSERT INTO pad.p VALUES (REPEAT('x', {size}))")
    end = server.execute("SHOW MASTER STATUS")[0][1]
    size += pos - end - (end - before)
    server.execute(f"INSERT INTO pad.p VALUES (REPEAT('x', {size}))")
    assert server.execute("SHOW MASTER STATUS")[0][:2] == (file, pos)


def gaps_at_the_gate(pipe: Pipe) -> list[str]:
    """Why the gate would not answer READY for the table, of what landing knows."""
    name = f"{pipe.name}.t"
    table = Table(name, (Shard(pipe.name, name),), key=("id",))
    found = find_blocks(inputs(table=table, taken={"landed": pipe.lane.checkpoint}), frozenset())
    return [one.text for one in found if one.code == "gap"]
