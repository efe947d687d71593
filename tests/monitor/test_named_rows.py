"""Rows that a person or a check names become keys and ranges, and what names none is refused."""

import pytest

from checks.model import Outcome, Ruling, Verdict
from monitor.named_rows import found_wrong, named
from pipeline.errors import ConfigError
from pipeline.model import Shard, Table
from pipeline.rereads import WishedKey, WishedRange
from tests.pipeline.lakes import NOON

S0, S1 = Shard("shop", "shop.t_0"), Shard("shop", "shop.t_1")
IDS = Table("shop.t", (S0, S1), ("id",), "id")
WORDS = Table("shop.w", (S0,), ("name",))
PAIRS = Table("shop.p", (S0,), ("a", "b"))


def fail(check: str, *keys: str, value: float | None = None) -> Verdict:
    return Verdict("shop.t", check, Ruling(Outcome.FAIL, "wrong", "x", keys), NOON, value=value)


def test_ids_that_touch_are_one_range() -> None:
    found = named(IDS, ["7", "8", "8", "-3"], ["9..12", "30 .. 30"], 100)

    assert found.ranges == (WishedRange(-3, -3), WishedRange(7, 12), WishedRange(30, 30))
    assert (found.keys, found.most) == ((), 100)


def test_many_ids_are_read_by_their_keys() -> None:
    found = named(IDS, [str(2 * n) for n in range(60)], [], 100)

    assert (len(found.keys), found.ranges) == (60, ())


@pytest.mark.parametrize(
    ("table", "text", "key"),
    [
        pytest.param(WORDS, "it's", WishedKey('["it\'s"]'), id="a bare text"),
        pytest.param(WORDS, "7", WishedKey('["7"]'), id="a text of digits"),
        pytest.param(WORDS, '["[x]"]', WishedKey('["[x]"]'), id="a text in an array"),
        pytest.param(PAIRS, '[1, "x"]', WishedKey('["1","x"]'), id="two columns"),
        pytest.param(
            PAIRS, '["shop","shop.t_0","1","x"]', WishedKey('["1","x"]', "shop/shop.t_0"), id="log"
        ),
        pytest.param(PAIRS, "[true, 1.50]", WishedKey('["true","1.5"]'), id="other kinds"),
    ],
)
def test_a_key_is_written_as_the_log_writes_it(table: Table, text: str, key: WishedKey) -> None:
    assert named(table, [text], [], 9).keys == (key,)


@pytest.mark.parametrize(
    ("table", "keys", "ranges", "why"),
    [
        pytest.param(IDS, [], [], "no rows are named: give --keys", id="nothing"),
        pytest.param(PAIRS, ["7"], [], "goes by a, b; write it as a JSON array", id="half a key"),
        pytest.param(PAIRS, ["[7]"], [], "which goes by a, b", id="half an array"),
        pytest.param(PAIRS, ["[7"], [], "it is no JSON array", id="no JSON"),
        pytest.param(WORDS, ["[null]"], [], "which goes by name", id="null"),
        pytest.param(IDS, [], ["9..7"], "write 17..29", id="backwards"),
        pytest.param(IDS, [], ["x"], "write 17..29", id="no range"),
        pytest.param(IDS, ["1", "2", "3"], [], "3 keys are named, 2 rows", id="too many"),
    ],
)
def test_what_names_no_row_is_refused_in_words(
    table: Table, keys: list[str], ranges: list[str], why: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        named(table, keys, ranges, 2)

    assert why in str(refused.value)


def test_what_checks_name_is_read_in_the_shards_they_name() -> None:
    fails = [
        fail("range_counts", "shop/shop.t_0:17-29", "shop/shop.t_1:-5--3"),
        fail("max_id", "shop/shop.t_1:100", value=4.0),
        fail("max_id", "shop/shop.t_0:31", value=-2.0),
        fail("offset_keys", 'topic:0:42 ["shop","shop.t_1","7"]'),
        fail("volatility", "whatever"),
    ]

    found = found_wrong(IDS, fails, 9)

    assert found.ranges == (
        WishedRange(17, 31, "shop/shop.t_0"),
        WishedRange(-5, -3, "shop/shop.t_1"),
        WishedRange(97, 100, "shop/shop.t_1"),
    )
    assert found.keys == (WishedKey('["7"]', "shop/shop.t_1"),)


def test_checks_that_name_no_row_are_no_ground_for_a_repair() -> None:
    with pytest.raises(ConfigError, match=r"no check names rows of shop\.t"):
        found_wrong(IDS, [fail("volatility", "x")], 9)
