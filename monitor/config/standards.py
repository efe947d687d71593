"""What does the section ``standards`` say of which tables' columns?

A list: each part names tables by a glob and their key, and beside these standards, whose settings
are the fields of their classes.  Columns that no part names are written as their source has them.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from monitor.config.named_sections import built
from monitor.config.plans import SectionPlace, section_schema
from pipeline.settings import StandardRule
from pipeline.standards.standard import RestingStandard, Standard
from pipeline.standards.standard import find_standard as find
from pipeline.standards.standard import known_standards as known
from pipeline.standards.table_standards import ALL, hides

_MUST = "must be a list: [{tables: shop.orders, key: [id], hash: {columns: [phone], ...}}]"
_OWN = ("tables", "key", "clear")
_CLEAR = (
    'name the columns that land as they are, such as [created_at, "*_id"]; or "*" for all that no'
    " standard names"
)


def rules(told: Any, folder: Path) -> tuple[tuple[StandardRule, ...], list[str]]:
    """Each part that is right, and all that is wrong as ``place: fault``."""
    if told is None:
        return (), []
    if not isinstance(told, list) or not all(isinstance(one, Mapping) for one in told):
        return (), [f"standards: {_MUST}"]
    found: list[StandardRule] = []
    faults: list[str] = []
    for number, part in enumerate(told):
        rule, wrong = _rule(part, SectionPlace(f"standards[{number}]", folder))
        found += [rule] if not wrong else []
        faults += wrong
    return tuple(found), faults


def schema() -> dict[str, Any]:
    """The JSON Schema of the section, for editors."""
    sections = {name: section_schema(find(name), {}) for name in known()}
    names = {"type": "array", "items": {"type": "string"}, "minItems": 1}
    clear = {"type": ["string", "array"], "items": {"type": "string"}}
    properties = {"tables": {"type": "string"}, "key": names, "clear": clear, **sections}
    part = {"type": "object", "properties": properties, "required": ["tables", "key"]}
    return {"type": "array", "items": {**part, "additionalProperties": True}}


def _rule(part: Mapping[str, Any], place: SectionPlace) -> tuple[StandardRule, list[str]]:
    glob, key = part.get("tables"), part.get("key")
    named = {str(name): section for name, section in part.items() if name not in _OWN}
    faults = []
    if not isinstance(glob, str):
        faults.append(f"{place.at}.tables: is required; write a pattern such as shop.*")
    if not isinstance(key, list) or not key or not all(isinstance(one, str) for one in key):
        faults.append(f"{place.at}.key: is required; name the key's columns, in order: [id]")
        key = []
    if not named:
        faults.append(f"{place.at}: names no standard; known: {', '.join(known())}")
    right: list[tuple[str, Standard]] = []
    for name, standard, wrong in built(find, Standard, named, place):
        faults += wrong
        if standard is not None:
            right.append((name, standard))
            faults += _odd(name, standard, key, place.at)
    clear, odd = _cleared(part.get("clear"), needed=hides(right))
    faults += [f"{place.at}.clear: {fault}" for fault in odd]
    return StandardRule(str(glob), tuple(key), tuple(right), clear), faults


def _cleared(told: Any, *, needed: bool) -> tuple[tuple[str, ...], list[str]]:
    """Without it nobody could say whether a column that is new, or has another name, may land."""
    if told is None and not needed:
        return ALL, []
    listed = [told] if isinstance(told, str) else told
    if told is None or not isinstance(listed, list) or not all(isinstance(o, str) for o in listed):
        return ALL, [f"{'is required' if told is None else 'is no list of names'}; {_CLEAR}"]
    return (ALL if "*" in listed else tuple(listed)), []


def _odd(name: str, standard: Standard, key: list[str], at: str) -> Iterator[str]:
    if not standard.columns:
        yield f"{at}.{name}.columns: names none"
    if isinstance(standard, RestingStandard) and standard.fault:
        yield f"{at}.{name}.{standard.fault}"
    for column in standard.columns:
        if column in key and not standard.distinct:
            yield f"{at}.{name}.columns: {column} is in the key, and two keys may become one"
