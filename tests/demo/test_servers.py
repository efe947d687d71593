"""What the demo's servers outlive."""

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from demo.debezium import mysql_connector
from demo.mysql import MySQL
from demo.processes import Process, wait_until
from demo.servers import Servers
from pipeline.spark import jars
from tests.topic_records import records

pytestmark = pytest.mark.stack

SOON = timedelta(minutes=4)


def read_events(servers: Servers, topic: str) -> list[Any]:
    """All values of a topic of one partition; empty if there is no topic yet."""
    found = records(servers.kafka.bootstrap, topic)
    return [json.loads(record.value) for record in found if record.value]


def event_ids(servers: Servers, topic: str) -> set[int]:
    return {event["after"]["id"] for event in read_events(servers, topic)}


def watch(servers: Servers, database: str) -> str:
    """Make a table, and wait until its first row has gone through; the table's topic."""
    servers.mysql.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY)",
        f"INSERT INTO {database}.t VALUES (1)",
    )
    config = mysql_connector(
        servers.mysql, servers.kafka.bootstrap, prefix=database, databases=[database]
    )
    servers.connect.register(database, config)
    topic = f"{database}.{database}.t"
    wait_until(lambda: event_ids(servers, topic) == {1}, SOON, "the snapshot's row in Kafka")
    return topic


def test_a_row_inserted_in_mysql_arrives_in_kafka(servers: Servers) -> None:
    topic = watch(servers, "arrives")

    servers.mysql.execute("INSERT INTO arrives.t VALUES (2)")

    wait_until(lambda: event_ids(servers, topic) == {1, 2}, SOON, "the inserted row in Kafka")
    assert [event["op"] for event in read_events(servers, topic)] == ["r", "c"]
    servers.connect.deregister("arrives")


@pytest.mark.parametrize("name", ["mysql", "kafka", "connect"])
def test_a_killed_server_comes_back_with_its_data(servers: Servers, name: str) -> None:
    topic = watch(servers, f"killed_{name}")
    server = getattr(servers, name)
    before = servers.addresses()

    server.kill()
    server.start()
    servers.mysql.execute(f"INSERT INTO killed_{name}.t VALUES (2)")

    wait_until(lambda: event_ids(servers, topic) == {1, 2}, SOON, "both rows in Kafka")
    assert servers.addresses() == before
    servers.connect.deregister(f"killed_{name}")


def test_a_replica_follows_with_the_transaction_ids_of_its_primary(
    start_mysql: Callable[[int], MySQL],
) -> None:
    primary, replica = start_mysql(11), start_mysql(12)
    replica.replica_of(primary)

    primary.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT)", "INSERT INTO d.t VALUES (1)")

    executed = "SELECT @@gtid_executed"
    wait_until(
        lambda: replica.execute(executed) == primary.execute(executed), SOON, "the same GTIDs"
    )
    assert replica.execute("SELECT id FROM d.t") == [(1,)]
    uuid = "SELECT @@server_uuid"
    assert replica.execute(uuid) != primary.execute(uuid)


def test_up_and_down_leave_the_data_and_no_process(server_folder: Path) -> None:
    home = server_folder / "updown"

    first = demo("up", home)
    Servers.load(home).mysql.execute("CREATE DATABASE kept")
    running = [
        Process(**process)
        for process in json.loads((home / "servers.json").read_text())["processes"].values()
    ]
    assert [process.alive for process in running] == [True, True, True]
    demo("down", home)

    assert [process.alive for process in running] == [False, False, False]

    assert demo("up", home) == first
    assert Servers.load(home).mysql.execute("SHOW DATABASES LIKE 'kept'") == [("kept",)]
    demo("down", home)


def demo(verb: str, home: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "demo", verb, "--dir", str(home)],
        cwd=jars.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout) if done.stdout else None
