"""Which probe looks at which table, how often and with which settings?

A probe's settings are the fields of its own class.  Beside them stand ``every``, ``enabled``,
``tables`` (a glob) and ``overrides`` (a list: a glob and the fields that differ for its tables).
A probe that the file does not name runs with its defaults.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any

from pydantic import TypeAdapter, ValidationError

from monitor.config.secret import expand, resolve, secret_fields
from pipeline.errors import ConfigError
from pipeline.faults import fault_lines, join

COMMON = ("every", "enabled", "tables", "overrides")


@dataclass(frozen=True, slots=True)
class Beside:
    """What every probe's section may say beside the probe's own fields."""

    every: timedelta | None = None
    enabled: bool = True
    tables: str = "*"
    overrides: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """One probe of the config; ``variants`` are tried in order before ``probe`` itself."""

    name: str
    every: timedelta
    tables: str
    probe: Any
    variants: tuple[tuple[str, Any], ...] = ()

    def probe_for(self, table: str) -> Any | None:
        """The probe with the settings for *table*; None if it does not look there."""
        if not fnmatchcase(table, self.tables):
            return None
        return next((v for glob, v in self.variants if fnmatchcase(table, glob)), self.probe)


def plan(
    name: str, kind: type, raw: Mapping[str, Any], at: str
) -> tuple[CheckPlan | None, list[str]]:
    """Read one probe's section; None when it is switched off or wrong, with the faults."""
    beside, faults = read(Beside, {k: v for k, v in raw.items() if k in COMMON}, at)
    own = {k: v for k, v in raw.items() if k not in COMMON}
    probe, more = read(kind, own, at, also=COMMON)
    if beside is None or probe is None or not beside.enabled:
        return None, faults + more
    variants, rest = [], []
    for number, override in enumerate(beside.overrides):
        where = join(at, ("overrides", number))
        variant, wrong = _variant(kind, own, override, where)
        variants += variant
        rest += wrong
    every = beside.every or kind.every  # type: ignore[attr-defined]  # a probe's own pace
    return CheckPlan(name, every, beside.tables, probe, tuple(variants)), rest


def read(
    kind: type, raw: Mapping[str, Any], at: str, also: Sequence[str] = ()
) -> tuple[Any | None, list[str]]:
    """Build dataclass *kind* from one section, strictly; *also* names keys read elsewhere."""
    known, faults = resolve(raw, kind, at)
    known, unset = expand(known, at)
    if unset:
        return None, faults + unset
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    try:
        value = adapter.validate_json(json.dumps(known), strict=True, extra="forbid")
    except ConfigError as error:  # the class itself refuses what its types allow
        return None, [*faults, f"{at}: {error}"]
    except ValidationError as error:
        lost = secret_fields(kind) & (raw.keys() - known.keys())
        return None, faults + [
            line
            for line in fault_lines(error, with_keys(adapter.json_schema(), also), at)
            if not any(line.startswith(f"{at}.{name}: ") for name in lost)
        ]
    return (None if faults else value), faults


def with_keys(schema: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """*schema* with *keys* among those it knows."""
    more: dict[str, Any] = {key: {} for key in keys}
    return {**schema, "properties": {**schema.get("properties", {}), **more}}


def _variant(
    kind: type, own: Mapping[str, Any], override: Mapping[str, Any], at: str
) -> tuple[list[tuple[str, Any]], list[str]]:
    glob = override.get("tables")
    if not isinstance(glob, str):
        return [], [f"{at}.tables: is required; write a pattern such as shop.*"]
    fields = {k: v for k, v in override.items() if k != "tables"}
    probe, faults = read(kind, {**own, **fields}, at, also=("tables",))
    return ([(glob, probe)] if probe is not None else []), faults
