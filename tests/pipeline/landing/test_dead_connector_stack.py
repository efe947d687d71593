"""A connector that died on a statement, or was moved past one: what each way back does."""

import json
from collections.abc import Callable
from contextlib import closing

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from demo.processes import wait_until
from demo.servers import Servers
from pipeline.collectors.connect.collector import ConnectCollector
from pipeline.model import Shard
from tests.patience import SOON
from tests.pipeline.backfill.live_backfills import bootstrap
from tests.pipeline.live import Pipe, now
from tests.topic_records import records

pytestmark = [pytest.mark.stack, pytest.mark.spark]
T = "CREATE TABLE DB.t (id INT PRIMARY KEY, name VARCHAR(20), other VARCHAR(20))"
SWAP = "ALTER TABLE DB.t RENAME COLUMN name TO other, RENAME COLUMN other TO name"
FAST = {"errors.max.retries": "2"}


def start_tables(pipe: Callable[..., Pipe], name: str, **more: str) -> Pipe:
    """Two tables, of which Debezium can follow all but the SWAP."""
    p: Pipe = pipe(name, connector={**FAST, **more})
    p.sql(T, T.replace("DB.t", "DB.u"))
    p.sql("INSERT INTO DB.t VALUES (1, 'n1', 'o1')", "INSERT INTO DB.u VALUES (1, 'n1', 'o1')")
    p.start()
    p.catch_up()
    return p


def die(p: Pipe) -> str:
    """Run the statement on which it dies; what its collector then tells of it."""
    p.sql(SWAP, "INSERT INTO DB.t VALUES (2, 'o2', 'n2')")
    with closing(ConnectCollector(p.servers.connect.url, p.name)) as collector:
        wait_until(lambda: collector.state().state == "failed", SOON, "its death")
        return collector.state().detail


def read_schemas_again(p: Pipe) -> None:
    """Delete the history of schemas, and let the connector make it again from the tables."""
    connect = p.servers.connect
    config = connect.config(p.name)
    admin = KafkaAdminClient(bootstrap_servers=p.servers.kafka.bootstrap)
    admin.delete_topics([config["schema.history.internal.kafka.topic"]])
    admin.close()
    connect.configure(p.name, {**config, "snapshot.mode": "recovery"})
    connect.resume(p.name)


def assert_equal(p: Pipe) -> None:
    """Both mirrors have the rows that the source has, column by column."""
    for table in ("t", "u"):
        rows = p.sql(f"SELECT id, name, other FROM DB.{table} ORDER BY id")
        assert [(r["id"], r["name"], r["other"]) for r in p.mirror(table)] == rows


def test_f141_recovery_of_the_schema_history_empties_no_mirror(pipe: Callable[..., Pipe]) -> None:
    p = start_tables(pipe, "recovered")
    p.servers.connect.halt(p.name)
    read_schemas_again(p)
    p.sql("INSERT INTO DB.t VALUES (2, 'n2', 'o2')")

    p.catch_up()

    assert_equal(p)
    assert (p.lane.checkpoint.gaps, p.lane.checkpoint.snaps) == ({}, {})


def test_f141_a_new_snapshot_brings_it_back(pipe: Callable[..., Pipe]) -> None:
    p = start_tables(pipe, "snapshot_again")
    die(p)
    p.servers.connect.halt(p.name)
    p.sql("DELETE FROM DB.t WHERE id = 1")
    p.servers.connect.forget_offsets(p.name)
    p.servers.connect.resume(p.name)

    p.catch_up()

    assert_equal(p)
    assert p.lane.checkpoint.gaps == {}


@pytest.mark.usefixtures("lists_settle_soon")
def test_f141_moved_over_the_statement_it_needs_a_new_base_of_each_table(
    pipe: Callable[..., Pipe],
) -> None:
    p = start_tables(pipe, "moved_over")
    die(p)
    connect = p.servers.connect
    connect.halt(p.name)
    p.sql("DELETE FROM DB.u WHERE id = 1")
    missing = [p.heart.write_heartbeat(now).number for _ in range(3)]
    file, pos, _, _, gtids = p.sql("SHOW MASTER STATUS")[0]
    connect.move_offset(p.name, file, pos, gtids.replace("\n", ""))
    read_schemas_again(p)
    p.sql("INSERT INTO DB.t VALUES (3, 'n3', 'o3')")
    p.until(lambda: p.lane.checkpoint.heartbeats[p.name] > missing[-1])

    (gap,) = p.lane.checkpoint.gaps.values()
    before = p.pairs("u")
    for table in ("t", "u"):
        bootstrap(p, table)
    p.catch_up()

    assert (gap.topic, gap.shards) == (
        "beats:moved_over",
        ("moved_over/moved_over.t", "moved_over/moved_over.u"),
    )
    assert {*missing} <= {*range(gap.first, gap.until)}
    assert before == {1: "n1"}, "the gap empties no mirror"
    assert_equal(p)
    assert p.lane.checkpoint.gaps == {}


def signalled(bootstrap: str, topic: str) -> list[object]:
    """Rows of *topic* that were read because a signal asked for that."""
    sent = (json.loads(one.value) for one in records(bootstrap, topic) if one.value)
    rows = (one.get("payload", one) for one in sent)
    return [one["after"] for one in rows if one["op"] == "r" and one["source"]["server_id"]]


@pytest.mark.parametrize("condition", [False, True], ids=["all rows", "some rows"])
def test_f102_a_snapshot_of_one_table_is_no_base_and_deletes_nothing(
    pipe: Callable[..., Pipe], servers: Servers, *, condition: bool
) -> None:
    """A signal asks for it, and for the heartbeat's table; no event shows its condition."""
    name, kafka = f"one_table_{condition}".lower(), servers.kafka.bootstrap
    signals = {"enabled.channels": "kafka", "kafka.topic": f"{name}-signals"}
    signals |= {"kafka.bootstrap.servers": kafka, "poll.interval.ms": "200"}
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    admin.create_topics([NewTopic(f"{name}-signals", 1, 1)])
    admin.close()
    p = start_tables(pipe, name, **{f"signal.{key}": value for key, value in signals.items()})
    p.sql("INSERT INTO DB.t VALUES (2, 'n2', 'o2'), (3, 'n3', 'o3')")
    p.catch_up()
    shard, before = Shard(name, f"{name}.t"), p.lane.checkpoint.bases
    only = {"data-collection": f"{name}.t", "filter": f"SELECT * FROM {name}.t WHERE id = 2"}
    more = {"additional-conditions": [only]} if condition else {}
    tables, rows = [rf"{name}\.t", r"sluice\.heartbeat"], 1 if condition else 3
    signal = {"data-collections": tables, "type": "BLOCKING", **more}
    value = json.dumps({"type": "execute-snapshot", "data": signal}).encode()
    sender = KafkaProducer(bootstrap_servers=kafka)
    sender.send(f"{name}-signals", key=name.encode(), value=value).get(30)
    sender.close()

    wait_until(lambda: len(signalled(kafka, f"{name}.{name}.t")) == rows, SOON, "its rows")
    p.catch_up()

    assert p.pairs() == {1: "n1", 2: "n2", 3: "n3"}
    assert_equal(p)
    assert (p.lane.checkpoint.bases, p.lane.checkpoint.snaps, p.lane.checkpoint.gaps) == (
        before,
        {},
        {},
    )
    bootstrap(p, "t")
    p.catch_up()
    assert p.lane.checkpoint.bases[shard] > before[shard]
