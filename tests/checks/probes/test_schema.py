"""A schema change that never lands is found; one that is on its way is not."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from checks.model import NotYet, Outcome, Ruling, Verdict
from checks.probes.schema import Schema
from checks.run import Check, run_probe
from pipeline.errors import UnreachableError
from pipeline.model import Op
from tests.checks.world_fake import ONE, TABLE, TWO, Event, FakeWorld, in_step

CHECK = Check("schema", Schema(), TABLE)


def look(world: FakeWorld) -> Ruling | None:
    answer = run_probe(CHECK, world)
    return answer.ruling if isinstance(answer, Verdict) else None


def never_landed(world: FakeWorld) -> None:
    world.alter(ONE, n="int").lost = True


def never_logged(world: FakeWorld) -> None:
    world.columns[ONE] = {"id": "bigint", "n": "int"}


@pytest.mark.parametrize("harm", [never_landed, never_logged])
def test_a_column_that_the_log_does_not_know_is_named(harm: Callable[[FakeWorld], None]) -> None:
    world = FakeWorld()
    before = in_step("schema", Schema(), world, 3)
    harm(world)

    after = in_step("schema", Schema(), world, 3)

    told = "shop/shop_00.orders: n: the server has it, the log does not"
    assert [each.outcome for each in before] == [Outcome.PASS] * 2
    key = "shop/shop_00.orders:n@1-1-0-0#"
    assert (after[-1].outcome, after[-1].reason) == (Outcome.FAIL, told)
    assert after[-1].keys[0].startswith(key)


def test_a_type_that_the_log_tells_otherwise_is_named() -> None:
    world = FakeWorld()
    world.alter(ONE, n="int")
    world.alter(ONE, n="bigint").lost = True

    ruling = in_step("schema", Schema(), world, 3)[-1]

    assert ruling.reason == "shop/shop_00.orders: n: the log says INT, the server BIGINT"


def test_one_that_is_on_its_way_fails_nothing_however_long_it_takes() -> None:
    world = FakeWorld()
    world.catch_up()
    world.alter(ONE, n="int")
    seen = []
    for _ in range(5):
        world.write_heartbeat()
        world.tick(timedelta(minutes=3))
        seen.append(look(world))
    landed = in_step("schema", Schema(), world, 2)

    assert {each.outcome for each in seen if each} == {Outcome.UNKNOWN}
    assert {each.code for each in seen if each} == {"not_reached"}
    assert [each.outcome for each in landed] == [Outcome.PASS]


def test_the_same_difference_after_another_change_is_a_new_one() -> None:
    """INT, BIGINT, INT, BIGINT: each is late, and none is lost."""
    world = FakeWorld()
    world.alter(ONE, n="int")
    world.catch_up()
    world.alter(ONE, n="bigint")
    first = run_probe(CHECK, world)
    world.alter(ONE, n="int")
    world.catch_up()
    world.alter(ONE, n="bigint")

    second = run_probe(CHECK, world)

    assert isinstance(first, NotYet)
    assert isinstance(second, NotYet)


def test_a_loss_is_over_when_the_log_knows() -> None:
    world = FakeWorld()
    never_landed(world)
    assert in_step("schema", Schema(), world, 3)[-1].outcome is Outcome.FAIL
    world.alter(ONE, n="int")

    assert in_step("schema", Schema(), world, 2)[-1].outcome is Outcome.PASS


def test_that_both_sides_agree_holds_as_of_a_heartbeat() -> None:
    world = FakeWorld()
    seen = []
    for _ in range(3):
        world.catch_up()
        seen.append(run_probe(CHECK, world))

    assert isinstance(seen[0], NotYet)
    assert [one.as_of[0].number for one in seen[1:] if isinstance(one, Verdict)] == [1, 2]


def test_a_shard_that_the_source_does_not_show_is_no_difference() -> None:
    world = FakeWorld()
    world.columns[ONE] = {}

    ruling = in_step("schema", Schema(), world, 3)[-1]

    assert ruling.outcome is Outcome.PASS
    assert ruling.reason.endswith("; 1 of 2 shards it does not show")


def test_a_table_of_which_the_source_shows_nothing_is_unknown() -> None:
    world = FakeWorld()
    in_step("schema", Schema(), world, 3)
    world.columns = {ONE: {}, TWO: {}}

    found = in_step("schema", Schema(), world, 3)

    assert {(each.outcome, each.code) for each in found} == {(Outcome.UNKNOWN, "unsupported")}


def test_a_shard_whose_columns_never_landed_is_unknown() -> None:
    world = FakeWorld()
    world.log_.append(Event(Op.DDL, columns=(ONE, {})))
    world.catch_up()

    ruling = look(world)

    assert ruling is not None
    assert (ruling.outcome, ruling.code) == (Outcome.UNKNOWN, "unprovable")


def test_another_difference_of_one_column_has_another_key() -> None:
    """Or a waiver of the one would take the other with it, unseen."""
    world = FakeWorld()
    world.alter(ONE, n="int")
    world.columns[ONE] = {"id": "bigint", "n": "bigint"}
    first = in_step("schema", Schema(), world, 3)[-1]
    world.columns[ONE] = {"id": "bigint", "n": "date"}
    second = in_step("schema", Schema(), world, 3)[-1]

    assert (len(first.keys), len(second.keys)) == (1, 1)
    assert first.keys != second.keys


def test_a_source_that_does_not_answer_proves_nothing() -> None:
    world = FakeWorld()
    world.error = UnreachableError("source:shop: down")

    ruling = look(world)

    assert ruling is not None
    assert (ruling.outcome, ruling.code) == (Outcome.UNKNOWN, "unreachable")


def test_a_shard_that_is_hidden_ends_no_fail() -> None:
    world = FakeWorld()
    shown = world.columns[ONE]
    world.columns[ONE] = {"id": "bigint", "added": "int"}  # the log was never told
    found = in_step("schema", Schema(), world, 3)
    assert found[-1].outcome is Outcome.FAIL

    world.columns[ONE] = {}  # the grant on that shard is gone
    found = in_step("schema", Schema(), world, 3)
    assert {(one.outcome, one.code) for one in found} == {(Outcome.UNKNOWN, "unsupported")}

    world.columns[ONE] = shown
    assert in_step("schema", Schema(), world, 3)[-1].outcome is Outcome.PASS
