"""Rows of Postgres in Avro tell their columns as those in JSON do, by what they are written in.

A real connector's schemas are read in the proof of the Robinhood system.
"""

import json
from typing import Any

import pytest

from pipeline.formats.debezium.avro import read_row_schema
from pipeline.formats.debezium_avro import DebeziumAvro
from pipeline.formats.debezium_json import DebeziumJson
from pipeline.settings import RegistrySettings
from tests.pipeline.formats.avro_writer import message
from tests.pipeline.formats.batches import batch, told

TOPIC = "shop.public.t"
TYPE = "__debezium.source.column."


def typed(kind: str, **parameters: str) -> dict[str, str]:
    return {f"{TYPE}type": kind, **{f"{TYPE}{name}": text for name, text in parameters.items()}}


COLUMNS: list[dict[str, Any]] = [  # as Connect's JSON converter writes them
    {"field": "id", "type": "int64", "optional": False, "default": 0, "parameters": typed("INT8")},
    {"field": "small", "type": "int16", "optional": True, "parameters": typed("INT2")},
    {"field": "born", "type": "int32", "optional": True, "name": "io.debezium.time.Date",
     "parameters": typed("DATE")},
    {"field": "a b", "type": "string", "optional": True,
     "parameters": typed("VARCHAR", length="40")},
    {"field": "mood", "type": "string", "optional": False, "name": "io.debezium.data.Enum",
     "parameters": {**typed("MOOD"), "allowed": "sad,ok"}},
]  # fmt: skip
WRITTEN: list[dict[str, Any]] = [  # and as its converter to Avro writes the same
    {"name": "id", "type": {"type": "long", "connect.default": 0,
                            "connect.parameters": typed("INT8")}, "default": 0},
    {"name": "small", "default": None,
     "type": ["null", {"type": "int", "connect.type": "int16",
                       "connect.parameters": typed("INT2")}]},
    {"name": "born", "default": None,
     "type": ["null", {"type": "int", "connect.name": "io.debezium.time.Date",
                       "connect.parameters": typed("DATE")}]},
    {"name": "a_u0020b", "default": None,
     "type": ["null", {"type": "string", "connect.parameters": typed("VARCHAR", length="40")}]},
    {"name": "mood", "type": {"type": "string", "connect.name": "io.debezium.data.Enum",
                              "connect.parameters": {**typed("MOOD"), "allowed": "sad,ok"}}},
]  # fmt: skip
PLACE = {"connector": "postgresql", "schema": "public", "table": "t", "sequence": '["8","9"]',
         "lsn": 9, "snapshot": "false"}  # fmt: skip
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
NUMBERS = {"key": 1, "value": 2}


def envelope(
    columns: list[dict[str, Any]], connector: str = "postgresql", names: str = "Value"
) -> dict[str, Any]:
    space = f"io.debezium.connector.{connector}"
    kinds = {name: "long" if name == "lsn" else "string" for name in PLACE}
    source = [{"name": name, "type": kind} for name, kind in kinds.items()]
    value = {"type": "record", "name": "Value", "fields": columns}
    fields = {
        "before": ["null", value],
        "after": ["null", names],
        "source": {"type": "record", "name": "Source", "namespace": space, "fields": source,
                   "connect.name": f"{space}.Source"},
        "op": "string",
    }  # fmt: skip
    listed = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "Envelope", "namespace": TOPIC, "fields": listed}


ROW = {"id": 7, "small": (1, 3), "born": (1, 20), "a_u0020b": (0, None), "mood": "ok"}


def spelled_out(schema: dict[str, Any]) -> dict[str, Any]:
    """The same without a type that is only named, which the tests' writer does not know."""
    before, after, *others = schema["fields"]
    return {**schema, "fields": [before, {**after, "type": before["type"]}, *others]}


def decoded(*schemas: dict[str, Any], row: dict[str, Any] = ROW) -> list[dict[str, Any]]:
    """A message of each schema."""
    known = {number: json.dumps(one) for number, one in enumerate(schemas, start=2)}
    sent = [
        (
            message(1, KEY, {"id": number}),
            message(
                number,
                spelled_out(one),
                {"before": (0, None), "after": (1, row), "source": PLACE, "op": "c"},
            ),
            TOPIC,
        )
        for number, one in enumerate(schemas, start=2)
    ]
    format_ = DebeziumAvro(RegistrySettings("http://registry"))
    return told(format_.decode(batch(sent), {1: json.dumps(KEY), **known}))


def in_json() -> list[dict[str, Any]]:
    """The same change as Debezium's JSON with its schema."""
    after = {"type": "struct", "field": "after", "optional": True, "fields": COLUMNS}
    row = {"id": 7, "small": 3, "born": 20, "a b": None, "mood": "ok"}
    payload = {"before": None, "after": row, "source": PLACE, "op": "c"}
    value = {"schema": {"type": "struct", "fields": [after]}, "payload": payload}
    key = b'{"schema":{"type":"struct"},"payload":{"id":2}}'
    return told(DebeziumJson().decode(batch([(key, json.dumps(value).encode(), TOPIC)]), {}))


@pytest.mark.parametrize("names", ["Value", f"{TOPIC}.Value"])
def test_columns_are_told_before_a_row_as_json_tells_them(names: str) -> None:
    mine, its = decoded(envelope(WRITTEN, names=names)), in_json()

    assert [one["op"] for one in mine] == [one["op"] for one in its] == ["ddl", "c"]
    assert json.loads(mine[0]["after"]) == json.loads(its[0]["after"])
    assert [mine[0][n] for n in ("log", "pos", "row")] == [its[0][n] for n in ("log", "pos", "row")]
    change = DebeziumAvro(RegistrySettings("http://registry")).schema_change(mine[0]["after"])
    assert change.tables[0].key == ("id",)


def test_they_are_told_again_only_where_they_are_others() -> None:
    same, other = envelope(WRITTEN), envelope(WRITTEN[:-1])

    assert [one["op"] for one in decoded(same, same)] == ["ddl", "c", "c"]
    row = {name: value for name, value in ROW.items() if name != "mood"}
    assert [one["op"] for one in decoded(other, other, row=row)] == ["ddl", "c", "c"]


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(json.dumps(envelope(WRITTEN, connector="mysql")), id="rows of MySQL"),
        pytest.param(json.dumps(KEY), id="a key"),
        pytest.param(json.dumps(envelope(WRITTEN, names="Other")), id="a name of nothing"),
        pytest.param('"string"', id="no record"),
        pytest.param("{", id="no JSON"),
    ],
)
def test_what_is_no_row_of_postgres_tells_nothing(schema: str) -> None:
    assert read_row_schema(schema, unicode_names=True) is None
