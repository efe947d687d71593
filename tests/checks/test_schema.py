"""A schema change that never lands is found; one that is on its way is not."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from checks.model import NotYet, Outcome, Ruling, Verdict
from checks.probes.schema import Schema
from checks.run import Check, run_probe
from pipeline.errors import UnreachableError
from tests.checks.world_fake import ONE, TABLE, FakeWorld, in_step

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
    before = in_step("schema", Schema(), world, 2)
    harm(world)

    after = in_step("schema", Schema(), world, 3)

    told = "shop/shop_00.orders: n: the server has it, the log does not"
    assert [each.outcome for each in before] == [Outcome.PASS] * 2
    key = "shop/shop_00.orders:n@1-1-0-0"
    assert after[-1] == Ruling(Outcome.FAIL, told, "columns_differ", (key,))


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
        world.beat()
        world.tick(timedelta(minutes=3))
        seen.append(look(world))
    world.catch_up()
    landed = look(world)

    assert {each.outcome for each in seen if each} == {Outcome.UNKNOWN}
    assert {each.code for each in seen if each} == {"not_reached"}
    assert landed is not None
    assert landed.outcome is Outcome.PASS


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

    assert in_step("schema", Schema(), world, 1)[-1].outcome is Outcome.PASS


def test_a_source_that_does_not_answer_proves_nothing() -> None:
    world = FakeWorld()
    world.error = UnreachableError("source:shop: down")

    ruling = look(world)

    assert ruling is not None
    assert (ruling.outcome, ruling.code) == (Outcome.UNKNOWN, "unreachable")
