"""SimpleBinlog says what its corpus says, and goes by ``binlogOffset``."""

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.build import open_format
from pipeline.errors import ConfigError, FormatError
from pipeline.formats.canal_types import find_type_fault
from pipeline.formats.simple_binlog import SimpleBinlog, SimpleTable
from pipeline.model import Order, Ordering, Origin
from pipeline.plugins import build_object
from pipeline.schema.model import Notation
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.sources.mysql.types import FIXED, GEOMETRIES, WHOLE
from tests.pipeline.formats.changes_told import decoded
from tests.pipeline.formats.simple_binlog_writer import LAG, Collector

ORDERS = SimpleTable(("orderid",))
FORMAT = SimpleBinlog({r"ordercenter_\d\d\.orderinfo_\d\d": ORDERS, "shop.t": SimpleTable(("id",))})
ROWS = st.fixed_dictionaries({"id": st.integers(0, 9), "name": st.none() | st.text(max_size=9)})


@given(st.lists(st.tuples(st.sampled_from(["INSERT", "UPDATE", "DELETE"]), ROWS), max_size=6))
def test_rows_come_back_as_they_were_sent(sent: list[tuple[str, Mapping[str, object]]]) -> None:
    collector = Collector(1_589_373_515_000)

    found = decoded(FORMAT, [collector.message(kind, "shop.t", row) for kind, row in sent])

    images = [json.loads(one["after"] or one["before"]) for one in found]
    assert images == [row for _, row in sent]
    assert [one["pos"] for one in found] == list(range(len(sent)))


def test_changes_of_one_collector_rise_and_a_clock_that_was_set_back_shows() -> None:
    collector = Collector(1_000)
    sent = [collector.message("INSERT", "shop.t", {"id": n}) for n in range(2)]
    collector.now = 1_001
    sent.append(collector.message("UPDATE", "shop.t", {"id": 1}))
    collector.now = 900
    sent.append(collector.message("UPDATE", "shop.t", {"id": 1}))

    orders = list(map(order, decoded(FORMAT, sent)))

    assert orders[:3] == sorted(set(orders[:3]))
    assert orders[3] < orders[0]


def test_a_live_change_wins_over_a_replay_that_was_asked_for_after_it() -> None:
    collector = Collector(1_000_000)
    before = collector.message("UPDATE", "shop.t", {"id": 1, "v": "live"})
    collector.now += LAG
    again = collector.replay("shop.t", {"id": 1, "v": "selected"}, executed=5)

    live, replayed = decoded(FORMAT, [before, again])

    assert (live["op"], replayed["op"]) == ("u", "r")
    assert (live["origin"], replayed["origin"]) == (Origin.LIVE, Origin.REPLAY)
    assert rank(replayed) < rank(live)


def order(row: Mapping[str, Any]) -> Order:
    return Order(1, row["log"], row["pos"], row["row"])


def rank(row: Mapping[str, Any]) -> tuple[Order, int]:
    return order(row), row["origin"]


def test_columns_are_told_where_the_settings_tell_them() -> None:
    known = {"shop.t": SimpleTable(("id",), {"id": "bigint(20) unsigned", "name": "varchar(9)"})}
    form = SimpleBinlog(known)
    sent = [Collector(1).message("INSERT", name, {"id": 1}) for name in ("shop.t", "shop.u")]

    found = decoded(form, [*sent, sent[0]])

    assert [(one["op"], one["shard"], one["key_values"]) for one in found] == [
        ("ddl", "shop.t", None),
        ("c", "shop.t", '["1"]'),
        ("c", "shop.u", None),
        ("c", "shop.t", '["1"]'),
    ]
    (table,) = form.schema_change(found[0]["after"]).tables
    assert [(one.name, one.type, one.notation) for one in table.columns] == [
        ("id", "BIGINT UNSIGNED", Notation.TEXTS),
        ("name", "VARCHAR", Notation.TEXTS),
    ]
    assert form.columns_payload(table) == found[0]["after"]


def test_its_settings_are_those_of_a_config() -> None:
    options = {"tables": {"shop.t": {"key": ["id"], "columns": {"id": "int"}}}}
    collector = CollectorSettings("http://h", "c")
    source = SourceSettings(
        "a", "h", 1, "u", collector, "a", format="simple_binlog", format_options=options
    )

    assert open_format(source) == SimpleBinlog({"shop.t": SimpleTable(("id",), {"id": "int"})})


def test_what_is_no_expression_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not a regular expression"):
        SimpleBinlog({"(": ORDERS})


def test_it_goes_by_its_own_sequence_and_tells_no_statements() -> None:
    assert FORMAT.ordering is Ordering.SEQUENCE
    assert FORMAT.added_topics("a") == ()
    with pytest.raises(FormatError):
        FORMAT.schema_change("{}")


def test_a_key_of_a_column_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="no column id; columns names orderid"):
        SimpleTable(("orderid", "id"), {"orderid": "bigint"})


@pytest.mark.parametrize(
    ("told", "why"),
    [
        pytest.param("bigin(20)", "no type 'bigin(20)'; write it as SHOW COLUMNS", id="unknown"),
        pytest.param("varchar(32", "no type", id="half"),
        pytest.param("", "no type ''", id="empty"),
        pytest.param("5", "no type '5'", id="a number"),
        pytest.param("int unsignd", "unsignd is nothing that int may be", id="a word too many"),
        pytest.param("varchar(9) unsigned", "unsigned is nothing that varchar", id="no number"),
        pytest.param("enum", "names no labels", id="without labels"),
        pytest.param("decimal(2,5)", "more digits behind the point", id="too many digits"),
    ],
)
def test_a_column_of_no_type_is_refused_by_its_place(told: str, why: str) -> None:
    options = {"tables": {"shop.t": {"key": ["id"], "columns": {"id": "int", "odd": told}}}}

    with pytest.raises(ConfigError, match=re.escape(why)) as refused:
        build_object(SimpleBinlog, (), options, at="format_options")

    assert str(refused.value).startswith("format_options.tables.shop.t.columns.odd: ")


@pytest.mark.parametrize("kind", [*WHOLE, *FIXED, *GEOMETRIES, "DECIMAL", "BIT", "UUID"])
def test_every_type_that_a_mirror_knows_may_be_told(kind: str) -> None:
    labels = "('a','b')" if kind in ("ENUM", "SET") else ""

    assert find_type_fault(f"{kind.lower()}{labels}") == ""
    assert find_type_fault(f"{kind.lower()}{labels} /* mariadb-5.3 */") == ""
