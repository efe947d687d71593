"""Checks the settings of a connector: which drop, rewrite, reorder or delay changes.

The doctor prints `connector_findings`, `producer_findings` and `heartbeat_findings`. The running
service withholds READY for some of them: `find_config_hazards`. Both use the same lists.

Producer settings of the connector (`producer.override.*`) override those of the worker
(`producer.*`). The worker's override Connect's own defaults, which differ from Kafka's: all
acks, one request in flight, no idempotence. `heartbeat_findings` rejects a connector that does
not send the heartbeat table.

Cannot detect: settings of the worker, which Connect does not show. Pass them to the doctor, or
set them in the connector.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from pipeline.collectors.connect.database import (
    ConnectedDatabase,
    database_of_connector,
    database_of_kind,
    weakens_tls,
)
from pipeline.collectors.connect.requirements import (
    DEMANDS,
    FAMILIES,
    JSON,
    NULLS,
    PRESENT,
    UNVERIFIED,
    converter_classes,
    expected_placeholder,
    find_null_defaults,
    find_placeholder,
    list_demands,
    split_list,
)
from pipeline.collectors.connect.table_filter import (
    TABLES,
    Patterns,
    compile_patterns,
    is_included,
    list_setting_names,
    read_patterns,
)
from pipeline.errors import ConfigError
from pipeline.finding import NOTE, REFUSE, WARN, Demand, Effect, Finding, find_unmet
from pipeline.formats.debezium.connector import UNAVAILABLE
from pipeline.settings import SourceSettings

OVER = "producer.override."
IN_FLIGHT = "max.in.flight.requests.per.connection"
OWN = {
    "acks": "all",
    "retries": "2147483647",
    "enable.idempotence": "false",
    IN_FLIGHT: "1",
}
PRODUCER_DEMANDS = (
    Demand(
        "acks",
        "a broker that fails takes acknowledged changes with it",
        good=("all", "-1"),
        effect=Effect.DROPS,
    ),
    Demand(
        "retries",
        "one transient error loses a change, or stops the connector",
        bad=("0",),
        effect=Effect.DROPS,
    ),
)
SIZES = {"max.request.size": 1_048_576, "buffer.memory": 33_554_432}  # Kafka's defaults, in bytes
FLUSH, LONGEST_FLUSH = "offset.flush.interval.ms", 5_000


def producer_findings(
    config: Mapping[str, str], where: str, worker: Mapping[str, str] | None
) -> list[Finding]:
    """Findings on the producer of a connector with *config*; *worker* is None if unknown."""
    settings = dict(OWN)
    for prefix, own in (("producer.", worker or {}), (OVER, config)):
        settings |= {name: own[prefix + name] for name in OWN if prefix + name in own}
    remedy = f"{OVER}{{name}}={{value}} in the connector's config"
    fixed = {"retries": f"{OVER}retries=2147483647 in the connector's config"}
    found = [
        replace(f, fix=fixed.get(f.code, f.fix))
        for f in find_unmet(PRODUCER_DEMANDS, settings, where, remedy=remedy)
    ]
    if settings["enable.idempotence"].strip().lower() != "true":
        found += _reordered(settings[IN_FLIGHT], where)
    return [*found, *_unseen(config, where, worker), *_flush(where, worker)]


def largest_record(config: Mapping[str, str], worker: Mapping[str, str] | None) -> int:
    """The size in bytes above which the connector's producer rejects a record."""
    settings = {**{n.removeprefix("producer."): v for n, v in (worker or {}).items()}}
    settings |= {n.removeprefix(OVER): v for n, v in config.items() if n.startswith(OVER)}
    sizes = [_number(settings.get(name, str(own))) for name, own in SIZES.items()]
    return min((n for n in sizes if n is not None and n >= 0), default=SIZES["max.request.size"])


def _reordered(in_flight: str, where: str) -> list[Finding]:
    """Findings on several requests in flight without idempotence; a reference hides the number."""
    setting, number = f"{IN_FLIGHT}={in_flight}", _number(in_flight)
    fix = f"{OVER}enable.idempotence=true in the connector's config"
    if number is None:
        what = f"{setting} is not a readable number: above 1 a retry reorders changes"
        return [Finding(WARN, IN_FLIGHT, where, what, fix, Effect.DROPS, setting=setting)]
    if number <= 1:
        return []
    what = f"{setting} without idempotence: a retry reorders changes"
    return [Finding(REFUSE, IN_FLIGHT, where, what, fix, Effect.DROPS, setting=setting)]


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _unseen(
    config: Mapping[str, str], where: str, worker: Mapping[str, str] | None
) -> list[Finding]:
    open_ = [name for name in OWN if OVER + name not in config]
    if worker is not None or not open_:
        return []
    what = f"{', '.join(open_)} of the producer may be set by the worker, which Connect hides"
    fix = f"set {OVER}* in the connector's config, or pass the worker's file with --worker"
    return [Finding(NOTE, "producer_unseen", where, what, fix)]


def _flush(where: str, worker: Mapping[str, str] | None) -> list[Finding]:
    """Findings on the flush interval: proofs wait for stored offsets for up to one interval."""
    fix = f"{FLUSH}={LONGEST_FLUSH} in the worker's file, and a restart of Connect"
    if worker is None:
        what = f"{FLUSH} cannot be seen (60 s by default): readiness waits for it"
        return [Finding(NOTE, "flush_unseen", where, what, f"check, with --worker: {fix}")]
    value = _number(text := worker.get(FLUSH, "60000"))
    if value is None:
        what = f"{FLUSH}={text} is no number that can be read here: readiness waits for it"
        return [Finding(NOTE, "flush_unseen", where, what, fix)]
    if value <= LONGEST_FLUSH:
        return []
    what = f"{FLUSH}={value}: each proof of readiness is late by up to that"
    return [Finding(WARN, FLUSH, where, what, fix)]


REMEDY = "{name}={value} in the connector's config"
REMOVE = "remove {name} from the connector's config"

# What transforms do to a change, by the last part of their class.
HARMFUL = {
    "ExtractNewRecordState": "takes the envelope off, and with it the order of changes",
    "Filter": "drops changes",
    "ReplaceField": "drops or renames columns",
    "MaskField": "replaces values",
    "Cast": "changes types",
    "Flatten": "takes the envelope apart",
    "ExtractField": "takes the envelope off",
    "HoistField": "wraps the envelope",
    "TimestampConverter": "changes how times are written",
    "ValueToKey": "replaces the key",
    "DropHeaders": "",
    "InsertHeader": "",
    "HeaderFrom": "",
}
DROPPING = ("Filter",)
COPYING, MOVES = "HeaderFrom", "takes fields out of the change, unless operation=copy"
OVERRIDES, KEYS = "snapshot.select.statement.overrides", "message.key.columns"
SNAPSHOT_OF = "snapshot.include.collection.list"
# Matches statements that read all rows unchanged; a FLOAT times 1e0 is sent with all its digits.
_ITEM = r"`?\w+`?(?:\s*\*\s*1e0\s+AS\s+`?\w+`?)?"
WHOLE = re.compile(
    rf"\s*SELECT\s+(?:\*|{_ITEM}(?:\s*,\s*{_ITEM})*)\s+FROM\s+[\w.`\"]+\s*(?:;\s*)?", re.IGNORECASE
)
FOLDING, KEEPING = "ByLogicalTableRouter", "key.enforce.uniqueness"
# They change the topic, not the change; follow_routers finds tables that are routed away.
ROUTERS = (FOLDING, "RegexRouter")


def connector_findings(
    config: Mapping[str, str],
    where: str,
    *,
    source: SourceSettings,
    worker: Mapping[str, str] | None,
) -> list[Finding]:
    """Findings on a connector's settings; *worker* are its worker's, None if unknown.

    Raises:
        ConfigError: the kind of *source* has no known connector.
    """
    database = database_of_kind(source.kind)
    return [
        *_identity(config, where, source.collected_prefix, database),
        *find_unmet(list_demands(source, database.demands), config, where, remedy=REMEDY),
        *find_placeholder(config, expected_placeholder(source), where),
        *_present(config, where),
        *_families(config, where),
        *_unverified(config, where, source, database),
        *database.findings(config, source, where),
        *_transforms(config, where, database),
        *_routing(config, where, source),
        *_converters(config, where, converter_classes(source), worker),
    ]


def find_config_hazards(
    config: Mapping[str, str],
    where: str,
    unavailable: str = UNAVAILABLE,
    source: SourceSettings | None = None,
) -> tuple[Finding, ...]:
    """Findings on settings in *config* that drop, rewrite or delay changes.

    *unavailable* is the placeholder that the source's format reads as an unsent value.
    With a *source*, the names in *config* are compared with those of the source.
    Cannot detect: settings of the worker.
    """
    database = database_of_connector(config)
    found = (
        *find_unmet((*DEMANDS, *database.demands), config, where, remedy=REMEDY),
        *find_placeholder(config, unavailable, where),
        *_present(config, where),
        *database.hazards(config, where),
        *_differing_names(config, where, source, database),
        *_transforms(config, where, database),
        *find_null_defaults(config, where),
        *producer_findings(config, where, None),
    )
    return tuple(dict.fromkeys(one for one in found if one.effect is not Effect.NONE))


def _differing_names(
    config: Mapping[str, str],
    where: str,
    source: SourceSettings | None,
    database: ConnectedDatabase,
) -> list[Finding]:
    """Findings of the database on names, if *source* has the same kind of database."""
    try:
        kind = None if source is None else database_of_kind(source.kind)
    except ConfigError:  # the doctor reports the unknown kind
        return []
    if source is None or kind is None or {*kind.classes}.isdisjoint(database.classes):
        return []
    return database.findings(config, source, where)


def _present(config: Mapping[str, str], where: str) -> list[Finding]:
    """Findings on settings that are harmful if set; some of them only for tables that they name."""
    found: list[Finding] = []
    for one in find_unmet((d for d in PRESENT if config.get(d.name)), config, where, remedy=REMOVE):
        if one.code == OVERRIDES:
            found += _overrides(config, one)
        elif one.code == KEYS:
            named = [text.partition(":")[0].strip() for text in config[KEYS].split(";")]
            found.append(replace(one, shards=_matching(named)))
        elif one.code == SNAPSHOT_OF:
            listed = _matching([name.strip() for name in config[SNAPSHOT_OF].split(",")])
            found.append(replace(one, shards=rf"(?!(?:{listed})\Z).*" if listed else ""))
        else:
            found.append(one)
    return found


def _overrides(config: Mapping[str, str], found: Finding) -> Iterator[Finding]:
    """Yield the finding with the tables whose statement does not read all rows unchanged."""
    named = [name.strip() for name in config[OVERRIDES].split(",") if name.strip()]
    harmful = [one for one in named if not WHOLE.fullmatch(config.get(f"{OVERRIDES}.{one}", ""))]
    if harmful:
        yield replace(found, shards="|".join(re.escape(one) for one in harmful))


def _matching(patterns: list[str]) -> str:
    """One regular expression of all *patterns*; empty (every table) if one cannot be read here."""
    try:
        found = "|".join(f"(?:{one.pattern})" for one in compile_patterns(filter(None, patterns)))
        return re.compile(found).pattern  # fails if two patterns name the same group
    except re.error:
        return ""


def _identity(
    config: Mapping[str, str], where: str, prefix: str, database: ConnectedDatabase
) -> list[Finding]:
    demands = (
        Demand(
            "connector.class",
            "Sluice reads only messages of Debezium's connectors for this kind of source",
            good=tuple(name.lower() for name in database.classes),
            fix=f"connector.class={database.classes[0]}",
        ),
        Demand(
            "topic.prefix",
            f"the config says prefix: {prefix}, so these topics would not be read",
            good=(prefix.lower(),),
            fix="name the connector's topic.prefix as prefix under sources",
        ),
    )
    return find_unmet(demands, config, where, remedy=REMEDY)


def _unverified(
    config: Mapping[str, str], where: str, source: SourceSettings, database: ConnectedDatabase
) -> list[Finding]:
    """Findings on TLS, if Sluice's own connections would require it for the connector's server."""
    read = replace(source, host=config.get("database.hostname", source.host))
    if not read.secured:
        return []
    otherwise = f"or tls: false of {source.name} under sources"
    found = find_unmet(database.verified, config, where, remedy=f"{REMEDY}; {otherwise}")
    for name in sorted(name for name in config if weakens_tls(name, database)):
        what = f"{name} may make the driver trust any server: {UNVERIFIED}"
        fix = f"{REMOVE.format(name=name)}; {otherwise}"
        found.append(Finding(REFUSE, name, where, what, fix))
    return found


def _families(config: Mapping[str, str], where: str) -> list[Finding]:
    """Findings on families of settings; a setting's full name may contain a salt, a secret."""
    return [
        Finding(WARN, family, where, f"{family}...: {why}", REMOVE.format(name=f"{family}..."))
        for family, why in FAMILIES
        if any(name.startswith(family) for name in config)
    ]


def _aliases(config: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield each transform's alias, class, and last part of the class."""
    for alias in split_list(config.get("transforms", "")):
        kind = config.get(f"transforms.{alias}.type", "")
        yield alias, kind, kind.rpartition(".")[2].partition("$")[0]


def _transforms(
    config: Mapping[str, str], where: str, database: ConnectedDatabase
) -> list[Finding]:
    found, ours = list[Finding](), database.own_transforms(config)
    for alias, kind, short in _aliases(config):
        harm = HARMFUL.get(short, "is not known to leave changes as they are")
        if short == COPYING and config.get(f"transforms.{alias}.operation", "").lower() != "copy":
            harm = MOVES
        if not harm or short in ROUTERS or alias in ours:
            continue
        severity = REFUSE if short in HARMFUL else WARN
        effect = Effect.DROPS if short in (*DROPPING, "") else Effect.REWRITES
        what, fix = f"{alias} ({kind}) {harm}", f"remove {alias} from transforms"
        fix += " in the connector's config"
        setting = f"transforms.{alias}.type={kind}"
        found.append(Finding(severity, "transforms", where, what, fix, effect, setting=setting))
    return found


def _routing(config: Mapping[str, str], where: str, source: SourceSettings) -> Iterator[Finding]:
    for alias, _, short in _aliases(config):
        if short in ROUTERS:
            yield from _router(config, where, source, alias)


def _router(
    config: Mapping[str, str], where: str, source: SourceSettings, alias: str
) -> list[Finding]:
    """Findings on a router: Sluice must read its topics, and keys must have no added field."""
    own = f"transforms.{alias}"
    kind = config[f"{own}.type"]
    found = []
    if kind.endswith(FOLDING) and config.get(f"{own}.{KEEPING}", "true").lower() != "false":
        what = f"{alias} ({kind}) puts a field into the key that is no column of the table"
        fix = REMEDY.format(name=f"{own}.{KEEPING}", value="false")
        found.append(Finding(REFUSE, "transforms", where, what, fix))
    if not source.topics:
        what = f"{alias} ({kind}) renames topics, and those read are {source.topic_pattern}"
        fix = f"set topics of {source.name} under sources to their names"
        found.append(Finding(WARN, "transforms", where, what, fix))
    return found


def _converters(
    config: Mapping[str, str],
    where: str,
    good: tuple[str, ...],
    worker: Mapping[str, str] | None,
) -> list[Finding]:
    known = {**(worker or {}), **config}
    fix = f"key.converter and value.converter={good[0]} in the connector's config"
    what = "plain JSON" if good == (JSON,) else "Avro of this source"
    found = [
        Finding(REFUSE, name, where, f"{name}={known[name]}: Sluice reads {what}", fix)
        for name in ("key.converter", "value.converter")
        if known.get(name, good[0]) not in good
    ]
    own = config if "value.converter" in config else worker  # where the converter's settings are
    if own is None:
        what = "the converter is the worker's, which Connect does not show; NULLs may get lost"
        return [*found, Finding(WARN, NULLS, where, what, f"{fix}, and {NULLS}=false")]
    stated = own.get("value.converter", good[0])
    if stated in good:
        found += find_null_defaults({**own, "value.converter": stated}, where)
    return found


UNREADABLE = (
    r"write it without sets of sets ([a-z&&[^t]]), classes of Unicode (\p{L}), ends of words (\b),"
    r" repeats of repeats ((a+)+) or of choices ((foo|bar)*);"
    " then a new base of its tables: docs/guides/add-a-table.md#readable-lists"
)


def heartbeat_findings(config: Mapping[str, str], heartbeat: str, where: str) -> list[Finding]:
    """Reject a connector that does not send the heartbeat table, or whose lists are unreadable."""
    outer = list_setting_names(database_of_connector(config).lists)
    lists: dict[str, Patterns] = {}
    for name in (*outer, *TABLES):
        try:
            lists[name] = read_patterns(config.get(name, ""))
        except re.error as error:
            what = f"{name} of the connector cannot be read, so it may leave out any table: {error}"
            return [Finding(REFUSE, "not_allowed", where, what, UNREADABLE)]
    fixes = []
    for (include, exclude), name in ((outer, heartbeat.partition(".")[0]), (TABLES, heartbeat)):
        if not is_included(name, lists[include], lists[exclude]):
            entry = re.escape(name)
            inside = bool(config.get(include))
            fixes.append(f"add {entry} to {include}" if inside else f"let {exclude} spare {name}")
    if not fixes:
        return []
    what = f"{heartbeat} is not captured: no heartbeat would arrive, so nothing could be proven"
    return [Finding(REFUSE, "heartbeat_captured", where, what, "; ".join(fixes))]
