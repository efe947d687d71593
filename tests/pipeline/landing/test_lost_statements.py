"""What a statement did that was deleted with its topic before anybody listed it, nobody knows."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.landing.loop import Landing
from tests.pipeline.landing.desk import Desk

T_OF_A, T_OF_B = "a/db.t", "b/db.t"


def lose(desk: Desk) -> None:
    """A statement nobody listed goes with its topic."""
    desk.topics.delete("a")


def lose_and_make_anew(desk: Desk) -> None:
    """It is made again by the next statement, before anybody looks."""
    desk.topics.create_anew("a")


def say(desk: Desk) -> None:
    """The topic is there again, by a statement that tells of nothing lost."""
    desk.topics.say("a", 100, "CREATE USER x")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """``db.t`` of both sources has its base and a row."""
    made = Desk(tmp_path)
    for source in "ab":
        made.topics.alter(source, 5, "name", kind="CREATE")
        made.topics.put(source, 20, "one")
        made.topics.beat(source, 1, pos=30)
    made.land()
    assert made.checkpoint.bases.keys() == {T_OF_A, T_OF_B}
    return made


@pytest.mark.parametrize("how", [lose, lose_and_make_anew])
def test_it_is_a_gap_of_the_tables_of_its_source_and_of_no_other(
    desk: Desk, how: Callable[[Desk], None]
) -> None:
    how(desk)
    for source in "ab":
        desk.topics.beat(source, 2, pos=40)

    desk.land()

    (gap,) = desk.gaps()
    assert (gap.id, gap.shards) == ("a:0:1@1", (T_OF_A,))


def test_a_restart_that_does_not_know_what_was_listed_tells_it_too(desk: Desk) -> None:
    lose(desk)
    again = Desk(desk.home, desk.topics, desk.server)
    again.land()

    assert [one.shards for one in again.gaps()] == [(T_OF_A,)]


def test_it_is_over_with_a_base_that_begins_later(desk: Desk) -> None:
    lose(desk)
    desk.topics.beat("a", 2, pos=40)
    desk.land()
    say(desk)
    desk.topics.snapshot("a", 150, 2)
    desk.topics.beat("a", 3, pos=200)
    desk.land()

    assert desk.gaps() == []
    assert desk.checkpoint.lost[T_OF_A].pos == 150


def test_a_snapshot_that_was_being_read_does_not_end_it(tmp_path: Path) -> None:
    """It has no base yet, and gets one by what was sent before."""
    desk = Desk(tmp_path)
    desk.topics.alter("a", 5, "name", kind="ALTER")
    desk.topics.snapshot("a", 50, 2)
    desk.land()
    assert desk.checkpoint.snaps.keys() == {T_OF_A}
    lose(desk)
    desk.land()
    desk.topics.beat("a", 1, pos=60)
    desk.land()

    assert T_OF_A in desk.checkpoint.bases
    assert [one.shards for one in desk.gaps()] == [(T_OF_A,)]


def test_rows_that_went_while_a_snapshot_was_being_read_are_missed_too(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.topics.snapshot("a", 50, 2)
    desk.land()
    desk.topics.put("a", 55, "lost")
    desk.topics.delete("a.db.t")
    desk.topics.beat("a", 1, pos=60)
    desk.land()

    assert T_OF_A in desk.checkpoint.bases
    assert [one.shards for one in desk.gaps()] == [(T_OF_A,)]


def test_it_can_be_waived_by_whoever_knows_what_it_was(desk: Desk) -> None:
    lose(desk)
    desk.land()
    (gap,) = desk.gaps()

    desk.land(gap.id)

    assert desk.gaps() == []


def test_a_source_of_which_nothing_is_known_yet_misses_nothing(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.topics.alter("b", 5, "name", kind="CREATE")
    desk.topics.say("a", 5, "CREATE USER x")
    desk.land()
    lose_and_make_anew(desk)
    desk.topics.beat("a", 2, pos=40)
    desk.land()

    assert desk.gaps() == []
    assert T_OF_B in desk.checkpoint.bases


def test_a_topic_into_which_rows_are_routed_is_one_of_its_tables(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    route(desk.loop)
    for source in "ab":  # b's topic is named after db.t, too
        desk.topics.alter(source, 5, "name", kind="CREATE")
        desk.topics.put(source, 20, "one")
    desk.topics.held["all.rows"] = desk.topics.held.pop("a.db.t")
    desk.land()
    assert desk.checkpoint.bases.keys() == {T_OF_A, T_OF_B}
    desk.topics.delete("all.rows")
    desk.topics.beat("a", 1, pos=30)

    desk.land()

    (gap,) = desk.gaps()
    assert (gap.id, gap.shards) == ("all.rows:0:1@1", (T_OF_A,))


def test_a_table_that_had_a_topic_of_its_own_may_be_routed_since(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    route(desk.loop)
    desk.topics.alter("a", 5, "name", kind="CREATE")
    desk.topics.put("a", 20, "one")
    desk.land()
    desk.topics.put("a", 30, "two")
    desk.topics.held["all.rows"] = [desk.topics.held["a.db.t"].pop()]
    desk.land()
    desk.topics.delete("all.rows")
    desk.topics.beat("a", 1, pos=40)

    desk.land()

    assert [one.shards for one in desk.gaps()] == [(T_OF_A,)]


def route(loop: Landing) -> None:
    first, *others = loop.feeds
    settings = replace(first.settings, topics=r"all\.rows|a\..+")
    loop.feeds = (replace(first, settings=settings), *others)
