from collections.abc import Callable, Mapping
from typing import Any

import pytest

from checks.model import NotYet, Outcome, Ruling, Verdict
from checks.probes.max_id import MaxId, Reach
from checks.run import Check, run_probe
from pipeline.errors import UnreachableError
from pipeline.model import Op
from tests.checks.world_fake import ONE, TABLE, TWO, FakeWorld, in_step


def settle(probe: MaxId, world: FakeWorld) -> Ruling:
    """What it says at last of a world in step in which nothing more happens."""
    for _ in range(6):
        world.catch_up()
        answer = run_probe(Check("max_id", probe, TABLE), world)
        if isinstance(answer, Verdict):
            return answer.ruling
    raise AssertionError("it never said anything")


@pytest.mark.parametrize(
    ("source", "mirror", "code"),
    [
        pytest.param([0], [], "mirror_short", id="only id 0 is missing"),
        pytest.param([], [0], "mirror_ahead", id="a ghost with id 0"),
        pytest.param([-5], [], "mirror_short", id="a negative id is missing"),
        pytest.param([], [-5], "mirror_ahead", id="a ghost with a negative id"),
        pytest.param([-5, 0], [-5], "mirror_short", id="id 0 after a negative one"),
        pytest.param([-7, -5], [-7], "mirror_short", id="the higher of two negative ones"),
        pytest.param([1], [], "mirror_short", id="the first row of all"),
        pytest.param([0], [0], "", id="id 0 on both sides"),
        pytest.param([], [], "", id="both empty"),
    ],
)
def test_f15_an_id_on_one_side_only_fails_whatever_its_number(
    source: list[int], mirror: list[int], code: str
) -> None:
    world = FakeWorld()
    world.rows[ONE] |= set(source)  # as under sql_log_bin=0
    world.copy[ONE].update(mirror)

    ruling = settle(MaxId(), world)

    assert ruling.code == code
    assert ruling.outcome is (Outcome.FAIL if code else Outcome.PASS)


@pytest.mark.parametrize(
    ("source", "mirror", "told"),
    [
        pytest.param([], [], "both sides are empty", id="empty"),
        pytest.param([4, 9], [4, 9], "both sides reach id 9", id="in step"),
        pytest.param([4, 8], [4], "the mirror is 4 ids short, 5 may be", id="within its tolerance"),
    ],
)
def test_a_pass_says_no_more_than_what_was_seen(
    source: list[int], mirror: list[int], told: str
) -> None:
    world = FakeWorld()
    world.rows[ONE] |= set(source)
    world.copy[ONE].update(mirror)

    ruling = settle(MaxId(tolerance=5), world)

    assert (ruling.outcome, ruling.reason) == (Outcome.PASS, told)


def test_one_id_beyond_the_tolerance_fails() -> None:
    world = FakeWorld()
    world.rows[ONE] |= {4, 10}
    world.copy[ONE].update([4])

    assert settle(MaxId(tolerance=5), world).keys == ("shop/shop_00.orders:10",)


def test_a_finding_is_told_though_the_source_answers_no_further_question() -> None:
    probe, world = MaxId(), FakeWorld()
    world.commit((Op.CREATE, ONE, 1))
    world.catch_up()
    check = Check("max_id", probe, TABLE)
    world.rows[ONE].add(7)
    for _ in range(2):
        assert isinstance(run_probe(check, world), NotYet)
        world.catch_up()

    def falls_silent() -> None:
        world.error = UnreachableError("source:shop: down: gone")

    world.meanwhile = [falls_silent]  # its next look is the last that is answered
    answer = run_probe(check, world)

    assert isinstance(answer, Verdict)
    assert answer.ruling.code == "mirror_short"


def test_f103_every_shard_that_is_short_is_named() -> None:
    reading = Reach((), 9, (((ONE, 9), 2), ((TWO, 4), -1)))

    ruling = MaxId().judge(reading, ())

    assert (ruling.outcome, ruling.code) == (Outcome.FAIL, "mirror_short")
    assert ruling.keys == ("shop/shop_00.orders:9", "shop/shop_01.orders:4")


LOOK = {"suspects": [["shop/shop_00.orders", 7]], "before": [1], "landed": 0, "tries": 0}
ENDED = "2026-03-01T09:00:00+00:00"


@pytest.mark.parametrize(
    "memory",
    [
        {"v2": 1},
        {"ended": ENDED[:19], "maxima": [], "look": None, "gaps": []},
        {"ended": 7, "maxima": [], "look": None, "gaps": []},
        {"ended": ENDED, "maxima": 7, "look": None, "gaps": []},
        {"ended": ENDED, "maxima": [["shop/shop_00.orders", "x"]], "look": None, "gaps": []},
        {"ended": ENDED, "maxima": [], "look": {}, "gaps": [["a"]]},
        {"ended": ENDED, "maxima": [], "look": {**LOOK, "ended": ENDED}, "gaps": []},
        {"ended": ENDED, "maxima": [], "look": {"v2": 1}, "gaps": []},
    ],
)
def test_a_memory_of_another_shape_is_named_once_and_ends_no_finding(
    memory: Mapping[str, Any],
) -> None:
    world = FakeWorld()
    world.commit((Op.CREATE, ONE, 1))
    world.rows[ONE].add(7)
    assert settle(MaxId(), world).code == "mirror_short"

    world.memory["max_id"] = memory
    found = in_step("max_id", MaxId(), world, 8)

    assert found[0].code == "unprovable"
    assert "the stored memory of check max_id for shop.orders" in found[0].reason
    assert {one.code for one in found[1:]} == {"mirror_short"}


def truncate(world: FakeWorld) -> None:
    world.truncate(ONE)
    world.commit((Op.CREATE, ONE, 3))


def delete_highest(world: FakeWorld) -> None:
    world.commit((Op.DELETE, ONE, 9))


def empty(world: FakeWorld) -> None:
    world.truncate(ONE)


@pytest.mark.parametrize(
    ("happens", "told"),
    [
        pytest.param(truncate, "both sides reach id 3", id="ids begin again"),
        pytest.param(delete_highest, "both sides reach id 3", id="the highest row is deleted"),
        pytest.param(empty, "both sides are empty", id="nothing is left"),
    ],
)
def test_an_id_that_is_gone_from_both_sides_is_not_claimed(
    happens: Callable[[FakeWorld], None], told: str
) -> None:
    """The source had it when its highest id was read, and the mirror has passed that."""
    world = FakeWorld()
    world.commit((Op.CREATE, ONE, 3), (Op.CREATE, ONE, 9))
    world.catch_up()
    run_probe(Check("max_id", MaxId(), TABLE), world)
    happens(world)

    ruling = settle(MaxId(), world)

    assert (ruling.outcome, ruling.reason) == (Outcome.PASS, told)


@pytest.mark.parametrize("id_", [2**63 - 1, 2**63, 2**64 - 1, -(2**63)])
def test_ids_of_any_64_bits_are_compared_exactly(id_: int) -> None:
    world = FakeWorld()
    world.commit((Op.CREATE, ONE, id_ - 1 if id_ > 0 else id_))
    world.catch_up()
    assert settle(MaxId(), world).outcome is Outcome.PASS
    lost = id_ if id_ > 0 else id_ + 1
    world.rows[ONE].add(lost)  # as under sql_log_bin=0
    in_step("max_id", MaxId(), world, 1)

    ruling = settle(MaxId(), world)

    assert (ruling.code, ruling.keys) == ("mirror_short", (f"{ONE}:{lost}",))
    assert ruling.reason.endswith(", 1 short")
