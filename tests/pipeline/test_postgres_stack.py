"""A table of a real Postgres goes all the way: beat, Debezium, Kafka, change log, mirror, proof."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from time import monotonic
from typing import Any

import pytest
from psycopg import Connection

from demo.processes import wait_until
from tests.pipeline.live import PATIENCE
from tests.pipeline.postgres_live import PostgresPipe
from tests.topic_records import records

pytestmark = [pytest.mark.stack, pytest.mark.spark]


def test_rows_of_a_snapshot_and_of_transactions_reach_the_mirror_and_are_proven_there(
    postgres_pipe: Callable[..., PostgresPipe],
) -> None:
    p = postgres_pipe("whole")
    p.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(80))",
        "INSERT INTO t SELECT n, 'old ' || n FROM generate_series(1, 20) n",
    )
    p.start()
    p.catch_up()
    assert p.pairs() == p.source_pairs()

    p.sql(
        "BEGIN",
        "UPDATE t SET name = 'new' WHERE id < 4",
        "DELETE FROM t WHERE id = 5",
        "UPDATE t SET id = 106 WHERE id = 6",
        "INSERT INTO t VALUES (200, NULL)",
        "COMMIT",
        "UPDATE t SET name = 'newer' WHERE id = 1",
    )
    p.catch_up()

    assert p.pairs() == p.source_pairs()
    assert [hold for one in p.landed for hold in one.holds] == []
    assert [one.hold for one in p.applied if one.hold is not None] == []


def test_a_transaction_that_was_open_while_the_slot_was_made_is_quarantined_not_lost(
    postgres_pipe: Callable[..., PostgresPipe],
) -> None:
    """A slot waits twice for whoever is open; one that begins between comes after the snapshot."""
    p = postgres_pipe("opened")
    p.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(80))",
        "INSERT INTO t SELECT n, 'old' FROM generate_series(1, 3) n",
    )
    p.begin()
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        first, second, last = (
            stack.enter_context(p.server.connect(p.name, autocommit=False)) for _ in range(3)
        )
        begun = _begun(first)
        registered = pool.submit(p.register)  # it runs once the slot is made
        wait_until(lambda: _is_awaited(p, begun), PATIENCE, "the slot to wait for the first")
        begun = _begun(second)
        first.commit()
        wait_until(lambda: _is_awaited(p, begun), PATIENCE, "the slot to wait for the second")
        last.execute("INSERT INTO t VALUES (300, 'open')")
        second.commit()
        topic, bootstrap = f"{p.name}.public.t", p.servers.kafka.bootstrap
        wait_until(lambda: len(list(records(bootstrap, topic))) == 3, PATIENCE, "the snapshot")
        last.commit()
        registered.result()

    p.open()
    p.until(lambda: bool(p.lane.checkpoint.quarantined))

    assert p.lane.checkpoint.quarantined.keys() == {"public.t"}
    assert p.lane.checkpoint.quarantine[f"{p.name}/public.t"].count == 1


def test_a_transaction_that_is_open_over_a_restart_of_its_connector_is_sent_whole(
    postgres_pipe: Callable[..., PostgresPipe],
) -> None:
    """Its row stands where another's commit ended: before 3.7 Debezium took it for that commit."""
    p = postgres_pipe("resumed")
    p.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(80))", "INSERT INTO t VALUES (1, 'old')"
    )
    p.begin()
    p.register()
    topic, bootstrap = f"{p.name}.public.t", p.servers.kafka.bootstrap
    wait_until(lambda: len(list(records(bootstrap, topic))) == 1, PATIENCE, "the snapshot")
    with (
        p.server.connect(p.name) as other,
        p.server.connect(p.name, autocommit=False) as open_,
    ):
        open_.execute("INSERT INTO t VALUES (10, 'before')")
        other.execute("INSERT INTO t VALUES (20, 'committed')")
        open_.execute("INSERT INTO t VALUES (11, 'there')")
        open_.execute("INSERT INTO t VALUES (12, 'after')")
        wait_until(lambda: _stored(p).get("messageType") == "COMMIT", PATIENCE, "its offset")
        p.servers.connect.halt(p.name)
        stored = _stored(p)
    p.servers.connect.resume(p.name)

    wait_until(lambda: 12 in _places(bootstrap, topic), PATIENCE, "the rest of the transaction")
    found = _places(bootstrap, topic)
    assert found.keys() == {1, 10, 11, 12, 20}
    assert found[11] == stored["lsn_commit"]  # else this was no such restart


def test_no_offset_of_a_begin_is_stored_because_only_the_end_of_a_transaction_is_sent(
    postgres_pipe: Callable[..., PostgresPipe],
) -> None:
    p = postgres_pipe("ended")
    p.sql("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(80))")
    p.begin()
    p.register()
    until, rows, types = monotonic() + 12, 0, set[str]()
    while monotonic() < until:
        p.sql("BEGIN", f"INSERT INTO t VALUES ({rows}, 'a'), ({rows + 1}, 'b')", "COMMIT")
        rows += 2
        types.add(str(_stored(p).get("messageType")))
    bootstrap, topic = p.servers.kafka.bootstrap, f"{p.name}.transaction"
    wait_until(lambda: _counted(bootstrap, topic) >= rows, PATIENCE, "the last END")

    assert "COMMIT" in types  # else nothing was seen
    assert "BEGIN" not in types
    for end in _markers(bootstrap, topic):
        assert end.keys() == {"status", "id", "event_count", "data_collections", "ts_ms"}
        assert end["status"] == "END"
        assert end["event_count"] == sum(one["event_count"] for one in end["data_collections"])


def test_debezium_still_loses_rows_at_the_offset_of_a_begin(
    postgres_pipe: Callable[..., PostgresPipe],
) -> None:
    """Once it does not, transforms that keep BEGIN from being stored are not needed any more."""
    p = postgres_pipe("begun")
    p.sql("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(80))")
    p.begin()
    p.servers.connect.register(p.name, {**p.config(), "transforms": ""})
    topic, bootstrap = f"{p.name}.public.t", p.servers.kafka.bootstrap
    with (
        p.server.connect(p.name) as other,
        p.server.connect(p.name, autocommit=False) as open_,
    ):
        number = _begun(open_)
        open_.execute("INSERT INTO t VALUES (10, 'before')")
        other.execute("INSERT INTO t VALUES (20, 'committed')")
        open_.execute("INSERT INTO t VALUES (11, 'there')")
        open_.execute("INSERT INTO t VALUES (12, 'after')")
        wait_until(lambda: 20 in _places(bootstrap, topic), PATIENCE, "the other transaction")
        p.servers.connect.halt(p.name)
        begun = {"messageType": "BEGIN", "txId": int(number), "transaction_id": number}
        p.servers.connect.change_offset(p.name, begun)
    p.servers.connect.resume(p.name)

    wait_until(lambda: 12 in _places(bootstrap, topic), PATIENCE, "the rest of the transaction")
    assert _places(bootstrap, topic).keys() == {12, 20}


def _markers(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    return [json.loads(one.value)["payload"] for one in records(bootstrap, topic) if one.value]


def _counted(bootstrap: str, topic: str) -> int:
    return sum(one["event_count"] or 0 for one in _markers(bootstrap, topic))


def _stored(p: PostgresPipe) -> dict[str, Any]:
    return {
        name: value
        for one in p.servers.connect.offsets(p.name)
        for name, value in one["offset"].items()
    }


def _places(bootstrap: str, topic: str) -> dict[int, int]:
    """LSN of each row that was sent, by its id."""
    sent = (json.loads(one.value)["payload"] for one in records(bootstrap, topic) if one.value)
    return {one["after"]["id"]: one["source"]["lsn"] for one in sent}


def _begun(connection: Connection[tuple[object, ...]]) -> str:
    """Begin a transaction; says its number."""
    row = connection.execute("SELECT txid_current()::text").fetchone()
    assert row is not None
    return str(row[0])


def _is_awaited(p: PostgresPipe, number: str) -> bool:
    waiting = (
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
        f" AND transactionid::text = '{number}'"
    )
    return bool(p.sql(waiting)[0][0])
