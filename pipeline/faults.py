"""Describes the faults of a config file, one line each: path in the file, fault, fix."""

import json
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from pipeline.clocks import no_zone
from pipeline.durations import FORM

UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
CHOICES = ("literal_error", "enum")
_MAPPING = "must be a mapping of settings, such as `name: value`"
_LIST = "must be a list; write each entry on a line of its own, after `- `"
_KEYED = re.compile(r"[a-z][a-z_]*: ")  # an error that a class raises for one of its fields
WORDS: Mapping[str, str] = {
    "missing": "is required",
    "too_short": "is empty; write at least one entry",
    **dict.fromkeys(("model_type", "model_attributes_type", "dataclass_type"), _MAPPING),
    **dict.fromkeys(("dict_type", "mapping_type"), _MAPPING),
    **dict.fromkeys(("list_type", "tuple_type"), _LIST),
}
"""Fault -> our text for it, which replaces the library's."""


def fault_lines(error: ValidationError, schema: Mapping[str, Any], at: str = "") -> list[str]:
    """Each fault of *error* as a line, in the order of the file; *at* is the path of its root.

    *schema* is the JSON Schema of what was validated; it lists the known keys.
    """
    found = error.errors()
    wrong = {fault["loc"][: len(fault["loc"]) - n] for fault in found for n in range(1, 9)}
    return [
        with_key(join_path(at, fault["loc"]), _say(fault, schema))
        for fault in found
        if fault["type"] != "too_short" or fault["loc"] not in wrong  # a fault inside counts
    ]


def join_path(at: str, loc: tuple[int | str, ...]) -> str:
    """The path of a fault as a person would write it: ``sources[0].collector.url``."""
    path = at
    for part in loc:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path


def with_key(at: str, fault: str) -> str:
    """Return ``at: fault``, or ``at.key: fault`` if *fault* begins with its key."""
    return f"{at}.{fault}" if at and _KEYED.match(fault) else f"{at}: {fault}"


def _say(fault: Any, schema: Mapping[str, Any]) -> str:
    kind = fault["type"]
    if kind in UNKNOWN:
        known = sorted(_keys(schema, fault["loc"][:-1]))
        close = get_close_matches(str(fault["loc"][-1]), known, n=1)
        near = f"the nearest is {close[0]}; " if close else ""
        return f"unknown key; {near}known: {', '.join(known)}"
    if (fault["input"] is None and kind != "missing") or kind == "string_too_short":
        way_out = "" if _is_required(schema, fault["loc"]) else ", or remove the line"
        return f"is empty; write its value{way_out}"
    if kind.startswith("time_delta"):
        return f"{fault['input']!s} is not a duration; {FORM}"
    if kind.startswith("datetime_"):
        return "is not an instant; write it with its offset, such as 2026-03-28T01:00:00Z"
    if kind == "zoneinfo_str":
        return no_zone(fault["input"])
    return WORDS.get(kind) or _of_type(kind, fault["input"]) or _in_the_librarys_words(fault)


def _of_type(kind: str, value: Any) -> str:
    """What a plain value must be; empty if *kind* is another fault."""
    section = {"dict": "a mapping", "list": "a list"}.get(type(value).__name__)
    shown = section or json.dumps(value, default=str)
    if kind == "string_type":
        return f"must be a text, not {shown}{'' if section else '; write it in quotes'}"
    if kind == "bool_type":
        return f"must be true or false without quotes, not {shown}"
    if kind in ("int_type", "int_from_float", "float_type"):
        must = "a number" if kind == "float_type" else "a whole number"
        is_one = isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d+)?", value.strip())
        return f"must be {must}, not {shown}{'; remove the quotes' if is_one else ''}"
    return ""


def _in_the_librarys_words(fault: Any) -> str:
    message = str(fault["msg"]).removeprefix("Value error, ")
    message = re.sub(r"^input should be", "must be", message[:1].lower() + message[1:])
    message = re.sub(r"\b(\d+)000 microseconds", r"\1 milliseconds", message)
    return f"{message}, not {fault['input']!r}" if fault["type"] in CHOICES else message


def _is_required(schema: Mapping[str, Any], loc: tuple[int | str, ...]) -> bool:
    """Whether *loc* is a key without a default."""
    if not loc:
        return False
    nodes = _nodes(schema, loc[:-1])
    found = [one.get("required", ()) for node in nodes for one in _plain(node, schema)]
    return any(loc[-1] in required for required in found)


def _keys(schema: Mapping[str, Any], loc: tuple[int | str, ...]) -> set[str]:
    """Keys that are allowed at *loc*; for a union those of all its members."""
    return {key for node in _nodes(schema, loc) for key in _properties(node, schema)}


def _nodes(schema: Mapping[str, Any], loc: tuple[int | str, ...]) -> list[Any]:
    nodes: list[Any] = [schema]
    for part in loc:
        nodes = [below for node in nodes for below in _below(_plain(node, schema), part, schema)]
    return nodes


def _below(node: list[Mapping[str, Any]], part: int | str, schema: Any) -> Iterator[Any]:
    for member in node:
        if isinstance(part, int):
            yield member.get("items", {})
        elif part in member.get("properties", {}):
            yield member["properties"][part]
        else:
            yield member.get("additionalProperties") or {}


def _plain(node: Any, schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """*node* with references resolved and unions split."""
    if not isinstance(node, Mapping):
        return []
    if "$ref" in node:
        return _plain(schema["$defs"][node["$ref"].rsplit("/", 1)[1]], schema)
    members = node.get("anyOf") or node.get("oneOf")
    return [one for member in members for one in _plain(member, schema)] if members else [node]


def _properties(node: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    for member in _plain(node, schema):
        yield from member.get("properties", {})
