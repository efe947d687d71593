"""What is really lost, extra or doubled is found within a few rounds and named, and clears."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from checks.model import NotYet, Outcome, Verdict
from checks.probes.completeness import Completeness
from checks.probes.max_id import MaxId
from checks.probes.offset_keys import OffsetKeys
from checks.probes.range_counts import RangeCounts
from checks.run import Check, run_probe
from pipeline.model import Op
from tests.checks.world_fake import ONE, TABLE, TWO, FakeWorld

PROBES: dict[str, Any] = {
    "max_id": MaxId(),
    "offset_keys": OffsetKeys(),
    "range_counts": RangeCounts(block_rows=16, newest=1, rotating=2, leaf=4),
    "completeness": Completeness(),
}


def busy(world: FakeWorld, chance: random.Random) -> None:
    """A few transactions on ids from 1000 up, and the mirror somewhat behind them."""
    for _ in range(5):
        op = chance.choice([Op.CREATE, Op.CREATE, Op.UPDATE, Op.DELETE])
        world.commit((op, chance.choice([ONE, TWO]), chance.randrange(1000, 1060)))
    world.write_heartbeat()
    world.land(chance.randrange(4, 40))
    world.apply(chance.randrange(1, 3))


def quiet(world: FakeWorld, chance: random.Random) -> None:
    """Nothing but heartbeats."""
    world.catch_up()


def filled() -> FakeWorld:
    world = FakeWorld()
    for shard in (ONE, TWO):
        world.commit(*[(Op.CREATE, shard, id_) for id_ in range(1, 200)])
        world.commit(*[(Op.CREATE, shard, id_) for id_ in range(1000, 1040, 3)])
    world.catch_up()
    return world


def run_rounds(
    name: str, world: FakeWorld, work: Callable[[FakeWorld, random.Random], None], count: int
) -> list[Verdict]:
    """Verdicts of *count* rounds with work in between."""
    chance = random.Random(7)
    seen = []
    for _ in range(count):
        work(world, chance)
        answer = run_probe(Check(name, PROBES[name], TABLE), world)
        if not isinstance(answer, NotYet):
            seen.append(answer)
    return seen


def lost_insert(world: FakeWorld) -> None:
    world.rows[TWO].add(500)  # as under sql_log_bin=0


def lost_delete(world: FakeWorld) -> None:
    world.rows[TWO].remove(50)


def row_taken_out(world: FakeWorld) -> None:
    del world.copy[TWO][50]


def doubled_row(world: FakeWorld) -> None:
    world.copy[TWO][50] = 2


def ghost_beyond(world: FakeWorld) -> None:
    world.copy[TWO][9_000_000] = 1


def ghost_below(world: FakeWorld) -> None:
    world.copy[TWO][-77] = 1


def lost_at_the_top(world: FakeWorld) -> None:
    world.rows[TWO].add(5000)


KEY = "shop/shop_01.orders:"
HARM = [
    pytest.param("range_counts", lost_insert, "missing_rows", f"{KEY}500", id="lost insert"),
    pytest.param("range_counts", row_taken_out, "missing_rows", f"{KEY}50", id="row taken out"),
    pytest.param("range_counts", lost_delete, "extra_rows", f"{KEY}50", id="lost delete"),
    pytest.param("range_counts", doubled_row, "doubled_rows", f"{KEY}50", id="doubled row"),
    pytest.param("range_counts", ghost_beyond, "extra_rows", f"{KEY}9000000", id="ghost above"),
    pytest.param("range_counts", ghost_below, "extra_rows", f"{KEY}-77", id="ghost below"),
    pytest.param("max_id", lost_at_the_top, "mirror_short", f"{KEY}5000", id="max short"),
    pytest.param("max_id", ghost_beyond, "mirror_ahead", f"{KEY}9000000", id="max ahead"),
]


@pytest.mark.parametrize("work", [quiet, busy])
@pytest.mark.parametrize(("name", "harm", "code", "key"), HARM)
def test_harm_is_named_while_the_source_goes_on(
    name: str,
    harm: Callable[[FakeWorld], None],
    code: str,
    key: str,
    work: Callable[[FakeWorld, random.Random], None],
) -> None:
    world = filled()
    before = run_rounds(name, world, work, 12)
    harm(world)

    after = run_rounds(name, world, work, 40)

    assert {each.ruling.outcome for each in before} == {Outcome.PASS}
    failed = [each for each in after if each.ruling.outcome is Outcome.FAIL]
    assert failed
    assert failed[0].ruling.code == code
    assert {each.ruling.keys for each in failed} == {(key,)}
    assert failed[0].as_of
    last = after[-1].ruling.outcome
    assert last is Outcome.FAIL, "a loss that lasts stays a loss"


def test_harm_put_right_passes_again() -> None:
    world = filled()
    lost_insert(world)
    assert run_rounds("range_counts", world, busy, 40)[-1].ruling.outcome is Outcome.FAIL

    world.commit((Op.UPDATE, TWO, 500))

    assert run_rounds("range_counts", world, busy, 12)[-1].ruling.outcome is Outcome.PASS


def test_a_loss_in_a_table_of_few_blocks_is_named_in_the_third_round() -> None:
    world = filled()
    check = Check("range_counts", RangeCounts(), TABLE)
    assert isinstance(run_probe(check, world), NotYet)
    lost_insert(world)

    answers = []
    for _ in range(3):
        world.catch_up()
        answers.append(run_probe(check, world))

    assert isinstance(answers[-1], Verdict)
    assert answers[-1].ruling.outcome is Outcome.FAIL
    assert "500" in answers[-1].ruling.reason


def test_a_large_loss_is_named_by_runs_and_counted() -> None:
    world = filled()
    run_rounds("range_counts", world, quiet, 2)
    for id_ in range(1, 200):
        del world.copy[ONE][id_]

    failed = run_rounds("range_counts", world, quiet, 12)[-1].ruling

    assert failed.outcome is Outcome.FAIL
    assert failed.keys[0].startswith("shop/shop_00.orders:1-")
    assert len(failed.keys) <= 20


def test_a_last_message_whose_row_is_absent_is_missed_twice_then_named() -> None:
    world = filled()
    world.commit((Op.CREATE, TWO, 700))
    world.catch_up()
    run_rounds("offset_keys", world, quiet, 2)
    del world.copy[TWO][700]

    after = run_rounds("offset_keys", world, quiet, 3)

    assert after[-1].ruling.outcome is Outcome.FAIL
    assert after[-1].ruling.code == "missing_rows"
    assert '"700"' in after[-1].ruling.keys[0]
    world.copy[TWO][700] = 1
    assert run_rounds("offset_keys", world, busy, 4)[-1].ruling.outcome is Outcome.PASS


def test_a_deleted_row_that_is_still_there_is_named() -> None:
    world = filled()
    world.commit((Op.DELETE, TWO, 50))
    world.catch_up()
    run_rounds("offset_keys", world, quiet, 2)
    world.copy[TWO][50] = 1

    after = run_rounds("offset_keys", world, quiet, 3)

    assert after[-1].ruling.code == "extra_rows"


@pytest.mark.parametrize("work", [quiet, busy])
def test_a_promised_event_that_never_lands_is_named_by_its_transaction(
    work: Callable[[FakeWorld, random.Random], None],
) -> None:
    world = filled()
    before = run_rounds("completeness", world, work, 8)
    world.commit((Op.CREATE, ONE, 800), (Op.CREATE, ONE, 801))
    lost = world.log_[-2]
    lost.lost = True

    after = run_rounds("completeness", world, work, 40)

    assert {each.ruling.outcome for each in before} == ({Outcome.PASS} if work is busy else set())
    assert after[-1].ruling.outcome is Outcome.FAIL, "a loss that lasts stays a loss"
    assert after[-1].ruling.keys == (lost.tx,)
    assert after[-1].ruling.code == "missing_events"
    assert after[-1].value == 1.0


def test_what_the_mirror_does_not_reach_is_unknown_and_never_a_loss() -> None:
    world = filled()
    for name, probe in PROBES.items():
        run_probe(Check(name, probe, TABLE), world)
        world.tick(probe.patience * 2)
        answer = run_probe(Check(name, probe, TABLE), world)

        assert not isinstance(answer, NotYet)
        assert answer.ruling.outcome is Outcome.UNKNOWN
        assert answer.ruling.code == "not_reached"
