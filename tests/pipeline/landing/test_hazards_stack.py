"""Settings that drop, rewrite or delay changes, set on a real connector and a real server.

Covers pipeline/landing/hazards.py and what collectors and sources tell to it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from checks.blocks import blocks
from demo.mysql import MySQL
from demo.processes import wait_until
from demo.servers import Servers
from pipeline.collectors.connect.collector import ConnectCollector
from pipeline.errors import UnreachableError
from pipeline.model import Shard, Table
from pipeline.sources.mysql.source import MySqlSource
from tests.checks.test_readiness import inputs
from tests.patience import SOON
from tests.pipeline.live import Pipe

pytestmark = [pytest.mark.stack]
FILTER = {
    "transforms": "f",
    "transforms.f.type": "org.apache.kafka.connect.transforms.Filter",
    "transforms.f.predicate": "p",
    "predicates": "p",
    "predicates.p.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
    "predicates.p.pattern": r".*\.t",
}
CONNECTOR: Mapping[str, Mapping[str, str]] = {
    "skipped.operations": {"skipped.operations": "d"},
    "errors.tolerance": {"errors.tolerance": "all"},
    "event.processing.failure.handling.mode": {"event.processing.failure.handling.mode": "warn"},
    "inconsistent.schema.handling.mode": {"inconsistent.schema.handling.mode": "skip"},
    "schema.history.internal.skip.unparseable.ddl": {
        "schema.history.internal.skip.unparseable.ddl": "true"
    },
    "transforms": FILTER,
    "gtid.source.excludes": {"gtid.source.excludes": "00000000-0000-0000-0000-000000000000"},
    "snapshot.select.statement.overrides": {
        "snapshot.select.statement.overrides": "walked.t",
        "snapshot.select.statement.overrides.walked.t": "SELECT * FROM walked.t WHERE id > 5",
    },
    "message.key.columns": {"message.key.columns": "walked.t:name"},
    "decimal.handling.mode": {"decimal.handling.mode": "double"},
    "bigint.unsigned.handling.mode": {"bigint.unsigned.handling.mode": "long"},
    "snapshot.locking.mode": {"snapshot.locking.mode": "none"},
    "acks": {"producer.override.acks": "1", "producer.override.enable.idempotence": "false"},
}
SERVER = {
    "binlog_format": "STATEMENT",
    "binlog_row_image": "MINIMAL",
    "binlog_row_value_options": "PARTIAL_JSON",
    "binlog_order_commits": "OFF",
    "binlog_error_action": "IGNORE_ERROR",
}


@pytest.fixture
def pipe(servers: Servers, tmp_path: Path) -> Iterator[Pipe]:
    found = Pipe(servers, tmp_path / "lake", "walked")
    found.sql("CREATE TABLE IF NOT EXISTS DB.t (id INT PRIMARY KEY, name LONGTEXT)")
    yield found
    with suppress(UnreachableError):
        found.end()
    servers.mysql.execute("DROP DATABASE walked")


def test_f102_each_setting_of_a_real_connector_is_told_at_the_next_look(pipe: Pipe) -> None:
    pipe.register()
    with closing(ConnectCollector(pipe.servers.connect.url, pipe.name)) as collector:
        assert collector.captures().hazards == ()
        told = {}
        for code, settings in CONNECTOR.items():
            pipe.connector = settings
            pipe.register()
            told[code] = [one.code for one in collector.captures().hazards]

    assert told == {code: [code] for code in CONNECTOR}


def test_f102_each_variable_of_a_real_server_is_told_at_the_next_look(pipe: Pipe) -> None:
    told = {}
    with closing(MySqlSource(pipe.source())) as source:
        assert source.sends().hazards == ()
        for name, value in SERVER.items():
            before = pipe.sql(f"SELECT @@GLOBAL.{name}")[0][0]
            before = {0: "OFF", 1: "ON"}.get(before, before)
            pipe.sql(f"SET GLOBAL {name} = '{value}'")
            try:
                told[name] = [one.code for one in source.sends().hazards]
            finally:
                pipe.sql(f"SET GLOBAL {name} = '{before}'")
        assert source.sends().hazards == ()

    assert told == {name: [name] for name in SERVER}


@pytest.mark.spark
def test_f102_a_record_that_is_lost_by_tolerance_is_never_ready(
    pipe: Pipe, spark: SparkSession
) -> None:
    del spark
    pipe.sql("INSERT INTO DB.t VALUES (1, 'a')")
    pipe.start()
    pipe.catch_up()
    assert unproven(pipe) == []

    pipe.connector = {"errors.tolerance": "all"}
    pipe.register()
    pipe.sql(
        "INSERT INTO DB.t VALUES (2, REPEAT('x', 2000000))", "INSERT INTO DB.t VALUES (3, 'c')"
    )
    pipe.catch_up()

    assert pipe.pairs() == {1: "a", 3: "c"}, "the record of id 2 is lost"
    (told,) = unproven(pipe)
    assert "errors.tolerance=all" in told

    pipe.connector = {"errors.tolerance": "none"}
    pipe.register()
    pipe.catch_up()
    assert unproven(pipe) == [told], "what was lost stays lost"


def test_f110_a_replica_whose_replication_has_stopped_is_never_proven(
    servers: Servers, start_mysql: Callable[[int], MySQL], pipe: Pipe
) -> None:
    heir = start_mysql(2)
    heir.replica_of(servers.mysql)
    pipe.mysql = heir
    done = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'walked'"
    wait_until(lambda: heir.execute(done)[0][0] == 1, SOON, "the replica")

    heir.execute("STOP SLAVE")
    with closing(MySqlSource(pipe.source())) as source:
        stopped = [one.code for one in source.sends().hazards]
        heir.execute("RESET SLAVE ALL")
        promoted = source.sends().hazards
    pipe.mysql = servers.mysql

    assert (stopped, promoted) == (["replica"], ())


def unproven(pipe: Pipe) -> list[str]:
    """What the gate says of the table for settings, by the newest batch."""
    table = Table("walked.t", (Shard("walked", "walked.t"),), key=("id",))
    found = blocks(inputs(table=table, taken={"landed": pipe.lane.mark}), frozenset())
    return [one.text for one in found if one.code == "unproven"]
