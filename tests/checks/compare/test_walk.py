"""A walk over a whole table names exactly the rows that differ, and decides nothing without proof.

The world follows late, and rows change between any two looks.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from checks.compare.look import choose_columns
from checks.compare.walk import ANY, TableWalk, WalkPlan, WalkProgress, WalkResult
from checks.counting import SuspectState
from checks.world import Range
from pipeline.errors import (
    ProofError,
    SlowError,
    SluiceError,
    SparedError,
    TooManyRowsError,
    UnreachableError,
)
from pipeline.model import Op, Shard
from tests.checks.world_fake import ONE, TABLE, TWO, FakeWorld

VALUED = {"id": "bigint", "v": "int"}
PLAN = WalkPlan((ONE, TWO), block_rows=8)
Found = set[tuple[SuspectState, Shard, int]]


@pytest.fixture
def world() -> FakeWorld:
    """A hundred rows in each of two shards, in step."""
    made = FakeWorld(columns={ONE: VALUED, TWO: VALUED})
    made.alter(ONE, v="int")
    made.alter(TWO, v="int")
    made.commit(*((Op.CREATE, shard, id_) for shard in (ONE, TWO) for id_ in range(100)))
    made.catch_up()
    return made


def walk(
    world: FakeWorld,
    plan: WalkPlan = PLAN,
    *,
    pause: Callable[[], object] | None = None,
    busy: Callable[[], object] = lambda: None,
    lake: Callable[[], object] = lambda: None,
) -> WalkResult:
    """Walk while the world is *busy* at each statement; the mirror follows in each pause.

    *lake* is called when the world is opened.
    """
    columns = {}
    for shard in plan.shards:
        schema = world.schema(shard)
        assert schema is not None
        columns[shard] = choose_columns(TABLE, shard, schema, world)

    def open_world() -> FakeWorld:
        lake()
        world.meanwhile = [busy]
        return world

    return TableWalk(
        TABLE, columns, plan, open_world, world.clock, pause or world.catch_up, lambda _: None
    ).run()


def found(result: WalkResult) -> Found:
    return {(one.state, one.shard, one.id) for one in result.differences}


def test_equal_sides_are_equal_in_every_range(world: FakeWorld) -> None:
    result = walk(world)

    assert (result.rows, result.equal, result.different) == (200, result.ranges, 0)
    assert (result.differences, result.undecided) == ((), ())
    assert result.ranges > 20


def test_each_wrong_row_is_named_once_and_no_other(world: FakeWorld) -> None:
    world.contents[ONE, 7] += 1
    world.copy[ONE].pop(30)
    world.copy[TWO].update({500: 1})
    world.copy[TWO].update({61: 1})

    result = walk(world)

    assert found(result) == {
        (SuspectState.DIFFERENT, ONE, 7),
        (SuspectState.MISSING, ONE, 30),
        (SuspectState.EXTRA, TWO, 500),
        (SuspectState.DOUBLED, TWO, 61),
    }
    assert [one.columns for one in result.differences if one.id == 7] == [("v",)]
    assert (result.different, result.equal) == (4, result.ranges - 4)
    assert result.undecided == ()


def test_many_wrong_rows_are_all_named_with_their_columns(world: FakeWorld) -> None:
    for id_ in range(1, 40):
        world.contents[ONE, id_] += 1
        world.contents[TWO, id_] += 1

    result = walk(world)

    different = [one for one in result.differences if one.state is SuspectState.DIFFERENT]
    assert {(one.shard, one.id) for one in different} == {
        (s, n) for s in (ONE, TWO) for n in range(1, 40)
    }
    assert {one.columns for one in different} == {("v",)}


def test_rows_that_change_meanwhile_are_no_differences(world: FakeWorld) -> None:
    world.contents[TWO, 50] += 1
    turn = iter(range(10_000))

    def busy() -> None:
        number = next(turn)
        world.commit(
            (Op.UPDATE, ONE, number % 100),
            (Op.DELETE, TWO, number % 40),
            (Op.CREATE, TWO, (number + 20) % 40),
        )

    result = walk(world, busy=busy)

    assert found(result) == {(SuspectState.DIFFERENT, TWO, 50)}
    assert result.undecided == ()


def test_only_the_range_and_the_shards_of_the_plan_are_looked_at(world: FakeWorld) -> None:
    for shard, id_ in ((ONE, 19), (ONE, 20), (ONE, 39), (ONE, 40), (TWO, 30)):
        world.contents[shard, id_] += 1

    result = walk(world, replace(PLAN, shards=(ONE,), within=(20, 40)))

    assert found(result) == {(SuspectState.DIFFERENT, ONE, id_) for id_ in (20, 39)}
    assert result.rows == 20


def test_ids_below_and_above_those_of_the_source_are_looked_at(world: FakeWorld) -> None:
    world.copy[ONE].update({-(2**62): 1, 2**62: 1})

    assert found(walk(world)) == {(SuspectState.EXTRA, ONE, id_) for id_ in (-(2**62), 2**62)}


@pytest.mark.parametrize("id_", [2**63 - 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("within", [ANY, (2**63 - 1, ANY[1])], ids=["all", "the end"])
def test_an_id_at_the_end_of_its_type_is_looked_at(
    world: FakeWorld, id_: int, within: Range
) -> None:
    world.copy[ONE].update({id_: 1})

    assert found(walk(world, replace(PLAN, within=within))) == {(SuspectState.EXTRA, ONE, id_)}


def test_without_heartbeats_a_range_in_motion_is_undecided_and_the_others_are_equal(
    world: FakeWorld,
) -> None:
    world.commit((Op.UPDATE, ONE, 3))

    result = walk(world, pause=lambda: world.tick(timedelta(seconds=5)))

    (left,) = result.undecided
    assert (left.shard, left.span[0] <= 3 < left.span[1]) == (ONE, True)
    assert "no heartbeat since" in left.why
    assert "start `sluice run`" in left.why
    assert (result.equal, result.undecided_ranges) == (result.ranges - 1, 1)
    assert result.differences == ()


def test_a_mirror_that_does_not_follow_is_undecided_after_the_patience(world: FakeWorld) -> None:
    world.commit((Op.UPDATE, ONE, 3))

    def pause() -> None:
        world.tick(timedelta(minutes=1))
        world.write_heartbeat()

    (left,) = walk(world, pause=pause).undecided

    assert left.why.startswith("the mirror has not reached")


def test_ranges_that_the_source_refuses_are_read_in_parts(world: FakeWorld) -> None:
    world.allowed, world.refusal = 3, TooManyRowsError("too many")
    world.contents[ONE, 7] += 1

    result = walk(world, replace(PLAN, block_rows=64))

    assert found(result) == {(SuspectState.DIFFERENT, ONE, 7)}
    assert (result.rows, result.undecided) == (200, ())


def test_a_range_whose_rows_the_source_does_not_list_is_undecided(world: FakeWorld) -> None:
    """Its estimate was low, so it did add them up.  Others of the same look are read."""
    world.commit((Op.DELETE, ONE, 9))
    world.catch_up()
    world.listed = 7
    world.copy[ONE].pop(7)
    world.copy[ONE].pop(10)

    result = walk(world)

    assert found(result) == {(SuspectState.MISSING, ONE, 10)}
    assert [(one.shard, one.span) for one in result.undecided] == [(ONE, (0, 8))]


def test_a_statement_that_is_too_slow_is_tried_with_parts_of_its_range(world: FakeWorld) -> None:
    world.allowed, world.refusal = 3, SlowError("source:shop: slow: 5 s")

    result = walk(world, replace(PLAN, block_rows=64))

    assert (result.rows, result.equal) == (200, result.ranges)


@pytest.mark.parametrize(
    ("refusal", "why", "limit"),
    [
        pytest.param(
            TooManyRowsError("about 9 rows of orders in one range, limits.rows is 0"),
            "has more rows than may be read at once: about 9 rows of",
            "rows",
            id="too many",
        ),
        pytest.param(
            SlowError("source:shop: slow: 5 s"),
            "was not read in time: source:shop: slow: 5 s",
            "statement",
            id="too slow",
        ),
    ],
)
def test_one_id_that_cannot_be_read_is_undecided_and_names_the_limit(
    world: FakeWorld, refusal: SluiceError, why: str, limit: str
) -> None:
    world.allowed, world.refusal = 0, refusal

    result = walk(world)

    assert {one.shard for one in result.undecided} == {ONE, TWO}
    assert f"of {ONE} {why}" in result.undecided[0].why
    assert result.undecided[0].why.endswith(
        f"; index id, or increase options.limits.{limit} of {ONE.source}"
    )


def test_a_loaded_source_is_asked_again_after_a_pause(world: FakeWorld) -> None:
    waits = list[Any]()

    def pause() -> None:
        waits.append(world.time)
        world.error = None
        world.catch_up()

    def loaded() -> None:
        if not waits:
            world.error = SparedError("running", "source:shop: loaded: 65 threads run")
            raise world.error

    result = walk(world, pause=pause, busy=loaded)

    assert len(waits) == 1
    assert result.equal == result.ranges


def test_a_source_that_stays_silent_ends_the_walk_and_nothing_is_equal(world: FakeWorld) -> None:
    def silent() -> None:
        raise UnreachableError("source:shop: down")

    result = walk(world, pause=lambda: world.tick(timedelta(minutes=4)), busy=silent)

    assert [(one.shard, one.span) for one in result.undecided] == [(ONE, ANY), (TWO, ANY)]
    assert {one.why for one in result.undecided} == {
        "it was not read, because the comparison ended early: source:shop: down"
    }


@pytest.mark.parametrize("gone", ["source", "lake"])
def test_rows_that_were_found_before_a_server_went_away_are_reported(
    world: FakeWorld, gone: str
) -> None:
    world.contents[ONE, 7] += 1
    turns = iter(range(10_000))

    def busy() -> None:
        world.catch_up()
        if next(turns) > 20:
            raise UnreachableError("down")

    def pause() -> None:
        world.tick(timedelta(minutes=4))

    plan = replace(PLAN, look=timedelta())  # one range at a time
    if gone == "source":
        result = walk(world, plan, pause=pause, busy=busy)
    else:
        result = walk(world, plan, pause=pause, lake=busy)

    assert found(result) == {(SuspectState.DIFFERENT, ONE, 7)}
    last = result.undecided[-1]
    assert last.span[1] == ANY[1]
    assert last.why == "it was not read, because the comparison ended early: down"
    assert 0 < result.rows < 200


def test_rows_that_wait_for_the_mirror_when_the_lake_goes_away_are_undecided(
    world: FakeWorld,
) -> None:
    world.contents[ONE, 7] += 1
    world.commit((Op.UPDATE, TWO, 50))
    lost = False

    def pause() -> None:
        nonlocal lost
        lost = True
        world.tick(timedelta(minutes=4))

    def lake() -> None:
        if lost:
            raise UnreachableError("lake: down")

    result = walk(world, pause=pause, lake=lake)

    assert any(one.shard == TWO and one.span[0] <= 50 for one in result.undecided)
    assert all(one.why.endswith("was settled: lake: down") for one in result.undecided)
    assert result.equal + result.different + result.undecided_ranges == result.ranges


def test_an_answer_of_the_lake_that_is_lost_is_asked_for_again(world: FakeWorld) -> None:
    """Whichever answer it is."""
    asked = list[int]()

    def lake() -> None:
        asked.append(1)
        if len(asked) % 2:
            raise UnreachableError("lake: reset by peer")

    result = walk(world, lake=lake)

    assert (result.undecided, result.equal) == ((), result.ranges)
    assert len(asked) > 4


@pytest.mark.parametrize("landed", [False, True])
def test_a_column_that_is_added_meanwhile_is_named_as_not_compared(
    world: FakeWorld, *, landed: bool
) -> None:
    def tell(_: WalkProgress) -> None:
        if landed and len(world.columns[ONE]) == len(VALUED):
            world.alter(ONE, v="int", w="int")
            world.catch_up()
        world.columns[ONE] = {**VALUED, "w": "int"}

    one = walk_of_one(world, tell)
    before = one.columns[ONE].columns

    result = one.run()

    assert (result.undecided, result.equal) == ((), result.ranges)
    assert one.columns[ONE].columns == before
    assert one.columns[ONE].left_out == {
        "w": "it was added while the table was compared; compare again"
    }


def test_a_table_whose_columns_cannot_be_read_again_is_undecided(world: FakeWorld) -> None:
    def tell(progress: WalkProgress) -> None:
        if progress.ranges == progress.expected:
            world.error = UnreachableError("source:shop: down")

    result = walk_of_one(world, tell, lambda: world.tick(timedelta(minutes=4))).run()

    assert [(one.shard, one.span, one.why) for one in result.undecided] == [
        (ONE, ANY, "it is unknown whether a column was added meanwhile: source:shop: down")
    ]


def walk_of_one(
    world: FakeWorld,
    tell: Callable[[WalkProgress], object],
    pause: Callable[[], object] | None = None,
) -> TableWalk:
    schema = world.schema(ONE)
    assert schema is not None
    columns = {ONE: choose_columns(TABLE, ONE, schema, world)}
    plan = replace(PLAN, shards=(ONE,))
    return TableWalk(
        TABLE, columns, plan, lambda: world, world.clock, pause or world.catch_up, tell
    )


def test_a_column_that_is_gone_leaves_its_shard_undecided(world: FakeWorld) -> None:
    def gone() -> None:
        raise ProofError("shop_00.orders has no column v; has it just been changed?")

    result = walk(world, replace(PLAN, shards=(ONE,)), busy=gone)

    assert [(one.shard, one.why[:14]) for one in result.undecided] == [(ONE, "shop_00.orders")]
    assert result.equal == 0


def test_a_row_that_changes_in_each_look_is_undecided(world: FakeWorld) -> None:
    """It differs, so no position explains it, and something is always in motion."""
    world.copied_contents[ONE, 3] = 77
    world.contents[ONE, 3] = 5

    def pause() -> None:
        world.commit((Op.UPDATE, ONE, 3))
        world.catch_up()
        world.copied_contents[ONE, 3] = 77

    (left,) = walk(world, pause=pause).undecided

    assert (left.shard, left.span) == (ONE, (3, 4))
    assert left.why == "the row changed in each of 5 looks"


def test_more_rows_than_are_read_one_by_one_leave_their_range_undecided(world: FakeWorld) -> None:
    many = range(1_000, 2_000)
    world.commit(*((Op.CREATE, ONE, id_) for id_ in many))
    world.catch_up()
    for id_ in many:
        world.contents[ONE, id_] += 1

    result = walk(world, replace(PLAN, block_rows=2_000, shards=(ONE,)))

    assert len(result.differences) == 500
    assert {one.state for one in result.differences} == {SuspectState.DIFFERENT}
    assert "repair what was found" in result.undecided[0].why


def test_rows_beyond_those_that_are_named_are_counted(world: FakeWorld) -> None:
    many = range(1_000, 2_200)
    world.commit(*((Op.CREATE, ONE, id_) for id_ in many))
    world.catch_up()
    for id_ in many:
        world.copy[ONE].pop(id_)

    result = walk(world, replace(PLAN, block_rows=16, shards=(ONE,), look=timedelta()))

    assert len(result.differences) == 1_000
    assert result.more == {SuspectState.MISSING: 200}
    assert (result.different, result.equal, result.undecided_ranges) == (6, 5, 0)


def test_progress_counts_rows_and_ranges(world: FakeWorld) -> None:
    said = list[WalkProgress]()

    walk_of_one(world, said.append).run()

    assert [one.rows for one in said] == sorted(one.rows for one in said)
    assert (said[-1].rows, said[-1].ranges) == (100, said[-1].expected)
