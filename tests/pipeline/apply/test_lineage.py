"""A column is found from both sides, through shards, standards and names of before."""

import time

import pytest

from pipeline.apply.catalog import Catalog
from pipeline.apply.lineage import columns_of_before, find_links, links_of_tables
from pipeline.model import Order, Shard
from pipeline.schema.history import SchemaChange
from pipeline.schema.model import TableSchema
from pipeline.settings import Router, StandardRule, TableRule
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.standards.hash import KeyedHash
from pipeline.standards.table_standards import Standards
from tests.builders.values import by_shard
from tests.pipeline.reading import readings

ID, PHONE = Column("id", "BIGINT"), Column("phone", "BIGINT")
RULES = (TableRule(r"shop_\d+\.orders", "shop.orders"),)
HASH = ("hash", KeyedHash(("phone",), "0123456789abcdef"))
STANDARDS = Standards((StandardRule("shop.orders", ("id",), (HASH,)),))
SHARDS = by_shard(
    {
        "a/shop_1.orders": "shop.orders",
        "b/shop_2.orders": "shop.orders",
        "a/shop.users": "shop.users",
        "a/shop.scratch": None,
    }
)


def _made(shard: str, at: int, previous: str | None = None) -> SchemaChange:
    order = Order(1, 1, at)
    schema = TableSchema(shard, order, (ID, PHONE), ("id",))
    return SchemaChange("alter" if previous else "create", shard, order, schema, "", previous)


@pytest.fixture
def catalog() -> Catalog:
    made = Catalog(Router(RULES), readings("a", "b"), STANDARDS)
    made.learn([("a", _made("shop_1.orders", 1)), ("b", _made("shop_2.orders", 1))])
    made.learn([("a", _made("shop.people", 1)), ("a", _made("shop.customers", 2, "shop.people"))])
    made.learn([("a", _made("shop.users", 3, "shop.customers")), ("a", _made("shop.scratch", 1))])
    return made


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        pytest.param(
            "shop.orders.phone",
            ["a/shop_1.orders.phone", "b/shop_2.orders.phone"],
            id="a_mirrors_column_of_every_shard",
        ),
        pytest.param("shop_2.orders.phone", ["b/shop_2.orders.phone"], id="a_shards_column"),
        pytest.param("a/shop_1.orders.id", ["a/shop_1.orders.id"], id="with_its_source"),
        pytest.param(
            "shop.orders",
            [
                *("a/shop_1.orders.id", "a/shop_1.orders.phone"),
                *("b/shop_2.orders.id", "b/shop_2.orders.phone"),
            ],
            id="a_whole_table",
        ),
        pytest.param("shop.people.id", ["a/shop.users.id"], id="a_name_of_long_ago"),
        pytest.param("shop.customers.id", ["a/shop.users.id"], id="a_name_of_before"),
        pytest.param("shop.scratch", [], id="what_the_rules_ignore"),
        pytest.param("shop.orders.fax", [], id="no_such_column"),
        pytest.param("shop.order", [], id="no_such_table"),
    ],
)
def test_a_name_of_either_side_finds_both(catalog: Catalog, asked: str, wanted: list[str]) -> None:
    found = find_links(catalog, SHARDS, asked)

    assert [f"{one.shard}.{one.column}" for one in found] == wanted


def test_the_standard_and_both_types_are_told(catalog: Catalog) -> None:
    (phone,) = find_links(catalog, SHARDS, "shop_2.orders.phone")
    (id_,) = find_links(catalog, SHARDS, "shop_2.orders.id")

    assert (phone.type, phone.mirror_type, phone.standard) == ("BIGINT", "string", "hash")
    assert phone.hides
    assert (id_.type, id_.mirror_type, id_.standard, id_.hides) == ("BIGINT", "bigint", "", False)


def test_names_of_before_are_told_the_newest_first(catalog: Catalog) -> None:
    one, _ = find_links(catalog, SHARDS, "shop.users")

    assert one.before == ("shop.customers", "shop.people")
    assert one.shard == Shard("a", "shop.users")


def test_tables_are_told_apart_as_one_that_is_asked_for(catalog: Catalog) -> None:
    found = links_of_tables(catalog, SHARDS, ["shop.orders", "shop.users", "shop.fax"])

    assert found["shop.orders"] == find_links(catalog, SHARDS, "shop.orders")
    assert found["shop.users"] == find_links(catalog, SHARDS, "shop.users")
    assert found["shop.fax"] == ()


def test_thousands_of_tables_with_a_statement_each_are_no_matter_of_seconds() -> None:
    """Looking through all statements for each shard took half a minute of 5,000."""
    made, names = Catalog(Router(()), readings("a")), [f"db.t{n}" for n in range(3000)]
    made.learn([("a", _made(name, at)) for at, name in enumerate(names)])
    began = time.process_time()

    found = find_links(made, {Shard.parse(f"a/{name}"): name for name in names}, "db.t7.phone")

    assert [one.table for one in found] == ["db.t7"]
    assert time.process_time() - began < 2


def test_a_column_that_has_another_name_now_is_told_by_its_statement(catalog: Catalog) -> None:
    """Which of two columns became which, a statement says, and no schema does."""
    order = Order(1, 1, 9)
    columns = (ID, Column("mobile", "BIGINT"))
    schema = TableSchema("shop_2.orders", order, columns, ("id",))
    said = "ALTER TABLE orders\n  RENAME COLUMN phone TO mobile"
    catalog.learn([("b", SchemaChange("alter", "shop_2.orders", order, schema, said))])

    for name in ("shop.orders.phone", "shop_2.orders.phone", "b/shop_2.orders.phone"):
        (told,) = columns_of_before(catalog, SHARDS, name)
        wanted = "until: ALTER TABLE orders RENAME COLUMN phone TO mobile"
        assert str(told) == f"b/shop_2.orders had a column phone, {wanted}"
    assert not columns_of_before(catalog, SHARDS, "shop.orders.fax")
    assert not columns_of_before(catalog, SHARDS, "shop.orders.mobile")
    assert not columns_of_before(catalog, SHARDS, "shop.orders")
