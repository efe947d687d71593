from collections.abc import Iterator
from datetime import timedelta

import pytest

from pipeline.finding import NOTE, REFUSE
from pipeline.model import Shard
from pipeline.sources.doctor import SHARD, TableFinding, check_clock, check_key, find_in_tables
from pipeline.sources.mysql.facts import ShardFacts
from pipeline.sources.source import FoldedTable

DROP: TableFinding = (REFUSE, "odd", "it is odd", f"DROP TABLE {SHARD}")
PLAIN: TableFinding = (NOTE, "plain", "it is plain", "none")


def test_what_shards_of_one_table_share_is_reported_once() -> None:
    names = (*(f"s.t_{n}" for n in range(4)), "s.u", "s.ignored")

    def fold(shard: str) -> FoldedTable | None:
        return None if shard == "s.ignored" else FoldedTable(shard.partition("_")[0])

    def rules(shard: ShardFacts, _: FoldedTable) -> Iterator[TableFinding]:
        yield DROP
        if shard.shard.name == "s.t_1":
            yield PLAIN

    found = find_in_tables([ShardFacts(Shard("shop", name)) for name in names], fold, rules)

    more = "DROP TABLE s.t_0 (and the same for 3 more)"
    assert [(one.code, one.where, one.what, one.fix) for one in found] == [
        ("odd", "table s.t", "s.t_0, s.t_1, s.t_2 and 1 more: it is odd", more),
        ("plain", "table s.t", "s.t_1: it is plain", "none"),
        ("odd", "table s.u", "it is odd", "DROP TABLE s.u"),
    ]


@pytest.mark.parametrize(
    ("key", "not_null", "unique", "topic_keys", "expected"),
    [
        pytest.param("ab", "a", ["a"], False, ("refuse", "key"), id="one may be NULL"),
        pytest.param("ab", "ab", ["b"], False, None, id="unique by a part of it"),
        pytest.param("ab", "ab", ["bc"], False, ("warn", "key"), id="not unique by itself"),
        pytest.param("", "ab", ["a"], False, None, id="the table's own"),
        pytest.param("", "ab", [], False, ("warn", "no_key"), id="none at all"),
        pytest.param("", "ab", [], True, None, id="the connector names one"),
    ],
)
def test_a_key_must_identify_rows(
    key: str, not_null: str, unique: list[str], topic_keys: bool, expected: tuple[str, str] | None
) -> None:
    sets = [tuple(one) for one in unique]

    found = check_key(tuple(key), sets, {*not_null}, topic_keys=topic_keys)

    assert [one[:2] for one in found] == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("ahead", "said"),
    [
        pytest.param(timedelta(seconds=2), "", id="as much as is allowed"),
        pytest.param(timedelta(seconds=3), "3 s ahead of Sluice's", id="ahead"),
        pytest.param(timedelta(seconds=-3), "3 s behind Sluice's", id="behind"),
    ],
)
def test_a_clock_that_is_off_is_reported_with_its_direction(ahead: timedelta, said: str) -> None:
    found = check_clock(ahead, "source:shop", timedelta(seconds=2))

    assert [said in one.what for one in found] == ([True] if said else [])
