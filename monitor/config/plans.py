"""Builds the plan of each probe and each copy from its section of the config.

The settings of a probe are the fields of its class. Its section may also have `every`,
`enabled`, `tables` (a glob) and `overrides`. An override is a glob and the fields that differ
for its tables, and the first match decides. A probe that the file does not name runs with its
defaults.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar, runtime_checkable

from pydantic import AfterValidator, PydanticUserError, TypeAdapter, ValidationError

from monitor.config.text import (
    SECRET_SCHEMA,
    expand_environment,
    resolve_path,
    resolve_secrets,
    secret_fields,
    without_unset,
)
from pipeline.copies.copy import Copy
from pipeline.durations import with_durations
from pipeline.errors import ConfigError
from pipeline.faults import fault_lines, join_path, with_key
from pipeline.settings import InvariantRule, KafkaSecurity, TlsSettings
from pipeline.tls import FILES, file_faults, tls_faults

Client = TypeVar("Client", bound=TlsSettings | KafkaSecurity)
COMMON = ("every", "enabled", "tables", "overrides")


def _positive(value: timedelta) -> timedelta:
    if value <= timedelta():
        msg = "must be longer than 0s"
        raise ValueError(msg)
    return value


@runtime_checkable
class FileSettings(Protocol):
    """Settings that name files by paths relative to the folder of the config."""

    def located_from(self, folder: Path) -> Any:
        """Return the same settings with absolute paths; raise ConfigError if a file is missing."""
        ...


Every = Annotated[timedelta, AfterValidator(_positive)]


@dataclass(frozen=True, slots=True)
class Beside:
    """The keys of every probe's section, in addition to the probe's own fields."""

    every: Every | None = None
    """The pause between two runs of the probe on a table; each probe has its own default."""
    enabled: bool = True
    """`false` switches the probe off."""
    tables: str = "*"
    """A pattern of the names of tables that the probe checks."""
    overrides: tuple[Mapping[str, Any], ...] = ()
    """Other settings for some tables: `tables`, a pattern, and the keys that differ."""


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """One probe of the config; ``variants`` are tried in order before ``probe`` itself."""

    name: str
    every: timedelta
    tables: str
    probe: Any
    variants: tuple[tuple[str, Any], ...] = ()

    def probe_for(self, table: str) -> Any | None:
        """Return the probe with the settings for *table*; None if it does not check the table."""
        if not fnmatchcase(table, self.tables):
            return None
        return next((v for glob, v in self.variants if fnmatchcase(table, glob)), self.probe)


def is_planned(plans: Iterable[CheckPlan], table: str, check: str) -> bool:
    """Tell whether *check* runs on *table*."""
    return any(plan.name == check and plan.probe_for(table) is not None for plan in plans)


@dataclass(frozen=True, slots=True)
class SectionPlace:
    """The key of a section, and the folder to which its paths are relative."""

    at: str
    folder: Path


def build_check_plan(
    name: str, kind: type, raw: Mapping[str, Any], folder: Path
) -> tuple[CheckPlan | None, list[str]]:
    """Build one probe from its section, with the faults; None if it is switched off or invalid."""
    place = SectionPlace(f"probes.{name}", folder)
    common, faults = build_section(Beside, {k: v for k, v in raw.items() if k in COMMON}, place)
    own = {k: v for k, v in raw.items() if k not in COMMON}
    probe, more = build_section(kind, own, place, also=COMMON)
    if common is None or probe is None or not common.enabled:
        return None, faults + more
    variants, rest = [], []
    for number, override in enumerate(common.overrides):
        where = SectionPlace(join_path(place.at, ("overrides", number)), folder)
        variant, wrong = _variant(kind, own, override, where)
        variants.append(variant)  # also invalid ones, so that the others keep their numbers
        rest += wrong
    every = common.every or kind.every  # type: ignore[attr-defined]  # a probe's own pace
    plan = CheckPlan(name, every, common.tables, probe, tuple(variants))
    return plan, [*rest, *_pace_faults(plan, place.at)]


def build_section(
    kind: type, raw: Mapping[str, Any], place: SectionPlace, also: Sequence[str] = ()
) -> tuple[Any | None, list[str]]:
    """Build dataclass *kind* from one section, strictly; *also* names keys read elsewhere."""
    at = place.at
    known, faults = resolve_secrets(raw, kind, at, place.folder)
    lost = [
        f"{at}.{name}: is ignored" for name in secret_fields(kind) & (raw.keys() - known.keys())
    ]
    known, unset = expand_environment(known, at)
    faults += unset
    unset_keys = {fault.partition(": ")[0] for fault in unset}
    known = {name: value for name, value in known.items() if f"{at}.{name}" not in unset_keys}
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
    except PydanticUserError as error:
        what = str(error).partition(".")[0]
        return None, [
            *faults,
            f"{at}: {kind.__name__} has a field whose type is no setting: {what}",
        ]
    try:
        value = with_durations(
            lambda plain: adapter.validate_json(json.dumps(plain), strict=True, extra="forbid"),
            json.loads(json.dumps(known, default=str)),  # YAML also has bytes and sets
        )
    except ConfigError as error:  # the class refuses a value of the correct type
        return None, [*faults, with_key(at, str(error))]
    except ValidationError as error:
        lines = fault_lines(error, with_keys(adapter.json_schema(), also), at)
        return None, faults + without_unset(lines, unset + lost)
    if isinstance(value, FileSettings):
        try:
            value = value.located_from(place.folder)
        except ConfigError as error:
            faults.append(with_key(at, str(error)))
    if isinstance(value, TlsSettings):
        value = with_placed_files(value, place.folder / "sluice.yaml")
        faults += [f"{at}.{fault}" for one in (tls_faults, file_faults) for fault in one(value)]
    return (None if faults else value), faults


def find_gate_rules(plan: CheckPlan) -> tuple[tuple[InvariantRule, ...], list[str]]:
    """Return the rules of *plan* that rows must meet before they reach a mirror, and faults."""
    probes = [plan.probe, *(probe for _, probe in plan.variants)]
    rules = tuple(rule for probe in probes for rule in getattr(probe, "gate_rules", ()))
    if rules and (plan.variants or plan.tables != "*"):
        fix = "name the tables under `suites`, or write an `expectations` invariant"
        at = f"probes.{plan.name}.gate"
        return (), [f"{at}: cannot be used with `tables` or `overrides`; {fix}"]
    return rules, []


def with_placed_files(client: Client, path: Path) -> Client:
    """Return *client* with its PEM files resolved from the folder of the config in *path*."""
    named = ((name, getattr(client, name)) for name in FILES)
    files: dict[str, Any] = {name: resolve_path(file, path) for name, file in named if file}
    return replace(client, **files)


def section_schema(kind: type, beside: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a section of *kind*, for editors; *beside* are further keys."""
    own = TypeAdapter(kind).json_schema()
    properties = {**own.get("properties", {}), **beside}
    properties |= dict.fromkeys(sorted(secret_fields(kind)), SECRET_SCHEMA)
    return {**own, "properties": properties, "additionalProperties": False}


def with_keys(schema: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """Return *schema* with *keys* among the known ones."""
    more: dict[str, Any] = {key: {} for key in keys}
    return {**schema, "properties": {**schema.get("properties", {}), **more}}


def _pace_faults(plan: CheckPlan, at: str) -> Iterator[str]:
    """Yield the faults of a probe, or of its overrides, that its pace `every` causes."""
    places = (join_path(at, ("overrides", number)) for number in range(len(plan.variants)))
    probes = (plan.probe, *(probe for _, probe in plan.variants))
    for place, probe in zip((at, *places), probes, strict=True):
        find_fault = getattr(probe, "find_pace_fault", None)
        if find_fault is not None and (fault := find_fault(plan.every)):
            yield with_key(place, fault)


def _variant(
    kind: type, own: Mapping[str, Any], override: Mapping[str, Any], place: SectionPlace
) -> tuple[tuple[str, Any], list[str]]:
    glob = override.get("tables")
    if not isinstance(glob, str):
        return ("*", None), [f"{place.at}.tables: is required; write a pattern such as shop.*"]
    fields = {k: v for k, v in override.items() if k != "tables"}
    probe, faults = build_section(kind, {**own, **fields}, place, also=("tables",))
    return (glob, probe), faults


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """A configured copy, and the tables that are sent to it."""

    name: str
    tables: tuple[str, ...]
    copy: Copy

    def serves(self, table: str) -> bool:
        """Tell whether *table* is sent to this copy."""
        return any(fnmatchcase(table, pattern) for pattern in self.tables)
