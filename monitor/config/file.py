"""Parses `sluice.yaml` into a `Config`, or reports all faults of the file."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from alerts import channel as channels
from checks import run as probes
from monitor.config import sections as copies
from monitor.config import sections as invariants
from monitor.config import sections as standards
from monitor.config.model import Config, HttpAuth, OpenLineageSettings
from monitor.config.partial import reduce_config, validate_config
from monitor.config.plans import (
    Beside,
    CheckPlan,
    SectionPlace,
    build_check_plan,
    build_section,
    find_gate_rules,
    section_schema,
    with_keys,
    with_placed_files,
)
from monitor.config.sections import PLACEHOLDER_ADDRESS, with_placeholder_address
from monitor.config.text import (
    SECRET_SCHEMA,
    build_config_error,
    expand_environment,
    hide_environment,
    read_mapping,
    read_text,
    resolve_names,
    resolve_path,
    resolve_secrets,
    secret_fields,
    without_consequences,
    without_unset,
)
from monitor.config.validation import (
    config_errors,
    find_plugins,
    kafka_securities,
    location_errors,
    tls_clients,
    unknown_names,
)
from pipeline.durations import PATTERN
from pipeline.faults import fault_lines
from pipeline.settings import KafkaSecurity, PublishRule, SourceSettings, is_spark_secret
from pipeline.tls import FILES, file_faults

APART = ("probes", "channels", "invariants", "copies", "standards")  # built by plug-ins
_NAMING = ("columns", "fields", "key", "shards", "tables")
_OF_PLUG_INS = ("options", "format_options", "transport_options", "table_format_options")
Faults = Callable[[Config], Iterable[str]]


def _none(_: Config) -> Iterable[str]:
    return ()


def load_config(path: Path, also: Faults = _none) -> Config:
    """Return the config in *path*; relative paths in it start at its folder.

    *also* finds further faults, such as :func:`monitor.config.sections.plugin_faults`.

    Raises:
        ConfigError: with one line per fault.
    """
    return parse_config(read_text(path), path, also)


def parse_config(text: str, path: Path, also: Faults = _none) -> Config:
    """Parse *text* as if it were the file at *path*; *also* as in :func:`load_config`.

    Raises:
        ConfigError: with one line per fault.
    """
    raw, unreadable = read_mapping(text, path)
    plans, faults = _probes(raw.get("probes"), path.parent)
    gates = [find_gate_rules(plan) for plan in plans]
    faults += [fault for _, wrong in gates for fault in wrong]
    sinks, more = _channels(raw.get("channels"), path.parent)
    demanded, odd = invariants.build_invariant_rules(raw.get("invariants"), path.parent)
    sent, bad = copies.build_copy_plans(raw.get("copies"), path.parent)
    restated, strange = standards.standard_rules(raw.get("standards"), path.parent)
    plain, hidden = _with_secrets({k: v for k, v in raw.items() if k not in APART}, path.parent)
    plain, unset = expand_environment(plain, "")
    held = (*demanded, *(rule for rules, _ in gates for rule in rules))
    built = {"probes": tuple(plans), "channels": sinks, "invariants": held, "copies": sent}
    unset += unreadable
    faults += more + odd + bad + strange + hidden
    faults = without_consequences(faults, unreadable) + unset
    hollow = list(_hollow(raw))
    try:
        config = validate_config(plain)
    except ValidationError as error:
        schema = with_keys(Config.model_json_schema(), APART)
        wrong = without_unset(fault_lines(error, schema), unset) + faults

        def also_named(config: Config) -> list[str]:
            return [
                *unknown_names(
                    config, plans, sinks, demanded=demanded, restated=restated, sent=sent
                ),
                *_unreadable(config),
                *also(config.model_copy(update=built)),
            ]

        wrong += _drop_known_faults([*hollow, *_judged_beside(plain, path, also_named)], wrong)
        raise build_config_error(path, hide_environment(wrong, raw), text) from None
    own = tuple(_source(source, path) for source in config.sources)
    security = with_placed_files(config.kafka_security, path)
    lineage = config.openlineage and with_placed_files(config.openlineage, path)
    config = config.model_copy(
        update={"kafka_security": security, "sources": own, "openlineage": lineage}
    )
    wrong = unknown_names(config, plans, sinks, demanded=demanded, restated=restated, sent=sent)
    wrong += [
        *config_errors(config),
        *location_errors(config, path),
        *_unreadable(config),
        *also(config.model_copy(update=built)),
    ]
    faults += _drop_known_faults(wrong, faults)
    faults += _drop_known_faults(hollow, faults)
    if faults:
        raise build_config_error(path, hide_environment(faults, raw), text)
    return config.model_copy(
        update=built
        | {
            "standards": restated,
            "lake": resolve_path(config.lake, path),
            "store": resolve_path(config.store, path),
            "publish": tuple(_written(rule, path) for rule in config.publish),
        }
    )


def _drop_known_faults(more: Iterable[str], faults: Iterable[str]) -> list[str]:
    """Return those of *more* whose keys have no fault in *faults*, each once."""
    known_keys = {_key(fault) for fault in faults}
    return list(dict.fromkeys(fault for fault in more if _key(fault) not in known_keys))


def _key(fault: str) -> str:
    return fault.partition(": ")[0]


def _judged_beside(plain: Mapping[str, Any], path: Path, also: Faults) -> Iterator[str]:
    """Yield faults of the sections without type faults, including those that *also* finds."""
    found = reduce_config(plain)
    if found is None:
        return
    config, reduced = found
    for fault in [*config_errors(config), *location_errors(config, path), *also(config)]:
        reduced_key, sign, said = fault.partition(": ")
        key = reduced.original_key(reduced_key)
        if not reduced.is_following(key, said):
            yield f"{key}{sign}{said}"


def _hollow(raw: Any, at: str = "") -> Iterator[str]:
    """Yield naming lists and texts that are empty, and lists that contain a name twice."""
    if isinstance(raw, list):
        for number, one in enumerate(raw):
            yield from _hollow(one, f"{at}[{number}]")
    for name, value in raw.items() if isinstance(raw, Mapping) else ():
        place = f"{at}.{name}" if at else str(name)
        if at and name in _NAMING and value in ("", []):
            yield f"{place}: is empty; set a value, or remove the line"
        elif at and name in _NAMING and isinstance(value, list):
            if not all(one is None or str(one).strip() for one in value):
                yield f"{place}: contains an empty name; write the name, or remove it"
            if twice := next((one for one in value if value.count(one) > 1), None):
                yield f"{place}: {twice!r} occurs twice; remove one"
        elif name not in _OF_PLUG_INS:
            yield from _hollow(value, place)


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of the whole file, for editors."""
    whole = Config.model_json_schema()
    for kind in (SourceSettings, KafkaSecurity, OpenLineageSettings, HttpAuth):
        for name in sorted(secret_fields(kind)):
            whole["$defs"][kind.__name__]["properties"][name] = SECRET_SCHEMA
    needed = whole["$defs"]["SourceSettings"]["required"]
    needed[:] = [
        name for name in needed if name not in PLACEHOLDER_ADDRESS
    ]  # some kinds need no server
    beside = TypeAdapter(Beside).json_schema()["properties"]
    whole["properties"]["probes"] = _by_name(
        {name: section_schema(probes.find_probe(name), beside) for name in probes.probe_names()}
    )
    kinds = {
        name: section_schema(channels.find_channel(name), {"kind": {}})
        for name in channels.channel_names()
    }
    whole["properties"]["channels"] = {**_by_name(kinds), "additionalProperties": True}
    whole["properties"]["invariants"] = invariants.invariant_schema()
    whole["properties"]["copies"] = copies.copies_schema(SECRET_SCHEMA)
    whole["properties"]["standards"] = standards.standard_schema()
    return cast("dict[str, Any]", _with_short_durations(whole))


def _with_short_durations(node: Any) -> Any:
    """Return *node* of a schema with durations in every accepted form."""
    if isinstance(node, list):
        return [_with_short_durations(one) for one in node]
    if not isinstance(node, Mapping):
        return node
    if node.get("format") == "duration":
        rest = {key: value for key, value in node.items() if key != "format"}
        return {**rest, "pattern": PATTERN}
    return {key: _with_short_durations(value) for key, value in node.items()}


def _with_secrets(raw: dict[str, Any], folder: Path) -> tuple[dict[str, Any], list[str]]:
    known, faults = _security(raw, "", folder)
    if isinstance(section := raw.get("openlineage"), Mapping):
        known["openlineage"], wrong = resolve_secrets(
            section, OpenLineageSettings, "openlineage", folder
        )
        faults += wrong
    tuning = raw.get("pipeline")
    if isinstance(tuning, Mapping) and isinstance(spark := tuning.get("spark"), Mapping):
        names = [name for name in spark if isinstance(name, str) and is_spark_secret(name)]
        read, wrong = resolve_names(spark, names, "pipeline.spark", folder)
        known["pipeline"] = {**tuning, "spark": read}
        faults += wrong
    http = raw.get("http")
    if isinstance(http, Mapping) and isinstance(auth := http.get("auth"), Mapping):
        read, wrong = resolve_secrets(auth, HttpAuth, "http.auth", folder)
        known["http"] = {**http, "auth": read}
        faults += wrong
    sources = raw.get("sources")
    if isinstance(sources, list):
        found = [
            _with_secrets_of(one, f"sources[{number}]", folder)
            for number, one in enumerate(sources)
        ]
        known["sources"] = [source for source, _ in found]
        faults += [fault for _, wrong in found for fault in wrong]
    return known, faults


def _with_secrets_of(source: Any, where: str, folder: Path) -> tuple[Any, list[str]]:
    if not isinstance(source, Mapping):
        return source, []
    known, faults = resolve_secrets(with_placeholder_address(source), SourceSettings, where, folder)
    if isinstance(known.get("mirrored"), Mapping):
        known["mirrored"], wrong = _security(known["mirrored"], f"{where}.mirrored.", folder)
        faults += wrong
    return known, faults


def _security(
    raw: Mapping[str, Any], before: str, folder: Path
) -> tuple[dict[str, Any], list[str]]:
    if not isinstance(section := raw.get("kafka_security"), Mapping):
        return dict(raw), []
    known, faults = resolve_secrets(section, KafkaSecurity, f"{before}kafka_security", folder)
    return {**raw, "kafka_security": known}, faults


def _probes(raw: Any, folder: Path) -> tuple[list[CheckPlan], list[str]]:
    off = "must be a mapping of settings; to switch it off, write {enabled: false}"
    sections, wrong = _sections(raw, "probes", off)
    known = probes.probe_names()
    modules, unknown = find_plugins(
        probes.find_probe, [n for n in sections if n not in known], probes.Probe
    )
    faults = wrong + [f"probes.{name}: {why}" for name, why in unknown.items()]
    plans = []
    by_default = [n for n in known if n in sections or probes.runs_by_default(n)]
    for name in (*by_default, *modules):
        one, wrong = build_check_plan(name, probes.find_probe(name), sections.get(name, {}), folder)
        plans += [one] if one else []
        faults += wrong
    return plans, faults


def _channels(raw: Any, folder: Path) -> tuple[dict[str, Any], list[str]]:
    sections, faults = _sections(
        raw, "channels", "must be a mapping of settings, such as {kind: log}"
    )
    built: dict[str, Any] = {}
    for name, section in {"log": {}, **sections}.items():  # the log is the default channel
        settings = dict(section)
        kind = str(settings.pop("kind", name))
        _, unknown = find_plugins(channels.find_channel, [kind], channels.Channel)
        if unknown:
            faults.append(f"channels.{name}.kind: {unknown[kind]}")
            continue
        place = SectionPlace(f"channels.{name}", folder)
        built[name], wrong = build_section(channels.find_channel(kind), settings, place, ("kind",))
        faults += wrong
        if built[name] is not None and built[name].per_minute < 1:
            faults.append(
                f"channels.{name}.per_minute: must be at least 1, or no notification is sent"
            )
    return built, faults


def _sections(raw: Any, at: str, must: str) -> tuple[dict[str, Mapping[str, Any]], list[str]]:
    """Return sections by name, and faults for those that are not mappings."""
    if not isinstance(raw, Mapping | None):
        return {}, [f"{at}: must be a mapping of names"]
    found = {str(name): {} if one is None else one for name, one in (raw or {}).items()}
    known = {name: one for name, one in found.items() if isinstance(one, Mapping)}
    return known, [f"{at}.{name}: {must}" for name in found if name not in known]


def _by_name(sections: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(sections), "additionalProperties": False}


def _written(rule: PublishRule, path: Path) -> PublishRule:
    return replace(rule, where=resolve_path(rule.where, path)) if rule.where else rule


def _source(source: SourceSettings, path: Path) -> SourceSettings:
    collector = with_placed_files(source.collector, path)
    options = dict(source.format_options)
    if isinstance(registry := options.get("registry"), Mapping):
        files = {name: registry.get(name) for name in FILES}
        near = {k: resolve_path(v, path) for k, v in files.items() if v and isinstance(v, str)}
        options["registry"] = {**registry, **near}
    source = with_placed_files(replace(source, collector=collector, format_options=options), path)
    if source.mirrored is None:
        return source
    security = with_placed_files(source.mirrored.kafka_security, path)
    mirrored = replace(with_placed_files(source.mirrored, path), kafka_security=security)
    return replace(source, mirrored=mirrored)


def _unreadable(config: Config) -> Iterator[str]:
    """Yield files that no client can open; else each client reports that in its own words."""
    for at, security in kafka_securities(config):
        for name in FILES:
            if file := getattr(security, name):
                try:
                    Path(file).open("rb").close()
                except OSError as error:
                    yield f"{at}.{name}: cannot read {file}: {error.strerror}"
    for at, client in tls_clients(config):
        yield from (f"{at}.{fault}" for fault in file_faults(client))
