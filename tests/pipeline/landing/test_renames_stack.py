"""A table that a real MySQL moves into another database, with the old one named and without."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from checks.blocks import find_blocks
from demo.servers import Servers
from pipeline.checkpoint import active_shards
from pipeline.errors import UnreachableError
from pipeline.model import Shard, Table
from pipeline.settings import Router
from tests.checks.test_readiness import inputs
from tests.pipeline.live import Pipe
from tests.topic_records import records

pytestmark = [pytest.mark.stack, pytest.mark.spark]


@pytest.fixture
def pipe(servers: Servers, tmp_path: Path, spark: SparkSession) -> Iterator[Pipe]:
    del spark
    found = Pipe(servers, tmp_path / "lake", "moved_a")
    found.connector = {"database.include.list": "moved_a,moved_b,sluice"}
    servers.mysql.execute("CREATE DATABASE moved_b")
    found.sql(
        *(f"CREATE TABLE DB.{name} (id INT PRIMARY KEY, name TEXT)" for name in ("told", "bare")),
        *(f"INSERT INTO DB.{name} VALUES (1, 'a'), (2, 'b')" for name in ("told", "bare")),
    )
    yield found
    with suppress(UnreachableError):
        found.end()
    servers.mysql.execute("DROP DATABASE moved_a", "DROP DATABASE moved_b")


def listed(pipe: Pipe) -> set[str]:
    """Tables that are there, without the heartbeats'."""
    names = active_shards(pipe.lane.checkpoint, Router(())).values()
    return {name for name in names if not name.startswith("sluice.")}


def reasons(pipe: Pipe, table: str) -> set[str]:
    """Why the gate does not say READY of *table*, by what has landed."""
    known = Table(table, (Shard(pipe.name, table),), key=("id",))
    return {
        one.code
        for one in find_blocks(
            inputs(table=known, taken={"landed": pipe.lane.checkpoint}), frozenset()
        )
    }


def find_holds(pipe: Pipe) -> dict[str, str]:
    """Tables whose merge is held, and why."""
    return {one.table: one.hold.detail for one in pipe.applied if one.hold is not None}


def sent_statements(pipe: Pipe, text: str) -> list[dict[str, Any]]:
    """The schema changes whose statement holds *text*."""
    every = (json.loads(one.value) for one in records(pipe.servers.kafka.bootstrap, pipe.name))
    return [one for one in every if text in (one.get("ddl") or "")]


def test_f117_a_table_that_moves_to_another_database_is_listed_at_once(pipe: Pipe) -> None:
    pipe.start()
    pipe.catch_up()
    assert listed(pipe) == {"moved_a.told", "moved_a.bare"}

    pipe.sql("RENAME TABLE moved_a.told TO moved_b.told")
    pipe.until(lambda: "moved_b.told" in listed(pipe))

    assert listed(pipe) == {"moved_b.told", "moved_a.bare"}
    assert reasons(pipe, "moved_b.told") == set(), "the rows of the old one are its base"

    pipe.sql("USE moved_a", "RENAME TABLE bare TO moved_b.bare")
    pipe.until(lambda: "moved_b.bare" in listed(pipe))

    (said,) = sent_statements(pipe, "RENAME TABLE bare")
    assert (said["databaseName"], said["source"]["db"]) == ("moved_b", "moved_b")
    assert [one["id"] for one in said["tableChanges"]] == ['"moved_b"."bare"']
    assert reasons(pipe, "moved_b.bare") == {"no_base"}
    pipe.until(lambda: {"moved_a.bare", "moved_b.bare"} <= find_holds(pipe).keys())
    assert "became moved_b.bare, maybe this one (then ignore it" in find_holds(pipe)["moved_a.bare"]
    assert "; take a new base of moved_b.bare" in find_holds(pipe)["moved_b.bare"]
