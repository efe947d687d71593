"""A topic that Sluice's Kafka user may not see makes no table look empty, or at rest.

Kafka leaves it out of its listings without a word.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.checkpoint import Checkpoint
from pipeline.landing.batch_stats import BatchStats
from pipeline.landing.gaps import detect_hidden_topics
from pipeline.model import Order, Shard
from pipeline.settings import Router, TableRule
from tests.builders import batch_context
from tests.builders.harness import LandingHarness, place
from tests.pipeline.schema_messages import described, dropped, message

NAME, TOPIC = "a/db.t", "a.db.t"
HIDDEN = frozenset({TOPIC})
CREATE = "CREATE TABLE t"
PLACE = place("t", 5)


def describe(harness: LandingHarness) -> None:
    """A snapshot of all tables tells of ``db.t`` before it reads it."""
    at = PLACE | {"snapshot": "true"}
    for value in (
        message("DROP DATABASE IF EXISTS `db`", source=at),
        message(CREATE, described(CREATE, "t", "id BIGINT!"), source=at),
    ):
        harness.topics.held.setdefault("a", []).append((b"{}", value.encode()))


def seen_no_more(home: Path) -> LandingHarness:
    """Of a table that was landed, one row comes after its topic was hidden."""
    harness = LandingHarness(home)
    harness.topics.alter("a", 5, "name", kind="CREATE")
    harness.topics.put("a", 20, "one")
    harness.land()
    harness.topics.forbidden = HIDDEN
    harness.topics.put("a", 30, "unseen")
    harness.topics.write_heartbeat("a", 1, pos=40)
    return harness


@pytest.mark.parametrize("born", [True, False], ids=["created", "read by a snapshot"])
def test_a_table_whose_topic_was_never_seen_is_no_empty_one(tmp_path: Path, *, born: bool) -> None:
    harness = LandingHarness(tmp_path)
    harness.topics.forbidden = HIDDEN
    harness.topics.alter("a", 5, "name", kind="CREATE") if born else describe(harness)
    harness.topics.put("a", 20, "unseen")
    harness.topics.write_heartbeat("a", 1, pos=30)

    harness.land()

    assert harness.checkpoint.bases.keys() & {NAME} == set()
    assert [(one.id, one.shards) for one in harness.gaps()] == [("hidden:a/db.t:0:0@0", (NAME,))]
    assert harness.checkpoint.shards[Shard.parse(NAME)] == "db.t"
    (gap,) = harness.gaps()
    assert (gap.partition, gap.first, gap.until) == (0, 0, 0), "no record of it was ever seen"
    assert gap.why == (
        "Kafka does not let Sluice's user see a topic of a/db.t, if there is one: give it "
        "DESCRIBE and READ below the whole prefix, then take a new base of it"
    )


def test_its_snapshot_closes_the_gap_once_it_may_be_read(tmp_path: Path) -> None:
    harness = LandingHarness(tmp_path)
    harness.topics.forbidden = HIDDEN
    describe(harness)
    harness.topics.snapshot("a", 5, 2)
    harness.topics.write_heartbeat("a", 1, pos=30)
    harness.land()
    harness.topics.forbidden = frozenset()
    harness.topics.write_heartbeat("a", 2, pos=40)

    harness.land()

    assert harness.gaps() == []
    assert Shard.parse(NAME) in harness.checkpoint.bases


def test_a_table_that_may_be_seen_and_has_no_topic_yet_is_empty(tmp_path: Path) -> None:
    harness = LandingHarness(tmp_path)
    describe(harness)
    harness.topics.write_heartbeat("a", 1, pos=5, read=True)
    harness.topics.write_heartbeat("a", 2, pos=30)

    harness.land()

    assert harness.gaps() == []
    assert Shard.parse(NAME) in harness.checkpoint.bases


def test_a_topic_that_may_be_seen_no_more_is_a_gap_though_all_of_it_was_landed(
    tmp_path: Path,
) -> None:
    """Else the table would go on to be READY, as heartbeats do."""
    harness = seen_no_more(tmp_path)

    harness.land()

    (gap,) = harness.gaps()
    assert (gap.id, gap.shards, gap.first) == ("a.db.t:0:1@1", (NAME,), 1)
    assert gap.why.startswith("Kafka does not let Sluice's user see it any more")


def test_what_may_be_seen_again_is_read_on_where_it_stood(tmp_path: Path) -> None:
    harness = seen_no_more(tmp_path)
    harness.land()
    harness.topics.forbidden = frozenset()
    harness.topics.put("a", 50, "seen")
    harness.land()
    (gap,) = harness.gaps()
    harness.land(gap.id)

    assert harness.gaps() == []
    assert [row[1] for row in harness.rows("a")] == [20, 30, 50]


@pytest.mark.parametrize("again", [False, True], ids=["dropped", "and made anew"])
def test_a_table_that_is_dropped_at_once_needs_no_topic(tmp_path: Path, *, again: bool) -> None:
    """No later DROP would end its gap."""
    harness = LandingHarness(tmp_path)
    harness.topics.forbidden = HIDDEN
    harness.topics.alter("a", 5, "name", kind="CREATE")
    value = message("DROP TABLE t", dropped("t"), source=PLACE | {"pos": 6})
    harness.topics.held["a"].append((b"{}", value.encode()))
    if again:
        harness.topics.alter("a", 7, "name", kind="CREATE")
    harness.topics.write_heartbeat("a", 1, pos=30)

    harness.land()

    assert [one.shards for one in harness.gaps()] == ([(NAME,)] if again else [])


MARK = Checkpoint("main", 7, shards={Shard.parse(NAME): "db.t"})


def test_a_table_that_is_ignored_or_has_a_base_needs_nothing() -> None:
    ignoring = Router((TableRule(r"db\.t", "x", ignore=True),))
    based = replace(MARK, bases={Shard.parse(NAME): Order(1, 1, 1)})

    assert (
        detect_hidden_topics(
            MARK, batch_context(MARK, stats=BatchStats(hidden=frozenset([NAME])), router=ignoring)
        ).gaps
        == {}
    )
    assert (
        detect_hidden_topics(
            based, batch_context(based, stats=BatchStats(hidden=frozenset([NAME])))
        ).gaps
        == {}
    )
    assert detect_hidden_topics(
        MARK, batch_context(MARK, stats=BatchStats(hidden=frozenset([NAME])))
    ).gaps.keys() == {"hidden:a/db.t:0:0@7"}
