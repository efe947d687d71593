"""The lists let in every table of the config, those beside it, the heartbeat, and none ignored."""

import re

import pytest

from pipeline.collectors.connect.config import include_lists
from pipeline.collectors.connect.table_filter import TableFilter
from pipeline.model import ShardId
from pipeline.settings import TableRule

BEAT = "sluice.heartbeat"


def _wanted(*patterns: str) -> tuple[TableRule, ...]:
    return tuple(TableRule(one, "a.b") for one in patterns)


@pytest.mark.parametrize(
    ("pattern", "databases"),
    [
        pytest.param(r"shop_\d+\.orders_\d+", r"shop_\d+,sluice", id="shards"),
        pytest.param(r"shop\.a|crm\.b", "shop,crm,sluice", id="two ways"),
        pytest.param(r"(shop|crm)\.a", "(shop|crm),sluice", id="a group"),
        pytest.param(r"shop.orders", "shop,sluice", id="a dot that is any letter"),
        pytest.param(r"shop_\d{1,2}\.a", r"shop_\d{1\,2},sluice", id="a comma"),
        pytest.param(r"(?P<d>shop_\d)\.t(?P=d)", r"(?<d>shop_\d),sluice", id="a named group"),
        pytest.param(r"[a.|(]b\.c", r"[a.|(]b,sluice", id="signs in a set of letters"),
        pytest.param(r"[]\.]b\.c", r"[]\.]b,sluice", id="a bracket that comes first"),
        pytest.param(r"[^]]b\.c", "[^]]b,sluice", id="one that is not to be"),
        pytest.param(r".*", "", id="anything"),
        pytest.param(r".+\.orders", r".+,sluice", id="of any database"),
        pytest.param(r"shop.*", "", id="a dot that may be many"),
        pytest.param(r"shop\.a|.*_b", "", id="one way that fits any"),
        pytest.param(r"(shop\.a|crm\.b)", "", id="dots within a group"),
        pytest.param(r"(?:shop\.)?a", "", id="a dot that may be none"),
    ],
)
def test_f52_a_rules_databases_are_listed_where_they_can_be_told(
    pattern: str, databases: str
) -> None:
    found = include_lists(_wanted(pattern), BEAT)

    assert found.get("database.include.list", "") == databases


def test_without_a_rule_there_is_no_list() -> None:
    assert include_lists((), BEAT) == {}


def test_one_rule_of_any_database_opens_all() -> None:
    assert include_lists(_wanted(r"shop\.a", ".*_b"), BEAT) == {}


IGNORED = TableRule(r"shop\.tmp_.+", ignore=True)
KEPT, ALSO = TableRule(r"shop\.tmp_kept", "shop.kept"), TableRule(r"shop\.\w+", "shop.all")


@pytest.mark.parametrize(
    ("rules", "captured"),
    [
        pytest.param((IGNORED, ALSO), "a", id="ignored by the first"),
        pytest.param((KEPT, IGNORED, ALSO), "a tmp_kept", id="spared by the first"),
        pytest.param((ALSO, IGNORED), "a tmp_x tmp_kept", id="too late to be ignored"),
        pytest.param((IGNORED,), "a", id="nothing else is said"),
    ],
)
def test_f52_what_the_first_rule_ignores_is_left_out_and_nothing_else(
    rules: tuple[TableRule, ...], captured: str
) -> None:
    lists = TableFilter.of(include_lists(rules, BEAT))

    shards = [ShardId("shop", name) for name in ("a", "tmp_x", "tmp_kept")]
    assert [one.relation for one in shards if lists.captures(one)] == captured.split()
    assert lists.captures(ShardId.parse(BEAT))


def test_tables_beside_the_named_ones_and_shadows_of_them_are_let_in() -> None:
    lists = TableFilter.of(include_lists(_wanted(r"shop_\d+\.orders_\d+"), BEAT))

    names = ("shop_1.orders_7", "shop_1.users", "shop_1._orders_7_gho", BEAT)
    assert all(lists.captures(ShardId.parse(name)) for name in names)
    assert not lists.captures(ShardId("crm", "users"))


def test_the_heartbeats_database_is_no_pattern() -> None:
    found = include_lists(_wanted(r"shop\.a"), "a+b.beat")["database.include.list"]

    assert found.split(",")[1] == re.escape("a+b")
