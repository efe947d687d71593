"""What does the section ``invariants`` demand of which tables?

A list: each part names tables by a glob, and beside it invariants, whose settings are the fields of
their classes.  Nothing is demanded of a table that no part names.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from monitor.config.names import elsewhere
from monitor.config.plans import SectionPlace, read
from pipeline.invariants.finder import find, known
from pipeline.invariants.invariant import Invariant
from pipeline.settings import InvariantRule

_MUST = "must be a list of tables and what is demanded: [{tables: shop.orders, not_null: {...}}]"


def rules(told: Any, folder: Path) -> tuple[tuple[InvariantRule, ...], list[str]]:
    """Each part that is right, and all that is wrong as ``place: fault``."""
    if told is None:
        return (), []
    if not isinstance(told, list) or not all(isinstance(one, Mapping) for one in told):
        return (), [f"invariants: {_MUST}"]
    found: list[InvariantRule] = []
    faults: list[str] = []
    for number, part in enumerate(told):
        rule, wrong = _rule(part, SectionPlace(f"invariants[{number}]", folder))
        found.append(rule)
        faults += wrong
    return tuple(found), faults


def schema() -> dict[str, Any]:
    """The JSON Schema of the section, for editors."""
    sections = {name: TypeAdapter(find(name)).json_schema() for name in known()}
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
        faults.append(f"{place.at}: demands nothing; known: {', '.join(known())}")
    built = []
    for name, invariant, wrong in _built(named, place):
        faults += wrong
        built += [(name, invariant)] if invariant is not None else []
    return InvariantRule(str(glob), tuple(built)), faults


def _built(
    named: Mapping[str, Any], place: SectionPlace
) -> Iterator[tuple[str, Invariant | None, list[str]]]:
    _, unknown = elsewhere(find, named, Invariant)
    for name, section in named.items():
        at = f"{place.at}.{name}"
        if name in unknown:
            yield name, None, [f"{at}: {unknown[name]}"]
        elif not isinstance(section, Mapping):
            yield name, None, [f"{at}: must be a mapping of settings; see docs/operations.md"]
        else:
            yield (name, *read(find(name), section, SectionPlace(at, place.folder)))
