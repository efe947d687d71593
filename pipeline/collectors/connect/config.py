"""Computes all settings that a Debezium connector needs for a source of the config.

The settings that the doctor demands are in `requirements` and the module of the database.
Passwords are references that Connect resolves, so no password is handled here.

The include lists name whole databases or schemas. A table that no rule matches must be sent too:
it has a mirror of its own name, like a table that an online schema change swaps in. Only tables
that a rule ignores are excluded by name.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from pipeline.collectors.collector import REFERENCE, CollectionScope, is_secret, left_out
from pipeline.collectors.connect.database import (
    ConnectedDatabase,
    database_of_kind,
    every_database,
    variable_reference,
    weakens_tls,
)
from pipeline.collectors.connect.requirements import (
    LISTS,
    NULLS,
    PLACEHOLDER,
    SIDES,
    converter_classes,
    converter_settings,
    expected_placeholder,
    list_demands,
    split_list,
)
from pipeline.collectors.connect.table_filter import TABLES, list_setting_names
from pipeline.errors import ConfigError
from pipeline.finding import Demand
from pipeline.formats.debezium.connector import UNAVAILABLE
from pipeline.settings import KafkaSecurity, SourceSettings, TableRule

GROUP = re.compile(r"\(\?P<(\w+)>")  # Python's named groups and references to them
AGAIN = re.compile(r"\(\?P=(\w+)\)")
REPEATS = ("*", "+", "?", "{")


def include_lists(
    rules: Iterable[TableRule], heartbeat: str, outer: str = "database"
) -> Mapping[str, str]:
    """The connector's list settings, by name.

    There is no include list if a rule may match tables of any database.  *outer* names the first
    part of a table's name: ``database`` or ``schema``.
    """
    rules = tuple(rules)
    wanted = [_databases(rule.shards) for rule in rules if not rule.ignore]
    found = {}
    if wanted and all(wanted):
        databases = [name for names in wanted for name in names]
        databases.append(re.escape(heartbeat.partition(".")[0]))
        found[f"{outer}.include.list"] = _list(databases)
    if ignored := _ignored_first(rules):
        found["table.exclude.list"] = _list(ignored)
    return found


def _ignored_first(rules: tuple[TableRule, ...]) -> list[str]:
    """Patterns of ignored tables; each excludes tables that an earlier rule keeps."""
    found, spared = [], list[str]()
    for rule in rules:
        if rule.ignore:
            found.append("".join(f"(?!(?:{one})$)" for one in spared) + f"(?:{rule.shards})")
        else:
            spared.append(rule.shards)
    return found


def _list(patterns: Iterable[str]) -> str:
    return ",".join(dict.fromkeys(_java(one).replace(",", r"\,") for one in patterns))


def _java(pattern: str) -> str:
    return AGAIN.sub(r"\\k<\1>", GROUP.sub(r"(?<\1>", pattern))


def _databases(pattern: str) -> list[str]:
    """The part before the dot of each alternative of *pattern*; empty if one has no plain dot."""
    found, start, depth, at = [], 0, 0, 0
    cut: int | None = None
    while at < len(pattern):
        sign = pattern[at]
        ends = _token(pattern, at)
        depth += (sign == "(") - (sign == ")")
        if cut is None and depth == 0 and _dot(pattern, at, ends):
            cut = at
        if sign == "|" and depth == 0:
            found.append(pattern[start:cut] if cut is not None else "")
            start, cut = at + 1, None
        at = ends
    found.append(pattern[start:cut] if cut is not None else "")
    return found if all(found) else []


def _token(pattern: str, at: int) -> int:
    """Return the end of the token at *at*: an escape, a set of characters, or one character."""
    if pattern[at] == "\\":
        return at + 2
    if pattern[at] != "[":
        return at + 1
    at += 2 if pattern[at + 1 : at + 2] != "^" else 3  # a bracket in first position is literal
    while at < len(pattern) and pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return at + 1


def _dot(pattern: str, at: int, ends: int) -> bool:
    """Return whether the token matches one dot: an escaped dot, or `.` without a repetition."""
    once = not pattern.startswith(REPEATS, ends)
    return once and pattern[at:ends] in (".", r"\.")


SECRETS = (
    *("password", "secret", "sasl.jaas", "token", "passphrase"),
    *("user.info", "keystore.key", "api.key", "apikey"),
)
CLIENTS = (
    "schema.history.internal.producer.",
    "schema.history.internal.consumer.",
    "signal.consumer.",
)
LARGEST = 64 * 1024**2  # bytes of one record that a connector hands to Kafka
PACE = {
    "tasks.max": "1",
    "snapshot.mode": "when_needed",
    "heartbeat.interval.ms": "1000",  # without it an idle source is acknowledged late
    "errors.max.retries": "-1",
    "retriable.restart.connector.wait.ms": "1000",
}
PRODUCER = {
    "producer.override.acks": "all",
    "producer.override.enable.idempotence": "true",
    "producer.override.max.in.flight.requests.per.connection": "1",
    "producer.override.retries": "2147483647",
    # With the default of 1 MiB, one larger row stops the source; the broker's limit is enough.
    "producer.override.max.request.size": str(LARGEST),
    "producer.override.buffer.memory": str(2 * LARGEST),
}


def required_config(scope: CollectionScope, own: Mapping[str, str]) -> dict[str, str]:
    """All settings of a new connector by name; *own*, which a person set, override them.

    Raises:
        ConfigError: *own* has a secret in clear text.
    """
    require_references(own)
    source = _as_connected(scope.source, own)
    scope = replace(scope, source=source)
    database = database_of_kind(source.kind)
    ours = list_transforms(source, own)
    own = _after(ours, own)
    demanded = (
        one for one in list_demands(source, database.demands) if one.good and not _usual(one)
    )
    found = {
        **_connection(source, database),
        **PACE,
        **converter_settings(source),
        NULLS: "false",
        **PRODUCER,
        **{one.name: one.good[0] for one in demanded},
        **database.pace,
        **_topics(scope),
        **database.settings(scope),
        **ours,
        **include_lists(scope.rules, source.heartbeat, database.lists),
    }
    if (unavailable := expected_placeholder(source)) != UNAVAILABLE:
        found[PLACEHOLDER] = unavailable
    left = left_out((list_settings(), *(one.alternatives for one in every_database())), own)
    return {**{name: value for name, value in found.items() if name not in left}, **own}


def require_references(own: Mapping[str, str]) -> None:
    """Reject settings *own* that have a secret in clear text.

    Raises:
        ConfigError: names the setting, never its value.
    """
    for name, value in own.items():
        if is_secret(value, named=holds_secret(name)):
            what = f"collector.options.settings: {name} is a secret, and would be shown"
            raise ConfigError(f"{what}; write a reference that Connect resolves: ${{env:NAME}}")


def find_references(settings: Mapping[str, str]) -> tuple[str, ...]:
    """References in *settings* that Connect must resolve, such as ``${env:NAME}``, sorted."""
    found = {one for value in settings.values() for one in REFERENCE.findall(value)}
    return tuple(sorted(found))


def list_settings() -> frozenset[str]:
    """Names of the include and exclude lists of all kinds of database."""
    outer = {name for database in every_database() for name in list_setting_names(database.lists)}
    return frozenset(outer | {*TABLES})


def alternative_settings(own: Mapping[str, str]) -> tuple[frozenset[str], ...]:
    """Groups of settings that replace each other; without TLS groups in which *own* sets one."""
    files = (one.alternatives for one in every_database())
    return (list_settings(), *(group for group in files if not group & own.keys()))


def firm_demands(scope: CollectionScope, own: Mapping[str, str]) -> tuple[Demand, ...]:
    """Demands that settings of a registered connector must meet; *own* override them."""
    prefix, database = scope.source.collected_prefix, database_of_kind(scope.source.kind)
    own = _after(list_transforms(scope.source, own), own)
    verified = database.verified if _as_connected(scope.source, own).secured else ()
    connectors = tuple(name.lower() for name in database.classes)
    known = tuple(name.lower() for name in converter_classes(scope.source))
    firmly = (
        *(one for one in list_demands(scope.source, database.demands) if one.good),
        Demand("connector.class", "", good=connectors),
        Demand("topic.prefix", f"the config reads {prefix}", good=(prefix.lower(),)),
        *(Demand(name, "", good=known) for name in SIDES),
        Demand(NULLS, "NULL arrives as the column's default", good=("false",)),
        *_address(scope.source),
        *verified,
        Demand("producer.override.acks", "a change may get lost", good=("all", "-1")),
        Demand("producer.override.retries", "a change may get lost", bad=("0",)),
    )
    return (
        *(one for one in firmly if one.name not in own),
        *(Demand(n, "the config says so", good=(value.lower(),)) for n, value in own.items()),
    )


def list_transforms(source: SourceSettings, config: Mapping[str, str]) -> dict[str, str]:
    """Settings of transforms that *config* needs; lists name them before those of *config*."""
    named = {"topic.prefix": source.collected_prefix, **config}
    ours = database_of_kind(source.kind).transforms(named)
    both = {name: f"{ours[name]},{config[name]}" for name in LISTS if name in {*ours} & {*config}}
    return {**ours, **{n: ",".join(dict.fromkeys(split_list(v))) for n, v in both.items()}}


def _after(ours: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """*own* with the values of *ours* where both have a setting."""
    return {**own, **{name: ours[name] for name in ours.keys() & own.keys()}}


def is_forbidden(scope: CollectionScope, own: Mapping[str, str], name: str) -> bool:
    """Whether the setting *name* weakens TLS, which is required, and *own* does not have it."""
    secured = _as_connected(scope.source, own).secured
    return secured and name not in own and weakens_tls(name, database_of_kind(scope.source.kind))


def holds_secret(name: str) -> bool:
    """Whether the setting *name* holds a secret."""
    return any(word in name.lower() for word in SECRETS)


def _usual(demand: Demand) -> bool:
    """Whether the connector's default meets *demand*."""
    return demand.default in demand.good


def _connection(source: SourceSettings, database: ConnectedDatabase) -> dict[str, str]:
    return {
        "connector.class": database.classes[0],
        "database.hostname": source.host,
        "database.port": str(source.port),
        "database.user": "debezium",
        "database.password": variable_reference(source.name, "DEBEZIUM_PASSWORD"),
    }


def _as_connected(source: SourceSettings, own: Mapping[str, str]) -> SourceSettings:
    """*source* with the host to which its connector connects."""
    return replace(source, host=own.get("database.hostname", source.host))


def _address(source: SourceSettings) -> tuple[Demand, ...]:
    """Demands of the config's host and port, if ``follow_collector`` is set."""
    if not source.follow_collector:
        return ()
    why = "the config names another server"
    return (
        Demand("database.hostname", why, good=(source.host.lower(),)),
        Demand("database.port", why, good=(str(source.port),)),
    )


def _topics(scope: CollectionScope) -> dict[str, str]:
    """Topic settings; the connector's own topics have names that no table's topic can have."""
    prefix = scope.source.collected_prefix
    brokers = {"signal.kafka.bootstrap.servers": scope.brokers} if scope.brokers else {}
    return {
        "topic.prefix": prefix,
        "topic.creation.default.partitions": "-1",  # the brokers' default
        "topic.creation.default.replication.factor": "-1",
        "signal.enabled.channels": "kafka",
        "signal.kafka.topic": f"__signals.{prefix}",
        **brokers,
        **_security(scope.security, prefix),
    }


def _security(security: KafkaSecurity, prefix: str) -> dict[str, str]:
    """Security settings of the connector's own Kafka clients; Connect's machine sets the CA."""
    if security.protocol == "PLAINTEXT":
        return {}
    found: dict[str, str] = {"security.protocol": security.protocol}
    if security.mechanism is not None:
        found["sasl.mechanism"] = security.mechanism
        found["sasl.jaas.config"] = variable_reference(prefix, "KAFKA_JAAS")
    return {client + name: value for client in CLIENTS for name, value in found.items()}
