"""A message is read the same whether the schema around it was seen before or not."""

import json

import pyarrow as pa
import pytest

from pipeline.formats.debezium.batch import unwrap_payloads
from tests.pipeline.formats.batches import Raw, at_once, one_by_one

FIELDS = [{"field": "after", "type": "struct", "fields": [{"field": "id", "type": "int32"}]}]
SOURCE = {"db": "d", "table": "t", "file": "binlog.000003", "pos": 157, "row": 0}
OWN = SOURCE | {"connector": "postgresql", "schema": "d", "lsn": 9, "sequence": '["7","9"]'}
ROW = {"op": "c", "before": None, "after": {"id": 1}, "source": SOURCE}
END = {"status": "END", "id": "x", "ts_ms": 5}
ROWS = {"mysql": ROW, "postgres": {**ROW, "source": OWN}}


def struct_schema(default: str = "x") -> dict[str, object]:
    return {"type": "struct", "fields": FIELDS, "default": default}


def compact_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def message(payload: object, default: str = "x") -> bytes:
    return compact_json({"schema": struct_schema(default), "payload": payload})


SAID = compact_json(ROW)
SCHEMA = compact_json(struct_schema())
ODD = {
    "no schema": SAID,
    "another schema": message(ROW, "y"),
    "the sign of a payload in a schema": message(ROW, '"},"payload":{'),
    "the sign of a payload in a row": message({**ROW, "after": {"a": '"},"payload":{'}}),
    "a payload in a payload": message({**ROW, "payload": ROW}),
    "a schema in a payload": message({"schema": struct_schema(), "payload": ROW}),
    "blanks": json.dumps({"schema": struct_schema(), "payload": ROW}).encode(),
    "the payload first": compact_json({"payload": ROW, "schema": struct_schema()}),
    "something behind the payload": compact_json(
        {"schema": struct_schema(), "payload": ROW, "x": {}}
    ),
    "two payloads": b'{"schema":%b,"payload":%b,"payload":%b}' % (SCHEMA, SAID, SAID),
    "two schemas": b'{"schema":%b,"schema":{},"payload":%b}' % (SCHEMA, SAID),
    "a brace too many": message(ROW) + b"}",
    "a brace too few": message(ROW)[:-1],
    "no payload": compact_json({"schema": struct_schema(), "payload": None}),
    "a text for a payload": compact_json({"schema": struct_schema(), "payload": "{}"}),
    "a broken payload": message(ROW).replace(b'"op":"c"', b'"op":c'),
    "a broken schema": message(ROW).replace(b'"struct"', b"struct", 1),
    "half a letter in a schema": message(ROW, "half").replace(b'"half"', b'"\\ud800"'),
    "the end of a transaction in one": message(END, "half").replace(b'"half"', b'"\\ud800"'),
    "an integer too long": message({**ROW, "source": {**SOURCE, "pos": 2**70}}),
    "the end of a transaction": message(END),
}


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_an_odd_message_among_others_is_read_as_it_is_alone(odd: bytes, kind: str) -> None:
    plain = message(ROWS[kind])
    some: list[Raw] = [(b'{"id":1}', one, "p.d.t") for one in (plain, plain, odd, plain, odd)]

    found = at_once(some)

    assert found == one_by_one(some)
    assert [one["op"] for one in found if one["message"] in {0, 1, 3} and one["op"] != "ddl"] == [
        "c"
    ] * 3


def test_a_schema_that_comes_again_is_one_object() -> None:
    values = [message({"n": 1}), message({"n": 2}), SAID, message({"n": 3}, "y"), message({"n": 4})]

    found = unwrap_payloads(pa.array(values[:1] + values, pa.binary())[1:])

    assert found.known.tolist() == [True, True, False, True, True]
    assert [json.loads(one)["n"] for one in found.payloads.to_pylist()] == [1, 2, 3, 4]
    first, second, other, last = found.schemas
    assert first is second
    assert first is last
    assert json.loads(bytes(other)) == struct_schema("y")


@pytest.mark.parametrize("values", [[], [SAID]], ids=["nothing", "no schema"])
def test_nothing_is_known_where_no_schema_is(values: list[bytes]) -> None:
    found = unwrap_payloads(pa.array(values, pa.binary()))

    assert not found.known.any()
    assert len(found.payloads) == len(found.schemas) == 0
