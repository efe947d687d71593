"""Each table has a mirror of its own, whatever letters its names hold, and it can be read."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from pipeline.model import Op, ShardId
from pipeline.settings import PipelineSettings
from tests.pipeline.hand_lake import HandLake, row

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


def change(table: str, pos: int, key: int, name: str) -> dict[str, Any]:
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
    lake = HandLake(tmp_path, others=(one, other))
    lake.land(change(one, 11, 1, "of one"), change(one, 12, 2, "of one"))
    lake.run()
    lake.land(change(other, 13, 1, "of the other"))
    lake.run()

    assert lake.rows(one) == {1: "of one", 2: "of one"}
    assert lake.rows(other) == {1: "of the other"}


@pytest.mark.parametrize(
    "name",
    ["d.a%20b", "d.a\\b", "d.a\nb", "d.a b", "d.é#?*[x]😀", "d.select", "d.^|", "d._delta_log"],
)
def test_a_mirror_of_an_odd_name_can_be_read(tmp_path: Path, name: str) -> None:
    lake = HandLake(tmp_path, others=(name,))
    lake.land(change(name, 11, 1, "x"))
    lake.run()

    assert lake.rows(name) == {1: "x"}
    opened = DeltaTable(lake.settings.mirror(name))  # as others read it
    assert opened.version() >= 0


@pytest.mark.parametrize("name", ["d._delta_log", "d._samples", "_delta_log.t"])
def test_no_part_of_an_address_is_a_name_that_readers_take_for_a_log(name: str) -> None:
    below = Path(SETTINGS.mirror(name)).relative_to("/lake/mirrors").parts

    assert not {"_delta_log", "_samples"} & set(below)
    assert SETTINGS.mirror("d._delta_log_1") == "/lake/mirrors/d/_delta_log_1"
