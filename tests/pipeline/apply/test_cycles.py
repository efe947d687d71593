"""Tables of low tiers wait for others, and for nobody who asks for them."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from pipeline.apply.merge_run import MergeQueue, MergeRequest, MergeRunner, is_other_tier, is_tier0
from pipeline.model import Op, Order
from pipeline.settings import PipelineSettings, TableRule
from tests.pipeline.hand_lake import ID, NAME, HandLake, row

C, U = Op.CREATE, Op.UPDATE
LOW, HOT = "db.t", "db.u"
RULES = (TableRule(r"db\.t", LOW, tier=2), TableRule(r"db\.u", HOT, tier=0))


@pytest.fixture
def lake(tmp_path: Path) -> HandLake:
    """Each pass is ten minutes after the one before; tables of tier 2 have 25 minutes."""
    made = HandLake(tmp_path, rules=RULES, others=(HOT,))
    made.settings = replace(made.settings, cycles={2: timedelta(minutes=25)})
    made.reopen()
    made.land(
        row(C, 10, 1, "a"), {**row(C, 10, 1, "a"), "table": HOT, "shard": HOT, "topic": "s.u"}
    )
    for _ in range(2):
        made.run()
    return made


def change(lake: HandLake, place: int, name: str) -> None:
    more = {"table": HOT, "shard": HOT, "topic": "s.u"}
    lake.land(row(U, place, 1, name), {**row(U, place, 1, name), **more})


def turned(lake: HandLake, *wanted: str) -> list[str]:
    return [turn.table for turn in lake.run(wanted=wanted)]


def test_a_table_of_a_low_tier_has_one_turn_in_a_cycle_and_loses_nothing(lake: HandLake) -> None:
    passes = []
    for number in range(6):
        change(lake, 20 + number, str(number))
        passes.append(turned(lake))

    assert [LOW in one for one in passes] == [False, True, False, False, True, False]
    assert all(HOT in one for one in passes)
    assert (lake.rows(), lake.rows(HOT)) == ({1: "4"}, {1: "5"})


def test_what_somebody_waits_for_waits_for_no_cycle(lake: HandLake) -> None:
    change(lake, 20, "b")

    assert turned(lake, LOW) == [HOT, LOW]
    assert lake.rows() == {1: "b"}


def test_a_table_that_is_held_is_tried_again_before_its_cycle_is_over(lake: HandLake) -> None:
    change(lake, 20, "b")
    lake.alter(ID, at=Order(1, 1, 15))
    first = next(turn for turn in lake.run(wanted=(LOW,)) if turn.table == LOW)
    assert first.hold is not None

    lake.alter(ID, NAME, at=Order(1, 1, 16))
    change(lake, 30, "c")

    assert LOW in turned(lake)


def test_after_a_restart_all_have_a_turn_at_once(lake: HandLake) -> None:
    change(lake, 20, "b")
    assert turned(lake) == [HOT]

    lake.reopen()
    tables = {*turned(lake), *turned(lake)}

    assert LOW in tables
    assert lake.rows() == {1: "b"}


@pytest.mark.parametrize(
    ("tier", "minutes"),
    [
        pytest.param(0, 0, id="tier 0 never waits"),
        pytest.param(1, 0, id="none is named for it, nor for one below"),
        pytest.param(2, 5, id="its own"),
        pytest.param(3, 5, id="that of the one below"),
        pytest.param(7, 15, id="another's below"),
    ],
)
def test_a_tier_waits_as_the_highest_named_up_to_it(tier: int, minutes: int) -> None:
    cycles = {2: timedelta(minutes=5), 4: timedelta(minutes=15)}
    settings = PipelineSettings("lake", "", (), cycles=cycles)

    assert settings.cycle(tier) == timedelta(minutes=minutes)


def test_each_table_is_merged_in_one_line(lake: HandLake) -> None:
    other = MergeRunner(
        lake.settings,
        lake.runner.jobs.changes,
        lake.runner.spread,
        lambda: lake.now,
        lake.table_format,
        lake.runner.mirrors,
    )
    lines = [MergeQueue("low", lake.runner, is_other_tier), MergeQueue("hot", other, is_tier0)]
    change(lake, 20, "b")
    state = lake.state()
    lake.now += timedelta(hours=1)

    told = [line.own(state) for line in lines]
    turns = [
        {turn.table for _ in range(2) for turn in line.runner.run(own, MergeRequest())}
        for line, own in zip(lines, told, strict=True)
    ]

    assert [set(own.checkpoint.tables) for own in told] == [{LOW}, {HOT}]
    assert turns == [{LOW}, {HOT}]
    assert lines[0].own(state) is told[0], "it is worked out once"
