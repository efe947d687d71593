"""Rules on the settings of a connector: what drops, rewrites or delays changes.

``connector_findings`` is what the doctor prints; ``hazards`` is the part of it that the running
service withholds READY for.  Both go through the same lists.  Pure.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from pipeline.collectors.connect.connected import (
    ConnectedDatabase,
    connected,
    read_by,
    weakens,
)
from pipeline.collectors.connect.converters import JSON, NULLS, classes, defaulted, demands
from pipeline.collectors.connect.demands import DEMANDS, FAMILIES, PRESENT, UNVERIFIED
from pipeline.collectors.connect.java_patterns import compiled_all
from pipeline.collectors.connect.producer_findings import producer_findings
from pipeline.finding import REFUSE, WARN, Demand, Effect, Finding, unmet
from pipeline.settings import SourceSettings

REMEDY = "{name}={value} in the connector's config"
REMOVE = "remove {name} from the connector's config"

# Transforms by the last part of their class: what they do to a change.
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
OVERRIDES, KEYS = "snapshot.select.statement.overrides", "message.key.columns"
SNAPSHOT_OF = "snapshot.include.collection.list"
# Reads all rows and leaves each value as it is; a FLOAT times 1e0 is sent with all its digits.
_ITEM = r"`?\w+`?(?:\s*\*\s*1e0\s+AS\s+`?\w+`?)?"
WHOLE = re.compile(
    rf"\s*SELECT\s+(?:\*|{_ITEM}(?:\s*,\s*{_ITEM})*)\s+FROM\s+[\w.`\"]+\s*(?:;\s*)?", re.IGNORECASE
)
FOLDING, KEEPING = "ByLogicalTableRouter", "key.enforce.uniqueness"
ROUTERS = (FOLDING, "RegexRouter")  # they change the topic, and leave the change as it is


def connector_findings(
    config: Mapping[str, str],
    where: str,
    *,
    source: SourceSettings,
    worker: Mapping[str, str] | None,
) -> list[Finding]:
    """Rule on a connector's settings; *worker* are its worker's, None where they are not known.

    Raises:
        ConfigError: nothing is known of connectors for the kind of the *source*.
    """
    database = connected(source.kind)
    return [
        *_identity(config, where, source.collected_prefix, database),
        *unmet(demands(source, database.demands), config, where, remedy=REMEDY),
        *_present(config, where),
        *_families(config, where),
        *_unverified(config, where, source, database),
        *database.findings(config, source, where),
        *_transforms(config, where),
        *_routing(config, where, source),
        *_converters(config, where, classes(source), worker),
    ]


def hazards(config: Mapping[str, str], where: str) -> tuple[Finding, ...]:
    """What in *config* drops, rewrites or delays changes; asked at each look, so it needs no more.

    Settings of the worker that the connector does not state are not seen here.
    """
    database = read_by(config)
    found = (
        *unmet((*DEMANDS, *database.demands), config, where, remedy=REMEDY),
        *_present(config, where),
        *database.hazards(config, where),
        *_transforms(config, where),
        *defaulted(config, where),
        *producer_findings(config, where, None),
    )
    return tuple(one for one in found if one.effect is not Effect.NONE)


def _present(config: Mapping[str, str], where: str) -> list[Finding]:
    """Settings that harm by being there; of some, only the tables that they name."""
    found: list[Finding] = []
    for one in unmet((d for d in PRESENT if config.get(d.name)), config, where, remedy=REMOVE):
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
    """Statements that read whole rows change nothing, whatever columns they spell out."""
    named = [name.strip() for name in config[OVERRIDES].split(",") if name.strip()]
    harmful = [one for one in named if not WHOLE.fullmatch(config.get(f"{OVERRIDES}.{one}", ""))]
    if harmful:
        yield replace(found, shards="|".join(re.escape(one) for one in harmful))


def _matching(patterns: list[str]) -> str:
    """One regular expression of them; that of every table where one cannot be read here."""
    try:
        found = "|".join(f"(?:{one.pattern})" for one in compiled_all(filter(None, patterns)))
        return re.compile(found).pattern  # a name of a group may be there twice
    except re.error:
        return ""


def _identity(
    config: Mapping[str, str], where: str, prefix: str, database: ConnectedDatabase
) -> list[Finding]:
    demands = (
        Demand(
            "connector.class",
            "Sluice reads what Debezium's own connectors for the kind of source send",
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
    return unmet(demands, config, where, remedy=REMEDY)


def _unverified(
    config: Mapping[str, str], where: str, source: SourceSettings, database: ConnectedDatabase
) -> list[Finding]:
    """TLS as Sluice's own connections demand it, of the server that the connector reads."""
    read = replace(source, host=config.get("database.hostname", source.host))
    if not read.secured:
        return []
    otherwise = f"or tls: false of {source.name} under sources"
    found = unmet(database.verified, config, where, remedy=f"{REMEDY}; {otherwise}")
    for name in sorted(name for name in config if weakens(name, database)):
        what = f"{name} may tell the driver to believe any server: {UNVERIFIED}"
        fix = f"{REMOVE.format(name=name)}; {otherwise}"
        found.append(Finding(REFUSE, name, where, what, fix))
    return found


def _families(config: Mapping[str, str], where: str) -> list[Finding]:
    """Only the family is named: a setting's own name may hold a salt, which is a secret."""
    return [
        Finding(WARN, family, where, f"{family}...: {why}", REMOVE.format(name=f"{family}..."))
        for family, why in FAMILIES
        if any(name.startswith(family) for name in config)
    ]


def _aliases(config: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Each transform's alias, class, and the last part of the class."""
    for name in config.get("transforms", "").split(","):
        if alias := name.strip():
            kind = config.get(f"transforms.{alias}.type", "")
            yield alias, kind, kind.rpartition(".")[2].partition("$")[0]


def _transforms(config: Mapping[str, str], where: str) -> list[Finding]:
    found: list[Finding] = []
    for alias, kind, short in _aliases(config):
        harm = HARMFUL.get(short, "is not known to leave changes as they are")
        if not harm or short in ROUTERS:
            continue
        severity = REFUSE if short in HARMFUL else WARN
        effect = Effect.DROPS if short in (*DROPPING, "") else Effect.REWRITES
        what, fix = f"{alias} ({kind}) {harm}", f"take {alias} out of transforms"
        fix += " in the connector's config"
        found.append(Finding(severity, "transforms", where, what, fix, effect))
    return found


def _routing(config: Mapping[str, str], where: str, source: SourceSettings) -> Iterator[Finding]:
    for alias, _, short in _aliases(config):
        if short in ROUTERS:
            yield from _router(config, where, source, alias)


def _router(
    config: Mapping[str, str], where: str, source: SourceSettings, alias: str
) -> list[Finding]:
    """Whatever a topic is called, a message tells its shard; but its topic has to be read."""
    own = f"transforms.{alias}"
    kind = config[f"{own}.type"]
    found = []
    if kind.endswith(FOLDING) and config.get(f"{own}.{KEEPING}", "true").lower() != "false":
        what = f"{alias} ({kind}) puts a field into the key that is no column of the table"
        fix = REMEDY.format(name=f"{own}.{KEEPING}", value="false")
        found.append(Finding(REFUSE, "transforms", where, what, fix))
    if not source.topics:
        what = f"{alias} ({kind}) renames topics, and those read are {source.topic_pattern}"
        fix = f"say what they are called: topics of {source.name} under sources"
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
    own = config if "value.converter" in config else worker  # a converter and its settings go along
    if own is None:
        what = "the converter is the worker's, which Connect does not show; NULLs may get lost"
        return [*found, Finding(WARN, NULLS, where, what, f"{fix}, and {NULLS}=false")]
    stated = own.get("value.converter", good[0])
    if stated in good:
        found += defaulted({**own, "value.converter": stated}, where)
    return found
