"""What a schema-change message tells, as a real collector wrote them."""

import json
from typing import Any

import pytest

from pipeline.errors import FormatError
from pipeline.formats.debezium import envelope
from pipeline.formats.debezium_json import FORMAT
from pipeline.model import Order, ShardId
from pipeline.sources.mysql.types import mysql_columns
from tests.pipeline.corpus import messages
from tests.pipeline.reading import read

END = Order(9, 0, 0)


def test_captured_messages_tell_statement_database_and_tables() -> None:
    sent = [
        m.value.decode()
        for m in messages("debezium_json")
        if m.topic == "plain"
        and m.expect["op"] == "ddl"
        and m.id.startswith("captured")
        and m.value
    ]

    told = [read(payload, END) for payload in sent]

    assert {t.snapshot for t in told} == {True, False}
    assert all(t.text for t in told)
    every = [schema for t in told for shard, schema in t.tables if shard == ShardId("typ", "every")]
    assert every[-1] is not None
    assert every[-1].shard == "typ.every"
    assert every[-1].key == ("id",)
    generated = {column.name for column in mysql_columns(every[-1]) if column.generated}
    assert generated == {"c_stored", "c_virtual"}


def test_f05_a_table_with_a_quote_in_its_name_is_told_of() -> None:
    change = {"type": "DROP", "id": '"fx"."we""ird.x`y"', "table": None}

    told = read(json.dumps({"ddl": "DROP TABLE x", "tableChanges": [change]}), END)

    assert told.tables == ((ShardId("fx", 'we"ird.x`y'), None),)


@pytest.mark.parametrize("quoted", ["'it''s, it'", '"it\'s, it"'])
def test_labels_are_read_in_whichever_quotes_they_were_written(quoted: str) -> None:
    column = {"name": "c", "typeName": "ENUM", "optional": True, "position": 1}
    table = {"columns": [{**column, "enumValues": [quoted]}]}
    change = {"type": "ALTER", "id": '"s"."t"', "table": table}

    ((_, schema),) = read(json.dumps({"ddl": "", "tableChanges": [change]}), END).tables

    assert schema is not None
    assert mysql_columns(schema)[0].values == ("it's, it",)


@pytest.mark.parametrize(
    ("snapshot", "expected"), [(None, False), ("false", False), ("true", True), ("last", True)]
)
def test_a_snapshot_only_describes(snapshot: str | None, expected: bool) -> None:
    message = {"ddl": "CREATE TABLE t (id INT)", "source": {"snapshot": snapshot}}

    assert read(json.dumps(message), END).snapshot is expected


@pytest.mark.parametrize(
    "after",
    [
        pytest.param("", id="empty"),
        pytest.param("[]", id="no object"),
        pytest.param('{"tableChanges":[{"type":"ODD","id":"\\"a\\".\\"b\\""}]}', id="odd type"),
        pytest.param('{"tableChanges":[{"type":"DROP","id":"x"}]}', id="odd id"),
        pytest.param('{"tableChanges":[{"type":"CREATE"}]}', id="no id"),
    ],
)
def test_a_schema_change_that_is_none_is_refused(after: str) -> None:
    with pytest.raises(FormatError, match="schema change"):
        read(after, END)


@pytest.mark.parametrize(
    "told",
    [
        pytest.param({"ddl": {"a": None}}, id="a statement that is no text"),
        pytest.param({"ddl": "x", "databaseName": ["db"]}, id="a database that is no name"),
        pytest.param({"ddl": "x", "source": {"snapshot": [[]]}}, id="a snapshot of another kind"),
        pytest.param({"ddl": "x", "tableChanges": {"id": "x"}}, id="changes that are no list"),
        pytest.param({"name": [1, 2]}, id="a column's name that is no text"),
        pytest.param({"typeName": None}, id="a type without a name"),
        pytest.param({"length": "80"}, id="a length that is no number"),
        pytest.param({"scale": 0.5}, id="a scale that is no whole number"),
        pytest.param({"defaultValueExpression": {}}, id="a default that is no text"),
        pytest.param({"enumValues": [1]}, id="a label that is no text"),
    ],
)
def test_what_is_of_another_kind_than_debezium_writes_is_no_schema_change(told: Any) -> None:
    """It would break landing, or the next start, and not be quarantined."""
    column = {"name": "c", "typeName": "INT", "optional": True, "position": 1, **told}
    change = {"type": "ALTER", "id": '"s"."t"', "table": {"columns": [column]}}
    message = told if "ddl" in told else {"ddl": "x", "tableChanges": [change]}

    with pytest.raises(FormatError, match="not built as Debezium's"):
        read(json.dumps(message), END)


@pytest.mark.parametrize(
    ("relation", "id_"),
    [
        pytest.param('"odd"', '"shop"."odd"', id="a quote at both ends"),
        pytest.param('"odd', '"shop"."odd', id="a quote at the beginning"),
        pytest.param('odd"', '"shop".odd"', id="a quote at the end"),
        pytest.param('o"dd', '"shop"."o""dd"', id="a quote inside, doubled by Debezium"),
    ],
)
def test_f05_a_quoted_name_is_the_same_table_in_the_event_and_in_its_description(
    relation: str, id_: str
) -> None:
    """Debezium leaves a name that begins or ends with a quote as it is."""
    place = {"file": "binlog.000003", "pos": 157, "row": 0, "db": "shop", "table": relation}
    change = {"type": "DROP", "id": id_, "table": None}
    message = {"source": place, "ddl": "DROP TABLE x", "tableChanges": [change]}
    value = json.dumps(message).encode()

    event = envelope.decode_message(None, value, "p")
    (table,) = FORMAT().schema_change(event.after or "").tables

    assert event.shard == str(table.shard) == str(ShardId("shop", relation))
