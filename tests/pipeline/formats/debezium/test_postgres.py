"""What the Postgres connector's rows say, alone and in batches."""

import json
from typing import Any

import pytest

from pipeline.errors import FormatError
from pipeline.formats import format as told_columns
from pipeline.formats.debezium.connector import UNAVAILABLE, Placeholder
from pipeline.formats.debezium.postgres import POSTGRES
from pipeline.formats.debezium_json import FORMAT, DebeziumJson
from pipeline.formats.format import AROUND, INCREMENTAL
from pipeline.model import Op, Origin, ShardId
from pipeline.schema.model import ColumnDescription, SchemaMessage, TableDescription
from tests.pipeline.corpus import messages
from tests.pipeline.formats.batches import Raw, at_once, batch, one_by_one, told

PLACE = {"connector": "postgresql", "schema": "public", "table": "t", "db": "shop", "lsn": 900}
SOURCE = {**PLACE, "sequence": '["500","900"]'}
ID = {"type": "int32", "field": "id", "parameters": {"__debezium.source.column.type": "INT4"}}
KEY = b'{"schema":{"type":"struct"},"payload":{"id":1}}'


def payload_schema(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}


def text_field(name: str) -> dict[str, Any]:
    return {"type": "string", "optional": True, "field": name}


def raw_row(
    told_schema: dict[str, Any] | None = None, key: bytes | None = KEY, **fields: Any
) -> Raw:
    payload = {"op": "c", "after": {"id": 1}, "source": SOURCE, **fields}
    whole = payload if told_schema is None else {"schema": told_schema, "payload": payload}
    return key, json.dumps(whole).encode(), "p.public.t"


def decode_both_ways(*sent: Raw) -> list[dict[str, Any]]:
    found = at_once(sent)
    assert found == one_by_one(sent)
    return found


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        pytest.param({}, (500, 900, 1), id="the last commit, then its own place"),
        pytest.param({"op": "d", "after": None}, (500, 900, 0), id="an old key goes first"),
        pytest.param(
            {"op": "r", "source": {**SOURCE, "sequence": '[null,"900"]'}},
            (900, 900, 1),
            id="no commit is known",
        ),
    ],
)
def test_a_change_stands_behind_the_last_commit(
    fields: dict[str, Any], place: tuple[int, int, int]
) -> None:
    (found,) = decode_both_ways(raw_row(**fields))

    assert (found["shard"], found["log"], found["pos"], found["row"]) == ("public.t", *place)


@pytest.mark.parametrize(
    ("source", "around"),
    [
        pytest.param({"sequence": '[null,"900"]'}, AROUND, id="no commit was seen before it"),
        pytest.param({"sequence": '["500","900"]'}, None, id="one was"),
        pytest.param({"sequence": '[null,"900"]', "snapshot": "last"}, "last", id="a snapshot's"),
    ],
)
def test_a_change_of_the_first_transaction_may_stand_below_the_snapshot(
    source: dict[str, Any], around: str | None
) -> None:
    found = decode_both_ways(raw_row(payload_schema(ID), source={**SOURCE, **source}))

    ddl = None if around == AROUND else around
    assert [(one["op"], one["snapshot"]) for one in found] == [("ddl", ddl), ("c", around)]


MYSQL = {"connector": "mysql", "db": "public", "file": "binlog.000007", "pos": 9, "row": 0}


@pytest.mark.parametrize(
    ("source", "snapshot"),
    [
        pytest.param({"sequence": '[null,"900"]'}, "last", id="all tables of Postgres"),
        pytest.param({"sequence": '["500","900"]'}, INCREMENTAL, id="a signal, of Postgres"),
        pytest.param({**MYSQL, "server_id": 0}, "last", id="all tables of MySQL"),
        pytest.param({**MYSQL, "server_id": 1}, INCREMENTAL, id="a signal, of MySQL"),
        pytest.param(MYSQL, "last", id="MySQL, and no server is named"),
    ],
)
def test_f102_a_row_that_a_signal_asked_for_is_of_no_snapshot_of_all_tables(
    source: dict[str, Any], snapshot: str
) -> None:
    """It tells where the stream stood, which a snapshot of all tables does not know."""
    (found,) = decode_both_ways(raw_row(op="r", source={**SOURCE, "snapshot": "last", **source}))

    assert (found["snapshot"], found["origin"]) == (snapshot, int(Origin.SNAPSHOT))


@pytest.mark.parametrize(
    "source",
    [
        pytest.param({"sequence": None}, id="no sequence"),
        pytest.param({"sequence": '["500"]'}, id="one place only"),
        pytest.param({"sequence": "[500,900]"}, id="numbers"),
        pytest.param({"lsn": None}, id="no place of its own"),
    ],
)
def test_a_change_without_a_place_is_an_error(source: dict[str, Any]) -> None:
    (found,) = decode_both_ways(raw_row(source={**SOURCE, **source}))

    assert (found["op"], found["error"], found["shard"]) == (
        Op.ERROR,
        POSTGRES.no_position,
        "public.t",
    )


def test_a_transaction_is_named_by_its_number_alone() -> None:
    begin = json.dumps({"status": "BEGIN", "id": "739:1", "ts_ms": 1}).encode()
    in_it = raw_row(transaction={"id": "739:900", "total_order": 1})

    found = decode_both_ways((None, begin, "p.transaction"), in_it)

    assert [one["tx"]["id"] for one in found] == ["739", "739"]


def test_a_message_of_an_application_says_nothing() -> None:
    source = {**SOURCE, "schema": "", "table": ""}

    (found,) = decode_both_ways(raw_row(op="m", after=None, source=source, message={"prefix": "p"}))

    assert (found["op"], found["shard"]) == (Op.HEARTBEAT, None)


def test_columns_come_before_the_first_row_and_again_where_they_change() -> None:
    old, new = payload_schema(ID), payload_schema(ID, text_field("b"))

    found = decode_both_ways(raw_row(old), raw_row(old), raw_row(new), raw_row(old), raw_row(None))

    assert [one["op"] for one in found] == ["ddl", "c", "c", "ddl", "c", "ddl", "c", "c"]
    assert [one["message"] for one in found] == [0, 0, 1, 2, 2, 3, 3, 4]
    assert (found[0]["log"], found[0]["pos"], found[0]["row"]) == (500, 900, 1)
    assert found[0]["schema_id"] == found[5]["schema_id"] != found[3]["schema_id"]


def test_a_key_with_half_a_letter_in_its_name_spoils_no_batch() -> None:
    found = decode_both_ways(
        raw_row(payload_schema(ID), key=b'{"\\ud800":1}'), raw_row(payload_schema(ID))
    )

    assert [one["op"] for one in found] == ["ddl", "c", "ddl", "c"]


def test_columns_that_are_told_are_read_back() -> None:
    enum = {
        "type": "string",
        "name": "io.debezium.data.Enum",
        "field": "m",
        "default": "sad",
        "parameters": {
            "allowed": "sad,ok",
            "__debezium.source.column.type": "MOOD",
            "__debezium.source.column.length": "9",
            "__debezium.source.column.scale": "0",
        },
    }
    payload = decode_both_ways(raw_row(payload_schema(ID, text_field("b"), enum)))[0]["after"]

    assert FORMAT().schema_change(payload) == SchemaMessage(
        "",
        tables=(
            TableDescription(
                ShardId("public", "t"),
                "alter",
                (
                    ColumnDescription("id", "INT4 as int32", nullable=False, position=1),
                    ColumnDescription("b", "unknown as string", position=2),
                    ColumnDescription(
                        "m",
                        "MOOD as data.Enum",
                        9,
                        0,
                        nullable=False,
                        default='"sad"',
                        position=3,
                        values=("sad", "ok"),
                    ),
                ),
                ("id",),
            ),
        ),
    )


def test_another_key_is_told_too() -> None:
    other = KEY.replace(b'"id":1', b'"b":1').replace(b"struct", b"struct2")

    found = decode_both_ways(
        raw_row(payload_schema(ID)),
        raw_row(payload_schema(ID), key=other),
        raw_row(payload_schema(ID), key=None),
    )

    keys = [FORMAT().schema_change(one["after"]).tables[0].key for one in found[::2]]
    assert keys == [("id",), ("b",), ()]


@pytest.mark.parametrize(
    "told_schema",
    [
        pytest.param({}, id="empty"),
        pytest.param(payload_schema(), id="no columns"),
        pytest.param(payload_schema({"type": 1}), id="a type that is no text"),
        pytest.param(
            payload_schema({**ID, "parameters": {"__debezium.source.column.length": "x"}}),
            id="a length that is no number",
        ),
    ],
)
def test_a_damaged_schema_tells_nothing_and_spoils_no_row(told_schema: dict[str, Any]) -> None:
    assert [one["op"] for one in decode_both_ways(raw_row(told_schema))] == ["c"]


def test_a_payload_of_another_kind_is_refused() -> None:
    with pytest.raises(FormatError):
        told_columns.decode_columns('{"rows_of":["a"]}')


def test_a_mysql_row_tells_no_columns() -> None:
    source = {"connector": "mysql", "db": "d", "table": "t", "file": "b.1", "pos": 1, "row": 0}

    assert [one["op"] for one in decode_both_ways(raw_row(payload_schema(ID), source=source))] == [
        "c"
    ]


@pytest.mark.parametrize("placeholder", sorted(Placeholder().spellings))
def test_what_is_left_out_is_taken_out(placeholder: bytes) -> None:
    key, value, topic = raw_row(after={"id": 1, "big": "?", "n": None})
    assert value is not None

    (found,) = decode_both_ways((key, value.replace(b'"?"', placeholder), topic))

    assert (found["after"], found["changed"]) == ('{"id":1,"n":null}', ["id", "n"])
    assert found["left_out"] == ["big"]


def test_what_the_row_before_tells_is_not_left_out() -> None:
    before = {"id": 1, "big": "old", "b": UNAVAILABLE, "c": None}
    after = {"id": 2, "big": UNAVAILABLE, "b": UNAVAILABLE, "c": UNAVAILABLE}

    (some,) = decode_both_ways(raw_row(op="u", before=before, after=after))
    (all_,) = decode_both_ways(raw_row(op="u", before={"big": "old"}, after={"big": UNAVAILABLE}))

    assert (some["after"], some["changed"]) == ('{"id":2,"big":"old"}', ["id", "big"])
    assert (all_["after"], all_["changed"]) == ('{"big":"old"}', None)
    assert (some["left_out"], all_["left_out"]) == (["b", "c"], None)


@pytest.mark.parametrize("placeholder", sorted(Placeholder().spellings))
def test_a_snapshot_leaves_no_value_out(placeholder: bytes) -> None:
    key, value, topic = raw_row(op="r", after={"id": 1, "big": "?"})
    assert value is not None
    sent = value.replace(b'"?"', placeholder)

    (found,) = decode_both_ways((key, sent, topic))

    assert json.loads(found["after"]) == json.loads(sent)["after"]
    assert (found["changed"], found["left_out"]) == (None, None)


def test_the_placeholder_may_be_another_word() -> None:
    sent = batch([raw_row(after={"id": 1, "big": "<gone>", "b": UNAVAILABLE})])

    (found,) = told(DebeziumJson(unavailable="<gone>").decode(sent, {}))

    assert found["changed"] == ["id", "b"]


def test_what_was_captured_is_read_whole() -> None:
    sent = [(m.key, m.value, m.topic) for m in messages("debezium_json") if "postgres" in m.id]

    found = decode_both_ways(*sent)

    partial = [one for one in found if one["changed"] is not None]
    assert [(one["op"], one["changed"]) for one in partial] == [
        ("u", ["id", "n", "d", "f"]),
        ("c", ["id", "n", "d", "f"]),
    ]
    assert {one["shard"] for one in found if one["op"] == Op.TRUNCATE} == {"public.parted_1"}
    assert {one["origin"] for one in found if one["snapshot"]} == {int(Origin.SNAPSHOT)}
    assert '"We ird.t.a""b"' not in {one["shard"] for one in found}
    assert str(ShardId("We ird", 't.a"b')) in {one["shard"] for one in found}
