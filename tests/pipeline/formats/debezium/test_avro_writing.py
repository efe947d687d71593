"""What a person wrote as JSON is read back as that; what does not fit is told by its place."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import FormatError
from pipeline.formats.debezium.avro import convert_to_json, encode_message
from tests.example_count import examples
from tests.pipeline.formats.avro_writer import Schema, record

KIND = {"type": "enum", "name": "kind", "symbols": ["a", "b"]}
INNER = record("inner", whole="long", flag="boolean")
EVERY: dict[str, Schema] = {
    "n": ["null", "int"],
    "real": "double",
    "raw": ["null", "bytes"],
    "four": {"type": "fixed", "name": "four", "size": 4},
    "kind": KIND,
    "again": ["null", "kind"],
    "list": {"type": "array", "items": ["null", "string"]},
    "map": {"type": "map", "values": "long"},
    "inner": ["null", INNER],
    "either": ["null", "string", "long"],
}
SCHEMA = json.dumps(record("x", **EVERY))
ROW: dict[str, Any] = {
    "n": 1, "real": 0.5, "raw": "AAE=", "four": "AAECAw==", "kind": "b", "again": None,
    "list": ["x", None], "map": {"y": 2}, "inner": {"whole": 3, "flag": True}, "either": 7,
}  # fmt: skip
LONG = st.integers(-(2**63), 2**63 - 1)
ROWS = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-(2**31), 2**31 - 1),
        "real": st.floats(allow_nan=False, allow_infinity=False),
        "raw": st.none() | st.sampled_from(["", "AA==", "AAEC"]),
        "four": st.just("AAECAw=="),
        "kind": st.sampled_from("ab"),
        "again": st.none() | st.sampled_from("ab"),
        "list": st.lists(st.none() | st.text(), max_size=3),
        "map": st.dictionaries(st.text(max_size=3), LONG, max_size=3),
        "inner": st.none() | st.fixed_dictionaries({"whole": LONG, "flag": st.booleans()}),
        "either": st.none() | st.text() | LONG,
    }
)


def read_back(value: bytes) -> Any:
    found = convert_to_json(pa.array([value]), {7: SCHEMA}, unicode_names=False)
    assert found.wrong == {}
    return json.loads(found.column[0].as_py())


@given(ROWS)
@settings(max_examples=examples(200))
def test_what_is_written_is_read_back(row: dict[str, Any]) -> None:
    assert read_back(encode_message(json.dumps(row), 7, SCHEMA)) == row


def test_what_is_absent_is_its_default_or_null() -> None:
    with_default = record("x", a=["null", "long"], b="long")
    with_default["fields"][1]["default"] = 5
    schema = json.dumps(with_default)

    value = encode_message("{}", 7, schema)

    found = convert_to_json(pa.array([value]), {7: schema}, unicode_names=False)
    assert json.loads(found.column[0].as_py()) == {"a": None, "b": 5}


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"n": 2**31}, "the value.n is no int"),
        ({"n": True}, "the value.n is no int"),
        ({"real": "x"}, "the value.real is no double"),
        ({"raw": "!"}, "the value.raw is no bytes"),
        ({"four": "AA=="}, "the value.four has 1 bytes, not 4"),
        ({"kind": "c"}, "the value.kind must be one of a, b"),
        ({"list": ["x", 7]}, "the value.list[1] is no string"),
        ({"map": {"y": "z"}}, "the value.map.y is no long"),
        ({"inner": {"whole": 1}}, "the value.inner.flag is missing and has no default"),
        ({"more": 1}, "the value has no field more"),
        ({"list": {}}, "the value.list is not a list"),
    ],
)
def test_what_does_not_fit_is_told_by_its_place(other: dict[str, Any], why: str) -> None:
    with pytest.raises(FormatError) as refused:
        encode_message(json.dumps(ROW | other), 7, SCHEMA)

    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("text", "schema", "why"),
    [
        ("{", SCHEMA, "it is no JSON"),
        ("[]", SCHEMA, "the value is no object"),
        ("{}", "{", "schema 7 is no schema of Avro"),
        ("{}", '{"type":"nothing"}', "schema 7 is no schema of Avro"),
        ("{}", '{"type":"record","name":[".."]}', "schema 7 is no schema of Avro"),
    ],
)
def test_what_is_none_at_all(text: str, schema: str, why: str) -> None:
    with pytest.raises(FormatError) as refused:
        encode_message(text, 7, schema)

    assert why in str(refused.value)
