"""Settings with which Debezium sends every change of a MySQL or a Postgres and loses no value."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from demo.postgres import PUBLICATION
from pipeline.collectors.connect.postgres import end_markers

COMMON: Mapping[str, str] = {
    "tasks.max": "1",
    "snapshot.mode": "when_needed",
    "decimal.handling.mode": "string",
    "time.precision.mode": "adaptive_time_microseconds",
    "provide.transaction.metadata": "true",
    "heartbeat.interval.ms": "1000",
    "skipped.operations": "none",  # its default hides truncates
    "event.converting.failure.handling.mode": "fail",  # its default sends NULL instead
    "tombstones.on.delete": "true",
    "errors.max.retries": "-1",
    "retriable.restart.connector.wait.ms": "1000",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.replace.null.with.default": "false",  # its default: NULL becomes the default
    "topic.creation.default.replication.factor": "1",
    "producer.override.acks": "all",
    "producer.override.enable.idempotence": "true",
    "producer.override.max.in.flight.requests.per.connection": "1",
}
MYSQL_LOSSLESS: Mapping[str, str] = {
    **COMMON,
    "connector.class": "io.debezium.connector.mysql.MySqlConnector",
    "bigint.unsigned.handling.mode": "precise",
    "include.schema.changes": "true",
    "connect.keep.alive.interval.ms": "2000",  # its default finds a dead source in 60 s
    "enable.time.adjuster": "false",  # its default turns the year 0001 into 2001
}
POSTGRES_LOSSLESS: Mapping[str, str] = {
    **COMMON,
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "plugin.name": "pgoutput",
    "publication.name": PUBLICATION,
    "publication.autocreate.mode": "disabled",
    "column.propagate.source.type": ".*",  # there is no topic of schema changes
    "include.unknown.datatypes": "true",  # its default leaves such columns out
    "interval.handling.mode": "string",  # its default takes a month for 30.4 days
    "hstore.handling.mode": "json",
    "status.update.interval.ms": "1000",  # its default makes the server keep 10 s more of the log
}


class Listening(Protocol):
    """A server that listens at an address."""

    @property
    def host(self) -> str:
        """Its host."""
        ...

    @property
    def port(self) -> int:
        """Its port."""
        ...


class Replicating(Listening, Protocol):
    """A MySQL with its own server id; its readers have other ids."""

    @property
    def server_id(self) -> int:
        """Return its own id."""
        ...


def mysql_connector(
    mysql: Replicating,
    bootstrap: str,
    *,
    prefix: str = "shop",
    databases: Sequence[str] = (),
    tables: Sequence[str] = (),
    partitions: int = 1,
    envelope: bool = False,
    settings: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the config of a connector that reads *mysql*, for `Connect.register`.

    *databases* and *tables* (`database.table`) are regular expressions; empty means all. With
    *envelope*, each message contains its schema. *settings* are added to, or replace, these.
    """
    included = {
        "database.include.list": ",".join(databases),
        "table.include.list": ",".join(tables),
    }
    return {
        **MYSQL_LOSSLESS,
        **{name: value for name, value in included.items() if value},
        "topic.prefix": prefix,
        "database.hostname": mysql.host,
        "database.port": str(mysql.port),
        "database.user": "debezium",
        "database.password": "debezium",
        "database.server.id": str(100_000 + mysql.server_id),
        **_topics(partitions, envelope=envelope),
        "schema.history.internal.kafka.bootstrap.servers": bootstrap,
        "schema.history.internal.kafka.topic": f"__schema-history.{prefix}",
        **(settings or {}),
    }


def postgres_connector(
    postgres: Listening,
    database: str,
    *,
    prefix: str,
    tables: Sequence[str] = (),
    partitions: int = 1,
    settings: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the config of a connector that reads *database* of *postgres*, for `Connect.register`.

    *tables* (`schema.table`) are regular expressions; empty means all. The publication must exist;
    the slot, named as the *prefix*, is created. Each message contains its schema. *settings* are
    added to, or replace, these.
    """
    return {
        **POSTGRES_LOSSLESS,
        **end_markers({"topic.prefix": prefix}),
        **({"table.include.list": ",".join(tables)} if tables else {}),
        "topic.prefix": prefix,
        "slot.name": prefix,
        "database.hostname": postgres.host,
        "database.port": str(postgres.port),
        "database.user": "debezium",
        "database.password": "debezium",
        "database.dbname": database,
        **_topics(partitions, envelope=True),
        **(settings or {}),
    }


def _topics(partitions: int, *, envelope: bool) -> dict[str, str]:
    return {
        "key.converter.schemas.enable": str(envelope).lower(),
        "value.converter.schemas.enable": str(envelope).lower(),
        "topic.creation.default.partitions": str(partitions),
    }
