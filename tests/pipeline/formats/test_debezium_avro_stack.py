"""MySQL through Debezium in Avro, a real registry and a lane: the mirrors equal their sources.

Apicurio's converter writes the default for NULL in a column that has one; a table beside it has
names that Avro cannot spell.  A registry that is killed stops the lane, and loses nothing; a schema
that the mirror may not follow holds its table, and no other.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from demo.ports import free_ports
from demo.registry import Registry
from demo.servers import Servers
from pipeline.model import TopicPartition
from pipeline.settings import SourceSettings
from tests.pipeline.live import Pipe

pytestmark = [pytest.mark.stack, pytest.mark.spark]

NAMES = ("schema.name.adjustment.mode", "field.name.adjustment.mode")
ODD = "CREATE TABLE DB.`odd na-me` (id INT PRIMARY KEY, `a b` INT DEFAULT 7, `a.b` TEXT, `ü_x` INT)"


@dataclass(eq=False)
class AvroPipe(Pipe):
    """A pipe whose connector writes Avro."""

    registry: Registry = field(kw_only=True)

    def source(self) -> SourceSettings:
        options: Mapping[str, Any] = {"registry": {"url": self.registry.url, "timeout": "PT1S"}}
        return replace(super().source(), format="debezium_avro", format_options=options)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Servers, Registry]]:
    """Servers of their own: the converter lies on Connect's class path."""
    home = tmp_path_factory.mktemp("avro")
    registry = Registry(home / "registry", free_ports(1)[0])
    servers = Servers.create(home / "servers")
    servers.connect.beside = ("converter",)
    with servers:
        registry.start()
        yield servers, registry
        registry.stop()


def avro_pipe(stack: tuple[Servers, Registry], home: Path, name: str) -> AvroPipe:
    servers, registry = stack
    settings = {**registry.converter("key"), **registry.converter("value")}
    names = dict.fromkeys(NAMES, "avro_unicode")
    return AvroPipe(servers, home, name, connector={**settings, **names}, registry=registry)


def test_a_mirror_equals_its_source(stack: tuple[Servers, Registry], tmp_path: Path) -> None:
    p = avro_pipe(stack, tmp_path / "avro", "avro")
    p.sql(
        "CREATE TABLE DB.t (id INT PRIMARY KEY, name VARCHAR(40), v INT DEFAULT 7, d DECIMAL(9,2))",
        "INSERT INTO DB.t VALUES (1, 'a', 1, 1.10), (2, NULL, NULL, NULL), (3, '\"\\n', 3, -3)",
        ODD,
        "INSERT INTO DB.`odd na-me` VALUES (1, 2, 'x', 3), (2, NULL, NULL, NULL)",
    )
    p.start()
    p.catch_up()

    assert p.findings("t") == {"changed": 1}  # which the doctor refuses: row 2, and nothing else
    assert [row["v"] for row in p.mirror("t") if row["id"] == 2] == [7]


def test_a_registry_that_is_killed_stops_the_lane_and_loses_nothing(
    stack: tuple[Servers, Registry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    p, registry = avro_pipe(stack, tmp_path / "dead", "dead"), stack[1]
    p.sql(
        "CREATE TABLE DB.t (id INT PRIMARY KEY, name VARCHAR(40))",
        "INSERT INTO DB.t VALUES (1,'a')",
    )
    p.start()
    p.catch_up()
    at_rest = p.lane.checkpoint

    registry.kill()
    monkeypatch.setattr(
        "pipeline.formats.schema_registry.known_schemas", {}
    )  # as in a process that has just begun
    p.sql("INSERT INTO DB.t VALUES (2,'b')", "UPDATE DB.t SET name = 'z' WHERE id = 1")
    p.until(lambda: bool(p.landed[-1].holds))
    (hold,) = p.landed[-1].holds

    assert (hold.subject, hold.reason) == (f"source:{p.name}", "registry")
    assert "nothing is lost, landing resumes when the registry answers" in hold.detail
    assert (
        p.lane.checkpoint.offsets[TopicPartition.parse(f"{p.name}.{p.name}.t:0")]
        == at_rest.offsets[TopicPartition.parse(f"{p.name}.{p.name}.t:0")]
    )

    registry.start()
    p.catch_up()

    assert p.landed[-1].holds == ()
    assert p.pairs() == p.source_pairs() == {1: "z", 2: "b"}
    assert not p.lane.checkpoint.quarantine
    assert not p.lane.checkpoint.gaps


@pytest.mark.parametrize(
    "change",
    [
        pytest.param("MODIFY v VARCHAR(10)", id="another type"),
        pytest.param("DROP COLUMN v", id="a column that goes"),
    ],
)
def test_a_schema_that_the_mirror_may_not_follow_holds_its_table_before_a_commit(
    stack: tuple[Servers, Registry], tmp_path: Path, change: str
) -> None:
    p = avro_pipe(stack, tmp_path / "evolved", f"evolved_{change[0].lower()}")
    p.sql(
        "CREATE TABLE DB.t (id INT PRIMARY KEY, name VARCHAR(40), v INT)",
        "CREATE TABLE DB.u (id INT PRIMARY KEY, name VARCHAR(40))",
        "INSERT INTO DB.t VALUES (1,'a',1)",
        "INSERT INTO DB.u VALUES (1,'a')",
    )
    p.start()
    p.catch_up()
    before = p.mirror("t")

    p.sql(f"ALTER TABLE DB.t {change}", "UPDATE DB.t SET name = 'b'", "UPDATE DB.u SET name = 'b'")
    p.catch_up()

    holds = [one for one in p.applied if one.hold is not None]
    assert {one.table for one in holds} == {f"{p.name}.t"}
    assert {one.hold.reason for one in holds if one.hold} == {"schema"}
    assert all(one.hold and " v" in one.hold.detail for one in holds)
    assert p.mirror("t") == before
    assert p.pairs("u") == {1: "b"}
