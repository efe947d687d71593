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
from tests.pipeline.landing.desk import GIB4, Desk

Change = Callable[[Desk], object]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Two rows of each source have landed; then one of ``a`` stands below them: it is held."""
    made = Desk(tmp_path)
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


def rounds(desk: Desk, count: int) -> list[LandingReport]:
    return [desk.land() for _ in range(count)]


def test_it_is_not_read_again_in_each_round_and_told_all_the_same(desk: Desk) -> None:
    found = rounds(desk, 5)

    assert desk.tasks == []
    assert [hold.id for one in found for hold in one.holds] == ["disorder:a:a.db.t:0:2@1"] * 5


def test_others_are_read_once_a_round(desk: Desk) -> None:
    for number in range(3):
        desk.topics.put("b", GIB4 - 100 + number, "more")
        desk.topics.put("a", GIB4 - 100 + number, "more")
        (landed,) = rounds(desk, 1)
        assert (landed.batch, len(landed.holds)) == (number + 1, 1)

    assert desk.tasks == [1, 1, 1]
    assert [offset for _, _, offset in desk.rows("a")] == [0, 1]
    assert [offset for _, _, offset in desk.rows("b")] == [0, 1, 2, 3, 4]


def test_its_schema_changes_go_ahead_of_nobody(desk: Desk) -> None:
    """More than a batch holds: read first, they would leave the others nothing."""
    desk.loop.settings = replace(desk.loop.settings, batch_rows=3)
    for pos in range(5):
        desk.topics.say("a", GIB4 - 90 + pos, "CREATE VIEW w AS SELECT 1")
    desk.topics.put("b", GIB4 - 100, "more")

    rounds(desk, 2)

    assert [offset for _, _, offset in desk.rows("b")] == [0, 1, 2]


def to_another_server(desk: Desk) -> None:
    desk.server.identity = "other"


def to_a_log_begun_anew(desk: Desk) -> None:
    desk.server.log = 1


@pytest.mark.parametrize("change", [to_another_server, to_a_log_begun_anew])
def test_another_server_or_log_is_seen_at_once(desk: Desk, change: Change) -> None:
    rounds(desk, 2)
    change(desk)

    (landed,) = rounds(desk, 1)

    assert landed.holds == ()
    assert [offset for _, _, offset in desk.rows("a")] == [0, 1, 2]


def test_a_waiver_is_heard_at_once(desk: Desk) -> None:
    (held,) = rounds(desk, 1)

    landed = desk.land(held.holds[0].id)

    assert landed.holds == ()
    assert [offset for _, _, offset in desk.rows("a")] == [0, 1, 2]


def test_a_topic_that_is_created_anew_is_read_at_once(desk: Desk) -> None:
    rounds(desk, 1)
    desk.topics.create_anew("a.db.t")
    desk.topics.put("a", GIB4 - 50, "fresh")

    (landed,) = rounds(desk, 1)

    assert landed.holds == ()
    assert len(landed.gaps) == 1
    assert (1, GIB4 - 50, 0) in desk.rows("a")


def test_it_is_read_again_now_and_then_whatever_is_known(desk: Desk) -> None:
    """The record itself was mended, such as by a topic that was put back: nobody tells of that."""
    began = desk.now
    reads: list[float] = []
    while desk.now < began + timedelta(minutes=4):
        desk.now += FIRST_WAIT
        desk.tasks.clear()
        desk.land()
        if desk.tasks:
            reads.append((desk.now - began).total_seconds())
    pauses = [after - before for before, after in pairwise(reads)]

    assert reads[0] == FIRST_WAIT.total_seconds()
    assert pauses[-1] == LONGEST_WAIT.total_seconds()
    assert len(reads) < 10

    desk.topics.held["a.db.t"].pop()
    desk.topics.put("a", GIB4 - 50, "mended")
    desk.now += LONGEST_WAIT
    (landed,) = rounds(desk, 1)
    assert landed.holds == ()
    assert [pos for _, pos, _ in desk.rows("a")][-1] == GIB4 - 50


def test_what_went_on_is_forgotten(desk: Desk) -> None:
    (held,) = rounds(desk, 1)
    desk.land(held.holds[0].id)
    desk.topics.put("a", 50, "lower still")
    desk.land()
    desk.now += RESENT

    found = rounds(desk, 2)

    assert [hold.id for one in found for hold in one.holds] == ["disorder:a:a.db.t:0:3@2"] * 2


def test_f140_rows_that_the_broker_refused_land_by_themselves_once_they_are_sent(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path)
    for pos in (GIB4 - 500, GIB4 - 300, GIB4 - 200):  # that at -400 is refused
        desk.topics.put("a", pos, f"at {pos}")
    desk.land()
    for pos in (GIB4 - 500, GIB4 - 400, GIB4 - 300, GIB4 - 200, GIB4 - 100):
        desk.topics.put("a", pos, f"at {pos}")

    landed = desk.land()

    assert (landed.holds, landed.rows) == ((), 5)
    assert desk.rows("a")[-5:] == [
        (1, GIB4 - 500, 3), (1, GIB4 - 400, 4), (1, GIB4 - 300, 5), (1, GIB4 - 200, 6),
        (1, GIB4 - 100, 7),
    ]  # fmt: skip


def resent(desk: Desk, cuts: frozenset[int]) -> list[LandingReport]:
    """Rows of a transaction come again with two refused ones; a batch ends before each of *cuts*.

    The rounds are shorter than the time in which a refused row may stay alone.
    """
    sent = [*range(-900, 0, 100)]
    for pos in sent:
        if pos not in (-700, -600, -300):
            desk.topics.put("a", GIB4 + pos, f"at {pos}")
    rounds(desk, 6)
    found = []
    for number, pos in enumerate(sent):
        if number in cuts:
            found.append(desk.land())
            desk.now += RESENT / 20
        desk.topics.put("a", GIB4 + pos, f"at {pos}")
    return [*found, desk.land()]


@pytest.mark.parametrize("most", [1_000, 3], ids=["whole batches", "batches of three rows"])
def test_f140_wherever_batches_cut_what_is_sent_again_it_lands_once_and_nothing_is_held(
    tmp_path: Path, most: int
) -> None:
    for cuts in (frozenset(), *(frozenset({n}) for n in range(1, 9)), frozenset(range(1, 9))):
        desk = Desk(tmp_path / f"{sorted(cuts)}", most=most, names="a")

        found = resent(desk, cuts)
        found += rounds(desk, 15)

        assert [hold for one in found for hold in one.holds] == [], cuts
        assert found[-1].gaps == ()
        again = [(1, GIB4 + pos, number) for number, pos in enumerate(range(-900, 0, 100), 6)]
        assert desk.rows("a")[6:] == again, cuts


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
    desk = Desk(tmp_path, names="a")
    desk.topics.alter("a", 10, "name", kind="CREATE")
    for pos in (100, 300):  # that at 200 is refused
        desk.topics.put("a", pos, f"at {pos}", key=pos)
    desk.land()
    sent = (*(100,) * earlier, 200, 300)
    for pos in sent:
        desk.topics.put("a", pos, f"at {pos}", key=pos)
    desk.topics.alter("a", 400, "name", "more")
    desk.topics.put("a", 500, "at 500", key=500)
    desk.loop.settings = replace(desk.loop.settings, batch_rows=most)

    found = rounds(desk, 8)

    assert [hold for one in found for hold in one.holds] == []
    assert [pos for _, pos, _ in desk.rows("a")] == [100, 300, *sent, 500]


def test_f140_a_refused_row_that_stays_alone_is_disorder_and_not_lost(tmp_path: Path) -> None:
    """A row of another partition waits with it: it may be of another log, too."""
    desk = Desk(tmp_path, names="a")
    for pos in (GIB4 - 500, GIB4 - 300):
        desk.topics.put("a", pos, f"at {pos}")
    desk.land()
    desk.topics.put("a", GIB4 - 400, "refused")
    desk.topics.beat("a", 1, pos=GIB4 - 100)

    held = []
    for _ in range(8):
        held.append([one.reason for one in desk.land().holds])
        desk.now += RESENT / 4

    assert held == [[]] * 4 + [["disorder"]] * 4
    assert [offset for _, _, offset in desk.rows("a")] == [0, 1]
    assert desk.checkpoint.heartbeats == {}

    desk.topics.put("a", GIB4 - 300, f"at {GIB4 - 300}")
    desk.now += LONGEST_WAIT
    freed = desk.land()
    assert (freed.holds, freed.rows) == ((), 3)


def test_f140_refused_rows_of_which_each_is_explained_in_time_are_never_disorder(
    tmp_path: Path,
) -> None:
    """Each round ends with one, and the next round has what explains it."""
    desk = Desk(tmp_path, names="a")
    sent = [GIB4 + pos for pos in range(-3_000, 0, 100)]
    for pos in sent[::2]:
        desk.topics.put("a", pos, f"at {pos}")
    desk.land()
    found = []
    for pos in sent:
        desk.topics.put("a", pos, f"at {pos}")
        if pos not in sent[::2]:
            found.append(desk.land())
            desk.now += RESENT / 4
    desk.topics.put("a", GIB4, "new")

    found.append(desk.land())

    assert [hold for one in found for hold in one.holds] == []
    assert sorted({pos for _, pos, _ in desk.rows("a")}) == [*sent, GIB4]


def test_f140_a_clock_that_was_set_back_makes_no_disorder(tmp_path: Path) -> None:
    desk = Desk(tmp_path, names="a")
    for pos in (GIB4 - 500, GIB4 - 300):
        desk.topics.put("a", pos, f"at {pos}")
    desk.land()
    desk.topics.put("a", GIB4 - 400, "refused")
    held = []
    for step in (-RESENT / 60, RESENT / 2, RESENT / 2):
        held.append([one.reason for one in desk.land().holds])
        desk.now += step

    held.append([one.reason for one in desk.land().holds])

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
    desk = Desk(tmp_path, names="a")
    for pos in (GIB4 - 300, GIB4 - 200):
        desk.topics.put("a", pos, "x")
    desk.land()
    for pos in (100, 200):
        desk.topics.put("a", pos, "of another log")
    again = Desk(tmp_path, names="a", topics=desk.topics)
    again.loop.recall_holds([stood])

    found = [[one.reason for one in report.holds] for report in rounds(again, 2)]

    assert found == [held, held]


def test_f140_a_row_of_another_log_is_disorder_once_the_row_behind_it_shows_that(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path, names="a")
    for pos in (GIB4 - 500, GIB4 - 300):
        desk.topics.put("a", pos, f"at {pos}")
    desk.land()
    desk.topics.put("a", GIB4 - 400, "of another log")
    quiet = desk.land()
    desk.topics.put("a", GIB4 - 300, "of another log, too")

    held = desk.land()

    assert quiet.holds == ()
    assert [one.id for one in held.holds] == ["disorder:a:a.db.t:0:2@1"]
