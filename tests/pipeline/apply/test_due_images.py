"""A mirror becomes the image of a cut before it goes on, on real Delta tables."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.image import DueCut
from pipeline.model import Fence, Head, Op
from pipeline.settings import PublishRule
from pipeline.sources.mysql.position import binlog_position
from tests.pipeline.hand_lake import NOW, HandLake, row

C, U, D, R, S, T = Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ, Op.SETTLE, Op.TRUNCATE
CUT = NOW + timedelta(minutes=25)  # each pass takes ten


def fence(pos: int, number: int = 7, at: datetime = CUT, identity: str = "A") -> Fence:
    return Fence("s", number, at, Head(identity, binlog_position(1, pos)))


@pytest.fixture
def lake(tmp_path: Path) -> HandLake:
    """With a row that was applied long before the cut."""
    made = HandLake(tmp_path, publish=(PublishRule("db.*"),))
    made.cuts = (DueCut(CUT),)
    made.play([row(C, 10, 1, "a"), row(C, 11, 2, "b")])
    return made


def written(lake: HandLake, pos: int) -> None:
    """The heartbeat after the cut is written, where the log ends at *pos*."""
    lake.cuts = (DueCut(CUT, {"s": fence(pos)}),)


def test_one_slice_with_changes_on_both_sides_is_split_at_the_cut(lake: HandLake) -> None:
    lake.now = CUT
    written(lake, 50)
    lake.prove(50)
    lake.land(row(U, 20, 1, "day"), row(U, 60, 1, "night"), row(D, 61, 2), row(C, 49, 3, "last"))

    lake.run()

    (image,) = lake.images()
    assert lake.rows(version=image.version) == {1: "day", 2: "b", 3: "last"}
    assert lake.rows() == {1: "night", 3: "last"}
    assert lake.runner.applied("db.t") == lake.checkpoint.batch


def test_what_stands_at_the_cut_is_behind_it(lake: HandLake) -> None:
    lake.now = CUT
    written(lake, 50)
    lake.prove(50)
    lake.land(row(U, 49, 1, "below"), row(U, 50, 2, "at"))

    lake.run()

    assert lake.rows(version=lake.images()[0].version) == {1: "below", 2: "b"}


def test_from_the_cut_on_a_mirror_waits_until_all_below_it_has_landed(lake: HandLake) -> None:
    lake.now = CUT - timedelta(minutes=9)
    lake.land(row(U, 60, 1, "night"))

    before = lake.run()  # the cut has just passed, and no heartbeat after it is written
    written(lake, 50)
    lake.now = CUT + timedelta(minutes=1) - timedelta(minutes=10)
    waiting = lake.run()
    lake.land(row(U, 20, 2, "came late"))
    lake.prove(50)
    lake.land()
    lake.run()

    assert before == waiting == ()
    assert lake.rows(version=lake.images()[0].version) == {1: "a", 2: "came late"}
    assert lake.rows() == {1: "night", 2: "came late"}


def test_who_waits_for_too_long_goes_on_without_an_image(lake: HandLake) -> None:
    lake.now = CUT
    lake.land(row(U, 60, 1, "night"))

    assert lake.run() == ()
    lake.run()  # ten minutes later
    lake.prove(50)
    written(lake, 50)
    lake.land(row(U, 70, 1, "deep night"))
    lake.run()

    assert lake.images() == ()
    assert lake.rows()[1] == "deep night"


def test_an_idle_table_has_an_image_too(lake: HandLake) -> None:
    lake.now = CUT
    written(lake, 50)
    lake.prove(50)
    lake.land()

    lake.run()

    (image,) = lake.images()
    assert lake.rows(version=image.version) == {1: "a", 2: "b"}
    assert image.batch == lake.checkpoint.batch
    assert lake.run() == ()


def test_a_cut_that_a_mirror_has_gone_past_has_no_image(lake: HandLake) -> None:
    cuts, lake.cuts = lake.cuts, ()
    lake.now = CUT
    lake.play([row(U, 60, 1, "night")])
    lake.cuts = cuts
    written(lake, 50)
    lake.prove(50)
    lake.land(row(U, 61, 1, "deep night"))

    lake.run()

    assert lake.images() == ()
    assert lake.rows()[1] == "deep night"


def test_a_turn_that_began_before_the_cut_and_was_committed_after_it_is_none_past_it(
    lake: HandLake,
) -> None:
    """What a turn is made of had landed when it began."""
    lake.land(row(U, 20, 1, "day"))
    lake.now = CUT - timedelta(minutes=10, seconds=1)
    clock = lake.runner.clock
    asked: list[datetime] = []

    def slow() -> datetime:
        asked.append(clock() if not asked or clock() < CUT else CUT)
        return asked[-1] if len(asked) < 8 else CUT + timedelta(seconds=5)

    lake.runner.clock = slow
    lake.run()
    lake.runner.clock = clock
    written(lake, 50)
    lake.prove(50)
    lake.land(row(U, 60, 1, "night"))
    lake.run()

    assert [lake.rows(version=one.version) for one in lake.images()] == [{1: "day", 2: "b"}]


def test_after_a_restart_nothing_is_forgotten_of_a_cut(lake: HandLake) -> None:
    lake.now = CUT
    lake.land(row(U, 60, 1, "night"))
    assert lake.run() == ()
    lake.reopen()
    written(lake, 50)
    lake.prove(50)
    lake.land()

    lake.run()  # tells an old turn
    lake.run()

    assert lake.rows(version=lake.images()[0].version) == {1: "a", 2: "b"}
    lake.reopen()
    lake.run()
    lake.run()
    assert len(lake.images()) == 1


@pytest.mark.parametrize(
    ("night", "expected"),
    [
        pytest.param([row(T, 60, None)], {1: "a", 2: "b"}, id="a truncate"),
        pytest.param(
            [row(R, 70, 9, "new"), row(S, 70, None)], {1: "a", 2: "b"}, id="a new base that settles"
        ),
        pytest.param([row(T, 40, None), row(C, 60, 4, "x")], {}, id="a truncate before the cut"),
        pytest.param(
            [row(C, 30, 4, "x"), row(D, 60, 4, "x")],
            {1: "a", 2: "b", 4: "x"},
            id="born before, gone after",
        ),
        pytest.param(
            [row(D, 60, 1, "a"), row(C, 61, 1, "again")],
            {1: "a", 2: "b"},
            id="deleted and inserted again after",
        ),
        pytest.param([row(C, 30, 4, "x"), row(D, 31, 4, "x")], {1: "a", 2: "b"}, id="both before"),
    ],
)
def test_the_image_is_what_a_model_says(
    lake: HandLake, night: list[Mapping[str, Any]], expected: Mapping[int, str]
) -> None:
    lake.now = CUT
    written(lake, 50)
    lake.prove(50)
    lake.land(*night)
    turns = lake.run()

    assert lake.rows(version=lake.images()[0].version) == expected
    assert [turn.hold for turn in turns] == [None, None]
    assert turns[0].image is not None
    assert turns[1].account.residual == 0


def test_a_base_from_after_the_cut_hides_nothing_that_was_before_it(lake: HandLake) -> None:
    lake.now = CUT
    written(lake, 50)
    lake.prove(50)
    bases = {"s/db.t": row(S, 70, None)["order"]}
    lake.checkpoint = replace(lake.checkpoint, bases=bases)
    lake.land(row(U, 20, 1, "day"), row(R, 70, 2, "new"), row(S, 70, None))

    lake.run()

    assert lake.rows(version=lake.images()[0].version) == {1: "day", 2: "b"}
    assert lake.rows() == {2: "new"}


def test_days_that_were_slept_through_have_one_image_each(lake: HandLake) -> None:
    lake.now = CUT + timedelta(days=2)
    cuts = [CUT + timedelta(days=number) for number in range(3)]
    lake.cuts = tuple(DueCut(cut, {"s": fence(50, at=cuts[-1])}) for cut in cuts)
    lake.prove(50)
    lake.land(row(U, 60, 1, "morning"))

    lake.run()

    assert [one.cut for one in lake.images()] == cuts
    assert [lake.rows(version=one.version) for one in lake.images()] == [{1: "a", 2: "b"}] * 3
    assert lake.rows()[1] == "morning"


def test_a_mirror_that_was_paused_over_midnight_becomes_the_image_once_it_goes_on(
    lake: HandLake,
) -> None:
    lake.land(row(U, 20, 1, "day"), row(U, 60, 1, "night"))
    lake.now = CUT + timedelta(days=1)
    lake.run(paused={"db.t"})
    written(lake, 50)
    lake.prove(50)
    lake.land(row(U, 70, 2, "night"))
    lake.run(paused={"db.t"})
    assert lake.images() == ()

    lake.run()

    assert lake.rows(version=lake.images()[0].version) == {1: "day", 2: "b"}
    assert lake.rows() == {1: "night", 2: "night"}


def test_a_day_has_one_image_also_where_the_time_zone_has_changed_and_it_ended_twice(
    lake: HandLake,
) -> None:
    """Both would stand in one folder, each in the place of the other."""
    cuts = [CUT, CUT + timedelta(hours=8)]
    lake.now = cuts[-1]
    lake.cuts = tuple(DueCut(cut, {"s": fence(50, at=cuts[-1])}, "2026-01-02") for cut in cuts)
    lake.prove(50)
    lake.land(row(U, 60, 1, "night"))

    lake.run()

    assert [one.cut for one in lake.images()] == cuts[1:]


def test_changes_without_a_place_in_a_log_are_not_cut_and_not_held_back(lake: HandLake) -> None:
    """Their orders are offsets: below the heartbeat's place some would be by chance."""
    lake.runner.images.unplaced = frozenset({"s"})
    lake.now = CUT
    lake.land(row(U, 20, 1, "day"), row(U, 60, 1, "night"))

    lake.run()

    assert lake.images() == ()
    assert lake.rows()[1] == "night"
