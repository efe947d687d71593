"""A real connector loses its offset, and reads its MySQL again: a gap, and what is gone goes.

What a signal asks a connector of Postgres to read again leaves none, and nothing goes.
"""

import json
from collections.abc import Callable

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from demo.processes import wait_until
from tests.patience import SOON
from tests.pipeline.live import Pipe
from tests.pipeline.postgres_live import PostgresPipe
from tests.topic_records import records

pytestmark = [pytest.mark.stack, pytest.mark.spark]


def test_a_collector_that_lost_its_offset_leaves_a_gap_until_all_is_read_again(
    pipe: Callable[..., Pipe],
) -> None:
    """What went meanwhile is sent by nobody, nor is a row of a table that was emptied."""
    p = pipe("forgot")
    columns = "(id INT PRIMARY KEY, name VARCHAR(80))"
    p.sql(f"CREATE TABLE DB.t {columns}", f"CREATE TABLE DB.emptied {columns}")
    p.sql("INSERT INTO DB.t VALUES (1, 'a'), (2, 'b')", "INSERT INTO DB.emptied VALUES (1, 'a')")
    p.start()
    p.catch_up()
    assert (p.lane.checkpoint.gaps, p.lane.checkpoint.again) == ({}, {})
    p.servers.connect.halt(p.name)
    p.sql("DELETE FROM DB.emptied", "DELETE FROM DB.t WHERE id = 2")
    p.servers.connect.forget_offsets(p.name)
    p.servers.connect.resume(p.name)

    p.until(lambda: p.name in p.lane.checkpoint.again)
    told = [one for landed in p.landed for one in landed.gaps]
    p.catch_up()

    shards = {f"{p.name}/{p.name}.{name}" for name in ("t", "emptied")}
    assert all({*gap.shards} <= shards for gap in told)
    again = p.lane.checkpoint.again[p.name]
    assert (again.tables, again.asked) == (2, False)
    assert list(p.lane.checkpoint.gaps.values()) == []
    lost = p.lane.checkpoint.lost
    assert {str(shard) for shard, order in lost.items() if order >= again.order} == shards
    assert p.pairs() == p.source_pairs() == {1: "a"}
    assert p.pairs("emptied") == {}


def test_f102_a_signal_with_a_condition_that_names_all_tables_of_postgres_deletes_nothing(
    postgres_pipe: Callable[..., PostgresPipe],
) -> None:
    p = postgres_pipe("signalled")
    bootstrap, signals = p.servers.kafka.bootstrap, f"{p.name}-signals"
    more = {"enabled.channels": "kafka", "kafka.topic": signals, "poll.interval.ms": "200"}
    more |= {"kafka.bootstrap.servers": bootstrap}
    p.connector = {f"signal.{key}": value for key, value in more.items()}
    sender = KafkaProducer(bootstrap_servers=bootstrap)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(signals, 1, 1)])
    admin.close()
    p.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(80))",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )
    p.start()
    p.catch_up()
    before = p.lane.checkpoint.bases
    only = {"data-collection": "public.t", "filter": "SELECT * FROM public.t WHERE id = 2"}
    tables = [r"public\.t", r"sluice\.heartbeat"]
    data = {"data-collections": tables, "type": "BLOCKING", "additional-conditions": [only]}
    value = json.dumps({"type": "execute-snapshot", "data": data}).encode()
    sender.send(signals, key=p.name.encode(), value=value).get(30)
    sender.close()

    wait_until(lambda: len(list(records(bootstrap, f"{p.name}.public.t"))) == 4, SOON, "its row")
    p.catch_up()

    assert (p.lane.checkpoint.bases, p.lane.checkpoint.snaps) == (before, {})
    assert (p.lane.checkpoint.gaps, p.lane.checkpoint.again) == ({}, {})
    assert p.pairs() == p.source_pairs() == {1: "a", 2: "b", 3: "c"}
