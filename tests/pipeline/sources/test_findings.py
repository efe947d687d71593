from datetime import timedelta

import pytest

from pipeline.finding import NOTE, REFUSE
from pipeline.sources.source import SHARD, Told, of_clock, of_named_key, of_tables

DROP: Told = (REFUSE, "odd", "it is odd", f"DROP TABLE {SHARD}")
PLAIN: Told = (NOTE, "plain", "it is plain", "none")


def test_what_shards_of_one_table_share_is_told_once() -> None:
    told = [("t", f"s.t_{n}", DROP) for n in range(4)]
    told += [("t", "s.t_1", PLAIN), ("s.u", "s.u", DROP)]

    found = [(one.code, one.where, one.what, one.fix) for one in of_tables(told)]

    more = "DROP TABLE s.t_0 (and the same for 3 more)"
    assert found == [
        ("odd", "table t", "s.t_0, s.t_1, s.t_2 and 1 more: it is odd", more),
        ("plain", "table t", "s.t_1: it is plain", "none"),
        ("odd", "table s.u", "it is odd", "DROP TABLE s.u"),
    ]


@pytest.mark.parametrize(
    ("not_null", "unique", "code"),
    [
        pytest.param({"a"}, [("a",)], "refuse", id="one may be NULL"),
        pytest.param({"a", "b"}, [("b",)], None, id="unique by a part of it"),
        pytest.param({"a", "b"}, [("b", "c")], "warn", id="not unique by itself"),
    ],
)
def test_a_key_that_a_rule_names_must_tell_rows_apart(
    not_null: set[str], unique: list[tuple[str, ...]], code: str | None
) -> None:
    found = of_named_key(("a", "b"), not_null, unique)

    assert [one[0] for one in found] == ([code] if code else [])


@pytest.mark.parametrize(
    ("ahead", "told"),
    [
        pytest.param(timedelta(seconds=2), "", id="as much as is allowed"),
        pytest.param(timedelta(seconds=3), "3 s ahead of ours", id="ahead"),
        pytest.param(timedelta(seconds=-3), "3 s behind ours", id="behind"),
    ],
)
def test_a_clock_that_is_off_is_told_with_its_way(ahead: timedelta, told: str) -> None:
    found = of_clock(ahead, "source:shop", timedelta(seconds=2))

    assert [told in one.what for one in found] == ([True] if told else [])
