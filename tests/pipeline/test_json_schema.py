"""JSON schemas mean what they mean to `jsonschema`, and their regular expressions always end."""

import re
import socket
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it has none
import pytest

from pipeline import json_schema
from pipeline.json_schema import (
    SchemaError,
    TooManyReferencesError,
    ValidationError,
    list_schema_patterns,
    loads,
    require_own_references,
    require_schema,
    validate,
)
from tests.counting import count_calls

EVIL = r"^(a+)+$"
HARMLESS = "a" * 5000 + "!"
NAMES = ("const", "default", "enum", "examples", "unevaluatedProperties", "$schema")
DRAFT = "https://json-schema.org/draft/2020-12/schema"
OLD = "http://json-schema.org/draft-07/schema#"
OLD4 = "http://json-schema.org/draft-04/schema#"


def is_valid(instance: Any, schema: Any) -> bool:
    try:
        validate(instance, schema)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize(
    ("schema", "instance"),
    [
        ({"pattern": EVIL}, HARMLESS),
        ({"items": {"pattern": EVIL}}, [HARMLESS]),
        ({"propertyNames": {"pattern": EVIL}}, {HARMLESS: 1}),
        ({"patternProperties": {EVIL: True}, "additionalProperties": False}, {HARMLESS: 1}),
        ({"$schema": DRAFT, "properties": {"a": {"$ref": "#"}}, "pattern": EVIL}, {"a": HARMLESS}),
        ({"properties": {"a": {"$schema": DRAFT, "pattern": EVIL}}}, {"a": HARMLESS}),
        *(({"properties": {n: {"pattern": EVIL}}}, {n: HARMLESS}) for n in NAMES),
        ({"$defs": {"x": {"pattern": EVIL}}, "items": {"$ref": "#/$defs/x"}}, [HARMLESS]),
        ({"$ref": "#/default/x", "default": {"x": {"$schema": OLD, "pattern": EVIL}}}, HARMLESS),
        ({"items": {"$ref": "#/enum/0"}, "enum": [{"pattern": EVIL}, [HARMLESS]]}, [HARMLESS]),
        (
            {"$schema": OLD4, "$ref": "#/$defs", "$defs": {"$schema": OLD, "pattern": EVIL}},
            HARMLESS,
        ),
        (
            {"$ref": "#/const/a~1~0b%25", "const": {"a/~b%": {"$schema": OLD, "pattern": EVIL}}},
            HARMLESS,
        ),
    ],
)
def test_a_pattern_ends_on_every_text_wherever_it_is(schema: Any, instance: Any) -> None:
    assert EVIL in list_schema_patterns(schema)
    assert not is_valid(instance, schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "required": ["a"], "properties": {"a": {"pattern": "^x"}}},
        {"patternProperties": {"^a": {"type": "string"}}},
        {
            "properties": {"b": True},
            "patternProperties": {"^a$": {}},
            "additionalProperties": False,
        },
        {"additionalProperties": {"pattern": "y$"}},
        {"properties": {"pattern": {"enum": ["x", {"pattern": "(("}]}}},
        {"properties": {"$schema": {"const": "v2"}}},
        {"pattern": "^[xy]"},
        {"pattern": "^.$"},
        {"pattern": "[?]"},
        {"patternProperties": {"^[^a-z]$": False}},
        {"properties": {"a": {"$ref": "#"}}, "type": ["object", "string"]},
        {"$defs": {"x": {"$anchor": "x", "type": "string"}}, "anyOf": [{"$ref": "#x"}]},
        {"anyOf": [{"required": ["a"], "properties": {"a": {"const": "xy"}}}, {"type": "null"}]},
    ],
)
def test_what_is_valid_is_what_jsonschema_finds_valid(schema: Any) -> None:
    instances: list[Any] = ["x", 7, None, [], {}, {"a": "xy"}, {"a": "yx", "b": 1}, {"ab": 3}]
    instances += [{"pattern": "x"}, {"pattern": "z"}, {"$schema": "v1"}, {"$schema": "v2"}]
    instances += ["\ud800", "?\udfff", {"\ud800": 1}]

    expected = [jsonschema.Draft202012Validator(schema).is_valid(one) for one in instances]

    assert [is_valid(one, schema) for one in instances] == expected
    assert len(set(expected)) == 2


def test_what_is_no_schema_is_refused() -> None:
    with pytest.raises(SchemaError):
        validate({}, {"type": "no such type"})


def test_values_of_a_schema_are_no_patterns() -> None:
    schema = {"properties": {"pattern": {"const": {"pattern": "(("}}}, "enum": [{"pattern": "(("}]}

    assert list(list_schema_patterns(schema)) == []


@pytest.mark.parametrize(
    ("name", "instead"),
    [("unevaluatedItems", "items"), ("unevaluatedProperties", "additionalProperties")],
)
def test_a_keyword_whose_time_doubles_at_each_level_is_refused(name: str, instead: str) -> None:
    schema = {"allOf": [{name: False}]}

    with pytest.raises(ValueError, match=f"`{name}`; use `{instead}`"):
        list(list_schema_patterns(schema))
    with pytest.raises(ValueError, match="not evaluated"):
        validate([], schema)


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([1, 1.0], False),
        ([1, True], True),
        ([0, False, None, "", "0", [], {}], True),
        ([{"a": 1, "b": [True]}, {"b": [True], "a": 1.0}], False),
        ([{"a": 1}, {"a": True}], True),
        ([[1], [True]], True),
        ([[1, 2], [2, 1]], True),
        ([10**20, 1e20], False),
        ([10**20 + 1, 1e20], True),
        ([0.0, -0.0], False),
        ([float("inf"), float("inf")], False),
        (["\u00e9", "\ud800", "\ud800"], False),
        ([0.1, 1, "1", [1], ["1"], {"1": 1}, "[1]"], True),
    ],
)
def test_items_are_unique_as_jsonschema_finds_them(items: list[Any], *, expected: bool) -> None:
    schema = {"uniqueItems": True}

    assert is_valid(items, schema) is expected
    assert jsonschema.Draft202012Validator(schema).is_valid(items) is expected
    assert is_valid(items, {"uniqueItems": False})


@pytest.mark.parametrize("keyword", ["multipleOf", "divisibleBy"])
@pytest.mark.parametrize(
    ("divisor", "instance", "expected"),
    [
        (0.01, 10**400, True),
        (0.03, 10**400, False),
        (7, 10**400, False),
        (10**400, 1.5, False),
        (10**400, 3 * 10**400, True),
        (0.01, float("inf"), False),
        (7, float("inf"), False),
        (1e-300, 1e300, True),
        (0.01, 0.07, True),
        (0.01, 0.075, False),
        (0.1, -0.3, True),
        (2, 4.0, True),
        (2, 5.0, False),
        (0.5, 1.5, True),
        (0.5, "a", True),
    ],
)
def test_a_number_of_any_size_is_a_multiple_or_not(
    keyword: str, divisor: float, instance: Any, *, expected: bool
) -> None:
    schema: dict[str, Any] = {keyword: divisor}
    if keyword == "divisibleBy":
        schema["$schema"] = "http://json-schema.org/draft-03/schema#"

    assert is_valid(instance, schema) is expected


def test_a_keyword_of_an_old_draft_means_nothing_in_a_new_one() -> None:
    assert is_valid(5, {"divisibleBy": 2})


def test_many_objects_are_compared_at_once() -> None:
    many: list[Any] = [{"id": number} for number in range(50_000)]

    assert is_valid(many, {"uniqueItems": True})
    assert not is_valid([*many, {"id": 0.0}], {"uniqueItems": True})


def test_all_names_are_matched_at_once() -> None:
    value = {f"a{number}": number for number in range(1_000)}
    patterns = {"^a[0-9]+$": {"type": "integer"}, "^b.$": False}
    schema = {"patternProperties": patterns, "additionalProperties": False}

    few = count_calls(lambda: validate({"a1": 1}, schema), of="compute.py")

    assert count_calls(lambda: validate(value, schema), of="compute.py") == few > 0
    assert not is_valid(value | {"a1": "x"}, schema)
    assert not is_valid(value | {"\ud800": 1}, schema)
    assert not is_valid(value | {"b\ud800": 1}, schema)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"$ref": "http://127.0.0.1/x"}, "to another document, 'http://127.0.0.1/x'; copy"),
        ({"items": {"$ref": "file:///etc/hostname"}}, "to another document"),
        ({"properties": {"a": {"$dynamicRef": "other.json#x"}}}, "`$dynamicRef`; write a `$ref`"),
        ({"$dynamicAnchor": "n", "allOf": [{"$dynamicRef": "#n"}]}, "`$dynamicAnchor`; write"),
        ({"items": {"$recursiveRef": "#"}}, "`$recursiveRef`; write"),
        ({"$defs": {"x": {"$anchor": "a"}}}, "`$anchor`; write a `$ref` to `#/$defs/NAME`"),
        (
            {"$ref": "#a", "$defs": {"x": {"$anchor": "a", "allOf": [{"$ref": "#a"}]}}},
            "'#a'; write",
        ),
        ({"$ref": "#%2F$defs", "$defs": {}}, "to a name, '#%2F$defs'"),
        (
            {"properties": {"a": {"$id": "http://x/y", "allOf": [{"$ref": "#"}]}}},
            "`$id` 'http://x/y' below its root; leave it out",
        ),
        ({"$schema": OLD4, "properties": {"a": {"id": "http://x/y"}}}, "`id` 'http://x/y' below"),
        ({"$schema": OLD, "definitions": {"x": {"$id": "#foo"}}}, "`$id` '#foo' below"),
        ({"$ref": "#/enum/0", "enum": [{"$ref": "http://127.0.0.1/x"}]}, "to another document"),
        ({"$ref": "#/$defs/x"}, "to no part of it, '#/$defs/x'"),
        ({"$ref": "#/allOf/x", "allOf": [{}]}, "to no part of it"),
        ({"$ref": "#"}, "without end, '#'"),
        ({"items": {"anyOf": [True, {"$ref": "#/items"}]}}, "without end, '#/items'"),
        ({"dependencies": {"a": {"not": {"$ref": "#"}}}}, "without end"),
        ({"$ref": "#/a", "a": {"$ref": "#/b"}, "b": {"$ref": "#/a"}}, "without end"),
    ],
)
def test_a_reference_that_is_not_to_a_part_of_the_schema_is_refused(schema: Any, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        require_own_references(schema)


def doubled(levels: int) -> dict[str, Any]:
    parts: dict[str, Any] = {"a0": {"type": "string"}}
    for level in range(levels):
        parts[f"a{level + 1}"] = {"anyOf": [{"$ref": f"#/$defs/a{level}"}] * 2}
    return {"$ref": f"#/$defs/a{levels}", "$defs": parts}


def test_references_that_double_at_each_level_are_bounded() -> None:
    require_own_references(doubled(12))

    for levels in (13, 300):
        with pytest.raises(ValueError, match=r"more than 10000 schemas for one value; name each"):
            require_own_references(doubled(levels))


def test_a_long_chain_of_references_is_read_in_linear_time() -> None:
    chain: dict[str, Any] = {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(9_999)}
    schema = {"$ref": "#/$defs/a0", "$defs": chain | {"a9999": {}}}

    require_own_references(schema)

    chain["a9998"] = {"$ref": "#/$defs/a0"}
    with pytest.raises(ValueError, match="without end"):
        require_own_references({**schema, "$defs": chain})


def nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = {"a": value}
    return value


NODE = {"properties": {"a": {"$ref": "#/$defs/n"}}}


@pytest.mark.parametrize(
    "part", [{"allOf": [NODE, NODE]}, {"anyOf": [{"not": NODE}, NODE], **NODE}], ids=["all", "any"]
)
def test_a_value_at_whose_levels_references_double_is_no_valid_one(part: Any) -> None:
    schema = {"$ref": "#/$defs/n", "$defs": {"n": part}}
    require_own_references(schema)
    validate(nested(6), schema)

    for _ in range(2):
        with pytest.raises(TooManyReferencesError, match=r"follows more than 12600 `\$ref`s"):
            validate(nested(25), schema)


def test_a_long_value_follows_as_many_references_as_it_has_parts() -> None:
    schema = {"items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "integer"}}}

    assert not is_valid([*[1] * 10_100, "x"], schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"items": {"$ref": "#"}, "properties": {"$ref": {"$ref": "#/$defs/x"}}, "$defs": {"x": {}}},
        {"allOf": [{"$ref": "#/$defs/x"}, {"$ref": "#/$defs/x"}], "$defs": {"x": {"not": {}}}},
        {
            "$id": "http://x/s.json",
            "properties": {"id": {"$ref": "#/$defs/$id"}},
            "$defs": {"$id": {}},
        },
        {"const": {"$ref": "http://127.0.0.1/x"}},
    ],
)
def test_a_reference_to_a_part_of_the_schema_is_accepted(schema: Any) -> None:
    require_own_references(schema)


def test_a_schema_of_another_document_is_not_fetched() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        with pytest.raises(Exception, match="Unresolvable"):
            validate("a", {"$ref": f"http://127.0.0.1:{server.getsockname()[1]}/x"})
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize("text", ["NaN", "-Infinity", '{"a": [Infinity]}'])
def test_what_only_python_reads_is_no_json(text: str) -> None:
    with pytest.raises(ValueError, match="is not JSON"):
        loads(text)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "strng"}, "a fault, $.type: 'strng' is not"),
        ({"properties": {"a": {"required": "a"}}}, "$.properties.a.required: 'a' is not of type"),
        ({"$ref": "#/x/y", "x": {"y": {"minimum": "a"}}}, "$.minimum: 'a' is not of type"),
        ({"$schema": OLD4, "required": []}, "$.required"),
        ({"$schema": 5}, "$['$schema']: 5 is not of type 'string'"),
        ({"$schema": []}, "$['$schema']: [] is not of type 'string'"),
        ("text", "a fault, $: 'text' is not"),
    ],
)
def test_what_can_never_be_evaluated_is_no_schema(schema: Any, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        require_schema(schema)


def test_a_pattern_that_only_re2_reads_is_one_of_a_schema() -> None:
    schema = {"pattern": r"^\p{L}+$", "patternProperties": {r"\p{Lu}": False}}

    require_schema(schema)

    assert [is_valid(one, schema) for one in ("\u00e9", "1", {"a": 1}, {"A": 1})] == [
        *(True, False),
        *(True, False),
    ]


def test_a_validator_is_made_once_for_each_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two columns, or two evaluations, ask in turns; to make a validator takes milliseconds."""
    made, make = list[Any](), json_schema._make_validator

    def noted(schema: Any) -> Any:
        made.append(schema)
        return make(schema)

    monkeypatch.setattr(json_schema, "_make_validator", noted)
    one, other = {"type": "integer"}, {"type": "string"}
    for _ in range(3):
        validate(1, one)
        validate("a", other)

    assert made == [one, other]

    for number in range(2 * json_schema.VALIDATORS):
        validate(number, {"const": number})
    assert len(json_schema._validators) == json_schema.VALIDATORS
