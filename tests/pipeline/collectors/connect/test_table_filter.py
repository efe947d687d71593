"""Which tables and columns a connector sends, as its documentation says."""

import pytest

from pipeline.collectors.connect.table_filter import TableFilter, find_column_settings, read_capture
from pipeline.model import ShardId


@pytest.mark.parametrize(
    ("config", "captured"),
    [
        pytest.param({}, "d.t d.u e.t", id="no list: everything"),
        pytest.param({"database.include.list": "d"}, "d.t d.u", id="a database"),
        pytest.param({"database.include.list": " e , x"}, "e.t", id="blanks around"),
        pytest.param({"database.include.list": ".+_0, d"}, "d.t d.u", id="a whole name"),
        pytest.param({"database.exclude.list": "d"}, "e.t", id="not a database"),
        pytest.param({"table.include.list": "d.t"}, "d.t", id="a table"),
        pytest.param({"table.include.list": r"D\.T"}, "d.t", id="in letters of any size"),
        pytest.param({"table.include.list": "t"}, "", id="the whole name must match"),
        pytest.param({"table.include.list": r".*\.(t|x)"}, "d.t e.t", id="a pattern"),
        pytest.param({"table.include.list": r"d\.\w{1\,2}"}, "d.t d.u", id="a comma in a pattern"),
        pytest.param({"table.include.list": r"\Qd.t\E, (?<x>e)\.t"}, "d.t e.t", id="as Java's are"),
        pytest.param({"table.include.list": "d.u\\\\,d.t"}, "d.t", id="a comma after a backslash"),
        pytest.param({"table.include.list": "d.t,d.u\\"}, "", id="a backslash before nothing"),
        pytest.param({"table.exclude.list": "d.t,e.t"}, "d.u", id="not these"),
        pytest.param(
            {"database.include.list": "d", "table.exclude.list": "d.u"}, "d.t", id="both lists"
        ),
        pytest.param({"table.exclude.list": "d.(t"}, "", id="not readable: nothing is proven"),
        pytest.param({"table.include.list": "d.t,d.(u"}, "", id="one of them not readable"),
    ],
)
def test_the_lists_let_in(config: dict[str, str], captured: str) -> None:
    tables = [ShardId.parse(name) for name in ("d.t", "d.u", "e.t", "mysql.user")]

    found = TableFilter.of(config)

    assert [str(shard) for shard in tables if found.captures(shard)] == captured.split()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param(r"shop\.a,shop\.([a-z_]+)+!", "repeats", id="hours"),
        pytest.param("(" * 500 + "a" + ")" * 500, "recursion", id="groups in groups"),
    ],
)
def test_a_list_that_cannot_be_used_is_named_with_its_pattern(text: str, why: str) -> None:
    found = read_capture({"table.include.list": text})

    assert not found.known
    assert not found(ShardId.parse("shop.a"))
    assert found.said_by.startswith("the collector's lists (table.include.list: '")
    assert text.rpartition(",")[2][:20].replace("\\", "\\\\") in found.said_by
    assert why in found.said_by


SALTED = "column.mask.hash.v2.SHA-256.with.salt.CzQMA0cB5K"


@pytest.mark.parametrize(
    ("config", "column", "by"),
    [
        ({"column.exclude.list": r"s\.users\.ssn,s\.t\.x"}, "s.users.ssn", "column.exclude.list"),
        ({"column.exclude.list": r"s\.users\.ssn"}, "s.users.ssn2", ""),
        ({"column.include.list": r"s\.users\.(id|name)"}, "s.users.ssn", "column.include.list"),
        ({"column.include.list": r"s\.users\.(id|name)"}, "s.users.NAME", ""),
        ({"column.mask.with.12.chars": r".*\.ssn"}, "s.users.ssn", "column.mask.*"),
        ({SALTED: r".*\.ssn"}, "s.users.ssn", "column.mask.*"),
        ({"column.truncate.to.20.chars": r".*\.note"}, "s.t.note", "column.truncate.to.*"),
        ({"column.mask.with.1.chars": "(?#no)x"}, "s.t.id", "column.mask.*"),
        ({"column.include.list": "(?#no)x"}, "s.t.id", "column.include.list"),
        ({"column.exclude.list": r"s\.([a-z_]+)+!"}, "s.t.id", "column.exclude.list"),
        ({"column.mask.with.1.chars": "(" * 500 + ")" * 500}, "s.t.id", "column.mask.*"),
    ],
)
def test_a_column_is_altered_by(config: dict[str, str], column: str, by: str) -> None:
    told = find_column_settings(config)

    assert told is not None
    assert told(column) == by


@pytest.mark.parametrize("config", [{}, {"column.exclude.list": " "}, {"table.include.list": "x"}])
def test_without_such_lists_nobody_is_asked(config: dict[str, str]) -> None:
    assert find_column_settings(config) is None
