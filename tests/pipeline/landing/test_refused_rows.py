"""Rows that a broker refused at first land when they are sent again, and are else disorder."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.clocks import LONGEST_WAIT
from pipeline.landing.source_holds import RESENT
from pipeline.reports import LandingReport
from tests.builders.harness import GIB4, LandingHarness


def land_batches(harness: LandingHarness, count: int) -> list[LandingReport]:
    return [harness.land() for _ in range(count)]


def test_f140_rows_that_the_broker_refused_land_by_themselves_once_they_are_sent(
    tmp_path: Path,
) -> None:
    harness = LandingHarness(tmp_path)
    for pos in (GIB4 - 500, GIB4 - 300, GIB4 - 200):  # that at -400 is refused
        harness.topics.put("a", pos, f"at {pos}")
    harness.land()
    for pos in (GIB4 - 500, GIB4 - 400, GIB4 - 300, GIB4 - 200, GIB4 - 100):
        harness.topics.put("a", pos, f"at {pos}")

    landed = harness.land()

    assert (landed.holds, landed.rows) == ((), 5)
    assert harness.rows("a")[-5:] == [
        (1, GIB4 - 500, 3), (1, GIB4 - 400, 4), (1, GIB4 - 300, 5), (1, GIB4 - 200, 6),
        (1, GIB4 - 100, 7),
    ]  # fmt: skip


def test_a_full_batch_ends_before_a_refused_row(tmp_path: Path) -> None:
    harness = LandingHarness(tmp_path, names="a", most=2)
    for pos in (100, 300):  # that at 200 is refused
        harness.topics.put("a", pos, f"at {pos}", key=pos)
    harness.land()
    for pos in (100, 200, 300):
        harness.topics.put("a", pos, f"at {pos}", key=pos)

    found = land_batches(harness, 2)

    assert [(one.holds, one.rows) for one in found] == [((), 1), ((), 2)]
    assert [pos for _, pos, _ in harness.rows("a")] == [100, 300, 100, 200, 300]


@pytest.mark.parametrize(
    ("most", "refused"),
    [
        pytest.param(1, 1, id="one row"),
        pytest.param(2, 2, id="as many rows as are refused"),
        pytest.param(2, 7, id="fewer than half of them"),
    ],
)
def test_a_batch_that_is_full_of_refused_rows_is_read_up_to_the_row_behind_them(
    tmp_path: Path, most: int, refused: int
) -> None:
    harness = LandingHarness(tmp_path, names="a")
    for pos in (100, 300):  # those from 200 on are refused
        harness.topics.put("a", pos, f"at {pos}", key=pos)
    harness.land()
    sent = (*range(200, 200 + refused), 300)
    for pos in sent:
        harness.topics.put("a", pos, f"at {pos}", key=pos)
    harness.loop.settings = replace(harness.loop.settings, batch_rows=most)

    (found,) = land_batches(harness, 1)

    assert (found.holds, found.rows) == ((), refused + 1)
    assert [pos for _, pos, _ in harness.rows("a")] == [100, 300, *sent]


@pytest.mark.parametrize(
    ("most", "earlier"),
    [
        pytest.param(1_000, 0, id="whole batches"),
        pytest.param(2, 0, id="the row behind it is in the next batch"),
        pytest.param(4, 2, id="rows before it land first"),
    ],
)
def test_no_later_statement_lands_before_a_refused_row(
    tmp_path: Path, most: int, earlier: int
) -> None:
    harness = LandingHarness(tmp_path, names="a")
    harness.topics.alter("a", 10, "name", kind="CREATE")
    for pos in (100, 300):  # that at 200 is refused
        harness.topics.put("a", pos, f"at {pos}", key=pos)
    harness.land()
    sent = (*(100,) * earlier, 200, 300)
    for pos in sent:
        harness.topics.put("a", pos, f"at {pos}", key=pos)
    harness.topics.alter("a", 400, "name", "more")
    harness.topics.put("a", 500, "at 500", key=500)
    harness.loop.settings = replace(harness.loop.settings, batch_rows=most)

    found = land_batches(harness, 8)

    assert [hold for one in found for hold in one.holds] == []
    assert [pos for _, pos, _ in harness.rows("a")] == [100, 300, *sent, 500]


def test_f140_a_refused_row_that_stays_alone_is_disorder_and_not_lost(tmp_path: Path) -> None:
    """A row of another partition waits with it: it may be of another log, too."""
    harness = LandingHarness(tmp_path, names="a")
    for pos in (GIB4 - 500, GIB4 - 300):
        harness.topics.put("a", pos, f"at {pos}")
    harness.land()
    harness.topics.put("a", GIB4 - 400, "refused")
    harness.topics.write_heartbeat("a", 1, pos=GIB4 - 100)

    held = []
    for _ in range(8):
        held.append([one.reason for one in harness.land().holds])
        harness.now += RESENT / 4

    assert held == [[]] * 4 + [["disorder"]] * 4
    assert [offset for _, _, offset in harness.rows("a")] == [0, 1]
    assert harness.checkpoint.heartbeats == {}

    harness.topics.put("a", GIB4 - 300, f"at {GIB4 - 300}")
    harness.now += LONGEST_WAIT
    freed = harness.land()
    assert (freed.holds, freed.rows) == ((), 3)


def test_f140_refused_rows_of_which_each_is_explained_in_time_are_never_disorder(
    tmp_path: Path,
) -> None:
    """Each round ends with one, and the next round has what explains it."""
    harness = LandingHarness(tmp_path, names="a")
    sent = [GIB4 + pos for pos in range(-3_000, 0, 100)]
    for pos in sent[::2]:
        harness.topics.put("a", pos, f"at {pos}")
    harness.land()
    found = []
    for pos in sent:
        harness.topics.put("a", pos, f"at {pos}")
        if pos not in sent[::2]:
            found.append(harness.land())
            harness.now += RESENT / 4
    harness.topics.put("a", GIB4, "new")

    found.append(harness.land())

    assert [hold for one in found for hold in one.holds] == []
    assert sorted({pos for _, pos, _ in harness.rows("a")}) == [*sent, GIB4]


def test_f140_a_clock_that_was_set_back_makes_no_disorder(tmp_path: Path) -> None:
    harness = LandingHarness(tmp_path, names="a")
    for pos in (GIB4 - 500, GIB4 - 300):
        harness.topics.put("a", pos, f"at {pos}")
    harness.land()
    harness.topics.put("a", GIB4 - 400, "refused")
    held = []
    for step in (-RESENT / 60, RESENT / 2, RESENT / 2):
        held.append([one.reason for one in harness.land().holds])
        harness.now += step

    held.append([one.reason for one in harness.land().holds])

    assert held == [[], [], [], ["disorder"]]


@pytest.mark.parametrize(
    ("stood", "held"),
    [
        pytest.param("disorder:a:a.db.t:0:2@1", ["disorder"], id="held before"),
        pytest.param("registry:a", [], id="another hold"),
        pytest.param("disorder:a:a.db.t:0:1@1", [], id="of another row"),
    ],
)
def test_f140_a_restart_ends_no_hold(tmp_path: Path, stood: str, held: list[str]) -> None:
    harness = LandingHarness(tmp_path, names="a")
    for pos in (GIB4 - 300, GIB4 - 200):
        harness.topics.put("a", pos, "x")
    harness.land()
    for pos in (100, 200):
        harness.topics.put("a", pos, "of another log")
    again = LandingHarness(tmp_path, names="a", topics=harness.topics)
    again.loop.recall_holds([stood])

    found = [[one.reason for one in report.holds] for report in land_batches(again, 2)]

    assert found == [held, held]


def test_f140_a_row_of_another_log_is_disorder_once_the_row_behind_it_shows_that(
    tmp_path: Path,
) -> None:
    harness = LandingHarness(tmp_path, names="a")
    for pos in (GIB4 - 500, GIB4 - 300):
        harness.topics.put("a", pos, f"at {pos}")
    harness.land()
    harness.topics.put("a", GIB4 - 400, "of another log")
    quiet = harness.land()
    harness.topics.put("a", GIB4 - 300, "of another log, too")

    held = harness.land()

    assert quiet.holds == ()
    assert [one.id for one in held.holds] == ["disorder:a:a.db.t:0:2@1"]
