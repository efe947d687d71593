"""Slices of JSON objects, letter for letter; and the change log's key: one row, one text."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.formats import json_text
from pipeline.formats.json_text import quote_text

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=4,
)
OBJECTS = st.dictionaries(st.text(), VALUES)


@given(given=OBJECTS, blank=st.sampled_from(["", " ", "\r\n\t"]), ascii_only=st.booleans())
def test_slices_are_the_values_as_they_were_sent(
    given: dict[str, object], blank: str, ascii_only: bool
) -> None:
    spelled = [
        (name, json.dumps(value, ensure_ascii=ascii_only).replace("Infinity", "1"))
        for name, value in given.items()
    ]
    sent = f",{blank}".join(f"{json.dumps(n)}{blank}:{blank}{v}{blank}" for n, v in spelled)

    assert json_text.split_fields(f"{blank}{{{blank}{sent}}}{blank}") == tuple(spelled)


@given(st.text(alphabet='{}[]":, \n\\u01-.eatrufnls'))
def test_whatever_is_no_object_of_json_has_no_fields(text: str) -> None:
    try:
        given = json.loads(text)
    except ValueError:
        given = None

    found = json_text.split_fields(text)

    assert (found is not None) == isinstance(given, dict)
    assert found is None or {n: json.loads(v) for n, v in found} == given


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("{}", (), id="an empty object"),
        pytest.param(' {"a" : 1.10 } \n', (("a", "1.10"),), id="blanks around, figures kept"),
        pytest.param('{"a":1,"a":2}', (("a", "1"), ("a", "2")), id="a doubled name stays doubled"),
        pytest.param('{"\\u0061":"\\u0062"}', (("a", '"\\u0062"'),), id="a name is read"),
        pytest.param('{"a":"\\ud800"}', (("a", '"\\ud800"'),), id="half a pair is not looked at"),
        pytest.param('{"a":' + "9" * 5000 + "}", (("a", "9" * 5000),), id="a very long number"),
        pytest.param('{"a":1} x', None, id="something behind"),
        pytest.param('{"a":1}{"b":2}', None, id="another object behind"),
        pytest.param('{"a":1,}', None, id="a comma too many"),
        pytest.param('{,"a":1}', None, id="a comma in front"),
        pytest.param(',"a":1}', None, id="a comma for a brace"),
        pytest.param("{1:1}", None, id="a number for a name"),
        pytest.param('{["a"]:1}', None, id="a list for a name"),
        pytest.param('{"a":NaN}', None, id="no number"),
        pytest.param('{"a":"\n"}', None, id="a line's end in a string"),
        pytest.param('{"a":' + "[" * 5000 + "]" * 5000 + "}", None, id="too deep"),
        pytest.param("[]", None, id="a list"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_fields_of_an_object(text: str, expected: tuple[tuple[str, str], ...] | None) -> None:
    assert json_text.split_fields(text) == expected
    assert json_text.read_fields(text.encode()) == expected


def test_bytes_that_are_no_text_have_no_fields() -> None:
    assert json_text.read_fields(b'{"a":"\xff"}') is None
    assert json_text.read_fields(None) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(None, None, id="missing"),
        pytest.param("null", None, id="null"),
        pytest.param('"null"', "null", id="the word null"),
        pytest.param('"\\u00e9\\n"', "é\n", id="escapes are read"),
        pytest.param('"\\ud800x"', "?x", id="half a pair is a question mark"),
        pytest.param("1.50", "1.50", id="a number's figures"),
        pytest.param('{"a": 1}', '{"a": 1}', id="an object as it is"),
    ],
)
def test_text_of_a_slice(value: str | None, text: str | None) -> None:
    assert json_text.text_of(value) == text


@pytest.mark.parametrize("value", [-(2**63), -1, 0, 2**63 - 1])
def test_an_integer_of_64_bits_is_read(value: int) -> None:
    assert json_text.integer_of(str(value)) == value


@pytest.mark.parametrize(
    "value", [str(2**63), str(-(2**63) - 1), "9" * 5000, "1.0", "1e3", '"1"', "true", "[]"]
)
def test_what_is_no_integer_of_64_bits_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="is no integer of 64 bits"):
        json_text.integer_of(value)


def test_nothing_is_no_integer_and_no_object() -> None:
    assert json_text.integer_of(None) is json_text.integer_of("null") is None
    assert json_text.object_of(None) is json_text.object_of("null") is None


def test_an_object_of_doubled_names_holds_the_last() -> None:
    assert json_text.object_of('{"a":1,"a":2}') == {"a": "2"}


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(ValueError, match="no object"):
        json_text.object_of("[]")


TEXTS = st.text(st.characters(codec="utf-8"))
KEY_VALUES = st.lists(st.none() | TEXTS, min_size=1)
ROWS = st.lists(st.tuples(st.none() | KEY_VALUES, TEXTS, TEXTS, st.booleans()))


@pytest.mark.parametrize(
    ("unique", "expected"),
    [
        pytest.param(True, '["17","2"]', id="unique keys stand alone"),
        pytest.param(False, '["main","shop_00.orders","17","2"]', id="others name their shard"),
    ],
)
def test_a_key_is_a_json_array_without_blanks(unique: bool, expected: str) -> None:
    assert json_text.canonical_key(["17", "2"], "main", "shop_00.orders", unique=unique) == expected


@given(values=KEY_VALUES)
def test_a_key_gives_its_values_back(values: list[str | None]) -> None:
    text = json_text.canonical_key(values, "s", "d.t", unique=False)

    assert json_text.parse_key(text) == ("s", "d.t", *values)
    assert json.loads(text) == ["s", "d.t", *values]


@given(one=KEY_VALUES, other=KEY_VALUES)
def test_different_values_never_share_a_key(one: list[str | None], other: list[str | None]) -> None:
    same = json_text.canonical_key(one, "s", "d.t") == json_text.canonical_key(other, "s", "d.t")

    assert same == (one == other)


@given(ROWS)
def test_a_column_of_keys_is_what_each_is_alone(
    rows: list[tuple[list[str | None] | None, str, str, bool]],
) -> None:
    listed = [None if values is None else listing(values) for values, *_ in rows]
    sources, shards, unique = ([row[i] for row in rows] for i in (1, 2, 3))

    column = json_text.key_column(
        pa.array(listed, pa.string()),
        pa.array(sources, pa.string()),
        pa.array(shards, pa.string()),
        unique=pa.array(unique, pa.bool_()),
    )

    assert column.type == pa.string()
    assert column.to_pylist() == [
        None if values is None else json_text.canonical_key(values, source, shard, unique=alone)
        for values, source, shard, alone in rows
    ]


def test_a_change_without_a_shard_has_a_key_only_where_it_is_unique() -> None:
    column = json_text.key_column(
        pa.array(['["1"]', '["1"]']),
        pa.array(["s", "s"]),
        pa.array([None, None], pa.string()),
        unique=pa.array([True, False]),
    )

    assert column.to_pylist() == ['["1"]', None]


def listing(values: list[str | None]) -> str:
    """How a format lists key values."""
    return f"[{','.join('null' if value is None else quote_text(value) for value in values)}]"
