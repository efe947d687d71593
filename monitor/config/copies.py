"""Which tables are copied where?  The section ``copies``: a name each, its kind, its tables.

Beside ``kind`` and ``tables`` (a pattern, or a list of them) stand the fields of the kind's class.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from monitor.config.copy_plan import CopyPlan
from monitor.config.mistakes import is_host
from monitor.config.names import elsewhere
from monitor.config.plans import SectionPlace, read
from monitor.config.secret import secret_fields
from pipeline.copies.copy import Copy, find, known

BESIDE = ("kind", "tables")
LAST_PORT = 65_535
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,29}", re.IGNORECASE)
_MUST = "must be a mapping of names, such as {cache: {kind: postgres, tables: shop.orders}}"


def plans(told: Any, folder: Path) -> tuple[tuple[CopyPlan, ...], list[str]]:
    """Each section that is right, and all that is wrong as ``place: fault``."""
    if not isinstance(told, Mapping | None):
        return (), [f"copies: {_MUST}"]
    found: list[CopyPlan] = []
    faults: list[str] = []
    for name, section in (told or {}).items():
        made, wrong = _plan(str(name), section, folder)
        found += [made] if made is not None else []
        faults += wrong
    return tuple(found), faults + list(_colliding(found))


def schema(secret: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema of the section, for editors; *secret* is that of a field that holds one.

    It leaves out kinds whose extra is not installed.
    """
    patterns = {"type": ["string", "array"], "items": {"type": "string"}}
    kinds = []
    found, _ = elsewhere(find, known(), Copy)
    for kind in found:
        own = TypeAdapter(find(kind)).json_schema()
        properties = {**own["properties"], "kind": {"const": kind}, "tables": patterns}
        properties |= dict.fromkeys(sorted(secret_fields(find(kind))), secret)
        required = [*own.get("required", ()), *BESIDE]
        kinds.append({"type": "object", "properties": properties, "required": required})
    another = {"type": "object", "properties": {"tables": patterns}, "required": list(BESIDE)}
    return {"type": "object", "additionalProperties": {"anyOf": [*kinds, another]}}


def _plan(name: str, section: Any, folder: Path) -> tuple[CopyPlan | None, list[str]]:
    at = f"copies.{name}"
    if not isinstance(section, Mapping):
        return None, [f"{at}: must be a mapping of settings, such as its kind"]
    faults = []
    if not _NAME.fullmatch(name):
        faults.append(
            f"{at}: {name!r} names no copy; write letters, digits, '_' and '-', 30 at most"
        )
    patterns, wrong = _patterns(section.get("tables"), at)
    faults += wrong
    if "kind" not in section:
        return None, [*faults, f"{at}.kind: is required; known: {', '.join(known())}"]
    kind = str(section["kind"])
    _, unknown = elsewhere(find, [kind], Copy)
    if unknown:
        return None, [*faults, f"{at}.kind: {unknown[kind]}"]
    own = {key: value for key, value in section.items() if key not in BESIDE}
    made, wrong = read(find(kind), own, SectionPlace(at, folder), BESIDE)
    faults += wrong
    faults += [] if made is None else [f"{at}.{fault}" for fault in _unreachable(made)]
    return (None if made is None or faults else CopyPlan(name, patterns, made)), faults


def _patterns(told: Any, at: str) -> tuple[tuple[str, ...], list[str]]:
    listed = [told] if isinstance(told, str) else told
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        listed = []
    if not listed or not all(listed):
        return (), [f"{at}.tables: is required; write a pattern such as shop.*, or a list of them"]
    return tuple(listed), []


def _unreachable(copy: Copy) -> Iterator[str]:
    """Fields, as most kinds have them, by which no server would ever be found."""
    host, port = getattr(copy, "host", None), getattr(copy, "port", None)
    if isinstance(host, str) and not is_host(host):
        yield f"host: {host!r} is no host; write a name or an address, the port by `port`"
    if isinstance(port, int) and not 0 < port <= LAST_PORT:
        yield f"port: {port} is no port; write one up to {LAST_PORT}"
    patience = getattr(copy, "patience", None)
    if isinstance(patience, timedelta) and patience <= timedelta():
        yield "patience: must be longer than nothing"


def _colliding(found: list[CopyPlan]) -> Iterator[str]:
    """Copies that would write over each other, whatever tables they have."""
    places: dict[str, str] = {}
    for one in found:
        other = places.setdefault(one.copy.place, one.name)
        if other != one.name:
            told = f"copy {other} writes to {one.copy.place}, too; give each a place of its own"
            yield f"copies.{one.name}: {told}"
