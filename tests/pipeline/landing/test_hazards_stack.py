"""Settings that drop, rewrite or delay changes, set on a real connector and a real server."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from pyspark.sql import SparkSession

from checks.blocks import find_blocks
from demo.mysql import MySQL
from demo.processes import wait_until
from demo.servers import Servers
from pipeline.errors import UnreachableError
from pipeline.model import Shard, Table
from pipeline.sources.mysql.source import MySqlSource
from tests.checks.test_readiness import inputs
from tests.patience import SOON
from tests.pipeline.landing.harmful_settings import (
    CONNECTOR,
    POSTGRES,
    POSTGRES_TABLES,
    SERVER,
    TOPIC,
)
from tests.pipeline.live import Pipe
from tests.pipeline.postgres_live import PostgresPipe

pytestmark = [pytest.mark.stack]
MINUTE = timedelta(minutes=1)


HARMLESS = {"cleanup.policy": "delete", "unclean.leader.election.enable": "false"}


@pytest.fixture
def pipe(servers: Servers, tmp_path: Path) -> Iterator[Pipe]:
    found = Pipe(servers, tmp_path / "lake", "walked")
    found.sql("CREATE TABLE IF NOT EXISTS DB.t (id INT PRIMARY KEY, name LONGTEXT)")
    yield found
    with suppress(UnreachableError):
        found.end()
    servers.mysql.execute("DROP DATABASE walked")


@pytest.mark.spark
def test_f102_each_setting_of_a_connector_withholds_ready_within_a_minute(
    pipe: Pipe, spark: SparkSession
) -> None:
    del spark
    land_first_row(pipe)

    for name, settings in CONNECTOR.items():
        pipe.connector = settings
        pipe.servers.connect.configure(pipe.name, pipe.config())
        until_unproven(pipe, f"{name}=" if name != "transforms" else "transforms.Filter) drops")


@pytest.mark.spark
def test_f102_each_variable_of_a_server_withholds_ready_within_a_minute(
    pipe: Pipe, spark: SparkSession
) -> None:
    del spark
    land_first_row(pipe)

    for name, value in SERVER.items():
        before = pipe.sql(f"SELECT @@GLOBAL.{name}")[0][0]
        before = {0: "OFF", 1: "ON"}.get(before, before)
        pipe.sql(f"SET GLOBAL {name} = '{value}'")
        try:
            until_unproven(pipe, f"{name}={value}")
        finally:
            pipe.sql(f"SET GLOBAL {name} = '{before}'")
    with closing(MySqlSource(pipe.source())) as source:
        assert source.sends().hazards == ()


@pytest.mark.spark
def test_f102_each_setting_of_a_topic_withholds_ready_within_a_minute(
    pipe: Pipe, spark: SparkSession
) -> None:
    del spark
    land_first_row(pipe)
    admin = KafkaAdminClient(bootstrap_servers=pipe.servers.kafka.bootstrap)
    with closing(admin):
        try:
            for name, value in TOPIC.items():
                _set_topic(admin, {name: value})
                until_unproven(pipe, f"topic walked.walked.t: {name}={value}")
        finally:
            _set_topic(admin, HARMLESS)  # other tests have this topic, too


def _set_topic(admin: KafkaAdminClient, settings: Mapping[str, str]) -> None:
    """Give the topic these *settings*; others stay."""
    topic = ConfigResource(ConfigResourceType.TOPIC, "walked.walked.t", dict(settings))
    admin.alter_configs([topic])


@pytest.mark.spark
def test_f102_each_setting_of_a_postgres_withholds_ready_within_a_minute(
    postgres_pipe: Callable[..., PostgresPipe], spark: SparkSession
) -> None:
    del spark
    p: PostgresPipe = postgres_pipe("walked")
    p.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, name TEXT NOT NULL)",
        "CREATE UNIQUE INDEX t_name ON t (name)",
    )
    land_first_row(p)

    for name, (statements, undo) in POSTGRES_TABLES.items():
        p.sql(*statements)
        until_unproven(p, f"{name} on public.t: ")
        p.sql(*undo)
    for name, settings in POSTGRES.items():
        p.connector = settings
        p.servers.connect.configure(p.name, p.config())
        until_unproven(p, f"{name}=")


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
    start_mysql: Callable[[int], MySQL], pipe: Pipe
) -> None:
    primary, heir = start_mysql(2), start_mysql(3)  # the shared server's log is long by now
    heir.replica_of(primary)
    primary.execute("CREATE DATABASE walked", "CREATE TABLE walked.t (id INT PRIMARY KEY)")
    shared, pipe.mysql = pipe.mysql, heir
    done = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'walked'"
    wait_until(lambda: heir.execute(done)[0][0] == 1, SOON, "the replica")

    heir.execute("STOP SLAVE")
    with closing(MySqlSource(pipe.source())) as source:
        stopped = [one.code for one in source.sends().hazards]
        heir.execute("RESET SLAVE ALL")
        promoted = source.sends().hazards
    pipe.mysql = shared

    assert (stopped, promoted) == (["replica"], ())


def land_first_row(pipe: Pipe) -> None:
    """Land and merge a row; nothing is wrong with the settings."""
    pipe.sql(f"INSERT INTO {pipe.named('t')} VALUES (1, 'a')")
    pipe.start()
    pipe.catch_up()
    assert unproven(pipe) == []


def until_unproven(pipe: Pipe, told: str) -> None:
    """Go on until the gate says *told* of the table, which it has not said before."""
    assert not any(told in one for one in unproven(pipe)), f"{told} before it was set"

    def said() -> bool:
        pipe.round()
        return any(told in one for one in unproven(pipe))

    wait_until(said, MINUTE, f"unproven by {told}")


def unproven(pipe: Pipe) -> list[str]:
    """What the gate says of the table for settings, by the newest batch."""
    table = Table(pipe.named("t"), (Shard(pipe.name, pipe.named("t")),), key=("id",))
    found = find_blocks(inputs(table=table, taken={"landed": pipe.lane.checkpoint}), frozenset())
    return [one.text for one in found if one.code == "unproven"]
