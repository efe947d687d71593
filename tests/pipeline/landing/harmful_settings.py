"""How each setting of docs/harmful_settings.md is set on real servers, or why it is not.

Lists and names are those of tests/docs/test_harmful_settings.py, which holds that none is left out.
"""

from collections.abc import Mapping

FILTER = {
    "transforms": "f",
    "transforms.f.type": "org.apache.kafka.connect.transforms.Filter",
    "transforms.f.predicate": "p",
    "predicates": "p",
    "predicates.p.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
    "predicates.p.pattern": r".*\.t",
}
OVERRIDES = "snapshot.select.statement.overrides"
IN_FLIGHT = "max.in.flight.requests.per.connection"
UNORDERED = {"producer.override.enable.idempotence": "false"}
# Of a connector for MySQL, whose database is ``walked``; its table is ``t (id, name)``.
CONNECTOR: Mapping[str, Mapping[str, str]] = {
    "decimal.handling.mode": {"decimal.handling.mode": "double"},
    "time.precision.mode": {"time.precision.mode": "connect"},
    "skipped.operations": {"skipped.operations": "d"},
    "binary.handling.mode": {"binary.handling.mode": "hex"},
    "event.processing.failure.handling.mode": {"event.processing.failure.handling.mode": "warn"},
    "event.converting.failure.handling.mode": {"event.converting.failure.handling.mode": "warn"},
    "errors.tolerance": {"errors.tolerance": "all"},
    OVERRIDES: {OVERRIDES: "walked.t", f"{OVERRIDES}.walked.t": "SELECT * FROM t WHERE id > 5"},
    "snapshot.include.collection.list": {"snapshot.include.collection.list": "walked.other"},
    "converters": {
        "converters": "b",
        "b.type": "io.debezium.connector.mysql.converters.TinyIntOneToBooleanConverter",
    },
    "post.processors": {
        "post.processors": "r",
        "r.type": "io.debezium.processors.reselect.ReselectColumnsPostProcessor",
    },
    "message.key.columns": {"message.key.columns": "walked.t:name"},
    "transforms": FILTER,
    "value.converter.replace.null.with.default": {
        "value.converter.replace.null.with.default": "true"
    },
    "acks": {"producer.override.acks": "1", **UNORDERED},
    "retries": {"producer.override.retries": "0", **UNORDERED},
    IN_FLIGHT: {f"producer.override.{IN_FLIGHT}": "5", **UNORDERED},
    "bigint.unsigned.handling.mode": {"bigint.unsigned.handling.mode": "long"},
    "enable.time.adjuster": {"enable.time.adjuster": "true"},
    "event.deserialization.failure.handling.mode": {
        "event.deserialization.failure.handling.mode": "warn"
    },
    "inconsistent.schema.handling.mode": {"inconsistent.schema.handling.mode": "skip"},
    "schema.history.internal.skip.unparseable.ddl": {
        "schema.history.internal.skip.unparseable.ddl": "true"
    },
    "snapshot.locking.mode": {"snapshot.locking.mode": "none"},
    "gtid.source.excludes": {"gtid.source.excludes": "00000000-0000-0000-0000-000000000000"},
    "gtid.source.includes": {"gtid.source.includes": ".*"},
}
SERVER: Mapping[str, str] = {
    "binlog_format": "STATEMENT",
    "binlog_row_image": "MINIMAL",
    "binlog_row_value_options": "PARTIAL_JSON",
    "binlog_order_commits": "OFF",
    "binlog_error_action": "IGNORE_ERROR",
}
POSTGRES: Mapping[str, Mapping[str, str]] = {
    "include.unknown.datatypes": {"include.unknown.datatypes": "false"},
    "interval.handling.mode": {"interval.handling.mode": "numeric"},
    "hstore.handling.mode": {"hstore.handling.mode": "map"},
    "slot.drop.on.stop": {"slot.drop.on.stop": "true"},
}
# Of a table ``t (id, name)`` with a unique index on ``name``, published by ``sluice``: set, unset.
BACK = "ALTER TABLE t REPLICA IDENTITY DEFAULT"
ALL = "CREATE PUBLICATION sluice FOR ALL TABLES"
POSTGRES_TABLES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "REPLICA IDENTITY NOTHING": (("ALTER TABLE t REPLICA IDENTITY NOTHING",), (BACK,)),
    "REPLICA IDENTITY USING INDEX without the key": (
        ("ALTER TABLE t REPLICA IDENTITY USING INDEX t_name",),
        (BACK,),
    ),
    "column list of the publication": (
        (
            "DROP PUBLICATION sluice",
            "CREATE PUBLICATION sluice FOR TABLE t (id), sluice.heartbeat",
        ),
        ("DROP PUBLICATION sluice", ALL),
    ),
    "row-level security": (
        ("ALTER TABLE t ENABLE ROW LEVEL SECURITY",),
        ("ALTER TABLE t DISABLE ROW LEVEL SECURITY",),
    ),
    "row filter of the publication": (
        (
            "DROP PUBLICATION sluice",
            "CREATE PUBLICATION sluice FOR TABLE t WHERE (id > 5), sluice.heartbeat",
        ),
        ("DROP PUBLICATION sluice", ALL),
    ),
}
TOPIC: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "unclean.leader.election.enable": "true",
}
UNSET: Mapping[str, str] = {
    "topic.naming.strategy": "a class of its own is among no server's plug-ins",
    "snapshot.query.mode": "its other mode needs a class that is among no server's plug-ins",
    "value.converter.ignore.default.for.nullables": (
        "Confluent's converter is not among the servers' plug-ins, and Connect refuses its class"
    ),
    "binlog_transaction_compression": "MySQL has it since 8.0.20, the servers here are older",
    "plugin.name": "no server here has decoderbufs, and a slot of pgoutput is not read by it",
    "snapshot.mode": "custom needs a class that is among no server's plug-ins",
    "log_bin_compress": "only MariaDB has it",
    "wsrep_on": "only a node of Galera has it",
    "group_replication_single_primary_mode": "only a member of a group has it",
    "binlog_do_db": "of the option file; one with it is asked in test_hazards.py only",
    "binlog_ignore_db": "the same",
    "log_replica_updates": "the same",
    "replica": "a server of its own: see test_f110 in test_hazards_stack.py",
}
