"""A mirror becomes the image of a cut before it goes on, and only if it is complete."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.apply import merge_plan
from pipeline.backfill_state import Backfill
from pipeline.checkpoint import Checkpoint, Gap, Quarantine
from pipeline.image import DueCut, find_missing
from pipeline.invariants.range import Range, ValueBounds
from pipeline.model import Op, Order, Origin, Shard, Table
from pipeline.settings import InvariantRule, PublishRule
from pipeline.sources.mysql.types import MySqlColumn as Column
from tests.builders.lake import ID, NOW, LocalLake, row
from tests.builders.lake import NAME as FULL_NAME
from tests.builders.values import fence

C, U, D, R, S, T = Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ, Op.SETTLE, Op.TRUNCATE
CUT = NOW + timedelta(minutes=25)  # each pass takes ten


@pytest.fixture
def lake(tmp_path: Path) -> LocalLake:
    """With a row that was applied long before the cut."""
    made = LocalLake(tmp_path, publish=(PublishRule("db.*"),))
    made.cuts = (DueCut(CUT),)
    made.play([row(C, 10, 1, "a"), row(C, 11, 2, "b")])
    return made


def set_cut(lake: LocalLake, pos: int) -> None:
    """The heartbeat after the cut is written, where the log ends at *pos*."""
    lake.cuts = (DueCut(CUT, {"s": fence(7, CUT, "s", pos=pos)}),)


def test_one_slice_with_changes_on_both_sides_is_split_at_the_cut(lake: LocalLake) -> None:
    lake.now = CUT
    set_cut(lake, 50)
    lake.prove(50)
    lake.land(row(U, 20, 1, "day"), row(U, 60, 1, "night"), row(D, 61, 2), row(C, 49, 3, "last"))

    lake.run()

    (image,) = lake.images()
    assert lake.rows(version=image.version) == {1: "day", 2: "b", 3: "last"}
    assert lake.rows() == {1: "night", 3: "last"}
    assert lake.runner.applied("db.t") == lake.checkpoint.batch


def test_what_stands_at_the_cut_is_behind_it(lake: LocalLake) -> None:
    lake.now = CUT
    set_cut(lake, 50)
    lake.prove(50)
    lake.land(row(U, 49, 1, "below"), row(U, 50, 2, "at"))

    lake.run()

    assert lake.rows(version=lake.images()[0].version) == {1: "below", 2: "b"}


def test_from_the_cut_on_a_mirror_waits_until_all_below_it_has_landed(lake: LocalLake) -> None:
    lake.now = CUT - timedelta(minutes=9)
    lake.land(row(U, 60, 1, "night"))

    before = lake.run()  # the cut has just passed, and no heartbeat after it is written
    set_cut(lake, 50)
    lake.now = CUT + timedelta(minutes=1) - timedelta(minutes=10)
    waiting = lake.run()
    lake.land(row(U, 20, 2, "came late"))
    lake.prove(50)
    lake.land()
    lake.run()

    assert before == waiting == ()
    assert lake.rows(version=lake.images()[0].version) == {1: "a", 2: "came late"}
    assert lake.rows() == {1: "night", 2: "came late"}


def test_who_waits_for_too_long_goes_on_without_an_image(lake: LocalLake) -> None:
    lake.now = CUT
    lake.land(row(U, 60, 1, "night"))

    assert lake.run() == ()
    lake.run()  # ten minutes later
    lake.prove(50)
    set_cut(lake, 50)
    lake.land(row(U, 70, 1, "deep night"))
    lake.run()

    assert lake.images() == ()
    assert lake.rows()[1] == "deep night"


def test_an_idle_table_has_an_image_too(lake: LocalLake) -> None:
    lake.now = CUT
    set_cut(lake, 50)
    lake.prove(50)
    lake.land()

    lake.run()

    (image,) = lake.images()
    assert lake.rows(version=image.version) == {1: "a", 2: "b"}
    assert image.batch == lake.checkpoint.batch
    assert lake.run() == ()


def test_a_cut_that_a_mirror_has_gone_past_has_no_image(lake: LocalLake) -> None:
    cuts, lake.cuts = lake.cuts, ()
    lake.now = CUT
    lake.play([row(U, 60, 1, "night")])
    lake.cuts = cuts
    set_cut(lake, 50)
    lake.prove(50)
    lake.land(row(U, 61, 1, "deep night"))

    lake.run()

    assert lake.images() == ()
    assert lake.rows()[1] == "deep night"


def test_a_turn_that_began_before_the_cut_and_was_committed_after_it_is_none_past_it(
    lake: LocalLake,
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
    set_cut(lake, 50)
    lake.prove(50)
    lake.land(row(U, 60, 1, "night"))
    lake.run()

    assert [lake.rows(version=one.version) for one in lake.images()] == [{1: "day", 2: "b"}]


def test_after_a_restart_nothing_is_forgotten_of_a_cut(lake: LocalLake) -> None:
    lake.now = CUT
    lake.land(row(U, 60, 1, "night"))
    assert lake.run() == ()
    lake.reopen()
    set_cut(lake, 50)
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
    lake: LocalLake, night: list[Mapping[str, Any]], expected: Mapping[int, str]
) -> None:
    lake.now = CUT
    set_cut(lake, 50)
    lake.prove(50)
    lake.land(*night)
    turns = lake.run()

    assert lake.rows(version=lake.images()[0].version) == expected
    assert [turn.hold for turn in turns] == [None, None]
    assert turns[0].image is not None
    assert turns[1].account.residual == 0


def test_a_base_from_after_the_cut_hides_nothing_that_was_before_it(lake: LocalLake) -> None:
    lake.now = CUT
    set_cut(lake, 50)
    lake.prove(50)
    bases = {SHARD: row(S, 70, None)["order"]}
    lake.checkpoint = replace(lake.checkpoint, bases=bases)
    lake.land(row(U, 20, 1, "day"), row(R, 70, 2, "new"), row(S, 70, None))

    lake.run()

    assert lake.rows(version=lake.images()[0].version) == {1: "day", 2: "b"}
    assert lake.rows() == {2: "new"}


def test_days_that_were_slept_through_have_one_image_each(lake: LocalLake) -> None:
    lake.now = CUT + timedelta(days=2)
    cuts = [CUT + timedelta(days=number) for number in range(3)]
    lake.cuts = tuple(DueCut(cut, {"s": fence(7, cuts[-1], "s", pos=50)}) for cut in cuts)
    lake.prove(50)
    lake.land(row(U, 60, 1, "morning"))

    lake.run()

    assert [one.cut for one in lake.images()] == cuts
    assert [lake.rows(version=one.version) for one in lake.images()] == [{1: "a", 2: "b"}] * 3
    assert lake.rows()[1] == "morning"


def test_a_mirror_that_was_paused_over_midnight_becomes_the_image_once_it_goes_on(
    lake: LocalLake,
) -> None:
    lake.land(row(U, 20, 1, "day"), row(U, 60, 1, "night"))
    lake.now = CUT + timedelta(days=1)
    lake.run(paused={"db.t"})
    set_cut(lake, 50)
    lake.prove(50)
    lake.land(row(U, 70, 2, "night"))
    lake.run(paused={"db.t"})
    assert lake.images() == ()

    lake.run()

    assert lake.rows(version=lake.images()[0].version) == {1: "day", 2: "b"}
    assert lake.rows() == {1: "night", 2: "night"}


def test_a_day_has_one_image_also_where_the_time_zone_has_changed_and_it_ended_twice(
    lake: LocalLake,
) -> None:
    """Both would stand in one folder, each in the place of the other."""
    cuts = [CUT, CUT + timedelta(hours=8)]
    lake.now = cuts[-1]
    lake.cuts = tuple(
        DueCut(cut, {"s": fence(7, cuts[-1], "s", pos=50)}, "2026-01-02") for cut in cuts
    )
    lake.prove(50)
    lake.land(row(U, 60, 1, "night"))

    lake.run()

    assert [one.cut for one in lake.images()] == cuts[1:]


def test_changes_without_a_place_in_a_log_are_not_cut_and_not_held_back(lake: LocalLake) -> None:
    """Their orders are offsets: below the heartbeat's place some would be by chance."""
    lake.runner.images.unplaced = frozenset({"s"})
    lake.now = CUT
    lake.land(row(U, 20, 1, "day"), row(U, 60, 1, "night"))

    lake.run()

    assert lake.images() == ()
    assert lake.rows()[1] == "night"


NAME, SHARD = "s/db.t", Shard("s", "db.t")
GAP = Gap("s.db.t:0:20@1", "s.db.t", 0, 20, 31, "retention", shards=(NAME,), batch=1)
UNREAD = Quarantine("db.t", 1, 1, ("s.db.t:0:20@1",), (NAME,))


@pytest.fixture
def imaged(tmp_path: Path) -> LocalLake:
    """With a row that was applied before the cut, which has passed; its heartbeat is at 50."""
    return at_the_cut(tmp_path)


def at_the_cut(home: Path, **more: Any) -> LocalLake:
    made = LocalLake(home, **({"publish": (PublishRule("db.*"),)} | more))
    made.cuts = (DueCut(CUT),)
    made.play([row(Op.CREATE, 10, 1, "a")])
    made.now = CUT
    made.end_day(CUT, 50)
    return made


def images(imaged: LocalLake) -> int:
    return len(imaged.images())


def rebased(imaged: LocalLake) -> None:
    """A base from after the cut closes what was open, as landing marks it."""
    base = Order(1, 1, 90)
    imaged.checkpoint = replace(
        imaged.checkpoint,
        gaps={},
        quarantine={},
        bases={Shard.parse(NAME): base},
        lost={Shard.parse(NAME): base},
    )
    imaged.land(row(Op.READ, 90, 1, "b"), row(Op.READ, 90, 2, "lost"), row(Op.SETTLE, 90, None))


@pytest.mark.parametrize(
    "open_",
    [
        pytest.param({"gaps": {GAP.id: GAP}}, id="a gap"),
        pytest.param({"quarantine": {NAME: UNREAD}}, id="a quarantine"),
    ],
)
def test_a_new_base_makes_no_image_of_what_the_mirror_lacked_before(
    imaged: LocalLake, open_: Mapping[str, Any]
) -> None:
    imaged.checkpoint = replace(imaged.checkpoint, **open_)
    imaged.land(row(Op.CREATE, 40, 3, "c"))
    imaged.run()
    rebased(imaged)

    imaged.run()

    assert images(imaged) == 0
    assert imaged.rows() == {1: "b", 2: "lost"}


def test_a_base_that_closed_a_gap_makes_none_after_a_restart_either(imaged: LocalLake) -> None:
    imaged.checkpoint = replace(imaged.checkpoint, gaps={GAP.id: GAP})
    imaged.land(row(Op.CREATE, 40, 3, "c"))
    imaged.run()
    rebased(imaged)
    imaged.reopen()

    for _ in range(3):
        imaged.run()

    assert images(imaged) == 0
    assert imaged.rows() == {1: "b", 2: "lost"}


def test_a_shard_without_a_base_has_no_image(imaged: LocalLake) -> None:
    imaged.checkpoint = replace(imaged.checkpoint, bases={})
    imaged.land(row(Op.UPDATE, 20, 1, "day"))

    imaged.run()

    assert images(imaged) == 0
    assert imaged.rows() == {1: "day"}


@pytest.mark.parametrize(
    ("bases", "lost", "known", "why"),
    [
        pytest.param({}, {}, {}, "no complete base", id="none"),
        pytest.param({SHARD: 10}, {}, {}, "", id="before the cut"),
        pytest.param({SHARD: 50}, {}, {}, "no base before", id="at the cut"),
        pytest.param({SHARD: 90}, {}, {SHARD: 10}, "", id="a second one after the cut"),
        pytest.param({SHARD: 90}, {}, {SHARD: 60}, "no base before", id="both after the cut"),
        pytest.param({SHARD: 30}, {SHARD: 30}, {}, "", id="a gap was closed before the cut"),
        pytest.param(
            {SHARD: 90}, {SHARD: 50}, {SHARD: 10}, "lacked", id="a gap was closed after it"
        ),
    ],
)
def test_bases_tell_what_a_mirror_may_lack(
    bases: Mapping[Shard, int], lost: Mapping[Shard, int], known: Mapping[Shard, int], why: str
) -> None:
    def at(places: Mapping[Shard, int]) -> dict[Shard, Order]:
        return {shard: Order(1, 1, pos) for shard, pos in places.items()}

    found = find_missing(
        Table("db.t", (SHARD,)),
        {"s": Order(1, 1, 50)},
        Checkpoint("main", 3, bases=at(bases), lost=at(lost)),
        at(known),
    )

    assert why in found
    assert bool(found) is bool(why)


def test_a_new_base_frees_a_table_whose_image_nobody_can_make(imaged: LocalLake) -> None:
    """The base stands behind the cut, so the image's turn never comes to it."""
    imaged.land(row(Op.UPDATE, 20, 1, "x"), row(Op.UPDATE, 20, 1, "y"))
    first = imaged.run()
    imaged.checkpoint = replace(imaged.checkpoint, bases={Shard.parse(NAME): Order(1, 1, 90)})
    imaged.land(row(Op.READ, 90, 1, "good"), row(Op.SETTLE, 90, None))
    turns = imaged.run()

    assert [turn.hold and turn.hold.reason for turn in first] == ["conflict"]
    assert [turn.hold for turn in turns] == [None]
    assert images(imaged) == 0
    assert imaged.rows() == {1: "good"}


def test_a_value_that_is_put_right_after_the_cut_frees_its_table(tmp_path: Path) -> None:
    bounds = Range({"id": ValueBounds(most=100)})
    imaged = at_the_cut(tmp_path, invariants=(InvariantRule("db.*", (("range", bounds),)),))
    imaged.land(row(Op.CREATE, 20, 500, "bad"))
    first = imaged.run()
    imaged.land(row(Op.DELETE, 60, 500, "bad"))
    turns = imaged.run()

    assert [turn.hold is None for turn in first] == [False]
    assert [turn.hold for turn in turns] == [None]
    assert imaged.rows() == {1: "a"}


def test_an_image_that_is_refused_is_waited_for_as_long_as_any(tmp_path: Path) -> None:
    """Here a waiver comes in time."""
    rule = InvariantRule("db.*", (("range", Range({"id": ValueBounds(most=100)})),))
    publish = (PublishRule("db.*", hold_back=timedelta(hours=1)),)
    imaged = at_the_cut(tmp_path, publish=publish, invariants=(rule,))
    imaged.land(row(Op.CREATE, 20, 500, "odd"))
    (turn,) = imaged.run()
    imaged.run()
    assert turn.hold is not None

    imaged.run(turn.hold.id)

    assert images(imaged) == 1
    assert imaged.rows() == {1: "a", 500: "odd"}


def test_what_is_too_much_for_one_turn_makes_no_image(
    imaged: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_plan, "MOST_ROWS", 5)
    for batch in range(4):
        first = 20 + 4 * batch
        imaged.land(*(row(Op.CREATE, pos, pos, "x") for pos in range(first, first + 4)))

    turns = [*imaged.run(), *imaged.run(), *imaged.run(), *imaged.run()]

    assert images(imaged) == 0
    assert max(turn.account.read for turn in turns) < 16
    assert len(imaged.rows()) == 17


def test_all_that_one_turn_may_read_makes_one(
    imaged: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where other tables' rows lie beside."""
    monkeypatch.setattr(merge_plan, "MOST_ROWS", 5)
    other = {"table": "db.u", "shard": "db.u"}
    imaged.land(*(row(Op.CREATE, pos, pos, "x", **other) for pos in range(20, 30)))
    imaged.land(row(Op.CREATE, 31, 2, "x"))

    imaged.run()

    assert images(imaged) == 1


PART = Backfill("x", Origin.SNAPSHOT, Order(1, 1, 30), "A", 1)


@pytest.mark.parametrize(
    ("one", "made"),
    [
        pytest.param(PART, 0, id="still"),
        pytest.param(replace(PART, done=3, closing=Order(1, 1, 60)), 0, id="until after it"),
        pytest.param(replace(PART, done=3, closing=Order(1, 1, 40)), 1, id="until before it"),
        pytest.param(replace(PART, order=Order(1, 1, 60)), 1, id="from after it on"),
        pytest.param(
            replace(PART, order=Order(1, 1, 60), first=Order(1, 1, 30)), 0, id="and anew since"
        ),
    ],
)
def test_what_was_read_again_over_the_cut_makes_no_image(
    imaged: LocalLake, one: Backfill, made: int
) -> None:
    """Its rows stand below the cut, and tell what came after it."""
    imaged.checkpoint = replace(imaged.checkpoint, backfills={Shard.parse(NAME): one})
    imaged.land(row(Op.CREATE, 40, 3, "c"))

    imaged.run()

    assert images(imaged) == made


def test_a_base_after_the_cut_tells_nothing_of_columns_before_it(tmp_path: Path) -> None:
    """Rows of before a column that nobody can fill make no image, and the mirror goes on."""
    keep = timedelta(days=30)
    rule = PublishRule("db.t", keep=keep, hold_back=timedelta(hours=2))
    imaged = LocalLake(tmp_path, publish=(rule,))
    imaged.play([row(Op.CREATE, 10, 1, "a"), row(Op.CREATE, 11, 3, "c")])
    computed = Column("at", "VARCHAR", 80, default="uuid()", generated=True)
    imaged.alter(ID, FULL_NAME, computed, at=Order(1, 1, 15))
    imaged.land(timed_change(Op.CREATE, 20, 2, "live"))
    imaged.end_day(imaged.now + timedelta(minutes=1), 30, "d")
    imaged.land(
        *(timed_change(Op.READ, 50, key, "real") for key in (1, 2, 3)), row(Op.SETTLE, 50, None)
    )
    imaged.checkpoint = replace(imaged.checkpoint, bases={Shard.parse(NAME): Order(1, 1, 50)})
    imaged.prove(50, 9)
    held = [turn.hold for turn in imaged.run()]
    assert [one.reason for one in held if one] == ["schema"]

    imaged.now += timedelta(hours=3)
    imaged.run()
    imaged.run()

    assert imaged.images() == ()
    assert {one["id"]: one["at"] for one in imaged.mirror()} == dict.fromkeys((1, 2, 3), "real")


def timed_change(op: Op, pos: int, key: int, at: str) -> dict[str, Any]:
    return {**row(op, pos, key), "after": json.dumps({"id": key, "name": "x", "at": at})}
