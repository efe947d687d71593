"""Maxwell's JSON says what its corpus says, whatever happens to it on its way."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import ConfigError, FormatError
from pipeline.formats.maxwell_json import MaxwellJson
from pipeline.model import Ordering
from pipeline.schema.model import Notation
from tests.pipeline.corpus import messages
from tests.pipeline.formats.batches import batch, told
from tests.pipeline.formats.changes_told import decoded
from tests.pipeline.formats.maxwell_writer import MaxwellTable

FORMAT, WITHOUT = MaxwellJson(), MaxwellJson(positions=False)
CORPUS = messages("maxwell_json")
ORDERS = MaxwellTable("shop", "orders", ("id",))
VALUES = st.none() | st.integers(-(2**63), 2**64) | st.booleans() | st.text(max_size=9)
ROWS = st.fixed_dictionaries({"id": st.integers(0, 9), "name": VALUES | st.lists(VALUES)})


@given(ROWS, ROWS)
def test_rows_come_back_as_they_were_sent(was: dict[str, object], now: dict[str, object]) -> None:
    sent = [ORDERS.insert(was), ORDERS.update(was, now), ORDERS.delete(now)]

    found = [
        (row["message"], side, json.loads(row[side]))
        for row in told(FORMAT.decode(batch(sent), {}))
        for side in ("before", "after")
        if row[side] is not None
    ]

    update = [(1, "before", was), (1, "after", now)]
    same = [] if was != now else [(1, "after", now)]
    assert found == [(0, "after", was), *(same or update), (2, "before", now)]


def test_without_positions_an_order_is_an_offset_and_messages_need_tell_none() -> None:
    (found,) = told(WITHOUT.decode(batch([ORDERS.insert({"id": 1}, place=None)]), {}))

    assert (FORMAT.ordering, WITHOUT.ordering) == (Ordering.LOG, Ordering.OFFSET)
    assert (found["op"], found["log"], found["pos"], found["row"]) == ("c", None, None, None)


def test_a_row_that_nothing_tells_from_others_of_its_event_is_quarantined() -> None:
    bare = {"database": "shop", "table": "orders", "type": "update", "position": "binlog.000001:4"}
    sent = [json.dumps({**bare, "data": {"id": 1, "n": n}, "old": {}}).encode() for n in (1, 2)]

    assert [one["op"] for one in decoded(FORMAT, sent)] == ["error", "error"]
    assert [one["op"] for one in decoded(WITHOUT, sent)] == ["u", "u"]


def test_positions_are_not_told_where_offsets_are_the_order() -> None:
    (found,) = told(WITHOUT.decode(batch([ORDERS.insert({"id": 1})]), {}))

    assert (found["log"], found["pos"], found["row"]) == (None, None, None)


def test_a_statement_tells_the_table_that_it_leaves() -> None:
    alter = next(one for one in CORPUS if one.id.endswith(": an alter"))

    found = FORMAT.schema_change((alter.value or b"").decode())

    (table,) = found.tables
    assert (found.text, found.database) == (
        "alter table shop.e add column torvalds bigint unsigned",
        "shop",
    )
    assert (str(table.shard), table.kind, table.key) == ("shop.e", "alter", ("id",))
    assert [(one.type, one.length, one.values) for one in table.columns] == [
        ("INT", None, ()),
        ("BIGINT UNSIGNED", None, ()),
        ("TIMESTAMP", 6, ()),
        ("ENUM", None, ("a", "b")),
        ("VARCHAR", None, ()),
    ]
    assert {one.notation for one in table.columns} == {Notation.PLAIN}


def test_a_drop_takes_its_table_and_a_database_tells_none() -> None:
    drop = {"type": "table-drop", "database": "shop", "table": "e", "sql": "drop table e"}
    made = {"type": "database-create", "database": "other", "sql": "create database other"}

    (table,) = FORMAT.schema_change(json.dumps(drop)).tables

    assert (str(table.shard), table.kind, table.columns) == ("shop.e", "drop", ())
    assert FORMAT.schema_change(json.dumps(made)).tables == ()


@pytest.mark.parametrize(
    "payload", ["", "{}", '{"type":"table-alter"}', '{"rows_of":1}', '{"type":1,"sql":""}']
)
def test_what_is_no_schema_change_is_refused(payload: str) -> None:
    with pytest.raises(FormatError):
        FORMAT.schema_change(payload)


def test_the_topic_of_its_statements_is_read_too() -> None:
    assert FORMAT.added_topics("shop") == ()
    assert MaxwellJson(statements="maxwell_ddl").added_topics("shop") == ("maxwell_ddl",)


def test_statements_of_another_topic_are_refused_where_offsets_are_the_order() -> None:
    with pytest.raises(ConfigError, match=r"maxwell_ddl.* no order among rows"):
        MaxwellJson(positions=False, statements="maxwell_ddl")


def test_what_makes_no_sense_spoils_no_other_message() -> None:
    whole = ORDERS.insert({"id": 1})[1]
    assert whole

    found = decoded(FORMAT, [whole, whole[:-1], None, whole])

    assert [one["op"] for one in found] == ["c", "error", "error", "c"]
    assert [one["raw"] for one in found] == [None, whole[:-1], None, None]


@pytest.mark.parametrize("depth", [300, 600, 900, 5_000])
def test_a_key_of_lists_in_lists_spoils_no_other_message(depth: int) -> None:
    """Read it could be, and not written: its source landed nothing more."""
    key, whole, topic = ORDERS.insert({"id": 1})
    assert whole
    deep = whole.replace(b'"id":1', b'"id":' + b"[" * depth + b"]" * depth)
    assert deep != whole

    (odd, row) = told(FORMAT.decode(batch([(key, deep, topic), (key, whole, topic)]), {}))

    assert (odd["op"], row["op"]) == ("error", "c")
