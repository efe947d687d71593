"""Builds the config sections `copies`, `invariants` and `standards`, and tests plug-ins.

`copies` is a mapping of names. Each copy has `kind`, `tables` (a pattern or a list of them) and the
fields of its class.

`invariants` is a list of tables (a glob) and their invariants with the fields of their classes. A
table that no entry names has no invariants.

`standards` is a list of tables (a glob), their key and the standards of their columns. Other
columns are written as their source has them. If a standard hides values, a row lands only if each
other column is in `clear` or in the key.

`plugin_faults` reports kinds and options that do not exist, and opens no connection. It imports
`pipeline.build` when called: importing Arrow and drivers takes a second, for which most verbs need
not wait.

A source whose collector reads no server needs no host, port and user, and gets a placeholder
address.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from monitor.config.model import Config
from monitor.config.plans import (
    CheckPlan,
    CopyPlan,
    SectionPlace,
    build_section,
    find_gate_rules,
    section_schema,
)
from monitor.config.text import secret_fields
from monitor.config.validation import TRANSPORT, find_plugins, is_host
from pipeline import collectors, plugins
from pipeline.copies.copy import Copy, find_copy, known_copies
from pipeline.errors import ConfigError
from pipeline.invariants.invariant import Invariant, find_invariant, known_invariants
from pipeline.settings import (
    InvariantRule,
    SourceSettings,
    StandardRule,
    address_of,
    is_loopback,
)
from pipeline.standards.standard import RestingStandard, Standard, find_standard, known_standards
from pipeline.standards.table_standards import ALL, hides_values

BESIDE = ("kind", "tables")
LAST_PORT = 65_535
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,29}", re.IGNORECASE)
_MUST = (
    "must be a mapping of copy names to settings, such as {cache: {kind:"
    " postgres, tables: shop.orders}}"
)


def build_copy_plans(raw: Any, folder: Path) -> tuple[tuple[CopyPlan, ...], list[str]]:
    """Return each valid section, and all faults as ``place: fault``."""
    if not isinstance(raw, Mapping | None):
        return (), [f"copies: {_MUST}"]
    found: list[CopyPlan] = []
    faults: list[str] = list(_twice_named(raw or {}))
    for name, section in (raw or {}).items():
        made, wrong = _plan(str(name), section, folder)
        found += [made] if made is not None else []
        faults += wrong
    return tuple(found), faults + list(_colliding(found))


def copies_schema(secret: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of the section, for editors; *secret* is that of a secret field.

    Kinds whose extra is not installed are left out.
    """
    patterns = {"type": ["string", "array"], "items": {"type": "string"}}
    kinds = []
    found, _ = find_plugins(find_copy, known_copies(), Copy)
    for kind in found:
        own = TypeAdapter(find_copy(kind)).json_schema()
        properties = {**own["properties"], "kind": {"const": kind}, "tables": patterns}
        properties |= dict.fromkeys(sorted(secret_fields(find_copy(kind))), secret)
        required = [*own.get("required", ()), *BESIDE]
        kinds.append({"type": "object", "properties": properties, "required": required})
    another = {"type": "object", "properties": {"tables": patterns}, "required": list(BESIDE)}
    return {"type": "object", "additionalProperties": {"anyOf": [*kinds, another]}}


def _plan(name: str, section: Any, folder: Path) -> tuple[CopyPlan | None, list[str]]:
    at = f"copies.{name}"
    if not isinstance(section, Mapping):
        return None, [f"{at}: must be a mapping of settings, such as {{kind: postgres}}"]
    faults = []
    if not _NAME.fullmatch(name):
        faults.append(f"{at}: {name!r} is not a copy name; use at most 30 of a-z, 0-9, '_' and '-'")
    patterns, wrong = _patterns(section.get("tables"), at)
    faults += wrong
    if "kind" not in section:
        return None, [*faults, f"{at}.kind: is required; known: {', '.join(known_copies())}"]
    kind = str(section["kind"])
    _, unknown = find_plugins(find_copy, [kind], Copy)
    if unknown:
        return None, [*faults, f"{at}.kind: {unknown[kind]}"]
    own = {key: value for key, value in section.items() if key not in BESIDE}
    made, wrong = build_section(find_copy(kind), own, SectionPlace(at, folder), BESIDE)
    faults += wrong
    faults += [] if made is None else [f"{at}.{fault}" for fault in _unreachable(made)]
    return (None if made is None or faults else CopyPlan(name, patterns, made)), faults


def _patterns(raw: Any, at: str) -> tuple[tuple[str, ...], list[str]]:
    listed = [raw] if isinstance(raw, str) else raw
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        listed = []
    if not listed or not all(listed):
        return (), [f"{at}.tables: is required; write a pattern such as shop.*, or a list of them"]
    return tuple(listed), []


def _unreachable(copy: Copy) -> Iterator[str]:
    """Yield faults of the common fields with which no server can be reached."""
    host, port = getattr(copy, "host", None), getattr(copy, "port", None)
    if isinstance(host, str) and not is_host(host):
        yield f"host: {host!r} is not a host; write a name or an address, and the port in `port`"
    if isinstance(port, int) and not 0 < port <= LAST_PORT:
        yield f"port: {port} is not a port; use 1 to {LAST_PORT}"
    patience = getattr(copy, "patience", None)
    if isinstance(patience, timedelta) and patience <= timedelta():
        yield "patience: must be longer than 0s"


def _colliding(found: list[CopyPlan]) -> Iterator[str]:
    """Yield copies that would overwrite each other."""
    places: dict[str, CopyPlan] = {}
    for one in found:
        other, place = places.setdefault(spell_place(one.copy), one), one.copy.place
        if other is not one:
            named = "" if other.copy.place == place else f", which it calls {other.copy.place}"
            fault = f"copy {other.name} also writes to {place}{named}"
            yield f"copies.{one.name}: {fault}; use a target of its own for each copy"


def spell_place(copy: Copy) -> str:
    """Return where *copy* writes, with one spelling for each host; no DNS query."""
    host = str(getattr(copy, "host", ""))
    return copy.place.replace(f"//{host}", f"//{_spell_host(host)}", 1) if host else copy.place


def _spell_host(host: str) -> str:
    name = host.lower().removesuffix(".")
    return "localhost" if is_loopback(name) else str(address_of(name) or name)


def _twice_named(raw: Mapping[Any, Any]) -> Iterator[str]:
    """Yield names that occur twice as text: in YAML, the number 0x1 and the text "1" differ."""
    for name, count in Counter(map(str, raw)).items():
        if count > 1:
            yield f"copies.{name}: {count} keys are read as the copy name {name!r}; rename one"


def build_named(
    find: Callable[[str], type], needs: type, named: Mapping[str, Any], place: SectionPlace
) -> Iterator[tuple[str, Any | None, list[str]]]:
    """Yield each name, the object built for it or None, and faults with their places.

    *find* returns the class of a name. The class must fit the protocol *needs*. *named* holds the
    sections at *place*.
    """
    _, unknown = find_plugins(find, named, needs)
    for name, section in named.items():
        at = f"{place.at}.{name}"
        if name in unknown:
            yield name, None, [f"{at}: {unknown[name]}"]
        elif not isinstance(section, Mapping):
            yield name, None, [f"{at}: must be a mapping of settings; see docs/guides"]
        else:
            yield (name, *build_section(find(name), section, SectionPlace(at, place.folder)))


_MUST_DEMAND = (
    "must be a list of tables with their invariants: [{tables: shop.orders, not_null: {...}}]"
)


def build_invariant_rules(raw: Any, folder: Path) -> tuple[tuple[InvariantRule, ...], list[str]]:
    """Return each valid part, and all faults as ``place: fault``."""
    if raw is None:
        return (), []
    if not isinstance(raw, list) or not all(isinstance(one, Mapping) for one in raw):
        return (), [f"invariants: {_MUST_DEMAND}"]
    found: list[InvariantRule] = []
    faults: list[str] = []
    for number, part in enumerate(raw):
        rule, wrong = _rule(part, SectionPlace(f"invariants[{number}]", folder))
        found.append(rule)
        faults += wrong
    return tuple(found), faults


def invariant_schema() -> dict[str, Any]:
    """Return the JSON Schema of the section, for editors."""
    sections = {
        name: TypeAdapter(find_invariant(name)).json_schema() for name in known_invariants()
    }
    properties = {"tables": {"type": "string"}, **sections}
    part = {"type": "object", "properties": properties, "required": ["tables"]}
    return {"type": "array", "items": {**part, "additionalProperties": True}}


def _rule(part: Mapping[str, Any], place: SectionPlace) -> tuple[InvariantRule, list[str]]:
    glob = part.get("tables")
    named = {str(name): section for name, section in part.items() if name != "tables"}
    faults = []
    if not isinstance(glob, str):
        faults.append(f"{place.at}.tables: is required; write a pattern such as shop.*")
    if not named:
        faults.append(f"{place.at}: has no invariant; known: {', '.join(known_invariants())}")
    right: list[tuple[str, Invariant]] = []
    for name, invariant, wrong in build_named(find_invariant, Invariant, named, place):
        faults += wrong
        right += [(name, invariant)] if invariant is not None else []
    return InvariantRule(str(glob), tuple(right)), faults


_MUST_STANDARDIZE = (
    "must be a list: [{tables: shop.orders, key: [id], hash: {columns: [phone], ...}}]"
)
_OWN = ("tables", "key", "clear")
_CLEAR = (
    'list the columns that land unchanged, such as [created_at, "*_id"], or "*" for all that no'
    " standard changes"
)


def standard_rules(raw: Any, folder: Path) -> tuple[tuple[StandardRule, ...], list[str]]:
    """Return each valid part, and all faults as ``place: fault``."""
    if raw is None:
        return (), []
    if not isinstance(raw, list) or not all(isinstance(one, Mapping) for one in raw):
        return (), [f"standards: {_MUST_STANDARDIZE}"]
    found: list[StandardRule] = []
    faults: list[str] = []
    for number, part in enumerate(raw):
        rule, wrong = _standard_rule(part, SectionPlace(f"standards[{number}]", folder))
        found += [rule] if not wrong else []
        faults += wrong
    return tuple(found), faults


def standard_schema() -> dict[str, Any]:
    """Return the JSON Schema of the section, for editors."""
    sections = {name: section_schema(find_standard(name), {}) for name in known_standards()}
    names = {"type": "array", "items": {"type": "string"}, "minItems": 1}
    clear = {"type": ["string", "array"], "items": {"type": "string"}}
    properties = {"tables": {"type": "string"}, "key": names, "clear": clear, **sections}
    part = {"type": "object", "properties": properties, "required": ["tables", "key"]}
    return {"type": "array", "items": {**part, "additionalProperties": True}}


def _standard_rule(part: Mapping[str, Any], place: SectionPlace) -> tuple[StandardRule, list[str]]:
    glob, key = part.get("tables"), part.get("key")
    named = {str(name): section for name, section in part.items() if name not in _OWN}
    faults = []
    if not isinstance(glob, str):
        faults.append(f"{place.at}.tables: is required; write a pattern such as shop.*")
    if not isinstance(key, list) or not key or not all(isinstance(one, str) for one in key):
        faults.append(
            f"{place.at}.key: is required; list the key's columns in their order, such as [id]"
        )
        key = []
    if not named:
        faults.append(f"{place.at}: has no standard; known: {', '.join(known_standards())}")
    right: list[tuple[str, Standard]] = []
    for name, standard, wrong in build_named(find_standard, Standard, named, place):
        faults += wrong
        if standard is not None:
            right.append((name, standard))
            faults += _odd(name, standard, key, place.at)
    clear, odd = _cleared(part.get("clear"), needed=hides_values(right))
    faults += [f"{place.at}.clear: {fault}" for fault in odd]
    return StandardRule(str(glob), tuple(key), tuple(right), clear), faults


def _cleared(raw: Any, *, needed: bool) -> tuple[tuple[str, ...], list[str]]:
    """Read `clear`, which decides whether a new or renamed column may land."""
    if raw is None and not needed:
        return ALL, []
    listed = [raw] if isinstance(raw, str) else raw
    if raw is None or not isinstance(listed, list) or not all(isinstance(o, str) for o in listed):
        return ALL, [f"{'is required' if raw is None else 'is not a list of names'}; {_CLEAR}"]
    return (ALL if "*" in listed else tuple(listed)), []


def _odd(name: str, standard: Standard, key: list[str], at: str) -> Iterator[str]:
    if not standard.columns:
        yield f"{at}.{name}.columns: is empty; list the columns to change"
    if isinstance(standard, RestingStandard) and standard.fault:
        yield f"{at}.{name}.{standard.fault}"
    for column in standard.columns:
        if column in key and not standard.distinct:
            yield (
                f"{at}.{name}.columns: {column} is in the key, and this standard may make"
                " two keys equal; use another standard"
            )


def invariants_of_file(config: Config) -> tuple[InvariantRule, ...]:
    """Return the invariants of the section `invariants`, without those of a probe's `gate`."""
    gates = sum(len(find_gate_rules(plan)[0]) for plan in config.plans)
    return config.invariants[: len(config.invariants) - gates]


def own_faults(config: Config) -> Iterator[str]:
    """Yield the faults that probes and invariants find in their settings; it may take seconds."""
    for plan in config.plans:
        variants = [
            (f"probes.{plan.name}.overrides[{number}]", one)
            for number, (_, one) in enumerate(plan.variants)
        ]
        own = {fault: f"probes.{plan.name}.{fault}" for fault in _mistakes(plan.probe)}
        yield from own.values()
        for at, one in variants:
            yield from (f"{at}.{fault}" for fault in _mistakes(one) if fault not in own)
    for at, _, invariant in _demanded(config):
        yield from (f"{at}.{fault}" for fault in _mistakes(invariant))


def column_faults(
    config: Config, find_columns: Callable[[Config], Mapping[str, Sequence[str]]]
) -> Iterator[str]:
    """Yield the faults of probes and invariants that name missing columns of a table.

    *find_columns* reads the columns by table from the lake; it is called only if anything names
    columns.
    """
    parts: list[tuple[str, Callable[[str], Any]]] = [
        (f"probes.{plan.name}", plan.probe_for) for plan in config.plans if _names_columns(plan)
    ]
    parts += [
        (at, partial(_if_matching, one, glob))
        for at, glob, one in _demanded(config)
        if hasattr(one, "column_mistakes")
    ]
    tables = find_columns(config) if parts else {}
    for at, part_for in parts:
        for table, known in tables.items():
            find = getattr(part_for(table), "column_mistakes", None)
            yield from (f"{at}.{fault}" for fault in (find(table, known) if find else ()))


def _if_matching(part: Any, glob: str, table: str) -> Any | None:
    return part if fnmatchcase(table, glob) else None


def _names_columns(plan: CheckPlan) -> bool:
    probes = [plan.probe, *(probe for _, probe in plan.variants)]
    return any(getattr(one, "suites", None) or getattr(one, "suite", None) for one in probes)


def _demanded(config: Config) -> Iterator[tuple[str, str, Any]]:
    """Yield each invariant of the file, after its key and the glob of its tables."""
    for number, rule in enumerate(invariants_of_file(config)):
        yield from ((f"invariants[{number}].{name}", rule.tables, o) for name, o in rule.invariants)


def _mistakes(part: Any) -> Iterator[str]:
    yield from getattr(part, "mistakes", tuple)()


def plugin_faults(config: Config) -> Iterator[str]:
    """Yield the faults of plug-ins as ``key: fault``; no connection is opened."""
    from pipeline import build  # noqa: PLC0415  - the second

    settings = replace(config.settings, sources=())  # sources are checked separately, by their keys
    if settings.kafka or settings.transport != TRANSPORT:
        try:
            build.open_transport(settings).close()
        except ConfigError as error:
            yield str(error)
    try:
        build.open_table_format(config.settings)
    except ConfigError as error:
        yield str(error)
    for number, source in enumerate(config.sources):
        yield from (
            f"sources[{number}].{fault}" for fault in build.find_mistakes(source, config.settings)
        )


PLACEHOLDER_ADDRESS: Mapping[str, Any] = {"host": "localhost", "port": 1, "user": "nobody"}


def with_placeholder_address(source: Mapping[str, Any]) -> dict[str, Any]:
    """Return *source* with a placeholder address if its collector needs no server.

    An unknown kind is reported when it is built.
    """
    collector = source.get("collector")
    kind = collector.get("kind") if isinstance(collector, Mapping) else None
    if not isinstance(kind, str) or not kind or source.keys() >= PLACEHOLDER_ADDRESS.keys():
        return dict(source)
    try:
        found = plugins.find_class(collectors, "COLLECTOR", kind)
    except ConfigError:
        return dict(source)
    return (
        {**PLACEHOLDER_ADDRESS, **source} if getattr(found, "serverless", False) else dict(source)
    )


def has_placeholder_address(source: SourceSettings) -> bool:
    """Tell whether the address of *source* is the placeholder."""
    return all(getattr(source, name) == value for name, value in PLACEHOLDER_ADDRESS.items())
