"""No image is made of a mirror that may lack changes from before the cut, on real Delta tables."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.apply import merge_plan
from pipeline.backfill_state import Backfill
from pipeline.checkpoint import Checkpoint, Quarantine
from pipeline.image import DueCut, find_missing
from pipeline.invariants.range import Range, ValueBounds
from pipeline.model import Op, Order, Origin, Shard, Table
from pipeline.reports import Gap, dump_gap
from pipeline.settings import InvariantRule, PublishRule
from pipeline.sources.mysql.types import MySqlColumn as Column
from tests.pipeline.hand_lake import ID, NOW, HandLake, row
from tests.pipeline.hand_lake import NAME as FULL_NAME

CUT = NOW + timedelta(minutes=25)
NAME, SHARD = "s/db.t", Shard("s", "db.t")
GAP = Gap("s.db.t:0:20@1", "s.db.t", 0, 20, 31, "retention", shards=(NAME,), batch=1)
UNREAD = Quarantine("db.t", 1, 1, ("s.db.t:0:20@1",), (NAME,))


@pytest.fixture
def lake(tmp_path: Path) -> HandLake:
    """With a row that was applied before the cut, which has passed; its heartbeat is at 50."""
    return at_the_cut(tmp_path)


def at_the_cut(home: Path, **more: Any) -> HandLake:
    made = HandLake(home, **({"publish": (PublishRule("db.*"),)} | more))
    made.cuts = (DueCut(CUT),)
    made.play([row(Op.CREATE, 10, 1, "a")])
    made.now = CUT
    made.end_day(CUT, 50)
    return made


def images(lake: HandLake) -> int:
    return len(lake.images())


def rebased(lake: HandLake) -> None:
    """A base from after the cut closes what was open, as landing marks it."""
    base = Order(1, 1, 90)
    lake.checkpoint = replace(
        lake.checkpoint, gaps={}, quarantine={}, bases={NAME: base}, lost={NAME: base}
    )
    lake.land(row(Op.READ, 90, 1, "b"), row(Op.READ, 90, 2, "lost"), row(Op.SETTLE, 90, None))


@pytest.mark.parametrize(
    "open_",
    [
        pytest.param({"gaps": {GAP.id: dump_gap(GAP)}}, id="a gap"),
        pytest.param({"quarantine": {NAME: UNREAD}}, id="a quarantine"),
    ],
)
def test_a_new_base_makes_no_image_of_what_the_mirror_lacked_before(
    lake: HandLake, open_: Mapping[str, Any]
) -> None:
    lake.checkpoint = replace(lake.checkpoint, **open_)
    lake.land(row(Op.CREATE, 40, 3, "c"))
    lake.run()
    rebased(lake)

    lake.run()

    assert images(lake) == 0
    assert lake.rows() == {1: "b", 2: "lost"}


def test_a_base_that_closed_a_gap_makes_none_after_a_restart_either(lake: HandLake) -> None:
    lake.checkpoint = replace(lake.checkpoint, gaps={GAP.id: dump_gap(GAP)})
    lake.land(row(Op.CREATE, 40, 3, "c"))
    lake.run()
    rebased(lake)
    lake.reopen()

    for _ in range(3):
        lake.run()

    assert images(lake) == 0
    assert lake.rows() == {1: "b", 2: "lost"}


def test_a_shard_without_a_base_has_no_image(lake: HandLake) -> None:
    lake.checkpoint = replace(lake.checkpoint, bases={})
    lake.land(row(Op.UPDATE, 20, 1, "day"))

    lake.run()

    assert images(lake) == 0
    assert lake.rows() == {1: "day"}


@pytest.mark.parametrize(
    ("bases", "lost", "known", "why"),
    [
        pytest.param({}, {}, {}, "no complete base", id="none"),
        pytest.param({NAME: 10}, {}, {}, "", id="before the cut"),
        pytest.param({NAME: 50}, {}, {}, "no base before", id="at the cut"),
        pytest.param({NAME: 90}, {}, {SHARD: 10}, "", id="a second one after the cut"),
        pytest.param({NAME: 90}, {}, {SHARD: 60}, "no base before", id="both after the cut"),
        pytest.param({NAME: 30}, {NAME: 30}, {}, "", id="a gap was closed before the cut"),
        pytest.param({NAME: 90}, {NAME: 50}, {SHARD: 10}, "lacked", id="a gap was closed after it"),
    ],
)
def test_bases_tell_what_a_mirror_may_lack(
    bases: Mapping[str, int], lost: Mapping[str, int], known: Mapping[Shard, int], why: str
) -> None:
    def at(places: Mapping[Any, int]) -> dict[Any, Order]:
        return {name: Order(1, 1, pos) for name, pos in places.items()}

    found = find_missing(
        Table("db.t", (SHARD,)),
        {"s": Order(1, 1, 50)},
        Checkpoint("main", 3, bases=at(bases), lost=at(lost)),
        at(known),
    )

    assert why in found
    assert bool(found) is bool(why)


def test_a_new_base_frees_a_table_whose_image_nobody_can_make(lake: HandLake) -> None:
    """The base stands behind the cut, so the image's turn never comes to it."""
    lake.land(row(Op.UPDATE, 20, 1, "x"), row(Op.UPDATE, 20, 1, "y"))
    first = lake.run()
    lake.checkpoint = replace(lake.checkpoint, bases={NAME: Order(1, 1, 90)})
    lake.land(row(Op.READ, 90, 1, "good"), row(Op.SETTLE, 90, None))
    turns = lake.run()

    assert [turn.hold and turn.hold.reason for turn in first] == ["conflict"]
    assert [turn.hold for turn in turns] == [None]
    assert images(lake) == 0
    assert lake.rows() == {1: "good"}


def test_a_value_that_is_put_right_after_the_cut_frees_its_table(tmp_path: Path) -> None:
    bounds = Range({"id": ValueBounds(most=100)})
    lake = at_the_cut(tmp_path, invariants=(InvariantRule("db.*", (("range", bounds),)),))
    lake.land(row(Op.CREATE, 20, 500, "bad"))
    first = lake.run()
    lake.land(row(Op.DELETE, 60, 500, "bad"))
    turns = lake.run()

    assert [turn.hold is None for turn in first] == [False]
    assert [turn.hold for turn in turns] == [None]
    assert lake.rows() == {1: "a"}


def test_an_image_that_is_refused_is_waited_for_as_long_as_any(tmp_path: Path) -> None:
    """Here a waiver comes in time."""
    rule = InvariantRule("db.*", (("range", Range({"id": ValueBounds(most=100)})),))
    publish = (PublishRule("db.*", hold_back=timedelta(hours=1)),)
    lake = at_the_cut(tmp_path, publish=publish, invariants=(rule,))
    lake.land(row(Op.CREATE, 20, 500, "odd"))
    (turn,) = lake.run()
    lake.run()
    assert turn.hold is not None

    lake.run(turn.hold.id)

    assert images(lake) == 1
    assert lake.rows() == {1: "a", 500: "odd"}


def test_what_is_too_much_for_one_turn_makes_no_image(
    lake: HandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_plan, "MOST_ROWS", 5)
    for batch in range(4):
        first = 20 + 4 * batch
        lake.land(*(row(Op.CREATE, pos, pos, "x") for pos in range(first, first + 4)))

    turns = [*lake.run(), *lake.run(), *lake.run(), *lake.run()]

    assert images(lake) == 0
    assert max(turn.account.read for turn in turns) < 16
    assert len(lake.rows()) == 17


def test_all_that_one_turn_may_read_makes_one(
    lake: HandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where other tables' rows lie beside."""
    monkeypatch.setattr(merge_plan, "MOST_ROWS", 5)
    other = {"table": "db.u", "shard": "db.u"}
    lake.land(*(row(Op.CREATE, pos, pos, "x", **other) for pos in range(20, 30)))
    lake.land(row(Op.CREATE, 31, 2, "x"))

    lake.run()

    assert images(lake) == 1


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
    lake: HandLake, one: Backfill, made: int
) -> None:
    """Its rows stand below the cut, and tell what came after it."""
    lake.checkpoint = replace(lake.checkpoint, rereads={NAME: one})
    lake.land(row(Op.CREATE, 40, 3, "c"))

    lake.run()

    assert images(lake) == made


def test_a_base_after_the_cut_tells_nothing_of_columns_before_it(tmp_path: Path) -> None:
    """Rows of before a column that nobody can fill make no image, and the mirror goes on."""
    keep = timedelta(days=30)
    rule = PublishRule("db.t", keep=keep, hold_back=timedelta(hours=2))
    lake = HandLake(tmp_path, publish=(rule,))
    lake.play([row(Op.CREATE, 10, 1, "a"), row(Op.CREATE, 11, 3, "c")])
    computed = Column("at", "VARCHAR", 80, default="uuid()", generated=True)
    lake.alter(ID, FULL_NAME, computed, at=Order(1, 1, 15))
    lake.land(_told(Op.CREATE, 20, 2, "live"))
    lake.end_day(lake.now + timedelta(minutes=1), 30, "d")
    lake.land(*(_told(Op.READ, 50, key, "real") for key in (1, 2, 3)), row(Op.SETTLE, 50, None))
    lake.checkpoint = replace(lake.checkpoint, bases={NAME: Order(1, 1, 50)})
    lake.prove(50, 9)
    held = [turn.hold for turn in lake.run()]
    assert [one.reason for one in held if one] == ["schema"]

    lake.now += timedelta(hours=3)
    lake.run()
    lake.run()

    assert lake.images() == ()
    assert {one["id"]: one["at"] for one in lake.mirror()} == dict.fromkeys((1, 2, 3), "real")


def _told(op: Op, pos: int, key: int, at: str) -> dict[str, Any]:
    return {**row(op, pos, key), "after": json.dumps({"id": key, "name": "x", "at": at})}
