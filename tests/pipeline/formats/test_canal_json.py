"""Canal's flat JSON says what its corpus says, whatever happens to it on its way."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import ConfigError, FormatError
from pipeline.formats.canal_json import CanalJson
from pipeline.formats.canal_types import describe_column
from pipeline.model import Op, Ordering, ShardId
from pipeline.schema.model import ColumnDescription, Notation, TableDescription
from tests.pipeline.formats.canal_writer import CanalTable, Texts
from tests.pipeline.formats.changes_told import (
    brief,
    decoded,
)

FORMAT = CanalJson("UTC")
ORDERS = CanalTable("shop", "orders", {"id": "int", "name": "varchar(9)"}, ("id",))
ROWS = st.fixed_dictionaries(
    {"id": st.text(max_size=9), "name": st.none() | st.text(max_size=9)}
).map(lambda row: {name: _whole(text) for name, text in row.items()})


def _whole(text: str | None) -> str | None:
    return None if text is None else text.encode("utf-8", "replace").decode()


@given(st.lists(st.tuples(ROWS, ROWS), min_size=1, max_size=4))
def test_rows_come_back_as_they_were_sent(pairs: list[tuple[Texts, Texts]]) -> None:
    sent = [
        ORDERS.insert(*(one for one, _ in pairs)),
        ORDERS.update(*pairs),
        ORDERS.delete(*(one for _, one in pairs)),
    ]

    images = [
        (row["message"], side, json.loads(row[side]))
        for row in decoded(FORMAT, sent)
        if row["schema_id"] is None
        for side in ("before", "after")
        if row[side] is not None
    ]

    update = [(1, side, row) for pair in pairs for side, row in zip(SIDES, pair, strict=True)]
    inserted = [(0, "after", one) for one, _ in pairs]
    assert images == [*inserted, *update, *((2, "before", one) for _, one in pairs)]


SIDES = ("before", "after")


def test_columns_are_told_once_and_again_where_they_are_others() -> None:
    wider = CanalTable("shop", "orders", {**ORDERS.types, "note": "text"}, ORDERS.key)
    row = {"id": "1", "name": None}
    sent = [ORDERS.insert(row), ORDERS.delete(row), wider.insert({**row, "note": "n"})]

    found = decoded(FORMAT, sent)

    assert [(row["message"], row["op"]) for row in found] == [
        *[(0, "ddl"), (0, "c"), (1, "d"), (2, "ddl"), (2, "c")],
    ]
    (table,) = FORMAT.schema_change(found[3]["after"]).tables
    assert (str(table.shard), table.key) == ("shop.orders", ("id",))
    assert [one.name for one in table.columns] == ["id", "name", "note"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("bigint(20) unsigned", ("BIGINT UNSIGNED", 20, None, ()), id="a sign"),
        pytest.param("int unsigned zerofill", ("INT UNSIGNED ZEROFILL", None, None, ()), id="two"),
        pytest.param("DECIMAL(10,2)", ("DECIMAL", 10, 2, ()), id="digits"),
        pytest.param("datetime(6)", ("DATETIME", 6, None, ()), id="a fraction"),
        pytest.param(
            "enum('a','b''c','d\\'e')", ("ENUM", None, None, ("a", "b'c", "d\\'e")), id="q"
        ),
        pytest.param("set('x)','y,z')", ("SET", None, None, ("x)", "y,z")), id="odd labels"),
        pytest.param("double", ("DOUBLE", None, None, ()), id="bare"),
        pytest.param("varchar(20) character set utf8", ("VARCHAR", 20, None, ()), id="a charset"),
        pytest.param("?!", ("?!", None, None, ()), id="nobody knows"),
    ],
)
def test_a_type_is_read_as_the_server_spells_it(text: str, expected: tuple[Any, ...]) -> None:
    found = describe_column("c", text, 3)

    assert (found.type, found.length, found.scale, found.values) == expected
    assert (found.nullable, found.default, found.position) == (False, None, 3)


def test_a_statement_tells_its_words_and_no_columns() -> None:
    (found,) = decoded(FORMAT, [ORDERS.statement("ALTER", "alter table orders add note text")])

    told = FORMAT.schema_change(found["after"])

    assert (told.text, told.database) == ("alter table orders add note text", "shop")
    assert (told.tables, told.snapshot) == ((), False)


def test_columns_that_somebody_else_tells_are_read_as_rows_tell_them() -> None:
    columns = (ColumnDescription("id", "INT", notation=Notation.TEXTS, position=1, nullable=False),)
    table = TableDescription(ShardId("shop", "orders"), "alter", columns, ("id",))

    assert FORMAT.schema_change(FORMAT.columns_payload(table)).tables == (table,)


@pytest.mark.parametrize(
    "payload", ["", "{}", '{"rows_of":1}', '{"isDdl":true}', '{"isDdl":false}']
)
def test_what_is_no_schema_change_is_refused(payload: str) -> None:
    with pytest.raises(FormatError):
        FORMAT.schema_change(payload)


def test_times_in_another_zone_than_utc_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"-Duser\.timezone=UTC"):
        CanalJson("Asia/Shanghai")


def test_what_makes_no_sense_spoils_no_other_message() -> None:
    row = {"id": "1", "name": "a"}
    whole = ORDERS.insert(row)

    found = decoded(FORMAT, [whole, whole[:-1], None, ORDERS.delete(row)])

    assert [one["op"] for one in found] == ["ddl", "c", "error", "error", "d"]
    assert brief(found[2])["error"].startswith("value is no flat message of canal")
    assert [one["raw"] for one in found] == [None, None, whole[:-1], None, None]


def test_it_asks_for_nothing_beside_the_value() -> None:
    assert (FORMAT.ordering, FORMAT.columns, FORMAT.registry) == (Ordering.OFFSET, (), None)
    assert FORMAT.added_topics("shop") == ()


def test_an_error_names_its_table_where_the_message_does() -> None:
    (found,) = decoded(FORMAT, [ORDERS.insert()])

    assert (found["op"], found["shard"]) == (Op.ERROR, "shop.orders")
