"""Which settings make Debezium send every change of a MySQL, losing no value?"""

from collections.abc import Mapping, Sequence

from demo.mysql import MySQL

LOSSLESS: Mapping[str, str] = {
    "connector.class": "io.debezium.connector.mysql.MySqlConnector",
    "tasks.max": "1",
    "snapshot.mode": "when_needed",
    "decimal.handling.mode": "string",
    "bigint.unsigned.handling.mode": "precise",
    "time.precision.mode": "adaptive_time_microseconds",
    "provide.transaction.metadata": "true",
    "heartbeat.interval.ms": "1000",
    "skipped.operations": "none",  # its default hides truncates
    "tombstones.on.delete": "true",
    "include.schema.changes": "true",
    "connect.keep.alive.interval.ms": "2000",  # its default finds a dead source in 60 s
    "enable.time.adjuster": "false",  # its default turns the year 0001 into 2001
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


def mysql_connector(
    mysql: MySQL,
    bootstrap: str,
    *,
    prefix: str = "shop",
    databases: Sequence[str] = (),
    tables: Sequence[str] = (),
    partitions: int = 1,
    envelope: bool = False,
    settings: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Config of a connector that reads *mysql*, for `Connect.register`.

    *databases* and *tables* (`database.table`) are regular expressions, everything if empty.
    With *envelope*, each message carries its schema.  *settings* are added to, or replace, these.
    """
    included = {
        "database.include.list": ",".join(databases),
        "table.include.list": ",".join(tables),
    }
    return {
        **LOSSLESS,
        **{name: value for name, value in included.items() if value},
        "topic.prefix": prefix,
        "database.hostname": mysql.host,
        "database.port": str(mysql.port),
        "database.user": "debezium",
        "database.password": "debezium",
        "database.server.id": str(100_000 + mysql.server_id),
        "key.converter.schemas.enable": str(envelope).lower(),
        "value.converter.schemas.enable": str(envelope).lower(),
        "topic.creation.default.partitions": str(partitions),
        "schema.history.internal.kafka.bootstrap.servers": bootstrap,
        "schema.history.internal.kafka.topic": f"__schema-history.{prefix}",
        **(settings or {}),
    }
