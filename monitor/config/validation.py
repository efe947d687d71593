"""Finds config faults that types cannot detect, and reports each with its key.

No server is contacted. Without these checks each client would report the fault later, in its own
words.

A name that refers to nothing is a fault, because it would have no effect: such as an alert route
that never sends. Tables are not known yet, so a pattern may match none now. A pattern that can
match no table is refused.

`location_errors` checks whether lake and store can be at their paths. It looks at existing files
and creates none. The other checks open no file.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError

from alerts.causes import KINDS
from alerts.routing import CHANNEL
from checks import run as probes
from monitor.config.model import Config, HttpSettings
from monitor.config.plans import CheckPlan, CopyPlan
from monitor.config.text import resolve_path
from monitor.display_text import did_you_mean
from pipeline.durations import format_setting
from pipeline.errors import ConfigError
from pipeline.installed import explain_install, is_installed
from pipeline.invariants.invariant import Referring
from pipeline.plugins import missing_members
from pipeline.settings import (
    InvariantRule,
    KafkaSecurity,
    SourceSettings,
    StandardRule,
    TableRule,
    TlsSettings,
    is_loopback,
    without_login,
)
from pipeline.sources.source import read_limits
from pipeline.tls import tls_faults
from pipeline.transports.security import find_security_faults

TRANSPORT: str = Config.model_fields["transport"].default
_WORKER = "worker"  # a component, in alerts
_WILD = re.compile(r"[*?[]")
_SOURCE = re.compile(r"[A-Za-z0-9_.-]+")
_TOPIC = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_LONGEST = 64
_LEAST_MEMORY = 512  # MB; Spark refuses 450
_SPARK = re.compile(r"spark[.][\w.-]+|spark[.](kubernetes|hadoop)[.][\w./-]+")
_OURS = {"spark.master": "pipeline.master", "spark.driver.memory": "pipeline.driver_memory"}
_SHORTEST_PACE, _SHORTEST_DEADLINE = timedelta(milliseconds=100), timedelta(seconds=10)
_LONGEST_MARGIN = timedelta(days=1)
_SHORTEST_KEPT = timedelta(hours=1)  # a vacuum counts whole hours
_LONGEST_HOST = 253
_HEARTBEAT_TABLE = re.compile(r'[^."`/]+[.][^."`/]+')
_LABEL = re.compile(r"(?!-)[\w-]{1,63}(?<!-)")
_MEMORY = re.compile(r"[1-9]\d*[kmgt]b?", re.IGNORECASE)
_TOKEN, _SHORTEST_TOKEN = re.compile(r"[!-~]+"), 16
_MASTER = re.compile(r"local(\[(\*|[1-9]\d*)(, *[1-9]\d*)?\])?|yarn|(spark|k8s)://.+")


def config_errors(config: Config) -> list[str]:
    """Return each fault as ``place: fault``, in no order."""
    return [
        *_of_tables(config),
        *_of_images(config),
        *_of_archives(config),
        *_of_bases(config),
        *_of_repairs(config),
        *_of_sources(config),
        *_of_servers(config),
        *_of_limits(config),
        *_of_numbers(config),
        *_places(config),
        *(
            f"{at}.{name}: {fault}"
            for at, security in kafka_securities(config)
            for name, fault in find_security_faults(security)
        ),
        *(f"{at}.{fault}" for at, client in tls_clients(config) for fault in tls_faults(client)),
        *_of_alerts(config),
        *_of_patterns(config),
        *_of_tiers(config),
        *_of_paces(config),
    ]


def is_host(text: str) -> bool:
    """Tell whether *text* can be a host name or an address; the DNS is not queried."""
    try:
        return bool(ip_address(text))
    except ValueError:
        labels = text.removesuffix(".").split(".")
    named = all(_LABEL.fullmatch(label) for label in labels)
    return named and not labels[-1].isdecimal() and len(text) <= _LONGEST_HOST


def kafka_securities(config: Config) -> list[tuple[str, KafkaSecurity]]:
    """Return the security settings of each cluster, by their key."""
    return [("kafka_security", config.kafka_security)] + [
        (f"sources[{i}].mirrored.kafka_security", source.mirrored.kafka_security)
        for i, source in enumerate(config.sources)
        if source.mirrored is not None
    ]


def tls_clients(config: Config) -> Iterator[tuple[str, TlsSettings]]:
    """Yield each TLS client except Kafka's and those of plug-ins, by its key."""
    for i, source in enumerate(config.sources):
        at = f"sources[{i}]"
        yield at, source
        yield f"{at}.collector", source.collector
        if source.mirrored is not None:
            yield f"{at}.mirrored", source.mirrored
    if config.openlineage is not None:
        yield "openlineage", config.openlineage


def _of_tables(config: Config) -> Iterator[str]:
    for i, rule in enumerate(config.tables):
        if rule.tier < 0:
            yield f"tables[{i}].tier: {rule.tier} is not a tier; use 0 (urgent), 1 or 2"
        if fault := _no_pattern(rule.shards):
            yield f"tables[{i}].shards: {fault}"
        elif not rule.ignore and (fault := _no_table(rule)):
            yield f"tables[{i}].table: {fault}"
    yield from _contradicting_rules(config)


def _contradicting_rules(config: Config) -> Iterator[str]:
    """Yield contradictions of two rules about one table, which its first shard would decide."""
    first: dict[str, int] = {}
    for i, rule in enumerate(config.tables):
        if rule.ignore or "\\" in rule.table:  # the result of groups depends on the shard
            continue
        other = first.setdefault(rule.table, i)
        for name in ("tier", "unique_across_shards", "key"):
            if getattr(rule, name) != getattr(config.tables[other], name):
                yield (
                    f"tables[{i}].{name}: tables[{other}] has another value for {rule.table};"
                    " use one value"
                )


def _of_images(config: Config) -> Iterator[str]:
    for i, rule in enumerate(config.publish):
        if rule.where and rule.how not in ("parquet", "clone"):
            yield (
                f"publish[{i}].where: pinned images stay in their mirrors; remove `where`,"
                " or use how: parquet"
            )
        for name in ("keep", "hold_back", "due"):
            if getattr(rule, name) <= timedelta():
                yield f"publish[{i}].{name}: must be longer than 0s"


def _of_bases(config: Config) -> Iterator[str]:
    for i, rule in enumerate(config.rebootstrap):
        if rule.at_once < 1:
            yield f"rebootstrap[{i}].at_once: must be 1 or more; to start none, use how: ask"


def _of_repairs(config: Config) -> Iterator[str]:
    replicas = [source.name for source in config.sources if source.options.get("read_from")]
    for i, rule in enumerate(config.repair):
        at = f"repair[{i}]"
        if rule.how == "auto" and replicas:
            yield (
                f"{at}.how: auto would read rows at the replica that read_from of source"
                f" {replicas[0]} names, and delete those that only the replica has lost;"
                " use how: ask, or remove read_from"
            )
        for name in ("rows", "rows_a_day", "tables_a_day", "tries"):
            if getattr(rule, name) < 1:
                yield f"{at}.{name}: must be 1 or more; to repair nothing, use how: ask"
        if rule.rows > rule.rows_a_day:
            yield (
                f"{at}.rows: {rule.rows} is above rows_a_day, {rule.rows_a_day}, so a repair of so"
                " many rows could never start; decrease rows or increase rows_a_day"
            )


def _of_archives(config: Config) -> Iterator[str]:
    for i, rule in enumerate(config.archive):
        for j, window in enumerate(rule.windows):
            if window.fault:
                yield f"archive[{i}].windows[{j}]: {window.fault}"
        for j, marker in enumerate(rule.markers):
            if marker.fault:
                yield f"archive[{i}].markers[{j}]: {marker.fault}"
        if not (rule.windows or rule.markers):
            yield f"archive[{i}]: has neither windows nor markers; add one, or remove the rule"


def _no_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        return f"is not a regular expression: {error}"
    return ""


def _no_table(rule: TableRule) -> str:
    try:
        re.compile(rule.shards).sub(rule.table, "")  # checks the groups, although nothing matches
    except (re.error, IndexError) as error:
        known = re.compile(rule.shards).groups
        return f"'{rule.table}' does not fit shards, which has {known} groups: {error}"
    database, dot, name = rule.table.partition(".")
    named = bool(database.strip() and name.strip()) or "\\" in rule.table
    if "/" in rule.table or not (named and (dot or "\\" in rule.table)):
        return f"'{rule.table}' is not a table name; write database.table, without a slash"
    if any(sign in rule.table for sign in "*?["):
        return f"{rule.table!r} is a pattern; write one name, or a group of `shards` such as \\1"
    return ""


def _of_sources(config: Config) -> Iterator[str]:
    before: list[SourceSettings] = []
    for i, source in enumerate(config.sources):
        at = f"sources[{i}]"
        if fault := _no_pattern(source.topics):
            yield f"{at}.topics: {fault}"
        if not _SOURCE.fullmatch(source.name) or source.name == _WORKER:
            legal = "A-Z, a-z, 0-9, '_', '.' and '-', and not 'worker'"
            yield f"{at}.name: {source.name!r} is not a source name; write {legal}"
        if source.name in {other.name for other in before}:
            yield f"{at}.name: {source.name!r} is already the name of another source"
        if (source.transport or config.transport) == TRANSPORT and not _TOPIC.fullmatch(
            source.prefix
        ):
            legal = "A-Z, a-z, 0-9, '_' and '-', separated by dots"
            yield f"{at}.prefix: {source.prefix!r} is not a valid topic prefix; use {legal}"
        for other in before:
            if (fault := _both(other, source)) or (fault := _both(source, other)):
                yield f"{at}.prefix: {fault}"
        if source.mirrored is not None and (fault := _no_url(source.mirrored.url)):
            yield f"{at}.mirrored.url: {fault}"
        before.append(source)


def _of_servers(config: Config) -> Iterator[str]:
    for i, source in enumerate(config.sources):
        at, host = f"sources[{i}]", source.host
        if len(source.name) > _LONGEST:
            yield (
                f"{at}.name: is too long for the heartbeat table; use at most {_LONGEST} characters"
            )
        if not is_host(host):
            yield (
                f"{at}.host: {host!r} is not a host; write a name or an address, and the"
                " port in `port`"
            )
        if not source.user.strip():
            yield f"{at}.user: is empty; write the user for Sluice's login"
        if not source.port:
            yield f"{at}.port: 0 is not a port; use 1 to 65535"
        if not source.collector.kind and not source.collector.connector.strip():
            yield f"{at}.collector.connector: is empty; write the connector's name"
        if not _HEARTBEAT_TABLE.fullmatch(source.heartbeat):
            yield (
                f"{at}.heartbeat: {source.heartbeat!r} is not a table name; write database.table,"
                " each without a dot"
            )
        for number, listed in enumerate(source.follow_hosts):
            name, _, port = listed.rpartition(":")
            if not is_host(listed) and not (is_host(name) and port.isdecimal()):
                fault = f"{listed!r} is not a server; write host or host:port"
                yield f"{at}.follow_hosts[{number}]: {fault}"


def _of_limits(config: Config) -> Iterator[str]:
    for i, source in enumerate(config.sources):
        try:
            limits = read_limits(source.options)
        except ValidationError:  # reported where the source is built
            continue
        if limits.call < limits.statement:
            problem = (
                f"{format_setting(limits.call)} is shorter than limits.statement"
                f" ({format_setting(limits.statement)}); increase it"
            )
            yield f"sources[{i}].options.limits.call: {problem}"


def _of_numbers(config: Config) -> Iterator[str]:
    tuning, upkeep = config.pipeline, config.pipeline.upkeep
    least = {
        "batch_rows": 1,
        "urgent_rows": 1,
        "small_batch_rows": 0,
        "landing_tasks": 1,
        "merge_workers": 1,
    }
    for name, bound in least.items():
        if getattr(tuning, name) < bound:
            yield f"pipeline.{name}: must be at least {bound}"
    if upkeep.vacuum_every <= timedelta():
        yield "pipeline.upkeep.vacuum_every: must be longer than 0s"
    for name in ("keep_versions", "keep_changes"):
        if getattr(upkeep, name) < _SHORTEST_KEPT:
            yield (
                f"pipeline.upkeep.{name}: must be at least 1h, or readers lose files that they read"
            )
    for name, most in {"landing_tasks": 10_000, "merge_workers": 256}.items():
        if getattr(tuning, name) > most:
            yield f"pipeline.{name}: must be at most {most}"
    if not _SOURCE.fullmatch(tuning.lane):
        legal = "A-Z, a-z, 0-9, '_', '.' and '-'"
        yield f"pipeline.lane: {tuning.lane!r} is not a lane name; use {legal}"
    if not _MEMORY.fullmatch(tuning.driver_memory):
        yield (
            f"pipeline.driver_memory: {tuning.driver_memory!r} is not a size with a unit;"
            " write one such as 1500m or 4g"
        )
    elif _megabytes(tuning.driver_memory) < _LEAST_MEMORY:
        problem = f"{tuning.driver_memory!r} is too small for Spark"
        yield f"pipeline.driver_memory: {problem}; use at least {_LEAST_MEMORY}m"
    yield from _of_spark(tuning.spark)
    if config.readiness.margin < timedelta():  # the gate would open before the changes arrive
        yield "readiness.margin: must not be negative"
    elif config.readiness.margin > _LONGEST_MARGIN:
        yield "readiness.margin: must be at most 1d, or no table is READY for a cut of today"


def _of_alerts(config: Config) -> Iterator[str]:
    if config.alerts.storm_limit < 1:
        yield "alerts.storm_limit: must be at least 1, or no incident is sent by its name"
    if not config.alerts.runbooks.strip():
        yield "alerts.runbooks: is empty; write a folder or address, or remove the line"


def _of_patterns(config: Config) -> Iterator[str]:
    for section in ("publish", "rebootstrap", "repair"):
        for i, rule in enumerate(getattr(config, section)):
            if fault := _names_no_table(rule.tables, config):
                yield f"{section}[{i}].tables: {fault}"


def _megabytes(size: str) -> float:
    number, unit = size.lower().removesuffix("b")[:-1], size.lower().removesuffix("b")[-1]
    return int(number) * {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024**2}[unit]


def _of_spark(settings: Mapping[str, str]) -> Iterator[str]:
    for name in settings:
        if instead := _OURS.get(name):
            yield f"pipeline.spark.{name}: is set by {instead}; write it there"
        elif not _SPARK.fullmatch(name):
            yield (
                f"pipeline.spark.{name}: is not a Spark setting; use a name that starts with spark."
            )


def _both(one: SourceSettings, other: SourceSettings) -> str:
    """Return why topics of *other* would also be read as topics of *one*."""
    if one.prefix == other.prefix:
        return (
            f"{other.prefix!r} is already the prefix of source {one.name}; use a"
            " prefix of its own for each connector"
        )
    if not one.topics and other.prefix.startswith(f"{one.prefix}."):
        least = f"list the topics of source {one.name} in `topics`"
        return (
            f"source {one.name} also reads these topics, because its prefix is"
            f" {one.prefix!r}; {least}"
        )
    return ""


def _no_url(text: str) -> str:
    try:
        found = urlsplit(text)
        known = found.scheme in ("http", "https") and found.port != 0
        if known and found.hostname and is_host(found.hostname):
            return ""
    except ValueError:  # an invalid port or bracket
        pass
    return f"{without_login(text)!r} is not an address; write http://host:port"


def _places(config: Config) -> Iterator[str]:
    for at, text in _brokers(config):
        if fault := _no_brokers(text):
            yield f"{at}: {fault}"
    if config.http.host and not is_host(config.http.host):
        yield f"http.host: {config.http.host!r} is not a host; write a name or an address"
    for i, name in enumerate(config.http.names):
        if not is_host(name):
            problem = f"{name!r} is not a host; write a name or an address, without scheme and port"
            yield f"http.names[{i}]: {problem}"
    yield from _of_token(config.http)
    if not config.kafka and config.transport == TRANSPORT and config.settings.carried:
        yield "kafka: is required; write host:port, or several separated by commas"
    ports = [(f"sources[{i}].port", source.port) for i, source in enumerate(config.sources)]
    for at, port in [*ports, ("http.port", config.http.port)]:
        if not 0 <= port <= 65535:
            yield f"{at}: {port} is not a port; use 1 to 65535"
    if config.kafka_security != KafkaSecurity() and not config.kafka:
        yield "kafka_security: has no effect without `kafka`; remove it, or set `kafka`"
    if not _MASTER.fullmatch(config.pipeline.master):
        known = "local[4], local[*], yarn, spark://host:port or k8s://address"
        yield f"pipeline.master: {config.pipeline.master!r} is not a Spark master; use {known}"


def _of_token(http: HttpSettings) -> Iterator[str]:
    """Yield a weak token, or a missing one for this bind address; the token is never shown."""
    if http.auth is None:
        if (not http.host or is_host(http.host)) and not is_loopback(http.host):
            yield (
                f"http.host: other machines can reach {http.host!r} without a token; set"
                " http.auth: {token: {file: PATH}}, or bind to 127.0.0.1"
            )
    elif len(http.auth.token) < _SHORTEST_TOKEN or not _TOKEN.fullmatch(http.auth.token):
        yield (
            f"http.auth.token: must have at least {_SHORTEST_TOKEN} ASCII characters, without"
            " spaces; create one with `openssl rand -hex 32`"
        )


def _brokers(config: Config) -> list[tuple[str, str]]:
    mirrored = [
        (f"sources[{i}].mirrored.kafka", source.mirrored.kafka)
        for i, source in enumerate(config.sources)
        if source.mirrored is not None
    ]
    return [*([("kafka", config.kafka)] if config.kafka else []), *mirrored]


def _no_brokers(text: str) -> str:
    for broker in text.split(","):
        host, _, port = broker.strip().rpartition(":")
        port_is_one = port.isdecimal() and 0 < int(port) <= 65535
        if not is_host(host.removeprefix("[").removesuffix("]")) or not port_is_one:
            return (
                f"{broker.strip()!r} is not a broker; write host:port, or several"
                " separated by commas"
            )
    return ""


def _of_paces(config: Config) -> Iterator[str]:
    """Yield durations that contradict each other: no table could be ready, or no job would end."""
    schedule, readiness = config.schedule, config.readiness
    for name in ("land", "merge", "watch", "probe", "deliver", "upkeep", "prune"):
        if getattr(schedule, name) < _SHORTEST_PACE:
            yield f"schedule.{name}: must be at least 100ms"
    for name in ("land", "merge", "upkeep"):
        deadline = getattr(schedule, f"{name}_deadline")
        if deadline < _SHORTEST_DEADLINE:
            yield (
                f"schedule.{name}_deadline: must be at least 10s, because Spark needs as"
                " long to start"
            )
        elif deadline < (pace := getattr(schedule, name)):
            yield (
                f"schedule.{name}: {format_setting(pace)} is longer than schedule.{name}_deadline"
                f" ({format_setting(deadline)}); decrease it, or increase the deadline"
            )
    if readiness.heartbeat_age <= config.heartbeat:
        problem = (
            f"{format_setting(readiness.heartbeat_age)} is not longer than `heartbeat`"
            f" ({format_setting(config.heartbeat)})"
        )
        yield f"readiness.heartbeat_age: {problem}, so no table would be READY; increase it"
    if readiness.sample_age <= schedule.watch:
        problem = (
            f"{format_setting(readiness.sample_age)} is not longer than schedule.watch"
            f" ({format_setting(schedule.watch)})"
        )
        yield f"readiness.sample_age: {problem}, so no table would be READY; increase it"


def _of_tiers(config: Config) -> Iterator[str]:
    tiers = config.readiness.lag_budget
    if not tiers or not all(tier.isdecimal() for tier in tiers):
        yield (
            "readiness.lag_budget: must be a mapping of tiers to durations, such as {0: 5m, 1: 15m}"
        )
        return
    for tier, cycle in (config.schedule.cycles or {}).items():
        if not tier.isdecimal() or int(tier) == 0:
            yield (
                f"schedule.cycles.{tier}: is not a tier that can wait; write for example {{2: 5m}}"
            )
        elif cycle >= (most := config.readiness.budget(int(tier))):
            problem = (
                f"{format_setting(cycle)} must be shorter than readiness.lag_budget of this tier"
                f" ({format_setting(most)}); decrease it"
            )
            yield f"schedule.cycles.{tier}: {problem}"


CHECKS = frozenset({*KINDS, "collected"})
"""The checks of the service itself, in addition to the probes."""
OF_COPIES = "copy:"
OF_SOURCES = ("source:", "collector:", "clock:", "retention:")
ALONE = ("kafka", "worker", "store")  # components whose names have no dot and no colon


def unknown_names(
    config: Config,
    plans: Sequence[CheckPlan],
    sinks: Collection[str],
    *,
    demanded: Sequence[InvariantRule] = (),
    restated: Sequence[StandardRule] = (),
    sent: Sequence[CopyPlan] = (),
) -> list[str]:
    """Return each unknown name as ``place: fault``; *sinks* are the names of channels."""
    return [
        *_gating(config, plans),
        *_routes(config, plans, sinks, sent),
        *_looks(config, plans),
        *_demanded(config, demanded),
        *_restated(config, restated),
        *_archived(config),
        *_sent(config, sent),
    ]


def find_plugins(
    find: Callable[[str], type], names: Iterable[str], needs: type
) -> tuple[list[str], dict[str, str]]:
    """Return those of *names* that exist, also as other modules, and the faults of the others."""
    found, unknown = [], {}
    for name in names:
        try:
            kind = find(str(name))
        except ConfigError as error:
            unknown[name] = str(error)
        else:
            if lacks := _explain_unusable(kind, needs):
                unknown[name] = f"{kind.__module__}.{kind.__name__} {lacks}"
            else:
                found.append(name)
    return found, unknown


def _explain_unusable(kind: type, needs: type) -> str:
    """Return why a class of another package cannot be used for a section."""
    if not is_dataclass(kind):
        return "is not a dataclass; make it one, with a field for each setting"
    return missing_members(kind, needs)


def _gating(config: Config, plans: Sequence[CheckPlan]) -> Iterator[str]:
    """Yield gating probes that are unknown or switched off, and so gate nothing."""
    running = {plan.name for plan in plans}
    _, unknown = find_plugins(probes.find_probe, config.readiness.gating or (), probes.Probe)
    for i, name in enumerate(config.readiness.gating or ()):
        if name in unknown:
            yield f"readiness.gating[{i}]: {unknown[name]}"
        elif name not in running:
            yield (
                f"readiness.gating[{i}]: probe {name!r} is switched off and cannot block"
                " the gate; enable it, or remove it here"
            )


def _routes(
    config: Config,
    plans: Sequence[CheckPlan],
    sinks: Collection[str],
    copies: Sequence[CopyPlan],
) -> Iterator[str]:
    checks = {*CHECKS, *probes.probe_names(), *(plan.name for plan in plans)}
    for i, route in enumerate(config.alerts.routes):
        at = f"alerts.routes[{i}]"
        for j, check in enumerate(route.checks):
            if not any(fnmatchcase(name, check) for name in checks):
                yield f"{at}.checks[{j}]: no check {check!r}; {did_you_mean(check, checks)}"
        for name in route.channels or ():
            if name not in sinks:
                yield f"{at}.channels: no channel {name!r}; {did_you_mean(name, sinks)}"
        if fault := _no_part(route.tables, config, sinks, copies) or _names_no_table(
            route.tables, config
        ):
            yield f"{at}.tables: {fault}"


def _looks(config: Config, plans: Sequence[CheckPlan]) -> Iterator[str]:
    for plan in plans:
        globs = {"tables": plan.tables}
        globs |= {f"overrides[{i}].tables": glob for i, (glob, _) in enumerate(plan.variants)}
        for place, glob in globs.items():
            if fault := _names_no_table(glob, config):
                yield f"probes.{plan.name}.{place}: {fault}"
        for name in getattr(plan.probe, "suites", ()):
            if fault := _names_no_table(name, config):
                yield f"probes.{plan.name}.suites: {fault}"


def _demanded(config: Config, rules: Sequence[InvariantRule]) -> Iterator[str]:
    for i, rule in enumerate(rules):
        if fault := _names_no_table(rule.tables, config):
            yield f"invariants[{i}].tables: {fault}"
        for name, one in rule.invariants:
            for table in sorted(one.others) if isinstance(one, Referring) else ():
                if not _is_table(table):
                    yield (
                        f"invariants[{i}].{name}: {table!r} is not a table name; write"
                        " database.table"
                    )
            for pattern in getattr(one, "suites", ()):
                if fault := _names_no_table(pattern, config) or _is_apart(pattern, rule.tables):
                    yield f"invariants[{i}].{name}.suites: {fault}"


def _is_apart(pattern: str, tables: str) -> str:
    """Return why no table matches both; empty if one may match, as with two wildcards."""
    pairs = [(pattern, tables), (tables, pattern)]
    if all(fnmatchcase(*pair) for pair in pairs if not _WILD.search(pair[0])):
        return ""
    return f"{pattern!r} matches no table of {tables!r}; correct it, or remove the entry"


def _restated(config: Config, rules: Sequence[StandardRule]) -> Iterator[str]:
    """Yield patterns that match no table: values to hide would land unchanged."""
    for i, rule in enumerate(rules):
        if fault := _names_no_table(rule.tables, config):
            yield f"standards[{i}].tables: {fault}"


def _archived(config: Config) -> Iterator[str]:
    """Yield patterns that match no table: rows to keep would be deleted."""
    for i, rule in enumerate(config.archive):
        if fault := _names_no_table(rule.tables, config):
            yield f"archive[{i}].tables: {fault}"
        for j, marker in enumerate(rule.markers):
            if not _is_table(marker.table):
                problem = f"{marker.table!r} is not a table name; write database.table"
                yield f"archive[{i}].markers[{j}].table: {problem}"


def _sent(config: Config, copies: Sequence[CopyPlan]) -> Iterator[str]:
    for one in copies:
        for pattern in one.tables:
            if fault := _names_no_table(pattern, config):
                yield f"copies.{one.name}.tables: {fault}"


def _no_part(pattern: str, config: Config, sinks: Iterable[str], copies: Sequence[CopyPlan]) -> str:
    """Return why *pattern* for a component matches none."""
    sources = [source.name for source in config.sources]
    known = {before: [f"{before}{name}" for name in sources] for before in OF_SOURCES}
    known[OF_COPIES] = [f"{OF_COPIES}{one.name}" for one in copies]
    known[CHANNEL] = [f"{CHANNEL}{name}" for name in sinks]
    parts = next((parts for word, parts in known.items() if pattern.startswith(word)), None)
    if parts is None or any(fnmatchcase(part, pattern) for part in parts):
        return ""
    return f"no {pattern!r}; {did_you_mean(pattern, parts)}"


def _is_table(name: str) -> bool:
    return "." in name and not any(sign in name for sign in "*?[")


def _names_no_table(pattern: str, config: Config) -> str:
    """Return why *pattern* can match no table; rules or sources name tables database.table."""
    if not pattern:  # reported as empty
        return ""
    if "[" in pattern and "]" not in pattern.partition("[")[2]:
        return f"{pattern!r} has a '[' without ']'; add it, or write a pattern such as shop.*"
    odd = any(  # groups may produce any name
        not rule.ignore and "." not in rule.table and rule.table != r"\g<0>"
        for rule in config.tables
    )
    if odd or any(sign in pattern for sign in ".*?[:") or pattern in ALONE:
        return ""
    return f"{pattern!r} matches no table; write database.table, or a pattern such as shop.*"


OBJECT_STORES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl")  # schemes of the lake
HDFS = ("hdfs", "viewfs")
UNREADABLE = re.compile(r"[%\\\x00-\x1f\x7f]")  # characters that some readers decode
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def location_errors(config: Config, path: Path) -> Iterator[str]:
    """Yield each fault of a path as ``place: fault``; *path* is that of the config."""
    if fault := _no_lake(config.lake, path):
        yield f"lake: {fault}"
    if "://" in config.store:
        yield "store: must be the path of an SQLite file; other databases are not supported"
    elif fault := _no_file(config.store, path):
        yield f"store: {fault}"
    elif resolve_path(config.store, path) == _whole(config.lake, path):
        yield "store: is the directory of the lake; use a file outside of it, such as sluice.db"
    for i, rule in enumerate(config.publish):
        if rule.where and (fault := _no_images(rule.where, config.lake, path)):
            yield f"publish[{i}].where: {fault}"


def _no_lake(text: str, path: Path) -> str:
    scheme = _SCHEME.match(text.strip())
    kind = scheme[1].lower() if scheme else ""
    if kind in HDFS:
        return "Sluice does not write tables on HDFS; use a local directory or S3"
    place, fault = _bucket(text, kind) if kind else _folder(text, path)
    if not fault and (sign := UNREADABLE.search(place)):
        return f"{place!r} contains {sign[0]!r}, which some readers decode; use another path"
    return fault


def _bucket(text: str, kind: str) -> tuple[str, str]:
    if kind == "file" and text.startswith("file:///"):
        return text, ""
    shown = without_login(text)
    if "?" in text or "#" in text:
        return "", "contains a query, which may be a key; set keys in the environment instead"
    if kind not in OBJECT_STORES:
        known = ", ".join(f"{name}://" for name in ("file", *OBJECT_STORES))
        return "", f"{shown!r} has an unknown scheme; write the path of a directory, or use {known}"
    login, at, _ = urlsplit(text).netloc.rpartition("@")
    if at and (":" in login or not kind.startswith("abfs")):  # on Azure it is the container
        return "", "contains a key; set it in the environment (AWS_ACCESS_KEY_ID, ...) instead"
    if text != text.strip() or not text.startswith(f"{kind}://") or not urlsplit(text).netloc:
        return "", f"{shown!r} is not an address; write {kind}://bucket/folder"
    return text, explain_install("obstore") if not is_installed("obstore") else ""


def _folder(text: str, path: Path) -> tuple[str, str]:
    place, fault = _placed(text, path)
    if not text.strip():
        fault = "is empty; write the path of a directory"
    elif not fault and (above := _file_above(Path(place))):
        fault = f"{above} is a file; use a directory"
    return place, fault


def _no_images(where: str, lake: str, path: Path) -> str:
    """Return why *where* cannot hold images: vacuum deletes unknown files in mirrors and log."""
    place, fault = _placed(where, path)
    if fault:
        return fault
    if "://" not in where and (above := _file_above(Path(place))):
        return f"{above} is a file; use a directory"
    here = f"{place.rstrip('/')}/"
    for own in ("mirrors", "changes"):
        theirs = f"{_whole(lake, path)}/{own}/"
        if here.startswith(theirs) or theirs.startswith(here):
            deleted = f"{where!r} overlaps with {theirs[:-1]}, where maintenance deletes files"
            return f"{deleted}; use another directory, such as {_whole(lake, path)}/images"
    return ""


def _whole(place: str, path: Path) -> str:
    return _placed(place, path)[0].rstrip("/")


def _no_file(text: str, path: Path) -> str:
    if text.strip().startswith(":") or not text.strip():
        return f"{text!r} is not a file on a disk; write a path such as sluice.db"
    place, fault = _placed(text, path)
    if fault:
        return fault
    if Path(place).is_dir():
        return f"{place} is a directory; use a file in it"
    if above := _file_above(Path(place).parent):
        return f"{above} is a file; use a directory"
    return ""


def _placed(text: str, path: Path) -> tuple[str, str]:
    try:
        return resolve_path(text, path), ""
    except (RuntimeError, ValueError) as error:  # an unknown home, a bad character
        return "", f"{text!r} is not a path: {error}"


def _file_above(folder: Path) -> Path | None:
    """Return the file that prevents *folder* from being created, if any."""
    there = next((one for one in (folder, *folder.parents) if one.exists()), None)
    return None if there is None or there.is_dir() else there
