"""A source in disorder is not read in each round, and every way out of it still leads out."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from pipeline.clocks import FIRST_WAIT, LONGEST_WAIT
from pipeline.landing.source_holds import RESENT
from pipeline.reports import LandingReport
from tests.builders.harness import GIB4, LandingHarness

Change = Callable[[LandingHarness], object]


@pytest.fixture
def harness(tmp_path: Path) -> LandingHarness:
    """Two rows of each source have landed; then one of ``a`` stands below them: it is held."""
    made = LandingHarness(tmp_path)
    for source in "ab":
        for pos in (GIB4 - 300, GIB4 - 200):
            made.topics.put(source, pos, "x")
    made.land()
    made.topics.put("a", 100, "new")
    assert made.land().holds == (), "the row that shows that a broker refused it may follow"
    made.now += RESENT
    assert [hold.reason for hold in made.land().holds] == ["disorder"]
    made.tasks.clear()
    return made


def land_batches(harness: LandingHarness, count: int) -> list[LandingReport]:
    return [harness.land() for _ in range(count)]


def test_it_is_not_read_again_in_each_round_and_told_all_the_same(harness: LandingHarness) -> None:
    found = land_batches(harness, 5)

    assert harness.tasks == []
    assert [hold.id for one in found for hold in one.holds] == ["disorder:a:a.db.t:0:2@1"] * 5


def test_others_are_read_once_a_round(harness: LandingHarness) -> None:
    for number in range(3):
        harness.topics.put("b", GIB4 - 100 + number, "more")
        harness.topics.put("a", GIB4 - 100 + number, "more")
        (landed,) = land_batches(harness, 1)
        assert (landed.batch, len(landed.holds)) == (number + 1, 1)

    assert harness.tasks == [1, 1, 1]
    assert [offset for _, _, offset in harness.rows("a")] == [0, 1]
    assert [offset for _, _, offset in harness.rows("b")] == [0, 1, 2, 3, 4]


def test_its_schema_changes_go_ahead_of_nobody(harness: LandingHarness) -> None:
    """More than a batch holds: read first, they would leave the others nothing."""
    harness.loop.settings = replace(harness.loop.settings, batch_rows=3)
    for pos in range(5):
        harness.topics.say("a", GIB4 - 90 + pos, "CREATE VIEW w AS SELECT 1")
    harness.topics.put("b", GIB4 - 100, "more")

    land_batches(harness, 2)

    assert [offset for _, _, offset in harness.rows("b")] == [0, 1, 2]


def to_another_server(harness: LandingHarness) -> None:
    harness.server.identity = "other"


def to_a_log_begun_anew(harness: LandingHarness) -> None:
    harness.server.log = 1


@pytest.mark.parametrize("change", [to_another_server, to_a_log_begun_anew])
def test_another_server_or_log_is_seen_at_once(harness: LandingHarness, change: Change) -> None:
    land_batches(harness, 2)
    change(harness)

    (landed,) = land_batches(harness, 1)

    assert landed.holds == ()
    assert [offset for _, _, offset in harness.rows("a")] == [0, 1, 2]


def test_a_waiver_is_heard_at_once(harness: LandingHarness) -> None:
    (held,) = land_batches(harness, 1)

    landed = harness.land(held.holds[0].id)

    assert landed.holds == ()
    assert [offset for _, _, offset in harness.rows("a")] == [0, 1, 2]


def test_a_topic_that_is_created_anew_is_read_at_once(harness: LandingHarness) -> None:
    land_batches(harness, 1)
    harness.topics.create_anew("a.db.t")
    harness.topics.put("a", GIB4 - 50, "fresh")

    (landed,) = land_batches(harness, 1)

    assert landed.holds == ()
    assert len(landed.gaps) == 1
    assert (1, GIB4 - 50, 0) in harness.rows("a")


def test_it_is_read_again_now_and_then_whatever_is_known(harness: LandingHarness) -> None:
    """The record itself was mended, such as by a topic that was put back: nobody tells of that."""
    began = harness.now
    reads: list[float] = []
    while harness.now < began + timedelta(minutes=4):
        harness.now += FIRST_WAIT
        harness.tasks.clear()
        harness.land()
        if harness.tasks:
            reads.append((harness.now - began).total_seconds())
    pauses = [after - before for before, after in pairwise(reads)]

    assert reads[0] == FIRST_WAIT.total_seconds()
    assert pauses[-1] == LONGEST_WAIT.total_seconds()
    assert len(reads) < 10

    harness.topics.held["a.db.t"].pop()
    harness.topics.put("a", GIB4 - 50, "mended")
    harness.now += LONGEST_WAIT
    (landed,) = land_batches(harness, 1)
    assert landed.holds == ()
    assert [pos for _, pos, _ in harness.rows("a")][-1] == GIB4 - 50


def test_what_went_on_is_forgotten(harness: LandingHarness) -> None:
    (held,) = land_batches(harness, 1)
    harness.land(held.holds[0].id)
    harness.topics.put("a", 50, "lower still")
    harness.land()
    harness.now += RESENT

    found = land_batches(harness, 2)

    assert [hold.id for one in found for hold in one.holds] == ["disorder:a:a.db.t:0:3@2"] * 2


def test_a_topic_of_it_that_was_deleted_is_left_out_with_it(tmp_path: Path) -> None:
    harness = LandingHarness(tmp_path, names="a")
    harness.topics.put("a", GIB4 - 300, "x")
    harness.topics.write_heartbeat("a", 1, pos=GIB4 - 200)
    harness.land()
    harness.topics.put("a", 100, "new")
    harness.land()
    harness.now += RESENT
    harness.topics.held.pop("a.sluice.heartbeat")

    found = land_batches(harness, 2)

    assert [(one.batch, one.gaps) for one in found] == [(None, ())] * 2
    assert [[hold.reason for hold in one.holds] for one in found] == [["disorder"]] * 2
