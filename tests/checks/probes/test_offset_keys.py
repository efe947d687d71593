from collections import Counter
from collections.abc import Callable

import pytest

from checks.model import NotYet, Outcome
from checks.probes.offset_keys import KeyState, OffsetKeys, judge_key
from checks.run import Check, run_probe
from checks.world import LastChange, ShardBase
from pipeline.model import Op, Order
from tests.checks.world_fake import ONE, TABLE, TWO, FakeWorld, in_step


@pytest.mark.parametrize(
    ("there", "touch", "fate"),
    [
        pytest.param(True, LastChange(Op.UPDATE, 5), KeyState.FINE, id="there as it should"),
        pytest.param(False, LastChange(Op.DELETE, 5), KeyState.FINE, id="deleted since"),
        pytest.param(False, LastChange(Op.TRUNCATE, 5), KeyState.FINE, id="truncated since"),
        pytest.param(
            False, LastChange(Op.CREATE, 5), KeyState.MISSING, id="landed, not in the mirror"
        ),
        pytest.param(False, None, KeyState.MISSING, id="never landed"),
        pytest.param(True, None, KeyState.FINE, id="older than the change log"),
        pytest.param(True, LastChange(Op.DELETE, 5), KeyState.EXTRA, id="deleted but there"),
        pytest.param(
            False, LastChange(Op.CREATE, 6), KeyState.MOVING, id="created again, not applied"
        ),
        pytest.param(
            True, LastChange(Op.DELETE, 6), KeyState.MOVING, id="its delete is not applied"
        ),
    ],
)
def test_a_key_is_compared_with_its_newest_landed_change(
    there: bool, touch: LastChange | None, fate: KeyState
) -> None:
    assert judge_key(there, touch, 5, one_shard=True) is fate


def test_a_row_that_moved_to_another_shard_is_no_ghost() -> None:
    assert judge_key(True, LastChange(Op.DELETE, 5), 5, one_shard=False) is KeyState.FINE


def test_topics_without_a_row_are_no_pass() -> None:
    found = in_step("offset_keys", OffsetKeys(), FakeWorld(), 3)

    assert {(each.outcome, each.code) for each in found} == {(Outcome.UNKNOWN, "not_yet")}


def test_keys_that_have_all_changed_again_are_no_pass() -> None:
    world, check = FakeWorld(), Check("offset_keys", OffsetKeys(), TABLE)
    world.commit((Op.CREATE, ONE, 1))
    run_probe(check, world)
    world.catch_up()
    world.commit((Op.UPDATE, ONE, 1))
    world.land()  # and nobody merges it

    seen = run_probe(check, world)

    assert seen == NotYet("its last keys have changed again, and that is not merged yet")


def test_a_key_that_was_looked_for_and_found_passes() -> None:
    world = FakeWorld()
    world.commit((Op.CREATE, ONE, 1))

    found = in_step("offset_keys", OffsetKeys(), world, 3)

    assert found[-1].outcome is Outcome.PASS
    assert found[-1].reason.startswith("1 last keys")


def test_a_missing_key_that_was_only_changed_again_is_no_pass() -> None:
    world, check = FakeWorld(), Check("offset_keys", OffsetKeys(), TABLE)
    world.commit((Op.CREATE, ONE, 1))
    world.commit((Op.CREATE, TWO, 2))
    in_step("offset_keys", OffsetKeys(), world, 2)
    del world.copy[ONE][1]  # the mirror loses row 1
    found = in_step("offset_keys", OffsetKeys(), world, 3)
    assert [(found[-1].outcome, found[-1].code)] == [(Outcome.FAIL, "missing_rows")]

    world.catch_up()
    world.commit((Op.UPDATE, ONE, 1))
    world.land()
    assert run_probe(check, world) == NotYet("asking for doubtful keys again")

    world.catch_up()
    world.copy[ONE][1] = world.copy[TWO][2]
    assert in_step("offset_keys", OffsetKeys(), world, 2)[-1].outcome is Outcome.PASS


def find_wrong_key(world: FakeWorld, *, extra: bool = False) -> None:
    """The mirror has lost row 1, or has it though it is deleted, and that is found."""
    world.commit((Op.CREATE, ONE, 1), (Op.CREATE, TWO, 2))
    world.catch_up()
    if extra:
        world.commit((Op.DELETE, ONE, 1))
        world.catch_up()
    in_step("offset_keys", OffsetKeys(), world, 1)
    world.copy[ONE] = Counter([1] if extra else [])
    assert in_step("offset_keys", OffsetKeys(), world, 3)[-1].outcome is Outcome.FAIL


def drop_changes(world: FakeWorld) -> None:
    """The change log drops all days but the newest."""
    world.commit((Op.CREATE, ONE, 3))
    world.catch_up()
    world.commit((Op.CREATE, ONE, 4))
    world.catch_up()
    world.dropped = world.landed_batch() - 1


def replace_log(world: FakeWorld) -> None:
    """Another change log is there, which has none of the changes."""
    drop_changes(world)
    world.outdated = {*world.memory}


@pytest.mark.parametrize("harm", [drop_changes, replace_log])
@pytest.mark.parametrize("extra", [False, True])
def test_a_wrong_key_outlives_what_the_change_log_has_of_it(
    extra: bool, harm: Callable[[FakeWorld], None]
) -> None:
    world = FakeWorld()
    find_wrong_key(world, extra=extra)
    harm(world)
    world.rows[ONE].discard(1)  # by a delete that the log no longer has either

    stays = in_step("offset_keys", OffsetKeys(), world, 4)[-1]
    assert stays.code == ("extra_rows" if extra else "missing_rows")

    world.snapshot(ONE)
    world.copy[ONE][1] = 0
    assert in_step("offset_keys", OffsetKeys(), world, 3)[-1].outcome is Outcome.PASS


@pytest.mark.parametrize("extra", [False, True])
def test_a_wrong_key_that_left_the_change_log_ends_by_a_later_change(extra: bool) -> None:
    world = FakeWorld()
    find_wrong_key(world, extra=extra)
    drop_changes(world)
    world.commit((Op.CREATE if extra else Op.DELETE, ONE, 1), (Op.CREATE, ONE, 50))
    world.catch_up()

    assert in_step("offset_keys", OffsetKeys(), world, 3)[-1].outcome is Outcome.PASS


@pytest.mark.parametrize(("number", "outcome"), [(1, Outcome.FAIL), (2, Outcome.PASS)])
@pytest.mark.parametrize("extra", [False, True])
def test_a_wrong_key_ends_by_a_base_of_the_log_that_replaced_its_own(
    extra: bool, number: int, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeWorld, "incarnation", lambda _, batch: 1)
    world = FakeWorld()
    find_wrong_key(world, extra=extra)
    world.rows[ONE] = {1, 7} if extra else {7}
    world.replace_lake()
    world.copy[ONE][1] = int(extra)
    world.based = {str(ONE): ShardBase(Order(1, 1, 0), 0)}
    monkeypatch.setattr(FakeWorld, "incarnation", lambda _, batch: number)
    for _ in range(3):
        world.commit((Op.CREATE, TWO, 100 + len(world.ends)))
        found = in_step("offset_keys", OffsetKeys(), world, 2)

    assert found[-1].outcome is outcome


@pytest.mark.parametrize("extra", [False, True])
def test_a_wrong_key_that_left_the_change_log_ends_when_the_mirror_has_it_right(
    extra: bool,
) -> None:
    world = FakeWorld()
    find_wrong_key(world, extra=extra)
    drop_changes(world)
    world.copy[ONE][1] = int(not extra)

    assert in_step("offset_keys", OffsetKeys(), world, 3)[-1].outcome is Outcome.PASS
