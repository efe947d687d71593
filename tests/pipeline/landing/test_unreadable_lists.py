"""Lists that nobody here can read may leave out any table; covers collector_lists.py."""

from pathlib import Path

import pytest

from pipeline.landing.gaps import GRACE
from pipeline.model import Shard
from tests.builders.harness import LandingHarness, Server

NAME = "a/db.t"


def land_heartbeat(harness: LandingHarness, number: int, *, pos: int) -> None:
    harness.topics.write_heartbeat("a", number, pos=pos)
    harness.land()


@pytest.fixture
def based(tmp_path: Path) -> LandingHarness:
    """``db.t`` has its base, and from now on nobody can read the lists."""
    made = LandingHarness(tmp_path, server=Server(end=45))
    made.topics.alter("a", 5, "name", kind="CREATE")
    made.topics.put("a", 20, "one")
    made.land()
    assert Shard.parse(NAME) in made.checkpoint.bases
    made.server.readable = False
    return made


def test_a_table_with_a_base_is_in_doubt_from_then_on(based: LandingHarness) -> None:
    land_heartbeat(based, 1, pos=30)
    land_heartbeat(based, 2, pos=40)

    (gap,) = based.gaps()
    assert (gap.id, gap.shards) == ("lists:a:0:1@1", (NAME,))
    assert gap.why == (
        "the collector's lists cannot be read here, and may leave out a/db.t: write them as "
        "`sluice doctor` says, and take a new base of it"
    )


@pytest.mark.parametrize(
    ("pos", "closed"),
    [
        pytest.param(45, False, id="its rows may be of older lists that land late"),
        pytest.param(46, True, id="its rows show that they let it in"),
    ],
)
def test_a_later_base_ends_it_if_it_was_surely_sent_by_those_lists(
    based: LandingHarness, pos: int, *, closed: bool
) -> None:
    land_heartbeat(based, 1, pos=30)
    based.now += GRACE
    land_heartbeat(based, 2, pos=40)
    based.topics.snapshot("a", pos, 2)
    land_heartbeat(based, 3, pos=60)

    assert based.checkpoint.bases[Shard.parse(NAME)].pos == pos
    assert (based.gaps() == []) is closed


def test_a_base_of_before_counts_for_nothing_while_they_are_new(based: LandingHarness) -> None:
    land_heartbeat(based, 1, pos=30)
    based.topics.snapshot("a", 46, 2)
    land_heartbeat(based, 2, pos=60)

    assert [one.id for one in based.gaps()] == ["lists:a:0:2@2"]


def test_lists_that_were_so_from_the_first_need_a_base_that_is_seen_to_be_sent(
    tmp_path: Path,
) -> None:
    """What was sent before they were seen may have been sent by others."""
    harness = LandingHarness(tmp_path, server=Server(readable=False))
    harness.topics.snapshot("a", 50, 2)
    land_heartbeat(harness, 1, pos=60)
    first = harness.gaps()
    harness.topics.snapshot("a", 70, 2)
    land_heartbeat(harness, 2, pos=80)

    assert [one.shards for one in first] == [(NAME,)]
    assert harness.gaps() == []


def test_lists_that_can_be_read_again_leave_what_was_in_doubt_between(
    based: LandingHarness,
) -> None:
    land_heartbeat(based, 1, pos=30)
    based.server.readable = True
    land_heartbeat(based, 2, pos=40)

    assert [one.shards for one in based.gaps()] == [(NAME,)]
