"""The system of docs/systems/robinhood.md on real servers, by the config that stands there.

Only addresses, memory and paces are others: what takes minutes there takes seconds here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import yaml
from click.testing import CliRunner

from demo.connect import Connect
from demo.kafka import Kafka
from demo.oracle.postgres import read_postgres
from demo.oracle.rows import Source
from demo.ports import free_ports
from demo.postgres import SYNCED, Postgres
from demo.registry import Registry
from demo.shop.postgres import PostgresAddress
from demo.shop.schema import MIRRORS
from demo.story.service import read_config
from monitor.commands.connector import COMMAND as CONNECTOR
from tests.docs.markdown import ROOT, blocks
from tests.proof.stand import Stand

PAGE = ROOT / "docs" / "systems" / "robinhood.md"
DATABASE = "brokerage"


@dataclass(eq=False)
class Brokers:
    """Postgres, Kafka, Connect and, for Avro, a registry; their data goes when they are stopped."""

    postgres: Postgres
    kafka: Kafka
    connect: Connect
    registry: Registry | None = None

    @classmethod
    def create(cls, home: Path, version: str, *, avro: bool) -> "Brokers":
        """Name the servers of *home*."""
        ports = free_ports(5)
        kafka = Kafka(home / "kafka", ports[1], ports[2])
        registry = Registry(home / "registry", ports[4]) if avro else None
        connect = Connect(home / "connect", ports[3], kafka.bootstrap)
        connect.beside = ("converter",) if avro else ()
        return cls(Postgres(home / "postgres", ports[0], version), kafka, connect, registry)

    def start(self) -> None:
        self.postgres.start()
        self.postgres.create_database(DATABASE)
        self.kafka.start()
        if self.registry is not None:
            self.registry.start()
        self.connect.start()

    def stop(self) -> None:
        for server in (self.connect, self.kafka, self.registry):
            if server is not None:
                server.stop()
        self.postgres.remove()


@dataclass(eq=False)
class PostgresSystem:
    """A shop on Postgres of a version; ``avro`` says whether messages are Avro, or JSON."""

    home: Path
    version: str = "15"
    avro: bool = True
    _named: list[str] = field(default_factory=list)

    @cached_property
    def site(self) -> Brokers:
        return Brokers.create(self.home, self.version, avro=self.avro)

    @property
    def address(self) -> PostgresAddress:
        return PostgresAddress(self.site.postgres.host, self.site.postgres.port, DATABASE)

    @property
    def environment(self) -> Mapping[str, str]:
        registry = self.site.registry
        return {
            "DEMO_KAFKA": self.site.kafka.bootstrap,
            "DEMO_CONNECT": self.site.connect.url,
            "DEMO_POSTGRES_PORT": str(self.site.postgres.port),
            "DEMO_POSTGRES_PASSWORD": "sluice",
            **({} if registry is None else {"DEMO_REGISTRY": registry.url}),
        }

    def sources(self) -> dict[str, Source]:
        return read_postgres(self.address, MIRRORS)


def written(home: Path, *, avro: bool) -> Path:
    """The page's config as a file in *home*: its own words, with addresses and the demo's paces."""
    (text,) = blocks(PAGE, "yaml")
    told, demo = yaml.safe_load(text), read_config()
    for name in ("lake", "kafka", "store", "readiness", "schedule", "http", "pipeline", "probes"):
        told[name] = demo[name]
    for source in told["sources"]:
        port, password = {"env": "DEMO_POSTGRES_PORT"}, {"env": "DEMO_POSTGRES_PASSWORD"}
        source |= {"host": "127.0.0.1", "port": port, "password": password}
        source["collector"]["url"] = {"env": "DEMO_CONNECT"}
        if avro:
            source["format_options"]["registry"]["url"] = {"env": "DEMO_REGISTRY"}
        else:
            del source["format"], source["format_options"]
    path = home / "sluice.yaml"
    path.write_text(yaml.safe_dump(told), encoding="utf-8")
    return path


def collect(stand: Stand) -> None:
    """Register the connectors by the verb, as anybody would; a password is a reference.

    The registry's own converter writes, as Confluent's is not to be had here.
    """
    site = stand.system.site
    assert isinstance(site, Brokers)
    secrets = stand.home / "secrets.properties"
    secrets.write_text("debezium=debezium\n", encoding="utf-8")
    told = read_config(stand.config)
    settings = {
        "database.user": "debezium",
        "database.password": f"${{file:{secrets}:debezium}}",
        "topic.creation.default.partitions": "2",
        **({"slot.failover": "true"} if int(site.postgres.version) >= SYNCED else {}),
        **(_converters(site.registry) if site.registry else {}),
    }
    for source in told["sources"]:
        source["collector"]["options"] = {"settings": settings}
    path = stand.home / "collecting.yaml"
    path.write_text(yaml.safe_dump(told), encoding="utf-8")
    with stand.environment():
        for source in told["sources"]:
            words = [source["name"], "--apply", "--config", str(path)]
            result = CliRunner().invoke(CONNECTOR, words)
            assert result.exit_code == 0, (result.output, result.exception)
    registered = {one["name"]: site.connect.config(one["name"]) for one in told["sources"]}
    (site.connect.home / "connectors.json").write_text(json.dumps(registered), encoding="utf-8")


def _converters(registry: Registry) -> dict[str, str]:
    return {**registry.converter("key"), **registry.converter("value")}
