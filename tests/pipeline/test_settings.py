"""Tables by rule, mirrors by table, and addresses without their logins."""

import json
import pickle
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from pipeline.model import Op, ShardId
from pipeline.settings import (
    KINDS_OF_PARTS,
    PARTS,
    PipelineSettings,
    Router,
    TableRule,
    is_https,
    without_login,
)
from tests.builders.lake import LocalLake, row
from tests.counting import count_calls, count_matches

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
        pytest.param("shop.a\nb_tmp", None, id="a name may hold a line break"),
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


def test_rules_are_gone_through_once_for_a_shard() -> None:
    router = Router(RULES)

    def route() -> None:
        for _ in range(100):
            assert router.rule("other.a") is None
            assert router.table("other.a") == "other.a"

    assert count_matches(route) == len(RULES)


def test_patterns_of_many_rules_are_compiled_once_and_not_for_each_shard() -> None:
    names = [f"shop.orders_{number}" for number in range(600)]  # `re` remembers 512
    router = Router(tuple(TableRule(re.escape(name), f"{name}_") for name in names))
    assert router.table("other") == "other"

    calls = count_calls(lambda: router.table(names[-1]))

    assert router.table(names[-1]) == f"{names[-1]}_"
    assert calls < 6 * len(names)


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
    monkeypatch.setattr("pipeline.settings.MOST_KNOWN", 10)
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


SETTINGS = PipelineSettings(lake="/lake", kafka="", sources=())
ODD = (
    "a",
    "a/",
    "/a",
    "a//",
    "a.b",
    "a/b",
    "b",
    ".",
    "..",
    "../a",
    "_delta_log",
    "~5Fdelta_log",
    "a~2F",
    "a%2F",
    "A",
    '"a"',
    "~",
)


def change_of(table: str, pos: int, key: int, name: str) -> dict[str, Any]:
    made = row(Op.CREATE, pos, key, name, shard=table, table=table)
    return made | {"key": json.dumps(["s", table, str(key)])}


def test_an_ordinary_table_lies_in_the_folder_of_its_names() -> None:
    assert SETTINGS.mirror("shop.orders_1") == "/lake/mirrors/shop/orders_1"


@pytest.mark.parametrize(
    ("table", "folder"),
    [
        pytest.param(ShardId("Odd.Names", "T y p e s"), '"Odd.Names"/T y p e s', id="a dot"),
        pytest.param(ShardId("a.b.", ".c"), '"a.b."/".c"', id="dots everywhere"),
        pytest.param(ShardId('a"."b', "c"), '"a"".""b"/c', id="quotes around a dot"),
        pytest.param(ShardId("db", "a.b"), 'db/"a.b"', id="a table's dot: as it was"),
        pytest.param(ShardId('a"b', "c"), '"a""b"/c', id="a quote without a dot: as it was"),
    ],
)
def test_f199_a_database_with_a_dot_in_its_name_has_one_folder(table: ShardId, folder: str) -> None:
    assert SETTINGS.mirror(str(table)) == f"/lake/mirrors/{folder}"


@pytest.mark.parametrize("name", ["orders", "a.b.c", "x.", '"open.end'])
def test_f199_a_name_that_a_rule_makes_lies_where_it_lay(name: str) -> None:
    assert SETTINGS.mirror(name) == "/lake/mirrors/" + "/".join(name.split(".", 1))


def test_no_two_tables_share_an_address_and_none_leaves_the_folder() -> None:
    tables = [str(ShardId(database, name)) for database in ODD for name in ODD]
    found = {table: SETTINGS.mirror(table) for table in tables}

    for one, other in combinations(tables, 2):
        assert Path(found[one]) != Path(found[other]), (one, other)
    for address in found.values():
        below = Path(address).relative_to("/lake/mirrors").parts
        assert len(below) == 2, address
        assert not {".", ".."} & set(below), address


@pytest.mark.parametrize(("one", "other"), [("d.a", "d.a/"), ("d.a/b", "d/a.b")])
def test_rows_of_tables_whose_names_hold_slashes_are_not_mixed(
    tmp_path: Path, one: str, other: str
) -> None:
    lake = LocalLake(tmp_path, others=(one, other))
    lake.land(change_of(one, 11, 1, "of one"), change_of(one, 12, 2, "of one"))
    lake.run()
    lake.land(change_of(other, 13, 1, "of the other"))
    lake.run()

    assert lake.rows(one) == {1: "of one", 2: "of one"}
    assert lake.rows(other) == {1: "of the other"}


@pytest.mark.parametrize(
    "name",
    ["d.a%20b", "d.a\\b", "d.a\nb", "d.a b", "d.é#?*[x]😀", "d.select", "d.^|", "d._delta_log"],
)
def test_a_mirror_of_an_odd_name_can_be_read(tmp_path: Path, name: str) -> None:
    lake = LocalLake(tmp_path, others=(name,))
    lake.land(change_of(name, 11, 1, "x"))
    lake.run()

    assert lake.rows(name) == {1: "x"}
    opened = DeltaTable(lake.settings.mirror(name))  # as others read it
    assert opened.version() >= 0


@pytest.mark.parametrize("name", ["d._delta_log", "d._samples", "_delta_log.t"])
def test_no_part_of_an_address_is_a_name_that_readers_take_for_a_log(name: str) -> None:
    below = Path(SETTINGS.mirror(name)).relative_to("/lake/mirrors").parts

    assert not {"_delta_log", "_samples"} & set(below)
    assert SETTINGS.mirror("d._delta_log_1") == "/lake/mirrors/d/_delta_log_1"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://connect:8083", True),
        ("HTTPS://connect:8083", True),
        ("http://connect:8083", False),
        ("http://https:1", False),
    ],
)
def test_only_who_is_dialled_by_https_shows_a_certificate(url: str, *, shown: bool) -> None:
    assert is_https(url) is shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://bob:hunter2@c:0", "http://(hidden)@c:0"),
        ("http://bob:hun/ter@2@c:0", "http://(hidden)@c:0"),
        ("http://bob:hunter2@[", "http://(hidden)@["),
        ("bob:hunter2@c:0", "(hidden)@c:0"),
        ("//hunter2@c", "//(hidden)@c"),
        (
            "at https://b:hunter2@n/a and\nftp://hunter2@n",
            "at https://(hidden)@n/a and\nftp://(hidden)@n",
        ),
        ("http://c:8083/a", "http://c:8083/a"),
        ("maven", "maven"),
    ],
)
def test_no_login_of_an_address_is_shown(text: str, shown: str) -> None:
    assert without_login(text) == shown
