"""Schemas by order, as real schema changes told them, and what a mirror may follow."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import Order
from pipeline.schema.history import History, SchemaChange
from pipeline.schema.model import (
    Compatible,
    Incompatible,
    TableSchema,
    compare_schemas,
    merge_schemas,
)
from pipeline.sources.mysql.ddl_effects import is_wider
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.sources.mysql.types import mysql_columns
from tests.pipeline.corpus import messages
from tests.pipeline.reading import parse
from tests.pipeline.schema_messages import described, message


def captured() -> tuple[SchemaChange, ...]:
    """Schema changes of a real run, in the order they were sent."""
    sent = [
        json.loads(m.value or b"")
        for m in messages("debezium_json")
        if m.topic == "plain" and m.expect["op"] == "ddl" and m.id.startswith("captured")
    ]
    return tuple(
        change
        for payload in sent
        for change in parse(
            json.dumps(payload), Order(1, 1, payload["source"]["pos"], payload["source"]["row"])
        )
    )


def schema_with(
    *columns: Column, key: tuple[str, ...] = ("id",), shard: str = "d.t"
) -> TableSchema:
    placed = (replace(c, position=n) for n, c in enumerate((ID, *columns), 1))
    return TableSchema(shard, Order(1, 1, 1), tuple(placed), key)


ID = Column("id", "INT", nullable=False)
A = Column("a", "VARCHAR", 10)
END = Order(9, 0, 0)


def test_a_table_is_known_from_its_snapshot_although_drop_and_create_stand_together() -> None:
    every = History(*captured()).newest("typ.every")

    assert every is not None
    assert every.key == ("id",)
    assert [str(every.column(name)) for name in ("c_ubig", "c_dec38", "c_dt6", "c_bit12")] == [
        "BIGINT UNSIGNED",
        "DECIMAL(38,30)",
        "DATETIME(6)",
        "BIT(12)",
    ]
    assert str(every.column("c_set")) == "SET('x','y z','é')"
    assert all(c.generated == (c.name in ("c_stored", "c_virtual")) for c in mysql_columns(every))


def test_changes_given_in_any_order_tell_the_same() -> None:
    changes = captured()

    backwards = History(*reversed(changes))

    shards = {change.shard for change in changes}
    assert {s: backwards.newest(s) for s in shards} == {
        s: History(*changes).newest(s) for s in shards
    }


def test_the_schema_in_force_is_chosen_by_order() -> None:
    altered = [c for c in captured() if c.shard == "typ.defs"]
    history = History(*captured())

    seen = [history.at("typ.defs", change.order) for change in altered]
    before = replace(altered[0].order, pos=altered[0].order.pos - 1)

    assert [
        s and [c.name for c in s.columns if c.name in ("a", "b", "bb", "zz")] for s in seen
    ] == [
        ["a", "b"],
        ["a", "b", "zz"],
        ["a", "b", "zz"],
        ["a", "bb", "zz"],
        ["a", "zz"],
        ["a", "zz"],
    ]
    assert history.at("typ.defs", before) is None
    assert history.at("typ.nowhere", END) is None


def test_a_renamed_table_ends_under_its_old_name() -> None:
    history = History(*captured())

    assert history.newest("typ.defs") is None
    assert history.newest("typ.defs2") is None
    assert history.newest("typ.defs3") is not None


def test_a_dropped_table_has_no_schema_any_more() -> None:
    assert History(*captured()).newest("typ.gone") is None


def test_a_table_without_primary_key_goes_by_its_unique_set() -> None:
    uk = next(c.schema for c in captured() if c.shard == "typ.uk")

    assert uk is not None
    assert uk.key == ("b", "a")


def test_a_column_stays_computed_when_later_statements_do_not_say_so() -> None:
    first, second = "ALTER TABLE t ADD g INT AS (id * 2) STORED", "ALTER TABLE t ADD h INT"
    told = (
        message(first, described(first, "t", "id INT!, g INT")),
        message(second, described(second, "t", "id INT!, g INT, h INT")),
    )

    history = History(*(c for n, one in enumerate(told) for c in parse(one, Order(1, 1, n))))

    newest = history.newest("db.t")
    assert newest is not None
    assert [c.generated for c in mysql_columns(newest)] == [False, True, False]


def test_a_statement_about_no_table_changes_nothing() -> None:
    assert parse('{"ddl":"CREATE DATABASE x","tableChanges":[]}', END) == ()


FOLLOWED = {
    "nullable": Column("b", "INT"),
    "constant default": Column("b", "INT", nullable=False, default="5"),
    "nullable json": Column("b", "JSON"),
    "empty text": Column("b", "VARCHAR", 5, nullable=False, default=""),
    "boolean": Column("b", "BOOL", nullable=False, default="FALSE"),
    "moment": Column("b", "DATETIME", 3, default="2020-01-01 00:00:00"),
}
UNFILLED = {
    "not null without default": Column("b", "INT", nullable=False),
    "generated": Column("b", "INT", generated=True),
    "default now()": Column("b", "DATETIME", default="1970-01-01 00:00:00"),
    "timestamp default": Column("b", "TIMESTAMP", default="2020-01-01 00:00:00"),
    "zero date": Column("b", "DATE", nullable=False, default="0000-00-00"),
    "bits without base": Column("b", "BIT", 9, default="101"),
    "expression": Column("b", "INT", default="(1 + 1)"),
}


@pytest.mark.parametrize("added", FOLLOWED.values(), ids=FOLLOWED)
def test_an_added_column_whose_old_value_is_known_is_followed(added: Column) -> None:
    found = compare_schemas(schema_with(A), schema_with(A, added))

    assert isinstance(found, Compatible)
    assert [column.name for column in found.added] == ["b"]


@pytest.mark.parametrize("added", UNFILLED.values(), ids=UNFILLED)
def test_an_added_column_whose_old_value_is_not_known_holds(added: Column) -> None:
    found = compare_schemas(schema_with(A), schema_with(A, added))

    assert isinstance(found, Incompatible)
    assert "column b was added" in found.why
    assert "ALTER TABLE `d`.`t` DROP COLUMN `b`" in found.statement


GROWTH = [
    ("TINYINT", "SMALLINT", True),
    ("TINYINT", "BIGINT", True),
    ("INT", "BIGINT", True),
    ("INT(11)", "INT", True),
    ("TINYINT UNSIGNED", "SMALLINT", True),
    ("INT UNSIGNED", "BIGINT UNSIGNED", True),
    ("BIGINT", "INT", False),
    ("INT", "INT UNSIGNED", False),
    ("INT UNSIGNED", "INT", False),
    ("INT", "BIGINT UNSIGNED", False),
    ("BOOL", "TINYINT(1)", True),
    ("VARCHAR(10)", "VARCHAR(20)", True),
    ("VARCHAR(20)", "VARCHAR(10)", False),
    ("VARBINARY(3)", "VARBINARY(9)", True),
    ("BINARY(3)", "BINARY(9)", False),
    ("TEXT", "LONGTEXT", True),
    ("LONGBLOB", "BLOB", False),
    ("VARCHAR(10)", "TEXT", False),
    ("DECIMAL(10,2)", "DECIMAL(12,2)", True),
    ("DECIMAL(10,2) UNSIGNED", "DECIMAL(10,2)", True),
    ("DECIMAL(10,2)", "DECIMAL(10,2) UNSIGNED", False),
    ("DECIMAL(10,2)", "DECIMAL(12,4)", False),
    ("DECIMAL(38,2)", "DECIMAL(39,2)", False),
    ("DECIMAL(39,2)", "DECIMAL(60,2)", True),
    ("DATETIME(3)", "DATETIME(6)", False),
    ("DATETIME", "DATETIME(1)", False),
    ("TIMESTAMP", "DATETIME", False),
    ("TIME(3)", "TIME(6)", False),
    ("FLOAT", "DOUBLE", False),
    ("BIT(1)", "BIT(2)", False),
    ("YEAR(4)", "YEAR", True),
    ("ENUM(a,b)", "ENUM(a,b,c)", True),
    ("ENUM(a,b)", "ENUM(a,c,b)", False),
    ("SET(a)", "SET(a,b)", True),
    ("SET(a,b)", "SET(a)", False),
    ("ENUM(a)", "SET(a)", False),
    ("JSON", "LONGTEXT", False),
    ("GEOMETRY", "GEOMETRY", True),
]


@pytest.mark.parametrize(("old", "new", "followed"), GROWTH)
def test_a_type_is_followed_only_where_every_value_keeps_its_meaning(
    old: str, new: str, followed: bool
) -> None:
    found = compare_schemas(schema_with(parse_column(old)), schema_with(parse_column(new)))

    assert isinstance(found, Compatible) == followed
    if isinstance(found, Incompatible):
        assert f"ALTER TABLE `d`.`t` MODIFY `c` {parse_column(old)}" in found.statement


HELD = {
    "dropped": (schema_with(), "column a is gone"),
    "renamed": (schema_with(replace(A, name="b")), "column a is now b"),
    "another of its type": (schema_with(Column("x", "INT"), replace(A, name="b")), "a is gone"),
    "not null": (schema_with(replace(A, nullable=False)), "a is NOT NULL"),
    "key grown": (schema_with(A, key=("id", "a")), "the key changed"),
    "key gone": (schema_with(A, key=()), "the key changed"),
}


@pytest.mark.parametrize(("new", "why"), HELD.values(), ids=HELD)
def test_what_cannot_be_followed_names_the_cause_and_the_way_out(
    new: TableSchema, why: str
) -> None:
    found = compare_schemas(schema_with(A), new)

    assert isinstance(found, Incompatible)
    assert why in found.why
    assert "new base of d.t" in found.statement


def test_what_changes_no_row_is_no_change() -> None:
    old = schema_with(replace(A, nullable=False), Column("b", "INT", 11, default="5"))
    new = schema_with(Column("b", "INTEGER"), A)

    assert compare_schemas(old, new) == Compatible()


def test_shards_at_different_steps_share_one_wider_schema() -> None:
    one = schema_with(A, Column("n", "INT"), shard="s0.t")
    other = schema_with(Column("n", "BIGINT"), replace(A, length=20, nullable=False), shard="s1.t")
    late = schema_with(A, Column("n", "INT"), Column("z", "DATE"), shard="s2.t")

    merged = merge_schemas([one, other, late])

    assert isinstance(merged, TableSchema)
    assert [f"{c.name} {c}" for c in merged.columns] == [
        "id INT",
        "a VARCHAR(20)",
        "n BIGINT",
        "z DATE",
    ]
    assert merged.shard == "s0.t"
    assert [c.nullable for c in mysql_columns(merged)] == [False, True, True, True]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        pytest.param(schema_with(Column("a", "INT"), shard="s.t"), "a is VARCHAR", id="types"),
        pytest.param(schema_with(A, key=("a",), shard="s.t"), "key", id="keys"),
        pytest.param(
            schema_with(A, Column("b", "INT", nullable=False), shard="s.t"),
            "b was added",
            id="column",
        ),
    ],
)
def test_shards_that_cannot_share_a_mirror_are_named(other: TableSchema, why: str) -> None:
    found = merge_schemas([schema_with(A), other])

    assert isinstance(found, Incompatible)
    assert why in found.why


def parse_column(text: str) -> Column:
    """Column c of a type written as in MySQL, labels without quotes."""
    head, _, rest = text.partition("(")
    inside, _, sign = rest.partition(")")
    parts = [p for p in inside.split(",") if p]
    if head in ("ENUM", "SET"):
        return Column("c", head, values=tuple(parts))
    length, scale = (*map(int, parts), None, None)[:2]
    return Column("c", head + sign, length, scale)


KINDS = st.sampled_from(sorted({kind for old, new, _ in GROWTH for kind in (old, new)})).map(
    parse_column
)


@given(kind=KINDS)
def test_a_schema_compared_with_itself_has_no_change(kind: Column) -> None:
    assert compare_schemas(schema_with(kind), schema_with(kind)) == Compatible()


@given(one=KINDS, two=KINDS, three=KINDS)
def test_widening_is_transitive(one: Column, two: Column, three: Column) -> None:
    assert not (is_wider(one, two) and is_wider(two, three)) or is_wider(one, three)


@given(one=KINDS, two=KINDS)
def test_widening_both_ways_means_the_same_type(one: Column, two: Column) -> None:
    assert not (is_wider(one, two) and is_wider(two, one)) or one.shape == two.shape
