"""A plain condition is read and written; whatever is more than that is refused, with its place."""

from decimal import Decimal

import pytest

from pipeline.errors import ConfigError
from pipeline.sources.condition import list_columns, parse_condition, require_known, to_sql

REFUSED = {
    "a statement": "id = 1; DROP TABLE t",
    "a query inside": "id IN (SELECT id FROM u)",
    "a function": "sleep(10) = 0",
    "a function as a value": "day >= now()",
    "two columns": "a = b",
    "a comment": "id = 1 -- x",
    "a comment of MySQL": "id = 1 /*! or 1 */",
    "a value alone": "1 = 1",
    "nothing": "  ",
    "half": "id =",
    "an open bracket": "(id = 1",
    "an open text": "name = 'x",
    "a text in double quotes as a value": 'name = "x"',
    "sums": "id + 1 = 2",
    "equal to NULL": "name = NULL",
    "NOT before a sign": "id NOT = 1",
    "a number with letters": "id = 1x",
    "a hundred brackets": "(" * 100 + "id = 1" + ")" * 100,
    "too long": " " * 20_000,
    "a number of 4,400 digits": "id = " + "9" * 4_400,
    "a variable": "id = @@version",
    "a backslash outside": "id = \\1",
}


def sql(text: str) -> tuple[str, tuple[object, ...]]:
    return to_sql(parse_condition(text), lambda name: f"`{name}`")


@pytest.mark.parametrize("text", REFUSED.values(), ids=list(REFUSED))
def test_what_is_no_plain_condition_is_refused_in_words(text: str) -> None:
    with pytest.raises(
        ConfigError, match=r"unsupported condition at|characters, the limit is|more than 100 digits"
    ):
        parse_condition(text)


def test_the_refusal_names_the_place() -> None:
    with pytest.raises(ConfigError, match=r"at 'now\(\)'; compare columns"):
        parse_condition("day >= now()")


@pytest.mark.parametrize(
    ("text", "told", "values"),
    [
        ("id=7", "`id` = %s", (7,)),
        ("Id <> -7", "`Id` <> %s", (-7,)),
        ("a != 1.50", "`a` <> %s", (Decimal("1.50"),)),
        ("a like 'x%'", "`a` LIKE %s", ("x%",)),
        ("name = 'it''s'", "`name` = %s", ("it's",)),
        (r"name = '\'", "`name` = %s", ("\\",)),
        ('"odd ""name" = true', '`odd "name` = %s', (True,)),
        ("`a b` IS NULL", "`a b` IS NULL", ()),
        ("a is not null", "NOT (`a` IS NULL)", ()),
        ("a NOT IN ('x', 2)", "NOT (`a` IN (%s, %s))", ("x", 2)),
        ("a BETWEEN 1 AND 2 AND b = 3", "((`a` >= %s) AND (`a` <= %s)) AND (`b` = %s)", (1, 2, 3)),
        ("a=1 OR b=2 AND c=3", "(`a` = %s) OR ((`b` = %s) AND (`c` = %s))", (1, 2, 3)),
        ("not (a=1 or b=2)", "NOT ((`a` = %s) OR (`b` = %s))", (1, 2)),
        ("größe > 1", "`größe` > %s", (1,)),
    ],
)
def test_values_stand_apart_from_the_sql(text: str, told: str, values: tuple[object, ...]) -> None:
    assert sql(text) == (told, values)


def test_all_columns_are_known() -> None:
    assert list_columns(parse_condition("NOT (a = 1 AND (b IN (1) OR c IS NULL))")) == {
        "a",
        "b",
        "c",
    }


def test_a_condition_on_no_column_is_refused_with_those_there_are() -> None:
    require_known(parse_condition("a = 1 OR b IS NULL"), "d.t", {"a", "b"})

    with pytest.raises(ConfigError, match=r"d\.t has no column c; known: a, b"):
        require_known(parse_condition("a = 1 OR NOT (c IS NULL)"), "d.t", {"b", "a"})
