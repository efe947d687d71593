"""A table of a real Postgres goes all the way: beat, Debezium, Kafka, change log, mirror, proof."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from demo.postgres import Postgres
from demo.servers import Servers
from pipeline.build import collection_scope, open_source
from pipeline.collectors.connect.wanted import wanted
from pipeline.settings import CollectorSettings, PipelineSettings, SourceSettings
from pipeline.sources.heartbeat import Heart
from tests.pipeline.live import Pipe, now

pytestmark = [pytest.mark.stack, pytest.mark.spark]


@dataclass(eq=False)
class PostgresPipe(Pipe):
    """Database *name* of *postgres*, set up as the product itself would set it up."""

    postgres: Postgres | None = None

    def __post_init__(self) -> None:
        """Create the database; nothing runs yet."""
        assert self.postgres is not None
        self.server = self.postgres
        self.server.create_database(self.name)

    def source(self) -> SourceSettings:
        return SourceSettings(
            name=self.name,
            host=self.server.host,
            port=self.server.port,
            user="sluice",
            password="sluice",
            collector=CollectorSettings(self.servers.connect.url, self.name),
            prefix=self.name,
            kind="postgres",
            options={"database": self.name, "slot": self.name},
        )

    def start(self) -> None:
        """Write a first heartbeat, register the connector, open the lane."""
        made = open_source(self.source())
        made.prepare_heartbeat()
        self.heart = Heart(made)
        self.fence = self.heart.beat(now)
        self.register()
        self.open()

    def register(self) -> None:
        bootstrap = self.servers.kafka.bootstrap
        settings = PipelineSettings(str(self.home), bootstrap, (self.source(),))
        config = wanted(collection_scope(settings, self.source()), {})
        self.servers.connect.register(self.name, {**config, "database.password": "debezium"})

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.execute(*statements, database=self.name)

    def mirror(self, table: str, order_by: str = "id") -> list[dict[str, Any]]:
        path = self.lane.passes.settings.mirror(f"public.{table}")
        rows = self.session.read.format("delta").load(path).drop("_sluice")
        return [row.asDict() for row in rows.orderBy(order_by).collect()]

    def source_pairs(self, table: str = "t") -> dict[int, Any]:
        return dict(self.sql(f"SELECT id, name FROM {table}"))


@pytest.fixture
def pipe(
    servers: Servers, postgres: Postgres, spark: SparkSession, tmp_path: Path
) -> Iterator[Callable[[str], PostgresPipe]]:
    """A way to get a pipe of a database name; its connector ends with the test."""
    del spark  # lanes take up the session that is there
    made: list[PostgresPipe] = []

    def make(name: str) -> PostgresPipe:
        name = f"{name}_{postgres.version}"
        made.append(PostgresPipe(servers, tmp_path / name, name, postgres=postgres))
        return made[-1]

    yield make
    for one in made:
        servers.connect.deregister(one.name)
        one.heart.source.close()


def test_rows_of_a_snapshot_and_of_transactions_reach_the_mirror_and_are_proven_there(
    pipe: Callable[[str], PostgresPipe],
) -> None:
    p = pipe("whole")
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
