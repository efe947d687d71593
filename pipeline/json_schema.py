"""Validates values against a JSON schema whose regular expressions RE2 reads.

Great Expectations validates each value by `jsonschema`, which matches with Python's `re`. There a
pattern such as ``(a+)+$`` may need years for one value, and no other check of the process goes on
meanwhile. RE2's time grows with the text alone. `suites` puts this module in the place of
`jsonschema` in the metric of ``match_json_schema``, so it has the three names that are used there.
Spark's workers import it by its name.

A schema may name another draft for a part of it (``$schema``), and `jsonschema` would then leave
these keywords out. So only the outermost name is read.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from jsonschema import (  # type: ignore[import-untyped]  # it has none
    SchemaError,
    ValidationError,
)
from jsonschema.validators import extend, validator_for  # type: ignore[import-untyped]

__all__ = ["SchemaError", "ValidationError", "list_schema_patterns", "validate"]

DATA = ("const", "default", "enum", "examples")  # keywords whose values are no schemas
MAPS = (  # keywords whose value has a schema for each name, and the names are no keywords
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
    "dependencies",
)
PLAIN = re.compile(r"[A-Za-z0-9_ ]*")
SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which RE2 cannot read
_last: tuple[Any, Any] | None = None  # a schema and its validator: a column asks with one schema


def validate(instance: Any, schema: Any) -> None:
    """Return if *instance* meets *schema*.

    Raises:
        ValidationError: it does not.
        SchemaError: *schema* is not a JSON schema.
    """
    global _last  # noqa: PLW0603  - each value of a column asks, and a validator takes long to make
    known = _last
    if known is None or known[0] is not schema:
        known = schema, _make_validator(schema)
        _last = known
    if not known[1].is_valid(instance):
        raise ValidationError("the value does not meet the schema")


def _make_validator(schema: Any) -> Any:
    own = extend(
        validator_for(schema),
        {
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional_properties,
        },
    )
    own.check_schema(schema)
    return own(_without_drafts(schema))


def list_schema_patterns(schema: Any) -> Iterator[str]:
    """Yield each regular expression in *schema*, also those in its parts.

    Raises:
        ValueError: a keyword of it can only be evaluated with Python's regular expressions.
    """
    if isinstance(schema, Mapping):
        named = schema.get("patternProperties")
        if isinstance(named, Mapping):
            yield from map(str, named)
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        for name, part in schema.items():
            if name == "unevaluatedProperties":
                raise ValueError("`unevaluatedProperties`; use `additionalProperties`")
            if name in MAPS and isinstance(part, Mapping):
                yield from list_schema_patterns(list(part.values()))
            elif name not in DATA:
                yield from list_schema_patterns(part)
    elif isinstance(schema, Sequence) and not isinstance(schema, str):
        for part in schema:
            yield from list_schema_patterns(part)


def _without_drafts(schema: Any) -> Any:
    if isinstance(schema, Mapping):
        return {n: _part_without_drafts(n, p) for n, p in schema.items() if n != "$schema"}
    if isinstance(schema, Sequence) and not isinstance(schema, str):
        return [_without_drafts(part) for part in schema]
    return schema


def _part_without_drafts(keyword: str, part: Any) -> Any:
    if keyword in DATA:
        return part
    if keyword in MAPS and isinstance(part, Mapping):
        return {name: _without_drafts(below) for name, below in part.items()}
    return _without_drafts(part)


def _matches(pattern: str, text: str) -> bool:
    """Whether *pattern* occurs anywhere in *text*."""
    if PLAIN.fullmatch(pattern):
        return pattern in text
    whole = pa.array([SURROGATE.sub("\ufffd", text)], pa.string())
    found: bool = pc.match_substring_regex(whole, pattern)[0].as_py()
    return found


def _pattern(validator: Any, pattern: str, instance: Any, _: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not _matches(pattern, instance):
        yield ValidationError("a text does not match its pattern")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, _: Any
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, part in patterns.items():
        for name, value in instance.items():
            if _matches(pattern, name):
                yield from validator.descend(value, part, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, allowed: Any, instance: Any, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    extra = [
        name
        for name in instance
        if name not in named and not any(_matches(one, name) for one in patterns)
    ]
    if validator.is_type(allowed, "object"):
        for name in extra:
            yield from validator.descend(instance[name], allowed, path=name)
    elif not allowed and extra:
        yield ValidationError("an object has a property that the schema does not allow")
