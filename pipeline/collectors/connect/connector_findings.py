"""Does the connector send every change of the captured tables, and every value whole?  Pure."""

from collections.abc import Mapping

from pipeline.collectors.connect.connected import ConnectedDatabase, connected
from pipeline.collectors.connect.converters import JSON, classes, defaulted, demands
from pipeline.collectors.connect.demands import FAMILIES, PRESENT
from pipeline.finding import REFUSE, WARN, Demand, Finding, unmet
from pipeline.settings import SourceSettings

REMEDY = "{name}={value} in the connector's config"
REMOVE = "remove {name} from the connector's config"
NULLS = "value.converter.replace.null.with.default"

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
        *unmet((d for d in PRESENT if config.get(d.name)), config, where, remedy=REMOVE),
        *_families(config, where),
        *database.findings(config, source, where),
        *_transforms(config, where, source),
        *_converters(config, where, classes(source), worker),
    ]


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


def _families(config: Mapping[str, str], where: str) -> list[Finding]:
    """Only the family is named: a setting's own name may hold a salt, which is a secret."""
    return [
        Finding(WARN, family, where, f"{family}...: {why}", REMOVE.format(name=f"{family}..."))
        for family, why in FAMILIES
        if any(name.startswith(family) for name in config)
    ]


def _transforms(config: Mapping[str, str], where: str, source: SourceSettings) -> list[Finding]:
    found: list[Finding] = []
    for name in config.get("transforms", "").split(","):
        alias = name.strip()
        if not alias:
            continue
        kind = config.get(f"transforms.{alias}.type", "")
        short = kind.rpartition(".")[2].partition("$")[0]
        if short in ROUTERS:
            found += _routing(config, where, source, alias)
            continue
        harm = HARMFUL.get(short, "is not known to leave changes as they are")
        if not harm:
            continue
        severity = REFUSE if short in HARMFUL else WARN
        fix = f"take {alias} out of transforms in the connector's config"
        found.append(Finding(severity, "transforms", where, f"{alias} ({kind}) {harm}", fix))
    return found


def _routing(
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
    found += defaulted(known, where) if known.get("value.converter") in good else []
    own = config if "value.converter" in config else worker  # a converter and its settings go along
    if own is None:
        what = "the converter is the worker's, which Connect does not show; NULLs may get lost"
        return [*found, Finding(WARN, NULLS, where, what, f"{fix}, and {NULLS}=false")]
    if own.get("value.converter", good[0]) not in good or own.get(NULLS, "true").lower() == "false":
        return found
    what = f"{NULLS}=true: NULL in a column that has a default arrives as that default"
    remedy = f"{NULLS}=false (and value.converter) in the connector's config"
    return [*found, Finding(REFUSE, NULLS, where, what, remedy)]
