"""Statements that are half told, half read or in other databases; cases as in test_effects.

What is not known for certain holds the table, never stops the source, and holds no other table.
"""

import pytest

from pipeline.model import Order, ShardId
from pipeline.schema.model import BaseNeeded, Empty, Replace, SchemaEvent
from pipeline.sources.mysql.ddl_effects import creates_empty_table
from pipeline.sources.mysql.ddl_parser import parse_statement
from pipeline.sources.mysql.dialect import MYSQL
from tests.pipeline.sources.mysql.test_effects import (
    BOTH,
    HERE,
    SAME,
    TABLE,
    all_written,
    effects,
    known,
    schema,
    told,
)

GROWN = f"{TABLE}, n INT"
HALF_TOLD = [
    pytest.param(
        "CREATE INDEX i ON x (v)", f"d.x:{TABLE}", ["d.x hold statement"], id="index of an unknown"
    ),
    pytest.param("CREATE TABLE t (id INT)", "", ["d.t hold statement"], id="made over, not read"),
    pytest.param(
        "CREATE TABLE IF NOT EXISTS x (id INT)", "", ["d.x hold statement"], id="perhaps made"
    ),
    pytest.param(
        "ALTER TABLE t ADD n INT, RENAME TO x",
        f"d.x:{GROWN}",
        ["d.t drop", "d.x of d.t"],
        id="grown and renamed",
    ),
    pytest.param(
        "ALTER TABLE t ADD n INT AUTO_INCREMENT UNIQUE, RENAME TO x",
        f"d.x:{GROWN}",
        ["d.t drop", "d.x hold statement"],
        id="numbers given that no row event tells, and renamed",
    ),
    pytest.param("ALTER TABLE x ADD n INT", "", [], id="altered, of no table that is known"),
    pytest.param("RENAME TABLE y TO t", "", ["d.t hold renamed"], id="unknown over what is there"),
    pytest.param(
        "DROP TABLE t",
        f"d.z:{TABLE}",
        ["d.t hold statement", "d.z hold statement"],
        id="a DROP told as another table's",
    ),
    pytest.param(
        "ALTER TABLE t DROP COLUMN IF EXISTS z, ADD n INT",
        f"d.t:{GROWN}",
        ["d.t keep"],
        id="a column dropped that was not there",
    ),
    pytest.param(
        "ALTER TABLE t DROP COLUMN IF EXISTS n, ADD n INT",
        f"d.t:{GROWN}",
        ["d.t keep"],
        id="a column made that was not there, dropped first",
    ),
]


@pytest.mark.parametrize(("text", "described", "expected"), HALF_TOLD)
def test_a_statement_that_is_half_told_has_its_effects(
    text: str, described: str, expected: list[str]
) -> None:
    assert all_written(effects([told(text, described)], BOTH)) == expected


THREE = known("d.t", "d.u", "e.u")
ELSEWHERE = [
    pytest.param(
        "ALTER TABLE t RENAME TO e.x", f"e.x:{TABLE}", "e",
        ["d.t hold renamed", "e.x hold renamed"], id="out of the session's database",
    ),
    pytest.param("WOBBLE e.u", "", "d", ["d.u hold statement", "e.u hold statement"],
                 id="not read, and it names another database"),
    pytest.param("WOBBLE u", "", "d", ["d.u hold statement"], id="not read, of this database"),
    pytest.param("WOBBLE e.u", "", None, ["e.u hold statement"], id="not read, without one"),
    pytest.param(
        "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u", SAME, "d",
        ["d.t hold statement", "d.u hold statement"], id="exchange in this database",
    ),
    pytest.param(
        "ALTER TABLE d.t EXCHANGE PARTITION p WITH TABLE u", SAME, "d",
        ["d.t hold statement", "d.u hold statement", "e.u hold statement"],
        id="exchange with a table of an untold database",
    ),
    pytest.param("DROP TABLE IF EXISTS t", "", None, [], id="no database, so no table"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "described", "database", "expected"), ELSEWHERE)
def test_a_statement_concerns_the_tables_of_the_databases_it_may_be_about(
    text: str, described: str, database: str | None, expected: list[str]
) -> None:
    assert all_written(effects([told(text, described, database=database)], THREE)) == expected


def at(pos: int) -> Order:
    return Order(1, 1, pos)


ONE_ORDER = [
    pytest.param(
        [told("CREATE TABLE x (id INT)"), told("RENAME TABLE x TO y", f"d.y:{TABLE}")],
        ["d.y hold statement"],
        id="made without columns, and renamed with them",
    ),
    pytest.param(
        [
            told("CREATE TABLE x (id INT)"),
            told("CREATE TABLE IF NOT EXISTS x LIKE t", f"d.x:{TABLE}"),
        ],
        ["d.x hold created"],
        id="made without columns, and again with them",
    ),
    pytest.param(
        [told("INSERT INTO t VALUES (1)"), told("RENAME TABLE t TO x", "d.x: id INT!")],
        ["d.t drop", "d.x hold statement"],
        id="the first doubt goes with its rows",
    ),
]


@pytest.mark.parametrize(("messages", "expected"), ONE_ORDER)
def test_a_doubt_stays_with_the_rows_of_one_order_wherever_they_go(
    messages: list[SchemaEvent], expected: list[str]
) -> None:
    assert all_written(effects(messages, BOTH)) == expected


def test_a_table_whose_columns_were_never_told_is_held_at_each_statement() -> None:
    story = [
        told("CREATE TABLE x (id INT)", order=at(1)),
        told("ALTER TABLE x ADD n INT", "d.x: id INT, n INT", order=at(2)),
    ]

    assert all_written(effects(story, BOTH)) == ["d.x hold statement"] * 2


def test_an_effect_bears_the_columns_that_are_known_or_newly_told() -> None:
    """Rows are typed by them: with those of before a new column's values would be lost."""
    (emptied,) = effects([told("TRUNCATE t")], BOTH)
    (_, moved) = effects([told("RENAME TABLE t TO x")], BOTH)
    doubted = effects([told("ALTER TABLE t ADD n INT", f"d.u:{GROWN}")], BOTH)
    named_later = effects(
        [told("CREATE TABLE x (id INT)"), told("RENAME TABLE x TO y", f"d.y:{GROWN}")], BOTH
    )

    assert emptied == Empty(ShardId("d", "t"), HERE, schema("d.t", TABLE))
    assert moved == Replace(ShardId("d", "x"), HERE, ShardId("d", "t"), schema("d.t", TABLE))
    assert {str(one.shard): one.schema for one in doubted if isinstance(one, BaseNeeded)} == {
        "d.t": schema("d.t", TABLE),
        "d.u": schema("d.u", GROWN),
    }
    assert [one.schema for one in named_later if isinstance(one, BaseNeeded)] == [
        schema("d.y", GROWN)
    ]


@pytest.mark.parametrize(
    ("clauses", "columns", "rebuilt"),
    [
        pytest.param("DROP PARTITION p", TABLE, False, id="only rows went"),
        pytest.param("DROP v", "id INT!, s VARCHAR:10", True, id="a column went"),
    ],
)
def test_a_mirror_is_rebuilt_only_where_it_cannot_take_the_new_columns(
    clauses: str, columns: str, rebuilt: bool
) -> None:
    (found,) = effects([told(f"ALTER TABLE t {clauses}", f"d.t:{columns}")], BOTH)

    assert isinstance(found, BaseNeeded)
    assert found.detail.endswith("take a new base of d.t, then rebuild its mirror") is rebuilt


@pytest.mark.parametrize(
    ("text", "there", "anew"),
    [
        ("CREATE TABLE t (id INT)", False, True),
        ("CREATE TABLE t (id INT)", True, False),
        ("CREATE OR REPLACE TABLE t (id INT)", True, True),
        ("CREATE TABLE t (id INT)", None, True),
        ("CREATE TABLE IF NOT EXISTS t (id INT)", False, True),
        ("CREATE TABLE IF NOT EXISTS t (id INT)", None, False),
        ("CREATE TABLE t AS SELECT 1 AS id", False, False),
        ("DROP TABLE t", False, False),
        ("WOBBLE t", False, False),
    ],
)
def test_f109_only_a_create_without_rows_of_its_own_makes_an_empty_table(
    text: str, there: bool | None, anew: bool
) -> None:
    assert creates_empty_table(parse_statement(text), there=there) is anew


@pytest.mark.parametrize(
    ("text", "new", "former"),
    [
        ("RENAME TABLE `a`.`t` TO `b`.`t`", "b.t", "a.t"),
        ("RENAME TABLE b.t TO t", "a.t", "b.t"),
        ("ALTER TABLE a.t RENAME TO b.u", "b.u", "a.t"),
        ("RENAME TABLE t TO u", "a.u", "a.t"),
        ("RENAME TABLE a.t TO a.x, b.t TO a.t, a.x TO b.t", "b.t", "a.t"),
        ("RENAME TABLE a.t TO a.x, b.t TO a.t, a.x TO b.t", "a.t", "b.t"),
        ("RENAME TABLE a.t TO b.t, b.t TO a.t", "a.t", None),
        ("RENAME TABLE t TO b.t", "b.t", None),
        ("RENAME TABLE a.t TO b.t", "c.t", None),
        ("ALTER TABLE a.t ADD n INT COMMENT 'RENAME TO b.t'", "b.t", None),
    ],
)
def test_f117_a_table_had_its_name_in_the_database_that_the_statement_names(
    text: str, new: str, former: str | None
) -> None:
    found = MYSQL.renamed_from(text, ShardId.parse(new))

    assert (None if found is None else str(found)) == former
