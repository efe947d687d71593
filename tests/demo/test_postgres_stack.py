import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from demo.debezium import postgres_connector
from demo.drill.postgres_source import PostgresSource
from demo.ports import listening
from demo.postgres import PUBLICATION, Postgres
from demo.processes import wait_until
from demo.servers import Servers
from demo.shop.workload import Shop
from tests.topic_records import records

pytestmark = pytest.mark.stack

SOON = timedelta(minutes=4)


def read_events(servers: Servers, topic: str) -> list[Any]:
    """All values of a topic of one partition; empty if there is no topic yet."""
    found = records(servers.kafka.bootstrap, topic)
    return [json.loads(record.value)["payload"] for record in found if record.value]


def test_a_row_of_either_version_goes_through_debezium_to_kafka(
    servers: Servers, postgres: Postgres
) -> None:
    name = f"arrives_{postgres.version}"
    postgres.create_database(
        name, "CREATE TABLE t (id INT PRIMARY KEY, d NUMERIC)", "INSERT INTO t VALUES (1, 1.50)"
    )
    servers.connect.register(name, postgres_connector(postgres, name, prefix=name))
    topic = f"{name}.public.t"
    wait_until(lambda: len(read_events(servers, topic)) == 1, SOON, "the snapshot's row in Kafka")

    postgres.execute("INSERT INTO t VALUES (2, 'NaN')", database=name)

    wait_until(lambda: len(read_events(servers, topic)) == 2, SOON, "the inserted row in Kafka")
    assert [(event["op"], event["after"]) for event in read_events(servers, topic)] == [
        ("r", {"id": 1, "d": "1.50"}),
        ("c", {"id": 2, "d": "NAN"}),
    ]
    servers.connect.deregister(name)


def test_no_reader_of_the_publication_sees_a_hidden_change(postgres: Postgres) -> None:
    source, table = PostgresSource(postgres), "drill.few_00"
    source.prepare()
    Shop(source.shop).create()
    source.create_tables([table])
    source.execute("SELECT pg_create_logical_replication_slot('seen', 'pgoutput')")

    source.execute_hidden(table, f"UPDATE {table} SET quantity = -6 WHERE id = 6")
    source.execute(f"UPDATE {table} SET quantity = -10 WHERE id = 10")

    options = f"'proto_version', '1', 'publication_names', '{PUBLICATION}'"
    changes = source.execute(
        f"SELECT data FROM pg_logical_slot_get_binary_changes('seen', NULL, NULL, {options})"
    )
    updates = [bytes(data) for (data,) in changes if bytes(data).startswith(b"U")]
    changed = source.execute(f"SELECT id FROM {table} WHERE quantity < 0 ORDER BY id")
    source.execute("SELECT pg_drop_replication_slot('seen')")
    postgres.execute("DROP DATABASE drill WITH (FORCE)")
    assert changed == [(6,), (10,)]
    assert [b"-10" in one for one in updates] == [True]


def test_a_killed_server_comes_back_with_its_data_and_a_stopped_one_too(
    start_postgres: Callable[..., Postgres],
) -> None:
    postgres = start_postgres("15")
    postgres.create_database("kept", "CREATE TABLE t (id INT)", "INSERT INTO t VALUES (1)")

    with postgres.connect("kept"):
        postgres.restart()
    postgres.stop()
    postgres.start()

    assert postgres.execute("SELECT id FROM t", database="kept") == [(1,)]


def test_nothing_is_left_of_a_server_that_was_removed(
    start_postgres: Callable[..., Postgres],
) -> None:
    postgres = start_postgres("18")
    place = postgres.data.resolve()

    postgres.remove()

    assert not listening(postgres.port)
    assert not place.exists()


def test_a_leashed_server_dies_with_who_started_it(tmp_path: Path) -> None:
    program = f"""
import os, signal
from pathlib import Path
from demo.ports import free_ports
from demo.postgres import Postgres
postgres = Postgres(Path({str(tmp_path)!r}) / "pg", *free_ports(1))
postgres.start()
print(postgres.port, postgres.data.resolve(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=os.environ
    )

    port, place = done.stdout.split()
    wait_until(lambda: not listening(int(port)), SOON, "end of the server")
    left = Postgres(tmp_path / "pg", int(port))
    left.remove()
    assert not Path(place).exists()
