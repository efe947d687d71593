"""Shards by the names in statements' texts, odd ones too, and what many of both cost."""

import string
from random import Random

import pytest

from pipeline.landing.next_checkpoint import shards_named_in_ddl
from pipeline.model import Shard


def test_a_relation_within_a_longer_word_counts() -> None:
    assert shards_named_in_ddl(
        [("s", "ALTER TABLE `_Orders_new` ADD x INT")], [Shard("s", "db.orders")]
    ) == {Shard("s", "db.orders")}


@pytest.mark.parametrize("text", ["DROP DATABASE db", "drop schema `DB`"])
def test_a_database_counts_where_a_statement_may_be_about_one(text: str) -> None:
    assert shards_named_in_ddl(
        [("s", text)], [Shard("s", "db.orders"), Shard("s", "shop.orders")]
    ) == {Shard("s", "db.orders")}


@pytest.mark.parametrize(
    ("source", "table"),
    [
        pytest.param("s", "db.items", id="another table of the database"),
        pytest.param("other", "orders", id="another source"),
    ],
)
def test_a_statement_names_no_shard_of_another_table_or_source(source: str, table: str) -> None:
    text = f"ALTER TABLE {table} ADD x INT"

    assert shards_named_in_ddl([(source, text)], [Shard("s", "db.orders")]) == set()


@pytest.mark.parametrize("relation", ["or ders", "or-ders", "or$ders", "größe", "or`ders"])
def test_names_of_other_than_word_characters_are_found(relation: str) -> None:
    text = f"ALTER TABLE `{relation.replace('`', '``')}` ADD x INT"

    assert shards_named_in_ddl(
        [("s", text)], [Shard("s", f"db.{relation}"), Shard("s", "db.u")]
    ) == {Shard("s", f"db.{relation}")}


def test_names_are_found_wherever_they_stand() -> None:
    """Cut into words, a text holds no less than it did."""
    random = Random(7)
    letters = "ab_1 .`$-ä" + string.ascii_uppercase[:2]
    for _ in range(2_000):
        text = "".join(random.choices(letters, k=12))
        relation = "".join(random.choices(letters.replace(".", ""), k=random.randint(1, 3)))
        folded, shard = (
            f"{text}\n{text.replace('``', '`')}".casefold(),
            Shard("s", f"d.{relation}"),
        )

        assert shards_named_in_ddl([("s", text)], [shard]) == (
            {shard} if relation.casefold() in folded else set()
        )
