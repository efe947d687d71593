"""A pipe from a real Postgres: its own database, publication, slot and connector, and a lane."""

from dataclasses import dataclass
from typing import Any

from demo.postgres import PUBLICATION, Postgres
from pipeline.build import collection_scope, open_source
from pipeline.collectors.connect.config import required_config
from pipeline.model import Fence
from pipeline.settings import CollectorSettings, PipelineSettings, SourceSettings
from pipeline.sources.source import HeartbeatTable
from tests.pipeline.live import Pipe, now


@dataclass(eq=False)
class PostgresPipe(Pipe):
    """Database *name* of *postgres*, set up as the product itself would set it up.

    Or *database*, which another pipe has made.  The lane lands sources *beside* its own, too.
    """

    postgres: Postgres | None = None
    database: str = ""
    publication: str = PUBLICATION
    beside: tuple["PostgresPipe", ...] = ()

    def __post_init__(self) -> None:
        """Create the database; nothing runs yet."""
        assert self.postgres is not None
        self.server = self.postgres
        if not self.database:
            self.database = self.name
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
            follow_hosts=("127.0.0.1",),  # servers are exchanged for others at other ports
            kind="postgres",
            options={
                "database": self.database,
                "publication": self.publication,
                "slot": self.name,
            },
        )

    def start(self) -> None:
        """Write a first heartbeat, register the connector, open the lane."""
        self.begin()
        self.register()
        self.open()

    def begin(self) -> None:
        """Write a first heartbeat."""
        made = open_source(self.source())
        made.prepare_heartbeat()
        self.heart = HeartbeatTable(made)
        self.fence = self.heart.write_heartbeat(now)

    def register(self) -> None:
        self.servers.connect.register(self.name, self.config())

    def config(self) -> dict[str, str]:
        """Settings of the connector that reads the server as it is now."""
        bootstrap = self.servers.kafka.bootstrap
        settings = PipelineSettings(str(self.home), bootstrap, (self.source(),), rules=self.rules)
        config = required_config(collection_scope(settings, self.source()), self.connector)
        return {**config, "database.password": "debezium"}

    def sources(self) -> tuple[SourceSettings, ...]:
        return (self.source(), *(other.source() for other in self.beside))

    def round(self, waived: frozenset[str] = frozenset()) -> Fence:
        for other in self.beside:
            other.fence = other.heart.write_heartbeat(now)
        return super().round(waived)

    def end(self) -> None:
        super().end()
        self.heart.source.close()

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.execute(*statements, database=self.database)

    def named(self, table: str) -> str:
        return f"public.{table}"

    def source_pairs(self, table: str = "t") -> dict[int, Any]:
        return dict(self.sql(f"SELECT id, name FROM {table}"))
