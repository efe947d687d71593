"""No table is told to go with its database; covers pipeline/landing/bases.py."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.checkpoint import Checkpoint, Existence, active_tables
from pipeline.landing.bases import find_births, with_drops
from pipeline.landing.batch_stats import BatchStats, DroppedDatabase
from pipeline.model import Op, Order, Shard
from pipeline.settings import Router
from tests.builders import schema_news
from tests.builders.harness import LandingHarness
from tests.pipeline.test_lane import Beside, lane_with_rows


@pytest.fixture
def beside(tmp_path: Path) -> Beside:
    """db.t has rows, in the mirror too."""
    made = lane_with_rows(tmp_path)
    made.apply()
    return made


def test_a_table_is_retired_with_its_database_and_keeps_its_mirror(beside: Beside) -> None:
    beside.harness.topics.say("a", 500, "DROP DATABASE `db`")

    beside.lane.land(frozenset())
    beside.apply()

    assert active_tables(beside.lane.checkpoint, Router()) == {}
    assert beside.rows() == {0: "a", 1: "a"}


def test_a_database_in_other_letters_is_another_one(beside: Beside) -> None:
    beside.harness.topics.say("a", 500, "DROP DATABASE DB")

    beside.lane.land(frozenset())

    assert active_tables(beside.lane.checkpoint, Router()).keys() == {"db.t"}


@pytest.mark.parametrize("together", [False, True], ids=["a batch each", "one batch"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_table_made_after_its_database_was_dropped_is_born_with_columns_of_its_own(
    beside: Beside, together: bool, restarted: bool
) -> None:
    lane, topics = beside.lane, beside.harness.topics
    topics.say("a", 500, "DROP DATABASE db")
    if not together:
        lane.land(frozenset())
    topics.alter("a", 600, "name", "note", kind="CREATE")
    topics.put("a", 700, "new", key=7)
    lane.land(frozenset())
    if restarted:
        beside = Beside(LandingHarness(beside.harness.home, topics))
        beside.looks = 60

    for _ in range(3):
        beside.apply()

    checkpoint = beside.lane.checkpoint
    assert checkpoint.existing[Shard.parse("a/db.t")] == Existence(Order(1, 7, 600), there=True)
    assert checkpoint.bases[Shard("a", "db.t")] == Order(1, 7, 600)
    assert [turn.hold for turn in beside.turns if turn.hold] == []
    assert beside.rows() == {7: "new"}
    assert len(beside.harness.landed(Op.SETTLE)) == 2


GONE = DroppedDatabase("a", Order(1, 7, 500), "db", "DROP DATABASE db")


@pytest.mark.parametrize(
    ("checkpoint", "facts"),
    [
        pytest.param(
            Checkpoint("m", 1, shards={Shard.parse("a/db.t"): "t"}),
            BatchStats(),
            id="its rows have landed",
        ),
        pytest.param(
            Checkpoint(
                "m", 1, existing={Shard.parse("a/db.t"): Existence(Order(1, 7, 9), there=True)}
            ),
            BatchStats(),
            id="its CREATE has",
        ),
        pytest.param(
            Checkpoint("m", 1), BatchStats(shards={"a/db.t": "t"}), id="its rows come with it"
        ),
        pytest.param(
            Checkpoint("m", 1),
            BatchStats(news=(schema_news("create", 9, log=7, source="a"),)),
            id="its CREATE does",
        ),
        pytest.param(
            Checkpoint("m", 1),
            BatchStats(news=(schema_news("create", 9, log=7, source="a", snapshot=True),)),
            id="a snapshot tells of it, and it is empty",
        ),
    ],
)
def test_however_a_table_is_known_it_goes_with_its_database(
    checkpoint: Checkpoint, facts: BatchStats
) -> None:
    """Else it is asked about, and waited for, for ever."""
    found, _ = find_births(checkpoint, with_drops(replace(facts, databases=(GONE,)), checkpoint))

    assert found[Shard.parse("a/db.t")] == Existence(Order(1, 7, 500), there=False)


def test_tables_of_other_databases_and_those_that_were_gone_are_left_alone() -> None:
    """A DROP closes what is open of a table, and its mirror is asked for no rows of it."""
    gone = {Shard.parse("a/db.t"): Existence(Order(1, 7, 9), there=False)}
    checkpoint = Checkpoint(
        "m",
        1,
        shards={
            Shard.parse("a/db.t"): "t",
            Shard.parse("a/db2.t"): "t",
            Shard.parse("b/db.t"): "t",
        },
        existing=gone,
    )

    assert with_drops(BatchStats(databases=(GONE,)), checkpoint).news == ()


def test_a_drop_stands_where_its_database_was_dropped() -> None:
    checkpoint = Checkpoint("m", 1, shards={Shard.parse("a/db.t"): "t"})
    news = (
        schema_news("alter", 400, log=7, source="a"),
        schema_news("create", 600, log=7, source="a"),
    )

    found = with_drops(BatchStats(news=news, databases=(GONE,)), checkpoint)

    assert [(one.change.kind, one.change.order.pos) for one in found.news] == [
        ("alter", 400),
        ("drop", 500),
        ("create", 600),
    ]
