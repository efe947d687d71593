"""Which table a shard belongs to, and that rules are gone through once for each shard."""

import pickle
import re

import pytest

from pipeline.settings import KINDS_OF_PARTS, PARTS, Router, TableRule

RULES = (
    TableRule(r"shop_\d+\.orders_(\d+)", r"shop.orders"),
    TableRule(r"shop\.(.*)_tmp", r"x", ignore=True),
    TableRule(r"(shop)\.(.*)", r"\1.all_\2", unique_across_shards=True),
)


@pytest.mark.parametrize(
    ("shard", "table"),
    [
        pytest.param("shop_1.orders_2", "shop.orders", id="folds into one"),
        pytest.param("shop.a_tmp", None, id="the first rule that fits decides, and ignores it"),
        pytest.param("shop.a", "shop.all_a", id="the name has parts of the shard's"),
        pytest.param("other.a", "other.a", id="no rule: a table of its own name"),
        pytest.param("xshop.a", "xshop.a", id="the whole name must fit"),
    ],
)
def test_the_first_rule_that_fits_decides(shard: str, table: str | None) -> None:
    router = Router(RULES)

    assert [router.table(shard) for _ in range(2)] == [table, table]
    assert router.unique(shard) == (shard == "shop.a")


def test_a_rule_without_a_table_leaves_each_shard_its_own_name() -> None:
    router = Router((TableRule(r"shop\.t\d", tier=0),))

    assert [router.table(name) for name in ("shop.t1", "shop.t2")] == ["shop.t1", "shop.t2"]


def test_rules_are_gone_through_once_for_a_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    router, asked = Router(RULES), list[str]()
    fullmatch = re.fullmatch

    def counted(pattern: str, text: str) -> re.Match[str] | None:
        asked.append(text)
        return fullmatch(pattern, text)

    monkeypatch.setattr(re, "fullmatch", counted)

    for _ in range(100):
        assert router.rule("other.a") is None
        assert router.table("other.a") == "other.a"

    assert asked == ["other.a"] * len(RULES)


def test_a_name_is_put_together_once_for_a_shard() -> None:
    router = Router(RULES)

    assert router.table("shop.a") is router.table("shop.a")


def test_what_was_found_is_neither_sent_nor_part_of_what_it_is() -> None:
    fresh, used = Router(RULES), Router(RULES)
    for number in range(1_000):
        used.table(f"shop_{number}.orders_1")

    assert used == fresh
    assert pickle.dumps(used) == pickle.dumps(fresh)
    assert pickle.loads(pickle.dumps(used)) == fresh  # noqa: S301


def test_what_was_found_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.settings._KNOWN", 10)
    router = Router(RULES)

    assert all(router.table(f"db.t{n}") == f"db.t{n}" for n in range(95))
    assert len(router._found) <= 10
    assert len(router._tables) <= 10


@pytest.mark.parametrize(
    ("shard", "table"),
    [
        *((f"x.{name}", f"{name}~") for name in PARTS),
        *((f"x.{name}~", f"{name}~~") for name in PARTS),
        *((f"x.{name}s", f"{name}s") for name in PARTS),
        *((f"x.{kind}:shop", f"{kind}~:shop") for kind in KINDS_OF_PARTS),
        *((f"x.{kind}~:shop", f"{kind}~~:shop") for kind in KINDS_OF_PARTS),
        *((f"{kind}:a.b", f"{kind}~:a.b") for kind in KINDS_OF_PARTS),
        *((f"{name}.b", f"{name}.b") for name in (*PARTS, *KINDS_OF_PARTS)),
    ],
)
def test_no_table_has_the_name_of_a_part_of_its_way(shard: str, table: str) -> None:
    router = Router((TableRule(r"x\.(.*)", r"\1"),))

    assert router.table(shard) == table
