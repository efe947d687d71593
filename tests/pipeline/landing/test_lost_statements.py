"""What a statement did that was deleted with its topic before anybody listed it, nobody knows."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.landing.loop import Landing
from pipeline.model import Shard
from tests.builders.harness import LandingHarness

T_OF_A, T_OF_B = "a/db.t", "b/db.t"


def lose(harness: LandingHarness) -> None:
    """A statement nobody listed goes with its topic."""
    harness.topics.delete("a")


def lose_and_make_anew(harness: LandingHarness) -> None:
    """It is made again by the next statement, before anybody looks."""
    harness.topics.create_anew("a")


def say(harness: LandingHarness) -> None:
    """The topic is there again, by a statement that tells of nothing lost."""
    harness.topics.say("a", 100, "CREATE USER x")


@pytest.fixture
def harness(tmp_path: Path) -> LandingHarness:
    """``db.t`` of both sources has its base and a row."""
    made = LandingHarness(tmp_path)
    for source in "ab":
        made.topics.alter(source, 5, "name", kind="CREATE")
        made.topics.put(source, 20, "one")
        made.topics.write_heartbeat(source, 1, pos=30)
    made.land()
    assert made.checkpoint.bases.keys() == {Shard.parse(T_OF_A), Shard.parse(T_OF_B)}
    return made


@pytest.mark.parametrize("how", [lose, lose_and_make_anew])
def test_it_is_a_gap_of_the_tables_of_its_source_and_of_no_other(
    harness: LandingHarness, how: Callable[[LandingHarness], None]
) -> None:
    how(harness)
    for source in "ab":
        harness.topics.write_heartbeat(source, 2, pos=40)

    harness.land()

    (gap,) = harness.gaps()
    assert (gap.id, gap.shards) == ("a:0:1@1", (T_OF_A,))


def test_a_restart_that_does_not_know_what_was_listed_tells_it_too(harness: LandingHarness) -> None:
    lose(harness)
    again = LandingHarness(harness.home, harness.topics, harness.server)
    again.land()

    assert [one.shards for one in again.gaps()] == [(T_OF_A,)]


def test_it_is_over_with_a_base_that_begins_later(harness: LandingHarness) -> None:
    lose(harness)
    harness.topics.write_heartbeat("a", 2, pos=40)
    harness.land()
    say(harness)
    harness.topics.snapshot("a", 150, 2)
    harness.topics.write_heartbeat("a", 3, pos=200)
    harness.land()

    assert harness.gaps() == []
    assert harness.checkpoint.lost[Shard.parse(T_OF_A)].pos == 150


def test_a_snapshot_that_was_being_read_does_not_end_it(tmp_path: Path) -> None:
    """It has no base yet, and gets one by what was sent before."""
    harness = LandingHarness(tmp_path)
    harness.topics.alter("a", 5, "name", kind="ALTER")
    harness.topics.snapshot("a", 50, 2)
    harness.land()
    assert harness.checkpoint.snaps.keys() == {Shard.parse(T_OF_A)}
    lose(harness)
    harness.land()
    harness.topics.write_heartbeat("a", 1, pos=60)
    harness.land()

    assert Shard.parse(T_OF_A) in harness.checkpoint.bases
    assert [one.shards for one in harness.gaps()] == [(T_OF_A,)]


def test_rows_that_went_while_a_snapshot_was_being_read_are_missed_too(tmp_path: Path) -> None:
    harness = LandingHarness(tmp_path)
    harness.topics.snapshot("a", 50, 2)
    harness.land()
    harness.topics.put("a", 55, "lost")
    harness.topics.delete("a.db.t")
    harness.topics.write_heartbeat("a", 1, pos=60)
    harness.land()

    assert Shard.parse(T_OF_A) in harness.checkpoint.bases
    assert [one.shards for one in harness.gaps()] == [(T_OF_A,)]


def test_it_can_be_waived_by_whoever_knows_what_it_was(harness: LandingHarness) -> None:
    lose(harness)
    harness.land()
    (gap,) = harness.gaps()

    harness.land(gap.id)

    assert harness.gaps() == []


def test_a_source_of_which_nothing_is_known_yet_misses_nothing(tmp_path: Path) -> None:
    harness = LandingHarness(tmp_path)
    harness.topics.alter("b", 5, "name", kind="CREATE")
    harness.topics.say("a", 5, "CREATE USER x")
    harness.land()
    lose_and_make_anew(harness)
    harness.topics.write_heartbeat("a", 2, pos=40)
    harness.land()

    assert harness.gaps() == []
    assert Shard.parse(T_OF_B) in harness.checkpoint.bases


def test_a_topic_into_which_rows_are_routed_is_one_of_its_tables(tmp_path: Path) -> None:
    harness = LandingHarness(tmp_path)
    route(harness.loop)
    for source in "ab":  # b's topic is named after db.t, too
        harness.topics.alter(source, 5, "name", kind="CREATE")
        harness.topics.put(source, 20, "one")
    harness.topics.held["all.rows"] = harness.topics.held.pop("a.db.t")
    harness.land()
    assert harness.checkpoint.bases.keys() == {Shard.parse(T_OF_A), Shard.parse(T_OF_B)}
    harness.topics.delete("all.rows")
    harness.topics.write_heartbeat("a", 1, pos=30)

    harness.land()

    (gap,) = harness.gaps()
    assert (gap.id, gap.shards) == ("all.rows:0:1@1", (T_OF_A,))


def test_a_table_that_had_a_topic_of_its_own_may_be_routed_since(tmp_path: Path) -> None:
    harness = LandingHarness(tmp_path)
    route(harness.loop)
    harness.topics.alter("a", 5, "name", kind="CREATE")
    harness.topics.put("a", 20, "one")
    harness.land()
    harness.topics.put("a", 30, "two")
    harness.topics.held["all.rows"] = [harness.topics.held["a.db.t"].pop()]
    harness.land()
    harness.topics.delete("all.rows")
    harness.topics.write_heartbeat("a", 1, pos=40)

    harness.land()

    assert [one.shards for one in harness.gaps()] == [(T_OF_A,)]


def route(loop: Landing) -> None:
    first, *others = loop.feeds
    settings = replace(first.settings, topics=r"all\.rows|a\..+")
    loop.feeds = (replace(first, settings=settings), *others)
