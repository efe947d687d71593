"""A message in Avro says what Debezium's JSON of the same change says, or why it says nothing.

The corpus was sent by one Debezium 3.5 twice, through Apicurio's Avro converter and as JSON.
"""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import FormatError
from pipeline.formats.debezium import avro
from pipeline.formats.debezium.avro_codec import TOO_LARGE, plain_name, value_reader
from pipeline.formats.debezium_avro import DebeziumAvro
from pipeline.formats.debezium_json import DebeziumJson
from pipeline.settings import RegistrySettings
from tests.example_count import examples
from tests.pipeline.corpus import CORPUS, messages
from tests.pipeline.formats.avro_writer import body, long, message, record
from tests.pipeline.formats.batches import Raw, batch, told
from tests.pipeline.formats.changes_told import hurt

FORMAT = DebeziumAvro(RegistrySettings("http://registry"))
SCHEMAS: dict[int, str | None] = {
    int(number): text
    for number, text in json.loads((CORPUS / "debezium_avro" / "schemas.json").read_text()).items()
}
CAPTURED = messages("debezium_avro")
SENT: list[Raw] = [(one.key, one.value, one.topic) for one in CAPTURED]
ROW = next(one for one in SENT if one[2] == "av.shop.odd_na-me")


@pytest.fixture(scope="module", autouse=True, params=[0, 10**6], ids=["side by side", "one by one"])
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """How messages are read: both say the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(avro, "FEW", request.param)
        yield


def decode_messages(some: Sequence[Raw]) -> list[dict[str, Any]]:
    return told(FORMAT.decode(batch(some), SCHEMAS))


def texts(schema: Any, *values: Any) -> list[Any]:
    """JSON of bodies of one schema, as Python's values."""
    sent = pa.array([message(1, schema, one) for one in values], pa.binary())
    found = avro.convert_to_json(sent, {1: json.dumps(schema)}, unicode_names=True)
    assert found.wrong == {}
    return [json.loads(one) for one in found.column.to_pylist()]


def why(schema: Any, *bodies: bytes) -> list[str | None]:
    """Why each body is none."""
    sent = pa.array([b"\0\0\0\0\1" + one for one in bodies], pa.binary())
    found = avro.convert_to_json(sent, {1: json.dumps(schema)}, unicode_names=True)
    return [found.wrong.get(number) for number in range(len(bodies))]


def test_it_says_what_the_json_of_the_same_change_says() -> None:
    twins: list[Raw] = [
        (*(one.expect[n] and one.expect[n].encode() for n in ("key", "value")), one.topic)
        for one in CAPTURED
    ]
    plain = told(DebeziumJson().decode(batch(twins), {}))

    for mine, its in zip(decode_messages(SENT), plain, strict=True):
        names = ("op", "shard", "key_values", "log", "snapshot", "origin", "error", "raw")
        assert {n: mine[n] for n in names} == {n: its[n] for n in names}
        if mine["op"] not in {"ddl", "begin", "end"}:  # these tell their own times in their payload
            assert [json.loads(mine[n] or "null") for n in ("before", "after")] == [
                json.loads(its[n] or "null") for n in ("before", "after")
            ]
    assert {one["op"] for one in plain} >= {"c", "u", "d", "r", "ddl", "begin", "end", "tombstone"}


def test_a_schema_change_is_read_as_that_of_json_is() -> None:
    changes = [(mine, one) for mine, one in zip(decode_messages(SENT), CAPTURED, strict=True)]
    payloads = [
        (mine["after"], one.expect["value"]) for mine, one in changes if mine["op"] == "ddl"
    ]

    assert len(payloads) > 5
    for mine, its in payloads:
        assert FORMAT.schema_change(mine) == DebeziumJson().schema_change(its)


def test_it_needs_the_schemas_of_keys_and_values_and_no_others() -> None:
    assert FORMAT.needs(batch(SENT)) == frozenset(SCHEMAS)
    assert FORMAT.needs(batch([(None, None, "t"), (b"{}", b"", "t"), ROW])) == {5, 6}
    assert FORMAT.needs(batch([])) == frozenset()


def test_one_message_spoils_no_other_and_what_was_sent_is_kept() -> None:
    key, value, topic = ROW
    assert key is not None
    assert value is not None
    odd: list[Raw] = [
        (key, b'{"op":"c"}', topic),
        (key, value[:-1], topic),
        ROW,
        (key, value + b"\0", topic),
        (key, b"\0\0\0\x03\xe7" + value[5:], topic),
        (b"\0\0\0\0\x63" + key[5:], value, topic),
        (key, b"\0", topic),
        (key, b"", topic),
        (key, b"\0\0\0\0\x03\x02", topic),
    ]

    found = decode_messages(odd)

    assert [one["message"] for one in found] == list(range(9))
    assert [one["raw"] for one in found] == [None if m is ROW else m[1] for m in odd]
    reasons = [one["error"] or "" for one in found]
    assert reasons[0] == reasons[6] == reasons[7] == f"value: {avro.UNFRAMED}"
    assert "value: it does not fit schema 6: it ends inside" in reasons[1]
    assert reasons[3] == "value: it does not fit schema 6: bytes are left over"
    assert reasons[4].startswith("value: the registry knows no schema 999")
    assert reasons[5].startswith("key: the registry knows no schema 99")
    assert "is no row" in reasons[8]
    assert (found[2]["op"], found[2]["after"]) == ("r", '{"a b":1,"a.b":"x","ü":2,"1x":3}')


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        pytest.param("a_u0020b", "a b", id="a blank"),
        pytest.param("order_u005fid", "order_id", id="an underscore"),
        pytest.param("_u00fc", "ü", id="a letter"),
        pytest.param("_ud83d_ude00", "😀", id="a pair of surrogates"),
        pytest.param("_ud83d", "\ufffd", id="half a pair"),
        pytest.param("ts_us", "ts_us", id="no code"),
        pytest.param("_u005fu0020", "_u0020", id="a code that is a name"),
    ],
)
def test_a_name_is_found_back(name: str, plain: str) -> None:
    assert plain_name(name) == plain


def test_names_that_are_sent_as_they_are_stay() -> None:
    schema = json.dumps(record("r", a_u0020b="int"))
    sent = pa.array([b"\0\0\0\0\1\2"], pa.binary())

    found = avro.convert_to_json(sent, {1: schema}, unicode_names=False)

    assert found.column.to_pylist() == [b'{"a_u0020b":1}']


def doubling_records(count: int) -> str:
    """A schema of few letters: each record holds the one before it twice."""
    made: Any = record("r0", a="null")
    for number in range(1, count):
        made = record(f"r{number}", a=made, b=f"r{number - 1}")
    return json.dumps(made)


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param("{", id="no JSON"),
        pytest.param('{"type":"PROTOBUF"}', id="another kind of schema"),
        pytest.param(
            '{"type":"record","name":"r","fields":[{"name":"a","type":"r"}]}', id="itself"
        ),
        pytest.param("[" * 5000 + "]" * 5000, id="too deep"),
        pytest.param(
            json.dumps(record("r", a_u0020b="int", **{"a b": "int"})), id="one name twice"
        ),
        pytest.param("7", id="a number"),
        pytest.param('{"type":"enum","name":"e","symbols":[1]}', id="symbols that are numbers"),
        pytest.param('{"type":"record","name":["."],"fields":[]}', id="a name that is a list"),
        pytest.param('{"type":"fixed","name":"f","size":"16"}', id="a size that is a text"),
        pytest.param(f'{{"type":"fixed","name":"f","size":{10**400}}}', id="a huge size"),
        pytest.param('{"type":"array","items":' * 420 + '"int"' + "}" * 420, id="420 arrays"),
        pytest.param(json.dumps(record("r", **{"n" * 2**20: "int"})), id="1 MiB of names"),
        pytest.param(doubling_records(40), id="2**40 values by names"),
    ],
)
def test_a_schema_that_cannot_be_read_is_refused(schema: str) -> None:
    with pytest.raises(FormatError, match="it is no schema of Avro"):
        value_reader(schema, unicode_names=True)

    found = avro.convert_to_json(
        pa.array([b"\0\0\0\0\1"], pa.binary()), {1: schema}, unicode_names=True
    )
    assert found.wrong[0].startswith("schema 1: it is no schema")


def test_numbers_that_are_none_are_texts_and_floats_are_short() -> None:
    schema = record("r", d="double", f="float")
    odd = [math.nan, math.inf, -math.inf, 1e300, -0.0, 5e-324]
    assert str(texts(schema, *({"d": one, "f": 1.1} for one in odd))) == str(
        [{"d": d, "f": 1.1} for d in ("NaN", "Infinity", "-Infinity", 1e300, -0.0, 5e-324)]
    )


@pytest.mark.parametrize(
    ("schema", "bodies", "reason"),
    [
        pytest.param("int", [long(2**31)], "32 bits", id="an int too large"),
        pytest.param("long", [b"\xff" * 9 + b"\x02"], "64 bits", id="a long too large"),
        pytest.param("long", [b"\xff" * 40], "64 bits", id="a long without an end"),
        pytest.param("long", [b"\xff" * 3], "ends inside an integer", id="cut in an integer"),
        pytest.param("string", [long(2) + b"\xff\xff"], "UTF-8", id="no text"),
        pytest.param("bytes", [long(-1)], "ends inside a value", id="a negative length"),
        pytest.param("bytes", [long(2**62)], "ends inside a value", id="a huge length"),
        pytest.param("boolean", [b"\2"], "neither 0 nor 1", id="no boolean"),
        pytest.param(["null", "int"], [b"\4"], "no such branch", id="no branch"),
        pytest.param("double", [b"\0" * 7], "ends inside a value", id="half a double"),
        pytest.param({"type": "enum", "name": "e", "symbols": ["a"]}, [b"\2"], "no such symbol"),
        pytest.param({"type": "array", "items": "int"}, [long(2**40)], "longer than", id="a list"),
        pytest.param({"type": "array", "items": "null"}, [long(2**40)], "longer than", id="nulls"),
        pytest.param({"type": "array", "items": "int"}, [long(-(2**63)) + b"\0"], "longer than"),
        pytest.param("int", [b"\2\2"], "left over", id="too much"),
        pytest.param("int", [b""], "ends inside an integer", id="nothing"),
    ],
)
def test_a_body_that_does_not_fit_says_why(schema: Any, bodies: list[bytes], reason: str) -> None:
    whole = record("r", a=schema)

    (found,) = why(whole, *bodies)

    assert found is not None
    assert reason in found


NULLS = record("n", **{f"field{number:03}": "null" for number in range(300)})


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        pytest.param({"type": "array", "items": NULLS}, b"", id="array"),
        pytest.param({"type": "map", "values": NULLS}, long(0), id="map"),
    ],
)
def test_items_that_take_no_byte_are_bounded(kind: Any, item: bytes) -> None:
    items = 20_000
    bomb = long(items) + item * items + long(0) + long(items) + b"x" * items
    small = long(2) + item * 2 + long(0) + long(0)

    found = why(record("r", a=kind, s="bytes"), bomb, small, bomb)

    assert found == [f"it does not fit schema 1: {TOO_LARGE}", None, found[0]]


def test_a_long_list_of_short_items_is_read() -> None:
    items = list(range(-64, 64)) * 8

    assert texts({"type": "array", "items": "int"}, items * 8, items) == [items * 8, items]


SCALARS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("boolean", st.booleans()),
    ("double", st.floats(allow_nan=False, allow_infinity=False)),
    ("string", st.text(st.characters(codec="utf-8"), max_size=12)),
]
NULLABLE = [
    (["null", kind], st.just((0, None)) | given_.map(lambda v: (1, v))) for kind, given_ in SCALARS
]
LISTS = [({"type": "array", "items": kind}, st.lists(some, max_size=4)) for kind, some in SCALARS]
MAPS = [
    (
        {"type": "map", "values": kind},
        st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=3), some, max_size=3),
    )
    for kind, some in SCALARS
]
KINDS = SCALARS + NULLABLE + LISTS + MAPS


def plain(value: Any) -> Any:
    """A value of `avro_writer` as JSON has it."""
    return value[1] if isinstance(value, tuple) else value


@given(st.data())
def test_what_was_written_is_read_whoever_stands_beside_it(data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=5))
    schema = record("r", **{f"f{n}": kind for n, (kind, _) in enumerate(chosen)})
    row = st.fixed_dictionaries({f"f{n}": values for n, (_, values) in enumerate(chosen)})
    rows = data.draw(st.lists(row, min_size=1, max_size=6))

    assert texts(schema, *rows) == [{n: plain(v) for n, v in one.items()} for one in rows]


def _each_is_a_change_or_has_a_reason(some: list[Raw]) -> int:
    found = decode_messages(some)
    assert [one["message"] for one in found] == list(range(len(some)))
    for one, (_, value, _) in zip(found, some, strict=True):
        assert (one["error"] is None) == (one["op"] != "error")
        assert one["raw"] == (value if one["error"] else None)
    return sum(one["error"] is not None for one in found)


@pytest.mark.parametrize("way", [0], indirect=True)  # it chooses both ways itself
def test_damaged_messages_have_the_same_reason_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    for some in hurt(SENT, examples(5_000, brief=1_000), 2, size=1_000):
        found = []
        for few in (0, 10**6):
            monkeypatch.setattr(avro, "FEW", few)
            found.append(decode_messages(some))
        assert found[0] == found[1]


def test_damaged_messages_are_changes_or_have_a_reason() -> None:
    batches = list(hurt(SENT, examples(5_000, brief=1_000), 1, size=1_000))
    odd = [_each_is_a_change_or_has_a_reason(some) for some in batches]

    assert sum(odd) > 100 * len(odd)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_200_000_damaged_messages_are_changes_or_have_a_reason(seed: int) -> None:
    for some in hurt(SENT, 20_000, 100 + seed):
        _each_is_a_change_or_has_a_reason(some)


def test_a_union_of_many_branches_goes_by_the_branch_that_was_written() -> None:
    schema = record("r", u=["string", "null", "long", record("inner", x="int")])
    values = [
        {"u": (0, "a")},
        {"u": (1, None)},
        {"u": (2, 7)},
        {"u": (3, {"x": 5})},
        {"u": (0, '"')},
    ]

    assert texts(schema, *values) == [{"u": u} for u in ("a", None, 7, {"x": 5}, '"')]


def test_bodies_are_written_as_the_specification_says() -> None:
    assert [long(one) for one in (0, -1, 1, -64, 64)] == [b"\0", b"\1", b"\2", b"\x7f", b"\x80\1"]
    assert body("string", "foo") == b"\x06foo"
