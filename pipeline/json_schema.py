"""Validates values against a JSON schema whose regular expressions RE2 reads.

Great Expectations validates each value by `jsonschema`, which matches with Python's `re`. There a
pattern such as ``(a+)+$`` may need years for one value, and blocks all other checks of the process.
RE2's time grows with the text alone. `suites` replaces `jsonschema` and `json` by this module in
the metrics of ``match_json_schema`` and ``be_json_parseable``, so it has the names that are used
there. Spark's workers import it by its name. ``be_json_parseable`` treats each `Exception` as a
text that is not JSON. There that name is `NOT_JSON`, so that a JSON text that Python cannot read is
neither valid nor invalid.

A schema may name another draft for a part of it (``$schema``), and `jsonschema` would then leave
these keywords out. So only the outermost name is read. A ``$ref`` to another document is never
fetched: a server that does not answer would stop all expectations. Each other ``$ref`` is a path
from the root, so that a loop is found before a value is validated. If two references lead from one
level of a value to the next, the work doubles with each level: then the value is neither valid nor
invalid.
"""

import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any
from urllib.parse import unquote

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from jsonschema import (  # type: ignore[import-untyped]  # it has none
    SchemaError,
    ValidationError,
)
from jsonschema.validators import extend, validator_for  # type: ignore[import-untyped]
from referencing import Registry

__all__ = [
    "NOT_JSON",
    "SchemaError",
    "TooManyDigitsError",
    "TooManyReferencesError",
    "ValidationError",
    "list_schema_patterns",
    "loads",
    "require_own_references",
    "require_schema",
    "validate",
]

DATA = ("const", "default", "enum", "examples")  # keywords whose values are not schemas
MAPS = (  # keywords with a schema for each name; the names are not keywords
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
    "dependencies",
)
NAMES = ("$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef")
"""Keywords that refer to a part of a schema by a name, which `_find_part` does not resolve."""
MOST_REFERENCES = 10_000
"""References that one value may follow; two references per level double the work at each level."""
MOST_OF_PART = 100
"""Further references for each value inside it."""
SAME = (  # keywords whose schemas apply to the same value
    *("allOf", "anyOf", "oneOf", "not", "if", "then", "else"),
    *("dependentSchemas", "dependencies", "extends", "disallow", "type"),
)
UNEVALUATED = {"unevaluatedItems": "items", "unevaluatedProperties": "additionalProperties"}
"""Keywords for which `jsonschema` evaluates each part again at each level -> their replacement."""
MULTIPLES = ("multipleOf", "divisibleBy")  # each draft has one
NOT_JSON = (ValueError, TypeError)
"""The errors that `loads` raises for a text that is not JSON, and for other types."""
PLAIN = re.compile(r"[A-Za-z0-9_ ]*")
SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which RE2 cannot read


class TooManyReferencesError(Exception):
    """A value follows more references than its size allows."""


class TooManyDigitsError(Exception):
    """A text is JSON so far, but has a number with more digits than Python reads."""


class _Followed(threading.local):
    """The number of references that the ``value`` of a thread has followed, and its limit."""

    value: Any = None
    count: int = 0
    most: int = MOST_REFERENCES

    def begin(self, value: Any) -> None:
        self.value, self.count, self.most = value, 0, MOST_REFERENCES

    def follow(self) -> None:
        self.count += 1
        if self.count > self.most == MOST_REFERENCES:
            self.most += MOST_OF_PART * _count_parts(self.value)
        if self.count > self.most:
            raise TooManyReferencesError(f"a value follows more than {self.most} `$ref`s")


_followed = _Followed()
VALIDATORS = 32  # that are kept: a validator takes long to make, and each value asks for one
_validators = dict[int, tuple[Any, Any]]()  # by id of the schema, kept beside
_lock = threading.Lock()


def validate(instance: Any, schema: Any) -> None:
    """Check that *instance* meets *schema*.

    Raises:
        ValidationError: it does not.
        SchemaError: *schema* is not a JSON schema.
        TooManyReferencesError: the check would take too long.
    """
    _followed.begin(instance)
    if not _validator_of(schema).is_valid(instance):
        raise ValidationError("the value does not meet the schema")


def _validator_of(schema: Any) -> Any:
    """Return the validator of that *schema* object; several evaluations run at once."""
    with _lock:
        known = _validators.get(id(schema))
    if known is None:
        known = schema, _make_validator(schema)
        with _lock:
            _validators[id(schema)] = known
            while len(_validators) > VALIDATORS:
                _validators.pop(next(iter(_validators)))
    return known[1]


def loads(text: Any) -> Any:
    """Parse JSON.

    Raises:
        ValueError: *text* is not JSON; so are `NaN` and `Infinity`, which only Python reads.
        TypeError: it is not a text.
        TooManyDigitsError: it is unknown whether it is JSON, as after a RecursionError.
    """
    return json.loads(text, parse_constant=_refuse_constant, parse_int=_parse_whole)


def _parse_whole(digits: str) -> int:
    try:
        return int(digits)
    except ValueError as error:
        raise TooManyDigitsError(f"a number has {len(digits)} digits") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def require_schema(schema: Any) -> None:
    """Refuse an invalid JSON schema, including parts that only a reference leads to.

    Raises:
        ValueError: with the place and the fix.
    """
    has_draft = isinstance(schema, Mapping) and isinstance(schema.get("$schema"), str)
    draft = validator_for(schema if has_draft else {})
    targets = (
        _find_part(schema, ref) for one in _list_parts(schema) for ref in _list_references(one)
    )
    for part in {id(one): one for one in (schema, *targets)}.values():
        try:
            draft.check_schema(part, format_checker=None)
        except SchemaError as error:
            why = f"{error.json_path}: {error.message[:200]}"
            raise ValueError(f"a fault, {why}; correct it") from error
        except RecursionError as error:
            raise ValueError("too many levels; write it with fewer") from error


def _make_validator(schema: Any) -> Any:
    known = validator_for(schema)
    own = extend(
        known,
        {
            "$ref": partial(_reference, known.VALIDATORS["$ref"]),
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional_properties,
            "unevaluatedItems": _unevaluated,
            "unevaluatedProperties": _unevaluated,
            "uniqueItems": _unique_items,
            **{name: _multiple_of for name in MULTIPLES if name in known.VALIDATORS},
        },
    )
    own.check_schema(schema, format_checker=None)  # it would match with Python's `re`
    own.evolve = attrs.evolve  # its own uses another class for a part with another draft
    return own(schema, registry=Registry())


def list_schema_patterns(schema: Any) -> Iterator[str]:
    """Yield each regular expression in *schema*, also those in its parts and references.

    Raises:
        ValueError: a keyword needs Python's regular expressions, or unbounded time.
    """
    for part in _list_parts(schema):
        named = part.get("patternProperties")
        if isinstance(named, Mapping):
            yield from map(str, named)
        if isinstance(part.get("pattern"), str):
            yield part["pattern"]
        for name, other in UNEVALUATED.items():
            if name in part:
                raise ValueError(f"`{name}`; use `{other}`")


def require_own_references(schema: Any) -> None:
    """Refuse references to another document, to nothing, to a name, in a loop, or too many.

    Raises:
        ValueError: with the reference and the fix.
    """
    parts = {id(one): one for one in _list_parts(schema)}
    for part in parts.values():
        _require_no_names(part, is_root=part is schema)
    below = {key: _list_same(schema, one) for key, one in parts.items()}
    missing = {key: len(found) for key, found in below.items()}  # counts of the parts below it
    above = dict[int, list[int]]()
    for key, found in below.items():
        for one in found:
            above.setdefault(one, []).append(key)
    counts = dict[int, int]()  # of references that each part follows for one value
    ends = [key for key, number in missing.items() if not number]
    while ends:
        end = ends.pop()
        counts[end] = sum(map(counts.__getitem__, below[end])) + len(_list_references(parts[end]))
        for key in above.get(end, ()):
            missing[key] -= 1
            if not missing[key]:
                ends.append(key)
    for ref in (ref for key in parts if key not in counts for ref in _list_references(parts[key])):
        raise ValueError(f"a `$ref` without end, {ref[:200]!r}; let it be for a part of the value")
    if max(counts.values(), default=0) > MOST_REFERENCES:
        why = f"`$ref`s that lead to more than {MOST_REFERENCES} schemas for one value"
        raise ValueError(f"{why}; name each schema once in an `anyOf` or `allOf`")


def _require_no_names(part: Mapping[str, Any], *, is_root: bool) -> None:
    for name in NAMES:
        if name in part:
            raise ValueError(f"`{name}`; write a `$ref` to `#/$defs/NAME` instead")
    for name in ("$id", "id"):
        if isinstance(part.get(name), str) and not is_root:
            raise ValueError(f"`{name}` {part[name][:200]!r} below its root; leave it out")


def _list_parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield each object of *schema* that is a schema, including those that a `$ref` reaches."""
    waiting, seen = [schema], set[int]()
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, Mapping):
            yield part
            waiting += (_find_part(schema, ref) for ref in _list_references(part))
            for name, below in part.items():
                if name in MAPS and isinstance(below, Mapping):
                    waiting += below.values()
                elif name not in DATA:
                    waiting.append(below)
        elif isinstance(part, Sequence) and not isinstance(part, str):
            waiting += part


def _list_same(schema: Any, part: Mapping[str, Any]) -> list[int]:
    """The identities of the schemas that *part* applies to the same value, with repetitions."""
    found = [_find_part(schema, ref) for ref in _list_references(part)]
    for name in SAME:
        below = part.get(name)
        if name in MAPS and isinstance(below, Mapping):
            found += below.values()
        else:
            found += below if isinstance(below, list) else [below]
    return [id(one) for one in found if isinstance(one, Mapping)]


def _list_references(part: Mapping[str, Any]) -> list[str]:
    return [part["$ref"]] if isinstance(part.get("$ref"), str) else []


def _find_part(schema: Any, reference: str) -> Any:
    """The part of *schema* that *reference* leads to.

    Raises:
        ValueError: it refers to another document, to a name, or to no part.
    """
    if not reference.startswith("#"):
        raise ValueError(
            f"a `$ref` to another document, {reference[:200]!r}; copy that schema into `$defs`"
        )
    if reference[1:2] not in ("", "/"):
        raise ValueError(f"a `$ref` to a name, {reference[:200]!r}; write `#/$defs/NAME`")
    found = schema
    for step in unquote(reference[1:]).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        try:
            found = found[int(name) if isinstance(found, list) else name]
        except (LookupError, TypeError, ValueError):
            raise ValueError(
                f"a `$ref` to no part of it, {reference[:200]!r}; correct it"
            ) from None
    return found


def _count_parts(value: Any) -> int:
    """The number of values in *value*, including itself."""
    waiting, count = [value], 0
    while waiting:
        part = waiting.pop()
        count += 1
        waiting += (
            part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        )
    return count


def _reference(follow: Any, validator: Any, *asked: Any) -> Iterator[ValidationError]:
    _followed.follow()
    yield from follow(validator, *asked)


def _list_matching(pattern: str, texts: Sequence[str]) -> list[str]:
    """Those of *texts* in which *pattern* occurs anywhere; one call for all, which takes long."""
    if PLAIN.fullmatch(pattern):
        return [text for text in texts if pattern in text]
    read = pa.array([SURROGATE.sub("\ufffd", text) for text in texts], pa.string())
    found = pc.match_substring_regex(read, pattern).to_pylist()
    return [text for text, is_found in zip(texts, found, strict=True) if is_found]


def _pattern(validator: Any, pattern: str, instance: Any, _: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not _list_matching(pattern, [instance]):
        yield ValidationError("a text does not match its pattern")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, _: Any
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, part in patterns.items():
        for name in _list_matching(pattern, list(instance)):
            yield from validator.descend(instance[name], part, path=name, schema_path=pattern)


def _unevaluated(*_: Any) -> Iterator[ValidationError]:
    raise ValueError(f"{' and '.join(UNEVALUATED)} are not evaluated")


def _multiple_of(validator: Any, divisor: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "number") and not _is_multiple(instance, divisor):
        yield ValidationError("a number is not a multiple of its divisor")


def _is_multiple(number: float, divisor: float) -> bool:
    """Compare decimals of any size: `0.07` is a multiple of `0.01`."""
    try:
        return Fraction(str(number)) % Fraction(str(divisor)) == 0
    except ValueError:  # `1e999` is infinite
        return False


def _unique_items(
    validator: Any, is_asked: Any, instance: Any, _: Any
) -> Iterator[ValidationError]:
    asked = is_asked and validator.is_type(instance, "array")
    if asked and len(set(map(_canonical, instance))) < len(instance):
        yield ValidationError("an array has two equal items")


def _canonical(value: Any) -> str:
    """The same text for equal values: `1` and `1.0` are equal, `1` and `true` are not."""
    return json.dumps(_with_whole_numbers(value), sort_keys=True)


def _with_whole_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_whole_numbers(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_with_whole_numbers(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _additional_properties(
    validator: Any, allowed: Any, instance: Any, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    extra = [name for name in instance if name not in named]
    for pattern in patterns:
        found = set(_list_matching(pattern, extra))
        extra = [name for name in extra if name not in found]
    if validator.is_type(allowed, "object"):
        for name in extra:
            yield from validator.descend(instance[name], allowed, path=name)
    elif not allowed and extra:
        yield ValidationError("an object has a property that the schema does not allow")
