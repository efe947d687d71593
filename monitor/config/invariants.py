"""What does the section ``invariants`` demand of which tables?

A list: each part names tables by a glob, and beside it invariants, whose settings are the fields of
their classes.  Nothing is demanded of a table that no part names.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from monitor.config.named_sections import built
from monitor.config.plans import SectionPlace
from pipeline.invariants.invariant import Invariant
from pipeline.invariants.invariant import find_invariant as find
from pipeline.invariants.invariant import known_invariants as known
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
    right: list[tuple[str, Invariant]] = []
    for name, invariant, wrong in built(find, Invariant, named, place):
        faults += wrong
        right += [(name, invariant)] if invariant is not None else []
    return InvariantRule(str(glob), tuple(right)), faults
